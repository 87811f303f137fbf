package tagged

import (
	"slices"

	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/core/tensor"
	"github.com/fucina-go/fucina/exec"
	"github.com/fucina-go/fucina/tags"
)

// pointwise aligns the operands by name.
func pointwise(c *Call, q *exec.Queue) error {
	x := c.in[0]
	if c.NIn == 1 {
		return c.do(q, &x.Names, x)
	}
	y := c.in[1]
	if x.Names.Equal(&y.Names) && x.Raw.Shape() == y.Raw.Shape() {
		return c.do(q, &x.Names, x, y)
	}
	names, s, err := aligned(x, y)
	if err != nil {
		return err
	}
	left, right := c.work(0), c.work(1)
	defer left.done()
	defer right.done()
	for _, t := range [2]*working{&left, &right} {
		if t.Raw.DType().IsBlockQuantized() {
			continue // blocks have no view that repeats; the contract refuses the dtype
		}
		if err := t.align(&names, &s); err != nil {
			return err
		}
	}
	return c.do(q, &names, left.Tensor, right.Tensor)
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
func rmsNorm(c *Call, q *exec.Queue) error {
	x, w := c.work(0), c.work(1)
	defer x.done()
	defer w.done()
	names := x.Names
	if err := c.alongNorm(&x, &w, 1); err != nil {
		return err
	}
	if err := c.do(q, &x.Names, x.Tensor, w.Tensor); err != nil {
		return err
	}
	return c.out.inOrder(&x.Names, &names)
}

// alongNorm moves the axis of x last, and checks that w, operand i, is a vector along it.
func (c *Call) alongNorm(x, w *working, i int) error {
	at := x.Names.Index(c.Axis)
	if at < 0 {
		return noAxis(c.Axis)
	}
	if err := w.vector(c.role(i), c.Axis); err != nil {
		return err
	}
	return x.moveLast(at)
}

// addRMSNorm adds two tensors, and normalises the rows of the sum along the axis.
func addRMSNorm(c *Call, q *exec.Queue) error {
	x, y, w := c.work(0), c.work(1), c.work(2)
	defer x.done()
	defer y.done()
	defer w.done()
	names := x.Names
	if err := c.alongNorm(&x, &w, 2); err != nil {
		return err
	}
	if err := y.follow(c.role(1), &x.Names); err != nil {
		return err
	}
	if err := c.doBoth(q, x.Tensor, y.Tensor, w.Tensor); err != nil {
		return err
	}
	if err := c.out.inOrder(&x.Names, &names); err != nil {
		c.second.Release()
		return err
	}
	if err := c.second.inOrder(&x.Names, &names); err != nil {
		c.out.Release()
		return err
	}
	return nil
}

// alongAxis runs an operation on the rows along the axis. Argmax drops the axis, the other
// operations keep it.
func alongAxis(c *Call, q *exec.Queue) error {
	i, err := c.index(c.Axis)
	if err != nil {
		return err
	}
	x := c.work(0)
	defer x.done()
	names := x.Names
	if err := x.moveLast(i); err != nil {
		return err
	}
	if err := c.do(q, &x.Names, x.Tensor); err != nil {
		return err
	}
	if c.Op == Argmax {
		c.out.Names = x.Names.Without(x.Names.Len() - 1)
		return nil
	}
	return c.out.inOrder(&x.Names, &names)
}

// copied copies the operand to a contiguous tensor, converted for To.
func copied(c *Call, q *exec.Queue) error {
	x := c.in[0]
	if c.Op != To {
		c.Params.To = x.Raw.DType()
	}
	return c.do(q, &x.Names, x)
}

// contiguous copies the operand only if it is not contiguous.
func contiguous(c *Call, q *exec.Queue) error {
	if x := c.in[0]; x.Raw.IsContiguous() {
		c.out = x.ref()
		return nil
	}
	return copied(c, q)
}

// copyFrom writes the source into the destination.
func copyFrom(c *Call, q *exec.Queue) error {
	dst, src := c.in[0], c.work(1)
	defer src.done()
	if dst.Names.Len() != src.Names.Len() {
		return because(tags.ErrTag, "want the same axes")
	}
	var order [shape.MaxRank]int
	for i, name := range dst.Names.Slice() {
		if order[i] = src.Names.Index(name); order[i] < 0 {
			return noAxis(name)
		}
		if d, e := dst.Raw.Dim(i), src.Raw.Dim(order[i]); d != e {
			return twoSizes(name, d, e)
		}
	}
	if err := src.permute(order[:dst.Names.Len()]); err != nil {
		return err
	}
	if err := c.doInto(q, dst, src.Tensor); err != nil {
		return err
	}
	c.out = dst.ref()
	return nil
}

// gather runs a gather of rows: the axis moves to the front, and the other axes of the table
// become one.
func gather(c *Call, q *exec.Queue) error {
	table, ids := c.work(0), c.work(1)
	defer table.done()
	defer ids.done()
	at, err := c.index(c.Axis)
	if err != nil {
		return err
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
			return err
		}
		order[n] = i
		n++
	}
	s, err := shapeOf(dims[:names.Len()])
	if err != nil {
		return err
	}
	if err := table.permute(order[:n]); err != nil {
		return err
	}
	if err := table.group(q, 1, n); err != nil {
		return err
	}
	if err := ids.group(q, ids.Raw.Rank()); err != nil {
		return err
	}
	if err := c.do(q, &names, table.Tensor, ids.Tensor); err != nil {
		return err
	}
	return c.out.reshape(s)
}

