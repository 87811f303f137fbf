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

// forward returns the tensor {seq d} that the block adds to the tokens whose norm is h {seq d}:
//
//	post(out(softmax(q K' scale) V))
//
// K and V are the keys and values in the cache, to which forward first adds those of h. forward
// ends h. The innermost frame owns h and the result.
func (a *attention) forward(h fucina.Tensor, in *inputs, cache *kv.Block) fucina.Tensor {
	p := a.params
	q := a.store(h, in, cache)
	y := fucina.Attention(q.Move(), cache.Keys, cache.Values, fucina.AttentionOptions{
		Dim:       "d_head",
		Scale:     float64(p.AttentionScale),
		SoftCap:   float64(p.AttentionSoftCap),
		Window:    a.window,
		Positions: in.positions,
		Sequences: in.sequences,
		Tables:    in.groups[cache.Group].tables,
		Out:       "o",
	})
	y = y.Move().Project("o", "d", fucina.Tensor{}, a.out.matrix())
	if !a.post.isZero() {
		y = a.post.apply(y.Move(), "d")
	}
	return y
}

// store writes the keys and values of h to the cache, and returns the queries {seq head d_head}:
//
//	q, k, v = q(h), k(h), v(h), split into heads
//	rope(norm(q)), rope(norm(k)), v
//
// store ends h. The innermost frame owns h and the result.
func (a *attention) store(h fucina.Tensor, in *inputs, cache *kv.Block) fucina.Tensor {
	p := a.params
	all := h.Move().Project("d", "qkv", fucina.Tensor{}, a.q.matrix(), a.k.matrix(), a.v.matrix())
	turn := in.global
	if a.window > 0 {
		turn = in.local
	}
	return fucina.RotateStore(all.Move(), fucina.Tensor{}, fucina.Tensor{}, turn, in.groups[cache.Group].places, cache.Pages, fucina.RotateStoreOptions{
		Dim:       "d_head",
		Mode:      p.RoPEMode,
		QueryNorm: a.qNorm.weight,
		KeyNorm:   a.kNorm.weight,
		Eps:       a.qNorm.epsilon,
		Packed:    "qkv",
		Heads:     p.Heads,
		KVHeads:   p.KVHeads,
		KeyLength: p.KeyLength,
	})
}
