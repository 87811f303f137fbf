package fucina

import (
	"fmt"
	"github.com/fucina-go/fucina/core/op"

	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/core/tensor"
	"github.com/fucina-go/fucina/tags"
)

// Narrow returns the view of count entries of the axis from start on. The last axis
// of a block format can only be taken whole.
func (t Tensor) Narrow(c *Context, axis string, start, count int) (Tensor, error) {
	o, err := t.enter(c, "narrow")
	if err != nil {
		return Tensor{}, err
	}
	defer c.exit()
	defer o.t.Release()
	i, err := o.axis("narrow", axis)
	if err != nil {
		return Tensor{}, err
	}
	v, err := o.t.Narrow(i, start, count)
	if err != nil {
		return Tensor{}, failed("narrow", &o, err, "%d entries from %d of %q: %v", count, start, axis, err)
	}
	return c.wrapView(v, o.names)
}

// Rename returns the view with the axis old called name.
func (t Tensor) Rename(c *Context, old, name string) (Tensor, error) {
	o, err := t.enter(c, "rename")
	if err != nil {
		return Tensor{}, err
	}
	defer c.exit()
	defer o.t.Release()
	i, err := o.axis("rename", old)
	if err != nil {
		return Tensor{}, err
	}
	names, err := o.names.Renamed(i, name)
	if err != nil {
		return Tensor{}, failed("rename", &o, ErrTag, "axis %q to %q: the name is empty or another axis has it", old, name)
	}
	return c.wrap(o.t.Retained(), names), nil
}

// Permute returns the view whose axes stand in the given order, which names each of
// them once. The last axis of a block format stays last.
func (t Tensor) Permute(c *Context, axes ...string) (Tensor, error) {
	o, err := t.enter(c, "permute")
	if err != nil {
		return Tensor{}, err
	}
	defer c.exit()
	defer o.t.Release()
	var names tags.List
	var order [shape.MaxRank]int
	for _, name := range axes {
		i := o.names.Index(name)
		if i < 0 {
			return Tensor{}, failed("permute", &o, ErrTag, "no axis %q", name)
		}
		if names.Index(name) >= 0 {
			return Tensor{}, failed("permute", &o, ErrTag, "axis %q stands twice", name)
		}
		order[names.Len()] = i
		if names, err = names.Append(name); err != nil {
			return Tensor{}, failed("permute", &o, err, "%v", err)
		}
	}
	if names.Len() != o.names.Len() {
		return Tensor{}, failed("permute", &o, ErrTag, "to %s: want every axis", names.String())
	}
	if err := o.permute(order[:names.Len()]); err != nil {
		return Tensor{}, failed("permute", &o, err, "to %s: %v", names.String(), err)
	}
	return c.wrapView(o.t.Retained(), names)
}

// BroadcastTo returns the view with the given axes, of the given sizes, without
// copying: axes that t does not have, or has with size 1, repeat. Nothing can be
// written through the repetition.
func (t Tensor) BroadcastTo(c *Context, axes ...Axis) (Tensor, error) {
	o, err := t.enter(c, "broadcast")
	if err != nil {
		return Tensor{}, err
	}
	defer c.exit()
	defer o.t.Release()
	names, s, err := layout("broadcast to", axes)
	if err != nil {
		return Tensor{}, err
	}
	for i, name := range o.names.Slice() {
		j := names.Index(name)
		if j < 0 {
			return Tensor{}, failed("broadcast", &o, ErrTag, "to %s: no axis %q", names.Describe(s), name)
		}
		if d := o.t.Dim(i); d != 1 && d != s.Dim(j) {
			return Tensor{}, failed("broadcast", &o, ErrShapeMismatch, "to %s: axis %q is %d, want 1 or %d", names.Describe(s), name, d, s.Dim(j))
		}
	}
	if err := o.align(&names, &s); err != nil {
		return Tensor{}, failed("broadcast", &o, err, "to %s: %v", names.Describe(s), err)
	}
	return c.wrap(o.t.Retained(), names), nil
}

