package cpu

import (
	"bytes"
	"encoding/binary"
	"math"
	"sync/atomic"
	"testing"

	"github.com/fucina-go/fucina/core/conformance/reference"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/internal/team"
)

// run runs the operation on the memory of its operands.
func run(t testing.TB, e *Executor, id op.ID, p op.Params, out []op.Operand, in ...op.Operand) {
	t.Helper()
	a := op.Args{Params: p}
	copy(a.In[:], in)
	copy(a.Out[:], out)
	a = withWorkspace(t, e, id, a)
	if err := e.Execute(bg, id, &a); err != nil {
		t.Fatalf("%v: %v", id, err)
	}
}

// one is a list of one operand.
func one(o op.Operand) []op.Operand { return []op.Operand{o} }

// view returns the elements of o from offset on, in storage elements, with the shape and the
// strides.
func view(o op.Operand, offset int, dims, strides []int) op.Operand {
	o.Shape, o.Strides = shape.Must(dims...), shape.Must(strides...)
	o.Offset += offset
	return o
}

// wild returns an f32 operand with values that formats cannot represent: infinities, NaN, and
// numbers too large for f16 or for the scale of q8_0.
func wild(m maker, dims ...int) op.Operand {
	x := m.f(dims...)
	d := dims[len(dims)-1]
	for i, v := range []float64{math.NaN(), math.Inf(-1), 65504 * 128, 7e4, 1e-8} {
		setF32(&x, (i*d+i*7)%(x.Mem.Len/4), float32(v))
	}
	return x
}

// SetRows writes the bits that Copy of each row writes, in every format and layout, and
// leaves the other rows as they were.
func TestSetRowsIsCopy(t *testing.T) {
	es, m := executors(t), maker{newRand()}
	const d, tokens, rows = 64, 6, 12
	list := []int64{7, 0, 11, 3, 4, 9}
	for _, dt := range op.SetRows.Outputs()[0].Formats.List() {
		block := dt.BlockSize()
		row := d / block
		for _, c := range []struct {
			name string
			out  op.Operand
		}{
			{"rows", m.of(dt, rows, d)},
			{"padded rows", random(operand(dt, padded, rows, d), m.Rand)},
			{"parts", m.of(dt, 3, rows/3, d)},
			{"padded parts", random(operand(dt, padded, 3, rows/3, d), m.Rand)},
			{"parts with their rows apart", view(m.of(dt, rows/3, 3, d), 0, []int{3, rows / 3, d}, []int{row, 3 * row, 1})},
			{"parts with gaps", view(m.of(dt, 3, 2*d*rows/3), 0, []int{3, rows / 3, d}, []int{2 * row * rows / 3, row, 1})},
		} {
			for _, x := range []op.Operand{wild(m, tokens, d), random(operand(dtype.F32, padded, tokens, d), m.Rand), random(operand(dtype.F32, broadcast, tokens, d), m.Rand)} {
				t.Run(name(dt, " ", c.name, " ", x.Strides), func(t *testing.T) {
					want := c.out
					setMem(&want, 0, c.out.Mem.Host)
					for i, place := range list {
						at := place * int64(want.Strides.Dim(-2))
						if want.Shape.Rank() == 3 {
							n := int64(rows / 3)
							at = place/n*int64(want.Strides.Dim(0)) + place%n*int64(want.Strides.Dim(1))
						}
						from, to := view(x, i*x.Strides.Dim(0), []int{d}, []int{1}), view(want, int(at), []int{d}, []int{1})
						run(t, es[0], op.Copy, op.Params{}, one(to), from)
						a := reference.Args(op.Params{}, to, from)
						equal(t, read(to), reference.Result(op.Copy, &a))
					}
					execute(t, es, op.SetRows, reference.Args(op.Params{}, c.out, x, ofInts(dtype.I32, list...)))
					got := c.out
					setMem(&got, 1, c.out.Mem.Host) // a destination needs no alignment
					run(t, es[1], op.SetRows, op.Params{}, one(got), x, ofInts(dtype.I32, list...))
					if !bytes.Equal(got.Mem.Host, want.Mem.Host) {
						t.Error("has other bytes than copies of the rows")
					}
				})
			}
		}
	}
}

