package net

import "github.com/fucina-go/fucina"

// feedForward is the second half of a block, a gated MLP. It computes each token separately.
type feedForward struct {
	norm     norm       // {d}
	gate, up projection // {ff d}
	down     projection // {d ff}
	post     norm       // {d}, applied to the result
	gelu     bool       // the activation of the gate is GELU; otherwise it is SiLU
}

// forward returns the tensor {seq d} that the block adds to the tokens x {seq d}:
//
//	h = norm(x)
//	post(down(activation(gate(h)) * up(h)))
func (m *feedForward) forward(x fucina.Tensor) fucina.Tensor {
	f := x.Frame()
	h := m.norm.apply(x, "d")
	gate, up := m.gate.apply(h, "d"), m.up.apply(h.Move(), "d")
	var y fucina.Tensor
	if m.gelu {
		y = up.Move().GeGLU(gate.Move())
	} else {
		y = up.Move().SwiGLU(gate.Move())
	}
	y = m.down.apply(y.Move(), "ff")
	if !m.post.isZero() {
		y = m.post.apply(y.Move(), "d")
	}
	return f.Return(y)
}
