// Package fucina computes with tensors whose axes have names, on the CPU and on
// devices with memory of their own.
//
//	e, err := fucina.Open()
//	...
//	defer e.Close()
//	c, err := e.NewContext()
//	...
//	x, err := fucina.FromSlice(c, values, fucina.Ax("batch", 2), fucina.Ax("in", 3))
//	y, err := x.Dot(c, w, "in") // w {out in}, y {batch out}
//	out, err := fucina.Data[float32](y)
//
// # Engines and contexts
//
// An [Engine] is what goroutines share: providers, memory, weights. A [Context] is
// one queue over it, driven by one goroutine at a time; a program with one goroutine
// needs one. Operations are eager: each validates, submits and returns. One that runs
// on a device does not wait for it, unless its queue or the memory is full; one that
// the CPU runs waits for operands that a device still computes. The functions that reach
// elements wait for them: [Data] and [ReadInto] copy, [Read] and [Update] lend the memory
// for the length of a call. Only ReadInto can be cancelled.
//
// A tensor belongs to the engine that made it. An operation on a context of another
// engine fails with ErrEngine, on the CPU as on devices, and so does Weight for a buffer
// that holds another engine's weights.
//
// # Axes
//
// Axes have names, and every decision is made by name, never by position. The order
// of the axes is their order in memory (row-major unless the tensor is a view), and
// changes no result:
//
//   - [Tensor.Add] and its like align by name. The result has the axes of the left
//     operand, then those that only the right one has. An axis that one side lacks,
//     or has with size 1, repeats there; so operands without a common axis give an
//     outer product.
//   - [Tensor.Dot] contracts one axis. The other shared axes are batch axes, of equal
//     sizes, and come first in the result; then the left operand's, then the right's.
//   - A tensor has at most [MaxRank] axes and no name twice. A scalar has none.
//
// Errors of a wrong name or size print the axes of all operands, and wrap one of the
// package's sentinels:
//
//	dot over "k": left {batch:2 m:2 k:3}, right {n:4}: no axis "k"
//
// Views ([Tensor.Narrow], [Tensor.Rename], [Tensor.Permute], [Tensor.BroadcastTo],
// [Tensor.Split], [Tensor.Merge]) share the storage of their tensor, keep it alive,
// and never copy: what the layout cannot express is ErrUnsupportedView, and
// [Tensor.Materialize] makes a contiguous copy.
//
// # Element formats
//
// Tensors have any format of package dtype. Arithmetic takes f32; the one mix that
// needs no conversion is a right-hand side of Dot in f16, bf16 or a block format of
// weights. [Tensor.To] converts, and nothing else does. Element access is generic and
// checked: the type argument of [Data] must be the tensor's own element type.
//
// # Ownership
//
// Whoever gets a tensor from a function of this package releases it, once, with
// [Tensor.Release]; operands are only borrowed for the call. Its memory then serves
// the next result of its size, usually at once, so a forward pass that releases each
// value after its last use works in a few buffers, and allocates nothing on the Go
// heap. Memory is not left to the garbage collector, which sees none of it:
// [Engine.Close] reports what was forgotten.
//
// A released tensor that is used again is ErrReleased, never another tensor. The slice
// that Read and Update lend is the storage itself, and nothing but the build tag
// invariants, under which a late use of it faults, keeps a program from keeping it.
//
// While a [Scope] is open, results belong to it instead: Release does nothing, and
// closing the scope releases them. The same code so serves inference and training.
//
// [Replace] moves a variable on to its next value, and keeps the old one if there is
// none.
//
// # Concurrency
//
// An Engine's methods may be called by several goroutines, and so may those of a
// Tensor that take no Context. A call that finds another goroutine inside its
// Context is ErrBusy. Tensors belong to no context: a result of one may be an operand
// in another of the same engine.
//
// [Context.Close] waits for the context's own work, and nobody else waits for that.
// [Engine.Close] fails with ErrBusy while a context is in use, without an effect on any
// call. After it everything but the release and the description of tensors fails with
// ErrClosed.
package fucina
