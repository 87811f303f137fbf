package conformance

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/fucina-go/fucina/core/conformance/reference"
	"github.com/fucina-go/fucina/core/op"
)

// rowsAlone has products and norms in which every row is also computed alone, with the same
// bits. Some rows are generated, and keep their kind.
func rowsAlone(s *suite) {
	const m, n = 5, 11
	for _, d := range op.MatMul.Inputs()[1].Formats.List() {
		k := wholeBlocks(d, 75, 64)
		weight := func(rng *rand.Rand) op.Operand { return reference.Random(reference.New(d, reference.Plain, n, k), rng) }
		s.tryWith(op.MatMul, d.String(), "rows alone", func(rng *rand.Rand) error {
			a := reference.Args(op.Params{}, empty(reference.Plain, m, n), f32(rng, reference.Plain, m, k), weight(rng))
			a.Generated = 2
			return s.b.alone(op.MatMul, a, 0)
		})
		s.tryWith(op.Project, d.String(), "rows alone", func(rng *rand.Rand) error {
			a := reference.Args(op.Params{Scales: [3]float32{1, 1, 2}}, empty(reference.Plain, m, 3*n), f32(rng, reference.Plain, m, k),
				weight(rng), weight(rng), weight(rng), op.Operand{}, f32(rng, reference.Plain, n), op.Operand{}, f32(rng, reference.Plain, m, 3*n))
			a.Generated = 2
			return s.b.alone(op.Project, a, 0, 7)
		})
		s.tryWith(op.GatedProject, d.String(), "rows alone", func(rng *rand.Rand) error {
			a := reference.Args(op.Params{Scales: noScales}, empty(reference.Plain, m, n), f32(rng, reference.Plain, m, k), weight(rng), weight(rng))
			a.Generated = 2
			return s.b.alone(op.GatedProject, a, 0)
		})
	}
	s.tryWith(op.AddRMSNorm, "f32", "rows alone", func(rng *rand.Rand) error {
		return s.b.alone(op.AddRMSNorm, reference.Args2(op.Params{Eps: 1e-3}, empty(reference.Plain, m, 75), empty(reference.Plain, m, 75),
			f32(rng, reference.Plain, m, 75), f32(rng, reference.Plain, m, 75), f32(rng, reference.Plain, 75)), 0, 1)
	})
	for _, d := range op.RotateStore.Outputs()[1].Formats.List() {
		s.tryWith(op.RotateStore, d.String(), "rows alone", func(rng *rand.Rand) error {
			c := storeCase{tokens: m, heads: 4, kvHeads: 2, d: 64, dv: 32, pairs: 32, rows: 3, pages: 4, qNorm: true, kNorm: true}
			return s.b.alone(op.RotateStore, c.args(rng, d, reference.Padded, reference.Plain, reference.Plain), 0, 1, 2, 3, 4)
		})
	}
}

// tokensAlone has attention in which every token is also computed alone, as in decoding. The
// bits are the same as among other tokens, as in a prompt, in any order of the positions.
func tokensAlone(s *suite) {
	const n, heads, kvHeads, d = 100, 4, 2, 32
	for _, c := range op.Attention.Inputs()[1].Formats.List() {
		for _, e := range []struct {
			name     string
			window   int
			shuffled bool
		}{{"0", 0, false}, {"10", 10, false}, {"10 in any order", 10, true}, {"70", 70, false}} {
			s.tryWith(op.Attention, fmt.Sprint(c, " and ", c), "tokens alone, window "+e.name, func(rng *rand.Rand) error {
				a := reference.Args(op.Params{Scale: 2, Window: e.window}, empty(reference.Plain, n, heads, d), f32(rng, reference.Plain, n, heads, d),
					reference.Random(reference.New(c, reference.Plain, n, kvHeads, d), rng), reference.Random(reference.New(c, reference.Plain, n, kvHeads, d), rng), attentionCase{t: n}.positions())
				if e.shuffled {
					a.In[3] = places(rng, n, n)
				}
				a.Generated = 20
				return s.b.alone(op.Attention, a, 0, 3)
			})
		}
	}
}

// alone runs an operation whose new outputs are contiguous, and then runs it again for each
// row of the operands at the given places. It returns an error if the bits of a row differ. An
// output that the operation writes into goes from one row to the next.
func (b *bench) alone(id op.ID, a op.Args, rowed ...op.Place) error {
	all, err := b.run(id, &a)
	if err != nil {
		return err
	}
	rows := a.In[0].Shape.Dim(0)
	exist := a.Out
	for r := range rows {
		one := row(id, &a, r, rowed...)
		for i, role := range id.Outputs() {
			if role.Into {
				one.Out[i] = exist[i]
			}
		}
		got, err := b.run(id, &one)
		if err != nil {
			return err
		}
		for i, role := range id.Outputs() {
			if role.Into {
				exist[i].Mem = op.Mem{Host: got[i], Len: len(got[i])}
				continue
			}
			if err := sameRow(got[i], all[i], r, rows); err != nil {
				return err
			}
		}
	}
	for i, role := range id.Outputs() {
		if role.Into && !bytes.Equal(exist[i].Mem.Host, all[i]) {
			return fmt.Errorf("the %s differs between rows alone and among %d rows", role.Name, rows)
		}
	}
	return nil
}

// row returns the arguments for row r alone of the operands at the given places.
func row(id op.ID, a *op.Args, r int, rowed ...op.Place) op.Args {
	one := *a
	one.Generated = min(max(a.Generated-r, 0), 1)
	for _, p := range rowed {
		o := one.At(p)
		o.Shape.Set(0, 1)
		o.Offset += r * o.Strides.Dim(0)
	}
	for i, role := range id.Outputs() {
		if !role.Into {
			dims := a.Out[i].Shape
			dims.Set(0, 1)
			one.Out[i] = empty(reference.Plain, dims.Slice()...)
		}
	}
	return one
}

// sameRow returns an error if the bits of a row alone differ from those of row r of all.
func sameRow(one, all []byte, r, rows int) error {
	size := len(all) / rows
	if all = all[r*size:][:size]; bytes.Equal(one, all) {
		return nil
	}
	i := 0
	for i+4 < size && bytes.Equal(one[i:i+4], all[i:i+4]) {
		i += 4
	}
	return fmt.Errorf("element %d of row %d is %#x alone and %#x among %d rows", i/4, r, binary.LittleEndian.Uint32(one[i:]), binary.LittleEndian.Uint32(all[i:]), rows)
}
