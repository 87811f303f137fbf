package cpu

import (
	"bytes"
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/internal/team"
)

// wantError checks that Execute refuses the operation, names what is wrong, and
// leaves the output alone.
func wantError(t *testing.T, e *Executor, id op.ID, a op.Args, is error, says string) {
	t.Helper()
	if a.NIn == 0 {
		for i, o := range a.In {
			if !o.Mem.IsZero() {
				a.NIn = i + 1
			}
		}
	}
	before := bytes.Clone(a.Out[0].Mem.Host)
	err := e.Execute(context.Background(), id, &a)
	switch {
	case err == nil:
		t.Fatalf("%v: no error, want one that says %q", id, says)
	case is != nil && !errors.Is(err, is):
		t.Errorf("%v: error %q, want one that wraps %q", id, err, is)
	case !strings.Contains(err.Error(), says):
		t.Errorf("%v: error %q, want one that says %q", id, err, says)
	case !strings.HasPrefix(err.Error(), "cpu: "):
		t.Errorf("%v: error %q, want one that names the package", id, err)
	}
	if !bytes.Equal(before, a.Out[0].Mem.Host) {
		t.Errorf("%v: an operation that failed wrote its output", id)
	}
}

// sample returns valid arguments of each operation.
func sample(t testing.TB, e *Executor, id op.ID) op.Args {
	rng := newRand()
	f := func(dims ...int) op.Operand { return random(operand(dtype.F32, plain, dims...), rng) }
	a := op.Args{Params: op.Params{Eps: 1e-5, Scale: 1, SoftCap: 30}}
	switch id {
	case op.Copy:
		a.In[0], a.Out[0] = f(4, 6), operand(dtype.F16, plain, 4, 6)
	case op.GetRows:
		a.In[0], a.In[1], a.Out[0] = f(5, 8), ofInts(dtype.I32, 4, 0, 1), f(3, 8)
	case op.Scale, op.SoftCap:
		a.In[0], a.Out[0] = f(4, 6), f(4, 6)
	case op.Add, op.Mul, op.SwiGLU, op.GeGLU:
		a.In[0], a.In[1], a.Out[0] = f(4, 6), f(4, 6), f(4, 6)
	case op.RMSNorm:
		a.In[0], a.In[1], a.Out[0] = f(4, 6), f(6), f(4, 6)
	case op.RoPE:
		a.In[0], a.In[1], a.Out[0] = f(3, 2, 8), f(3, 4, 2), f(3, 2, 8)
	case op.MatMul:
		a.In[0], a.In[1], a.Out[0] = f(3, 64), random(operand(dtype.Q8_0, plain, 5, 64), rng), f(3, 5)
	case op.Attention:
		a.In[0], a.In[1], a.In[2] = f(2, 4, 8), random(operand(dtype.F16, plain, 7, 2, 8), rng), random(operand(dtype.F16, plain, 7, 2, 6), rng)
		a.Out[0], a.Past, a.SoftCap = f(2, 4, 6), 3, 0
	case op.Softmax:
		a.In[0], a.Out[0] = f(4, 6), f(4, 6)
	case op.Argmax:
		a.In[0], a.Out[0] = f(4, 6), operand(dtype.I32, plain, 4)
	}
	return withWorkspace(t, e, id, a)
}

