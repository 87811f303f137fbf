package fucina

import (
	"fmt"
	"github.com/fucina-go/fucina/core/op"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/core/tensor"
)

// Dot contracts the axis of t and u: it sums the products of their elements along
// it, in f32. The result has the axes that both share (batch axes, of equal sizes),
// then those of t alone, then those of u alone, each in the operand's order; two
// vectors give a scalar. The order of the operands' axes changes no result.
//
// t is f32. u is f32, f16, bf16 or a block format of weights, the one mix of dtypes
// that needs no conversion; a block format has the axis last and no batch axes.
func (t Tensor) Dot(c *Context, u Tensor, axis string) (Tensor, error) {
	a, b, err := c.enter2("dot", t, u)
	if err != nil {
		return Tensor{}, err
	}
	defer c.exit()
	defer a.t.Release()
	defer b.t.Release()
	ka, kb := a.names.Index(axis), b.names.Index(axis)
	if ka < 0 || kb < 0 {
		return Tensor{}, failedDot(axis, &a, &b, ErrTag, "no axis %q", axis)
	}
	names, err := a.names.Dot(&b.names, axis)
	if err != nil {
		return Tensor{}, failedDot(axis, &a, &b, ErrTag, "the result has more than %d axes", MaxRank)
	}
	if d, e := a.t.Dim(ka), b.t.Dim(kb); d != e {
		return Tensor{}, failedDot(axis, &a, &b, ErrShapeMismatch, "axis %q is %d and %d", axis, d, e)
	}
	if a.t.DType() != dtype.F32 {
		return Tensor{}, failedDot(axis, &a, &b, ErrDType, "%s by %s, want f32 on the left; convert with To", a.t.DType(), b.t.DType())
	}

	// Each side's axes in the order batch, free, contracted.
	var left, right, dims [2 * shape.MaxRank]int
	batch := 0
	for i, name := range a.names.Slice() {
		j := b.names.Index(name)
		if i == ka || j < 0 {
			continue
		}
		if d, e := a.t.Dim(i), b.t.Dim(j); d != e {
			return Tensor{}, failedDot(axis, &a, &b, ErrShapeMismatch, "axis %q is %d and %d", name, d, e)
		}
		left[batch], right[batch], dims[batch] = i, j, a.t.Dim(i)
		batch++
	}
	n := batch
	for i, name := range a.names.Slice() {
		if i != ka && b.names.Index(name) < 0 {
			left[n], dims[n] = i, a.t.Dim(i)
			n++
		}
	}
	left[n] = ka
	rank := n
	m := batch
	for j, name := range b.names.Slice() {
		if j != kb && a.names.Index(name) < 0 {
			right[m], dims[rank] = j, b.t.Dim(j)
			m++
			rank++
		}
	}
	right[m] = kb
	s, err := shapeOf(dims[:rank])
	if err != nil {
		return Tensor{}, failedDot(axis, &a, &b, err, "%v", err)
	}
	if b.t.DType().IsBlockQuantized() {
		if batch > 0 {
			return Tensor{}, failedDot(axis, &a, &b, ErrUnsupportedView, "%s on the right cannot have batch axes", b.t.DType())
		}
		if kb != b.names.Len()-1 {
			return Tensor{}, failedDot(axis, &a, &b, ErrUnsupportedView, "%s on the right needs axis %q last", b.t.DType(), axis)
		}
	}
	y, err := c.matMul(&a, &b, left[:n+1], right[:m+1], batch)
	if err == nil {
		y, err = reshaped(y, s)
	}
	if err != nil {
		return Tensor{}, failedDot(axis, &a, &b, err, "%v", err)
	}
	return c.wrap(y, names), nil
}

// matMul multiplies the operands with their axes in the given orders, of which the
// first are batch axes and the last is contracted. A side whose layout cannot be
// expressed is copied, once.
func (c *Context) matMul(a, b *operand, left, right []int, batch int) (tensor.Tensor, error) {
	if err := a.permute(left); err != nil {
		return tensor.Tensor{}, err
	}
	if err := b.permute(right); err != nil {
		return tensor.Tensor{}, err
	}
	n, m := len(left)-1, len(right)-1
	if batch == 0 {
		if err := c.group(b, m, m+1); err != nil {
			return tensor.Tensor{}, err
		}
		return c.x.Do(op.MatMul, nil, &a.t, &b.t)
	}
	if err := c.group(a, batch, n, n+1); err != nil {
		return tensor.Tensor{}, err
	}
	if err := c.group(b, batch, m, m+1); err != nil {
		return tensor.Tensor{}, err
	}
	return c.x.Do(op.MatMul, nil, &a.t, &b.t)
}

func failedDot(axis string, left, right *operand, kind error, format string, args ...any) error {
	return failed2(fmt.Sprintf("dot over %q", axis), left, right, kind, format, args...)
}
