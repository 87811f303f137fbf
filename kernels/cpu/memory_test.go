package cpu

import (
	"bytes"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/core/conformance/reference"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/internal/team"
	"github.com/fucina-go/fucina/tests/countdown"
)

// wantError checks that Execute returns an error with the given text and does not change
// the output.
func wantError(t *testing.T, e *Executor, id op.ID, a op.Args, is error, says string) {
	t.Helper()
	before := bytes.Clone(a.Out[0].Mem.Host)
	err := e.Execute(context.Background(), id, &a)
	switch {
	case err == nil:
		t.Fatalf("%v: no error, want one that says %q", id, says)
	case is != nil && !errors.Is(err, is):
		t.Errorf("%v: error %q, want one that wraps %q", id, err, is)
	case !strings.Contains(err.Error(), says):
		t.Errorf("%v: error %q, want one that says %q", id, err, says)
	case !strings.HasPrefix(err.Error(), "cpu: ") || id.Valid() && strings.Contains(err.Error(), id.String()+": "):
		t.Errorf("%v: error %q, want one that names the package and leaves the operation to the caller", id, err)
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
	case op.RMSNorm:
		a.In[0], a.In[1], a.Out[0] = f(4, 6), f(6), f(4, 6)
	case op.RoPE:
		a.In[0], a.In[1], a.Out[0] = f(3, 2, 8), f(3, 4, 2), f(3, 2, 8)
	case op.MatMul:
		a.In[0], a.In[1], a.Out[0] = f(3, 64), random(operand(dtype.Q8_0, plain, 5, 64), rng), f(3, 5)
	case op.Attention:
		a.In[0], a.In[1], a.In[2] = f(2, 4, 8), random(operand(dtype.F16, plain, 7, 2, 8), rng), random(operand(dtype.F16, plain, 7, 2, 6), rng)
		a.Out[0], a.Past, a.SoftCap = f(2, 4, 6), 3, 0
	case op.Argmax:
		a.In[0], a.Out[0] = f(4, 6), operand(dtype.I32, plain, 4)
	default:
		for i := range id.Inputs() {
			a.In[i] = f(4, 6)
		}
		a.Out[0] = f(4, 6)
	}
	return withWorkspace(t, e, id, a)
}

// Execute refuses an operand or a workspace that is smaller than the arguments require, and
// changes nothing.
func TestMemoryIsChecked(t *testing.T) {
	e := executors(t)[2]
	faults := []struct {
		name string
		f    func(o *op.Operand)
	}{
		{"no host memory", func(o *op.Operand) { o.Mem = op.Mem{} }},
		{"no host memory, but a device's", func(o *op.Operand) { o.Mem = op.Mem{ID: 7, Len: len(o.Mem.Host)} }},
		{"a byte short", func(o *op.Operand) { o.Mem = o.Mem.Slice(0, o.Mem.Len-1) }},
		{"fewer bytes than said", func(o *op.Operand) { o.Mem.Host = o.Mem.Host[:o.Mem.Len-1] }},
		{"fewer bytes said than there", func(o *op.Operand) { o.Mem.Len-- }},
		{"negative length", func(o *op.Operand) { o.Mem.Len = -1 }},
		{"offset", func(o *op.Operand) { o.Offset = 1 }},
		{"large offset", func(o *op.Operand) { o.Offset = math.MaxInt }},
		{"negative offset", func(o *op.Operand) { o.Offset = -1 }},
	}
	for id := op.ID(1); id < op.Count; id++ {
		for _, fault := range faults {
			for i := -1; i < len(id.Inputs()); i++ {
				t.Run(name(id, " ", fault.name, i), func(t *testing.T) {
					a, p := sample(t, e, id), op.FirstOut
					if i >= 0 {
						p = op.Place(i)
					}
					fault.f(at(&a, p))
					says := ", "
					if strings.HasPrefix(fault.name, "no host memory") {
						says = " has no host memory"
					}
					wantError(t, e, id, a, nil, name("the ", id.Role(p), says))
				})
			}
		}
		if a := sample(t, e, id); len(a.Workspace.Host) > 0 {
			a.Workspace.Host = a.Workspace.Host[:len(a.Workspace.Host)-1]
			wantError(t, e, id, a, nil, "the workspace has")
			var o op.Operand
			setMem(&o, 4, bytes.Repeat([]byte{0}, a.Workspace.Len))
			a.Workspace = o.Mem
			wantError(t, e, id, a, nil, "the workspace does not start on a multiple of 8")
		}
		// The unchanged sample is accepted.
		a := sample(t, e, id)
		if err := e.Execute(context.Background(), id, &a); err != nil {
			t.Error(err)
		}
	}
	a := sample(t, e, op.Add)
	for _, id := range []op.ID{0, op.Count, 255} {
		wantError(t, e, id, a, provider.ErrUnsupported, name("operation ", int(id)))
		if e.Plan(id, &a).Supported {
			t.Errorf("Plan accepts operation %d", id)
		}
	}
}

