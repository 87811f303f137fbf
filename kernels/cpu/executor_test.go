package cpu

import (
	"context"
	"fmt"
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
	for id := op.ID(1); id < op.Count; id++ {
		a := sample(t, e, id)
		if n := testing.AllocsPerRun(20, func() {
			if !e.Plan(id, &a).Supported {
				t.Fatal("declined")
			}
			if err := e.Execute(bg, id, &a); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%v: %v allocations in a run, want 0", id, n)
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

// The executor keeps no operand reachable after Execute.
func TestNoReference(t *testing.T) {
	e := NewExecutor(nil)
	for id := op.ID(1); id < op.Count; id++ {
		a := sample(t, e, id)
		if err := e.Execute(bg, id, &a); err != nil {
			t.Fatal(err)
		}
	}
	m, at, r := e.kernels[op.MatMul].(*matMul), e.kernels[op.Attention].(*attention), e.kernels[op.RMSNorm].(*rmsNorm)
	c, g, p := e.kernels[op.Copy].(*copyKernel), e.kernels[op.GetRows].(*getRows), e.kernels[op.RoPE].(*rope)
	s, x, add := e.kernels[op.Softmax].(*softmax), e.kernels[op.Argmax].(*argmax), e.kernels[op.Add].(*elementwise)
	for what, held := range map[string]bool{
		"matmul":        m.x != nil || m.w != nil || m.direct != nil || m.out != nil,
		"attention":     at.q != nil || at.out != nil || at.k.bytes != nil || at.v.bytes != nil || at.k.direct != nil || at.v.direct != nil,
		"rms_norm":      r.x != nil || r.w != nil || r.weights != nil || r.out != nil,
		"copy":          c.x != nil || c.out != nil,
		"get_rows":      g.table != nil || g.ids != nil || g.out != nil || g.status != nil,
		"rope":          p.x != nil || p.table != nil || p.out != nil,
		"softmax":       s.x != nil || s.out != nil,
		"argmax":        x.x != nil || x.out != nil,
		"add":           add.x.mem != nil || add.y.mem != nil || add.out.mem != nil,
		"the workspace": e.scratch[0].workspace != nil,
	} {
		if held {
			t.Errorf("%s holds on to its operands", what)
		}
	}
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
