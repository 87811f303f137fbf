// Package cpu is the provider that computes in host memory, with the kernels of
// package kernels/cpu.
//
// [Provider] owns a worker team and its queues. The queues share the team, and each has
// kernel state of its own. The provider has no memory: operands lie in memory of the
// caller, with Mem.Host set.
//
// Invariants:
//   - An operation has ended when Submit returns, and Submit returns the zero Work.
//   - After WaitFor, the queue's next Submit waits until the other work has ended, well
//     or not.
//   - Queues run concurrently. Results depend neither on other queues nor on the number
//     of threads.
//   - Submit allocates only errors on the Go heap.
package cpu
