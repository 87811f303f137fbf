package cpu

import (
	"math/rand/v2"
	"testing"

	"github.com/fucina-go/fucina/core/conformance/reference"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
)

// maker makes operands of random values.
type maker struct{ *rand.Rand }

// f returns a contiguous f32 operand.
func (m maker) f(dims ...int) op.Operand { return m.of(dtype.F32, dims...) }

// of returns a contiguous operand.
func (m maker) of(d dtype.DType, dims ...int) op.Operand {
	return random(operand(d, plain, dims...), m.Rand)
}

// sample is an operation, and a function that returns new valid arguments of it. The
// function need not set the numbers of the operands.
type sample struct {
	op   op.ID
	make func(m maker) op.Args
}

// samples has at least one row for each operation. If an operation has optional operands,
// its rows together have each of them both present and absent. The rows of the operations of
// the table pointwise are added by init.
var samples = []sample{
	{op.Copy, func(m maker) op.Args { return reference.Args(op.Params{}, operand(dtype.F16, plain, 4, 6), m.f(4, 6)) }},
	{op.GetRows, func(m maker) op.Args {
		return reference.Args(op.Params{}, m.f(3, 8), m.f(5, 8), ofInts(dtype.I32, 4, 0, 1))
	}},
	{op.RMSNorm, func(m maker) op.Args { return reference.Args(op.Params{Eps: 1e-5}, m.f(4, 6), m.f(4, 6), m.f(6)) }},
	{op.RoPE, func(m maker) op.Args { return reference.Args(op.Params{}, m.f(3, 2, 8), m.f(3, 2, 8), m.f(3, 4, 2)) }},
	{op.MatMul, func(m maker) op.Args {
		return reference.Args(op.Params{}, m.f(3, 5), m.f(3, 64), m.of(dtype.Q8_0, 5, 64))
	}},
	{op.Attention, func(m maker) op.Args {
		return reference.Args(op.Params{Scale: 1}, m.f(2, 4, 6), m.f(2, 4, 8), m.of(dtype.F16, 7, 2, 8), m.of(dtype.F16, 7, 2, 6), positions(3, 2))
	}},
	{op.Attention, func(m maker) op.Args {
		z := pagedSizes{kd: dtype.F16, vd: dtype.Q8_0, pageRows: 3, heads: 4, kvHeads: 2, d: 8, dv: 32}
		return newPaged(m, z, []int{7, 4}, []attentionRow{{0, 6}, {1, 3}, {0, 2}}).paged
	}},
	{op.Softmax, func(m maker) op.Args { return reference.Args(op.Params{Scale: 1}, m.f(4, 6), m.f(4, 6)) }},
	{op.Argmax, func(m maker) op.Args { return reference.Args(op.Params{}, operand(dtype.I32, plain, 4), m.f(4, 6)) }},
	{op.Project, func(m maker) op.Args {
		return reference.Args(op.Params{Scales: [3]float32{0.5, 1, 2}}, m.f(2, 12), m.f(2, 64),
			m.of(dtype.Q8_0, 5, 64), m.f(3, 64), m.of(dtype.F16, 4, 64), m.f(5), m.f(3), m.f(4), m.f(2, 12))
	}},
	{op.Project, func(m maker) op.Args {
		return reference.Args(op.Params{Scales: [3]float32{1, 1, 1}}, m.f(2, 9), m.f(2, 64), m.f(5, 64), op.Operand{}, m.of(dtype.Q8_0, 4, 64))
	}},
	{op.Project, func(m maker) op.Args {
		return reference.Args(op.Params{Scales: [3]float32{1}, Chunks: 4}, m.f(2, 5), m.f(2, 64), m.f(5, 64), op.Operand{}, op.Operand{}, m.f(5))
	}},
	{op.GatedProject, func(m maker) op.Args {
		return reference.Args(op.Params{Scales: [3]float32{0.5, 2}, Act: op.GELU}, m.f(2, 5), m.f(2, 64),
			m.of(dtype.Q8_0, 5, 64), m.of(dtype.BF16, 5, 64), m.f(5), m.f(5))
	}},
	{op.GatedProject, func(m maker) op.Args {
		return reference.Args(op.Params{Scales: [3]float32{1, 1}}, m.f(2, 5), m.f(2, 64), m.f(5, 64), m.f(5, 64))
	}},
	{op.SetRows, func(m maker) op.Args {
		return reference.Args(op.Params{}, m.of(dtype.F16, 5, 8), m.f(3, 8), ofInts(dtype.I32, 4, 0, 2))
	}},
	{op.SetRows, func(m maker) op.Args {
		return reference.Args(op.Params{}, m.of(dtype.Q8_0, 2, 3, 64), m.f(3, 64), ofInts(dtype.I32, 4, 0, 2))
	}},
	{op.AddRMSNorm, func(m maker) op.Args {
		a := reference.Args(op.Params{Eps: 1e-5}, m.f(4, 6), m.f(4, 6), m.f(4, 6), m.f(6))
		a.Out[1] = m.f(4, 6)
		return a
	}},
	rotateStoreSample(dtype.F32, false, false),
	rotateStoreSample(dtype.F16, true, false),
	rotateStoreSample(dtype.Q8_0, false, true),
}

