package conformance

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/fucina-go/fucina/core/conformance/reference"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
)

// copyScalars has every pair of scalar dtypes.
func copyScalars(s *suite) {
	for _, from := range dtype.All() {
		for _, to := range dtype.All() {
			if !from.IsScalar() || !to.IsScalar() {
				continue
			}
			for _, lx := range []reference.Layout{reference.Plain, reference.Reversed, reference.Broadcast} {
				for _, lo := range []reference.Layout{reference.Plain, reference.Spread} {
					s.try(op.Copy, copyFormats(from, to), fmt.Sprint(lx, " ", lo), func(rng *rand.Rand) op.Args {
						return reference.Args(op.Params{}, reference.New(to, lo, 2, 3, 91), reference.Random(reference.New(from, lx, 2, 3, 91), rng))
					})
				}
			}
		}
	}
	for _, dims := range [][]int{{1}, {1, 1}, {5}, {9001}, {2, 1, 5000}, {7, 1, 3}, {2, 2, 2, 2, 2, 2, 2, 3}} {
		for _, to := range []dtype.DType{dtype.F32, dtype.F16} {
			s.try(op.Copy, copyFormats(dtype.F16, to), fmt.Sprint(dims), func(rng *rand.Rand) op.Args {
				return reference.Args(op.Params{}, reference.New(to, reference.Padded, dims...), reference.Random(reference.New(dtype.F16, reference.Reversed, dims...), rng))
			})
		}
	}
}

func copyFormats(from, to dtype.DType) string { return fmt.Sprintf("%s to %s", from, to) }

// copyBlocks has the conversions to and from block formats, in the layouts that each accepts.
func copyBlocks(s *suite) {
	for _, d := range dtype.All() {
		if !d.IsBlockQuantized() {
			continue
		}
		n := 3 * d.BlockSize()
		for _, lx := range freeLayouts {
			for _, lo := range []reference.Layout{reference.Plain, reference.Padded, reference.Reversed} {
				s.try(op.Copy, copyFormats(d, dtype.F32), fmt.Sprint(lx, " ", lo), func(rng *rand.Rand) op.Args {
					return reference.Args(op.Params{}, empty(lo, 4, n), reference.Random(reference.New(d, lx, 4, n), rng))
				})
			}
		}
		s.try(op.Copy, copyFormats(d, d), "", func(rng *rand.Rand) op.Args {
			return reference.Args(op.Params{}, reference.New(d, reference.Plain, 4, n), reference.Random(reference.New(d, reference.Plain, 4, n), rng))
		})
	}
	for _, dims := range [][]int{{32}, {3, 64}, {5, 2, 96}} {
		for _, lx := range rowLayouts {
			for _, lo := range rowOut {
				if noRow(lx, dims) {
					continue
				}
				s.try(op.Copy, copyFormats(dtype.F32, dtype.Q8_0), fmt.Sprint(dims, lx, lo), func(rng *rand.Rand) op.Args {
					return reference.Args(op.Params{}, reference.New(dtype.Q8_0, lo, dims...), f32(rng, lx, dims...))
				})
			}
		}
	}
}

// copySpecial has numbers that the target format cannot represent: NaN and infinities as
// integers, values that f16 rounds or overflows, and values that a block of q8_0 cannot
// hold.
func copySpecial(s *suite) {
	x := []float32{
		nan, math.Float32frombits(0x7f800001), inf, -inf, -1, 1.9, -1.9, 0x1p-24, 0x1.000002p-25, 0x1p-25, 65504, 65519, 65520, -1e6, 1e-9, 3e9,
	}
	for _, to := range dtype.All() {
		if !to.IsScalar() {
			continue
		}
		for _, l := range []reference.Layout{reference.Plain, reference.Spread} {
			s.try(op.Copy, copyFormats(dtype.F32, to), fmt.Sprint("special ", l), func(*rand.Rand) op.Args {
				return reference.Args(op.Params{}, reference.New(to, l, len(x)), reference.Of(x, len(x)))
			})
		}
	}
	for _, bad := range []float32{nan, inf, -inf, 65536 * 127} {
		s.try(op.Copy, copyFormats(dtype.F32, dtype.Q8_0), fmt.Sprint("with ", bad), func(*rand.Rand) op.Args {
			x := make([]float32, 64)
			x[3], x[40] = bad, 127
			return reference.Args(op.Params{}, reference.New(dtype.Q8_0, reference.Plain, 64), reference.Of(x, 64))
		})
	}
}
