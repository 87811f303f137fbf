package fucina

import (
	"cmp"
	"fmt"

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

// AddRMSNorm returns t + y and the RMSNorm of this sum with the weight, along the axis: the
// values, bit for bit, of Add followed by RMSNorm. t and y are f32 and have the same axes in
// any order; nothing repeats. Both results have the axes of t, and belong to the innermost
// frame. If AddRMSNorm fails, both results carry the failure.
func (t Tensor) AddRMSNorm(y, weight Tensor, axis string, eps float64) (sum, norm Tensor) {
	c, failed := begin(tagged.AddRMSNorm, t, y, weight)
	if c == nil {
		return failed, failed
	}
	c.call.Params.Eps, c.call.Axis = float32(eps), axis
	return c.finishBoth()
}

// Projection is a matrix with a scale and a bias for its products.
type Projection struct {
	// Weight has the axis that is summed over and one other, that of the columns. Its dtype is
	// f32, f16, bf16 or a block format of weights, in which the axis that is summed over is
	// the last.
	Weight Tensor
	// Bias is added to the product. It is f32 with the columns' axis of Weight. The zero
	// Tensor means none.
	Bias Tensor
	// Scale multiplies the product. 0 means 1.
	Scale float64
	// BiasFirst says that Bias is added before Scale multiplies. It is the same for all biases
	// of a call.
	BiasFirst bool
	// Chunks divides the axis that is summed over into 1, 2, 4 or 8 equal chunks of whole
	// blocks; 0 means 1. The sums of the chunks are added pairwise, as they are if the chunks
	// are on several devices. It is the same for all matrices of a call.
	Chunks int
}

// Project multiplies t by up to three matrices along the axis, with their scales and biases,
// and returns the columns of all of them side by side, along the axis out. Then it adds the
// residual, unless that is the zero Tensor.
//
// t is f32 {axis and any others}. The residual and the result are f32 with the other axes of t
// and the axis out, whose size is the number of all columns. In the result, out is the last
// axis. The result has, bit for bit, the values of Dot, Scale and Add one after another.
func (t Tensor) Project(axis, out string, residual Tensor, matrices ...Projection) Tensor {
	var m [3]Projection
	copy(m[:], matrices)
	c, failed := begin(tagged.Project, t, m[0].Weight, m[1].Weight, m[2].Weight, m[0].Bias, m[1].Bias, m[2].Bias, residual)
	if c == nil {
		return failed
	}
	if n := len(matrices); n > len(m) {
		return c.refuse(&opError{fmt.Sprintf("%d matrices, want at most %d", n, len(m)), op.ErrParam})
	}
	return c.project(axis, out, m[:]...)
}

// Activation is the function of the gate of GatedProject.
type Activation = op.Activation

const (
	SiLU = op.SiLU // as in SwiGLU
	GELU = op.GELU // as in GeGLU
)

// GatedProject multiplies t by the matrices gate and up along the axis, with their scales and
// biases, and returns up * act(gate). t is f32 {axis and any others}. The result is f32 with the
// other axes of t and, last, the axis out for the columns, of which both matrices have the same
// number. Its values are, bit for bit, those of two calls of Project followed by SwiGLU or GeGLU.
func (t Tensor) GatedProject(axis, out string, gate, up Projection, act Activation) Tensor {
	c, failed := begin(tagged.GatedProject, t, gate.Weight, up.Weight, gate.Bias, up.Bias)
	if c == nil {
		return failed
	}
	c.call.Params.Act = act
	return c.project(axis, out, gate, up)
}

// project finishes the call of a product with the matrices.
func (c *Context) project(axis, out string, matrices ...Projection) Tensor {
	c.call.Axis, c.call.Axis2 = axis, out
	p := &c.call.Params
	biased := false
	for i := range matrices {
		m := &matrices[i]
		p.Scales[i] = float32(cmp.Or(m.Scale, 1))
		if i == 0 {
			p.Chunks = m.Chunks
		} else if m.Weight.h != nil && m.Chunks != p.Chunks {
			return c.refuse(&opError{fmt.Sprintf("%d chunks for one matrix and %d for another", p.Chunks, m.Chunks), op.ErrParam})
		}
		if m.Bias.h == nil {
			continue
		}
		if biased && p.BiasFirst != m.BiasFirst {
			return c.refuse(&opError{"BiasFirst of one bias and not of the other", op.ErrParam})
		}
		p.BiasFirst, biased = m.BiasFirst, true
	}
	return c.finish()
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

// SetRows writes the entries of x to t, converted as To converts: entry i goes to place
// places[i] along the axis of t. It is the inverse of Gather. Every view of t's memory sees the
// entries, and the others keep their values.
//
// x is f32 with the axes of places and the axes of t other than axis, in any order. places is
// i32 with any axes. t is f32, f16 or q8_0. With another axis in more, place p is the entry
// p/n of axis and p%n of the other, whose size is n, as in pages of n entries. If two places
// are equal, the contents of that entry are undefined.
//
// SetRows returns t, or a failed tensor. It fails with ErrUnsupportedView if the elements of an
// entry of t, in the order of t's axes, cannot be seen as one row without a copy. A place
// outside of t is an error (ErrIndexOutOfBounds), and its entry is not written; the other entries
// may be written or not. If only a device has the places, the error appears when elements of t are
// read. Two equal places are a data race on the CPU.
func (t Tensor) SetRows(x, places Tensor, axis string, more ...string) Tensor {
	c, failed := begin(tagged.SetRows, x, places, t)
	if c == nil {
		return failed
	}
	c.call.AddName(axis)
	for _, name := range more {
		c.call.AddName(name)
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
// table is f32 {posAxis PairAxis CosSinAxis}; see Engine.RoPETable and Angles. If the table
// has fewer pairs than t, the remaining elements along dimAxis are copied. The result is f32
// and has the axes of t.
func (t Tensor) RoPE(table Tensor, mode RoPEMode, posAxis, dimAxis string) Tensor {
	c, failed := begin(tagged.RoPE, t, table)
	if c == nil {
		return failed
	}
	c.call.Params.Mode, c.call.Axis, c.call.Axis2 = mode, posAxis, dimAxis
	return c.finish()
}

// AttentionOptions are the parameters of Attention, its optional operands, and the names of
// its axes.
type AttentionOptions struct {
	Scale   float64 // the factor of the products of queries and keys, usually 1/sqrt(size of a head); with 0, all keys have equal weights
	SoftCap float64 // scores become SoftCap*tanh(score/SoftCap); 0 means no cap
	Past    int     // the number of keys before the key of the first query, without Positions
	Window  int     // the number of keys that a query sees, including its own; 0 means all

	// Positions has the position of each query among the keys, i32 {Query}. The zero Tensor
	// means Past and the following ones.
	Positions Tensor
	// Sequences and Tables say where the keys are if they lie in pages. Sequences has the
	// sequence of each query, i32 {Query}, and Tables the pages of each sequence, i32
	// {Sequence Slot}: key i of a sequence is entry i%n of the page that slot i/n names, where
	// n is the size of Key. A slot that no query needs may have any value.
	Sequences Tensor
	Tables    Tensor

	Query    string // the axis of the queries; "" means "seq"
	Key      string // the axis of the keys; "" means "key"
	Head     string // the axis of the query heads; "" means "head"
	KVHead   string // the axis of the key and value heads; "" means "kv_head"
	Dim      string // the axis of the elements of a head; "" means "d"
	Page     string // the axis of the pages; "" means "page"
	Sequence string // the axis of the sequences in Tables; "" means "sequence"
	Slot     string // the axis of the pages of a sequence in Tables; "" means "slot"

	// Out, if not "", is an axis of the result that replaces Head and Dim, as if by Merge.
	Out string
}

// Attention returns the causal scaled dot-product attention of the queries q {Query Head Dim}
// over the keys k and the values v {Key KVHead Dim}, or {Page Key KVHead Dim} with Tables. The
// axes of each may have any order. q is f32; k and v are f32, f16 or q8_0. The result is f32
// {Query Head Dim}, with the Dim of v, or {Query Out}.
//
// The number of query heads is a multiple n of the number of key heads, and query head h uses
// key head h/n. A query at position p sees the keys 0 to p of its sequence, which must exist,
// or the last Window of these. A position, a sequence or a page that does not exist is an error
// (ErrIndexOutOfBounds). If only a device has the number, the error appears when the elements
// of the result are read.
func Attention(q, k, v Tensor, opt AttentionOptions) Tensor {
	c, failed := begin(tagged.Attention, q, k, v, opt.Positions, opt.Sequences, opt.Tables)
	if c == nil {
		return failed
	}
	c.call.Params = op.Params{Scale: float32(opt.Scale), SoftCap: float32(opt.SoftCap), Window: opt.Window}
	c.call.Start, c.call.Axis2 = opt.Past, opt.Out
	c.call.SetNames([]string{
		tagged.QueryAxis: cmp.Or(opt.Query, "seq"), tagged.KeyAxis: cmp.Or(opt.Key, "key"), tagged.HeadAxis: cmp.Or(opt.Head, "head"),
		tagged.KVHeadAxis: cmp.Or(opt.KVHead, "kv_head"), tagged.DimAxis: cmp.Or(opt.Dim, "d"), tagged.PageAxis: cmp.Or(opt.Page, "page"),
		tagged.SequenceAxis: cmp.Or(opt.Sequence, "sequence"), tagged.SlotAxis: cmp.Or(opt.Slot, "slot"),
	})
	return c.finish()
}

// RotateStoreOptions are the parameters of RotateStore, its optional operands, and the names
// of its axes, as in AttentionOptions.
type RotateStoreOptions struct {
	Mode RoPEMode
	// QueryNorm and KeyNorm are the weights of an RMSNorm of each query head and of each key
	// head, f32 {Dim}. The zero Tensor means no norm.
	QueryNorm Tensor
	KeyNorm   Tensor
	Eps       float64 // of the norms

	Query  string // the axis of the tokens; "" means "seq"
	Head   string // the axis of the query heads; "" means "head"
	KVHead string // the axis of the key and value heads; "" means "kv_head"
	Dim    string // the axis of the elements of a head; "" means "d"
	Page   string // the axis of the pages; "" means "page"

	// Packed, if not "", is an axis of q along which the elements of all queries, of all keys and
	// of all values lie side by side, as Project returns them. Then q is {Query Packed}, k and v
	// are the zero Tensor, and there are Heads query heads and KVHeads key heads of KeyLength
	// elements, and KVHeads value heads.
	Packed         string
	Heads, KVHeads int
	KeyLength      int
}

// RotateStore rotates the queries q {Query Head Dim} and the keys k {Query KVHead Dim}, as
// Tensor.RoPE does, writes the keys and the values v {Query KVHead Dim} to places of a cache,
// and returns the rotated queries, f32 {Query Head Dim}. With norms, the queries and the keys
// are normalised before they are rotated. The values are, bit for bit, those of RMSNorm, RoPE
// and SetRows one after another.
//
// q, k, v and the table {Query PairAxis CosSinAxis} are f32. places is i32 {Query}. The cache
// {Page and one other axis} is f32, f16 or q8_0, and usually a tensor of Engine.Empty; every
// view of its memory sees what is written. The other axis has room for n tokens, whose number
// follows from its size: n keys {KVHead Dim}, one after another, then n values {KVHead Dim}. Place
// p is token p%n of page p/n. If the other axis is called "row", these views are the keys and the
// values for Attention, where h is the number of key heads, and keys and values are the elements
// of all key heads and of all value heads of one token:
//
//	all := cache.On(c)
//	k := all.Narrow("row", 0, n*keys).Split("row", Ax("key", n), Ax("kv_head", h), Ax("d", -1))
//	v := all.Narrow("row", n*keys, n*values).Split("row", Ax("key", n), Ax("kv_head", h), Ax("d", -1))
//
// A place outside of the cache, and two equal places, have the consequences that they have in
// SetRows.
func RotateStore(q, k, v, table, places, cache Tensor, opt RotateStoreOptions) Tensor {
	o := tagged.RotateStore
	if opt.Packed != "" {
		o = tagged.RotateStorePacked
	}
	c, failed := begin(o, q, k, v, table, places, opt.QueryNorm, opt.KeyNorm, cache)
	if c == nil {
		return failed
	}
	c.call.Params = op.Params{Mode: opt.Mode, Eps: float32(opt.Eps)}
	c.call.Axis = opt.Packed
	c.call.SetAxes([]Axis{
		tagged.QueryAxis: Ax(cmp.Or(opt.Query, "seq"), 0), tagged.HeadAxis: Ax(cmp.Or(opt.Head, "head"), opt.Heads),
		tagged.KVHeadAxis: Ax(cmp.Or(opt.KVHead, "kv_head"), opt.KVHeads), tagged.DimAxis: Ax(cmp.Or(opt.Dim, "d"), opt.KeyLength),
		tagged.PageAxis: Ax(cmp.Or(opt.Page, "page"), 0),
	})
	return c.finish()
}
