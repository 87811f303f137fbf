package net

import "github.com/fucina-go/fucina"

// feedForward is the second half of a block, a gated MLP. It computes each token separately.
type feedForward struct {
	norm       norm       // {d}
	gate, up   projection // {ff d}
	down       projection // {d ff}
	post       norm       // {d}, applied to the result
	activation fucina.Activation
}

// forward returns the tensor {seq d} that the block adds to the tokens whose norm is h {seq d}:
//
//	post(down(activation(gate(h)) * up(h)))
//
// forward ends h. The innermost frame owns h and the result.
func (m *feedForward) forward(h fucina.Tensor) fucina.Tensor {
	y := h.Move().GatedProject("d", "ff", m.gate.matrix(), m.up.matrix(), m.activation)
	y = y.Move().Project("ff", "d", fucina.Tensor{}, m.down.matrix())
	if !m.post.isZero() {
		y = m.post.apply(y.Move(), "d")
	}
	return y
}
