package net

import "github.com/fucina-go/fucina"

// projection is a matrix, and what its product is multiplied by and what is added to it,
// if anything.
type projection struct {
	weight fucina.Tensor
	bias   fucina.Tensor // along the first axis of weight
	scale  float32       // 1 if there is none
	// scalesBias says that the bias is added first, and multiplied too.
	scalesBias bool
}

// apply returns x times the projection over the axis, with its scale and bias. The result
// belongs to the innermost frame.
func (p *projection) apply(x fucina.Tensor, axis string) fucina.Tensor {
	y := x.Dot(p.weight, axis)
	if p.scale != 1 && !p.scalesBias {
		y = y.Move().Scale(float64(p.scale))
	}
	if !p.bias.IsZero() {
		y = y.Move().Add(p.bias)
	}
	if p.scale != 1 && p.scalesBias {
		y = y.Move().Scale(float64(p.scale))
	}
	return y
}

// norm is an RMS norm. It is zero if the family does not have it.
type norm struct {
	weight  fucina.Tensor
	epsilon float64
}

func (n norm) isZero() bool { return n.weight.IsZero() }

// apply returns the norm of x over the axis. The result belongs to the innermost frame.
func (n norm) apply(x fucina.Tensor, axis string) fucina.Tensor {
	return x.RMSNorm(n.weight, axis, n.epsilon)
}
