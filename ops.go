package fucina

import (
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/tagged"
)

// begin claims c for a call of o and returns it, with the operands in it. With an error
// c is not claimed.
func (c *Context) begin(o tagged.Op, ts ...Tensor) (*tagged.Call, error) {
	if err := c.enter(o.String()); err != nil {
		return nil, err
	}
	k := &c.call
	k.Reset(o)
	for i, t := range ts {
		x, err := c.operand(o.String(), t)
		if err != nil {
			err = k.OperandError(i, len(ts), err)
			c.leave()
			return nil, err
		}
		k.Operand(x.t, x.names)
	}
	return k, nil
}

// leave gives the operands of the call back, and the context free.
func (c *Context) leave() {
	for i := range c.call.NIn {
		c.call.In(i).Release()
	}
	c.call.Reset(0)
	c.exit()
}

// finish runs the call that begin returned, and wraps its result.
func (c *Context) finish() (Tensor, error) {
	defer c.leave()
	y, err := c.call.Run(c.x)
	if err != nil {
		return Tensor{}, err
	}
	return c.wrap(y.Raw, y.Names), nil
}

// apply is begin and finish for a call that has no attributes but parameters and an axis.
func (c *Context) apply(o tagged.Op, p op.Params, axis string, ts ...Tensor) (Tensor, error) {
	k, err := c.begin(o, ts...)
	if err != nil {
		return Tensor{}, err
	}
	k.Params, k.Axis = p, axis
	return c.finish()
}

// Add returns t + u, f32, aligned by name: the result has the axes of t, then those
// that only u has. An axis that one side lacks, or has with size 1, repeats there.
func (t Tensor) Add(c *Context, u Tensor) (Tensor, error) {
	return c.apply(tagged.Add, op.Params{}, "", t, u)
}

// Mul returns the elementwise product t * u, aligned as in Add.
func (t Tensor) Mul(c *Context, u Tensor) (Tensor, error) {
	return c.apply(tagged.Mul, op.Params{}, "", t, u)
}

// SwiGLU returns t * silu(gate), aligned as in Add. silu(x) = x / (1 + exp(-x)).
func (t Tensor) SwiGLU(c *Context, gate Tensor) (Tensor, error) {
	return c.apply(tagged.SwiGLU, op.Params{}, "", t, gate)
}

// GeGLU returns t * gelu(gate), aligned as in Add, with the tanh approximation of gelu.
func (t Tensor) GeGLU(c *Context, gate Tensor) (Tensor, error) {
	return c.apply(tagged.GeGLU, op.Params{}, "", t, gate)
}

// Scale returns factor * t, f32.
func (t Tensor) Scale(c *Context, factor float32) (Tensor, error) {
	return c.apply(tagged.Scale, op.Params{Scale: factor}, "", t)
}

// SoftCap returns limit * tanh(t/limit), f32: t kept between -limit and limit, which
// is positive.
func (t Tensor) SoftCap(c *Context, limit float32) (Tensor, error) {
	return c.apply(tagged.SoftCap, op.Params{SoftCap: limit}, "", t)
}

// Dot contracts the axis of t and u: it sums the products of their elements along
// it, in f32. The result has the axes that both share (batch axes, of equal sizes),
// then those of t alone, then those of u alone, each in the operand's order; two
// vectors give a scalar. The order of the operands' axes changes no result.
//
// t is f32. u is f32, f16, bf16 or a block format of weights, the one mix of dtypes
// that needs no conversion; a block format has the axis last and no batch axes.
func (t Tensor) Dot(c *Context, u Tensor, axis string) (Tensor, error) {
	k, err := c.begin(tagged.Dot, t, u)
	if err != nil {
		return Tensor{}, err
	}
	k.SetNames([]string{axis})
	return c.finish()
}

// RMSNorm divides t, f32, along the axis by its root mean square, with eps added
// under the root, and multiplies by weight {axis}, f32.
func (t Tensor) RMSNorm(c *Context, weight Tensor, axis string, eps float32) (Tensor, error) {
	return c.apply(tagged.RMSNorm, op.Params{Eps: eps}, axis, t, weight)
}

// Softmax returns the softmax of scale * t, f32, along the axis. A NaN, or nothing
// but -Inf, along the axis gives NaN.
func (t Tensor) Softmax(c *Context, axis string, scale float32) (Tensor, error) {
	return c.apply(tagged.Softmax, op.Params{Scale: scale}, axis, t)
}

// Argmax returns the index of the first maximum of t, f32, along the axis, as i32,
// without the axis. A NaN counts as the maximum.
func (t Tensor) Argmax(c *Context, axis string) (Tensor, error) {
	return c.apply(tagged.Argmax, op.Params{}, axis, t)
}

// To returns a contiguous copy of t converted to d, even if that is its dtype.
// Scalar dtypes convert to one another; block formats and FP8 decode to f32, and f32
// encodes to q8_0.
func (t Tensor) To(c *Context, d dtype.DType) (Tensor, error) {
	return c.apply(tagged.To, op.Params{To: d}, "", t)
}

// Materialize returns a contiguous copy of t.
func (t Tensor) Materialize(c *Context) (Tensor, error) {
	return c.apply(tagged.Copy, op.Params{}, "", t)
}

// CopyFrom writes src into t's storage, where every view of it sees the change,
// converted to t's dtype as To converts. Both have the same axes, in any order.
func (t Tensor) CopyFrom(c *Context, src Tensor) error {
	if _, err := c.begin(tagged.CopyFrom, t, src); err != nil {
		return err
	}
	defer c.leave()
	y, err := c.call.Run(c.x)
	if err == nil {
		y.Release()
	}
	return err
}

// GetRows gathers along the axis: the result, f32, has the axes of ids in the
// axis's place, in front, then the other axes of t. ids are i32, i64 or u16; t is of
// any dtype that decodes to float. For table {vocab d} and ids {seq}, over "vocab",
// it is {seq d}.
func (t Tensor) GetRows(c *Context, ids Tensor, axis string) (Tensor, error) {
	return c.apply(tagged.GetRows, op.Params{}, axis, t, ids)
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
	k, err := c.begin(tagged.RoPE, t, table)
	if err != nil {
		return Tensor{}, err
	}
	k.Params.Mode, k.Axis, k.Axis2 = mode, posAxis, dimAxis
	return c.finish()
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
	call, err := c.begin(tagged.Attention, q, k, v)
	if err != nil {
		return Tensor{}, err
	}
	call.Params = op.Params{Scale: opt.Scale, SoftCap: opt.SoftCap, Past: opt.Past, Window: opt.Window}
	call.SetNames([]string{
		tagged.QueryAxis: either(opt.Query, "seq"), tagged.KeyAxis: either(opt.Key, "key"), tagged.HeadAxis: either(opt.Head, "head"),
		tagged.KVHeadAxis: either(opt.KVHead, "kv_head"), tagged.DimAxis: either(opt.Dim, "d"),
	})
	return c.finish()
}
