package conformance

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/fucina-go/fucina/core/conformance/reference"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
)

// groups has the function that runs the cases of each group of operations.
var groups = []func(s *suite){
	pointwise, pointwiseSpecial, rmsNorm, softmax, softmaxSpecial, argmax, rope, getRows, rowNumbers,
	copyScalars, copyBlocks, copySpecial, matMul, matMulRanks, matMulRange, attention, attentionQuantized, attentionSpecial,
	rowsAlone, tokensAlone,
}

// The layouts that roles accept.
var (
	freeLayouts = []reference.Layout{reference.Plain, reference.Padded, reference.Reversed, reference.Broadcast, reference.Spread}
	rowLayouts  = []reference.Layout{reference.Plain, reference.Padded, reference.Broadcast}
	outLayouts  = []reference.Layout{reference.Plain, reference.Padded, reference.Spread}
	rowOut      = []reference.Layout{reference.Plain, reference.Padded}
)

var (
	inf = float32(math.Inf(1))
	nan = float32(math.NaN())
)

// f32 returns a random operand.
func f32(rng *rand.Rand, l reference.Layout, dims ...int) op.Operand {
	return reference.Random(reference.New(dtype.F32, l, dims...), rng)
}

// empty returns an operand to be written.
func empty(l reference.Layout, dims ...int) op.Operand { return reference.New(dtype.F32, l, dims...) }

// noRow reports whether all elements of a vector are the same memory in the layout. A role
// that needs rows refuses it.
func noRow(l reference.Layout, dims []int) bool {
	return l == reference.Broadcast && len(dims) == 1 && dims[0] > 1
}

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

// rowNumbers has gathers with a status word. Row numbers outside the table are clamped, and
// the first of them is reported. A provider in host memory refuses them if there is no
// status word.
func rowNumbers(s *suite) {
	many := make([]int64, 200)
	for i := 60; i < len(many); i++ {
		many[i] = int64(i)
	}
	for _, c := range []struct {
		name  string
		d     dtype.DType
		ids   []int64
		index int // index of the first wrong row number, or -1
		value int64
	}{
		{"all good", dtype.I32, []int64{0, 3, 1}, -1, 0},
		{"all good", dtype.U16, []int64{3, 0}, -1, 0},
		{"one past the end", dtype.I32, []int64{0, 4, 3}, 1, 4},
		{"negative", dtype.I32, []int64{-1, 2}, 0, -1},
		{"several", dtype.I32, []int64{1, 2, -7, 99, 0, -7}, 2, -7},
		{"many", dtype.I32, many, 60, 60},
		{"extreme", dtype.I32, []int64{math.MinInt32, math.MaxInt32}, 0, math.MinInt32},
		{"largest", dtype.U16, []int64{2, math.MaxUint16}, 1, math.MaxUint16},
		{"many", dtype.U16, many, 60, 60},
		{"one past the end", dtype.I64, []int64{3, 4}, 1, 4},
		{"beyond 32 bits", dtype.I64, []int64{0, 1<<32 + 1}, 1, math.MaxInt32},
		{"far below", dtype.I64, []int64{math.MinInt64, 2}, 0, math.MinInt32},
		{"many", dtype.I64, many, 60, 60},
	} {
		s.tryWith(op.GetRows, "f32", fmt.Sprint("row numbers of ", c.d, " ", c.name, len(c.ids)), func(rng *rand.Rand) error {
			a := reference.Args(op.Params{}, empty(reference.Padded, len(c.ids), 3), f32(rng, reference.Plain, 4, 3), reference.Ints(c.d, c.ids...))
			a.Status = &s.b.words[0]
			a.Status.Store(0)
			if err := s.b.check(op.GetRows, &a, 0, s.digest, true); err != nil {
				return err
			}
			status := a.Status.Load()
			switch index, value := op.Reported(status); {
			case c.index < 0 && status != 0:
				return fmt.Errorf("row %d is reported for position %d, but all row numbers are valid", value, index)
			case c.index >= 0 && status == 0:
				return fmt.Errorf("nothing is reported, want row %d at position %d", c.value, c.index)
			case c.index >= 0 && (index != c.index || value != c.value):
				return fmt.Errorf("row %d is reported for position %d, want %d for %d", value, index, c.value, c.index)
			}
			if a.Status = nil; c.index < 0 || s.b.dev != nil {
				return nil
			}
			return s.b.refused(op.GetRows, &a)
		})
	}
}

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