// Whatever is wrong with one operand, Execute says so and touches nothing; what
// can be seen without the memory, Plan declines.
func TestRefusals(t *testing.T) {
	e := executors(t)[2]
	faults := []struct {
		name string
		plan bool // Plan sees it
		f    func(o *op.Operand)
	}{
		{"no memory", false, func(o *op.Operand) { o.Mem = op.Mem{ID: 7, Len: len(o.Mem.Host)} }},
		{"a byte short", false, func(o *op.Operand) { o.Mem.Host = o.Mem.Host[:len(o.Mem.Host)-1] }},
		{"offset", false, func(o *op.Operand) { o.Offset = 1 }},
		{"large offset", false, func(o *op.Operand) { o.Offset = math.MaxInt }},
		{"negative offset", true, func(o *op.Operand) { o.Offset = -1 }},
		{"negative stride", true, func(o *op.Operand) { o.Strides.Set(0, -1) }},
		{"huge stride", false, func(o *op.Operand) { o.Strides.Set(0, math.MaxInt/8) }},
		{"overflowing stride", true, func(o *op.Operand) { o.Strides.Set(0, math.MaxInt) }},
		{"invalid dtype", true, func(o *op.Operand) { o.DType = dtype.Invalid }},
		{"dtype out of range", true, func(o *op.Operand) { o.DType = 200 }},
		{"zero shape", true, func(o *op.Operand) { o.Shape = shape.Shape{} }},
		{"empty axis", true, func(o *op.Operand) { o.Shape.Set(0, 0) }},
		{"negative axis", true, func(o *op.Operand) { o.Shape.Set(0, -3) }},
		{"overflowing shape", true, func(o *op.Operand) { o.Shape.Set(0, math.MaxInt) }},
		{"rank of strides", true, func(o *op.Operand) { o.Strides, _ = o.Strides.Append(1) }},
		{"rank", true, func(o *op.Operand) {
			o.Shape, _ = o.Shape.Append(o.DType.BlockSize())
			o.Strides, _ = o.Strides.Append(1)
		}},
	}
	for id := op.ID(1); id < op.Count; id++ {
		for _, fault := range faults {
			for i := -1; i < sampleInputs(id); i++ {
				t.Run(name(id, " ", fault.name, i), func(t *testing.T) {
					a := sample(t, e, id)
					o := &a.Out[0]
					if i >= 0 {
						o = &a.In[i]
					}
					fault.f(o)
					if a.Out[0].Mem.Host == nil {
						// A stride that no memory has also may overlap.
						if err := e.Execute(context.Background(), id, &a); err == nil {
							t.Error("no error")
						}
						return
					}
					wantError(t, e, id, a, nil, id.String())
					if fault.plan && e.Plan(id, &a).Supported {
						t.Error("Plan accepts what Execute refuses")
					}
				})
			}
		}
		a := sample(t, e, id)
		a.NIn = 4
		wantError(t, e, id, a, shape.ErrShapeMismatch, "inputs")
		a.NIn = -1
		wantError(t, e, id, a, shape.ErrShapeMismatch, "inputs")
		if len(a.Workspace.Host) > 0 {
			a = sample(t, e, id)
			a.Workspace.Host = a.Workspace.Host[:len(a.Workspace.Host)-1]
			wantError(t, e, id, a, nil, "workspace")
			a = sample(t, e, id)
			setMem(&a.In[3], 1, a.Workspace.Host)
			a.Workspace, a.In[3] = a.In[3].Mem, op.Operand{}
			wantError(t, e, id, a, nil, "multiple of 8")
		}
		// The sample itself is fine.
		a = sample(t, e, id)
		if err := e.Execute(context.Background(), id, &a); err != nil {
			t.Error(err)
		}
	}
	a := sample(t, e, op.Add)
	wantError(t, e, 0, a, provider.ErrUnsupported, "0")
	wantError(t, e, op.Count, a, provider.ErrUnsupported, "operation")
	if e.Plan(op.Count, &a).Supported {
		t.Error("Plan accepts an unknown operation")
	}
}

func sampleInputs(id op.ID) int {
	switch id {
	case op.Copy, op.Scale, op.SoftCap, op.Softmax, op.Argmax:
		return 1
	case op.Attention:
		return 3
	}
	return 2
}

