package cpu

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/fucina-go/fucina/core/conformance/reference"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/internal/team"
)

// benchmark runs an operation on one lane and on two, an exact one on one lane, and a naive loop over
// the same operands. cost is the number of multiply-adds, or of elements if there are none.
func benchmark(b *testing.B, id op.ID, a op.Args, cost int, naive func(a *op.Args)) {
	rate := func(b *testing.B) {
		b.ReportMetric(float64(cost)*float64(b.N)/b.Elapsed().Seconds()/1e9, "G/s")
	}
	for _, c := range []struct {
		name    string
		threads int
		exact   bool
	}{{"lanes=1", 1, false}, {"lanes=2", 2, false}, {"exact", 1, true}} {
		b.Run(c.name, func(b *testing.B) {
			tm := team.New(c.threads)
			defer tm.Close()
			e := NewExecutor(tm)
			a.Exact = c.exact
			a := withWorkspace(b, e, id, a)
			for b.Loop() {
				if err := e.Execute(context.Background(), id, &a); err != nil {
					b.Fatal(err)
				}
			}
			rate(b)
		})
	}
	b.Run("naive", func(b *testing.B) {
		for b.Loop() {
			naive(&a)
		}
		rate(b)
	})
}

func f32At(o *op.Operand, i int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(o.Mem.Host[4*(o.Offset+i):]))
}

func setF32(o *op.Operand, i int, v float32) {
	binary.LittleEndian.PutUint32(o.Mem.Host[4*(o.Offset+i):], math.Float32bits(v))
}

func BenchmarkMatMul(b *testing.B) {
	rng := newRand()
	const n, k = 1024, 1024
	for _, d := range []dtype.DType{dtype.F32, dtype.F16, dtype.Q8_0, dtype.Q4_K} {
		for _, m := range []int{1, 32} {
			b.Run(name(d, "/m=", m), func(b *testing.B) {
				a := op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.F32, plain, m, n)}}
				a.In[0] = random(operand(dtype.F32, plain, m, k), rng)
				a.In[1] = random(operand(d, plain, n, k), rng)
				w := of(make([]float32, n*k), n, k)
				for i, v := range read(a.In[1]) {
					floats(w.Mem.Host)[i] = float32(v)
				}
				// The naive loop gets decoded weights.
				benchmark(b, op.MatMul, a, m*n*k, func(a *op.Args) {
					x, w, out := floats(a.In[0].Mem.Host), floats(w.Mem.Host), floats(a.Out[0].Mem.Host)
					for r := range m {
						for c := range n {
							s := float32(0)
							for i := range k {
								s += x[r*k+i] * w[c*k+i]
							}
							out[r*n+c] = s
						}
					}
				})
			})
		}
	}
}

func BenchmarkAttention(b *testing.B) {
	rng := newRand()
	for _, c := range []struct{ t, s int }{{1, 1024}, {64, 512}} {
		b.Run(name("t=", c.t, "/s=", c.s), func(b *testing.B) {
			const heads, kvHeads, d = 8, 2, 64
			a := op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.F32, plain, c.t, heads, d)}, Params: op.Params{Scale: 0.125}}
			a.In[0] = random(operand(dtype.F32, plain, c.t, heads, d), rng)
			a.In[1] = random(operand(dtype.F16, plain, c.s, kvHeads, d), rng)
			a.In[2] = random(operand(dtype.F16, plain, c.s, kvHeads, d), rng)
			a.In[3] = positions(c.s-c.t, c.t)
			benchmark(b, op.Attention, a, 2*c.t*heads*d*(c.s-c.t/2), func(a *op.Args) { reference.Result(op.Attention, a) })
		})
	}
}