// Split returns the view with the axis divided into the given axes, outermost
// first, whose sizes multiply to its own. Each name is new, or that of the axis.
// Every layout can be split, but the last axis of a block format cannot.
func (t Tensor) Split(c *Context, axis string, into ...Axis) (Tensor, error) {
	o, err := t.enter(c, "split")
	if err != nil {
		return Tensor{}, err
	}
	defer c.exit()
	defer o.t.Release()
	at, err := o.axis("split", axis)
	if err != nil {
		return Tensor{}, err
	}
	if len(into) == 0 {
		return Tensor{}, failed("split", &o, ErrTag, "axis %q into no axes", axis)
	}
	product := 1
	for _, a := range into {
		if a.Size < 1 {
			return Tensor{}, failed("split", &o, ErrInvalidShape, "axis %q into %s: axis %q has size %d, want at least 1", axis, describeAxes(into), a.Name, a.Size)
		}
		if product, err = shape.Mul(product, a.Size); err != nil {
			return Tensor{}, failed("split", &o, ErrInvalidShape, "axis %q into %s: %v", axis, describeAxes(into), err)
		}
	}
	if d := o.t.Dim(at); product != d {
		return Tensor{}, failed("split", &o, ErrInvalidShape, "axis %q into %s: %d entries, want %d", axis, describeAxes(into), product, d)
	}
	var names tags.List
	var dims, strides [shape.MaxRank]int
	have := o.t.Strides()
	add := func(name string, size, stride int) error {
		var err error
		n := names.Len()
		if names, err = names.Append(name); err != nil {
			return failed("split", &o, err, "axis %q into %s: %v", axis, describeAxes(into), err)
		}
		dims[n], strides[n] = size, stride
		return nil
	}
	for i, name := range o.names.Slice() {
		if i != at {
			if err := add(name, o.t.Dim(i), have.Dim(i)); err != nil {
				return Tensor{}, err
			}
			continue
		}
		rest := product
		for _, a := range into {
			rest /= a.Size
			if err := add(a.Name, a.Size, rest*have.Dim(i)); err != nil {
				return Tensor{}, err
			}
		}
	}
	s, err := shape.Of(dims[:names.Len()]...)
	if err != nil {
		return Tensor{}, failed("split", &o, err, "axis %q into %s: %v", axis, describeAxes(into), err)
	}
	var v tensor.Tensor
	if o.t.DType().IsBlockQuantized() {
		v, err = o.t.Reshape(s)
	} else {
		v, err = viewOf(&o.t, s, strides[:names.Len()])
	}
	if err != nil {
		return Tensor{}, failed("split", &o, err, "axis %q into %s: %v", axis, describeAxes(into), err)
	}
	return c.wrap(v, names), nil
}

// Merge returns the view with the given axes, which stand side by side and in this
// order, as the one axis out. Their strides must be those of an axis that was
// split, else it fails with ErrUnsupportedView: nothing is copied silently.
func (t Tensor) Merge(c *Context, out string, axes ...string) (Tensor, error) {
	o, err := t.enter(c, "merge")
	if err != nil {
		return Tensor{}, err
	}
	defer c.exit()
	defer o.t.Release()
	if len(axes) == 0 {
		return Tensor{}, failed("merge", &o, ErrTag, "no axes into %q", out)
	}
	at, err := o.axis("merge", axes[0])
	if err != nil {
		return Tensor{}, err
	}
	end := at + len(axes)
	for i, name := range axes {
		if _, err := o.axis("merge", name); err != nil {
			return Tensor{}, err
		}
		if at+i >= o.names.Len() || o.names.At(at+i) != name {
			return Tensor{}, failed("merge", &o, ErrTag, "axis %q into %q: merged axes stand side by side, in their order", name, out)
		}
	}
	var names tags.List
	for i, name := range o.names.Slice() {
		switch {
		case i == at:
			name = out
		case i > at && i < end:
			continue
		}
		if names, err = names.Append(name); err != nil {
			return Tensor{}, failed("merge", &o, err, "into %q: %v", out, err)
		}
	}
	var ends [shape.MaxRank]int
	for i := range names.Len() {
		ends[i] = i + 1
		if i >= at {
			ends[i] = i + len(axes)
		}
	}
	v, ok, err := grouped(&o.t, ends[:names.Len()])
	if err == nil && !ok {
		err = ErrUnsupportedView
	}
	if err != nil {
		return Tensor{}, failed("merge", &o, err, "into %q: strides %s: %v", out, o.t.Strides(), err)
	}
	return c.wrap(v, names), nil
}

// enter claims c and returns the operand t; with an error, neither.
func (t Tensor) enter(c *Context, what string) (operand, error) {
	if err := c.enter(what); err != nil {
		return operand{}, err
	}
	o, err := c.operand(what, t)
	if err != nil {
		c.exit()
		return operand{}, err
	}
	return o, nil
}

