package fucina

import (
	"cmp"

	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/tagged"
)

// Add returns t + u. All are f32. The operands are aligned by the names of their axes: the
// result has the axes of t, followed by the axes that only u has. An axis that one operand
// lacks, or has with size 1, repeats in that operand.
func (t Tensor) Add(u Tensor) Tensor {
	return apply(tagged.Add, op.Params{}, "", t, u)
}

// Sub returns t - u, aligned as in Add. Each element is rounded once, like a difference of
// two float32.
func (t Tensor) Sub(u Tensor) Tensor {
	return apply(tagged.Sub, op.Params{}, "", t, u)
}

// Mul returns t * u elementwise, aligned as in Add.
func (t Tensor) Mul(u Tensor) Tensor {
	return apply(tagged.Mul, op.Params{}, "", t, u)
}

// SwiGLU returns t * silu(gate), aligned as in Add, with silu(x) = x / (1 + exp(-x)).
func (t Tensor) SwiGLU(gate Tensor) Tensor {
	return apply(tagged.SwiGLU, op.Params{}, "", t, gate)
}

// GeGLU returns t * gelu(gate), aligned as in Add, with the tanh approximation of gelu.
func (t Tensor) GeGLU(gate Tensor) Tensor {
	return apply(tagged.GeGLU, op.Params{}, "", t, gate)
}

// Scale returns factor * t. t and the result are f32, and factor is rounded to f32.
func (t Tensor) Scale(factor float64) Tensor {
	return apply(tagged.Scale, op.Params{Scale: float32(factor)}, "", t)
}

// SoftCap returns limit * tanh(t/limit), which is between -limit and limit. t and the result
// are f32, and limit is positive.
func (t Tensor) SoftCap(limit float64) Tensor {
	return apply(tagged.SoftCap, op.Params{SoftCap: float32(limit)}, "", t)
}

// Dot contracts one or more axes that t and u both have: the result is the sum, in f32, of
// the products of their elements along these axes. The other axes that both have are batch
// axes, which have equal sizes. The result has the batch axes, then the other axes of t, then
// the other axes of u, each in the order of the operand. The contraction of two vectors is a
// scalar. The order of the operands' axes in memory does not change the result.
//
// t is f32. u is f32, f16, bf16 or a block format of weights; no other operation takes
// operands of different dtypes without a conversion. If u has a block format, its last axis
// must be the last of the contracted axes, and there must be no batch axes.
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

// RMSNorm returns t * weight / sqrt(mean(t*t) + eps), with the mean along the axis. t, weight
// {axis} and the result are f32. The result has the axes of t. eps is at least 0.
func (t Tensor) RMSNorm(weight Tensor, axis string, eps float64) Tensor {
	return apply(tagged.RMSNorm, op.Params{Eps: float32(eps)}, axis, t, weight)
}

// SoftmaxOptions are the parameters of Softmax.
type SoftmaxOptions struct {
	Scale float64 // the elements are multiplied by it first; 0 means 1
}

// Softmax returns the softmax of t along the axis. t and the result are f32 with the same
// axes. If the elements along the axis contain a NaN, or are all -Inf, their results are NaN.
// Of several options only the first counts.
func (t Tensor) Softmax(axis string, opt ...SoftmaxOptions) Tensor {
	var o SoftmaxOptions
	if len(opt) > 0 {
		o = opt[0]
	}
	return apply(tagged.Softmax, op.Params{Scale: float32(cmp.Or(o.Scale, 1))}, axis, t)
}

// Argmax returns the index of the first maximum along the axis. t is f32. The result is i32
// and has the other axes of t. A NaN counts as the maximum.
func (t Tensor) Argmax(axis string) Tensor {
	return apply(tagged.Argmax, op.Params{}, axis, t)
}

// To returns a contiguous copy of t with dtype d, also if t has that dtype already. Every
// scalar dtype converts to every other. Block formats convert to f32, and f32 converts to
// q8_0.
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

// CopyFrom writes the elements of src into the memory of t, converted to t's dtype as To
// converts. Every view of that memory sees them. t and src have the same axes, in any order.
// It fails with ErrReadOnly if the memory is read-only, and if t is a view in which an axis
// repeats.
//
// CopyFrom returns t, or a failed tensor.
func (t Tensor) CopyFrom(src Tensor) Tensor {
	c, failed := begin(tagged.CopyFrom, t, src)
	if c == nil {
		return failed
	}
	return c.finish(t)
}

// Gather returns the entries of t at the indices ids along the axis. ids is i32, i64 or u16,
// and t has any dtype that converts to f32. The result is f32 and has the axes of ids,
// followed by the other axes of t: a table {vocab d} and ids {seq} give {seq d} along "vocab".
// An index outside of the axis is an error (ErrIndexOutOfBounds). If only a device has the
// ids, the error appears when the elements of the result are read.
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

// RoPE rotates pairs of elements of t along dimAxis. The entry i of table, along posAxis, has
// the angles of the entry i of t. t is f32 with the axes posAxis, dimAxis and any others.
// table is f32 {posAxis PairAxis CosSinAxis}; see Engine.RoPETable. If the table has fewer
// pairs than t, the remaining elements along dimAxis are copied. The result is f32 and has
// the axes of t.
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
	Scale   float64 // the factor of the products of queries and keys, usually 1/sqrt(size of a head)
	SoftCap float64 // scores become SoftCap*tanh(score/SoftCap); 0 means no cap
	Past    int     // the number of keys before the key of the first query
	Window  int     // the number of keys that a query sees, including its own; 0 means all

	Query  string // the axis of the queries' positions; "" means "seq"
	Key    string // the axis of the keys' positions; "" means "key"
	Head   string // the axis of the query heads; "" means "head"
	KVHead string // the axis of the key and value heads; "" means "kv_head"
	Dim    string // the axis of the elements of a head; "" means "d"
}

// Attention returns the causal scaled dot-product attention of the queries q {Query Head Dim}
// over the keys k and the values v {Key KVHead Dim}. The axes of each may have any order. q is
// f32; k and v are f32, f16 or q8_0. The result is f32 {Query Head Dim}, with the Dim of v.
//
// The number of query heads is a multiple n of the number of key heads, and query head h uses
// key head h/n. Query i sees the keys 0 to Past+i, which must exist, or the last Window of
// these.
func Attention(q, k, v Tensor, opt AttentionOptions) Tensor {
	c, failed := begin(tagged.Attention, q, k, v)
	if c == nil {
		return failed
	}
	c.call.Params = op.Params{Scale: float32(opt.Scale), SoftCap: float32(opt.SoftCap), Past: opt.Past, Window: opt.Window}
	c.call.SetNames([]string{
		tagged.QueryAxis: cmp.Or(opt.Query, "seq"), tagged.KeyAxis: cmp.Or(opt.Key, "key"), tagged.HeadAxis: cmp.Or(opt.Head, "head"),
		tagged.KVHeadAxis: cmp.Or(opt.KVHead, "kv_head"), tagged.DimAxis: cmp.Or(opt.Dim, "d"),
	})
	return c.finish()
}
