package fucina

import (
	"errors"
	"fmt"

	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/tagged"
)

// begin claims the context of the operands for a call of o and returns it, with the
// operands in its call. If the operation fails already, it returns nil and the failed
// tensor.
func begin(o tagged.Op, ts ...Tensor) (*Context, Tensor) {
	var c *Context
	for i := len(ts) - 1; i >= 0; i-- {
		if ts[i].c != nil {
			c = ts[i].c
		}
	}
	for _, t := range ts {
		if t.failure() != nil {
			c.endMoved(ts)
			return nil, Tensor{c, t.h, 0}
		}
	}
	if c == nil {
		return nil, c.fail(fmt.Errorf("%s: %w", o, errNoContext))
	}
	if err := c.enter(); err != nil {
		return nil, c.fail(fmt.Errorf("%s: %w", o, err))
	}
	var err error
	if c.cancel != nil {
		err = c.cancel.Err()
	}
	c.call.Reset(o)
	for i := 0; err == nil && i < len(ts); i++ {
		if err = c.operand(ts[i]); err != nil && len(ts) > 1 {
			err = fmt.Errorf("the %s: %w", c.call.Role(i), err)
		}
	}
	if err != nil {
		c.leave()
		c.endMoved(ts)
		return nil, c.fail(fmt.Errorf("%s: %w", o, err))
	}
	copy(c.in[:], ts)
	return c, Tensor{}
}

// operand adds t to the call in progress.
func (c *Context) operand(t Tensor) error {
	o, err := t.use()
	if err != nil {
		return err
	}
	err = c.foreign(t)
	switch {
	case err != nil:
	case t.c != nil && t.c != c:
		err = &opError{fmt.Sprintf("%s %s is driven by %s, the operation by %s; choose one with On", o.t.DType(), o.describe(), t.c, c), ErrContext}
	case t.epoch&moved != 0 && t.h.ownedBy(t.mark()) != c.innermost():
		err = &opError{o.t.DType().String() + " " + o.describe() + " is moved, and the innermost frame does not own it", ErrNotOwned}
	}
	if err != nil {
		o.t.Release()
		return err
	}
	c.call.Operand(o.t, o.names)
	return nil
}

// foreign returns the error of a tensor that belongs to another engine than c, or nil.
func (c *Context) foreign(t Tensor) error {
	if t.h.e == c.e {
		return nil
	}
	return &opError{fmt.Sprintf("%s belongs to %s, the context to %s", t, t.h.e, c.e), ErrEngine}
}

// endMoved ends the operands with the mark of Move, after a call that did not begin.
func (c *Context) endMoved(ts []Tensor) {
	for _, t := range ts {
		if t.epoch&moved == 0 || c.enter() != nil {
			continue
		}
		if t.live() && t.h.ownedBy(t.mark()) == c.innermost() {
			c.release(t)
		}
		c.exit()
	}
}

// leave gives the operands of the call back, ends those with the mark of Move, and makes
// the context idle.
func (c *Context) leave() {
	for i := range c.call.NIn {
		c.call.In(i).Release()
		if t := c.in[i]; t.epoch&moved != 0 {
			c.release(t)
		}
		c.in[i] = Tensor{}
	}
	c.call.Reset(0)
	c.exit()
}

// finish runs the call that begin began, and returns its result, which belongs to the
// innermost frame. The result of an operation that writes to its receiver is the receiver.
func (c *Context) finish(receiver ...Tensor) Tensor {
	d := c.debug.Load()
	y, seen, err := c.run(d, receiver)
	if err != nil {
		return c.fail(err)
	}
	if d != nil {
		return c.debugged(d, y, &seen)
	}
	return y
}

// run runs the call, and wraps its result if there is no receiver. seen is what d needs of
// the call.
func (c *Context) run(d *DebugOptions, receiver []Tensor) (t Tensor, seen sight, err error) {
	defer c.leave()
	y, err := c.call.Run(c.x)
	if err != nil {
		return Tensor{}, sight{}, err
	}
	if d != nil {
		seen = d.see(&c.call, &y)
	}
	if len(receiver) > 0 {
		y.Release()
		return receiver[0], seen, nil
	}
	return c.wrapIn(c.innermost(), y.Raw, y.Names), seen, nil
}

// apply runs an operation without attributes but parameters and an axis.
func apply(o tagged.Op, p op.Params, axis string, ts ...Tensor) Tensor {
	c, failed := begin(o, ts...)
	if c == nil {
		return failed
	}
	c.call.Params, c.call.Axis = p, axis
	return c.finish()
}

// Add returns t + u, f32, aligned by name: the result has the axes of t, then those
// that only u has. An axis that one side lacks, or has with size 1, repeats there.
func (t Tensor) Add(u Tensor) Tensor {
	return apply(tagged.Add, op.Params{}, "", t, u)
}

// Sub returns the elementwise difference t - u, aligned as in Add. It rounds once: its bits
// are those of the subtraction of two float32.
func (t Tensor) Sub(u Tensor) Tensor {
	return apply(tagged.Sub, op.Params{}, "", t, u)
}

// Mul returns the elementwise product t * u, aligned as in Add.
func (t Tensor) Mul(u Tensor) Tensor {
	return apply(tagged.Mul, op.Params{}, "", t, u)
}

// SwiGLU returns t * silu(gate), aligned as in Add. silu(x) = x / (1 + exp(-x)).
func (t Tensor) SwiGLU(gate Tensor) Tensor {
	return apply(tagged.SwiGLU, op.Params{}, "", t, gate)
}

