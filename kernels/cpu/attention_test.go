package cpu

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fucina-go/fucina/core/conformance/reference"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/shape"
)

// unread is the value of the entries of a table that no row needs. It is out of range.
const unread = -1 << 30

// attentionRow is a row of queries: its sequence and its position.
type attentionRow struct{ seq, pos int }

// pagedCase is an attention over sequences, and the same sequences in contiguous memory.
type pagedCase struct {
	paged      op.Args
	rows       []attentionRow
	keys, vals []op.Operand // of each sequence, [length, HK, D]
}

// pagedSizes are the sizes of a pagedCase.
type pagedSizes struct {
	kd, vd           dtype.DType
	pageRows, window int
	softCap          float32
	heads, kvHeads   int
	d, dv            int
	misalign         int
}

// newPaged returns attention of the rows over sequences of the given lengths. The pages of
// the sequences lie in a random order. The entries of the table that no row needs, and the
// rows of the pages that no sequence has, have values that change the results.
func newPaged(m maker, z pagedSizes, lengths []int, rows []attentionRow) pagedCase {
	c := pagedCase{rows: rows}
	perSequence := (slices.Max(lengths)+z.pageRows-1)/z.pageRows + 1
	pages := len(lengths)*perSequence + 2
	k := m.fill(operand(z.kd, padded, pages, z.pageRows, z.kvHeads, z.d))
	v := m.fill(operand(z.vd, padded, pages, z.pageRows, z.kvHeads, z.dv))
	table := slices.Repeat([]int64{unread}, len(lengths)*perSequence)
	free := m.Perm(pages)
	needed := func(seq, page int) bool {
		return slices.ContainsFunc(rows, func(r attentionRow) bool {
			lo := 0
			if z.window > 0 {
				lo = max(0, r.pos-z.window+1)
			}
			return r.seq == seq && lo/z.pageRows <= page && page <= r.pos/z.pageRows
		})
	}
	for seq, n := range lengths {
		c.keys = append(c.keys, m.of(z.kd, n, z.kvHeads, z.d))
		c.vals = append(c.vals, m.of(z.vd, n, z.kvHeads, z.dv))
		for page := range perSequence {
			if !needed(seq, page) {
				continue
			}
			to := free[0]
			free = free[1:]
			table[seq*perSequence+page] = int64(to)
			for r := 0; r < z.pageRows && page*z.pageRows+r < n; r++ {
				copyKey(&k, to, r, &c.keys[seq], page*z.pageRows+r)
				copyKey(&v, to, r, &c.vals[seq], page*z.pageRows+r)
			}
		}
	}
	setMem(&k, z.misalign, k.Mem.Host)
	setMem(&v, z.misalign, v.Mem.Host)
	pos, seqs := make([]int64, len(rows)), make([]int64, len(rows))
	for i, r := range rows {
		pos[i], seqs[i] = int64(r.pos), int64(r.seq)
	}
	tables := ofInts(dtype.I32, table...)
	tables.Shape = shape.Must(len(lengths), perSequence)
	tables.Strides = tables.Shape.Contiguous()
	c.paged = reference.Args(op.Params{Scale: 0.3, Window: z.window, SoftCap: z.softCap},
		operand(dtype.F32, padded, len(rows), z.heads, z.dv), random(operand(dtype.F32, padded, len(rows), z.heads, z.d), m.Rand),
		k, v, ofInts(dtype.I32, pos...), ofInts(dtype.I32, seqs...), tables)
	return c
}

// fill fills o with large values.
func (m maker) fill(o op.Operand) op.Operand {
	random(o, m.Rand)
	if o.DType == dtype.F32 {
		for i, f := range floats(o.Mem.Host) {
			floats(o.Mem.Host)[i] = 1000 * f
		}
	}
	return o
}

// copyKey copies row j of src, which is contiguous, to row r of a page.
func copyKey(dst *op.Operand, page, r int, src *op.Operand, j int) {
	size := src.DType.Size()
	n := src.Shape.Dim(2) / src.DType.BlockSize() * size
	for h := range src.Shape.Dim(1) {
		from := src.Offset + j*src.Strides.Dim(0) + h*src.Strides.Dim(1)
		to := dst.Offset + page*dst.Strides.Dim(0) + r*dst.Strides.Dim(1) + h*dst.Strides.Dim(2)
		copy(dst.Mem.Host[to*size:][:n], src.Mem.Host[from*size:])
	}
}

