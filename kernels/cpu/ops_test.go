package cpu

import (
	"context"
	"math"
	"sync/atomic"
	"testing"

	"github.com/fucina-go/fucina/core/conformance/reference"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
)

// pointwiseOps returns the operations of the table pointwise.
func pointwiseOps() []op.ID {
	var list []op.ID
	for id := range op.Count {
		if pointwise[id].loop != nil {
			list = append(list, id)
		}
	}
	return list
}

// The operations that accept an output over an input give the same result there as in other
// memory.
func TestInPlace(t *testing.T) {
	es, rng := executors(t), newRand()
	x := random(operand(dtype.F32, plain, 6, 4, 32), rng)
	for _, id := range append(pointwiseOps(), op.Softmax, op.RMSNorm, op.RoPE) {
		for _, mode := range []op.RoPEMode{op.RoPEInterleaved, op.RoPENeoX} {
			a := op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.F32, plain, 6, 4, 32)}, Params: op.Params{Scale: 1.5, SoftCap: 2, Eps: 1e-5, Mode: mode}}
			a.In[0] = x
			switch {
			case id == op.RMSNorm:
				a.In[1] = random(operand(dtype.F32, plain, 32), rng)
			case id == op.RoPE:
				a.In[1] = random(operand(dtype.F32, plain, 6, 12, 2), rng)
			case len(id.Inputs()) > 1:
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

// Operations give the same bits on any number of lanes and with the smallest tasks and
// pieces, and the results are close to the reference.
func TestLanes(t *testing.T) {
	es, rng := executors(t), newRand()
	f := func(l reference.Layout, dims ...int) op.Operand { return random(operand(dtype.F32, l, dims...), rng) }
	cache := func(d dtype.DType, dims ...int) op.Operand { return random(operand(d, padded, dims...), rng) }
	for _, c := range []struct {
		op   op.ID
		p    op.Params
		out  op.Operand
		in   []op.Operand
		most float64
	}{
		{op.Mul, op.Params{}, operand(dtype.F32, spread, 2, 2*segment+3), []op.Operand{f(spread, 2, 2*segment+3), f(broadcast, 2, 2*segment+3)}, 1e-14},
		{op.Add, op.Params{}, operand(dtype.F32, plain, segment+3), []op.Operand{f(broadcast, segment+3), f(plain, segment+3)}, 1e-14},
		{op.Add, op.Params{}, operand(dtype.F32, spread, segment+3), []op.Operand{f(broadcast, segment+3), f(broadcast, segment+3)}, 1e-14},
		{op.GeGLU, op.Params{}, operand(dtype.F32, padded, 7, 5, 3), []op.Operand{f(reversed, 7, 5, 3), f(plain, 7, 5, 3)}, 1e-14},
		{op.RMSNorm, op.Params{Eps: 1e-3}, operand(dtype.F32, padded, 53, 8), []op.Operand{f(broadcast, 53, 8), f(spread, 8)}, 1e-13},
		{op.Softmax, op.Params{Scale: 9}, operand(dtype.F32, padded, 2, 3, 33), []op.Operand{f(padded, 2, 3, 33)}, 1e-13},
		{op.RoPE, op.Params{Mode: op.RoPENeoX}, operand(dtype.F32, padded, 5, 3, 80), []op.Operand{f(padded, 5, 3, 80), f(plain, 5, 16, 2)}, 1e-13},
		{op.Copy, op.Params{}, operand(dtype.F16, reversed, 2, 3, 91), []op.Operand{f(spread, 2, 3, 91)}, 0},
		{op.Copy, op.Params{}, operand(dtype.F32, reversed, 4, 512), []op.Operand{random(operand(dtype.Q6_K, spread, 4, 512), rng)}, 0},
		{op.MatMul, op.Params{}, operand(dtype.F32, padded, 2, 66, 2), []op.Operand{f(padded, 2, 66, 37), f(reversed, 2, 2, 37)}, 1e-8},
		{op.MatMul, op.Params{}, operand(dtype.F32, padded, 70, 2), []op.Operand{f(padded, 70, 256), random(operand(dtype.Q4_K, plain, 2, 256), rng)}, 1e-8},
		{op.MatMul, op.Params{}, operand(dtype.F32, plain, 3, 2, 23), []op.Operand{f(broadcast, 3, 2, 64), random(operand(dtype.BF16, padded, 23, 64), rng)}, 1e-8},
		{
			op.Attention, op.Params{Scale: 3}, operand(dtype.F32, padded, 21, 4, 24),
			[]op.Operand{f(padded, 21, 4, 16), cache(dtype.F32, 150, 1, 16), cache(dtype.F16, 150, 1, 24), positions(100, 21)}, 1e-9,
		},
		{
			op.Attention, op.Params{Scale: 3, Window: 50, SoftCap: 2}, operand(dtype.F32, padded, 20, 6, 32),
			[]op.Operand{f(padded, 20, 6, 32), cache(dtype.Q8_0, 200, 2, 32), cache(dtype.F32, 200, 2, 32), positions(130, 20)}, 1e-9,
		},
	} {
		a := op.Args{Params: c.p}
		a.Out[0], a.NIn = c.out, copy(a.In[:], c.in)
		t.Run(name(c.op, c.out.Shape, c.in[len(c.in)-1].DType), func(t *testing.T) {
			closeTo(t, execute(t, es, c.op, exact(a)), reference.Result(c.op, &a), c.most)
			if !a.In[1].IsZero() && !a.In[1].DType.IsScalar() {
				c.most = quickError
			}
			closeTo(t, execute(t, es, c.op, a), reference.Result(c.op, &a), c.most)
		})
	}
}

// The reported row number is the one at the lowest position, whichever lane finds one
// first. The executor does not keep the status word.
func TestReportsOverLanes(t *testing.T) {
	const rows, dim, first = 4, 3, 60
	ids := make([]int64, 200)
	for i := first; i < len(ids); i++ {
		ids[i] = int64(i)
	}
	for _, d := range []dtype.DType{dtype.U16, dtype.I32, dtype.I64} {
		for _, e := range executors(t) {
			var status atomic.Uint64
			a := op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.F32, padded, len(ids), dim)}, Status: &status}
			a.In[0], a.In[1] = random(operand(dtype.F32, plain, rows, dim), newRand()), ofInts(d, ids...)
			got := execute(t, []*Executor{e}, op.GetRows, a)
			equal(t, got, reference.Result(op.GetRows, &a))
			if place, index, value := op.Reported(status.Load()); place != 1 || index != first || value != first {
				t.Errorf("on %d lanes: row %d at position %d of input %d is reported, want row %d at position %[5]d of input 1", e.lanes, value, index, place, first)
			}
			if e.kernels[op.GetRows].(*getRows).status != nil {
				t.Error("the executor keeps the status word")
			}
		}
	}
}

