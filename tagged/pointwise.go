package tagged

import (
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/exec"
	"github.com/fucina-go/fucina/tags"
)

// pointwise aligns the operands by name.
func pointwise(c *Call, q *exec.Queue) (Tensor, error) {
	x := &c.in[0]
	if c.NIn == 1 {
		v, err := c.do(q, x)
		return Tensor{v, x.Names}, err
	}
	y := &c.in[1]
	if x.Names.Equal(&y.Names) && x.Raw.Shape() == y.Raw.Shape() {
		v, err := c.do(q, x, y)
		return Tensor{v, x.Names}, err
	}
	names, s, err := aligned(x, y)
	if err != nil {
		return Tensor{}, err
	}
	left, right := c.work(0), c.work(1)
	defer left.done()
	defer right.done()
	for _, t := range [2]*working{&left, &right} {
		if t.Raw.DType().IsBlockQuantized() {
			continue // blocks have no view that repeats; the contract refuses the dtype
		}
		if err := t.align(&names, &s); err != nil {
			return Tensor{}, err
		}
	}
	v, err := c.do(q, &left.Tensor, &right.Tensor)
	return Tensor{v, names}, err
}

// aligned returns the axes and the shape of a pointwise result.
func aligned(x, y *Tensor) (tags.List, shape.Shape, error) {
	names, err := x.Names.Union(&y.Names)
	if err != nil {
		return tags.List{}, shape.Shape{}, because(tags.ErrTag, "together more than %d axes", shape.MaxRank)
	}
	var dims [shape.MaxRank]int
	for i, name := range names.Slice() {
		dims[i] = 1
		for _, t := range [2]*Tensor{x, y} {
			j := t.Names.Index(name)
			if j < 0 {
				continue
			}
			d := t.Raw.Dim(j)
			if d != 1 && dims[i] != 1 && d != dims[i] {
				return tags.List{}, shape.Shape{}, twoSizes(name, dims[i], d)
			}
			dims[i] = max(dims[i], d)
		}
	}
	s, err := shapeOf(dims[:names.Len()])
	return names, s, err
}

// rmsNorm divides the rows along the axis by their root mean square, and multiplies them by
// the weight.
func rmsNorm(c *Call, q *exec.Queue) (Tensor, error) {
	x, w := c.work(0), c.work(1)
	defer x.done()
	defer w.done()
	i := x.Names.Index(c.Axis)
	if i < 0 || w.Names.Index(c.Axis) < 0 {
		return Tensor{}, noAxis(c.Axis)
	}
	if w.Names.Len() != 1 {
		return Tensor{}, because(tags.ErrTag, "the weight has axes other than %q", c.Axis)
	}
	names := x.Names
	if err := x.moveLast(i); err != nil {
		return Tensor{}, err
	}
	y, err := c.do(q, &x.Tensor, &w.Tensor)
	if err != nil {
		return Tensor{}, err
	}
	return inOrder(y, &x.Names, &names)
}

// alongAxis runs an operation on the rows along the axis. Argmax drops the axis, the other
// operations keep it.
func alongAxis(c *Call, q *exec.Queue) (Tensor, error) {
	i, err := c.index(c.Axis)
	if err != nil {
		return Tensor{}, err
	}
	x := c.work(0)
	defer x.done()
	names := x.Names
	if err := x.moveLast(i); err != nil {
		return Tensor{}, err
	}
	y, err := c.do(q, &x.Tensor)
	if err != nil {
		return Tensor{}, err
	}
	if c.Op == Argmax {
		return Tensor{y, x.Names.Without(x.Names.Len() - 1)}, nil
	}
	return inOrder(y, &x.Names, &names)
}

// copied copies the operand to a contiguous tensor, converted for To.
func copied(c *Call, q *exec.Queue) (Tensor, error) {
	x := &c.in[0]
	if c.Op != To {
		c.Params.To = x.Raw.DType()
	}
	y, err := c.do(q, x)
	return Tensor{y, x.Names}, err
}

// contiguous copies the operand only if it is not contiguous.
func contiguous(c *Call, q *exec.Queue) (Tensor, error) {
	if x := &c.in[0]; x.Raw.IsContiguous() {
		return x.ref(), nil
	}
	return copied(c, q)
}

// copyFrom writes the source into the destination.
func copyFrom(c *Call, q *exec.Queue) (Tensor, error) {
	dst, src := &c.in[0], c.work(1)
	defer src.done()
	if dst.Names.Len() != src.Names.Len() {
		return Tensor{}, because(tags.ErrTag, "want the same axes")
	}
	var order [shape.MaxRank]int
	for i, name := range dst.Names.Slice() {
		if order[i] = src.Names.Index(name); order[i] < 0 {
			return Tensor{}, noAxis(name)
		}
		if d, e := dst.Raw.Dim(i), src.Raw.Dim(order[i]); d != e {
			return Tensor{}, twoSizes(name, d, e)
		}
	}
	if err := src.permute(order[:dst.Names.Len()]); err != nil {
		return Tensor{}, err
	}
	c.arranged[0] = src.Names
	if err := q.DoInto(c.id, nil, &dst.Raw, &src.Raw); err != nil {
		return Tensor{}, err
	}
	return dst.ref(), nil
}

// gather runs a gather of rows: the axis moves to the front, and the other axes of the table
// become one.
func gather(c *Call, q *exec.Queue) (Tensor, error) {
	table, ids := c.work(0), c.work(1)
	defer table.done()
	defer ids.done()
	at, err := c.index(c.Axis)
	if err != nil {
		return Tensor{}, err
	}
	names := ids.Names
	var dims, order [2 * shape.MaxRank]int
	for i := range names.Len() {
		dims[i] = ids.Raw.Dim(i)
	}
	order[0] = at
	n := 1
	for i, name := range table.Names.Slice() {
		if i == at {
			continue
		}
		dims[names.Len()] = table.Raw.Dim(i)
		if names, err = names.Append(name); err != nil {
			return Tensor{}, err
		}
		order[n] = i
		n++
	}
	s, err := shapeOf(dims[:names.Len()])
	if err != nil {
		return Tensor{}, err
	}
	if err := table.permute(order[:n]); err != nil {
		return Tensor{}, err
	}
	if err := table.group(q, 1, n); err != nil {
		return Tensor{}, err
	}
	if err := ids.group(q, ids.Raw.Rank()); err != nil {
		return Tensor{}, err
	}
	y, err := c.do(q, &table.Tensor, &ids.Tensor)
	if err == nil {
		y, err = reshaped(y, s)
	}
	return Tensor{y, names}, err
}
