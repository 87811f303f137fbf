// Package fucina computes with tensors whose axes have names, on the CPU and on
// devices that have their own memory.
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
// An [Engine] holds the resources that goroutines share: providers, memory and weights.
// A [Context] is a queue on an engine. One goroutine at a time drives it, and a program
// with one goroutine needs one context.
//
// Operations are eager: each operation validates its operands, submits the work and
// returns. An operation that runs on a device does not wait for the device, unless its
// queue or the memory is full. An operation that runs on the CPU waits for operands that
// a device is still computing. The functions that access elements wait for them: [Data]
// and [CopyOut] copy the elements, [Read] and [Update] lend the memory for the length of
// a call. [Context.SetCancel] ends all of these waits.
//
// A tensor belongs to the engine that made it. An operation on a context of another
// engine fails with ErrEngine, on every provider. [Engine.Weight] fails with ErrEngine if
// its buffer holds weights of another engine.
//
// # Axes
//
// Axes have names, and operations match axes by name, never by position. The order of
// the axes is their order in memory (row-major unless the tensor is a view). It does not
// change the result of an operation:
//
//   - [Tensor.Add] and the other elementwise operations align their operands by name. The
//     result has the axes of the left operand, followed by the axes that only the right
//     operand has. An axis that one operand lacks, or has with size 1, repeats in that
//     operand. Operands without a common axis therefore give an outer product.
//   - [Tensor.Dot] contracts axes. The other axes that both operands have are batch axes:
//     they have equal sizes and come first in the result. The remaining axes of the left
//     operand come next, and those of the right operand last.
//   - A tensor has at most [MaxRank] axes, and their names differ. A scalar has no axes.
//
// # Errors
//
// An operation returns one [Tensor], and [Tensor.AddRMSNorm] returns two. If the operation
// fails, each result is a failed tensor. It carries the error through the operations that
// follow, until [Tensor.Err] or a function that returns an error reports it. The error begins
// with the place of the call that failed, shows the axes of all operands, and wraps a sentinel
// of the package:
//
//	mlp.go:16: dot over "k": left {batch:2 m:2 k:3}, right {n:4}: no axis "k"
//
// The verb %+v adds the callers of that place. [Context.Debug] traces each operation and
// calls a function at each failure.
//
// # Views
//
// Views ([Tensor.Narrow], [Tensor.Rename], [Tensor.Permute], [Tensor.Bitcast],
// [Tensor.BroadcastTo], [Tensor.Split], [Tensor.Merge]) share the storage of their tensor and
// keep it alive.
// They never copy: a view that strides cannot express fails with ErrUnsupportedView.
// [Tensor.Contiguous] copies if the layout requires it.
//
// # Element formats
//
// Tensors have any format of package dtype. Arithmetic takes f32, with these exceptions:
// the right operand of [Tensor.Dot] and the matrices of [Tensor.Project] may have f16, bf16 or
// a block format of weights, the keys and values of [Attention] may have f16 or q8_0, and
// [Tensor.Gather] decodes its table. [Tensor.To] converts between formats, and so do the
// operations that write to memory that exists: [Tensor.CopyFrom], [Tensor.SetRows] and
// [RotateStore]. Element access is generic and checked: the type argument of [Data] must be
// the element type of the tensor.
//
// # Language models
//
// A step of a language model takes tokens of several sequences, each at its own position. The
// keys and values of all sequences lie in the pages of one cache, a tensor of [Engine.Empty]:
// [RotateStore] writes to it, [Attention] reads it through tables of pages, and
// [Tensor.Discard] frees the memory of a page. [Tensor.AddRMSNorm], [Tensor.Project] and
// [Tensor.GatedProject] do what several operations would do, with the same bits and fewer
// passes over the memory. [Angles] computes the rotary angles of any positions, and
// [Tensor.Bitcast] lets one tensor hold all numbers of a step.
//
// # Ownership
//
// The garbage collector does not manage the memory of tensors. The following rules say
// when a tensor ends. A forward pass that follows them works in a few buffers and
// allocates nothing on the Go heap.
//
//  1. A tensor has one owner: the innermost [Frame] or [Scope] of its context that is open
//     when the operation runs, or the context if none is open. A tensor ends with its
//     owner. [Context.Close] therefore ends every tensor of the context, and a frame that is
//     never closed holds its memory until the frame around it closes.
//  2. Open a frame first, and end it on every path. A function with one exit ends with
//     "return f.Return(y)". A function that can return early, or has two results, writes
//     "defer f.Close()" and returns f.Keep of each result. A loop ranges over
//     [Context.Frames], which gives each iteration a frame that also closes on break,
//     return and panic.
//  3. [Frame.Keep] gives a tensor of the frame, or of a frame inside it, to the owner around
//     the frame. [Frame.Return] keeps a tensor and closes the frame. If neither the frame nor
//     a frame inside it owns the tensor, as with an argument or a weight, the result is a new
//     tensor over the same memory, so the caller always owns the result. A view keeps the
//     whole storage of its tensor alive: return a [Tensor.Copy] of a small view of a large
//     tensor.
//  4. A struct holds tensors that come from [Tensor.Shared] or [Replace]. A Shared tensor
//     has no frame and no context. It lives until its Release, and any context of the
//     engine may use it; [Tensor.On] selects the context. Replace gives the new value the
//     owner of the old value, and ends the old value. A tensor that is stored in any other
//     way ends with its frame, and its next use fails with ErrReleased.
//  5. Every operation makes a new tensor, even if it has nothing to compute. Only On, Move,
//     Expect, FailIf, Shared and the operations that write to their receiver return the
//     receiver. A loop that advances its variable with Replace begins with a tensor that it
//     owns: h := h0.Ref().
//  6. [Tensor.Release] frees a tensor early, and is never needed in a frame. It does
//     nothing to a tensor that has been released, that failed or that is zero.
//  7. [Tensor.Move] marks a value, not the tensor. The operation that takes the marked
//     value ends the tensor, even if the operation fails. Only a tensor of the innermost
//     frame can be moved.
//  8. Names end in a Scope as they do in a Frame, but a Scope holds the memory until it
//     closes. A function that is correct in a Frame is therefore correct in a Scope.
//     [Context.NoGrad] opens a frame that frees its memory inside a Scope too.
//  9. A failed tensor owns nothing, needs no release, and may be used on other contexts.
//  10. A failure remains on its context until the program looks at it. [Tensor.Err] looks
//     at a failure, and so does every function that returns the failure as an error;
//     printing does not. If failures inside the frame have not been looked at, Keep and
//     Return give the first of them in place of their argument. [Context.Err],
//     [Context.Sync] and [Context.Close] return the first such failure of the context. A
//     look also covers the later failures of the context up to that moment.
//  11. One goroutine at a time drives a context. Frames nest: closing a frame closes the
//     frames inside it, and closing it again does nothing. To send a tensor to another
//     goroutine, send t.Shared() on a channel and call On with that goroutine's context on
//     the value received.
//
// Using a tensor that has ended fails with ErrReleased. It never reaches another tensor.
// [Engine.Close] reports Shared tensors that were never released. The slice that Read and
// Update lend is the storage itself. A program must not use it after the call; only a
// build with the tag invariants detects such a use, which faults there.
//
// # Concurrency
//
// Several goroutines may call the methods of an Engine, and the methods and functions that
// only inspect a Tensor. A call that finds another goroutine inside its Context fails with
// ErrBusy, and only the result of that call reports it. The operands of an operation are
// driven by one context or by none; otherwise the operation fails with ErrContext.
//
// [Context.Close] waits for the work of its context, and no other context waits for that.
// [Engine.Close] fails with ErrBusy while a context is in use, and that failure affects no
// other call. After Engine.Close, Shared tensors can still be released and described; every
// other use of the engine fails with ErrClosed.
package fucina
