package conformance

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/fucina-go/fucina/core/conformance/reference"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
)

func getRows(s *suite) {
	roles := op.GetRows.Inputs()
	for _, d := range roles[0].Formats.List() {
		for _, id := range roles[1].Formats.List() {
			for _, l := range rowLayouts {
				for _, lo := range rowOut {
					s.try(op.GetRows, d.String(), fmt.Sprint("by ", id, " ", l, lo), func(rng *rand.Rand) op.Args {
						n := 2 * d.BlockSize()
						return reference.Args(op.Params{}, empty(lo, 5, n),
							reference.Random(reference.New(d, l, 6, n), rng), reference.Ints(id, 5, 0, 2, 2, 5))
					})
				}
			}
		}
	}
}

func setRows(s *suite) {
	for _, d := range op.SetRows.Outputs()[0].Formats.List() {
		for i, c := range []struct {
			tokens, blocks int
			to             []int // axes of the destination before the last
		}{
			{1, 1, []int{1}}, {1, 3, []int{7}}, {5, 2, []int{5}}, {3, 2, []int{4, 32}}, {40, 1, []int{9, 5}}, {2, 300, []int{3}}, {2, 5, []int{1, 4}}, {70, 2, []int{80, 1}},
		} {
			for _, lo := range []reference.Layout{reference.Plain, reference.Padded} {
				l := rowLayouts[(i+int(lo))%len(rowLayouts)]
				s.try(op.SetRows, d.String(), fmt.Sprint(c, l, lo), func(rng *rand.Rand) op.Args {
					n, limit := c.blocks*wholeBlocks(d, 3, 32), 1
					for _, r := range c.to {
						limit *= r
					}
					out := reference.Random(reference.New(d, lo, append(c.to[:len(c.to):len(c.to)], n)...), rng)
					return reference.Args(op.Params{}, out, f32(rng, l, c.tokens, n), places(rng, c.tokens, limit))
				})
			}
		}
		// The parts of the destination are nearer to each other than its rows.
		s.try(op.SetRows, d.String(), "parts within rows", func(rng *rand.Rand) op.Args {
			const n, parts, rows = 64, 3, 4
			all := reference.Random(reference.New(d, reference.Plain, rows, parts*n), rng)
			step := n / d.BlockSize()
			return reference.Args(op.Params{}, reference.View(all, 0, []int{parts, rows, n}, []int{step, parts * step, 1}),
				f32(rng, reference.Plain, 5, n), places(rng, 5, parts*rows))
		})
	}
	// Numbers that the destination cannot represent.
	x := []float32{nan, math.Float32frombits(0x7f800001), inf, -inf, 0x1p-24, 0x1.000002p-25, 0x1p-25, 65504, 65519, 65520, -1e6, 1e-9}
	for _, d := range op.SetRows.Outputs()[0].Formats.List() {
		s.try(op.SetRows, d.String(), "special numbers", func(rng *rand.Rand) op.Args {
			row := make([]float32, 32*len(x))
			for i, v := range x {
				row[32*i+i], row[32*i+31] = v, 1
			}
			return reference.Args(op.Params{}, reference.Random(reference.New(d, reference.Plain, 3, len(row)), rng), reference.Of(row, 1, len(row)), reference.Ints(dtype.I32, 1))
		})
	}
}

// wholeBlocks returns scalar for a scalar dtype, and at least n elements of whole blocks for
// another.
func wholeBlocks(d dtype.DType, scalar, n int) int {
	if d.IsBlockQuantized() {
		return max(n, d.BlockSize())
	}
	return scalar
}
