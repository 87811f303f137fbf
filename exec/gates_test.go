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

// Every operation has a gate of its own, by its name.
func TestEveryOperationHasAGate(t *testing.T) {
	for id := op.ID(1); id < op.Count; id++ {
		t.Run(id.String(), func(t *testing.T) {
			t.Setenv("FUCINA_GPU_MIN_WORK", "5")
			t.Setenv("FUCINA_GPU_MIN_WORK_"+strings.ToUpper(id.String()), "9")
			g, err := newGates(nil)
			if err != nil {
				t.Fatal(err)
			}
			for other := op.ID(1); other < op.Count; other++ {
				if want := map[bool]int64{true: 9, false: 5}[other == id]; g[other] != want {
					t.Errorf("the gate of %s is %d, want %d", other, g[other], want)
				}
			}
		})
	}
}

// An operation passes its gate if its cost is at least the gate's.
func TestGate(t *testing.T) {
	a := &op.Args{NIn: 2}
	a.In[0].Shape, a.In[1].Shape, a.Out[0].Shape = shape.Must(2, 3, 8), shape.Must(5, 8), shape.Must(2, 3, 5)
	g := gates{op.MatMul: 2 * 3 * 5 * 8}
	if !g.pass(op.MatMul, a) {
		t.Error("cost at the gate does not pass")
	}
	g[op.MatMul]++
	if g.pass(op.MatMul, a) {
		t.Error("cost below the gate passes")
	}
}
