package tagged

import (
	"errors"

	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/core/tensor"
	"github.com/fucina-go/fucina/exec"
	"github.com/fucina-go/fucina/tags"
)

func narrow(c *Call, _ *exec.Queue) error {
	x := c.in[0]
	i, err := c.index(c.Axis)
	if err != nil {
		return err
	}
	v, err := x.Raw.Narrow(i, c.Start, c.Count)
	if errors.Is(err, tensor.ErrIndexOutOfBounds) {
		return because(err, "%d entries from %d on, of %d", c.Count, c.Start, x.Raw.Dim(i))
	}
	if err != nil {
		return err
	}
	if v, err = settled(v); err != nil {
		return err
	}
	if len(c.Axes()) == 0 {
		c.out = Tensor{v, x.Names}
		return nil
	}
	part := working{x, &c.views[0]}
	part.set(v)
	defer part.done()
	return c.split(part.Tensor, i)
}

func rename(c *Call, _ *exec.Queue) error {
	x := c.in[0]
	i, err := c.index(c.Axis)
	if err != nil {
		return err
	}
	names, err := x.Names.Renamed(i, c.Axis2)
	if err != nil {
		return err
	}
	c.out = Tensor{x.Raw.Retained(), names}
	return nil
}

func permute(c *Call, _ *exec.Queue) error {
	x := c.work(0)
	var order [maxAxes]int
	var seen tags.List
	for i, a := range c.Axes() {
		if order[i] = x.Names.Index(a.Name); order[i] < 0 {
			return noAxis(a.Name)
		}
		var err error
		if seen, err = seen.Append(a.Name); err != nil {
			return err
		}
	}
	if seen.Len() != x.Names.Len() {
		return because(tags.ErrTag, "to %s: want every axis", seen.String())
	}
	if err := x.permute(order[:seen.Len()]); err != nil {
		return because(err, "to %s: %v", seen.String(), err)
	}
	x.result(&c.out)
	var err error
	c.out.Raw, err = settled(c.out.Raw)
	return err
}

func bitcast(c *Call, _ *exec.Queue) error {
	x, d := c.in[0], c.Params.To
	v, err := x.Raw.Bitcast(d)
	if err != nil {
		return because(err, "to %s, want numbers of one size", d)
	}
	c.out = Tensor{v, x.Names}
	return nil
}

func broadcastTo(c *Call, _ *exec.Queue) error {
	names, s, err := Layout(c.Axes())
	if err != nil {
		return because(err, "to %v", err)
	}
	x := c.work(0)
	for i, name := range x.Names.Slice() {
		j := names.Index(name)
		if j < 0 {
			return because(tags.ErrTag, "to %s: no axis %q", names.Describe(s), name)
		}
		if d := x.Raw.Dim(i); d != 1 && d != s.Dim(j) {
			return because(shape.ErrShapeMismatch, "to %s: axis %q is %d, want 1 or %d", names.Describe(s), name, d, s.Dim(j))
		}
	}
	if err := x.align(&names, &s); err != nil {
		return because(err, "to %s: %v", names.Describe(s), err)
	}
	x.result(&c.out)
	return nil
}

// split divides the axis. One of the sizes may be -1; it follows from the others.
func split(c *Call, _ *exec.Queue) error {
	at, err := c.index(c.Axis)
	if err != nil {
		return err
	}
	return c.split(c.in[0], at)
}

// split sets the result to x with axis at divided into Axes.
func (c *Call) split(x *Tensor, at int) error {
	into := c.Axes()
	if len(into) == 0 {
		return because(tags.ErrTag, "into no axes")
	}
	if len(into) > shape.MaxRank { // Axes leaves out the others, so that fill would miss their sizes
		return because(tags.ErrTag, "into more than %d axes", shape.MaxRank)
	}
	if err := fill(into, x.Raw.Dim(at)); err != nil {
		return because(shape.ErrInvalidShape, "into %s: %v", Describe(into), err)
	}
	var names tags.List
	var dims, strides [shape.MaxRank]int
	have := x.Raw.Strides()
	add := func(name string, size, stride int) error {
		n := names.Len()
		var err error
		if names, err = names.Append(name); err == nil {
			dims[n], strides[n] = size, stride
		}
		return err
	}
	for i, name := range x.Names.Slice() {
		var err error
		if i != at {
			err = add(name, x.Raw.Dim(i), have.Dim(i))
		} else {
			rest := x.Raw.Dim(at)
			for k, a := range into {
				stride := have.Dim(i)
				if rest /= a.Size; at < x.Names.Len()-1 {
					stride *= rest
				} else if k < len(into)-1 { // strides count blocks
					stride *= rest / x.Raw.DType().BlockSize()
				}
				if err == nil {
					err = add(a.Name, a.Size, stride)
				}
			}
		}
		if err != nil {
			return because(err, "into %s: %v", Describe(into), err)
		}
	}
	s, err := shape.Of(dims[:names.Len()]...)
	if err != nil {
		return because(err, "into %s: %v", Describe(into), err)
	}
	v, err := viewOf(&x.Raw, s, strides[:names.Len()])
	if err != nil {
		return because(err, "into %s: %v", Describe(into), err)
	}
	c.out = Tensor{v, names}
	return nil
}

// fill replaces a size of -1 by the size with which the product of all sizes is n. It fails
// if the product is not n.
func fill(into []Axis, n int) error {
	product, open := 1, -1
	for i, a := range into {
		if a.Size == -1 && open < 0 {
			open = i
			continue
		}
		err := a.check()
		if err != nil {
			return err
		}
		if product, err = shape.Mul(product, a.Size); err != nil {
			return err
		}
	}
	if open >= 0 && n%product == 0 {
		into[open].Size = n / product
		product = n
	}
	if product != n {
		return because(shape.ErrInvalidShape, "%d entries, want %d", product, n)
	}
	return nil
}

func merge(c *Call, _ *exec.Queue) error {
	x, axes := c.in[0], c.Axes()
	if len(axes) == 0 {
		return because(tags.ErrTag, "no axes")
	}
	at := x.Names.Index(axes[0].Name)
	var merged tags.List
	for i, a := range axes {
		if x.Names.Index(a.Name) < 0 {
			return noAxis(a.Name)
		}
		var err error
		if merged, err = merged.Append(a.Name); err != nil {
			return err
		}
		if at+i >= x.Names.Len() || x.Names.At(at+i) != a.Name {
			return because(tags.ErrTag, "axis %q does not follow axis %q; want neighbours, in their order", a.Name, axes[i-1].Name)
		}
	}
	end := at + len(axes)
	var names tags.List
	var ends [shape.MaxRank]int
	for i, name := range x.Names.Slice() {
		switch {
		case i == at:
			name = c.Axis
		case i > at && i < end:
			continue
		}
		n := names.Len()
		var err error
		if names, err = names.Append(name); err != nil {
			return err
		}
		ends[n] = n + 1
		if n >= at {
			ends[n] = n + len(axes)
		}
	}
	v, ok, err := grouped(&x.Raw, ends[:names.Len()])
	if err == nil && !ok {
		err = tensor.ErrUnsupportedView
	}
	if err != nil {
		return because(err, "strides %s: %v", x.Raw.Strides(), err)
	}
	c.out = Tensor{v, names}
	return nil
}
