package cpu

import (
	"bytes"
	"context"
	"math"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/quant"
)

// Tolerances as normalised mean squared errors: what the design allows to a fast
// path, divided by a hundred or more, since these kernels are the reference.
const (
	tolElementwise = 1e-14
	tolSoftmax     = 1e-13
	tolNorm        = 1e-13
	tolRoPE        = 1e-13
	tolMatMul      = 1e-8
	tolAttention   = 1e-9
)

func TestElementwise(t *testing.T) {
	es, rng := executors(t), newRand()
	shapes := [][]int{{1}, {7}, {3, 5}, {2, 3, 33}, {1, 1, 1, 9}, {2, 1, 3, 4}, {2, 4099}, {9000}}
	ops := []struct {
		op op.ID
		f  func(x, y float64) float64
	}{
		{op.Add, func(x, y float64) float64 { return x + y }},
		{op.Mul, func(x, y float64) float64 { return x * y }},
		{op.SwiGLU, func(x, y float64) float64 { return x * y / (1 + math.Exp(-y)) }},
		{op.GeGLU, func(x, y float64) float64 {
			return x * y / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(y+0.044715*y*y*y)))
		}},
		{op.Scale, func(x, _ float64) float64 { return 1.5 * x }},
		{op.SoftCap, func(x, _ float64) float64 { return 0.75 * math.Tanh(x/0.75) }},
	}
	for _, c := range ops {
		for _, dims := range shapes {
			for _, lx := range []layout{plain, padded, reversed, broadcast, spread} {
				for _, ly := range []layout{plain, broadcast} {
					for _, lo := range []layout{plain, padded, spread} {
						if dims[len(dims)-1] > segment && lx != lo {
							continue // long rows are slow to check
						}
						t.Run(name(c.op, dims, lx, ly, lo), func(t *testing.T) {
							a := op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.F32, lo, dims...)}, Params: op.Params{Scale: 1.5, SoftCap: 0.75}}
							a.In[0] = random(operand(dtype.F32, lx, dims...), rng)
							x := read(a.In[0])
							y := x
							if c.op != op.Scale && c.op != op.SoftCap {
								a.In[1] = random(operand(dtype.F32, ly, dims...), rng)
								y = read(a.In[1])
							}
							want := make([]float64, len(x))
							for i := range want {
								want[i] = c.f(x[i], y[i])
							}
							closeTo(t, execute(t, es, c.op, a), want, tolElementwise)
						})
					}
				}
			}
		}
	}
}

// The operations that may work in place give the same result there.
func TestInPlace(t *testing.T) {
	es, rng := executors(t), newRand()
	x := random(operand(dtype.F32, plain, 6, 4, 32), rng)
	for _, id := range []op.ID{op.Add, op.Mul, op.SwiGLU, op.GeGLU, op.Scale, op.SoftCap, op.Softmax, op.RMSNorm, op.RoPE} {
		for _, mode := range []op.RoPEMode{op.RoPEInterleaved, op.RoPENeoX} {
			a := op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.F32, plain, 6, 4, 32)}, Params: op.Params{Scale: 1.5, SoftCap: 2, Eps: 1e-5, Mode: mode}}
			a.In[0] = x
			switch id {
			case op.Softmax, op.Scale, op.SoftCap:
			case op.RMSNorm:
				a.In[1] = random(operand(dtype.F32, plain, 32), rng)
			case op.RoPE:
				a.In[1] = random(operand(dtype.F32, plain, 6, 12, 2), rng)
			default:
				a.In[1] = random(operand(dtype.F32, plain, 6, 4, 32), rng)
			}
			want := execute(t, es[:1], id, a)
			for _, e := range es {
				setMem(&a.In[0], 0, x.Mem.Host)
				a.Out[0] = a.In[0]
				w := withWorkspace(t, e, id, a)
				if err := e.Execute(context.Background(), id, &w); err != nil {
					t.Fatal(err)
				}
				equal(t, read(a.Out[0]), want)
			}
		}
	}
}