func matMul(s *suite) {
	for _, d := range op.MatMul.Inputs()[1].Formats.List() {
		layouts := rowLayouts
		if d.IsScalar() {
			layouts = freeLayouts
		}
		for _, c := range []struct{ b, m, n, blocks int }{
			{1, 1, 1, 1}, {1, 1, 9, 3}, {1, 3, 6, 2}, {2, 3, 7, 1}, {1, 70, 2, 1}, {2, 66, 2, 1}, {1, 2, 3, 12}, {1, 1, 5, 128},
		} {
			k := c.blocks * d.BlockSize()
			switch {
			case d.IsScalar():
				k = 37*c.blocks + c.m%2
			case c.blocks > 12:
				k = 4096
			}
			for _, l := range layouts {
				for _, batched := range []bool{false, true} {
					if batched != (c.b > 1) && l != reference.Plain {
						continue
					}
					s.try(op.MatMul, d.String(), fmt.Sprint(c.b, " x ", c.m, " x ", c.n, " x ", k, " ", l, " batched ", batched), func(rng *rand.Rand) op.Args {
						w := []int{c.b, c.n, k}
						if !batched {
							w = w[1:]
						}
						return reference.Args(op.Params{}, empty(reference.Padded, c.b, c.m, c.n),
							f32(rng, reference.Padded, c.b, c.m, k), reference.Random(reference.New(d, l, w...), rng))
					})
				}
			}
		}
	}
}

// matMulRanks has the ranks of an input without a batch that matMul lacks.
func matMulRanks(s *suite) {
	for _, d := range op.MatMul.Inputs()[1].Formats.List() {
		k := max(75, d.BlockSize())
		if d.IsBlockQuantized() {
			k = max(64, d.BlockSize()) // so that rows are whole blocks
		}
		for _, outer := range [][]int{{}, {5}, {2, 1, 2, 3}, {2, 1, 1, 2, 1, 1, 3}} {
			for _, l := range rowOut {
				s.try(op.MatMul, d.String(), fmt.Sprint(outer, " x ", 4, " x ", k, l), func(rng *rand.Rand) op.Args {
					return reference.Args(op.Params{}, empty(l, append(outer[:len(outer):len(outer)], 4)...),
						f32(rng, l, append(outer[:len(outer):len(outer)], k)...), reference.Random(reference.New(d, reference.Plain, 4, k), rng))
				})
			}
		}
	}
}

// matMulRange has magnitudes outside the range of f16: above 65504 and below its subnormals.
func matMulRange(s *suite) {
	for _, d := range op.MatMul.Inputs()[1].Formats.List() {
		for _, scale := range []float32{1e6, 1e-9} {
			s.try(op.MatMul, d.String(), fmt.Sprint("at ", scale), func(rng *rand.Rand) op.Args {
				k := max(d.BlockSize(), 32)
				x := make([]float32, k)
				for i := range x {
					x[i] = (rng.Float32()*2 - 1) * scale
				}
				return reference.Args(op.Params{}, empty(reference.Plain, 1, 2), reference.Of(x, 1, k), reference.Random(reference.New(d, reference.Plain, 2, k), rng))
			})
		}
	}
}

type attentionCase struct {
	t, s, heads, kvHeads, d, dv, past, window int
	softCap                                   float32
}

func (c attentionCase) params(scale float64) op.Params {
	return op.Params{Scale: float32(scale), SoftCap: c.softCap, Past: c.past, Window: c.window}
}

