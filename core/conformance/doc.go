// Package conformance is the suite that every provider passes: each operation of package
// op over dtypes, shapes and layouts, against results in float64, and what queues promise
// of order, closing and cancellation.
//
// [Run] takes a function that opens a provider, of this module or of another. It needs no
// package testing: a program can run it on its user's machine, with its own [T] and
// [Options.Short]. A [provider.Device] gets its operands by uploads, any other provider
// in host memory.
//
// A case fails if the result is further from the reference than the operation's tolerance,
// if a byte outside of the output's elements changed, including those around the operand,
// or if a second run gives other bits. A case that the provider declines in Plan is
// counted and reported, and is no failure, unless [Options.Reference] says that the
// provider is the CPU's or computes with its kernels.
//
// Cases are random, and depend on nothing but [Options.Seed] and their name: a failure is
// repeated with the seed and the name that it prints. What a provider may do with memory
// that operands share, and what a failed device does, is not tested here.
package conformance