func TestRMSNorm(t *testing.T) {
	es, rng := executors(t), newRand()
	for _, dims := range [][]int{{1}, {5}, {1, 64}, {3, 33}, {2, 3, 128}, {53, 8}, {1, 11008}} {
		for _, lx := range []layout{plain, padded, broadcast} {
			for _, lw := range []layout{plain, padded, spread, broadcast} {
				for _, lo := range []layout{plain, padded} {
					if lx == broadcast && len(dims) == 1 {
						continue
					}
					t.Run(name(dims, lx, lw, lo), func(t *testing.T) {
						d := dims[len(dims)-1]
						a := op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.F32, lo, dims...)}, Params: op.Params{Eps: 1e-3}}
						a.In[0] = random(operand(dtype.F32, lx, dims...), rng)
						a.In[1] = random(operand(dtype.F32, lw, d), rng)
						x, w := read(a.In[0]), read(a.In[1])
						want := make([]float64, len(x))
						for r := 0; r < len(x); r += d {
							s := 0.0
							for _, v := range x[r : r+d] {
								s += v * v
							}
							for i := range d {
								want[r+i] = x[r+i] * w[i] / math.Sqrt(s/float64(d)+float64(a.Eps))
							}
						}
						closeTo(t, execute(t, es, op.RMSNorm, a), want, tolNorm)
					})
				}
			}
		}
	}
	// Squares that overflow f32.
	a := op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.F32, plain, 1, 2)}}
	a.In[0], a.In[1] = of([]float32{3e30, -3e30}, 1, 2), of([]float32{1, 1}, 2)
	closeTo(t, execute(t, es, op.RMSNorm, a), []float64{1, -1}, tolNorm)
}

func TestSoftmax(t *testing.T) {
	es, rng := executors(t), newRand()
	for _, dims := range [][]int{{1}, {7}, {3, 40}, {2, 3, 33}, {2, 9000}} {
		for _, lx := range []layout{plain, padded, broadcast} {
			for _, lo := range []layout{plain, padded} {
				if lx == broadcast && len(dims) == 1 {
					continue
				}
				t.Run(name(dims, lx, lo), func(t *testing.T) {
					a := op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.F32, lo, dims...)}, Params: op.Params{Scale: 9}}
					a.In[0] = random(operand(dtype.F32, lx, dims...), rng)
					x, d := read(a.In[0]), dims[len(dims)-1]
					want := make([]float64, len(x))
					for r := 0; r < len(x); r += d {
						softmaxRow(want[r:r+d], x[r:r+d], 9)
					}
					closeTo(t, execute(t, es, op.Softmax, a), want, tolSoftmax)
				})
			}
		}
	}
}

func softmaxRow(want, x []float64, scale float64) {
	top, sum := math.Inf(-1), 0.0
	for _, v := range x {
		top = max(top, scale*v)
	}
	for i, v := range x {
		want[i] = math.Exp(scale*v - top)
		sum += want[i]
	}
	for i := range want {
		want[i] /= sum
	}
}

// A row of -Inf only, and a NaN that the maximum passes over.
func TestSoftmaxSpecial(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	tests := []struct {
		name string
		x    []float32
		want []float64
	}{
		{"all -Inf", []float32{-inf, -inf, -inf}, []float64{math.NaN(), math.NaN(), math.NaN()}},
		{"some -Inf", []float32{-inf, 0, -inf}, []float64{0, 1, 0}},
		{"NaN first", []float32{nan, 1, 2}, []float64{math.NaN(), math.NaN(), math.NaN()}},
		{"NaN last", []float32{1, 2, nan}, []float64{math.NaN(), math.NaN(), math.NaN()}},
		{"NaN and -Inf", []float32{-inf, nan, -inf}, []float64{math.NaN(), math.NaN(), math.NaN()}},
		{"+Inf", []float32{1, inf, 2}, []float64{math.NaN(), math.NaN(), math.NaN()}},
		{"large", []float32{3e38, 3e38, -3e38}, []float64{.5, .5, 0}},
	}
	es := executors(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			// A second row must not be touched by what the first holds.
			x := append(append([]float32{}, test.x...), 1, 1, 1)
			a := op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.F32, plain, 2, 3)}, Params: op.Params{Scale: 1}}
			a.In[0] = of(x, 2, 3)
			got := execute(t, es, op.Softmax, a)
			equal(t, got[:3], test.want)
			closeTo(t, got[3:], []float64{1. / 3, 1. / 3, 1. / 3}, tolSoftmax)
		})
	}
}