// AddRMSNorm has the bits of Add and of RMSNorm of the sum, in every layout that it accepts,
// and also if an output is the memory of an input.
func TestAddRMSNormIsItsParts(t *testing.T) {
	es, m := executors(t), maker{newRand()}
	p := op.Params{Eps: 1e-3}
	for _, d := range []int{1, 7, 600} {
		weights := map[string]op.Operand{"plain": m.f(d), "spread": random(operand(dtype.F32, spread, d), m.Rand)}
		unaligned := m.f(d)
		setMem(&unaligned, 1, unaligned.Mem.Host)
		weights["unaligned"] = unaligned
		for what, w := range weights {
			for _, l := range []reference.Layout{plain, padded, broadcast} {
				t.Run(name(d, " ", l, " ", what), func(t *testing.T) {
					x, y := random(operand(dtype.F32, l, 5, 3, d), m.Rand), random(operand(dtype.F32, padded, 5, 3, d), m.Rand)
					sum, out := operand(dtype.F32, plain, 5, 3, d), operand(dtype.F32, plain, 5, 3, d)
					run(t, es[0], op.Add, p, one(sum), x, y)
					run(t, es[0], op.RMSNorm, p, one(out), sum, w)
					want := append(read(sum), read(out)...)
					a := reference.Args(p, operand(dtype.F32, padded, 5, 3, d), x, y, w)
					a.Out[1] = operand(dtype.F32, plain, 5, 3, d)
					equal(t, execute(t, es, op.AddRMSNorm, a), want)
					for _, over := range [][2]int{{0, -1}, {-1, 0}, {0, 1}, {1, 0}} {
						if l == broadcast {
							continue // an output has no rows of the same memory
						}
						for _, e := range es {
							in, outs := []op.Operand{x, y, w}, []op.Operand{sum, out}
							setMem(&in[0], 0, x.Mem.Host)
							setMem(&in[1], 0, y.Mem.Host)
							for i := range outs {
								if outs[i] = operand(dtype.F32, padded, 5, 3, d); over[i] >= 0 {
									outs[i] = in[over[i]]
								}
							}
							run(t, e, op.AddRMSNorm, p, outs, in...)
							equal(t, append(read(outs[0]), read(outs[1])...), want)
						}
					}
				})
			}
		}
	}
}

// heads are the operands of RotateStore.
type heads struct {
	tokens, h, hk, d, dv int
	q, k, v              op.Operand // views of one product
	angles               op.Operand
	wq, wk               op.Operand // absent if they are zero
}

func newHeads(m maker, tokens, h, hk, d, dv, pairs int) heads {
	width := (h+hk)*d + hk*dv
	product := random(operand(dtype.F32, padded, tokens, width), m.Rand)
	row := product.Strides.Dim(0)
	return heads{
		tokens: tokens, h: h, hk: hk, d: d, dv: dv, angles: m.f(tokens, pairs, 2),
		q: view(product, 0, []int{tokens, h, d}, []int{row, d, 1}),
		k: view(product, h*d, []int{tokens, hk, d}, []int{row, d, 1}),
		v: view(product, (h+hk)*d, []int{tokens, hk, dv}, []int{row, dv, 1}),
	}
}

// args returns the arguments of RotateStore. The bytes of the cache are not copied.
func (c *heads) args(p op.Params, cache, places op.Operand) op.Args {
	a := reference.Args(p, operand(dtype.F32, padded, c.tokens, c.h, c.d), c.q, c.k, c.v, c.angles, places, c.wq, c.wk)
	a.Out[1] = cache
	return a
}

// cache returns a cache of pages of rows, with a gap after each page.
func (c *heads) cache(m maker, d dtype.DType, pages, rows int) op.Operand {
	return random(operand(d, padded, pages, rows*c.hk*(c.d+c.dv)), m.Rand)
}

