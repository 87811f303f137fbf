package tagged

import (
	"math"

	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/core/tensor"
	"github.com/fucina-go/fucina/exec"
	"github.com/fucina-go/fucina/tags"
)

// PairAxis and CosSinAxis name the axes of a table of angles besides the axis of positions:
// the pairs of rotated elements, and the cosine and sine of each.
const (
	PairAxis   = "pair"
	CosSinAxis = "cos_sin"
)

// rope rotates pairs of elements along Axis2 by the angles of the positions along Axis.
func rope(c *Call, q *exec.Queue) error {
	x, table := c.work(0), c.work(1)
	defer x.done()
	defer table.done()
	pos, dim := x.Names.Index(c.Axis), x.Names.Index(c.Axis2)
	switch {
	case pos < 0 || table.Names.Index(c.Axis) < 0:
		return noAxis(c.Axis)
	case dim < 0:
		return noAxis(c.Axis2)
	case pos == dim:
		return because(tags.ErrTag, "axis %q appears twice: for the positions and for the rotated elements", c.Axis)
	}
	if err := table.order(c.role(1), c.Axis, PairAxis, CosSinAxis); err != nil {
		return err
	}
	if d, e := x.Raw.Dim(pos), table.Raw.Dim(0); d != e {
		return twoSizes(c.Axis, d, e)
	}
	if table.Raw.Dim(2) != 2 || 2*table.Raw.Dim(1) > x.Raw.Dim(dim) {
		return because(shape.ErrShapeMismatch, "axis %q of %d elements with a table of %d pairs of %d", c.Axis2, x.Raw.Dim(dim), table.Raw.Dim(1), table.Raw.Dim(2))
	}
	// The order is positions, heads, elements. All other axes together are the heads.
	var order [shape.MaxRank]int
	n := x.Names.Len()
	order[0], order[n-1] = pos, dim
	k := 1
	for i := range n {
		if i != pos && i != dim {
			order[k] = i
			k++
		}
	}
	names := x.Names
	if err := x.permute(order[:n]); err != nil {
		return err
	}
	s, have := x.Raw.Shape(), x.Names
	if err := x.group(q, 1, n-1, n); err != nil {
		return err
	}
	if err := c.do(q, &have, x.Tensor, table.Tensor); err != nil {
		return err
	}
	if err := c.out.reshape(s); err != nil {
		return err
	}
	return c.out.inOrder(&have, &names)
}

// The indices of the Axes of Attention. RotateStore uses those of the query, the heads, the
// elements and the pages.
const (
	QueryAxis = iota
	KeyAxis
	HeadAxis
	KVHeadAxis
	DimAxis
	PageAxis
	SequenceAxis
	SlotAxis
)

// The places of operands of Attention, and of the cache of RotateStore.
const (
	positionsAt = 3
	sequencesAt = 4
	tableAt     = 5
	cacheAt     = 7
)

// attention runs causal attention.
func attention(c *Call, q *exec.Queue) error {
	var w works
	c.works(&w)
	defer w.done()
	a := c.Axes()
	if err := w[0].order(c.role(0), a[QueryAxis].Name, a[HeadAxis].Name, a[DimAxis].Name); err != nil {
		return err
	}
	paged := c.Has(sequencesAt) || c.Has(tableAt)
	for i := 1; i <= 2; i++ {
		var err error
		if paged {
			err = w[i].order(c.role(i), a[PageAxis].Name, a[KeyAxis].Name, a[KVHeadAxis].Name, a[DimAxis].Name)
		} else {
			err = w[i].order(c.role(i), a[KeyAxis].Name, a[KVHeadAxis].Name, a[DimAxis].Name)
		}
		if err != nil {
			return err
		}
	}
	for _, i := range [...]int{positionsAt, sequencesAt} {
		if c.Has(i) {
			if err := w[i].vector(c.role(i), a[QueryAxis].Name); err != nil {
				return err
			}
		}
	}
	if c.Has(tableAt) {
		if err := w[tableAt].order(c.role(tableAt), a[SequenceAxis].Name, a[SlotAxis].Name); err != nil {
			return err
		}
	}
	if err := c.positions(q, &w, paged); err != nil {
		return err
	}
	names := w[0].Names
	if c.Axis2 != "" {
		var err error
		if names, err = tags.Of(a[QueryAxis].Name, c.Axis2); err != nil {
			return err
		}
	}
	list := w.list()
	if err := c.do(q, &names, list[:tableAt+1]...); err != nil || c.Axis2 == "" {
		return err
	}
	s := c.out.Raw.Shape().Without(2)
	s.Set(1, c.out.Raw.Dim(1)*c.out.Raw.Dim(2))
	return c.out.reshape(s)
}

