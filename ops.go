package fucina

import (
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/core/tensor"
	"github.com/fucina-go/fucina/tags"
)

// Add returns t + u, f32, aligned by name: the result has the axes of t, then those
// that only u has. An axis that one side lacks, or has with size 1, repeats there.
func (t Tensor) Add(c *Context, u Tensor) (Tensor, error) {
	return t.pointwise(c, u, op.Add)
}

// Mul returns the elementwise product t * u, aligned as in Add.
func (t Tensor) Mul(c *Context, u Tensor) (Tensor, error) {
	return t.pointwise(c, u, op.Mul)
}

// SwiGLU returns silu(t) * up, aligned as in Add. silu(x) = x / (1 + exp(-x)).
func (t Tensor) SwiGLU(c *Context, up Tensor) (Tensor, error) {
	return t.pointwise(c, up, op.SwiGLU)
}

// GeGLU returns gelu(t) * up, aligned as in Add, with the tanh approximation of gelu.
func (t Tensor) GeGLU(c *Context, up Tensor) (Tensor, error) {
	return t.pointwise(c, up, op.GeGLU)
}

// Scale returns factor * t, f32.
func (t Tensor) Scale(c *Context, factor float32) (Tensor, error) {
	return t.unary(c, op.Scale, factor)
}

// SoftCap returns limit * tanh(t/limit), f32: t kept between -limit and limit, which
// is positive.
func (t Tensor) SoftCap(c *Context, limit float32) (Tensor, error) {
	return t.unary(c, op.SoftCap, limit)
}

func (t Tensor) unary(c *Context, id op.ID, param float32) (Tensor, error) {
	x, err := t.enter(c, id.String())
	if err != nil {
		return Tensor{}, err
	}
	defer c.exit()
	defer x.t.Release()
	y, err := c.x.Do(id, &op.Params{Scale: param, SoftCap: param}, &x.t)
	if err != nil {
		return Tensor{}, failed(id.String(), &x, err, "%v", err)
	}
	return c.wrap(y, x.names), nil
}

func (t Tensor) pointwise(c *Context, u Tensor, id op.ID) (Tensor, error) {
	what := id.String()
	a, b, err := c.enter2(what, t, u)
	if err != nil {
		return Tensor{}, err
	}
	defer c.exit()
	defer a.t.Release()
	defer b.t.Release()
	if a.t.DType() != dtype.F32 || b.t.DType() != dtype.F32 {
		return Tensor{}, failed2(what, &a, &b, ErrDType, "%s and %s, want f32; convert with To", a.t.DType(), b.t.DType())
	}
	names, err := a.names.Union(&b.names)
	if err != nil {
		return Tensor{}, failed2(what, &a, &b, ErrTag, "together more than %d axes", MaxRank)
	}
	var dims [shape.MaxRank]int
	for i, name := range names.Slice() {
		dims[i] = 1
		for _, o := range [2]*operand{&a, &b} {
			j := o.names.Index(name)
			if j < 0 {
				continue
			}
			d := o.t.Dim(j)
			if d != 1 && dims[i] != 1 && d != dims[i] {
				return Tensor{}, failed2(what, &a, &b, ErrShapeMismatch, "axis %q is %d and %d", name, dims[i], d)
			}
			dims[i] = max(dims[i], d)
		}
	}
	s, err := shapeOf(dims[:names.Len()])
	if err == nil {
		_, err = s.Elements()
	}
	if err == nil {
		err = a.align(&names, &s)
	}
	if err == nil {
		err = b.align(&names, &s)
	}
	var y tensor.Tensor
	if err == nil {
		left, right := &a.t, &b.t
		if id == op.SwiGLU || id == op.GeGLU {
			left, right = right, left // the gate is on the right
		}
		y, err = c.x.Do(id, nil, left, right)
	}
	if err != nil {
		return Tensor{}, failed2(what, &a, &b, err, "%v", err)
	}
	return c.wrap(y, names), nil
}