// The bits of an element of the product depend on neither the other rows nor the other
// columns.
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

// Rows of weights from a file may start at any byte. The result has the same bits as with
// aligned rows.
func TestMatMulUnaligned(t *testing.T) {
	es, rng := executors(t), newRand()
	for _, d := range op.MatMul.Inputs()[1].Formats.List() {
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

// Rows of a gathered table may start at any byte.
func TestGetRowsUnaligned(t *testing.T) {
	es, rng := executors(t), newRand()
	for _, d := range op.GetRows.Inputs()[0].Formats.List() {
		n := 2 * d.BlockSize()
		a := op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.F32, plain, 3, n)}}
		a.In[0], a.In[1] = random(operand(d, padded, 4, n), rng), ofInts(dtype.I32, 3, 0, 3)
		setMem(&a.In[0], 1, a.In[0].Mem.Host)
		a.NIn = 2
		equal(t, execute(t, es, op.GetRows, a), reference.Result(op.GetRows, &a))
	}
}

// The operands of elementwise operations and the weight of a norm may start at any byte.
func TestUnaligned(t *testing.T) {
	es, rng := executors(t), newRand()
	for _, id := range append(pointwiseOps(), op.RMSNorm) {
		a := op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.F32, plain, 35)}, Params: op.Params{Eps: 1e-5, Scale: 2, SoftCap: 2}}
		for i := range id.Inputs() {
			a.In[i] = random(operand(dtype.F32, plain, 35), rng)
		}
		last := &a.In[len(id.Inputs())-1]
		want := execute(t, es, id, a)
		for misalign := 1; misalign < 4; misalign++ {
			setMem(last, misalign, last.Mem.Host)
			equal(t, execute(t, es, id, a), want)
		}
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