func TestRefusedArguments(t *testing.T) {
	e := executors(t)[0]
	nan := shape.ErrShapeMismatch
	tests := []struct {
		name string
		op   op.ID
		f    func(a *op.Args)
		is   error
		says string
	}{
		{"id past the rows", op.GetRows, func(a *op.Args) { a.In[1] = ofInts(dtype.I32, 4, 5, 1) }, nil, "ids[1] is 5, want a row from 0 to 4 of the table's 5 rows"},
		{"negative id", op.GetRows, func(a *op.Args) { a.In[1] = ofInts(dtype.I64, 0, 0, -1) }, nil, "ids[2] is -1"},
		{"large id", op.GetRows, func(a *op.Args) { a.In[1] = ofInts(dtype.I64, 1<<32, 0, 0) }, nil, "ids[0] is 4294967296"},
		{"ids of f32", op.GetRows, func(a *op.Args) { a.In[1].DType = dtype.F32 }, provider.ErrUnsupported, "ids"},
		{"table of i32", op.GetRows, func(a *op.Args) { a.In[0].DType = dtype.I32 }, provider.ErrUnsupported, "table"},
		{"out of f16", op.Add, func(a *op.Args) { a.Out[0].DType = dtype.F16 }, provider.ErrUnsupported, "out is f16"},
		{"shapes", op.Add, func(a *op.Args) { a.In[1] = operand(dtype.F32, plain, 4, 5) }, nan, "right [4 5]"},
		{"weight", op.RMSNorm, func(a *op.Args) { a.In[1] = operand(dtype.F32, plain, 5) }, nan, "weight [5]"},
		{"mode", op.RoPE, func(a *op.Args) { a.Mode = 9 }, provider.ErrUnsupported, "mode 9"},
		{"row length", op.MatMul, func(a *op.Args) { a.In[0] = operand(dtype.F32, plain, 3, 32) }, nan, "one length"},
		// Rows that are no whole number of blocks.
		{"partial block", op.MatMul, func(a *op.Args) {
			a.In[0], a.In[1] = operand(dtype.F32, plain, 3, 896), operand(dtype.Q8_0, plain, 5, 896)
			a.In[1].DType = dtype.Q4_K
		}, shape.ErrInvalidShape, "multiple of 256"},
		{"activation format", op.MatMul, func(a *op.Args) { a.In[1].DType = dtype.Q8_1 }, provider.ErrUnsupported, "q8_1"},
		{"integer weights", op.MatMul, func(a *op.Args) { a.In[1].DType = dtype.I8 }, provider.ErrUnsupported, "i8"},
		{"columns", op.MatMul, func(a *op.Args) { a.Out[0] = operand(dtype.F32, plain, 3, 6) }, nan, "out [3 6]"},
		{"batch", op.MatMul, func(a *op.Args) {
			a.In[1] = operand(dtype.Q8_0, plain, 2, 5, 64)
		}, nan, "want x [2"},
		{"strided x", op.MatMul, func(a *op.Args) { a.In[0] = operand(dtype.F32, reversed, 3, 64) }, provider.ErrUnsupported, "x has stride"},
		{"past", op.Attention, func(a *op.Args) { a.Past = 6 }, nan, "2 tokens after 6 past ones"},
		{"negative past", op.Attention, func(a *op.Args) { a.Past = -1 }, nan, "-1 past"},
		{"large past", op.Attention, func(a *op.Args) { a.Past = math.MaxInt }, nan, "past"},
		{"negative window", op.Attention, func(a *op.Args) { a.Window = -1 }, nan, "window"},
		{"heads", op.Attention, func(a *op.Args) {
			a.In[0], a.Out[0] = operand(dtype.F32, plain, 2, 3, 8), operand(dtype.F32, plain, 2, 3, 6)
		}, nan, "multiple of the 2 KV heads"},
		{"cache format", op.Attention, func(a *op.Args) { a.In[1].DType = dtype.BF16 }, provider.ErrUnsupported, "k is bf16"},
		{"partial block", op.Attention, func(a *op.Args) { a.In[1].DType = dtype.Q8_0 }, shape.ErrInvalidShape, "k: "},
		{"partial block of values", op.Attention, func(a *op.Args) { a.In[2].DType = dtype.Q8_0 }, shape.ErrInvalidShape, "v: "},
		{"unaligned out", op.Softmax, func(a *op.Args) { setMem(&a.Out[0], 2, a.Out[0].Mem.Host) }, nil, "out does not start on a multiple of 4"},
		// Writes through a view whose elements share memory.
		{"broadcast out", op.Add, func(a *op.Args) { a.Out[0].Strides.Set(0, 0) }, provider.ErrUnsupported, "share memory"},
		{"overlapping out", op.Copy, func(a *op.Args) { a.Out[0].Strides.Set(0, 5) }, provider.ErrUnsupported, "share memory"},
		{"overlapping rows", op.Softmax, func(a *op.Args) { a.Out[0].Strides.Set(0, 5) }, provider.ErrUnsupported, "share memory"},
		{"argmax format", op.Argmax, func(a *op.Args) { a.Out[0].DType = dtype.F32 }, provider.ErrUnsupported, "want i32"},
		{"argmax shape", op.Argmax, func(a *op.Args) { a.Out[0] = operand(dtype.I32, plain, 4, 6) }, nan, "want [4]"},
	}
	for _, test := range tests {
		t.Run(name(test.op, " ", test.name), func(t *testing.T) {
			a := sample(t, e, test.op)
			test.f(&a)
			wantError(t, e, test.op, a, test.is, test.says)
			if test.is != nil && e.Plan(test.op, &a).Supported {
				t.Error("Plan accepts what Execute refuses")
			}
		})
	}
}