func TestArgmax(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	es, rng := executors(t), newRand()
	tests := []struct {
		x    []float32
		want float64
	}{
		{[]float32{5}, 0},
		{[]float32{1, 3, 2}, 1},
		{[]float32{3, 1, 3}, 0},
		{[]float32{-inf, -inf}, 0},
		{[]float32{nan, 1, inf}, 0},
		{[]float32{1, inf, nan, nan}, 2},
		{[]float32{float32(math.Copysign(0, -1)), 0}, 0},
	}
	for _, test := range tests {
		a := op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.I32, plain, 1)}}
		a.In[0] = of(test.x, len(test.x))
		if got := execute(t, es, op.Argmax, a)[0]; got != test.want {
			t.Errorf("argmax of %v is %v, want %v", test.x, got, test.want)
		}
	}
	for _, lx := range []layout{plain, padded, broadcast} {
		for _, lo := range []layout{plain, reversed, spread} {
			a := op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.I32, lo, 4, 3)}}
			a.In[0] = random(operand(dtype.F32, lx, 4, 3, 101), rng)
			x := read(a.In[0])
			var want []float64
			for r := 0; r < len(x); r += 101 {
				best := 0
				for i, v := range x[r : r+101] {
					if v > x[r+best] {
						best = i
					}
				}
				want = append(want, float64(best))
			}
			equal(t, execute(t, es, op.Argmax, a), want)
		}
	}
}

func TestRoPE(t *testing.T) {
	es, rng := executors(t), newRand()
	for _, c := range []struct{ tokens, heads, d, dims int }{{1, 1, 2, 2}, {3, 2, 64, 64}, {5, 3, 80, 32}, {2, 4, 7, 6}, {4, 1, 5, 2}} {
		for _, mode := range []op.RoPEMode{op.RoPEInterleaved, op.RoPENeoX} {
			for _, lx := range []layout{plain, padded, broadcast} {
				for _, lo := range []layout{plain, padded} {
					t.Run(name(c, mode, lx, lo), func(t *testing.T) {
						a := op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.F32, lo, c.tokens, c.heads, c.d)}, Params: op.Params{Mode: mode}}
						a.In[0] = random(operand(dtype.F32, lx, c.tokens, c.heads, c.d), rng)
						a.In[1] = random(operand(dtype.F32, plain, c.tokens, c.dims/2, 2), rng)
						x, table := read(a.In[0]), read(a.In[1])
						want := append([]float64{}, x...)
						for h := range c.tokens * c.heads {
							for i := range c.dims / 2 {
								p, q := 2*i, 2*i+1
								if mode == op.RoPENeoX {
									p, q = i, i+c.dims/2
								}
								p, q = h*c.d+p, h*c.d+q
								cos := table[(h/c.heads*(c.dims/2)+i)*2]
								sin := table[(h/c.heads*(c.dims/2)+i)*2+1]
								want[p], want[q] = x[p]*cos-x[q]*sin, x[p]*sin+x[q]*cos
							}
						}
						closeTo(t, execute(t, es, op.RoPE, a), want, tolRoPE)
					})
				}
			}
		}
	}
}

