// Package provider defines the interface between the runtime and the processors that
// execute its operations. A [Provider] has queues and kernels. The CPU provider's kernels
// compute in host memory. A [Device] is a provider that also has memory and transfers of
// its own.
//
// For each operation, the runtime checks the operands once by the contract of package op,
// calls [Provider.Plan], allocates the outputs that do not exist, resolves every operand to an
// [op.Mem], and calls Submit. A provider keeps no reference to the arguments after Submit returns and
// owns no tensor. Tracing, fault injection and capture are wrappers of the interface.
//
// Invariants:
//   - A queue executes in submission order. WaitFor orders work of different queues and
//     does nothing else: a failure on one queue never fails another.
//   - Plan touches no device and depends only on the arguments' metadata. A provider may
//     decline an operation there; the CPU then runs it, or the operations that it is a
//     sequence of run instead.
//   - An error from Submit, or from a device's Upload or Download, means that nothing
//     was enqueued. A failure after that is a failure of the returned Work.
//   - An operation's result does not depend on the number of threads or on timing:
//     reruns are bit-identical.
package provider