// A workspace that no machine has is declined, and its size does not wrap.
func TestHugeWorkspace(t *testing.T) {
	e := NewExecutor(nil)
	const huge = math.MaxInt/64 + 1
	a := op.Args{NIn: 2}
	set := func(o *op.Operand, d dtype.DType, dims ...int) {
		o.DType, o.Shape = d, shape.Must(dims...)
		o.Strides = o.Shape.Contiguous()
	}
	set(&a.In[0], dtype.F32, 1, huge)
	set(&a.In[1], dtype.F16, 2, huge)
	set(&a.Out[0], dtype.F32, 1, 2)
	if p := e.Plan(op.MatMul, &a); p.Supported {
		t.Errorf("matmul: plan %+v", p)
	}
	a.NIn = 3
	set(&a.In[0], dtype.F32, 1, 2, huge)
	set(&a.In[1], dtype.F32, 1, 1, huge)
	set(&a.In[2], dtype.F32, 1, 1, huge)
	set(&a.Out[0], dtype.F32, 1, 2, huge)
	if p := e.Plan(op.Attention, &a); p.Supported {
		t.Errorf("attention: plan %+v", p)
	}
}

// FuzzExecute feeds geometries that nobody checked: the operation is refused or
// stays inside its operands. Slices end with the operands' memory, so that a step
// outside panics.
func FuzzExecute(f *testing.F) {
	for id := op.ID(1); id < op.Count; id++ {
		f.Add(uint8(id), uint8(0), uint8(0), 2, 3, 3, 1, 0, 7)
		f.Add(uint8(id), uint8(3), uint8(dtype.F16), -1, math.MaxInt>>23+1, math.MaxInt/2+1, 0, -5, math.MaxInt>>30+1)
		f.Add(uint8(id), uint8(1), uint8(dtype.Q4_K), 1, 256, 0, 0, 1, 0)
	}
	tm := team.New(2)
	defer tm.Close()
	e := NewExecutor(tm)
	e.grain = 1
	f.Fuzz(func(t *testing.T, kind, which, d uint8, dim0, dim1, stride0, stride1, offset, param int) {
		o := op.ID(kind)%(op.Count-1) + 1
		a := sample(t, e, o)
		target := &a.Out[0]
		if int(which)%4 < a.NIn {
			target = &a.In[int(which)%4]
		}
		if d != 0 {
			target.DType = dtype.DType(d)
		}
		target.Shape.Set(0, dim0)
		target.Shape.Set(target.Shape.Rank()-1, dim1)
		target.Strides.Set(0, stride0)
		target.Strides.Set(target.Strides.Rank()-1, stride1)
		target.Offset = offset
		if param&1 != 0 {
			a.Past, a.Window = param, param>>1
		}
		if p := e.Plan(o, &a); p.Supported && p.Workspace > 0 && p.Workspace < 1<<20 {
			a.Workspace.Host = make([]byte, p.Workspace)
		}
		_ = e.Execute(context.Background(), o, &a)
	})
}