// gatherable returns every format that rows may be gathered of.
func gatherable() []dtype.DType {
	var out []dtype.DType
	for _, d := range dtype.All() {
		if d.SupportsToFloat() {
			out = append(out, d)
		}
	}
	return out
}

// The gather must go by the strides of the table, of the ids and of the
// output. Tables of any alignment.
func TestGetRows(t *testing.T) {
	es, rng := executors(t), newRand()
	for _, d := range gatherable() {
		for _, idt := range []dtype.DType{dtype.I32, dtype.I64, dtype.U16} {
			for _, l := range []layout{plain, padded, broadcast} {
				for _, misalign := range []int{0, 1} {
					t.Run(name(d, " ", idt, l, misalign), func(t *testing.T) {
						const n = 6
						dim := 2 * d.BlockSize()
						ids := []int64{5, 0, 2, 2, 5}
						a := op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.F32, padded, len(ids), dim)}}
						a.In[0] = random(operand(d, l, n, dim), rng)
						setMem(&a.In[0], misalign, a.In[0].Mem.Host)
						a.In[1] = ofInts(idt, ids...)
						table := read(a.In[0])
						var want []float64
						for _, id := range ids {
							want = append(want, table[int(id)*dim:][:dim]...)
						}
						// f64 rounds to f32.
						for i, v := range want {
							want[i] = float64(float32(v))
						}
						equal(t, execute(t, es, op.GetRows, a), want)
					})
				}
			}
		}
	}
}

// Ids that only the kernel can look at are clamped into the table, and the lowest token
// with a wrong one is reported, on any number of lanes. Without a status word they are
// an error, and nothing is written.
func TestGetRowsClamps(t *testing.T) {
	es := executors(t)
	const rows, dim = 4, 3
	table := make([]float32, rows*dim)
	for i := range table {
		table[i] = float32(i)
	}
	many := make([]int64, 200)
	for i := 60; i < len(many); i++ {
		many[i] = int64(i)
	}
	tests := []struct {
		name  string
		d     dtype.DType
		ids   []int64
		index int // of the lowest wrong id, -1 for none
		value int64
	}{
		{"none", dtype.I32, []int64{0, 3, 1}, -1, 0},
		{"none", dtype.U16, []int64{3, 0}, -1, 0},
		{"one past the end", dtype.I32, []int64{0, 4, 3}, 1, 4},
		{"below", dtype.I32, []int64{-1, 2}, 0, -1},
		{"the lowest of several", dtype.I32, []int64{1, 2, -7, 99, 0, -7}, 2, -7},
		{"over lanes", dtype.I32, many, 60, 60},
		{"extremes", dtype.I32, []int64{math.MinInt32, math.MaxInt32}, 0, math.MinInt32},
		{"largest", dtype.U16, []int64{2, math.MaxUint16}, 1, math.MaxUint16},
		{"over lanes", dtype.U16, many, 60, 60},
		{"one past the end", dtype.I64, []int64{3, 4}, 1, 4},
		{"low bits of a row", dtype.I64, []int64{0, 1<<32 + 1}, 1, math.MaxInt32},
		{"below all 32 bits", dtype.I64, []int64{math.MinInt64, 2}, 0, math.MinInt32},
		{"over lanes", dtype.I64, many, 60, 60},
	}
	for _, tt := range tests {
		t.Run(name(tt.d, " ", tt.name), func(t *testing.T) {
			a := op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.F32, padded, len(tt.ids), dim)}}
			a.In[0], a.In[1] = of(table, rows, dim), ofInts(tt.d, tt.ids...)
			var want []float64
			for _, id := range tt.ids {
				for _, v := range table[min(max(id, 0), rows-1)*dim:][:dim] {
					want = append(want, float64(v))
				}
			}
			for _, e := range es {
				var status atomic.Uint64
				a.Status = &status
				equal(t, execute(t, []*Executor{e}, op.GetRows, a), want)
				switch got := status.Load(); {
				case tt.index < 0 && got != 0:
					t.Errorf("on %d lanes: good ids leave the status %#x", e.Lanes(), got)
				case tt.index >= 0 && got == 0:
					t.Errorf("on %d lanes: no report", e.Lanes())
				case tt.index >= 0:
					if index, value := op.Reported(got); index != tt.index || value != tt.value {
						t.Errorf("on %d lanes: ids[%d] is reported as %d, want ids[%d] and %d", e.Lanes(), index, value, tt.index, tt.value)
					}
				}
				if e.kernels[op.GetRows].(*getRows).status != nil {
					t.Error("the executor keeps the status word")
				}
			}
			a.Status = nil
			w := withWorkspace(t, es[0], op.GetRows, a)
			setMem(&w.Out[0], 0, a.Out[0].Mem.Host)
			before := bytes.Clone(w.Out[0].Mem.Host)
			err := es[0].Execute(context.Background(), op.GetRows, &w)
			if tt.index < 0 {
				if err != nil {
					t.Errorf("good ids: %v", err)
				}
				return
			}
			if text := name("ids[", tt.index, "] is ", tt.ids[tt.index], ", want a row from 0 to 3"); err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("error %v, want %q", err, text)
			}
			if !bytes.Equal(w.Out[0].Mem.Host, before) {
				t.Error("the output of a refused gather is written")
			}
		})
	}
}

