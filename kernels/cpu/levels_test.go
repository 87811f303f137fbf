package cpu

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fucina-go/fucina/core/conformance/reference"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/internal/isa"
)

// Every operation has the same bits at every level, with rows that are longer than a vector and
// have a rest, and heads of several sizes.
func TestLevels(t *testing.T) {
	list := slices.Clone(samples)
	for _, id := range pointwiseOps() {
		list = append(list, sample{id, func(m maker) op.Args {
			in := []op.Operand{m.f(3, 301), m.f(3, 301)}[:len(id.Inputs())]
			return reference.Args(op.Params{Scale: 0.7, SoftCap: 3}, m.f(3, 301), in...)
		}})
	}
	list = append(list,
		sample{op.RMSNorm, func(m maker) op.Args {
			return reference.Args(op.Params{Eps: 1e-5}, m.f(2, 301), m.f(2, 301), m.f(301))
		}},
		sample{op.Softmax, func(m maker) op.Args { return reference.Args(op.Params{Scale: 1}, m.f(2, 301), m.f(2, 301)) }},
		sample{op.Argmax, func(m maker) op.Args { return reference.Args(op.Params{}, operand(dtype.I32, plain, 9), m.f(9, 301)) }},
	)
	for _, mode := range []op.RoPEMode{op.RoPEInterleaved, op.RoPENeoX} {
		list = append(list, sample{op.RoPE, func(m maker) op.Args {
			return reference.Args(op.Params{Mode: mode}, m.f(3, 2, 130), m.f(3, 2, 130), m.f(3, 50, 2))
		}})
	}
	for _, z := range []pagedSizes{
		{kd: dtype.F16, vd: dtype.F16, heads: 4, kvHeads: 1, d: 64, dv: 64},
		{kd: dtype.F16, vd: dtype.Q8_0, heads: 3, kvHeads: 3, d: 80, dv: 96, softCap: 3},
		{kd: dtype.F32, vd: dtype.F32, heads: 10, kvHeads: 2, d: 72, dv: 128, window: 50},
		{kd: dtype.Q8_0, vd: dtype.F16, heads: 7, kvHeads: 1, d: 32, dv: 40},
	} {
		z.pageRows = 24
		list = append(list, sample{op.Attention, func(m maker) op.Args {
			rows := []attentionRow{{0, 0}, {0, 1}, {0, 63}, {0, 64}, {0, 199}, {1, 130}}
			for i := range 12 {
				rows = append(rows, attentionRow{1, 115 + i})
			}
			return newPaged(m, z, []int{200, 150}, rows).paged
		}})
	}
	for i, c := range list {
		var want [op.MaxOut][]byte
		for _, level := range isa.Supported() {
			e := newExecutor(nil, level)
			a := withWorkspace(t, e, c.op, c.make(maker{rand.New(rand.NewPCG(uint64(i), 1))}))
			if err := e.Execute(bg, c.op, &a); err != nil {
				t.Fatalf("%v, %v: %v", c.op, level, err)
			}
			for j := range a.NOut {
				if got := a.Out[j].Mem.Host; want[j] == nil {
					want[j] = got
				} else if !slices.Equal(got, want[j]) {
					t.Errorf("sample %d of %v, output %d: %v has other bits than %v", i, c.op, j, level, isa.Generic)
				}
			}
		}
	}
}
