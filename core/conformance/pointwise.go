package conformance

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/fucina-go/fucina/core/conformance/reference"
	"github.com/fucina-go/fucina/core/op"
)

func pointwise(s *suite) {
	for id := range op.Count {
		if reference.Pointwise[id].F == nil {
			continue
		}
		second := []reference.Layout{reference.Plain, reference.Broadcast}
		if len(id.Inputs()) == 1 {
			second = second[:1]
		}
		for _, dims := range [][]int{{1}, {7}, {3, 5}, {2, 3, 33}, {1, 1, 1, 9}, {2, 1, 3, 4}, {2, 2, 2, 2, 2, 2, 2, 3}, {2, 4099}, {9000}} {
			for _, lx := range freeLayouts {
				for _, ly := range second {
					for _, lo := range outLayouts {
						if dims[len(dims)-1] > 4096 && lx != lo {
							continue // checking long rows is slow
						}
						s.try(id, "f32", fmt.Sprint(dims, lx, ly, lo), func(rng *rand.Rand) op.Args {
							a := reference.Args(op.Params{Scale: 1.5, SoftCap: 0.75}, empty(lo, dims...), f32(rng, lx, dims...))
							if len(id.Inputs()) > 1 {
								a.In[1], a.NIn = f32(rng, ly, dims...), 2
							}
							return a
						})
					}
				}
			}
		}
	}
}

// pointwiseSpecial has all pairs of NaN, infinities, zeros of both signs and finite numbers.
func pointwiseSpecial(s *suite) {
	special := []float32{nan, inf, -inf, 0, float32(math.Copysign(0, -1)), 1, -2}
	var x, y []float32
	for _, a := range special {
		for _, b := range special {
			x, y = append(x, a), append(y, b)
		}
	}
	for id := range op.Count {
		if reference.Pointwise[id].F == nil {
			continue
		}
		s.try(id, "f32", "special numbers", func(*rand.Rand) op.Args {
			a := reference.Args(op.Params{Scale: 1.5, SoftCap: 0.75}, empty(reference.Plain, len(x)), reference.Of(x, len(x)))
			if len(id.Inputs()) > 1 {
				a.In[1], a.NIn = reference.Of(y, len(y)), 2
			}
			return a
		})
	}
}
