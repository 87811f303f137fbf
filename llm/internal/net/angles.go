package net

import (
	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/llm/internal/arch"
)

// Angles are what queries and keys are rotated by: a sine and a cosine for each position
// and rotated pair.
type Angles struct {
	global fucina.Tensor // {pos pair cos_sin}, of the blocks that see all tokens
	local  fucina.Tensor // {pos pair cos_sin}, of those with a window; zero if there are none
}

// NewAngles returns the angles of a sequence of up to the given number of tokens, which
// the caller releases. Which angles a network has may depend on that number.
func (n *Network) NewAngles(eng *fucina.Engine, tokens int) (Angles, error) {
	global, err := eng.RoPETable(arch.Stretched(&n.params, tokens), tokens, "pos")
	if err != nil || n.params.Window == 0 {
		return Angles{global: global}, err
	}
	local, err := eng.RoPETable(n.params.LocalRoPE, tokens, "pos")
	if err != nil {
		global.Release()
		return Angles{}, err
	}
	return Angles{global, local}, nil
}

// Release gives the memory back.
func (a Angles) Release() {
	a.global.Release()
	a.local.Release()
}

// at returns the angles of n tokens behind past others, with the axis "seq" in the place
// of "pos". They belong to the innermost frame of c.
func (a Angles) at(c *fucina.Context, past, n int) Angles {
	a.global = rows(c, a.global, past, n)
	if !a.local.IsZero() {
		a.local = rows(c, a.local, past, n)
	}
	return a
}

func rows(c *fucina.Context, table fucina.Tensor, past, n int) fucina.Tensor {
	f := c.Frame()
	return f.Return(table.On(c).Narrow("pos", past, n).Rename("pos", "seq"))
}

// of returns the angles of a block that sees window tokens, or all if window is 0.
func (a Angles) of(window int) fucina.Tensor {
	if window > 0 {
		return a.local
	}
	return a.global
}
