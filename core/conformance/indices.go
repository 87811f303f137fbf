package conformance

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/fucina-go/fucina/core/conformance/reference"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
)

// wrong is the report of an index that is out of range.
type wrong struct {
	place op.Place
	index int
	value int64
}

// tryIndices has an operation with a status word. An index out of range is clamped. A place
// out of range is skipped together with its row. The report is want, or none if want is nil. A
// provider in host memory refuses the operation without a status word if there is a report.
// Otherwise the operation has the same result.
func (s *suite) tryIndices(id op.ID, formats, name string, want *wrong, build func(rng *rand.Rand) op.Args) {
	s.t.Helper()
	s.tryWith(id, formats, "indices "+name, func(rng *rand.Rand) error {
		a := build(rng)
		a.Status = &s.b.words[0]
		a.Status.Store(0)
		opt := s.opt
		opt.Short = true // one run, which leaves one report
		mem, err := s.b.check(id, &a, opt, s.digest)
		if err != nil {
			return err
		}
		if err := reported(id, a.Status.Load(), want); err != nil {
			return err
		}
		if a.Status = nil; s.b.dev != nil {
			return nil
		}
		if want != nil {
			return s.b.refused(id, &a)
		}
		got, err := s.b.run(id, &a)
		if err == nil && !got.equal(&mem) {
			err = fmt.Errorf("the bits differ without a status word")
		}
		return err
	})
}

// reported returns an error unless the status word has the report want.
func reported(id op.ID, status uint64, want *wrong) error {
	if status == 0 && want != nil {
		return fmt.Errorf("nothing is reported, want %d at element %d of the %s", want.value, want.index, id.Role(want.place))
	}
	if status == 0 {
		return nil
	}
	p, index, value := op.Reported(status)
	switch {
	case want == nil:
		return fmt.Errorf("%d at element %d of the %s is reported, but all indices are valid", value, index, id.Role(p))
	case *want != wrong{p, index, value}:
		return fmt.Errorf("%d at element %d of the %s is reported, want %d at element %d of the %s",
			value, index, id.Role(p), want.value, want.index, id.Role(want.place))
	}
	return nil
}

// refused submits an operation that the provider must refuse without changing the outputs.
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

// upTo returns the integers from 0 to n-1, of which those below low are 0.
func upTo(n, low int) []int64 {
	list := make([]int64, n)
	for i := low; i < n; i++ {
		list[i] = int64(i)
	}
	return list
}

// indices has operations with indices that are out of range.
func indices(s *suite) {
	gatherIndices(s)
	storeIndices(s)
	attentionIndices(s)
}

func gatherIndices(s *suite) {
	for _, c := range []struct {
		name string
		d    dtype.DType
		ids  []int64
		want *wrong
	}{
		{"all good", dtype.I32, []int64{0, 3, 1}, nil},
		{"all good", dtype.U16, []int64{3, 0}, nil},
		{"one past the end", dtype.I32, []int64{0, 4, 3}, &wrong{1, 1, 4}},
		{"negative", dtype.I32, []int64{-1, 2}, &wrong{1, 0, -1}},
		{"several", dtype.I32, []int64{1, 2, -7, 99, 0, -7}, &wrong{1, 2, -7}},
		{"many", dtype.I32, upTo(200, 60), &wrong{1, 60, 60}},
		{"extreme", dtype.I32, []int64{math.MinInt32, math.MaxInt32}, &wrong{1, 0, math.MinInt32}},
		{"largest", dtype.U16, []int64{2, math.MaxUint16}, &wrong{1, 1, math.MaxUint16}},
		{"many", dtype.U16, upTo(200, 60), &wrong{1, 60, 60}},
		{"one past the end", dtype.I64, []int64{3, 4}, &wrong{1, 1, 4}},
		{"beyond 32 bits", dtype.I64, []int64{0, 1<<32 + 1}, &wrong{1, 1, math.MaxInt32}},
		{"far below", dtype.I64, []int64{math.MinInt64, 2}, &wrong{1, 0, math.MinInt32}},
		{"many", dtype.I64, upTo(200, 60), &wrong{1, 60, 60}},
	} {
		s.tryIndices(op.GetRows, "f32", fmt.Sprint(c.d, " ", c.name, len(c.ids)), c.want, func(rng *rand.Rand) op.Args {
			return reference.Args(op.Params{}, empty(reference.Padded, len(c.ids), 3), f32(rng, reference.Plain, 4, 3), reference.Ints(c.d, c.ids...))
		})
	}
}