func attention(s *suite) {
	caches := op.Attention.Inputs()[1].Formats.List()
	for _, c := range []attentionCase{
		{t: 1, s: 1, heads: 1, kvHeads: 1, d: 1, dv: 1},
		{t: 1, s: 200, heads: 4, kvHeads: 2, d: 64, dv: 64, past: 199},
		{t: 1, s: 200, heads: 3, kvHeads: 3, d: 33, dv: 17, past: 150},
		{t: 7, s: 7, heads: 6, kvHeads: 2, d: 8, dv: 8},
		{t: 21, s: 150, heads: 4, kvHeads: 1, d: 16, dv: 24, past: 100},
		{t: 20, s: 200, heads: 2, kvHeads: 2, d: 16, dv: 16, past: 130, window: 50},
		{t: 100, s: 100, heads: 2, kvHeads: 1, d: 4, dv: 4, window: 64},
		{t: 3, s: 90, heads: 3, kvHeads: 1, d: 8, dv: 8, past: 80, window: 1},
		{t: 3, s: 90, heads: 3, kvHeads: 1, d: 8, dv: 8, past: 80, softCap: 2},
		{t: 2, s: 1500, heads: 20, kvHeads: 1, d: 4, dv: 4, past: 1498},
	} {
		for _, kd := range caches {
			for _, vd := range caches {
				for _, l := range rowLayouts {
					if (kd != vd || c.s > 1000) && l != reference.Padded || c.d%kd.BlockSize() != 0 || c.dv%vd.BlockSize() != 0 {
						continue // rows must be whole blocks
					}
					if vd.IsBlockQuantized() && l == reference.Broadcast {
						continue // if all keys share one random block, the results are close to 0
					}
					s.try(op.Attention, fmt.Sprint(kd, " and ", vd), fmt.Sprint(c, l), func(rng *rand.Rand) op.Args {
						return reference.Args(c.params(3), empty(reference.Padded, c.t, c.heads, c.dv), f32(rng, reference.Padded, c.t, c.heads, c.d),
							reference.Random(reference.New(kd, l, c.s, c.kvHeads, c.d), rng), reference.Random(reference.New(vd, l, c.s, c.kvHeads, c.dv), rng))
					})
				}
			}
		}
	}
}

// attentionQuantized has keys and values of unit scale, so that no key has a negligible
// weight.
func attentionQuantized(s *suite) {
	for _, c := range []attentionCase{
		{t: 1, s: 100, heads: 1, kvHeads: 1, d: 32, dv: 32, past: 99},
		{t: 9, s: 150, heads: 4, kvHeads: 2, d: 32, dv: 32, past: 130},
		{t: 5, s: 70, heads: 6, kvHeads: 2, d: 32, dv: 96, past: 65},
		{t: 21, s: 200, heads: 6, kvHeads: 2, d: 64, dv: 64, past: 130, window: 50},
		{t: 7, s: 90, heads: 3, kvHeads: 3, d: 64, dv: 32, past: 80, softCap: 2},
		{t: 5, s: 140, heads: 4, kvHeads: 1, d: 128, dv: 128, past: 130, window: 70, softCap: 3},
		{t: 33, s: 33, heads: 8, kvHeads: 2, d: 128, dv: 64},
	} {
		for _, l := range rowOut {
			s.try(op.Attention, "q8_0 and q8_0", fmt.Sprint("of unit scale ", c, l), func(rng *rand.Rand) op.Args {
				return reference.Args(c.params(8/math.Sqrt(float64(c.d))), empty(reference.Padded, c.t, c.heads, c.dv), f32(rng, reference.Padded, c.t, c.heads, c.d),
					reference.Encoded(reference.New(dtype.Q8_0, l, c.s, c.kvHeads, c.d), rng), reference.Encoded(reference.New(dtype.Q8_0, l, c.s, c.kvHeads, c.dv), rng))
			})
		}
	}
}

