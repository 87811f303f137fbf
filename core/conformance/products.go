package conformance

import (
	"fmt"
	"math/rand/v2"

	"github.com/fucina-go/fucina/core/conformance/reference"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
)

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
		k := wholeBlocks(d, 75, 64)
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

// matMulChunks has sums in chunks, which are a matter of exact mode. They have the bits of the sums of each chunk alone, added as
// a balanced tree.
func matMulChunks(s *suite) {
	for _, d := range op.MatMul.Inputs()[1].Formats.List() {
		chunks := []int{op.MaxChunks}
		if d == dtype.F32 || d == dtype.Q8_0 {
			chunks = []int{1, 2, 4, op.MaxChunks}
		}
		for _, n := range chunks {
			s.tryMode(op.MatMul, d.String(), fmt.Sprint("in chunks ", n), true, func(rng *rand.Rand) error {
				const m, columns = 3, 5
				part := wholeBlocks(d, 7, 64) * op.MaxChunks / n
				x := f32(rng, reference.Padded, m, n*part)
				w := reference.Random(reference.New(d, reference.Plain, columns, n*part), rng)
				a := reference.Args(op.Params{Chunks: n}, empty(reference.Plain, m, columns), x, w)
				got, err := s.b.check(op.MatMul, &a, s.opt, s.digest)
				if err != nil {
					return err
				}
				p := &parts{b: s.b, args: &a}
				var sums []op.Operand
				for i := range n {
					sums = append(sums, p.run(op.MatMul, op.Params{},
						reference.View(x, i*part, []int{m, part}, x.Strides.Slice()),
						reference.View(w, i*part/d.BlockSize(), []int{columns, part}, w.Strides.Slice())))
				}
				for ; len(sums) > 1; sums = sums[:len(sums)/2] {
					for i := range len(sums) / 2 {
						sums[i] = p.run(op.Add, op.Params{}, sums[2*i], sums[2*i+1])
					}
				}
				return p.same(op.MatMul, &got, [op.MaxOut]op.Operand{sums[0]})
			})
		}
	}
}

// matMulRounded has activations of unit scale, and so many rows that the errors show how activations
// are rounded. Rounding them to 8 bits takes a small part of the tolerance.
func matMulRounded(s *suite) {
	for _, d := range op.MatMul.Inputs()[1].Formats.List() {
		if !d.IsBlockQuantized() {
			continue
		}
		s.tryMode(op.MatMul, d.String(), "of unit scale", false, func(rng *rand.Rand) error {
			const m, n, k = 300, 5, 512
			a := reference.Args(op.Params{}, empty(reference.Plain, m, n), f32(rng, reference.Plain, m, k), reference.Random(reference.New(d, reference.Plain, n, k), rng))
			mem, err := s.b.check(op.MatMul, &a, s.opt, s.digest)
			if err != nil {
				return err
			}
			out := a.Out[0]
			out.Mem = op.Mem{Host: mem[0], Len: len(mem[0])}
			return reference.Compare(reference.Read(&out), reference.Result(op.MatMul, &a), products(&a.In[1]).loose)
		})
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