// alone returns the attention of row t over contiguous keys.
func (c *pagedCase) alone(t int) op.Args {
	q, r := c.paged.In[0], c.rows[t]
	q.Offset += t * q.Strides.Dim(0)
	q.Shape.Set(0, 1)
	out := operand(dtype.F32, plain, 1, q.Shape.Dim(1), c.vals[0].Shape.Dim(2))
	return reference.Args(c.paged.Params, out, q, c.keys[r.seq], c.vals[r.seq], positions(r.pos, 1))
}

// Rows of several sequences with pages, in any order, have the bits of each row alone over
// contiguous keys.
func TestPagedAttention(t *testing.T) {
	es := executors(t)
	lengths := []int{150, 1, 64, 200}
	mixed := []attentionRow{
		{3, 199}, {0, 5}, {0, 149}, {0, 64}, {2, 63}, {1, 0}, {3, 0}, {3, 63}, {3, 64}, {3, 1}, {2, 62},
		{0, 130}, {0, 131}, {0, 132}, {0, 0}, {1, 0}, {2, 10}, {2, 9}, {2, 8}, {3, 198},
	}
	prompt := make([]attentionRow, 20)
	for i := range prompt {
		prompt[i] = attentionRow{0, 50 + i}
	}
	for _, z := range []pagedSizes{
		{kd: dtype.F32, vd: dtype.F32, heads: 1, kvHeads: 1, d: 8, dv: 5},
		{kd: dtype.F32, vd: dtype.F32, heads: 4, kvHeads: 2, d: 32, dv: 32, misalign: 1},
		{kd: dtype.F16, vd: dtype.F16, heads: 6, kvHeads: 2, d: 8, dv: 6, softCap: 2},
		{kd: dtype.Q8_0, vd: dtype.Q8_0, heads: 4, kvHeads: 4, d: 32, dv: 64},
		{kd: dtype.Q8_0, vd: dtype.F32, heads: 20, kvHeads: 1, d: 32, dv: 3},
	} {
		for _, z.pageRows = range []int{1, 7, 32} {
			for _, z.window = range []int{0, 3, 70} {
				for _, rows := range [][]attentionRow{mixed, prompt} {
					c := newPaged(maker{newRand()}, z, lengths, rows)
					t.Run(fmt.Sprintf("%+v, %d rows", z, len(rows)), func(t *testing.T) {
						got := execute(t, es, op.Attention, c.paged)
						n := len(got) / len(rows)
						for i := range rows {
							equal(t, got[i*n:][:n], execute(t, es[:1], op.Attention, c.alone(i)))
						}
						// Where nothing is out of range, nothing is reported.
						c.paged.Status = new(atomic.Uint64)
						equal(t, execute(t, es, op.Attention, c.paged), got)
						if report := c.paged.Status.Load(); report != 0 {
							p, i, v := op.Reported(report)
							t.Errorf("element %d of input %d is reported, which is %d", i, p, v)
						}
					})
				}
			}
		}
	}
}

// Over contiguous keys, positions may be in any order too, and a row has the bits that it has
// alone.
func TestAttentionInAnyOrder(t *testing.T) {
	es, m := executors(t), maker{newRand()}
	rows := []int64{99, 0, 64, 63, 65, 65, 10, 98, 1, 50, 70, 71, 72, 3, 2, 1, 0, 99, 20}
	for _, d := range []dtype.DType{dtype.F32, dtype.F16} {
		for _, window := range []int{0, 20, 66} {
			a := reference.Args(op.Params{Scale: 0.5, Window: window}, operand(dtype.F32, padded, len(rows), 4, 7),
				m.f(len(rows), 4, 8), m.of(d, 100, 2, 8), m.of(d, 100, 2, 7), ofInts(dtype.I32, rows...))
			c := pagedCase{paged: a, keys: []op.Operand{a.In[1]}, vals: []op.Operand{a.In[2]}}
			got := execute(t, es, op.Attention, a)
			for i, pos := range rows {
				c.rows = append(c.rows, attentionRow{0, int(pos)})
				one := c.alone(i)
				want := execute(t, es[:1], op.Attention, one)
				equal(t, got[i*4*7:][:4*7], want)
				closeTo(t, want, reference.Result(op.Attention, &one), 1e-9)
			}
		}
	}
}

// setInt sets element i of an operand of i32.
func setInt(o *op.Operand, i, v int) {
	binary.LittleEndian.PutUint32(o.Mem.Host[4*(o.Offset+i):], uint32(int32(v)))
}

// attentionFault is a wrong element of an operand.
type attentionFault struct {
	place        op.Place
	index, value int
	clamped      int
	says         string
}

