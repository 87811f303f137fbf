// Package fucina computes with tensors whose axes have names, on the CPU and on
// devices with memory of their own.
//
//	e, err := fucina.Open()
//	...
//	defer e.Close()
//	c, err := e.NewContext()
//	...
//	x := fucina.FromSlice(c, values, fucina.Ax("batch", 2), fucina.Ax("in", 3))
//	y := x.Dot(w, "in").Add(bias) // w {out in}, bias {out}, y {batch out}
//	out, err := fucina.Data[float32](y)
//
// # Engines and contexts
//
// An [Engine] is what goroutines share: providers, memory, weights. A [Context] is
// one queue over it, driven by one goroutine at a time; a program with one goroutine
// needs one. Operations are eager: each validates, submits and returns. One that runs
// on a device does not wait for it, unless its queue or the memory is full; one that
// the CPU runs waits for operands that a device still computes. The functions that reach
// elements wait for them: [Data] and [CopyOut] copy, [Read] and [Update] lend the memory
// for the length of a call. [Context.SetCancel] ends all this waiting.
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
//   - [Tensor.Dot] contracts axes. The other shared axes are batch axes, of equal
//     sizes, and come first in the result; then the left operand's, then the right's.
//   - A tensor has at most [MaxRank] axes and no name twice. A scalar has none.
//
// # Errors
//
// An operation returns one [Tensor]. If it fails, that is a failed tensor, which carries
// the error through the operations that follow, until [Tensor.Err] or a function that
// returns an error shows it. The error begins with the place of the call that failed,
// prints the axes of all operands, and wraps one of the package's sentinels:
//
//	mlp.go:16: dot over "k": left {batch:2 m:2 k:3}, right {n:4}: no axis "k"
//
// The verb %+v adds the callers of that place. [Context.Debug] prints each operation, and
// calls a function at each failure.
//
// # Views
//
// Views ([Tensor.Narrow], [Tensor.Rename], [Tensor.Permute], [Tensor.BroadcastTo],
// [Tensor.Split], [Tensor.Merge]) share the storage of their tensor, keep it alive,
// and never copy: what the layout cannot express is ErrUnsupportedView, and
// [Tensor.Contiguous] copies where it must.
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
// Memory is not left to the garbage collector, which sees none of it. These rules say when
// a tensor ends; a forward pass that follows them works in a few buffers, and allocates
// nothing on the Go heap.
//
//  1. A tensor has one owner: the innermost [Frame] or [Scope] of its context that was open
//     when the operation ran, or else the context. It ends with its owner, so
//     [Context.Close] ends everything that was made on the context, and a forgotten frame
//     costs memory until the frame around it closes.
//  2. Open a frame first, and end it on every path. A function with one exit ends with
//     "return f.Return(y)". A function that can leave early, or has two results, writes
//     "defer f.Close()" and returns f.Keep of each. A loop ranges over [Context.Frames],
//     which gives each turn a frame that also closes on break, return and panic.
//  3. [Frame.Keep] gives a tensor to what is around the frame. [Frame.Return] keeps, then
//     closes. If the frame does not own the tensor, as with an argument or a weight, the
//     result is a new tensor over the same memory, so a result is always the caller's
//     own. A view keeps all the memory that it shows alive: return a [Tensor.Copy] of a
//     small view of a large tensor.
//  4. What lives in a struct gets there by [Tensor.Shared] or [Replace]. A Shared tensor
//     has no frame and no context. It lives until its Release, and any context of the
//     engine may use it; [Tensor.On] says which one. Replace gives the new value the owner
//     of the old one, and ends the old one. A tensor that was stored without either ends
//     with its frame, and its next use is ErrReleased.
//  5. Every operation makes a new tensor, even if there was nothing to do. Only On, Move,
//     Expect, FailIf and Shared, and an operation that writes to its receiver, return the
//     receiver. A loop that moves its variable on with Replace begins with a tensor of its
//     own: h := h0.Ref().
//  6. [Tensor.Release] frees early, and is never needed in a frame. On a tensor that was
//     released, that failed or that is zero it does nothing.
//  7. [Tensor.Move] marks a value, not the tensor: the operation that takes the marked
//     value ends the tensor, also if the operation fails. Only what the innermost frame
//     owns can be moved.
//  8. In a Scope names end as in a Frame, and the memory stays until the Scope closes. So a
//     function that is right in a Frame is right in a Scope. [Context.NoGrad] is a frame
//     that frees its memory inside a Scope too.
//  9. A failed tensor owns nothing, needs no release, and may go to other contexts.
//  10. A failure stays until somebody looks at it. [Tensor.Err] is a look, and so is every
//     function that returns the failure as an error; printing is not. Keep and Return give
//     the first failure inside the frame that nobody looked at, in place of their
//     argument. [Context.Err], [Context.Sync] and [Context.Close] return the context's. A
//     look also covers what failed on the context after it, up to the look.
//  11. One goroutine at a time drives a context, and frames nest: closing a frame closes
//     those inside it, and closing it again does nothing. A tensor goes to another
//     goroutine as ch <- t.Shared(), and is there (<-ch).On(c2).
//
// An ended tensor that is used again is ErrReleased, never another tensor. [Engine.Close]
// reports Shared tensors that were never released. The slice that Read and Update lend is
// the storage itself, and nothing but the build tag invariants, under which a late use of
// it faults, keeps a program from keeping it.
//
// # Concurrency
//
// Several goroutines may call the methods of an Engine, and the methods and functions that
// only look at a Tensor. A call that finds another goroutine inside its Context is ErrBusy,
// which only its own result tells. The operands of one operation are driven by one context
// or by none, else it fails with ErrContext.
//
// [Context.Close] waits for the context's own work, and nobody else waits for that.
// [Engine.Close] fails with ErrBusy while a context is in use, without an effect on any
// call. After it everything but the release and the description of Shared tensors fails
// with ErrClosed.
package fucina