// storeIndices has operations that write rows to places, and skip a row if its place is out of
// range.
func storeIndices(s *suite) {
	const most = 12 // of SetRows and RotateStore
	for i, c := range []struct {
		name   string
		places []int64
		want   *wrong
	}{
		{"all good", []int64{11, 0, 3}, nil},
		{"one past the end", []int64{0, 12, 11}, &wrong{index: 1, value: 12}},
		{"negative", []int64{-1, 0}, &wrong{index: 0, value: -1}},
		{"several", []int64{1, 2, -7, 99, 0, -7}, &wrong{index: 2, value: -7}},
		{"extreme", []int64{5, math.MinInt32, math.MaxInt32}, &wrong{index: 1, value: math.MinInt32}},
		{"none good", []int64{-1}, &wrong{index: 0, value: -1}},
		{"many", append([]int64{10, 1, 7}, upTo(200, 0)[13:]...), &wrong{index: 3, value: 13}},
	} {
		at := func(p op.Place) *wrong {
			if c.want == nil {
				return nil
			}
			return &wrong{p, c.want.index, c.want.value}
		}
		d := op.SetRows.Outputs()[0].Formats.List()[i%3]
		for _, dims := range [][]int{{most, 64}, {3, most / 3, 64}} {
			s.tryIndices(op.SetRows, d.String(), fmt.Sprint(c.name, dims), at(1), func(rng *rand.Rand) op.Args {
				return reference.Args(op.Params{}, reference.Random(reference.New(d, reference.Padded, dims...), rng),
					f32(rng, reference.Padded, len(c.places), 64), reference.Ints(dtype.I32, c.places...))
			})
		}
		s.tryIndices(op.RotateStore, d.String(), c.name, at(4), func(rng *rand.Rand) op.Args {
			sizes := storeCase{tokens: len(c.places), heads: 2, kvHeads: 1, d: 32, dv: 64, pairs: 8, rows: 4, pages: most / 4, kNorm: true}
			sizes.pages += len(c.places) // so that there are enough places to choose from
			a := sizes.args(rng, d, reference.Plain, reference.Padded, reference.Plain)
			a.In[4] = reference.Ints(dtype.I32, c.places...)
			a.Out[1].Shape.Set(0, most/4)
			return a
		})
	}
}

// attentionIndices has positions, sequences and tables. Garbage in the entries that no row needs
// is not reported. Rows that need wrong entries clamp them.
func attentionIndices(s *suite) {
	const keys, rows, pages, perSequence = 12, 4, 6, 3
	for _, c := range []struct {
		name      string
		positions []int64
		sequences []int64 // none for contiguous keys
		table     []int64
		window    int
		want      *wrong
	}{
		{"all good", []int64{11, 0, 5}, nil, nil, 0, nil},
		{"one past the end", []int64{11, 12, 5}, nil, nil, 0, &wrong{3, 1, 12}},
		{"negative", []int64{-1}, nil, nil, 3, &wrong{3, 0, -1}},
		{"several", []int64{3, 11, -5, 700, 2}, nil, nil, 0, &wrong{3, 2, -5}},
		{"extreme", []int64{math.MaxInt32, math.MinInt32}, nil, nil, 5, &wrong{3, 0, math.MaxInt32}},
		{"paged, all good", []int64{11, 0, 5}, []int64{0, 1, 0}, []int64{5, 0, 2, 1, 3, 4}, 0, nil},
		{"garbage behind the rows", []int64{7, 0, 3}, []int64{0, 1, 0}, []int64{5, 0, -1, 1, math.MaxInt32, math.MinInt32}, 0, nil},
		{"garbage before the window", []int64{11, 5}, []int64{1, 1}, []int64{-1, 6, 99, -4, 0, 2}, 2, nil},
		{"the window reaches garbage", []int64{11, 5}, []int64{1, 1}, []int64{-1, 6, 99, -4, 0, 2}, 3, &wrong{5, 3, -4}},
		{"a position", []int64{2, 12}, []int64{0, 1}, []int64{5, 0, 2, 1, 3, 4}, 0, &wrong{3, 1, 12}},
		{"a sequence", []int64{2, 3, 4}, []int64{1, 2, -1}, []int64{5, 0, 2, 1, 3, 4}, 0, &wrong{4, 1, 2}},
		{"a negative sequence", []int64{2, 3, 4}, []int64{-9, 1, 7}, []int64{5, 0, 2, 1, 3, 4}, 0, &wrong{4, 0, -9}},
		{"an entry", []int64{9, 3}, []int64{1, 1}, []int64{5, 0, 2, 1, 6, 4}, 0, &wrong{5, 4, 6}},
		{"entries of several rows", []int64{11, 11}, []int64{1, 0}, []int64{5, 0, -3, -1, -1, -1}, 0, &wrong{5, 2, -3}},
		{"a sequence and an entry", []int64{5, 3}, []int64{0, 5}, []int64{-2, 0, 2, 1, 3, 4}, 0, &wrong{4, 1, 5}},
		{"everything", []int64{5, -3}, []int64{7, 0}, []int64{-2, -2, -2, -2, -2, -2}, 0, &wrong{3, 1, -3}},
	} {
		for i, d := range op.Attention.Inputs()[1].Formats.List() {
			if i > 0 && len(c.positions) != 2 {
				continue // the formats make little difference
			}
			s.tryIndices(op.Attention, fmt.Sprint(d, " and ", d), c.name, c.want, func(rng *rand.Rand) op.Args {
				cache := func(dims ...int) op.Operand {
					o := reference.New(d, reference.Padded, dims...)
					if d.IsBlockQuantized() {
						return reference.Encoded(o, rng)
					}
					return reference.Random(o, rng)
				}
				t := len(c.positions)
				a := reference.Args(op.Params{Scale: 1, Window: c.window}, empty(reference.Padded, t, 2, 64), f32(rng, reference.Plain, t, 2, 32),
					cache(keys, 1, 32), cache(keys, 1, 64), reference.Ints(dtype.I32, c.positions...))
				if c.sequences != nil {
					a.In[1], a.In[2] = cache(pages, rows, 1, 32), cache(pages, rows, 1, 64)
					a.In[4], a.NIn = reference.Ints(dtype.I32, c.sequences...), 6
					a.In[5] = reference.View(reference.Ints(dtype.I32, c.table...), 0, []int{2, perSequence}, []int{perSequence, 1})
				}
				return a
			})
		}
	}
}
