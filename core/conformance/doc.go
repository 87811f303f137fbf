// Package conformance is the suite that every provider passes. It runs each operation of
// package op over dtypes, shapes and layouts and compares the results with float64, and
// it tests the order, closing and cancellation of queues.
//
// [Run] takes a function that opens a provider of any module. It does not import package
// testing, so that a program can run it on its user's machine, with its own [T] and
// [Options.Short]. A [provider.Device] gets its operands by uploads, any other provider
// in host memory.
//
// Operations that compute run in exact mode and otherwise, see [op.Args]. If a product by weights in
// a block format is not exact, the provider may round activations to 8 bits, and its errors are
// compared with those of rounding.
//
// A case fails if the error of the result exceeds the operation's tolerance, if a byte
// changes outside the elements that the operation writes, including the bytes around the
// operand, or if a second run gives other bits. A composite operation must have the bits of
// its parts, which run on the same provider. The rows of products, attention and norms must
// have the same bits alone as among others.
//
// A case that the provider declines in Plan is counted and reported. It is a failure if Submit
// runs it all the same, or if [Options.Reference] says that the provider computes with the
// CPU's kernels.
//
// Cases are random and depend only on [Options.Seed] and their name. A failure prints the
// seed and the name, with which it can be repeated. The suite does not test operands that
// share memory, nor failed devices.
package conformance