// rotateStoreSample returns a sample of RotateStore with pages of two rows.
func rotateStoreSample(d dtype.DType, normQ, normK bool) sample {
	return sample{op.RotateStore, func(m maker) op.Args {
		a := reference.Args(op.Params{Eps: 1e-5}, m.f(3, 2, 32), m.f(3, 2, 32), m.f(3, 1, 32), m.f(3, 1, 64), m.f(3, 12, 2), ofInts(dtype.I32, 4, 0, 2))
		a.Out[1] = m.of(d, 3, 2*(32+64))
		if normQ {
			a.In[5] = m.f(32)
		}
		if normK {
			a.In[6] = m.f(32)
		}
		return a
	}}
}

func init() {
	for _, c := range samples {
		if kernels[c.op].quick != nil {
			samples = append(samples, sample{c.op, func(m maker) op.Args {
				a := c.make(m)
				a.Exact = true
				return a
			}})
		}
	}
	for _, id := range pointwiseOps() {
		samples = append(samples, sample{id, func(m maker) op.Args {
			in := []op.Operand{m.f(4, 6), m.f(4, 6)}[:len(id.Inputs())]
			return reference.Args(op.Params{Scale: 1, SoftCap: 30}, m.f(4, 6), in...)
		}})
	}
}

// args returns new arguments of the sample, with the workspace that e needs.
func (s sample) args(t testing.TB, e *Executor) op.Args {
	return withWorkspace(t, e, s.op, s.make(maker{newRand()}))
}

// sampleOf returns new arguments of the first sample of an operation, with the workspace
// that e needs.
func sampleOf(t testing.TB, e *Executor, id op.ID) op.Args {
	t.Helper()
	for _, s := range samples {
		if s.op == id {
			return s.args(t, e)
		}
	}
	t.Fatalf("there is no sample of %v", id)
	return op.Args{}
}

// places returns the places of the operands that are present.
func places(a *op.Args) []op.Place {
	var list []op.Place
	for i := range op.Place(a.NIn) {
		if a.Has(i) {
			list = append(list, i)
		}
	}
	for i := range a.NOut {
		list = append(list, op.FirstOut+op.Place(i))
	}
	return list
}

// Every operation that has a kernel has samples, in which each operand is present, and absent
// if it may be.
func TestSamplesAreComplete(t *testing.T) {
	e := NewExecutor(nil)
	for id := op.ID(1); id < op.Count; id++ {
		if e.kernels[id] == nil {
			continue
		}
		sampleOf(t, e, id)
		for i, role := range id.Inputs() {
			with, without := false, false
			for _, s := range samples {
				if s.op == id {
					a := s.args(t, e)
					with, without = with || a.Has(op.Place(i)), without || !a.Has(op.Place(i))
				}
			}
			if !with || without != role.Optional {
				t.Errorf("%v: the %s is present in a sample: %v, absent: %v; want true and %v", id, role.Name, with, without, role.Optional)
			}
		}
	}
}