// moveLast puts the view with axis i last in the operand's place, and the names in
// that order.
func (o *operand) moveLast(i int) error {
	var order [shape.MaxRank]int
	var names tags.List
	n := o.names.Len()
	for j := range n {
		switch {
		case j < i:
			order[j] = j
		case j < n-1:
			order[j] = j + 1
		default:
			order[j] = i
		}
	}
	for _, j := range order[:n] {
		names, _ = names.Append(o.names.At(j)) // a permutation of a list
	}
	if err := o.permute(order[:n]); err != nil {
		return err
	}
	permuted := o.shape
	for j, k := range order[:n] {
		permuted.Set(j, o.shape.Dim(k))
	}
	o.names, o.shape = names, permuted
	return nil
}

// wrapAs wraps y, whose reference it takes and whose axes are called have, as a view
// with its axes in the order of want.
func (c *Context) wrapAs(y tensor.Tensor, have, want tags.List) (Tensor, error) {
	if have == want {
		return c.wrap(y, want), nil
	}
	var order [shape.MaxRank]int
	for i, name := range want.Slice() {
		order[i] = have.Index(name)
	}
	v, err := y.Permute(order[:want.Len()]...)
	y.Release()
	if err != nil {
		return Tensor{}, err
	}
	return c.wrapView(v, want)
}

// RMSNorm divides t, f32, along the axis by its root mean square, with eps added
// under the root, and multiplies by weight {axis}, f32.
func (t Tensor) RMSNorm(c *Context, weight Tensor, axis string, eps float32) (Tensor, error) {
	const what = "rms_norm"
	x, w, err := c.enter2(what, t, weight)
	if err != nil {
		return Tensor{}, err
	}
	defer c.exit()
	defer x.t.Release()
	defer w.t.Release()
	i := x.names.Index(axis)
	if i < 0 || w.names.Index(axis) < 0 {
		return Tensor{}, failed2(what, &x, &w, ErrTag, "no axis %q", axis)
	}
	if w.names.Len() != 1 {
		return Tensor{}, failed2(what, &x, &w, ErrTag, "the weight has axes other than %q", axis)
	}
	if x.t.Dim(i) != w.t.Dim(0) {
		return Tensor{}, failed2(what, &x, &w, ErrShapeMismatch, "axis %q is %d and %d", axis, x.t.Dim(i), w.t.Dim(0))
	}
	names := x.names
	if err := x.moveLast(i); err != nil {
		return Tensor{}, failed2(what, &x, &w, err, "%v", err)
	}
	y, err := c.x.Do(op.RMSNorm, &op.Params{Eps: eps}, &x.t, &w.t)
	if err != nil {
		return Tensor{}, failed2(what, &x, &w, err, "%v", err)
	}
	return c.wrapAs(y, x.names, names)
}

// Softmax returns the softmax of scale * t, f32, along the axis. A NaN, or nothing
// but -Inf, along the axis gives NaN.
func (t Tensor) Softmax(c *Context, axis string, scale float32) (Tensor, error) {
	const what = "softmax"
	x, err := t.enter(c, what)
	if err != nil {
		return Tensor{}, err
	}
	defer c.exit()
	defer x.t.Release()
	i, err := x.axis(what, axis)
	if err != nil {
		return Tensor{}, err
	}
	names := x.names
	if err := x.moveLast(i); err != nil {
		return Tensor{}, failed(what, &x, err, "%v", err)
	}
	y, err := c.x.Do(op.Softmax, &op.Params{Scale: scale}, &x.t)
	if err != nil {
		return Tensor{}, failed(what, &x, err, "%v", err)
	}
	return c.wrapAs(y, x.names, names)
}