// GeGLU returns t * gelu(gate), aligned as in Add, with the tanh approximation of gelu.
func (t Tensor) GeGLU(gate Tensor) Tensor {
	return apply(tagged.GeGLU, op.Params{}, "", t, gate)
}

// Scale returns factor * t, f32.
func (t Tensor) Scale(factor float64) Tensor {
	return apply(tagged.Scale, op.Params{Scale: float32(factor)}, "", t)
}

// SoftCap returns limit * tanh(t/limit), f32: t kept between -limit and limit, which
// is positive.
func (t Tensor) SoftCap(limit float64) Tensor {
	return apply(tagged.SoftCap, op.Params{SoftCap: float32(limit)}, "", t)
}

// Dot contracts the axes of t and u: it sums the products of their elements along them,
// in f32. The result has the axes that both share and that are not contracted (batch axes,
// of equal sizes), then those of t alone, then those of u alone, each in the operand's
// order; two vectors give a scalar. The order of the operands' axes changes no result.
//
// t is f32. u is f32, f16, bf16 or a block format of weights, the one mix of dtypes
// that needs no conversion; a block format has the last of the axes last and no batch
// axes.
func (t Tensor) Dot(u Tensor, axis string, more ...string) Tensor {
	c, failed := begin(tagged.Dot, t, u)
	if c == nil {
		return failed
	}
	c.call.AddName(axis)
	for _, name := range more {
		c.call.AddName(name)
	}
	return c.finish()
}

// RMSNorm divides t, f32, along the axis by its root mean square, with eps added
// under the root, and multiplies by weight {axis}, f32.
func (t Tensor) RMSNorm(weight Tensor, axis string, eps float64) Tensor {
	return apply(tagged.RMSNorm, op.Params{Eps: float32(eps)}, axis, t, weight)
}

// SoftmaxOptions are the parameters of Softmax.
type SoftmaxOptions struct {
	Scale float64 // of the elements, before; 0 stands for 1
}

// Softmax returns the softmax of t, f32, along the axis. A NaN, or nothing but -Inf,
// along the axis gives NaN.
func (t Tensor) Softmax(axis string, opt ...SoftmaxOptions) Tensor {
	scale := 1.0
	if len(opt) > 0 && opt[0].Scale != 0 {
		scale = opt[0].Scale
	}
	return apply(tagged.Softmax, op.Params{Scale: float32(scale)}, axis, t)
}

// Argmax returns the index of the first maximum of t, f32, along the axis, as i32,
// without the axis. A NaN counts as the maximum.
func (t Tensor) Argmax(axis string) Tensor {
	return apply(tagged.Argmax, op.Params{}, axis, t)
}

// To returns a contiguous copy of t converted to d, even if that is its dtype.
// Scalar dtypes convert to one another; block formats and FP8 decode to f32, and f32
// encodes to q8_0.
func (t Tensor) To(d DType) Tensor {
	return apply(tagged.To, op.Params{To: d}, "", t)
}

// Contiguous returns a tensor with the elements of t in row-major order: a view of t if t is
// contiguous, and otherwise a copy.
func (t Tensor) Contiguous() Tensor {
	return apply(tagged.Contiguous, op.Params{}, "", t)
}

// Copy returns a contiguous copy of t.
func (t Tensor) Copy() Tensor {
	return apply(tagged.Copy, op.Params{}, "", t)
}

// CopyFrom writes src into t's storage, where every view of it sees the change,
// converted to t's dtype as To converts. Both have the same axes, in any order.
//
// It returns t, or a failed tensor.
func (t Tensor) CopyFrom(src Tensor) Tensor {
	c, failed := begin(tagged.CopyFrom, t, src)
	if c == nil {
		return failed
	}
	return c.finish(t)
}

// Gather gathers along the axis: the result, f32, has the axes of ids in the
// axis's place, in front, then the other axes of t. ids are i32, i64 or u16; t is of
// any dtype that decodes to float. For table {vocab d} and ids {seq}, over "vocab",
// it is {seq d}.
func (t Tensor) Gather(ids Tensor, axis string) Tensor {
	return apply(tagged.Gather, op.Params{}, axis, t, ids)
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
func (t Tensor) RoPE(table Tensor, mode RoPEMode, posAxis, dimAxis string) Tensor {
	c, failed := begin(tagged.RoPE, t, table)
	if c == nil {
		return failed
	}
	c.call.Params.Mode, c.call.Axis, c.call.Axis2 = mode, posAxis, dimAxis
	return c.finish()
}

// AttentionOptions are the parameters of Attention and the names of its axes.
type AttentionOptions struct {
	Scale   float64 // of the products of queries and keys; 1/sqrt(head size) as a rule
	SoftCap float64 // scores become SoftCap*tanh(score/SoftCap); 0 is none
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
func Attention(q, k, v Tensor, opt AttentionOptions) Tensor {
	c, failed := begin(tagged.Attention, q, k, v)
	if c == nil {
		return failed
	}
	c.call.Params = op.Params{Scale: float32(opt.Scale), SoftCap: float32(opt.SoftCap), Past: opt.Past, Window: opt.Window}
	c.call.SetNames([]string{
		tagged.QueryAxis: either(opt.Query, "seq"), tagged.KeyAxis: either(opt.Key, "key"), tagged.HeadAxis: either(opt.Head, "head"),
		tagged.KVHeadAxis: either(opt.KVHead, "kv_head"), tagged.DimAxis: either(opt.Dim, "d"),
	})
	return c.finish()
}

// errNaN is the failure of DebugOptions.CheckNaN.
var errNaN = errors.New("the result has a NaN or an infinity")