// BenchmarkCancelAttention reports how long attention over 100,000 keys continues after
// its context is done.
func BenchmarkCancelAttention(b *testing.B) {
	rng := newRand()
	const tokens, keys, heads, d = 64, 100_000, 8, 128
	tm := team.New(2)
	defer tm.Close()
	e := NewExecutor(tm)
	a := op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.F32, plain, tokens, heads, d)}, Params: op.Params{Scale: 0.1}}
	a.In[0] = random(operand(dtype.F32, plain, tokens, heads, d), rng)
	a.In[1] = random(operand(dtype.F16, plain, keys, 1, d), rng)
	a.In[2] = random(operand(dtype.F16, plain, keys, 1, d), rng)
	a.In[3] = positions(keys-tokens, tokens)
	a = withWorkspace(b, e, op.Attention, a)
	var worst, sum time.Duration
	for b.Loop() {
		ctx, cancel := context.WithCancel(bg)
		var at time.Time
		time.AfterFunc(time.Duration(rng.IntN(int(200*time.Millisecond))), func() {
			at = time.Now()
			cancel()
		})
		if err := e.Execute(ctx, op.Attention, &a); !errors.Is(err, context.Canceled) {
			b.Fatalf("%v, want %v", err, context.Canceled)
		}
		late := time.Since(at)
		worst, sum = max(worst, late), sum+late
	}
	b.ReportMetric(float64(worst.Microseconds())/1000, "worst-ms")
	b.ReportMetric(float64(sum.Microseconds())/1000/float64(b.N), "mean-ms")
}

func BenchmarkElementwise(b *testing.B) {
	rng := newRand()
	random := func(l reference.Layout, dims ...int) op.Operand { return random(operand(dtype.F32, l, dims...), rng) }
	// repeats has one element in each row.
	repeats := func(dims ...int) op.Operand {
		o := random(plain, dims...)
		o.Strides.Set(1, 0)
		return o
	}
	for id := range op.Count {
		if pointwise[id].loop == nil || len(id.Inputs()) != 2 {
			continue
		}
		for _, c := range []struct {
			name string
			x, y op.Operand
		}{
			{"small", random(plain, 1, 64), random(plain, 1, 64)},
			{"large", random(plain, 1, 1<<16), random(plain, 1, 1<<16)},
			{"rows of 64 by one each", random(plain, 1024, 64), repeats(1024, 64)},
			{"rows of 2048 by one each", random(plain, 32, 2048), repeats(32, 2048)},
			{"one each by rows of 64", repeats(1024, 64), random(plain, 1024, 64)},
			{"columns", random(reversed, 64, 1024), random(plain, 64, 1024)},
		} {
			b.Run(name(id, "/", c.name), func(b *testing.B) {
				shape := c.x.Shape.Slice()
				a := op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.F32, plain, shape...)}}
				a.In[0], a.In[1] = c.x, c.y
				benchmark(b, id, a, shape[0]*shape[1], func(a *op.Args) { reference.Result(id, a) })
			})
		}
	}
}

func BenchmarkRMSNorm(b *testing.B) {
	rng := newRand()
	const n, d = 32, 2048
	a := op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.F32, plain, n, d)}, Params: op.Params{Eps: 1e-5}}
	a.In[0] = random(operand(dtype.F32, plain, n, d), rng)
	a.In[1] = random(operand(dtype.F32, plain, d), rng)
	benchmark(b, op.RMSNorm, a, n*d, func(a *op.Args) {
		for r := range n {
			s := 0.0
			for i := range d {
				v := float64(f32At(&a.In[0], r*d+i))
				s += v * v
			}
			s = 1 / math.Sqrt(s/d+float64(a.Eps))
			for i := range d {
				setF32(&a.Out[0], r*d+i, f32At(&a.In[0], r*d+i)*float32(s)*f32At(&a.In[1], i))
			}
		}
	})
}

func BenchmarkSoftmax(b *testing.B) {
	rng := newRand()
	const n, d = 32, 2048
	a := op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.F32, plain, n, d)}, Params: op.Params{Scale: 1}}
	a.In[0] = random(operand(dtype.F32, plain, n, d), rng)
	benchmark(b, op.Softmax, a, n*d, func(a *op.Args) {
		row := make([]float64, d)
		for r := range n {
			top, sum := math.Inf(-1), 0.0
			for i := range d {
				row[i] = float64(f32At(&a.In[0], r*d+i))
				top = max(top, row[i])
			}
			for i, v := range row {
				row[i] = math.Exp(v - top)
				sum += row[i]
			}
			for i, v := range row {
				setF32(&a.Out[0], r*d+i, float32(v/sum))
			}
		}
	})
}

