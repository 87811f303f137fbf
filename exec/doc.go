// Package exec runs operations on raw tensors: it owns the providers, the device
// memory and the buffer pool, decides where each operation runs, and holds the op
// library.
//
// An [Engine] is shared by goroutines. A [Queue] is driven by one goroutine at a time,
// which its owner makes sure of: exec does not check it. An op validates, allocates,
// submits and returns; nothing is deferred.
//
// Placement: with a device, an op runs there if the provider's plan supports it
// and either some operand other than weights is newest on the device, or the work
// is worth moving the operands. Otherwise, or when memory runs out or the device
// is lost before the op was submitted, the CPU runs it with the same semantics.
//
// Failure: an op that the device does not take is run by the CPU. One that the device
// took and failed, or whose row numbers turn out to be wrong, is an error of the values
// that may come from it, found where they are read on the host, and of nothing else.
//
// Ownership: every tensor that an op returns is the caller's, who releases it
// once. Operands are only borrowed for the call.
package exec