// Argmax returns the index of the first maximum of t, f32, along the axis, as i32,
// without the axis. A NaN counts as the maximum.
func (t Tensor) Argmax(c *Context, axis string) (Tensor, error) {
	const what = "argmax"
	x, err := t.enter(c, what)
	if err != nil {
		return Tensor{}, err
	}
	defer c.exit()
	defer x.t.Release()
	i, err := x.axis(what, axis)
	if err != nil {
		return Tensor{}, err
	}
	if err := x.moveLast(i); err != nil {
		return Tensor{}, failed(what, &x, err, "%v", err)
	}
	y, err := c.x.Do(op.Argmax, nil, &x.t)
	if err != nil {
		return Tensor{}, failed(what, &x, err, "%v", err)
	}
	return c.wrap(y, x.names.Without(x.names.Len()-1)), nil
}

// To returns a contiguous copy of t converted to d, even if that is its dtype.
// Scalar dtypes convert to one another; block formats and FP8 decode to f32.
func (t Tensor) To(c *Context, d dtype.DType) (Tensor, error) {
	x, err := t.enter(c, "to")
	if err != nil {
		return Tensor{}, err
	}
	defer c.exit()
	defer x.t.Release()
	y, err := c.x.Do(op.Copy, &op.Params{To: d}, &x.t)
	if err != nil {
		return Tensor{}, failed("to", &x, err, "%v", err)
	}
	return c.wrap(y, x.names), nil
}

// Materialize returns a contiguous copy of t.
func (t Tensor) Materialize(c *Context) (Tensor, error) {
	x, err := t.enter(c, "materialize")
	if err != nil {
		return Tensor{}, err
	}
	defer c.exit()
	defer x.t.Release()
	y, err := c.x.Do(op.Copy, &op.Params{To: x.t.DType()}, &x.t)
	if err != nil {
		return Tensor{}, failed("materialize", &x, err, "%v", err)
	}
	return c.wrap(y, x.names), nil
}

// CopyFrom writes src into t's storage, where every view of it sees the change,
// converted to t's dtype as To converts, and from f32 also to q8_0. Both have the
// same axes, in any order.
func (t Tensor) CopyFrom(c *Context, src Tensor) error {
	const what = "copy"
	a, b, err := c.enter2(what, t, src)
	if err != nil {
		return err
	}
	defer c.exit()
	defer a.t.Release()
	defer b.t.Release()
	if a.names.Len() != b.names.Len() {
		return failed2(what, &a, &b, ErrTag, "want the same axes")
	}
	var order [shape.MaxRank]int
	for i, name := range a.names.Slice() {
		if order[i] = b.names.Index(name); order[i] < 0 {
			return failed2(what, &a, &b, ErrTag, "no axis %q", name)
		}
		if d, e := a.t.Dim(i), b.t.Dim(order[i]); d != e {
			return failed2(what, &a, &b, ErrShapeMismatch, "axis %q is %d and %d", name, d, e)
		}
	}
	err = b.permute(order[:a.names.Len()])
	if err == nil {
		err = c.x.DoInto(op.Copy, nil, &a.t, &b.t)
	}
	if err != nil {
		return failed2(what, &a, &b, err, "%v", err)
	}
	return nil
}