// Operands that are viewed as f32 are refused if they do not start on a multiple of 4
// bytes. Other operands need no alignment.
func TestAlignment(t *testing.T) {
	e := executors(t)[0]
	for id := op.ID(1); id < op.Count; id++ {
		places := []op.Place{op.FirstOut}
		for i := range id.Inputs() {
			places = append(places, op.Place(i))
		}
		for _, p := range places {
			a := sample(t, e, id)
			setMem(at(&a, p), 2, at(&a, p).Mem.Host)
			if slices.Contains(kernels[id].aligned, p) {
				wantError(t, e, id, a, nil, name("the ", id.Role(p), " does not start on a multiple of 4 bytes"))
			} else if err := e.Execute(bg, id, &a); err != nil {
				t.Error(err)
			}
		}
	}
	// A copy between f32 and blocks views the f32 operand as f32.
	a := op.Args{NIn: 1, Out: [op.MaxOut]op.Operand{operand(dtype.F32, plain, 2, 32)}}
	a.In[0] = random(operand(dtype.Q8_0, plain, 2, 32), newRand())
	setMem(&a.Out[0], 2, a.Out[0].Mem.Host)
	wantError(t, e, op.Copy, a, nil, "the destination does not start")
	a.In[0], a.Out[0] = random(operand(dtype.F32, plain, 2, 32), newRand()), operand(dtype.Q8_0, plain, 2, 32)
	setMem(&a.In[0], 2, a.In[0].Mem.Host)
	wantError(t, e, op.Copy, a, nil, "the source does not start")
}

// The error of a row number outside the table has the number, however large it is.
func TestRowNumbersAreChecked(t *testing.T) {
	e := executors(t)[0]
	for _, tt := range []struct {
		ids  op.Operand
		says string
	}{
		{ofInts(dtype.I32, 4, 5, 1), "cpu: ids[1] is 5, want a row from 0 to 4 of the table's 5 rows"},
		{ofInts(dtype.I64, 0, 0, -1), "ids[2] is -1"},
		{ofInts(dtype.I64, 1<<32, 0, 0), "ids[0] is 4294967296"},
	} {
		a := sample(t, e, op.GetRows)
		a.In[1] = tt.ids
		wantError(t, e, op.GetRows, a, nil, tt.says)
	}
}

// A row number that changes after the check is an error too, with which the kernel ends: it
// reads no memory outside the table. The rows that are gathered overwrite the next ids here.
func TestRowNumbersThatChange(t *testing.T) {
	const rows = 3 * 1024
	all := executors(t)
	for _, e := range []*Executor{all[0], all[3]} { // those of one lane
		a := op.Args{NIn: 2, NOut: 1}
		a.In[0] = reference.Of([]float32{2, 3}, 2, 1) // the bits of 2 are 1<<30
		a.In[1] = operand(dtype.I32, plain, rows)
		a.Out[0] = operand(dtype.F32, plain, rows, 1)
		setMem(&a.In[1], 0, make([]byte, 4*(rows+1)))
		a.Out[0].Mem, a.Out[0].Offset = a.In[1].Mem, 1
		err := e.Execute(context.Background(), op.GetRows, &a)
		if err == nil || !strings.Contains(err.Error(), "ids[1] is 1073741824, want a row from 0 to 1") {
			t.Errorf("error %v", err)
		}
	}
}

