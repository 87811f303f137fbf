package conformance

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/fucina-go/fucina/core/conformance/reference"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
)

type attentionCase struct {
	t, s, heads, kvHeads, d, dv, past, window int
	softCap                                   float32
}

func (c attentionCase) params(scale float64) op.Params {
	return op.Params{Scale: float32(scale), SoftCap: c.softCap, Window: c.window}
}

// positions returns the operand of the queries' positions, which follow each other.
func (c attentionCase) positions() op.Operand {
	values := make([]int64, c.t)
	for i := range values {
		values[i] = int64(c.past + i)
	}
	return reference.Ints(dtype.I32, values...)
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
							reference.Random(reference.New(kd, l, c.s, c.kvHeads, c.d), rng), reference.Random(reference.New(vd, l, c.s, c.kvHeads, c.dv), rng), c.positions())
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
					reference.Encoded(reference.New(dtype.Q8_0, l, c.s, c.kvHeads, c.d), rng), reference.Encoded(reference.New(dtype.Q8_0, l, c.s, c.kvHeads, c.dv), rng), c.positions())
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
			return reference.Args(op.Params{Scale: 1}, empty(reference.Plain, 1, 1, 1),
				reference.Of([]float32{1}, 1, 1, 1), reference.Of(k, keys, 1, 1), reference.Of(v, keys, 1, 1), reference.Ints(dtype.I32, 128))
		})
	}
}

// pagedCase has the sizes of attention of several sequences whose keys and values lie in pages.
type pagedCase struct {
	tokens, sequences int
	rows              int // of a page
	pages             int // of a sequence
	heads, kvHeads    int
	d, dv, window     int
	softCap           float32
	shared            bool // whether the first page of all sequences is the same
}

// args returns arguments with random sequences and positions. The keys and values of a page lie
// in one row of a cache of layout l. The entries of the table that no row needs are garbage.
func (c *pagedCase) args(rng *rand.Rand, d dtype.DType, l reference.Layout) op.Args {
	all := c.sequences*c.pages + 2
	cache := reference.New(d, l, all, c.rows*c.kvHeads*(c.d+c.dv))
	if d.IsBlockQuantized() {
		reference.Encoded(cache, rng)
	} else {
		reference.Random(cache, rng)
	}
	page, block := cache.Strides.Dim(0), d.BlockSize()
	part := func(at, d int) op.Operand {
		return reference.View(cache, at/block, []int{all, c.rows, c.kvHeads, d}, []int{page, c.kvHeads * d / block, d / block, 1})
	}
	k, v := part(0, c.d), part(c.rows*c.kvHeads*c.d, c.dv)
	sequences, positions := make([]int64, c.tokens), make([]int64, c.tokens)
	table := make([]int64, c.sequences*c.pages)
	for i := range table {
		table[i] = []int64{-1, int64(all), math.MinInt32, math.MaxInt32}[i%4]
	}
	order := rng.Perm(all)
	for t := range c.tokens {
		s, last := rng.IntN(c.sequences), rng.IntN(c.pages*c.rows)
		sequences[t], positions[t] = int64(s), int64(last)
		first := 0
		if c.window > 0 {
			first = max(0, last+1-c.window)
		}
		for i := first / c.rows; i <= last/c.rows; i++ {
			at := s*c.pages + i
			if i == 0 && c.shared {
				table[at] = int64(order[all-1])
			} else {
				table[at] = int64(order[at])
			}
		}
	}
	tables := reference.View(reference.Ints(dtype.I32, table...), 0, []int{c.sequences, c.pages}, []int{c.pages, 1})
	p := op.Params{Scale: float32(4 / math.Sqrt(float64(c.d))), SoftCap: c.softCap, Window: c.window}
	a := reference.Args(p, empty(reference.Plain, c.tokens, c.heads, c.dv), f32(rng, reference.Padded, c.tokens, c.heads, c.d),
		k, v, reference.Ints(dtype.I32, positions...), reference.Ints(dtype.I32, sequences...), tables)
	a.Generated = c.tokens / 2
	return a
}

