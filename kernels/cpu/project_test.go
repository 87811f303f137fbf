package cpu

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/fucina-go/fucina/core/conformance/reference"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/internal/team"
)

// steps are the operations for the parts of a composite one, with their arguments.
type steps struct {
	t     testing.TB
	e     *Executor
	exact bool
	list  []step
}

type step struct {
	op   op.ID
	args op.Args
}

// add appends an operation.
func (s *steps) add(id op.ID, p op.Params, out op.Operand, in ...op.Operand) {
	s.t.Helper()
	a := reference.Args(p, out, in...)
	a.Exact = s.exact
	s.list = append(s.list, step{id, withWorkspace(s.t, s.e, id, a)})
}

// run executes the operations.
func (s *steps) run(ctx context.Context) {
	s.t.Helper()
	for i := range s.list {
		if err := s.e.Execute(ctx, s.list[i].op, &s.list[i].args); err != nil {
			s.t.Fatalf("%v: %v", s.list[i].op, err)
		}
	}
}

// repeated returns the view of a vector as every row of a tensor.
func repeated(o op.Operand, s shape.Shape) op.Operand {
	stride := o.Strides.Dim(0)
	o.Shape, o.Strides = s, s
	for i := range s.Rank() {
		o.Strides.Set(i, 0)
	}
	o.Strides.Set(s.Rank()-1, stride)
	return o
}

// factor appends the product of matrix i into out and the steps that follow it. The bias is
// at place bias+i.
func (s *steps) factor(a *op.Args, i int, bias op.Place, out op.Operand) {
	s.t.Helper()
	s.add(op.MatMul, op.Params{}, out, a.In[0], a.In[1+i])
	biased := a.Has(bias + op.Place(i))
	if biased && a.BiasFirst {
		s.add(op.Add, op.Params{}, out, out, repeated(*a.At(bias + op.Place(i)), out.Shape))
	}
	if a.Scales[i] != 1 {
		s.add(op.Scale, op.Params{Scale: a.Scales[i]}, out, out)
	}
	if biased && !a.BiasFirst {
		s.add(op.Add, op.Params{}, out, out, repeated(*a.At(bias + op.Place(i)), out.Shape))
	}
}

// partsOf returns the parts of op.Project or op.GatedProject, and their output.
func partsOf(t testing.TB, e *Executor, id op.ID, a *op.Args) (*steps, op.Operand) {
	t.Helper()
	s := &steps{t: t, e: e, exact: a.Exact}
	y := operand(dtype.F32, plain, a.Out[0].Shape.Slice()...)
	if id == op.GatedProject {
		g := operand(dtype.F32, plain, a.Out[0].Shape.Slice()...)
		s.factor(a, 0, 3, g)
		s.factor(a, 1, 3, y)
		s.add([]op.ID{op.SiLU: op.SwiGLU, op.GELU: op.GeGLU}[a.Act], op.Params{}, y, y, g)
		return s, y
	}
	part := y // the columns of a matrix
	for i := range 3 {
		if a.Has(op.Place(1 + i)) {
			n := a.In[1+i].Shape.Dim(0)
			part.Shape.Set(part.Shape.Rank()-1, n)
			s.factor(a, i, 4, part)
			part.Offset += n
		}
	}
	if a.Has(7) {
		s.add(op.Add, op.Params{}, y, y, a.In[7])
	}
	return s, y
}

// equalsParts checks that an operation has the bits of its parts, on every executor.
func equalsParts(t *testing.T, es []*Executor, id op.ID, a op.Args) {
	t.Helper()
	got := execute(t, es, id, a)
	for i, o := range a.In {
		if !o.IsZero() {
			a.NIn = i + 1
		}
	}
	s, out := partsOf(t, es[0], id, &a)
	s.run(bg)
	equal(t, got, read(out))
}

// productCase is a case of op.Project, or of op.GatedProject without the third matrix and the
// residual.
type productCase struct {
	dims      []int // of x, without the last
	n         [3]int
	biased    [3]bool
	scales    [3]float32
	biasFirst bool
	residual  bool
	layout    reference.Layout // of biases, and of weights of scalar formats
	misalign  int              // of weights and biases
}

var productCases = []productCase{
	{dims: []int{1}, n: [3]int{1, 1, 0}, scales: [3]float32{1, 1, 1}},
	{dims: nil, n: [3]int{7, 7, 2}, biased: [3]bool{true, false, true}, scales: [3]float32{1, 1, 1}, residual: true},
	{dims: []int{5}, n: [3]int{9, 9, 3}, biased: [3]bool{false, true, false}, scales: [3]float32{0.3, 1, -7}, layout: spread, misalign: 1},
	{dims: []int{5}, n: [3]int{5, 5, 0}, biased: [3]bool{true, true}, scales: [3]float32{0.7, 1.1, 1}, biasFirst: true, residual: true, misalign: 2},
	{dims: []int{2, 35}, n: [3]int{6, 6, 5}, biased: [3]bool{true, true, true}, scales: [3]float32{1.3, 0.1, 0.9}, residual: true, layout: padded},
	{dims: []int{1}, n: [3]int{33, 33, 17}, biased: [3]bool{true, true, true}, scales: [3]float32{0, 3, 1}, biasFirst: true, layout: broadcast, misalign: 3},
}