// parts runs the parts of RotateStore one after the other, and returns the rotated queries.
// They have one lane.
func (c *heads) parts(t testing.TB, e *Executor, p op.Params, cache, places op.Operand) op.Operand {
	pages, rows := cache.Shape.Dim(0), cache.Shape.Dim(1)/(c.hk*(c.d+c.dv))
	rotated := func(x, w op.Operand) op.Operand {
		n, out := operand(dtype.F32, plain, x.Shape.Slice()...), operand(dtype.F32, plain, x.Shape.Slice()...)
		if w.IsZero() {
			n = x
		} else {
			run(t, e, op.RMSNorm, p, one(n), x, w)
		}
		run(t, e, op.RoPE, p, one(out), n, c.angles)
		return out
	}
	q, k := rotated(c.q, c.wq), rotated(c.k, c.wk)
	block := cache.DType.BlockSize()
	set := func(x op.Operand, first, width int) {
		x = view(x, 0, []int{c.tokens, width}, []int{x.Strides.Dim(0), 1})
		into := view(cache, first/block, []int{pages, rows, width}, []int{cache.Strides.Dim(0), width / block, 1})
		run(t, e, op.SetRows, p, one(into), x, places)
	}
	set(k, 0, c.hk*c.d)
	set(c.v, rows*c.hk*c.d, c.hk*c.dv)
	return q
}

// RotateStore has the bits of its parts: in every format, in both modes, with and without
// each norm, and for pages of any number of rows. The weights of the norms may lie in a file,
// at any byte.
func TestRotateStoreIsItsParts(t *testing.T) {
	es, m := executors(t), maker{newRand()}
	weight := func(l reference.Layout, misalign int) op.Operand {
		w := random(operand(dtype.F32, l, 64), m.Rand)
		setMem(&w, misalign, w.Mem.Host)
		return w
	}
	for _, dt := range op.RotateStore.Outputs()[1].Formats.List() {
		for i, rows := range []int{1, 3, 32} {
			for _, mode := range []op.RoPEMode{op.RoPEInterleaved, op.RoPENeoX} {
				for norms := range 4 {
					c := newHeads(m, 5, 4, 2, 64, 32, []int{32, 24, 7}[i])
					if norms&1 != 0 {
						c.wq = weight(plain, 1)
					}
					if norms&2 != 0 {
						c.wk = weight([]reference.Layout{plain, spread}[i%2], 3)
					}
					p := op.Params{Eps: 1e-3, Mode: mode}
					places := ofInts(dtype.I32, 6, 2, 4, 1, 5)
					t.Run(name(dt, " pages of ", rows, " mode ", mode, " norms ", norms), func(t *testing.T) {
						got := c.cache(m, dt, 7, rows)
						want := got
						setMem(&want, 0, got.Mem.Host)
						q := c.parts(t, es[0], p, want, places)
						a := c.args(p, got, places)
						values := execute(t, es, op.RotateStore, a)
						equal(t, values[:c.tokens*c.h*c.d], read(q))
						for _, e := range es {
							setMem(&a.Out[1], 1, got.Mem.Host) // a cache needs no alignment
							w := withWorkspace(t, e, op.RotateStore, a)
							if err := e.Execute(bg, op.RotateStore, &w); err != nil {
								t.Fatal(err)
							}
							if !bytes.Equal(w.Out[1].Mem.Host, want.Mem.Host) {
								t.Error("the cache has other bytes than after the parts")
							}
						}
						// The queries may be rotated in place.
						for _, e := range es {
							setMem(&a.In[0], 0, c.q.Mem.Host)
							a.Out[0] = a.In[0]
							setMem(&a.Out[1], 0, got.Mem.Host)
							w := withWorkspace(t, e, op.RotateStore, a)
							if err := e.Execute(bg, op.RotateStore, &w); err != nil {
								t.Fatal(err)
							}
							equal(t, read(w.Out[0]), read(q))
						}
					})
				}
			}
		}
	}
}