// matMulRef is x of [b][m][k] times rows of w, [b or 1][n][k].
func matMulRef(x, w []float64, b, wb, m, n, k int) []float64 {
	out := make([]float64, 0, b*m*n)
	for i := range b {
		for r := range m {
			for c := range n {
				s := 0.0
				for j := range k {
					s += x[(i*m+r)*k+j] * w[(i%wb*n+c)*k+j]
				}
				out = append(out, s)
			}
		}
	}
	return out
}

// weights returns every format that a matmul takes on its right.
func weights() []dtype.DType {
	out := []dtype.DType{dtype.F32, dtype.F16, dtype.BF16}
	for _, d := range dtype.All() {
		if d.SupportsQuantizedMatMulRHS() {
			out = append(out, d)
		}
	}
	return out
}

func TestMatMul(t *testing.T) {
	es, rng := executors(t), newRand()
	shapes := []struct{ b, m, n, blocks int }{{1, 1, 1, 1}, {1, 1, 9, 3}, {1, 3, 6, 2}, {2, 3, 7, 1}, {1, 70, 2, 1}, {2, 66, 2, 1}, {1, 2, 3, 12}}
	for _, d := range weights() {
		layouts := []layout{plain, padded, broadcast}
		if d.IsScalar() {
			layouts = append(layouts, reversed, spread)
		}
		for _, c := range shapes {
			k := c.blocks * d.BlockSize()
			if d.IsScalar() {
				k = 37*c.blocks + c.m%2
			}
			for _, l := range layouts {
				for _, batched := range []bool{false, true} {
					if batched != (c.b > 1) && l != plain {
						continue
					}
					t.Run(name(d, c, l, batched), func(t *testing.T) {
						a := op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.F32, plain, c.b, c.m, c.n)}}
						a.In[0] = random(operand(dtype.F32, padded, c.b, c.m, k), rng)
						wb := 1
						if batched {
							wb = c.b
							a.In[1] = random(operand(d, l, c.b, c.n, k), rng)
						} else {
							a.In[1] = random(operand(d, l, c.n, k), rng)
						}
						want := matMulRef(read(a.In[0]), read(a.In[1]), c.b, wb, c.m, c.n, k)
						closeTo(t, execute(t, es, op.MatMul, a), want, tolMatMul)
					})
				}
			}
		}
	}
}

