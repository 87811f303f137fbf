package net

import (
	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/llm/internal/arch"
)

// Angles compute the rotation of queries and keys by their positions. They are immutable.
type Angles struct {
	global *fucina.Angles // for the blocks that see all tokens
	local  *fucina.Angles // for the blocks with a window; nil if there are none
}

// NewAngles returns the angles for a sequence of at most the given number of tokens. With
// LongRoPE, the angles depend on this number: the keys of sequences are comparable only if their
// variants are equal.
func (n *Network) NewAngles(tokens int) (a *Angles, variant string, err error) {
	r := arch.Stretched(&n.params, tokens)
	if len(r.FreqFactors) > 0 && &r.FreqFactors[0] != &n.params.RoPE.FreqFactors[0] {
		variant = "long"
	}
	a = &Angles{}
	if a.global, err = fucina.NewAngles(r, tokens); err == nil && n.params.Window > 0 {
		a.local, err = fucina.NewAngles(n.params.LocalRoPE, tokens)
	}
	return a, variant, err
}