// The three operations are close to their formulas in float64.
func TestStoresInFloat64(t *testing.T) {
	es, m := executors(t)[:1], maker{newRand()}
	p := op.Params{Eps: 1e-3, Mode: op.RoPENeoX}
	normalise := func(x, w []float64) {
		for r := 0; r < len(x); r += len(w) {
			sum := 0.0
			for _, v := range x[r:][:len(w)] {
				sum += v * v
			}
			for i := range w {
				x[r+i] *= w[i] / math.Sqrt(sum/float64(len(w))+float64(p.Eps))
			}
		}
	}

	x, y, w := m.f(3, 40), m.f(3, 40), m.f(40)
	sums := read(x)
	for i, v := range read(y) {
		sums[i] += v
	}
	want := append([]float64{}, sums...)
	normalise(want, read(w))
	a := reference.Args(p, operand(dtype.F32, plain, 3, 40), x, y, w)
	a.Out[1] = operand(dtype.F32, plain, 3, 40)
	closeTo(t, execute(t, es, op.AddRMSNorm, a), append(sums, want...), 1e-13)

	// Row 1 of two parts of two rows is row 1 of part 0, and row 2 is row 0 of part 1.
	x = m.f(2, 3)
	values := read(x)
	want = make([]float64, 12)
	copy(want[3:], values[3:])
	copy(want[6:], values[:3])
	out := of(make([]float32, 12), 2, 2, 3)
	closeTo(t, execute(t, es, op.SetRows, reference.Args(p, out, x, ofInts(dtype.I32, 2, 1))), want, 1e-14)

	c := newHeads(m, 2, 4, 2, 8, 6, 3)
	c.wq, c.wk = m.f(8), m.f(8)
	rotated := func(x, w op.Operand, heads int) []float64 {
		list, angles := read(x), read(c.angles)
		normalise(list, read(w))
		for h := range c.tokens * heads {
			for i := range 3 {
				at := 2 * (h/heads*3 + i)
				a, b := list[h*8+i], list[h*8+3+i]
				list[h*8+i] = a*angles[at] - b*angles[at+1]
				list[h*8+3+i] = a*angles[at+1] + b*angles[at]
			}
		}
		return list
	}
	// Pages of two rows: token 0 is row 1 of page 1, and token 1 is row 0 of page 0.
	k, v := rotated(c.k, c.wk, 2), read(c.v)
	pages := make([]float64, 2*2*(16+12))
	copy(pages[56+16:], k[:16])
	copy(pages[56+32+12:], v[:12])
	copy(pages[0:], k[16:])
	copy(pages[32:], v[12:])
	a = c.args(p, of(make([]float32, len(pages)), 2, 56), ofInts(dtype.I32, 3, 0))
	closeTo(t, execute(t, es, op.RotateStore, a), append(rotated(c.q, c.wq, 4), pages...), 1e-13)
}

// storeCase is an operation that writes tokens to places among 12 rows. The places are the
// input at place in.
type storeCase struct {
	op   op.ID
	in   op.Place
	args op.Args
}

func storeCases(m maker, tokens int) (list []storeCase) {
	for _, dt := range op.SetRows.Outputs()[0].Formats.List() {
		none := operand(dtype.I32, plain, tokens)
		list = append(list, storeCase{op.SetRows, 1, reference.Args(op.Params{}, m.of(dt, 3, 4, 32), m.f(tokens, 32), none)})
		c := newHeads(m, tokens, 4, 2, 64, 32, 20)
		c.wk = m.f(64)
		list = append(list, storeCase{op.RotateStore, 4, c.args(op.Params{Eps: 1e-5}, c.cache(m, dt, 3, 4), none)})
	}
	return list
}