// Each row of the product is the same bits whatever rows it is computed with, and
// each column whatever columns: tiles leave no trace.
func TestMatMulIndependence(t *testing.T) {
	es, rng := executors(t), newRand()
	const m, n, k = 5, 11, 75
	for _, d := range []dtype.DType{dtype.F32, dtype.F16} {
		a := op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.F32, plain, m, n)}}
		a.In[0] = random(operand(dtype.F32, plain, m, k), rng)
		a.In[1] = random(operand(d, plain, n, k), rng)
		all := execute(t, es, op.MatMul, a)
		for r := range m {
			for c := range n {
				one := a
				one.Out[0] = operand(dtype.F32, plain, 1, 1)
				one.In[0].Shape.Set(0, 1)
				one.In[0].Offset = r * k
				one.In[1].Shape.Set(0, 1)
				one.In[1].Offset = c * k
				equal(t, execute(t, es[:1], op.MatMul, one), all[r*n+c:][:1])
			}
		}
	}
}

// Rows of weights from a file may start at any byte. The result is the
// same bits as that of aligned rows.
func TestMatMulUnaligned(t *testing.T) {
	es, rng := executors(t), newRand()
	for _, d := range weights() {
		k := 2 * d.BlockSize()
		if d.IsScalar() {
			k = 33
		}
		a := op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.F32, plain, 3, 6)}}
		a.In[0] = random(operand(dtype.F32, plain, 3, k), rng)
		a.In[1] = random(operand(d, plain, 6, k), rng)
		want := execute(t, es, op.MatMul, a)
		for misalign := 1; misalign < 4; misalign++ {
			setMem(&a.In[1], misalign, a.In[1].Mem.Host)
			equal(t, execute(t, es, op.MatMul, a), want)
		}
	}
}

// The other operands that may lie in a file.
func TestUnaligned(t *testing.T) {
	es, rng := executors(t), newRand()
	for _, id := range []op.ID{op.Add, op.Mul, op.SwiGLU, op.RMSNorm} {
		a := op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.F32, plain, 35)}, Params: op.Params{Eps: 1e-5}}
		a.In[0] = random(operand(dtype.F32, plain, 35), rng)
		a.In[1] = random(operand(dtype.F32, plain, 35), rng)
		want := execute(t, es, id, a)
		for misalign := 1; misalign < 4; misalign++ {
			setMem(&a.In[1], misalign, a.In[1].Mem.Host)
			equal(t, execute(t, es, id, a), want)
		}
	}
}

// Activations are never narrowed to f16, so magnitudes above 65504 and
// below its subnormals survive with weights of every 16-bit and block format.
func TestMatMulRange(t *testing.T) {
	es, rng := executors(t), newRand()
	for _, d := range weights() {
		k := d.BlockSize()
		if d.IsScalar() {
			k = 32
		}
		for _, v := range []float32{1e6, 1e-9} {
			a := op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.F32, plain, 1, 2)}}
			a.In[0] = random(operand(dtype.F32, plain, 1, k), rng)
			for i, x := range floats(a.In[0].Mem.Host) {
				floats(a.In[0].Mem.Host)[i] = x * v
			}
			a.In[1] = random(operand(d, plain, 2, k), rng)
			want := matMulRef(read(a.In[0]), read(a.In[1]), 1, 1, 1, 2, k)
			closeTo(t, execute(t, es, op.MatMul, a), want, tolMatMul)
		}
	}
}

type attentionCase struct {
	t, s, heads, kvHeads, d, dv, past, window int
	softCap                                   float32
}

