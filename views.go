package fucina

import (
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/tagged"
)

// Ref returns a new tensor over the same memory.
func (t Tensor) Ref() Tensor { return apply(tagged.Ref, op.Params{}, "", t) }

// Narrow returns a view of count entries of the axis, from index start on. Along the last axis
// of a block format, start and count are whole numbers of blocks. If there are axes into, they
// replace the axis, as those of Split do.
func (t Tensor) Narrow(axis string, start, count int, into ...Axis) Tensor {
	c, failed := begin(tagged.Narrow, t)
	if c == nil {
		return failed
	}
	k := &c.call
	k.Axis, k.Start, k.Count = axis, start, count
	k.SetAxes(into)
	return c.finish()
}

// Rename returns a view in which the axis old has the given name.
func (t Tensor) Rename(old, name string) Tensor {
	c, failed := begin(tagged.Rename, t)
	if c == nil {
		return failed
	}
	k := &c.call
	k.Axis, k.Axis2 = old, name
	return c.finish()
}

// Permute returns a view whose axes have the given order. axes contains the name of each
// axis once. The last axis of a block format must remain last.
func (t Tensor) Permute(axes ...string) Tensor {
	c, failed := begin(tagged.Permute, t)
	if c == nil {
		return failed
	}
	k := &c.call
	k.SetNames(axes)
	return c.finish()
}

// Bitcast returns a view of the same memory with the dtype d. The dtypes of both are numbers of
// one size, as i32 and f32 are. Integers and floats can then share a tensor, so that they reach
// a device in one transfer.
func (t Tensor) Bitcast(d DType) Tensor {
	return apply(tagged.Bitcast, op.Params{To: d}, "", t)
}

// BroadcastTo returns a view with the given axes and sizes. An axis that t lacks, or has
// with size 1, repeats. A view that repeats cannot be written to.
func (t Tensor) BroadcastTo(axes ...Axis) Tensor {
	c, failed := begin(tagged.BroadcastTo, t)
	if c == nil {
		return failed
	}
	k := &c.call
	k.SetAxes(axes)
	return c.finish()
}

// Split returns a view in which the axes into, outermost first, replace the axis. The product
// of their sizes is the size of the axis; one size may be -1, and follows from the others.
// Each name is new or is the name of the axis. An axis of any stride can be split. If the axis
// is the last of a block format, the last of into is a whole number of blocks.
func (t Tensor) Split(axis string, into ...Axis) Tensor {
	c, failed := begin(tagged.Split, t)
	if c == nil {
		return failed
	}
	k := &c.call
	k.Axis = axis
	k.SetAxes(into)
	return c.finish()
}

// Merge returns a view in which one axis, out, replaces the given axes, which are adjacent in
// t and in this order. Their strides must be those of an axis that was split; otherwise Merge
// fails with ErrUnsupportedView. It never copies.
func (t Tensor) Merge(out string, axes ...string) Tensor {
	c, failed := begin(tagged.Merge, t)
	if c == nil {
		return failed
	}
	k := &c.call
	k.Axis = out
	k.SetNames(axes)
	return c.finish()
}