// An operation whose workspace exceeds any memory is declined, and the size does not
// overflow.
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

// FuzzExecute runs arguments that the contract accepts. The operation is refused because of
// its memory, or stays inside the memory: slices end with the operands' memory, so that an
// access outside panics, and the inputs and the bytes between the output's elements do not
// change.
func FuzzExecute(f *testing.F) {
	for id := op.ID(1); id < op.Count; id++ {
		f.Add(uint8(id), uint8(0), uint8(0), 2, 3, 3, 1, 0, 7)
		f.Add(uint8(id), uint8(3), uint8(dtype.F16), -1, math.MaxInt>>23+1, math.MaxInt/2+1, 0, -5, math.MaxInt>>30+1)
		f.Add(uint8(id), uint8(1), uint8(dtype.Q4_K), 1, 256, 0, 0, 1, 0)
		f.Add(uint8(id), uint8(128), uint8(0), 1, 5, 1, 1, 0, 0)
		f.Add(uint8(id), uint8(160), uint8(0), 2, 2, 3, 1, 0, 0)
		f.Add(uint8(id), uint8(224), uint8(0), 2, 2, 1, 3, 0, 3)
		f.Add(uint8(id), uint8(32), uint8(dtype.BF16), 3, 4, 0, 1, 2, 1)
	}
	tm := team.New(2)
	defer tm.Close()
	e := NewExecutor(tm)
	e.grain = 1
	f.Fuzz(func(t *testing.T, kind, which, d uint8, dim0, dim1, stride0, stride1, offset, param int) {
		id := op.ID(kind)%(op.Count-1) + 1
		a := sample(t, e, id)
		// Change one operand, or all of them alike, because many operations need equal
		// operands.
		for i := range id.Inputs() {
			if int(which)%4 == i || which >= 128 {
				mutate(&a.In[i], d, dim0, dim1, stride0, stride1, offset)
			}
		}
		if int(which)%4 == 3 || which >= 192 {
			mutate(&a.Out[0], d, dim0, dim1, stride0, stride1, offset)
		}
		if param&1 != 0 {
			a.Past, a.Window = param, param>>1
		}
		if which&32 != 0 {
			// Use the output that the contract infers, with memory that may be too small.
			mem := a.Out[0].Mem
			if r := op.Infer(id, &a); !r.OK() {
				return
			}
			a.Out[0].Mem = mem
		}
		if r := op.Check(id, &a); !r.OK() {
			return
		}
		plan := e.Plan(id, &a)
		if !plan.Supported || plan.Workspace > 1<<24 {
			return
		}
		var o op.Operand
		setMem(&o, 0, make([]byte, plan.Workspace))
		a.Workspace = o.Mem
		var in [op.MaxIn][]byte
		for i := range a.NIn {
			in[i] = bytes.Clone(a.In[i].Mem.Host)
		}
		before := bytes.Clone(a.Out[0].Mem.Host)
		// A few broadcast elements may cost more than a test has time for.
		err := e.Execute(countdown.After(1000), id, &a)
		if err == nil || errors.Is(err, context.Canceled) {
			reference.Erase(&a.Out[0], before)
		}
		if !bytes.Equal(a.Out[0].Mem.Host, before) {
			t.Errorf("%v, %v: bytes outside of the output's elements have changed", id, err)
		}
		for i := range a.NIn {
			if !bytes.Equal(a.In[i].Mem.Host, in[i]) {
				t.Errorf("%v: input %d has changed", id, i)
			}
		}
	})
}

// mutate changes the description of an operand.
func mutate(o *op.Operand, d uint8, dim0, dim1, stride0, stride1, offset int) {
	if d != 0 {
		o.DType = dtype.DType(d)
	}
	o.Shape.Set(0, dim0)
	o.Shape.Set(o.Shape.Rank()-1, dim1)
	o.Strides.Set(0, stride0)
	o.Strides.Set(o.Strides.Rank()-1, stride1)
	o.Offset = offset
}