func attentionRef(a *op.Args) []float64 {
	q, k, v := read(a.In[0]), read(a.In[1]), read(a.In[2])
	T, heads, d := a.In[0].Shape.Dim(0), a.In[0].Shape.Dim(1), a.In[0].Shape.Dim(2)
	kvHeads, dv := a.In[1].Shape.Dim(1), a.In[2].Shape.Dim(2)
	var out []float64
	for t := range T {
		for h := range heads {
			kv := h / (heads / kvHeads)
			lo, hi := 0, a.Past+t+1
			if a.Window > 0 {
				lo = max(0, hi-a.Window)
			}
			scores := make([]float64, hi-lo)
			for j := range scores {
				for i := range d {
					scores[j] += q[(t*heads+h)*d+i] * k[((lo+j)*kvHeads+kv)*d+i]
				}
				scores[j] *= float64(a.Scale)
				if c := float64(a.SoftCap); c > 0 {
					scores[j] = c * math.Tanh(scores[j]/c)
				}
			}
			softmaxRow(scores, scores, 1)
			row := make([]float64, dv)
			for j, p := range scores {
				for i := range row {
					row[i] += p * v[((lo+j)*kvHeads+kv)*dv+i]
				}
			}
			out = append(out, row...)
		}
	}
	return out
}

func TestAttention(t *testing.T) {
	es, rng := executors(t), newRand()
	cases := []attentionCase{
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
	}
	for _, c := range cases {
		for _, kd := range []dtype.DType{dtype.F32, dtype.F16, dtype.Q8_0} {
			for _, vd := range []dtype.DType{dtype.F32, dtype.F16, dtype.Q8_0} {
				for _, l := range []layout{plain, padded, broadcast} {
					if (kd != vd || c.s > 1000) && l != padded {
						continue
					}
					if kd == dtype.Q8_0 && c.d%32 != 0 || vd == dtype.Q8_0 && (c.dv%32 != 0 || l == broadcast) {
						continue // rows are whole blocks
					}
					t.Run(name(c, kd, " ", vd, l), func(t *testing.T) {
						a := op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.F32, padded, c.t, c.heads, c.dv)}, Params: op.Params{Scale: 3, SoftCap: c.softCap, Past: c.past, Window: c.window}}
						a.In[0] = random(operand(dtype.F32, padded, c.t, c.heads, c.d), rng)
						a.In[1] = random(operand(kd, l, c.s, c.kvHeads, c.d), rng)
						a.In[2] = random(operand(vd, l, c.s, c.kvHeads, c.dv), rng)
						closeTo(t, execute(t, es, op.Attention, a), attentionRef(&a), tolAttention)
					})
				}
			}
		}
	}
}

// Attention over a q8_0 cache, of which keys as well as values are of unit scale and
// so all have weight, is that over what the cache decodes to.
func TestAttentionQuantizedCache(t *testing.T) {
	es, rng := executors(t), newRand()
	for _, c := range []attentionCase{
		{t: 1, s: 100, heads: 1, kvHeads: 1, d: 32, dv: 32, past: 99},
		{t: 9, s: 150, heads: 4, kvHeads: 2, d: 32, dv: 32, past: 130},
		{t: 5, s: 70, heads: 6, kvHeads: 2, d: 32, dv: 96, past: 65},
		{t: 21, s: 200, heads: 6, kvHeads: 2, d: 64, dv: 64, past: 130, window: 50},
		{t: 7, s: 90, heads: 3, kvHeads: 3, d: 64, dv: 32, past: 80, softCap: 2},
		{t: 5, s: 140, heads: 4, kvHeads: 1, d: 128, dv: 128, past: 130, window: 70, softCap: 3},
		{t: 33, s: 33, heads: 8, kvHeads: 2, d: 128, dv: 64},
	} {
		for _, l := range []layout{plain, padded} {
			t.Run(name(c, l), func(t *testing.T) {
				a := op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.F32, padded, c.t, c.heads, c.dv)}, Params: op.Params{Scale: float32(8 / math.Sqrt(float64(c.d))), SoftCap: c.softCap, Past: c.past, Window: c.window}}
				a.In[0] = random(operand(dtype.F32, padded, c.t, c.heads, c.d), rng)
				a.In[1] = encoded(operand(dtype.Q8_0, l, c.s, c.kvHeads, c.d), rng)
				a.In[2] = encoded(operand(dtype.Q8_0, l, c.s, c.kvHeads, c.dv), rng)
				closeTo(t, execute(t, es, op.Attention, a), attentionRef(&a), 1e-12)
			})
		}
	}
}

