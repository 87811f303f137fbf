package cpu

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
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
	before := outputs(&a)
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
	if !reflect.DeepEqual(before, outputs(&a)) {
		t.Errorf("%v: an operation that failed wrote its output", id)
	}
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
		{"offset", func(o *op.Operand) { o.Offset++ }},
		{"large offset", func(o *op.Operand) { o.Offset = math.MaxInt }},
		{"negative offset", func(o *op.Operand) { o.Offset = -1 }},
	}
	for i, c := range samples {
		a := c.args(t, e)
		for _, p := range places(&a) {
			for _, fault := range faults {
				t.Run(name(c.op, i, " ", fault.name, " ", p), func(t *testing.T) {
					a := c.args(t, e)
					fault.f(a.At(p))
					says := ", "
					if strings.HasPrefix(fault.name, "no host memory") {
						says = " has no host memory"
					}
					wantError(t, e, c.op, a, nil, name("the ", c.op.Role(p), says))
				})
			}
		}
		if len(a.Workspace.Host) > 0 {
			a.Workspace.Host = a.Workspace.Host[:len(a.Workspace.Host)-1]
			wantError(t, e, c.op, a, nil, "the workspace has")
			var o op.Operand
			setMem(&o, 4, bytes.Repeat([]byte{0}, a.Workspace.Len))
			a.Workspace = o.Mem
			wantError(t, e, c.op, a, nil, "the workspace does not start on a multiple of 8")
		}
		// The unchanged sample is accepted.
		a = c.args(t, e)
		if err := e.Execute(context.Background(), c.op, &a); err != nil {
			t.Error(err)
		}
	}
	a := sampleOf(t, e, op.Add)
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
	for _, c := range samples {
		a := c.args(t, e)
		for _, p := range places(&a) {
			a := c.args(t, e)
			setMem(a.At(p), 2, a.At(p).Mem.Host)
			if slices.Contains(kernels[c.op].aligned, p) {
				wantError(t, e, c.op, a, nil, name("the ", c.op.Role(p), " does not start on a multiple of 4 bytes"))
			} else if err := e.Execute(bg, c.op, &a); err != nil {
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
		a := sampleOf(t, e, op.GetRows)
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
	a.NIn = 4
	a.In[3] = positions(0, 1)
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
	for i := range samples {
		f.Add(uint8(i), uint8(0), uint8(0), 2, 3, 3, 1, 0, 7)
		f.Add(uint8(i), uint8(3), uint8(dtype.F16), -1, math.MaxInt>>23+1, math.MaxInt/2+1, 0, -5, math.MaxInt>>30+1)
		f.Add(uint8(i), uint8(1), uint8(dtype.Q4_K), 1, 256, 0, 0, 1, 0)
		f.Add(uint8(i), uint8(128), uint8(0), 1, 5, 1, 1, 0, 0)
		f.Add(uint8(i), uint8(160), uint8(0), 2, 2, 3, 1, 0, 0)
		f.Add(uint8(i), uint8(224), uint8(0), 2, 2, 1, 3, 0, 3)
		f.Add(uint8(i), uint8(32), uint8(dtype.BF16), 3, 4, 0, 1, 2, 1)
	}
	tm := team.New(2)
	defer tm.Close()
	e := NewExecutor(tm)
	e.grain = 1
	f.Fuzz(func(t *testing.T, kind, which, d uint8, dim0, dim1, stride0, stride1, offset, param int) {
		c := samples[int(kind)%len(samples)]
		id, a := c.op, c.args(t, e)
		// Change one operand, or all of them alike, because many operations need equal
		// operands.
		for _, p := range places(&a) {
			if o := a.At(p); p < op.FirstOut && (int(which)%4 == int(p)%4 || which >= 128) ||
				p >= op.FirstOut && (int(which)%4 == 3 || which >= 192) {
				mutate(o, d, dim0, dim1, stride0, stride1, offset)
			}
		}
		if param&1 != 0 {
			a.Window = param >> 1
			for i, role := range id.Inputs() {
				if o := &a.In[i]; role.Index && a.Has(op.Place(i)) && o.DType == dtype.I32 {
					binary.LittleEndian.PutUint32(o.Mem.Host, uint32(param))
				}
			}
		}
		if param&2 != 0 {
			a.Status = new(atomic.Uint64)
		}
		if which&32 != 0 {
			// Use the outputs that the contract infers, with memory that may be too small.
			out := a.Out
			if r := op.Infer(id, &a); !r.OK() {
				return
			}
			for i := range out {
				a.Out[i].Mem = out[i].Mem
			}
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
		before := outputs(&a)
		// A few broadcast elements may cost more than a test has time for.
		err := e.Execute(countdown.After(1000), id, &a)
		for i := range a.NOut {
			out := &a.Out[i]
			if err == nil || errors.Is(err, context.Canceled) {
				reference.Erase(out, before[i])
			}
			if !bytes.Equal(out.Mem.Host, before[i]) {
				t.Errorf("%v, %v: bytes outside of the elements of output %d have changed", id, err, i)
			}
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
