package tagged

import (
	"github.com/fucina-go/fucina/core/shape"
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
func rope(c *Call, q *exec.Queue) (Tensor, error) {
	x, table := c.work(0), c.work(1)
	defer x.done()
	defer table.done()
	pos, dim := x.Names.Index(c.Axis), x.Names.Index(c.Axis2)
	switch {
	case pos < 0 || table.Names.Index(c.Axis) < 0:
		return Tensor{}, noAxis(c.Axis)
	case dim < 0:
		return Tensor{}, noAxis(c.Axis2)
	case pos == dim:
		return Tensor{}, because(tags.ErrTag, "axis %q appears twice: for the positions and for the rotated elements", c.Axis)
	}
	if err := table.order3(c.Axis, PairAxis, CosSinAxis); err != nil {
		return Tensor{}, err
	}
	if d, e := x.Raw.Dim(pos), table.Raw.Dim(0); d != e {
		return Tensor{}, twoSizes(c.Axis, d, e)
	}
	if table.Raw.Dim(2) != 2 || 2*table.Raw.Dim(1) > x.Raw.Dim(dim) {
		return Tensor{}, because(shape.ErrShapeMismatch, "axis %q of %d elements with a table of %d pairs of %d", c.Axis2, x.Raw.Dim(dim), table.Raw.Dim(1), table.Raw.Dim(2))
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
		return Tensor{}, err
	}
	s, have := x.Raw.Shape(), x.Names
	if err := x.group(q, 1, n-1, n); err != nil {
		return Tensor{}, err
	}
	y, err := c.do(q, &x.Tensor, &table.Tensor)
	if err == nil {
		y, err = reshaped(y, s)
	}
	if err != nil {
		return Tensor{}, err
	}
	return inOrder(y, &have, &names)
}

// attention runs causal attention. The constants below are the indices of its Axes.
func attention(c *Call, q *exec.Queue) (Tensor, error) {
	query, key, value := c.work(0), c.work(1), c.work(2)
	defer query.done()
	defer key.done()
	defer value.done()
	a := c.Axes()
	if err := query.order3(a[QueryAxis].Name, a[HeadAxis].Name, a[DimAxis].Name); err != nil {
		return Tensor{}, err
	}
	if err := key.order3(a[KeyAxis].Name, a[KVHeadAxis].Name, a[DimAxis].Name); err != nil {
		return Tensor{}, err
	}
	if err := value.order3(a[KeyAxis].Name, a[KVHeadAxis].Name, a[DimAxis].Name); err != nil {
		return Tensor{}, err
	}
	y, err := c.do(q, &query.Tensor, &key.Tensor, &value.Tensor)
	return Tensor{y, query.Names}, err
}

// order3 replaces t by its view with the given axes in this order. It fails unless they are
// the axes of t.
func (t *working) order3(i, j, k string) error {
	want, err := tags.Of(i, j, k)
	if err != nil {
		return err
	}
	var order [3]int
	for n, name := range want.Slice() {
		if order[n] = t.Names.Index(name); order[n] < 0 || t.Names.Len() != 3 {
			return because(tags.ErrTag, "want axes %q, %q and %q, got %s", i, j, k, t.Describe())
		}
	}
	return t.permute(order[:])
}

// The indices of the Axes of Attention.
const (
	QueryAxis = iota
	KeyAxis
	HeadAxis
	KVHeadAxis
	DimAxis
)
