// Package reference has the test data of operations: operands in every layout, and the
// operations' results in float64. Simple loops compute the results, so that they can be
// compared with the comments of package op.
//
// Operands lie in host memory. A [Layout] gives the order of their elements, with gaps
// between the elements, another order of the axes, or rows that share memory. [Result]
// accepts inputs of any layout and allocates its result. It is slow.
//
// The package is for the conformance suite and for tests of kernels. It does not import
// providers.
package reference