// GetRows gathers along the axis: the result, f32, has the axes of ids in the
// axis's place, in front, then the other axes of t. ids are i32, i64 or u16; t is of
// any dtype that decodes to float. For table {vocab d} and ids {seq}, over "vocab",
// it is {seq d}.
func (t Tensor) GetRows(c *Context, ids Tensor, axis string) (Tensor, error) {
	const what = "get_rows"
	a, b, err := c.enter2(what, t, ids)
	if err != nil {
		return Tensor{}, err
	}
	defer c.exit()
	defer a.t.Release()
	defer b.t.Release()
	at := a.names.Index(axis)
	if at < 0 {
		return Tensor{}, failed2(what, &a, &b, ErrTag, "no axis %q", axis)
	}
	names := b.names
	var dims, order [2 * shape.MaxRank]int
	for i := range names.Len() {
		dims[i] = b.t.Dim(i)
	}
	order[0] = at
	n := 1
	for i, name := range a.names.Slice() {
		if i == at {
			continue
		}
		dims[names.Len()] = a.t.Dim(i)
		if names, err = names.Append(name); err != nil {
			return Tensor{}, failed2(what, &a, &b, err, "%v", err)
		}
		order[n] = i
		n++
	}
	s, err := shapeOf(dims[:names.Len()])
	if err == nil {
		err = a.permute(order[:n])
	}
	if err == nil {
		err = c.group(&a, 1, n)
	}
	if err == nil {
		err = c.group(&b, b.t.Rank())
	}
	var y tensor.Tensor
	if err == nil {
		y, err = c.x.Do(op.GetRows, nil, &a.t, &b.t)
	}
	if err == nil {
		y, err = reshaped(y, s)
	}
	if err != nil {
		return Tensor{}, failed2(what, &a, &b, err, "%v", err)
	}
	return c.wrap(y, names), nil
}

// reshaped is y.Reshape(s), and takes y's reference.
func reshaped(y tensor.Tensor, s shape.Shape) (tensor.Tensor, error) {
	v, err := y.Reshape(s)
	y.Release()
	return v, err
}

// RoPEMode says which elements along the rotated axis form a pair.
type RoPEMode = op.RoPEMode

const (
	// RoPEInterleaved pairs neighbours.
	RoPEInterleaved = op.RoPEInterleaved
	// RoPENeoX pairs the first half of the rotated elements with the second.
	RoPENeoX = op.RoPENeoX
)

// RoPE rotates pairs of elements of t, f32, along dimAxis by the angles of table
// {posAxis PairAxis CosSinAxis}, f32, whose positions are those of t; see
// Engine.RoPETable. Elements past twice the table's pairs stay.
func (t Tensor) RoPE(c *Context, table Tensor, mode RoPEMode, posAxis, dimAxis string) (Tensor, error) {
	const what = "rope"
	x, b, err := c.enter2(what, t, table)
	if err != nil {
		return Tensor{}, err
	}
	defer c.exit()
	defer x.t.Release()
	defer b.t.Release()
	pos, dim := x.names.Index(posAxis), x.names.Index(dimAxis)
	if pos < 0 || b.names.Index(posAxis) < 0 {
		return Tensor{}, failed2(what, &x, &b, ErrTag, "no axis %q", posAxis)
	}
	if dim < 0 {
		return Tensor{}, failed2(what, &x, &b, ErrTag, "no axis %q", dimAxis)
	}
	if pos == dim {
		return Tensor{}, failed2(what, &x, &b, ErrTag, "positions and rotated elements both along %q", posAxis)
	}
	if err := b.arrange(posAxis, PairAxis, CosSinAxis); err != nil {
		return Tensor{}, failed2(what, &x, &b, err, "the table: %v", err)
	}
	if d, e := x.t.Dim(pos), b.t.Dim(0); d != e {
		return Tensor{}, failed2(what, &x, &b, ErrShapeMismatch, "axis %q is %d and %d", posAxis, d, e)
	}
	if b.t.Dim(2) != 2 || 2*b.t.Dim(1) > x.t.Dim(dim) {
		return Tensor{}, failed2(what, &x, &b, ErrShapeMismatch, "axis %q of %d elements with a table of %d pairs of %d", dimAxis, x.t.Dim(dim), b.t.Dim(1), b.t.Dim(2))
	}
	// Positions, heads (whatever the other axes are), elements.
	var order [shape.MaxRank]int
	var have tags.List
	n := x.names.Len()
	order[0], order[n-1] = pos, dim
	k := 1
	for i := range n {
		if i != pos && i != dim {
			order[k] = i
			k++
		}
	}
	for _, i := range order[:n] {
		have, _ = have.Append(x.names.At(i)) // a permutation of a list
	}
	err = x.permute(order[:n])
	s := x.t.Shape()
	if err == nil {
		err = c.group(&x, 1, n-1, n)
	}
	var y tensor.Tensor
	if err == nil {
		y, err = c.x.Do(op.RoPE, &op.Params{Mode: mode}, &x.t, &b.t)
	}
	if err == nil {
		y, err = reshaped(y, s)
	}
	if err != nil {
		return Tensor{}, failed2(what, &x, &b, err, "%v", err)
	}
	return c.wrapAs(y, have, x.names)
}

