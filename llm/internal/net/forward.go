package net

import (
	"github.com/fucina-go/fucina"
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

// Release releases the weights. The network must not be used afterwards.
func (n *Network) Release() {
	for _, t := range n.weights {
		t.Release()
	}
}

// Forward runs the tokens ids, which follow the tokens in cache, through all blocks. It
// returns the output of the last block, {seq d}, which the innermost frame of c owns. ids are
// rows of the embedding. cache and angles belong to the sequence and have room for the tokens.
//
// Forward writes the keys and values of the tokens into the cache, after the tokens that the
// cache counts. The caller counts the new ones with kv.Cache.Advance. If Forward fails, the
// next call overwrites what it has written.
func (n *Network) Forward(c *fucina.Context, ids []int32, cache *kv.Cache, angles Angles) fucina.Tensor {
	f := c.Frame()
	x := n.embedding.On(c).Gather(fucina.FromSlice(c, ids, fucina.Ax("seq", len(ids))), "vocab")
	if scale := n.params.EmbeddingScale; scale != 0 {
		x = x.Move().Scale(float64(scale))
	}
	angles = angles.at(c, cache.Len(), len(ids))
	for i := range n.blocks {
		x = n.blocks[i].forward(x, angles, cache.Block(i))
		if !x.Valid() {
			break
		}
	}
	return f.Return(x)
}

// forward returns x {seq d} plus the results of attention and of the MLP. It ends x. The
// innermost frame owns x and the result.
func (b *block) forward(x fucina.Tensor, angles Angles, past *kv.Block) fucina.Tensor {
	y := b.attention.forward(x, angles, past)
	x = x.Move().Add(y.Move())
	y = b.feedForward.forward(x)
	return x.Move().Add(y.Move())
}

// Logits returns the scores {seq vocab} of the tokens that may follow each row of x {seq d}.
// x has rows of a result of Forward. The innermost frame of x's context owns the result.
func (n *Network) Logits(x fucina.Tensor) fucina.Tensor {
	f := x.Frame()
	y := n.output.apply(n.norm.apply(x, "d").Move(), "d")
	if limit := n.params.FinalSoftCap; limit != 0 {
		y = y.Move().SoftCap(float64(limit))
	}
	return f.Return(y)
}