// enter2 claims c and returns both operands; with an error, neither.
func (c *Context) enter2(what string, t, u Tensor) (a, b operand, err error) {
	if err := c.enter(what); err != nil {
		return operand{}, operand{}, err
	}
	if a, b, err = c.operands(what, t, u); err != nil {
		c.exit()
	}
	return a, b, err
}

// wrapView wraps v, whose reference it takes, with the strides of axes of size 1 as
// in a contiguous tensor, which no position depends on.
func (c *Context) wrapView(v tensor.Tensor, names tags.List) (Tensor, error) {
	s, have := v.Shape(), v.Strides()
	st := have
	if settle(&s, &st); st != have && !v.DType().IsBlockQuantized() {
		w, err := v.View(s, st, 0)
		v.Release()
		if err != nil {
			return Tensor{}, fmt.Errorf("view %s: %w", names.Describe(s), err)
		}
		v = w
	}
	return c.wrap(v, names), nil
}

// settle gives axes of size 1 the stride that makes the layout contiguous if the
// others are.
func settle(s, strides *shape.Shape) {
	next := 1
	for i := s.Rank() - 1; i >= 0; i-- {
		if s.Dim(i) == 1 {
			strides.Set(i, next)
		}
		next = s.Dim(i) * strides.Dim(i)
	}
}

// viewOf is t.View with settled strides.
func viewOf(t *tensor.Tensor, s shape.Shape, strides []int) (tensor.Tensor, error) {
	st, err := shape.OfStrides(strides...)
	if err != nil {
		return tensor.Tensor{}, err
	}
	settle(&s, &st)
	return t.View(s, st, 0)
}

// permute puts the view whose axis i is axis order[i] in the operand's place. The
// names stay as they are.
func (o *operand) permute(order []int) error {
	same := true
	for i, a := range order {
		same = same && i == a
	}
	if same {
		return nil
	}
	v, err := o.t.Permute(order...)
	if err != nil {
		return err
	}
	o.set(v)
	return nil
}

// align puts the view with axes names and shape s in the operand's place: axes that
// it lacks, or has with size 1, repeat. The caller has checked that all its axes
// are among names, and their sizes.
func (o *operand) align(names *tags.List, s *shape.Shape) error {
	if o.names == *names && o.shape == *s {
		return nil
	}
	var strides [shape.MaxRank]int
	have := o.t.Strides()
	for i, name := range names.Slice() {
		if j := o.names.Index(name); j >= 0 && o.t.Dim(j) == s.Dim(i) {
			strides[i] = have.Dim(j)
		}
	}
	v, err := viewOf(&o.t, *s, strides[:s.Rank()])
	if err != nil {
		return err
	}
	o.set(v)
	return nil
}

// grouped returns the view of t with runs of axes merged: group i holds the axes up
// to ends[i], and has size 1 if there are none. ok is false if the strides do not
// allow it.
func grouped(t *tensor.Tensor, ends []int) (v tensor.Tensor, ok bool, err error) {
	var dims, strides [shape.MaxRank]int
	s, st := t.Shape(), t.Strides()
	ok = true
	lo := 0
	for g, hi := range ends {
		dims[g] = 1
		for i := hi - 1; i >= lo; i-- {
			switch {
			case s.Dim(i) == 1:
			case dims[g] == 1:
				dims[g], strides[g] = s.Dim(i), st.Dim(i)
			default:
				ok = ok && st.Dim(i) == dims[g]*strides[g]
				dims[g] *= s.Dim(i) // no overflow: t has all these elements
			}
		}
		lo = hi
	}
	out, err := shapeOf(dims[:len(ends)])
	if err != nil {
		return tensor.Tensor{}, false, err
	}
	switch {
	case out == s:
		return t.Retained(), true, nil
	case t.DType().IsBlockQuantized(), t.IsContiguous():
		v, err = t.Reshape(out)
		return v, true, err
	case !ok:
		return tensor.Tensor{}, false, nil
	}
	v, err = viewOf(t, out, strides[:out.Rank()])
	return v, true, err
}

// group puts grouped, of a copy if need be, in the operand's place.
func (c *Context) group(o *operand, ends ...int) error {
	v, ok, err := grouped(&o.t, ends)
	if err != nil {
		return err
	}
	if !ok {
		flat, err := c.x.Do(op.Copy, &op.Params{To: o.t.DType()}, &o.t)
		if err != nil {
			return err
		}
		o.set(flat)
		if v, _, err = grouped(&o.t, ends); err != nil {
			return err
		}
	}
	o.set(v)
	return nil
}
