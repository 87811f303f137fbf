// Package exec runs operations on raw tensors. It owns the providers, the device memory
// and the buffer pool, and decides where each operation runs.
//
// An [Engine] is shared by goroutines. A [Queue] is used by one goroutine at a time; the
// caller ensures that, and exec does not check it. An op validates, allocates, submits
// and returns; nothing is deferred.
//
// Placement: with a device, an op runs there if the provider's plan supports it and
// either an operand other than a weight, or the tensor that the op writes into, is newest on
// the device, or the op's cost reaches the gate for moving operands. Otherwise the CPU runs it
// with the same semantics. The CPU also runs an op whose submission to the device fails
// because memory runs out or the device is lost. If the plan declines an op that is a
// sequence of others, such as op.Project, these run instead, and each is placed by itself.
//
// Indices: an op checks its indices, such as row numbers, where they are: on the host before
// it runs, or in the kernel. The error is the same.
//
// Failure: if an op fails on the device after it was submitted, or its indices turn out to
// be wrong there, every value that may come from it fails when the host reads it. That
// includes the whole buffer of a tensor that the op wrote into. No other value fails.
//
// Ownership: the caller owns every tensor that an op returns and releases it once. An op
// borrows its operands for the call.
package exec