// arrange puts the view with the given axes, which are all of them, in this order
// in the operand's place.
func (o *operand) arrange(names ...string) error {
	var order [shape.MaxRank]int
	if len(names) != o.names.Len() {
		return errAxes(o, names)
	}
	for i, name := range names {
		if order[i] = o.names.Index(name); order[i] < 0 {
			return errAxes(o, names)
		}
	}
	return o.permute(order[:len(names)])
}

func errAxes(o *operand, names []string) error {
	want, err := tags.Of(names...)
	if err != nil {
		return err
	}
	return &opError{"want axes " + want.String() + ", got " + o.describe(), ErrTag}
}

// AttentionOptions are the parameters of Attention and the names of its axes.
type AttentionOptions struct {
	Scale   float32 // of the products of queries and keys; 1/sqrt(head size) as a rule
	SoftCap float32 // scores become SoftCap*tanh(score/SoftCap); 0 is none
	Past    int     // keys before the first query's own
	Window  int     // keys that a query sees, its own included; 0 is all

	Query  string // of the queries' positions; "seq" if empty
	Key    string // of the keys' positions; "key" if empty
	Head   string // of the query heads; "head" if empty
	KVHead string // of the key and value heads; "kv_head" if empty
	Dim    string // of a head's elements; "d" if empty
}

func either(name, fallback string) string {
	if name == "" {
		return fallback
	}
	return name
}

// Attention is causal scaled dot-product attention of q {Query Head Dim} over k and
// v {Key KVHead Dim}, each in any order of axes, into {Query Head Dim}, whose Dim is
// v's. q is f32; k and v are f32, f16 or q8_0. The number of query heads is n times
// that of key heads, and query head h reads key head h/n. Query t sees the keys 0 to
// Past+t, which must exist, or the last Window of them.
func Attention(c *Context, q, k, v Tensor, opt AttentionOptions) (Tensor, error) {
	const what = "attention"
	a, err := q.enter(c, what)
	if err != nil {
		return Tensor{}, err
	}
	defer c.exit()
	defer a.t.Release()
	kk, vv, err := c.operands(what, k, v)
	if err != nil {
		return Tensor{}, err
	}
	defer kk.t.Release()
	defer vv.t.Release()
	query, key, dim := either(opt.Query, "seq"), either(opt.Key, "key"), either(opt.Dim, "d")
	head, kvHead := either(opt.Head, "head"), either(opt.KVHead, "kv_head")
	err = a.arrange(query, head, dim)
	if err == nil {
		err = kk.arrange(key, kvHead, dim)
	}
	if err == nil {
		err = vv.arrange(key, kvHead, dim)
	}
	var names tags.List
	if err == nil {
		names, err = tags.Of(query, head, dim)
	}
	var y tensor.Tensor
	if err == nil {
		y, err = c.x.Do(op.Attention, &op.Params{
			Scale: opt.Scale, SoftCap: opt.SoftCap, Past: opt.Past, Window: opt.Window,
		}, &a.t, &kk.t, &vv.t)
	}
	if err != nil {
		return Tensor{}, failedAttention(&a, &kk, &vv, err)
	}
	return c.wrap(y, names), nil
}

func failedAttention(q, k, v *operand, err error) error {
	return &opError{"attention: q " + q.describe() + ", k " + k.describe() + ", v " + v.describe() + ": " + err.Error(), err}
}