// args returns arguments with random operands. The matrices have the formats, and rows of k
// elements. A matrix without rows is absent.
func (c *productCase) args(id op.ID, formats [3]dtype.DType, k int) op.Args {
	m := maker{newRand()}
	f := func(l reference.Layout, n int) op.Operand {
		return random(operand(dtype.F32, l, append(slices.Clone(c.dims), n)...), m.Rand)
	}
	a := op.Args{Params: op.Params{Scales: c.scales, BiasFirst: c.biasFirst}}
	a.In[0] = f(padded, k)
	matrices, bias, columns := 3, op.Place(4), 0
	if id == op.GatedProject {
		matrices, bias = 2, 3
	}
	for i, n := range c.n[:matrices] {
		if n == 0 {
			continue
		}
		l := c.layout
		if !formats[i].IsScalar() {
			l = padded
		}
		w := &a.In[1+i]
		*w = random(operand(formats[i], l, n, k), m.Rand)
		setMem(w, c.misalign, w.Mem.Host)
		if c.biased[i] {
			b := a.At(bias + op.Place(i))
			*b = random(operand(dtype.F32, c.layout, n), m.Rand)
			setMem(b, c.misalign, b.Mem.Host)
		}
		columns += n
	}
	if id == op.GatedProject {
		columns = c.n[0]
	} else if c.residual {
		// The rows of the residual are in another order than those of x.
		r := &a.In[7]
		dims := append(slices.Clone(c.dims), columns)
		if len(dims) == 3 {
			dims[0], dims[1] = dims[1], dims[0]
		}
		*r = random(operand(dtype.F32, padded, dims...), m.Rand)
		if len(dims) == 3 {
			s0, s1 := r.Strides.Dim(0), r.Strides.Dim(1)
			r.Shape = shape.Must(dims[1], dims[0], columns)
			r.Strides.Set(0, s1)
			r.Strides.Set(1, s0)
		}
	}
	a.Out[0] = f(padded, columns)
	return a
}

// A product with the steps after it has the bits of a MatMul and an operation for each step,
// for every format, layout and alignment of the weights.
func TestProductsEqualParts(t *testing.T) {
	es := executors(t)
	gap := productCase{dims: []int{5}, n: [3]int{6, 0, 3}, biased: [3]bool{true, false, true}, scales: [3]float32{1, 2, 3}, residual: true}
	for _, d := range op.MatMul.Inputs()[1].Formats.List() {
		k := 2 * d.BlockSize()
		if d.IsScalar() {
			k = 33
		}
		for i, c := range productCases {
			// The matrices have one format, or three.
			for _, formats := range [][3]dtype.DType{{d, d, d}, {dtype.BF16, d, dtype.F32}, {d, dtype.F32, d}} {
				t.Run(name(formats, i), func(t *testing.T) {
					for _, exact := range []bool{true, false} {
						a := c.args(op.Project, formats, k)
						a.Exact = exact
						equalsParts(t, es, op.Project, a)
						a = c.args(op.GatedProject, formats, k)
						a.Exact = exact
						equalsParts(t, es, op.GatedProject, a)
						a.Act = op.GELU
						equalsParts(t, es, op.GatedProject, a)
					}
				})
			}
		}
		t.Run(name(d, " after a gap"), func(t *testing.T) {
			equalsParts(t, es, op.Project, gap.args(op.Project, [3]dtype.DType{d, d, d}, k))
		})
	}
}

// The bits of a row depend on neither the other rows nor their number.
func TestProductRowsAreIndependent(t *testing.T) {
	es := executors(t)
	c := productCases[4]
	c.dims = []int{70}
	for _, d := range []dtype.DType{dtype.F32, dtype.F16, dtype.Q4_K} {
		for i, id := range []op.ID{op.Project, op.GatedProject, op.Project, op.GatedProject} {
			a := c.args(id, [3]dtype.DType{d, d, d}, 256)
			a.Exact = i < 2
			all := execute(t, es, id, a)
			n := a.Out[0].Shape.Dim(1)
			for r := 0; r < 70; r += 23 {
				one := a
				for _, o := range []*op.Operand{&one.In[0], &one.In[7], &one.Out[0]} {
					if !o.IsZero() {
						o.Offset += r * o.Strides.Dim(0)
						o.Shape.Set(0, 1)
					}
				}
				equal(t, execute(t, es, id, one), all[r*n:][:n])
			}
		}
	}
}

