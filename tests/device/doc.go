// Package device tests the whole path, from a model file to tokens, on the
// simulated device of internal/sim/discrete: what a step costs, what survives a
// failure injected at any submission, allocation or transfer, and what memory that
// runs out does. The tests have the build tag accel.
//
// Sweeps over faults run a share of the cases, chosen by FUCINA_TEST_SEED; with
// FUCINA_TEST_FULL=1 they run all of them.
package device