// attentionSpecial has one key and value that differ from all others, some with NaN or -Inf.
// A key that the row does not see has no effect. A NaN that it sees makes the result NaN, as
// in a plain softmax.
func attentionSpecial(s *suite) {
	const keys = 130
	for _, c := range []struct {
		name string
		at   int // index of the special key
		k, v float32
		all  float32 // value of all other keys
	}{
		{"a NaN that is not seen", 129, nan, nan, 1},
		{"a NaN that is seen", 3, nan, 1, 1},
		{"a NaN that is seen last", 128, nan, 1, 1},
		{"-Inf everywhere else", 100, 1, 7, -inf},
		{"-Inf everywhere", 129, 1, 7, -inf},
		{"a NaN among -Inf", 70, nan, 7, -inf},
		{"a -Inf", 5, -inf, 9, 1},
	} {
		s.try(op.Attention, "f32 and f32", c.name, func(*rand.Rand) op.Args {
			k, v := make([]float32, keys), make([]float32, keys)
			for i := range k {
				k[i], v[i] = c.all, 1
			}
			k[c.at], v[c.at] = c.k, c.v
			return reference.Args(op.Params{Scale: 1, Past: 128}, empty(reference.Plain, 1, 1, 1),
				reference.Of([]float32{1}, 1, 1, 1), reference.Of(k, keys, 1, 1), reference.Of(v, keys, 1, 1))
		})
	}
}

// rowsAlone has matrix products in which every row is also computed alone, with the same
// bits.
func rowsAlone(s *suite) {
	const m, n = 5, 11
	for _, d := range op.MatMul.Inputs()[1].Formats.List() {
		s.tryWith(op.MatMul, d.String(), "rows alone", func(rng *rand.Rand) error {
			k := max(75, d.BlockSize())
			if d.IsBlockQuantized() {
				k = max(64, d.BlockSize()) // so that rows are whole blocks
			}
			a := reference.Args(op.Params{}, empty(reference.Plain, m, n), f32(rng, reference.Plain, m, k), reference.Random(reference.New(d, reference.Plain, n, k), rng))
			return s.b.alone(op.MatMul, a, func(one *op.Args, r int) {
				one.In[0].Shape.Set(0, 1)
				one.In[0].Offset = r * k
			})
		})
	}
}

// tokensAlone has attention in which every token is also computed alone, as in decoding. The
// bits are the same as among other tokens, as in a prompt.
func tokensAlone(s *suite) {
	const n, heads, kvHeads, d = 100, 4, 2, 32
	for _, c := range op.Attention.Inputs()[1].Formats.List() {
		for _, window := range []int{0, 10, 70} {
			s.tryWith(op.Attention, fmt.Sprint(c, " and ", c), fmt.Sprint("tokens alone, window ", window), func(rng *rand.Rand) error {
				a := reference.Args(op.Params{Scale: 2, Window: window}, empty(reference.Plain, n, heads, d), f32(rng, reference.Plain, n, heads, d),
					reference.Random(reference.New(c, reference.Plain, n, kvHeads, d), rng), reference.Random(reference.New(c, reference.Plain, n, kvHeads, d), rng))
				return s.b.alone(op.Attention, a, func(one *op.Args, t int) {
					one.Past = t
					one.In[0].Shape.Set(0, 1)
					one.In[0].Offset = t * heads * d
				})
			})
		}
	}
}

// alone runs an operation, and then runs it again for each row of its contiguous output with
// the arguments that only returns. It returns an error if the bits of a row differ.
func (b *bench) alone(id op.ID, a op.Args, only func(one *op.Args, row int)) error {
	all, err := b.run(id, &a)
	if err != nil {
		return err
	}
	rows := a.Out[0].Shape.Dim(0)
	size := len(all) / rows
	dims := a.Out[0].Shape
	dims.Set(0, 1)
	for r := range rows {
		one := a
		one.Out[0] = empty(reference.Plain, dims.Slice()...)
		only(&one, r)
		got, err := b.run(id, &one)
		if err != nil {
			return err
		}
		if string(got) != string(all[r*size:][:size]) {
			return fmt.Errorf("row %d begins with %#x alone and with %#x among %d rows", r,
				binary.LittleEndian.Uint32(got), binary.LittleEndian.Uint32(all[r*size:]), rows)
		}
	}
	return nil
}

// refused submits an operation that the provider must refuse without changing the output.
func (b *bench) refused(id op.ID, a *op.Args) error {
	c, err := b.prepare(b.q, id, a)
	if err != nil {
		return err
	}
	defer c.free()
	if c.submit() == nil {
		return fmt.Errorf("the operation is not refused")
	}
	return c.untouched()
}
