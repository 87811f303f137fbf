package exec

import (
	"strings"
	"testing"

	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/shape"
)

func TestGates(t *testing.T) {
	defaults := new([op.Count]int64)
	defaults[op.MatMul], defaults[op.Add] = 100, 7
	for _, tt := range []struct {
		all, matMul string
		add, mm     int64
		err         string
	}{
		{add: 7, mm: 100},
		{all: "5", add: 5, mm: 5},
		{all: "0", add: 0, mm: 0},
		{matMul: "9", add: 7, mm: 9},
		{all: "5", matMul: "9", add: 5, mm: 9},
		{all: "many", err: `FUCINA_GPU_MIN_WORK is "many"`},
		{all: "-1", err: `FUCINA_GPU_MIN_WORK is "-1"`},
		{matMul: "1e3", err: `FUCINA_GPU_MIN_WORK_MATMUL is "1e3"`},
	} {
		t.Setenv("FUCINA_GPU_MIN_WORK", tt.all)
		t.Setenv("FUCINA_GPU_MIN_WORK_MATMUL", tt.matMul)
		g, err := newGates(defaults)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%+v: error %v", tt, err)
			}
			continue
		}
		if err != nil || g[op.Add] != tt.add || g[op.MatMul] != tt.mm {
			t.Errorf("%+v: add %d, matmul %d, %v", tt, g[op.Add], g[op.MatMul], err)
		}
	}
	t.Setenv("FUCINA_GPU_MIN_WORK", "")
	t.Setenv("FUCINA_GPU_MIN_WORK_MATMUL", "")
	if g, err := newGates(nil); err != nil || g != (gates{}) {
		t.Errorf("gates without defaults: %v, %v", g, err)
	}
}

// Work is multiply-adds for matmul and attention, elements of the result otherwise.
func TestWork(t *testing.T) {
	a := &op.Args{NIn: 2}
	a.In[0].Shape, a.In[1].Shape, a.Out[0].Shape = shape.Must(2, 3, 8), shape.Must(5, 8), shape.Must(2, 3, 5)
	if n := work(op.MatMul, a); n != 2*3*5*8 {
		t.Errorf("matmul counts %d", n)
	}
	if n := work(op.Add, a); n != 2*3*5 {
		t.Errorf("add counts %d", n)
	}
	a.In[1].Shape, a.Out[0].Shape = shape.Must(7, 2, 4), shape.Must(3, 4, 4)
	if n := work(op.Attention, a); n != 3*4*4*2*7 {
		t.Errorf("attention counts %d", n)
	}
	g := gates{op.Attention: 3 * 4 * 4 * 2 * 7}
	if !g.pass(op.Attention, a) {
		t.Error("work at the gate does not pass")
	}
	g[op.Attention]++
	if g.pass(op.Attention, a) {
		t.Error("work below the gate passes")
	}
}
