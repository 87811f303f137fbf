package net

import (
	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/llm/internal/arch"
)

// Angles are tables of the rotation of queries and keys, with a cosine and a sine for each
// position and rotated pair.
type Angles struct {
	global fucina.Tensor // {pos pair cos_sin}, for the blocks that see all tokens
	local  fucina.Tensor // {pos pair cos_sin}, for the blocks with a window; zero if there are none
}

// NewAngles returns the angles for a sequence of at most the given number of tokens. With
// LongRoPE, the angles depend on this number. The caller releases them.
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

// Release releases the tables.
func (a Angles) Release() {
	a.global.Release()
	a.local.Release()
}

// at returns the angles of the n tokens from position past on, with the axis "seq" in place of
// "pos". The innermost frame of c owns them.
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

// of returns the angles for a block with the given window; 0 means that it sees all tokens.
func (a Angles) of(window int) fucina.Tensor {
	if window > 0 {
		return a.local
	}
	return a.global
}