// positions makes the positions of attention, from Start on, if they are absent.
func (c *Call) positions(q *exec.Queue, w *works, paged bool) error {
	if c.Has(positionsAt) {
		if c.Start != 0 {
			return because(op.ErrParam, "got positions, and %d keys before the first query", c.Start)
		}
		return nil
	}
	n, keys := w[0].Raw.Dim(0), w[1].Raw.Dim(0)
	if paged {
		// The contract refuses sequences without a table.
		keys = math.MaxInt
		if c.Has(tableAt) {
			if product, err := shape.Mul(w[1].Raw.Dim(1), w[tableAt].Raw.Dim(1)); err == nil {
				keys = product
			}
		}
	}
	if keys = min(keys, math.MaxInt32); c.Start < 0 || n > keys-c.Start {
		return because(tensor.ErrIndexOutOfBounds, "%d queries after %d keys, but there are only %d keys", n, c.Start, keys)
	}
	made, values, err := exec.Fresh[int32](q, shape.Must(n))
	if err != nil {
		return err
	}
	for i := range values {
		values[i] = int32(c.Start + i)
	}
	w[positionsAt].set(made)
	return nil
}

// rotateStore rotates queries and keys, and writes the keys and the values to a cache.
func rotateStore(c *Call, q *exec.Queue) error {
	var w works
	c.works(&w)
	defer w.done()
	a := c.Axes()
	token, dim := a[QueryAxis].Name, a[DimAxis].Name
	if c.Op == RotateStorePacked {
		if err := c.unpack(&w); err != nil {
			return err
		}
	}
	if err := w[0].order(c.role(0), token, a[HeadAxis].Name, dim); err != nil {
		return err
	}
	for i := 1; i <= 2; i++ {
		if err := w[i].order(c.role(i), token, a[KVHeadAxis].Name, dim); err != nil {
			return err
		}
	}
	if err := w[3].order(c.role(3), token, PairAxis, CosSinAxis); err != nil {
		return err
	}
	if err := w[4].vector(c.role(4), token); err != nil {
		return err
	}
	for i := 5; i <= 6; i++ {
		if c.Has(i) {
			if err := w[i].vector(c.role(i), dim); err != nil {
				return err
			}
		}
	}
	cache := &w[cacheAt]
	switch page := cache.Names.Index(a[PageAxis].Name); {
	case page < 0:
		return because(tags.ErrTag, "the cache has no axis %q", a[PageAxis].Name)
	case cache.Names.Len() != 2:
		return because(tags.ErrTag, "the cache: want axis %q and one other, got %s", a[PageAxis].Name, cache.Describe())
	default:
		if err := cache.moveLast(1 - page); err != nil {
			return err
		}
	}
	list := w.list()
	c.out.Names = w[0].Names
	return c.doInto(q, cache.Tensor, list[:cacheAt]...)
}

// unpack replaces the operands 0 to 2 of RotateStore by views of operand 0, which has the queries,
// the keys and the values side by side along Axis.
func (c *Call) unpack(w *works) error {
	if c.Has(1) || c.Has(2) {
		return because(op.ErrParam, "keys or values besides those along axis %q", c.Axis)
	}
	a := c.Axes()
	token, d := a[QueryAxis].Name, a[DimAxis].Size
	if err := w[0].order("input", token, c.Axis); err != nil {
		return err
	}
	// w[0] may be a view of the operand, which the first set releases. The operand keeps the
	// memory alive, so x remains usable.
	x, st := w[0].Raw, w[0].Raw.Strides()
	if x.DType().IsBlockQuantized() { // a view would divide blocks
		return because(tensor.ErrDType, "the input is %s, want f32; convert with To", x.DType())
	}
	rows, rest, start := x.Dim(0), x.Dim(1), 0
	for i, heads := range [...]Axis{a[HeadAxis], a[KVHeadAxis], a[KVHeadAxis]} {
		if err := heads.check(); err != nil {
			return err
		}
		if i == 2 {
			d = rest / heads.Size
		}
		size, err := shape.Mul(heads.Size, d)
		if err != nil || d < 1 || size > rest || i == 2 && size != rest {
			return because(shape.ErrShapeMismatch, "axis %q is %d, want %d query heads and %d key heads of %d elements, then %d value heads",
				c.Axis, x.Dim(1), a[HeadAxis].Size, a[KVHeadAxis].Size, a[DimAxis].Size, a[KVHeadAxis].Size)
		}
		s, err := shape.Of(rows, heads.Size, d)
		if err != nil {
			return err
		}
		strides, err := shape.OfStrides(st.Dim(0), d*st.Dim(1), st.Dim(1))
		if err != nil {
			return err
		}
		settle(&s, &strides)
		v, err := x.View(s, strides, start*st.Dim(1))
		if err != nil {
			return err
		}
		w[i].set(v)
		if i == 2 {
			w[i].Names = w[1].Names
		} else if w[i].Names, err = tags.Of(token, heads.Name, a[DimAxis].Name); err != nil {
			return err
		}
		start, rest = start+size, rest-size
	}
	return nil
}