// faultyAttention returns the attention of 21 rows of three sequences with four pages each,
// with all entries of the table in range, and faults of its operands in the order in which
// they are reported.
func faultyAttention() (op.Args, []attentionFault) {
	rows := make([]attentionRow, 21)
	for i := range rows {
		rows[i] = attentionRow{i / 3 % 3, 7 + i}
	}
	z := pagedSizes{kd: dtype.F16, vd: dtype.F32, pageRows: 10, heads: 2, kvHeads: 2, d: 4, dv: 4}
	a := newPaged(maker{newRand()}, z, []int{30, 30, 30}, rows).paged
	for i := range a.In[5].Shape.Dim(0) * a.In[5].Shape.Dim(1) {
		setInt(&a.In[5], i, (5*i+2)%a.In[1].Shape.Dim(0))
	}
	return a, []attentionFault{
		{3, 2, 40, 39, "positions[2] is 40, want a position from 0 to 39, because there are 40 keys"},
		{3, 19, -1, 0, "positions[19] is -1"},
		{3, 20, math.MinInt32, 0, "positions[20] is -2147483648"},
		{4, 5, 3, 2, "sequences[5] is 3, want a sequence from 0 to 2 of the table's 3 sequences"},
		{4, 20, -7, 0, "sequences[20] is -7"},
		{5, 1, 14, 13, "table[0][1] is 14, want a page from 0 to 13 of the cache's 14 pages"},
		{5, 4, math.MaxInt32, 13, "table[1][0] is 2147483647"},
		{5, 10, -1, 0, "table[2][2] is -1"},
	}
}

// A wrong element is an error without a status word. With one it is clamped and reported, and
// of several, those of the lowest place and index.
func TestAttentionFaults(t *testing.T) {
	es := executors(t)
	_, faults := faultyAttention()
	for i := range faults {
		for j := i; j < len(faults); j++ {
			bad, _ := faultyAttention()
			clamped, _ := faultyAttention()
			for _, f := range []attentionFault{faults[j], faults[i]} {
				setInt(bad.At(f.place), f.index, f.value)
				setInt(clamped.At(f.place), f.index, f.clamped)
			}
			want := execute(t, es, op.Attention, clamped)
			f := faults[i]
			for _, e := range es {
				bad.Status = nil
				wantError(t, e, op.Attention, withWorkspace(t, e, op.Attention, bad), nil, f.says)
				bad.Status = new(atomic.Uint64)
				equal(t, execute(t, []*Executor{e}, op.Attention, bad), want)
				if p, index, value := op.Reported(bad.Status.Load()); p != f.place || index != f.index || value != int64(f.value) {
					t.Errorf("element %d of input %d is reported, which is %d; want element %d of input %d, which is %d",
						index, p, value, f.index, f.place, f.value)
				}
			}
		}
	}
}

// Without a table, the number of keys is the first axis.
func TestAttentionPositionsAreChecked(t *testing.T) {
	e := executors(t)[0]
	for _, v := range []int{7, -1} {
		a := sampleOf(t, e, op.Attention)
		setInt(&a.In[3], 1, v)
		wantError(t, e, op.Attention, a, nil, name("positions[1] is ", v, ", want a position from 0 to 6"))
	}
}

// An element that changes after the check is an error, with which the kernel ends: it reads no
// memory outside the operands. The output of a unit overwrites the elements of the next one
// here.
func TestAttentionIndicesThatChange(t *testing.T) {
	all := executors(t)
	const rows, dv, bits = 64, 1, 1 << 30 // the bits of 2
	for _, p := range []op.Place{3, 4, 5} {
		for _, e := range []*Executor{all[0], all[3]} { // those of one lane
			m := maker{newRand()}
			list := make([]attentionRow, rows)
			for i := range list {
				list[i].seq = i
			}
			z := pagedSizes{kd: dtype.F16, vd: dtype.F32, pageRows: 1, heads: 1, kvHeads: 1, d: 4, dv: dv}
			c := newPaged(m, z, slices.Repeat([]int{1}, rows), list)
			a := c.paged
			a.Out[0] = operand(dtype.F32, plain, rows, 1, dv)
			for i := range floats(a.In[2].Mem.Host) {
				floats(a.In[2].Mem.Host)[i] = 2
			}
			a = withWorkspace(t, e, op.Attention, a)
			perRow := a.At(p).Mem.Len / (4 * rows)
			setMem(a.At(p), 0, append(a.At(p).Mem.Host, make([]byte, 4*rows)...))
			a.Out[0].Mem, a.Out[0].Offset = a.At(p).Mem, queryRows*perRow
			err := e.Execute(context.Background(), op.Attention, &a)
			if err == nil || !strings.Contains(err.Error(), name("is ", bits, ", want ")) {
				t.Errorf("input %d: error %v", p, err)
			}
			for i := range e.scratch {
				if e.scratch[i].err != nil {
					t.Errorf("lane %d keeps %v", i, e.scratch[i].err)
				}
			}
		}
	}
}

