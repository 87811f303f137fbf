package net

import (
	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/llm/internal/arch"
	"github.com/fucina-go/fucina/llm/internal/kv"
)

// attention is the first half of a block. Each token uses the tokens before it.
type attention struct {
	params *arch.Params

	norm    norm       // {d}
	q, k, v projection // {q d}, {k d}, {v d}
	qNorm   norm       // {d_head}
	kNorm   norm       // {d_head}
	out     projection // {d o}
	post    norm       // {d}, applied to the result

	window int // the number of tokens that a token sees, including itself; 0 means all
}

// forward returns the tensor {seq d} that the block adds to the tokens x {seq d}:
//
//	h = norm(x)
//	q, k, v = q(h), k(h), v(h), split into heads
//	post(out(softmax(rope(q) rope(K)' scale) V))
//
// K and V are the keys and values of past, followed by those of x, which forward appends to
// past.
func (a *attention) forward(x fucina.Tensor, angles Angles, past *kv.Block) fucina.Tensor {
	p := a.params
	f := x.Frame()
	h := a.norm.apply(x, "d")
	q := a.q.apply(h, "d").Move().Split("q", fucina.Ax("head", p.Heads), fucina.Ax("d_head", p.KeyLength))
	k := a.k.apply(h, "d").Move().Split("k", fucina.Ax("kv_head", p.KVHeads), fucina.Ax("d_head", p.KeyLength))
	v := a.v.apply(h.Move(), "d").Move().Split("v", fucina.Ax("kv_head", p.KVHeads), fucina.Ax("d_head", p.ValueLength))
	if !a.qNorm.isZero() {
		q = a.qNorm.apply(q.Move(), "d_head")
		k = a.kNorm.apply(k.Move(), "d_head")
	}
	turn := angles.of(a.window)
	q = q.Move().RoPE(turn, p.RoPEMode, "seq", "d_head")
	k = k.Move().RoPE(turn, p.RoPEMode, "seq", "d_head")
	keys, values := past.Append(k.Move(), v.Move())
	y := fucina.Attention(q.Move(), keys, values, fucina.AttentionOptions{
		Dim:     "d_head",
		Scale:   float64(p.AttentionScale),
		SoftCap: float64(p.AttentionSoftCap),
		Past:    past.Len(),
		Window:  a.window,
	})
	y = a.out.apply(y.Move().Merge("o", "head", "d_head").Move(), "o")
	if !a.post.isZero() {
		y = a.post.apply(y.Move(), "d")
	}
	return f.Return(y)
}
