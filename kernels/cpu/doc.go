// Package cpu has the kernels that compute in host memory. They are the reference that
// every provider is checked against.
//
// [Executor] runs them, on operands whose Mem.Host is set, wherever those bytes come
// from: the provider of package providers/cpu runs them on the runtime's memory, a
// simulated device on its own. The package has no queues and no memory.
//
// Invariants:
//   - Arguments have passed op.Infer or op.Check, whose word is taken: the kernels take
//     every operation and format of that contract. What is checked before the first byte
//     is touched is the memory: its length, its alignment, and row numbers.
//   - Every output element is computed by one lane in a fixed order of
//     operations, so results do not depend on the number of lanes, on the pieces
//     that work is cut into, on the other rows of a batch, or on timing.
//   - Nothing allocates on the Go heap once an Executor exists, except errors.
//   - A context that is done ends a running operation within some 5 ms of work:
//     lanes poll it between tasks and pieces whose cost is bounded, whatever the
//     shapes. Nothing registers with the context.
//
// Numbers are f32 as stored. Sums of a row norm are carried in float64, dot
// products in two f32 accumulators (even and odd elements), the softmax
// denominators in float64.
//
// An f32 output, or activation, starts on a multiple of 4 bytes. What may lie in a
// model file (matmul weights, gathered tables, norm weights, operands of copies and of
// elementwise operations) needs no alignment. Bytes are little-endian, as are the
// processors that this module is built for.
//
// Inputs may not overlap the output, except that the elementwise operations, the
// row norms, softmax and RoPE also work in place: on an output that is the same
// memory with the same layout.
package cpu
