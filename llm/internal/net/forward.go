package net

import (
	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/llm/internal/arch"
	"github.com/fucina-go/fucina/llm/internal/kv"
)

// Network is the weights of a transformer. It is immutable and may be shared by
// goroutines.
type Network struct {
	params    arch.Params
	embedding fucina.Tensor // {vocab d}
	blocks    []block
	norm      norm       // {d}
	output    projection // {vocab d}; of the embedding itself where they are tied

	weights []fucina.Tensor // all of them, for Release
}

// block is a transformer block.
type block struct {
	attention   attention
	feedForward feedForward
}

// Params returns the network's dimensions, which the caller must not change.
func (n *Network) Params() *arch.Params { return &n.params }

// Release gives the weights back. Nothing may use the network any more.
func (n *Network) Release() {
	for _, t := range n.weights {
		t.Release()
	}
}

// Forward runs tokens through all blocks, behind those that cache holds, and returns what
// comes out of the last block, {seq d}, in the innermost frame of c. ids are rows of the
// embedding. cache and angles are the sequence's and have room for the tokens.
//
// The keys and values of the tokens then lie in the cache, behind those that it counts: the
// caller counts them (kv.Cache.Advance). What Forward leaves there when it fails is
// overwritten by the next call.
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

// forward returns x {seq d} with what the two halves add to it. It ends x, and the result
// belongs to the innermost frame as x did.
func (b *block) forward(x fucina.Tensor, angles Angles, past *kv.Block) fucina.Tensor {
	y := b.attention.forward(x, angles, past)
	x = x.Move().Add(y.Move())
	y = b.feedForward.forward(x)
	return x.Move().Add(y.Move())
}

// Logits returns the scores {seq vocab} of what follows each of x {seq d}, which are rows
// of what Forward returns. The result belongs to the innermost frame of x's context.
func (n *Network) Logits(x fucina.Tensor) fucina.Tensor {
	f := x.Frame()
	y := n.output.apply(n.norm.apply(x, "d").Move(), "d")
	if limit := n.params.FinalSoftCap; limit != 0 {
		y = y.Move().SoftCap(float64(limit))
	}
	return f.Return(y)
}