// encoded fills the whole memory of o, of a block format, with numbers of [-1, 1).
func encoded(o op.Operand, rng *rand.Rand) op.Operand {
	values := make([]float32, len(o.Mem.Host)/o.DType.Size()*o.DType.BlockSize())
	for i := range values {
		values[i] = rng.Float32()*2 - 1
	}
	if err := quant.EncodeRow(o.Mem.Host, o.DType, values); err != nil {
		panic(err)
	}
	return o
}

// A token gives the same bits alone, as in decoding, and among others, as in a
// prompt.
func TestAttentionIndependence(t *testing.T) {
	es, rng := executors(t), newRand()
	for _, window := range []int{0, 10, 70} {
		const n, heads, kvHeads, d = 100, 4, 2, 16
		a := op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.F32, plain, n, heads, d)}, Params: op.Params{Scale: 2, Window: window}}
		a.In[0] = random(operand(dtype.F32, plain, n, heads, d), rng)
		a.In[1] = random(operand(dtype.F16, plain, n, kvHeads, d), rng)
		a.In[2] = random(operand(dtype.F16, plain, n, kvHeads, d), rng)
		all := execute(t, es, op.Attention, a)
		for i := range n {
			one := a
			one.Past = i
			one.Out[0] = operand(dtype.F32, plain, 1, heads, d)
			one.In[0].Shape.Set(0, 1)
			one.In[0].Offset = i * heads * d
			equal(t, execute(t, es[:1], op.Attention, one), all[i*heads*d:][:heads*d])
		}
	}
}

// Keys that a row does not see leave no trace, whatever they hold; keys that it
// sees make it NaN as they would in a plain softmax.
func TestAttentionSpecial(t *testing.T) {
	es := executors(t)
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	const s = 130
	tests := []struct {
		name string
		at   int // key to replace
		k, v float32
		all  float32 // all other keys
		want float64
	}{
		{"unseen NaN", 129, nan, nan, 1, 1},
		{"seen NaN", 3, nan, 1, 1, math.NaN()},
		{"late NaN", 128, nan, 1, 1, math.NaN()},
		{"-Inf everywhere else", 100, 1, 7, -inf, 7},
		{"-Inf everywhere", 129, 1, 7, -inf, math.NaN()},
		{"NaN among -Inf", 70, nan, 7, -inf, math.NaN()},
		{"a -Inf", 5, -inf, 9, 1, 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			k, v := make([]float32, s), make([]float32, s)
			for i := range k {
				k[i], v[i] = test.all, 1
			}
			k[test.at], v[test.at] = test.k, test.v
			a := op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.F32, plain, 1, 1, 1)}, Params: op.Params{Scale: 1, Past: 128}}
			a.In[0], a.In[1], a.In[2] = of([]float32{1}, 1, 1, 1), of(k, s, 1, 1), of(v, s, 1, 1)
			got := execute(t, es, op.Attention, a)
			if math.IsNaN(test.want) {
				equal(t, got, []float64{test.want})
			} else {
				closeTo(t, got, []float64{test.want}, tolAttention)
			}
		})
	}
}

func TestExp(t *testing.T) {
	for x := -103.9; x < 88.7; x += 0.0137 {
		if got, want := exp(x), math.Exp(x); math.Abs(got-want) > 1e-11*want {
			t.Fatalf("exp(%v) is %v, want %v", x, got, want)
		}
	}
	for x, want := range map[float64]float64{0: 1, -200: 0, 200: math.Inf(1), math.Inf(1): math.Inf(1), math.Inf(-1): 0} {
		if got := exp(x); got != want {
			t.Errorf("exp(%v) is %v, want %v", x, got, want)
		}
	}
	if got := exp(math.NaN()); !math.IsNaN(got) {
		t.Errorf("exp(NaN) is %v", got)
	}
}
