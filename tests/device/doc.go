// Package device tests the whole path, from a model file to tokens, on the simulated
// device of internal/sim/discrete. The tests check the operations and transfers of a step,
// the behaviour after a failure at any submission, allocation or transfer, and the
// behaviour when memory runs out. They have the build tag accel.
//
// Sweeps over faults run a part of the cases, chosen by FUCINA_TEST_SEED. With
// FUCINA_TEST_FULL=1 they run all of them.
package device
