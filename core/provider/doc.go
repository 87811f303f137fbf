// Package provider defines the interface between the runtime and what computes. A
// [Provider] has queues and kernels. The CPU is one, and its kernels compute in host
// memory. A [Device] is a provider that also has memory and transfers of its own.
//
// The runtime checks the operands once, by the contract of package op, asks
// [Provider.Plan], allocates the output where the plan says, resolves every operand to a
// [op.Mem], and submits.
// Providers keep no reference to the arguments after Submit returns and own no
// tensor. Tracing, fault injection and capture are wrappers of the interface.
//
// Invariants:
//   - A queue executes in submission order. Work of other queues is ordered only
//     by WaitFor, which only orders: a failure of other queues never fails a queue.
//   - Plan touches no device and depends on nothing but the arguments' metadata;
//     a decline there is normal, and the CPU runs the operation.
//   - An error from Submit, or from a device's Upload or Download, means that nothing
//     was enqueued. A failure after that is a failure of the returned Work.
//   - Every operation's result is independent of the number of threads and of
//     timing: reruns are bit-identical.
package provider
