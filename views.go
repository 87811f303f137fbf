package fucina

import (
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/tagged"
)

// Ref returns a new tensor over the same memory.
func (t Tensor) Ref() Tensor { return apply(tagged.Ref, op.Params{}, "", t) }

// Narrow returns the view of count entries of the axis from start on. The last axis
// of a block format can only be taken whole.
func (t Tensor) Narrow(axis string, start, count int) Tensor {
	c, failed := begin(tagged.Narrow, t)
	if c == nil {
		return failed
	}
	k := &c.call
	k.Axis, k.Start, k.Count = axis, start, count
	return c.finish()
}

// Rename returns the view with the axis old called name.
func (t Tensor) Rename(old, name string) Tensor {
	c, failed := begin(tagged.Rename, t)
	if c == nil {
		return failed
	}
	k := &c.call
	k.Axis, k.Axis2 = old, name
	return c.finish()
}

// Permute returns the view whose axes stand in the given order, which names each of
// them once. The last axis of a block format stays last.
func (t Tensor) Permute(axes ...string) Tensor {
	c, failed := begin(tagged.Permute, t)
	if c == nil {
		return failed
	}
	k := &c.call
	k.SetNames(axes)
	return c.finish()
}

// BroadcastTo returns the view with the given axes, of the given sizes, without
// copying: axes that t does not have, or has with size 1, repeat. Nothing can be
// written through the repetition.
func (t Tensor) BroadcastTo(axes ...Axis) Tensor {
	c, failed := begin(tagged.BroadcastTo, t)
	if c == nil {
		return failed
	}
	k := &c.call
	k.SetAxes(axes)
	return c.finish()
}

// Split returns the view with the axis divided into the given axes, outermost
// first, whose sizes multiply to its own; one of them may be -1, which stands for what
// remains. Each name is new, or that of the axis. Every layout can be split, but the last
// axis of a block format cannot.
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

// Merge returns the view with the given axes, which stand side by side and in this
// order, as the one axis out. Their strides must be those of an axis that was
// split, else it fails with ErrUnsupportedView: nothing is copied silently.
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