// setRows writes rows to places: the axes of the places become one in the rows and in the
// places, and the axes of the destination without Axes become one in the rows and in the
// destination.
func setRows(c *Call, q *exec.Queue) error {
	x, places, dst := c.work(0), c.work(1), c.work(2)
	defer x.done()
	defer places.done()
	defer dst.done()
	over := c.Axes()
	if n := len(over); n == 0 || n > 2 {
		return because(tags.ErrTag, "%d axes of places, want one or two", n)
	}
	if err := dst.moveFirst("destination", over); err != nil {
		return err
	}
	names := places.Names
	for _, name := range dst.Names.Slice()[len(over):] {
		var err error
		if names, err = names.Append(name); err != nil {
			return err
		}
	}
	if err := x.follow(c.role(0), &names); err != nil {
		return err
	}
	k := places.Names.Len()
	for i, name := range names.Slice() {
		t, at := &places, i
		if i >= k {
			t, at = &dst, len(over)+i-k
		}
		if d, e := x.Raw.Dim(i), t.Raw.Dim(at); d != e {
			return twoSizes(name, d, e)
		}
	}
	if err := x.group(q, k, names.Len()); err != nil {
		return err
	}
	if err := places.group(q, places.Raw.Rank()); err != nil {
		return err
	}
	if err := dst.joinRows(len(over)); err != nil {
		return err
	}
	if err := c.doInto(q, dst.Tensor, x.Tensor, places.Tensor); err != nil {
		return err
	}
	c.out = c.in[2].ref()
	return nil
}

// moveFirst replaces t, which has the given role, by its view with the given axes first.
func (t *working) moveFirst(role string, axes []Axis) error {
	var order [shape.MaxRank]int
	n := 0
	for _, a := range axes {
		i := t.Names.Index(a.Name)
		if i < 0 {
			return because(tags.ErrTag, "the %s has no axis %q", role, a.Name)
		}
		if slices.Contains(order[:n], i) {
			return because(tags.ErrTag, "axis %q appears twice", a.Name)
		}
		order[n] = i
		n++
	}
	for i := range t.Names.Len() {
		if !slices.Contains(order[:len(axes)], i) {
			order[n] = i
			n++
		}
	}
	return t.permute(order[:n])
}

// joinRows replaces t, a destination, by its view in which one axis replaces the axes after the
// first n, of which there are one or two. Afterwards t has no names. It does not copy, because
// the view is written to.
func (t *working) joinRows(n int) error {
	ends := [...]int{1, 2, 0}
	ends[n] = t.Raw.Rank()
	v, ok, err := grouped(&t.Raw, ends[:n+1])
	if err == nil && !ok {
		err = because(tensor.ErrUnsupportedView, "the rows of the destination have strides %s, want a contiguous row", t.Raw.Strides())
	}
	if err != nil {
		return err
	}
	t.set(v)
	t.Names = tags.List{}
	return nil
}