// contiguous returns arguments for the sequence of the row of a, without pages. a has one row
// and the positions of one.
func contiguous(a *op.Args) op.Args {
	out := *a
	pages, rows := a.In[5].Shape.Dim(1), a.In[1].Shape.Dim(1)
	entries := reference.Read(&a.In[5])[pages*int(reference.Read(&a.In[4])[0]):][:pages]
	for p := 1; p <= 2; p++ {
		from := a.In[p]
		heads, d := from.Shape.Dim(2), from.Shape.Dim(3)
		to := reference.New(from.DType, reference.Plain, pages*rows, heads, d)
		size := from.DType.Size()
		n := heads * d / from.DType.BlockSize() * size // bytes of a row, whose heads have no gaps
		for i := range pages * rows {
			page := int(min(max(entries[i/rows], 0), float64(from.Shape.Dim(0)-1))) // garbage is never read
			at := from.Offset + page*from.Strides.Dim(0) + i%rows*from.Strides.Dim(1)
			copy(to.Mem.Host[i*n:], from.Mem.Host[at*size:][:n])
		}
		out.In[p] = to
	}
	out.In[4], out.In[5], out.NIn = op.Operand{}, op.Operand{}, 4
	return out
}

// attentionPaged has rows of several sequences. Each row has the same bits alone, and alone with
// its sequence in contiguous memory.
func attentionPaged(s *suite) {
	for _, d := range op.Attention.Inputs()[1].Formats.List() {
		for i, c := range []pagedCase{
			{tokens: 1, sequences: 1, rows: 32, pages: 3, heads: 4, kvHeads: 2, d: 64, dv: 64},
			{tokens: 9, sequences: 3, rows: 32, pages: 4, heads: 4, kvHeads: 1, d: 32, dv: 96, shared: true},
			{tokens: 6, sequences: 2, rows: 32, pages: 6, heads: 6, kvHeads: 2, d: 64, dv: 32, window: 70},
			{tokens: 7, sequences: 5, rows: 3, pages: 7, heads: 2, kvHeads: 2, d: 32, dv: 32, window: 5, softCap: 2},
			{tokens: 5, sequences: 2, rows: 1, pages: 9, heads: 3, kvHeads: 1, d: 32, dv: 32},
			{tokens: 4, sequences: 2, rows: 5, pages: 30, heads: 3, kvHeads: 3, d: 7, dv: 9, shared: true},
			{tokens: 40, sequences: 2, rows: 16, pages: 2, heads: 2, kvHeads: 1, d: 4, dv: 4, window: 1},
		} {
			if c.d%d.BlockSize() != 0 || c.dv%d.BlockSize() != 0 {
				continue // rows must be whole blocks
			}
			s.tryWith(op.Attention, fmt.Sprint(d, " and ", d), fmt.Sprint("paged ", c), func(rng *rand.Rand) error {
				a := c.args(rng, d, rowOut[i%len(rowOut)])
				all, err := s.b.check(op.Attention, &a, s.opt, s.digest)
				if err != nil {
					return err
				}
				for t := range c.tokens {
					one := row(op.Attention, &a, t, 0, 3, 4)
					without := contiguous(&one)
					for _, form := range []struct {
						name string
						args *op.Args
					}{{"alone", &one}, {"with contiguous keys", &without}} {
						got, err := s.b.run(op.Attention, form.args)
						if err != nil {
							return err
						}
						if err := sameRow(got[0], all[0], t, c.tokens); err != nil {
							return fmt.Errorf("%s: %w", form.name, err)
						}
					}
				}
				return nil
			})
		}
	}
	// The keys and the values have formats of their own.
	c := pagedCase{tokens: 4, sequences: 2, rows: 4, pages: 5, heads: 4, kvHeads: 2, d: 32, dv: 32}
	s.try(op.Attention, "f16 and q8_0", "paged", func(rng *rand.Rand) op.Args {
		a, b := c.args(rng, dtype.F16, reference.Plain), c.args(rng, dtype.Q8_0, reference.Padded)
		a.In[2] = b.In[2]
		return a
	})
}