// The output may be the memory of the residual.
func TestProjectOverItsResidual(t *testing.T) {
	es := executors(t)
	a := productCases[1].args(op.Project, [3]dtype.DType{dtype.F32, dtype.F32, dtype.F32}, 33)
	want := execute(t, es[:1], op.Project, a)
	residual := a.In[7].Mem.Host
	for _, e := range es {
		setMem(&a.In[7], 0, residual)
		a.Out[0] = a.In[7]
		w := withWorkspace(t, e, op.Project, a)
		if err := e.Execute(bg, op.Project, &w); err != nil {
			t.Fatal(err)
		}
		equal(t, read(a.Out[0]), want)
	}
}

// The residual must start on a multiple of 4 bytes, because it is viewed as f32.
func TestProjectChecksItsResidual(t *testing.T) {
	e := executors(t)[0]
	a := withWorkspace(t, e, op.Project, productCases[1].args(op.Project, [3]dtype.DType{dtype.F32, dtype.F32, dtype.F32}, 33))
	setMem(&a.In[7], 2, a.In[7].Mem.Host)
	wantError(t, e, op.Project, a, nil, "the residual does not start on a multiple of 4 bytes")
}

// quickError bounds the normalised error of products of activations of 8 bits.
const quickError = 5e-4

// A value of each kind of product is what the comment of the operation says, in float64.
func TestProductsInFloat64(t *testing.T) {
	es := executors(t)
	c := productCases[4]
	for _, biasFirst := range []bool{false, true} {
		c.biasFirst = biasFirst
		// factor returns the product of matrix i with its scale and its bias.
		factor := func(a *op.Args, i int, bias op.Place) []float64 {
			m := reference.Args(op.Params{}, op.Operand{}, a.In[0], a.In[1+i])
			y, b, s := reference.Result(op.MatMul, &m), read(*a.At(bias + op.Place(i))), float64(a.Scales[i])
			for j := range y {
				if b := b[j%len(b)]; biasFirst {
					y[j] = (y[j] + b) * s
				} else {
					y[j] = y[j]*s + b
				}
			}
			return y
		}
		formats := [3]dtype.DType{dtype.Q8_0, dtype.F16, dtype.F32}
		a := c.args(op.Project, formats, 64)
		want := read(a.In[7])
		column, n := 0, a.In[7].Shape.Dim(-1)
		for i := range 3 {
			y, ni := factor(&a, i, 4), c.n[i]
			for j, v := range y {
				want[j/ni*n+column+j%ni] += v
			}
			column += ni
		}
		a.Exact = true
		closeTo(t, execute(t, es, op.Project, a), want, 1e-12)
		a.Exact = false
		closeTo(t, execute(t, es, op.Project, a), want, quickError)

		a = c.args(op.GatedProject, formats, 64)
		gate, up := factor(&a, 0, 3), factor(&a, 1, 3)
		for i, g := range gate {
			up[i] *= g / (1 + math.Exp(-g))
		}
		a.Exact = true
		closeTo(t, execute(t, es, op.GatedProject, a), up, 1e-12)
		a.Exact = false
		closeTo(t, execute(t, es, op.GatedProject, a), up, quickError)
	}
}

// BenchmarkProject compares the product of a layer's queries, keys and values, with biases,
// and that of its output, with a residual, with operations for their parts.
func BenchmarkProject(b *testing.B) {
	for _, c := range []struct {
		name string
		productCase
	}{
		{"qkv", productCase{n: [3]int{1024, 256, 256}, biased: [3]bool{true, true, true}, scales: [3]float32{1, 1, 1}}},
		{"residual", productCase{n: [3]int{1024}, scales: [3]float32{1, 1, 1}, residual: true}},
	} {
		benchmarkProduct(b, c.name, op.Project, c.productCase)
	}
}

// BenchmarkGatedProject compares the product of a layer's gate and up with operations for its
// parts.
func BenchmarkGatedProject(b *testing.B) {
	benchmarkProduct(b, "swiglu", op.GatedProject, productCase{n: [3]int{1024, 1024}, scales: [3]float32{1, 1, 1}})
}

// benchmarkProduct runs an operation and its parts, on prepared operands.
func benchmarkProduct(b *testing.B, label string, id op.ID, c productCase) {
	const k = 1024
	for _, d := range []dtype.DType{dtype.F32, dtype.Q4_K} {
		for _, m := range []int{1, 32} {
			c.dims = []int{m}
			for _, threads := range []int{1, 2} {
				b.Run(name(label, "/", d, "/m=", m, "/lanes=", threads), func(b *testing.B) {
					tm := team.New(threads)
					defer tm.Close()
					e := NewExecutor(tm)
					a := withWorkspace(b, e, id, c.args(id, [3]dtype.DType{d, d, d}, k))
					apart, _ := partsOf(b, e, id, &a)
					for _, c := range []struct {
						name  string
						steps *steps
					}{{"composite", &steps{t: b, e: e, list: []step{{id, a}}}}, {"parts", apart}} {
						b.Run(c.name, func(b *testing.B) {
							for b.Loop() {
								c.steps.run(bg)
							}
							b.ReportMetric(float64(op.Cost(id, &a))*float64(b.N)/b.Elapsed().Seconds()/1e9, "G/s")
						})
					}
				})
			}
		}
	}
}
