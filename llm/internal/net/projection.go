package net

import "github.com/fucina-go/fucina"

// projection is a matrix with an optional scale and an optional bias for its products.
type projection struct {
	weight fucina.Tensor
	bias   fucina.Tensor // along the first axis of weight; zero if there is no bias
	scale  float32       // 1 if there is no scale
	// biasFirst says that the bias is added before the scale is applied.
	biasFirst bool
	// chunks is the number of chunks of the sums of the product.
	chunks int
}

// matrix returns p as an operand of a product.
func (p *projection) matrix() fucina.Projection {
	return fucina.Projection{Weight: p.weight, Bias: p.bias, Scale: float64(p.scale), BiasFirst: p.biasFirst, Chunks: p.chunks}
}

// norm is an RMS norm. Its weight is the zero Tensor if the family does not have the norm.
type norm struct {
	weight  fucina.Tensor
	epsilon float64
}

func (n norm) isZero() bool { return n.weight.IsZero() }

// apply returns x, normalised along the axis. The innermost frame owns the result.
func (n norm) apply(x fucina.Tensor, axis string) fucina.Tensor {
	return x.RMSNorm(n.weight, axis, n.epsilon)
}
