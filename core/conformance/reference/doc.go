// Package reference has what operations are tried with: operands in every layout, and the
// results of the operations in float64, by loops so plain that they can be read against
// the comments of package op.
//
// Operands lie in host memory. A [Layout] says how: with gaps between the elements, in
// another order of the axes, or with rows that share memory. [Result] reads the inputs of
// any layout and allocates what it returns. Nothing here is fast.
//
// The package is for the conformance suite and for tests of kernels. It knows no
// providers.
package reference