// The last of as many keys as an i32 counts is a key like the others.
func TestAttentionAtTheLastPosition(t *testing.T) {
	const rows, pages = 1 << 15, 1 << 16
	for _, e := range executors(t) {
		last := min(rows*pages, math.MaxInt32) - 1
		a := reference.Args(op.Params{Scale: 1, Window: 1}, operand(dtype.F32, plain, 1, 1, 1), of([]float32{1}, 1, 1, 1),
			random(operand(dtype.F32, plain, 1, rows, 1, 1), newRand()), random(operand(dtype.F32, plain, 1, rows, 1, 1), newRand()),
			positions(last, 1), positions(0, 1), operand(dtype.I32, plain, 1, pages))
		setInt(&a.In[5], last/rows, 0)
		want := read(a.In[2])[last%rows]
		if got := execute(t, []*Executor{e}, op.Attention, a); got[0] != want {
			t.Errorf("got %v, want %v", got[0], want)
		}
	}
}

// The estimate of a unit's cost is at least what the unit counts, and not much more.
func TestAttentionCost(t *testing.T) {
	e := NewExecutor(nil)
	e.every = 1 << 30
	const n = 1000
	for _, d := range []dtype.DType{dtype.F32, dtype.F16} {
		for _, z := range []pagedSizes{
			{heads: 1, kvHeads: 1, d: 64, dv: 64}, {heads: 8, kvHeads: 1, d: 64, dv: 32},
			{heads: 1, kvHeads: 1, d: 2, dv: 2}, {heads: 2, kvHeads: 1, d: 64, dv: 64, window: 100},
		} {
			for _, rows := range [][]attentionRow{
				{{0, 0}},
				{{0, 63}},
				{{0, n - 1}},
				{{0, 0}, {0, n - 1}},
				{{0, n - 1}, {1, n - 1}},
				{{0, n - 1}, {0, n - 2}},
			} {
				z.kd, z.vd, z.pageRows = d, d, 32
				a := withWorkspace(t, e, op.Attention, newPaged(maker{newRand()}, z, []int{n, n}, rows).paged)
				if err := e.Execute(bg, op.Attention, &a); err != nil {
					t.Fatal(err)
				}
				units, cost := e.kernels[op.Attention].cost()
				if spent := e.every - e.scratch[0].left; units != 1 || spent > cost || cost > 3*spent+4*queryRows*(z.d+z.dv)*z.heads {
					t.Errorf("%+v, rows %v: %d units, of which one costs %d, want 1 of at least %d and not much more", z, rows, units, cost, spent)
				}
			}
		}
	}
}

// BenchmarkDecodeAttention computes a row of each sequence, over contiguous keys in an
// operation each, and over pages in one operation, which may be exact.
func BenchmarkDecodeAttention(b *testing.B) {
	const keys = 1024
	e := NewExecutor(nil)
	for _, d := range []dtype.DType{dtype.F16, dtype.Q8_0} {
		for _, n := range []int{1, 16} {
			rows := make([]attentionRow, n)
			for i := range rows {
				rows[i] = attentionRow{i, keys - 1}
			}
			z := pagedSizes{kd: d, vd: d, pageRows: 32, heads: 8, kvHeads: 2, d: 64, dv: 64}
			c := newPaged(maker{newRand()}, z, slices.Repeat([]int{keys}, n), rows)
			c.paged.Scale = 1e-4 // of large scores, most weights are subnormal, and slow
			var alone []op.Args
			for i := range rows {
				alone = append(alone, withWorkspace(b, e, op.Attention, c.alone(i)))
			}
			exact := c.paged
			exact.Exact = true
			for _, form := range []struct {
				name string
				args []op.Args
			}{
				{"contiguous", alone}, {"paged", []op.Args{withWorkspace(b, e, op.Attention, c.paged)}},
				{"exact", []op.Args{withWorkspace(b, e, op.Attention, exact)}},
			} {
				b.Run(name(d, "/sequences=", n, "/", form.name), func(b *testing.B) {
					for b.Loop() {
						for i := range form.args {
							if err := e.Execute(bg, op.Attention, &form.args[i]); err != nil {
								b.Fatal(err)
							}
						}
					}
				})
			}
		}
	}
}