// A place out of range is reported, the first of several on any number of lanes. Its row is
// not written anywhere: the cache has the bytes that the other tokens alone give it. The
// query of such a token is rotated all the same.
func TestPlacesOutOfRangeAreSkipped(t *testing.T) {
	const first = 3
	list := []int64{5, 0, 11, 12, 7, -1, 1, math.MaxInt32, math.MinInt32, 2}
	good := []int{0, 1, 2, 4, 6, 9}
	for _, c := range storeCases(maker{newRand()}, len(list)) {
		into := len(c.op.Outputs()) - 1
		t.Run(name(c.op, " ", c.args.Out[into].DType), func(t *testing.T) {
			before := c.args.Out[into]
			// The tokens with a good place, one at a time.
			want := before
			setMem(&want, 0, before.Mem.Host)
			es := executors(t)
			for _, i := range good {
				a := c.args
				for j := range a.In {
					// The tokens are the first axis of each input but a weight.
					if o := &a.In[j]; !o.IsZero() && o.Shape.Dim(0) == len(list) {
						o.Shape.Set(0, 1)
						o.Offset += i * o.Strides.Dim(0)
					}
				}
				a.In[c.in] = ofInts(dtype.I32, list[i])
				if into > 0 {
					a.Out[0] = operand(dtype.F32, plain, a.In[0].Shape.Slice()...)
				}
				a.Out[into] = want
				a = withWorkspace(t, es[0], c.op, a)
				if err := es[0].Execute(bg, c.op, &a); err != nil {
					t.Fatal(err)
				}
			}
			for _, e := range es {
				var status atomic.Uint64
				a := c.args
				a.In[c.in], a.Status = ofInts(dtype.I32, list...), &status
				setMem(&a.Out[into], 0, before.Mem.Host)
				if into > 0 {
					a.Out[0] = operand(dtype.F32, plain, a.In[0].Shape.Slice()...)
				}
				a = withWorkspace(t, e, c.op, a)
				if err := e.Execute(bg, c.op, &a); err != nil {
					t.Fatal(err)
				}
				if place, index, value := op.Reported(status.Load()); place != c.in || index != first || value != list[first] {
					t.Errorf("on %d lanes: reports %d at %d of input %d, want %d at %d of input %d", e.lanes, value, index, place, list[first], first, c.in)
				}
				if !bytes.Equal(a.Out[into].Mem.Host, want.Mem.Host) {
					t.Errorf("on %d lanes: the destination has other bytes than after the tokens with good places", e.lanes)
				}
				if into == 0 {
					continue
				}
				fine := a
				fine.In[c.in], fine.Out[0] = positions(0, len(list)), operand(dtype.F32, plain, a.In[0].Shape.Slice()...)
				if err := e.Execute(bg, c.op, &fine); err != nil {
					t.Fatal(err)
				}
				equal(t, read(a.Out[0]), read(fine.Out[0]))
				if now := status.Load(); now == 0 {
					t.Error("a later operation cleared the status")
				}
			}
		})
	}
}

// Without a status, a place out of range is refused before anything is written.
func TestPlacesAreChecked(t *testing.T) {
	for _, c := range storeCases(maker{newRand()}, 4) {
		for _, e := range executors(t) {
			for _, tt := range []struct {
				list []int64
				says string
			}{
				{[]int64{0, 1, 2, 12}, "cpu: places[3] is 12, want a row from 0 to 11"},
				{[]int64{0, -1, 99, 2}, "cpu: places[1] is -1, want a row from 0 to 11"},
				{[]int64{math.MinInt32, 1, 2, 3}, "cpu: places[0] is -2147483648, want a row from 0 to 11"},
			} {
				a := c.args
				a.In[c.in] = ofInts(dtype.I32, tt.list...)
				wantError(t, e, c.op, withWorkspace(t, e, c.op, a), nil, tt.says)
			}
		}
	}
}

