package cpu

import (
	"context"
	"fmt"
	"reflect"
	"sync/atomic"
	"testing"

	"github.com/fucina-go/fucina/core/conformance/reference"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/internal/team"
)

var bg = context.Background()

// Plan and Execute do not allocate on the Go heap.
func TestAllocations(t *testing.T) {
	tm := team.New(2)
	defer tm.Close()
	e := NewExecutor(tm)
	e.grain = 1
	for i, c := range samples {
		a := c.args(t, e)
		if n := testing.AllocsPerRun(20, func() {
			if !e.Plan(c.op, &a).Supported {
				t.Fatal("declined")
			}
			if err := e.Execute(bg, c.op, &a); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("sample %d, of %v: %v allocations in a run, want 0", i, c.op, n)
		}
	}
	// These are the paths that the samples do not take.
	rng := newRand()
	for _, from := range []dtype.DType{dtype.I64, dtype.F64, dtype.Q6_K} {
		for _, l := range []reference.Layout{plain, spread} {
			a := op.Args{NIn: 1, Out: [op.MaxOut]op.Operand{operand(dtype.F32, l, 3, 512)}}
			a.In[0] = random(operand(from, l, 3, 512), rng)
			if n := testing.AllocsPerRun(20, func() {
				if err := e.Execute(bg, op.Copy, &a); err != nil {
					t.Fatal(err)
				}
			}); n != 0 {
				t.Errorf("copy of %v %v: %v allocations in a run, want 0", from, l, n)
			}
		}
	}
}

// The executor keeps no operand reachable after Execute, and neither does a kernel, in any
// field.
func TestNoReference(t *testing.T) {
	e := NewExecutor(nil)
	for i, c := range samples {
		a := c.args(t, e)
		a.Status = new(atomic.Uint64)
		if err := e.Execute(bg, c.op, &a); err != nil {
			t.Fatal(err)
		}
		if where := pointer(reflect.ValueOf(e.kernels[c.op]).Elem()); where != "" {
			t.Errorf("after sample %d, of %v, the kernel keeps a reference in %s", i, c.op, where)
		}
	}
	if e.scratch[0].workspace != nil || e.ctx != nil || e.current != nil {
		t.Error("the executor keeps a workspace, a context or a kernel")
	}
}

// pointer returns the path of a field of v that refers to memory outside of v, or "" if there
// is none.
func pointer(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if where := pointer(v.Field(i)); where != "" {
				return "." + v.Type().Field(i).Name + where
			}
		}
	case reflect.Array:
		for i := range v.Len() {
			if where := pointer(v.Index(i)); where != "" {
				return name("[", i, "]", where)
			}
		}
	case reflect.Slice, reflect.Pointer, reflect.Interface, reflect.Map, reflect.UnsafePointer, reflect.Chan, reflect.String:
		if !v.IsZero() {
			return name(" (", v.Type(), ")")
		}
	}
	return ""
}

func ExampleExecutor() {
	e := NewExecutor(nil)
	of := func(d dtype.DType, mem []byte, dims ...int) op.Operand {
		s := shape.Must(dims...)
		return op.Operand{DType: d, Shape: s, Strides: s.Contiguous(), Mem: op.Mem{Host: mem, Len: len(mem)}}
	}
	// The bytes of 1 and -2 as bf16.
	a := op.Args{NIn: 1, Out: [op.MaxOut]op.Operand{of(dtype.I8, make([]byte, 2), 2)}}
	a.In[0] = of(dtype.BF16, []byte{0x80, 0x3f, 0x00, 0xc0}, 2)
	if err := e.Execute(bg, op.Copy, &a); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(int8(a.Out[0].Mem.Host[0]), int8(a.Out[0].Mem.Host[1]))

	// Row 2 of a table of two rows.
	a = op.Args{NIn: 2, Out: [op.MaxOut]op.Operand{of(dtype.F32, make([]byte, 8), 1, 2)}}
	a.In[0] = of(dtype.F32, make([]byte, 16), 2, 2)
	a.In[1] = of(dtype.I32, []byte{2, 0, 0, 0}, 1)
	fmt.Println(e.Execute(bg, op.GetRows, &a))
	// Output:
	// 1 -2
	// cpu: ids[0] is 2, want a row from 0 to 1 of the table's 2 rows
}
