package tagged

import (
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/core/tensor"
	"github.com/fucina-go/fucina/exec"
	"github.com/fucina-go/fucina/tags"
)

// contraction is the order in which a product takes the axes of its operands: first the
// batch axes, which both have, then the free axes, which only one has, and last those that
// are summed over.
type contraction struct {
	left, right [shape.MaxRank]int // indices of the operands' axes in this order
	batch       int                // number of batch axes
	nl, nr      int                // number of batch and free axes of each operand

	// The axes of the result.
	names tags.List
	dims  [shape.MaxRank]int
}

// contract computes the contraction of x and y over the axes.
func contract(x, y *Tensor, over []Axis) (k contraction, err error) {
	var xs, ys [shape.MaxRank]bool // summed over
	for _, a := range over {
		i, j := x.Names.Index(a.Name), y.Names.Index(a.Name)
		switch {
		case i < 0 || j < 0:
			return k, noAxis(a.Name)
		case xs[i]:
			return k, because(tags.ErrTag, "axis %q appears twice", a.Name)
		case x.Raw.Dim(i) != y.Raw.Dim(j):
			return k, twoSizes(a.Name, x.Raw.Dim(i), y.Raw.Dim(j))
		}
		xs[i], ys[j] = true, true
	}
	for i, name := range x.Names.Slice() {
		j := y.Names.Index(name)
		if xs[i] || j < 0 {
			continue
		}
		if d, e := x.Raw.Dim(i), y.Raw.Dim(j); d != e {
			return k, twoSizes(name, d, e)
		}
		k.left[k.batch], k.right[k.batch] = i, j
		k.batch++
		if err := k.add(name, x.Raw.Dim(i)); err != nil {
			return k, err
		}
	}
	k.nl, k.nr = k.batch, k.batch
	for i, name := range x.Names.Slice() {
		if !xs[i] && y.Names.Index(name) < 0 {
			k.left[k.nl] = i
			k.nl++
			if err := k.add(name, x.Raw.Dim(i)); err != nil {
				return k, err
			}
		}
	}
	for j, name := range y.Names.Slice() {
		if !ys[j] && x.Names.Index(name) < 0 {
			k.right[k.nr] = j
			k.nr++
			if err := k.add(name, y.Raw.Dim(j)); err != nil {
				return k, err
			}
		}
	}
	for n, a := range over {
		k.left[k.nl+n], k.right[k.nr+n] = x.Names.Index(a.Name), y.Names.Index(a.Name)
	}
	return k, nil
}

// add adds an axis to the result.
func (k *contraction) add(name string, size int) error {
	n := k.names.Len()
	names, err := k.names.Append(name)
	if err != nil {
		return because(tags.ErrTag, "the result has more than %d axes", shape.MaxRank)
	}
	k.names, k.dims[n] = names, size
	return nil
}

// dot multiplies and sums over axes that both operands have. An operand whose layout the
// product does not accept is copied once.
func dot(c *Call, q *exec.Queue) error {
	x, y := c.work(0), c.work(1)
	defer x.done()
	defer y.done()
	over := c.Axes()
	if len(over) == 0 {
		return because(tags.ErrTag, "no axis to sum over")
	}
	k, err := contract(x.Tensor, y.Tensor, over)
	if err != nil {
		return err
	}
	s, err := shapeOf(k.dims[:k.names.Len()])
	if err != nil {
		return err
	}
	if d := y.Raw.DType(); d.IsBlockQuantized() {
		if k.batch > 0 {
			return because(tensor.ErrUnsupportedView, "%s on the right cannot have batch axes", d)
		}
		if last := y.Names.At(y.Names.Len() - 1); last != over[len(over)-1].Name {
			return because(tensor.ErrUnsupportedView, "%s on the right needs axis %q last", d, over[len(over)-1].Name)
		}
	}
	if err := c.product(q, &x, &y, &k, len(over)); err != nil {
		return err
	}
	return c.out.reshape(s)
}

// product runs the positional product of the arranged operands.
func (c *Call) product(q *exec.Queue, x, y *working, k *contraction, over int) error {
	if err := x.permute(k.left[:k.nl+over]); err != nil {
		return err
	}
	if err := y.permute(k.right[:k.nr+over]); err != nil {
		return err
	}
	switch {
	case k.batch > 0:
		if err := x.group(q, k.batch, k.nl, k.nl+over); err != nil {
			return err
		}
		if err := y.group(q, k.batch, k.nr, k.nr+over); err != nil {
			return err
		}
	default:
		if over > 1 {
			if err := x.group(q, k.nl, k.nl+over); err != nil {
				return err
			}
		}
		if err := y.group(q, k.nr, k.nr+over); err != nil {
			return err
		}
	}
	return c.do(q, &k.names, x.Tensor, y.Tensor)
}
