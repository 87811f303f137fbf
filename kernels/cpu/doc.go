// Package cpu has the kernels that compute in host memory. Those of exact operations (op.Args.Exact)
// are the reference that every provider is checked against. The others are faster: products by
// weights run in packages simd and dense, and the other loops in package vector. They have a written
// definition of their own, with the same bits on every processor.
//
// [Executor] runs the kernels on operands whose Mem.Host is set. The provider of package
// providers/cpu runs them on the runtime's memory, a simulated device on its own memory.
// The package has no queues and no memory.
//
// Invariants:
//   - Arguments have passed op.Infer or op.Check, and the kernels rely on that contract.
//     They take every operation and format of it. Before the first byte is touched, the
//     executor checks the memory's length, its alignment, and indices.
//   - An optional operand that is absent has no memory, and no kernel looks at it.
//   - Of an output that exists (op.Role.Into), a kernel touches only the elements that it
//     writes, whether the operation succeeds or not.
//   - Indices may change while a kernel runs, because another goroutine writes to them. The
//     kernel checks each index that it reads before it uses it.
//   - One lane computes an output element, in a fixed order of operations. So results do
//     not depend on the number of lanes, on how work is divided, on the other rows of a
//     batch, or on timing. Attention over pages has the bits of attention over the same keys
//     in contiguous memory.
//   - Once an Executor exists, only errors allocate on the Go heap.
//   - An operation ends within about 5 ms of work after its context is done. Lanes poll
//     the context between tasks and pieces of bounded cost, whatever the shapes.
//
// Numbers are f32 as stored. In an exact operation the sums of a row norm and the softmax
// denominators are accumulated in float64, and a dot product has two f32 accumulators, for even and
// odd elements. Otherwise the definitions of simd, dense and vector hold: activations that multiply
// weights in block formats become integers of 8 bits first.
//
// An f32 output or activation starts on a multiple of 4 bytes. Operands that may lie in a
// model file (the weights and biases of products, keys and values, gathered tables, norm
// weights) need no alignment, nor do indices, the rows that SetRows and RotateStore write, and
// the operands of elementwise operations and of copies between scalar dtypes. Bytes are
// little-endian, like the processors that this module is built for.
//
// Inputs may not overlap an output, nor may two outputs overlap, with one exception: the
// elementwise operations, the row norms, softmax and RoPE also accept an output that is the
// same memory as an input with the same layout. So may each output of AddRMSNorm be x or y,
// the rotated queries of RotateStore its queries, and the output of Project its residual.
package cpu