// Another goroutine may change the places while the operation runs. A place that has become
// too large is then an error, or is reported if there is a status. Nothing outside the
// destination is touched, because its memory ends with its last row.
func TestPlacesChange(t *testing.T) {
	e := NewExecutor(nil)
	e.grain, e.every = 1, 1
	for _, c := range storeCases(maker{newRand()}, 4) {
		for _, wanted := range []bool{false, true} {
			for at := range 7 {
				a := c.args
				a.In[c.in] = positions(0, 4)
				var status atomic.Uint64
				if wanted {
					a.Status = &status
				}
				a = withWorkspace(t, e, c.op, a)
				looks := 0
				ctx := &watcher{Context: bg, f: func() {
					if looks++; looks == at+1 {
						binary.LittleEndian.PutUint32(a.In[c.in].Mem.Host[12:], 12)
					}
				}}
				err := e.Execute(ctx, c.op, &a)
				switch says := "cpu: places[3] is 12, want a row from 0 to 11"; {
				case looks <= at:
					t.Fatalf("%v ends after %d looks, too few for the test", c.op, looks)
				case wanted && (err != nil || status.Load() == 0):
					t.Errorf("%v: changed after %d looks: error %v and status %d, want a report", c.op, at, err, status.Load())
				case !wanted && (err == nil || err.Error() != says):
					t.Errorf("%v: changed after %d looks: error %v, want %s", c.op, at, err, says)
				}
			}
		}
	}
}

// call is an operation with its arguments.
type call struct {
	op   op.ID
	args op.Args
}

// benchmarkParts compares a composite operation with its parts, on two lanes.
func benchmarkParts(b *testing.B, composite call, parts ...call) {
	tm := team.New(2)
	defer tm.Close()
	e := NewExecutor(tm)
	for i, calls := range [][]call{{composite}, parts} {
		b.Run([]string{"composite", "parts"}[i], func(b *testing.B) {
			for i := range calls {
				calls[i].args = withWorkspace(b, e, calls[i].op, calls[i].args)
			}
			for b.Loop() {
				for i := range calls {
					if err := e.Execute(bg, calls[i].op, &calls[i].args); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// The shapes of both benchmarks are those of a model of one billion parameters.

func BenchmarkAddRMSNorm(b *testing.B) {
	for _, tokens := range []int{1, 32} {
		b.Run(name("t=", tokens), func(b *testing.B) {
			m, p := maker{newRand()}, op.Params{Eps: 1e-5}
			x, y, w, sum, out := m.f(tokens, 2048), m.f(tokens, 2048), m.f(2048), m.f(tokens, 2048), m.f(tokens, 2048)
			a := reference.Args(p, sum, x, y, w)
			a.Out[1] = out
			benchmarkParts(b, call{op.AddRMSNorm, a},
				call{op.Add, reference.Args(p, sum, x, y)}, call{op.RMSNorm, reference.Args(p, out, sum, w)})
		})
	}
}

func BenchmarkRotateStore(b *testing.B) {
	const pages, rows, h, hk, d = 8, 32, 32, 8, 64
	for _, tokens := range []int{1, 32} {
		b.Run(name("t=", tokens), func(b *testing.B) {
			m, p := maker{newRand()}, op.Params{Eps: 1e-5, Mode: op.RoPENeoX}
			c := newHeads(m, tokens, h, hk, d, d, d/2)
			c.wq, c.wk = m.f(d), m.f(d)
			cache, places := c.cache(m, dtype.F16, pages, rows), positions(5, tokens)
			q, k := m.f(tokens, h, d), m.f(tokens, hk, d)
			set := func(x op.Operand, first int) call {
				return call{op.SetRows, reference.Args(p,
					view(cache, first, []int{pages, rows, hk * d}, []int{cache.Strides.Dim(0), hk * d, 1}),
					view(x, 0, []int{tokens, hk * d}, []int{x.Strides.Dim(0), 1}), places)}
			}
			benchmarkParts(b, call{op.RotateStore, c.args(p, cache, places)},
				call{op.RMSNorm, reference.Args(p, q, c.q, c.wq)}, call{op.RMSNorm, reference.Args(p, k, c.k, c.wk)},
				call{op.RoPE, reference.Args(p, q, q, c.angles)}, call{op.RoPE, reference.Args(p, k, k, c.angles)},
				set(k, 0), set(c.v, rows*hk*d))
		})
	}
}