func BenchmarkRoPE(b *testing.B) {
	rng := newRand()
	const n, heads, d = 32, 32, 64
	for _, mode := range []op.RoPEMode{op.RoPEInterleaved, op.RoPENeoX} {
		b.Run([]string{"interleaved", "neox"}[mode], func(b *testing.B) {
			a := op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.F32, plain, n, heads, d)}, Params: op.Params{Mode: mode}}
			a.In[0] = random(operand(dtype.F32, plain, n, heads, d), rng)
			a.In[1] = random(operand(dtype.F32, plain, n, d/2, 2), rng)
			step, next := 2, 1
			if mode == op.RoPENeoX {
				step, next = 1, d/2
			}
			benchmark(b, op.RoPE, a, n*heads*d, func(a *op.Args) {
				for h := range n * heads {
					for i := range d / 2 {
						p := h*d + i*step
						cos, sin := f32At(&a.In[1], h/heads*d+2*i), f32At(&a.In[1], h/heads*d+2*i+1)
						x, y := f32At(&a.In[0], p), f32At(&a.In[0], p+next)
						setF32(&a.Out[0], p, x*cos-y*sin)
						setF32(&a.Out[0], p+next, x*sin+y*cos)
					}
				}
			})
		})
	}
}

func BenchmarkGetRows(b *testing.B) {
	rng := newRand()
	const n, d = 64, 2048
	for _, dt := range []dtype.DType{dtype.F32, dtype.F16, dtype.Q4_K} {
		b.Run(dt.String(), func(b *testing.B) {
			a := op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.F32, plain, n, d)}}
			a.In[0] = random(operand(dt, plain, n, d), rng)
			ids := make([]int64, n)
			for i := range ids {
				ids[i] = int64(n - 1 - i)
			}
			a.In[1] = ofInts(dtype.I32, ids...)
			table := read(a.In[0])
			// The naive loop gets a decoded table.
			benchmark(b, op.GetRows, a, n*d, func(a *op.Args) {
				for i, id := range ids {
					for j := range d {
						setF32(&a.Out[0], i*d+j, float32(table[int(id)*d+j]))
					}
				}
			})
		})
	}
}

func BenchmarkCopy(b *testing.B) {
	rng := newRand()
	const n, d = 64, 1024
	for _, c := range []struct {
		from, to dtype.DType
		l        reference.Layout
	}{{dtype.F32, dtype.F32, plain}, {dtype.F32, dtype.F16, plain}, {dtype.F16, dtype.F32, plain}, {dtype.F32, dtype.F32, reversed}, {dtype.F32, dtype.F16, reversed}} {
		b.Run(name(c.from, " to ", c.to, c.l), func(b *testing.B) {
			a := op.Args{Out: [op.MaxOut]op.Operand{operand(c.to, plain, n, d)}}
			a.In[0] = random(operand(c.from, c.l, n, d), rng)
			from, to := c.from.Size(), c.to.Size()
			benchmark(b, op.Copy, a, n*d, func(a *op.Args) {
				x := &a.In[0]
				for r := range n {
					for i := range d {
						src := x.Mem.Host[(x.Offset+r*x.Strides.Dim(0)+i*x.Strides.Dim(1))*from:][:from]
						if err := dtype.Convert(a.Out[0].Mem.Host[(r*d+i)*to:][:to], c.to, src, c.from); err != nil {
							b.Fatal(err)
						}
					}
				}
			})
		})
	}
}

func BenchmarkArgmax(b *testing.B) {
	rng := newRand()
	const d = 128 << 10
	a := op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.I32, plain, 1)}}
	a.In[0] = random(operand(dtype.F32, plain, d), rng)
	benchmark(b, op.Argmax, a, d, func(a *op.Args) {
		best := 0
		for i := range d {
			if f32At(&a.In[0], i) > f32At(&a.In[0], best) {
				best = i
			}
		}
		binary.LittleEndian.PutUint32(a.Out[0].Mem.Host, uint32(best))
	})
}
