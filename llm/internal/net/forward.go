package net

import (
	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/llm/internal/arch"
	"github.com/fucina-go/fucina/llm/internal/kv"
)

// Network has the weights of a transformer. It is immutable, and goroutines may share it.
type Network struct {
	params    arch.Params
	embedding fucina.Tensor // {vocab d}
	blocks    []block
	norm      norm       // {d}
	output    projection // {vocab d}; its weight is the embedding if the file has no output matrix

	weights []fucina.Tensor // all weights, for Release
}

// block is a transformer block.
type block struct {
	attention   attention
	feedForward feedForward
}

// Params returns the dimensions of the network. The caller must not change them.
func (n *Network) Params() *arch.Params { return &n.params }

// CacheShape returns the shape of a cache for n, without the number of pages.
func (n *Network) CacheShape(format dtype.DType) kv.Shape { return CacheShape(&n.params, format) }

// CacheShape returns the shape of a cache for a network with the dimensions p, without the number
// of pages.
func CacheShape(p *arch.Params, format dtype.DType) kv.Shape {
	s := kv.Shape{Format: format, Heads: p.KVHeads, KeyLength: p.KeyLength, ValueLength: p.ValueLength}
	for i := range p.Layers {
		s.Windows = append(s.Windows, window(p, i))
	}
	return s
}

// window returns the number of tokens that a token sees in block i; 0 means all.
func window(p *arch.Params, i int) int {
	if p.Local(i) {
		return p.Window
	}
	return 0
}

// Release releases the weights. The network must not be used afterwards.
func (n *Network) Release() {
	for _, t := range n.weights {
		t.Release()
	}
}

// Forward runs the tokens of a step through all blocks. It returns the norm {seq d} of the last
// block's output, in the order of the step. The innermost frame of c owns it.
//
// Forward writes the keys and values of the tokens to their places in the cache. If it fails,
// these places have undefined contents.
func (n *Network) Forward(c *fucina.Context, step *Step, cache *kv.Cache) fucina.Tensor {
	f := c.Frame()
	in, err := step.open(c, n, cache)
	if err != nil {
		return f.Return(c.Fail(err))
	}
	c.SetGenerated(step.Generated)
	x := n.embedding.On(c).Gather(in.ids, "vocab")
	if scale := n.params.EmbeddingScale; scale != 0 {
		x = x.Move().Scale(float64(scale))
	}
	h := n.blocks[0].attention.norm.apply(x, "d")
	for i := range n.blocks {
		next := n.norm
		if i+1 < len(n.blocks) {
			next = n.blocks[i+1].attention.norm
		}
		x, h = n.blocks[i].forward(x, h, next, &in, cache.Block(i))
		if !h.Valid() {
			break
		}
	}
	return f.Return(h)
}

// forward returns x {seq d} plus the results of attention and of the MLP, and the norm next of
// that sum. h is the block's first norm of x. forward ends x and h. The innermost frame owns
// them and the results.
func (b *block) forward(x, h fucina.Tensor, next norm, in *inputs, cache *kv.Block) (sum, normed fucina.Tensor) {
	x, h = b.feedForward.norm.ofSum(x, b.attention.forward(h, in, cache))
	return next.ofSum(x, b.feedForward.forward(h))
}

// ofSum returns x + y and its norm. It ends x and y.
func (n norm) ofSum(x, y fucina.Tensor) (sum, normed fucina.Tensor) {
	return x.Move().AddRMSNorm(y.Move(), n.weight, "d", n.epsilon)
}

// Logits returns the scores {seq vocab} of the tokens that may follow each row of h {seq d},
// which has rows of a result of Forward. The innermost frame of h's context owns the result.
func (n *Network) Logits(h fucina.Tensor) fucina.Tensor {
	f := h.Frame()
	y := h.Project("d", "vocab", fucina.Tensor{}, n.output.matrix())
	if limit := n.params.FinalSoftCap; limit != 0 {
		y = y.Move().SoftCap(float64(limit))
	}
	return f.Return(y)
}
