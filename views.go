package fucina

import "github.com/fucina-go/fucina/tagged"

// Narrow returns the view of count entries of the axis from start on. The last axis
// of a block format can only be taken whole.
func (t Tensor) Narrow(c *Context, axis string, start, count int) (Tensor, error) {
	k, err := c.begin(tagged.Narrow, t)
	if err != nil {
		return Tensor{}, err
	}
	k.Axis, k.Start, k.Count = axis, start, count
	return c.finish()
}

// Rename returns the view with the axis old called name.
func (t Tensor) Rename(c *Context, old, name string) (Tensor, error) {
	k, err := c.begin(tagged.Rename, t)
	if err != nil {
		return Tensor{}, err
	}
	k.Axis, k.Axis2 = old, name
	return c.finish()
}

// Permute returns the view whose axes stand in the given order, which names each of
// them once. The last axis of a block format stays last.
func (t Tensor) Permute(c *Context, axes ...string) (Tensor, error) {
	k, err := c.begin(tagged.Permute, t)
	if err != nil {
		return Tensor{}, err
	}
	k.SetNames(axes)
	return c.finish()
}

// BroadcastTo returns the view with the given axes, of the given sizes, without
// copying: axes that t does not have, or has with size 1, repeat. Nothing can be
// written through the repetition.
func (t Tensor) BroadcastTo(c *Context, axes ...Axis) (Tensor, error) {
	k, err := c.begin(tagged.BroadcastTo, t)
	if err != nil {
		return Tensor{}, err
	}
	k.SetAxes(axes)
	return c.finish()
}

// Split returns the view with the axis divided into the given axes, outermost
// first, whose sizes multiply to its own; one of them may be -1, which stands for what
// remains. Each name is new, or that of the axis. Every layout can be split, but the last
// axis of a block format cannot.
func (t Tensor) Split(c *Context, axis string, into ...Axis) (Tensor, error) {
	k, err := c.begin(tagged.Split, t)
	if err != nil {
		return Tensor{}, err
	}
	k.Axis = axis
	k.SetAxes(into)
	return c.finish()
}

// Merge returns the view with the given axes, which stand side by side and in this
// order, as the one axis out. Their strides must be those of an axis that was
// split, else it fails with ErrUnsupportedView: nothing is copied silently.
func (t Tensor) Merge(c *Context, out string, axes ...string) (Tensor, error) {
	k, err := c.begin(tagged.Merge, t)
	if err != nil {
		return Tensor{}, err
	}
	k.Axis = out
	k.SetNames(axes)
	return c.finish()
}
