// Package cpu is the provider that computes in host memory, with the kernels of
// package kernels/cpu.
//
// [Provider] owns a worker team, which all its queues share, and its queues, each with
// kernel state of its own. It has no memory: operands lie wherever the caller has them,
// with Mem.Host set.
//
// Invariants:
//   - Work is done when Submit returns; the Work is the zero Work.
//   - A queue that waits for work of other queues waits in its next Submit, until that
//     work has ended, well or not.
//   - Queues run at the same time. Results do not depend on that, nor on the number of
//     threads.
//   - Submit allocates nothing on the Go heap, except errors.
package cpu
