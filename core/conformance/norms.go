package conformance

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/fucina-go/fucina/core/conformance/reference"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
)

func rmsNorm(s *suite) {
	for _, dims := range [][]int{{1}, {5}, {1, 64}, {3, 33}, {2, 3, 128}, {53, 8}, {1, 11008}, {2, 2, 3, 17}, {2, 1, 2, 2, 1, 2, 2, 9}} {
		for _, lx := range rowLayouts {
			for _, lw := range []reference.Layout{reference.Plain, reference.Padded, reference.Spread, reference.Broadcast} {
				for _, lo := range rowOut {
					if noRow(lx, dims) {
						continue
					}
					s.try(op.RMSNorm, "f32", fmt.Sprint(dims, lx, lw, lo), func(rng *rand.Rand) op.Args {
						return reference.Args(op.Params{Eps: 1e-3}, empty(lo, dims...), f32(rng, lx, dims...), f32(rng, lw, dims[len(dims)-1]))
					})
				}
			}
		}
	}
	s.try(op.RMSNorm, "f32", "squares beyond f32", func(*rand.Rand) op.Args {
		return reference.Args(op.Params{}, empty(reference.Plain, 1, 2), reference.Of([]float32{3e30, -3e30}, 1, 2), reference.Of([]float32{1, 1}, 2))
	})
}

func softmax(s *suite) {
	for _, dims := range [][]int{{1}, {7}, {3, 40}, {2, 3, 33}, {2, 9000}, {2, 2, 3, 17}, {2, 1, 2, 2, 1, 2, 2, 9}} {
		for _, lx := range rowLayouts {
			for _, lo := range rowOut {
				if noRow(lx, dims) {
					continue
				}
				s.try(op.Softmax, "f32", fmt.Sprint(dims, lx, lo), func(rng *rand.Rand) op.Args {
					return reference.Args(op.Params{Scale: 9}, empty(lo, dims...), f32(rng, lx, dims...))
				})
			}
		}
	}
	for _, scale := range []float32{0, -3} {
		s.try(op.Softmax, "f32", fmt.Sprint("scaled by ", scale), func(rng *rand.Rand) op.Args {
			return reference.Args(op.Params{Scale: scale}, empty(reference.Plain, 3, 40), f32(rng, reference.Plain, 3, 40))
		})
	}
}

// softmaxSpecial has rows of only -Inf and rows with a NaN that a maximum would ignore. Each
// is followed by a normal row, which it must not affect.
func softmaxSpecial(s *suite) {
	for _, x := range [][]float32{
		{-inf, -inf, -inf}, {-inf, 0, -inf}, {nan, 1, 2}, {1, 2, nan}, {-inf, nan, -inf}, {1, inf, 2}, {3e38, 3e38, -3e38},
	} {
		s.try(op.Softmax, "f32", fmt.Sprint("of ", x), func(*rand.Rand) op.Args {
			return reference.Args(op.Params{Scale: 1}, empty(reference.Plain, 2, 3), reference.Of(append(x[:3:3], 1, 1, 1), 2, 3))
		})
	}
}

func argmax(s *suite) {
	for _, x := range [][]float32{
		{5}, {1, 3, 2}, {3, 1, 3}, {-inf, -inf}, {nan, 1, inf}, {1, inf, nan, nan}, {float32(math.Copysign(0, -1)), 0},
	} {
		s.try(op.Argmax, "f32", fmt.Sprint("of ", x), func(*rand.Rand) op.Args {
			return reference.Args(op.Params{}, reference.New(dtype.I32, reference.Plain, 1), reference.Of(x, len(x)))
		})
	}
	for _, dims := range [][]int{{4, 3, 101}, {2, 70000}, {2, 1, 2, 2, 1, 2, 2, 9}} {
		for _, lx := range rowLayouts {
			for _, lo := range []reference.Layout{reference.Plain, reference.Reversed, reference.Spread} {
				s.try(op.Argmax, "f32", fmt.Sprint(dims, lx, lo), func(rng *rand.Rand) op.Args {
					return reference.Args(op.Params{}, reference.New(dtype.I32, lo, dims[:len(dims)-1]...), f32(rng, lx, dims...))
				})
			}
		}
	}
}

func rope(s *suite) {
	for _, c := range []struct{ tokens, heads, d, pairs int }{{1, 1, 2, 1}, {3, 2, 64, 32}, {5, 3, 80, 16}, {2, 4, 7, 3}, {4, 1, 5, 1}} {
		for _, mode := range []op.RoPEMode{op.RoPEInterleaved, op.RoPENeoX} {
			for _, lx := range rowLayouts {
				for _, lo := range rowOut {
					s.try(op.RoPE, "f32", fmt.Sprint(c, " mode ", mode, " ", lx, lo), func(rng *rand.Rand) op.Args {
						return reference.Args(op.Params{Mode: mode}, empty(lo, c.tokens, c.heads, c.d),
							f32(rng, lx, c.tokens, c.heads, c.d), f32(rng, reference.Plain, c.tokens, c.pairs, 2))
					})
				}
			}
		}
	}
}
