package reference

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
)

// counting returns an operand of the values first, first+1 and so on.
func counting(first float32, dims ...int) op.Operand { return stepping(first, 1, dims...) }

// ones returns an operand of ones.
func ones(dims ...int) op.Operand { return stepping(1, 0, dims...) }

// stepping returns an operand of the values first, first+step and so on.
func stepping(first, step float32, dims ...int) op.Operand {
	o := New(dtype.F32, Plain, dims...)
	values := make([]float32, o.Mem.Len/4)
	for i := range values {
		values[i] = first + step*float32(i)
	}
	return Of(values, dims...)
}

func vector(values ...float32) op.Operand { return Of(values, len(values)) }

// angle returns n rows of one angle for a pair, which turns (x, y) to (-y, x).
func angle(n int) op.Operand {
	var values []float32
	for range n {
		values = append(values, 0, 1)
	}
	return Of(values, n, 1, 2)
}

// Results has the numbers that the comments of the operations describe.
func TestResults(t *testing.T) {
	scales := [3]float32{2, 1, 10}
	project := func(p op.Params) op.Args {
		// The products are 3 and 7, then none, then 30.
		return Args(p, New(dtype.F32, Plain, 3), vector(1, 2), Of([]float32{1, 1, 1, 3}, 2, 2), op.Operand{}, Of([]float32{10, 10}, 1, 2),
			vector(1, 2), op.Operand{}, op.Operand{}, vector(100, 200, 300))
	}
	for _, tt := range []struct {
		name string
		id   op.ID
		args op.Args
		want [op.MaxOut][]float64
	}{
		{"rows", op.SetRows, Args(op.Params{}, counting(0, 3, 2), counting(50, 2, 2), Ints(dtype.I32, 2, 0)),
			[2][]float64{{52, 53, 2, 3, 50, 51}}},
		{"rows of parts", op.SetRows, Args(op.Params{}, counting(0, 2, 2, 1), counting(50, 3, 1), Ints(dtype.I32, 3, -1, 1)),
			[2][]float64{{0, 52, 2, 50}}},
		{"a place past the end", op.SetRows, Args(op.Params{}, counting(0, 2, 1), counting(50, 2, 1), Ints(dtype.I32, 2, 0)),
			[2][]float64{{51, 1}}},
		{"a sum and its norm", op.AddRMSNorm, Args2(op.Params{}, counting(0, 2), counting(0, 2), vector(1, 2), vector(2, 1), vector(1, 5)),
			[2][]float64{{3, 3}, {1, 5}}},
		{"a sum that is rounded", op.AddRMSNorm, Args2(op.Params{}, counting(0, 1), counting(0, 1), vector(0x1p24), vector(1), vector(0x1p24)),
			[2][]float64{{0x1p24}, {0x1p24}}},
		{"products", op.Project, project(op.Params{Scales: scales}), [2][]float64{{107, 216, 600}}},
		{"the bias first", op.Project, project(op.Params{Scales: scales, BiasFirst: true}), [2][]float64{{108, 218, 600}}},
		{"a gate", op.GatedProject, Args(op.Params{Scales: [3]float32{1, 2, 1}}, New(dtype.F32, Plain, 1), vector(1, 2), Of([]float32{-1, 0.5}, 1, 2),
			Of([]float32{1, 1}, 1, 2), op.Operand{}, vector(4)), [2][]float64{{0}}},
		{"pages", op.RotateStore, Args2(op.Params{}, New(dtype.F32, Plain, 2, 1, 2), counting(0, 2, 6),
			counting(10, 2, 1, 2), counting(20, 2, 1, 2), counting(30, 2, 1, 1), angle(2), Ints(dtype.I32, 3, 0)),
			// A page has two keys of two elements, then two values.
			[2][]float64{{-11, 10, -13, 12}, {-23, 22, 2, 3, 31, 5, 6, 7, -21, 20, 10, 30}}},
		{"a place that is skipped", op.RotateStore, Args2(op.Params{}, New(dtype.F32, Plain, 1, 1, 2), counting(0, 1, 3),
			counting(10, 1, 1, 2), counting(20, 1, 1, 2), counting(30, 1, 1, 1), angle(1), Ints(dtype.I32, 1)),
			[2][]float64{{-11, 10}, {0, 1, 2}}},
		{"norms of heads", op.RotateStore, Args2(op.Params{}, New(dtype.F32, Plain, 1, 1, 2), counting(0, 1, 3),
			Of([]float32{3, 3}, 1, 1, 2), Of([]float32{-2, 2}, 1, 1, 2), counting(30, 1, 1, 1), angle(1), Ints(dtype.I32, 0), vector(4, 5), vector(6, 7)),
			[2][]float64{{-5, 4}, {-7, -6, 30}}},
		// All keys are equal, so that the result is the mean of the values that are seen.
		{"positions", op.Attention, Args(op.Params{Scale: 1}, New(dtype.F32, Plain, 3, 1, 1), ones(3, 1, 1), ones(4, 1, 1), counting(0, 4, 1, 1),
			Ints(dtype.I32, 2, 0, 9)), [2][]float64{{1, 0, 1.5}}},
		{"sequences in pages", op.Attention, Args(op.Params{Scale: 1, Window: 2}, New(dtype.F32, Plain, 3, 1, 1), ones(3, 1, 1), ones(3, 2, 1, 1), counting(0, 3, 2, 1, 1),
			Ints(dtype.I32, 2, 1, 3), Ints(dtype.I32, 1, 0, 0), View(Ints(dtype.I32, 1, 0, 2, 1), 0, []int{2, 2}, []int{2, 1})),
			// Sequence 0 has the values 2, 3, 0, 1 and sequence 1 has 4, 5, 2, 3.
			[2][]float64{{3.5, 2.5, 0.5}}},
	} {
		t.Run(fmt.Sprint(tt.id, " ", tt.name), func(t *testing.T) {
			if r := op.Check(tt.id, &tt.args); !r.OK() {
				t.Fatal(r.Text(tt.id))
			}
			got := Results(tt.id, &tt.args)
			for i, want := range tt.want {
				if err := Compare(got[i], want, 1e-20); err != nil {
					t.Errorf("output %d: %v", i, err)
				}
			}
		})
	}
}

// EraseWritten erases the elements that the operation writes, and no others.
func TestEraseWritten(t *testing.T) {
	for _, tt := range []struct {
		name string
		id   op.ID
		args op.Args
		i    int
		want []int // storage elements that are erased
	}{
		{"padded rows", op.SetRows, Args(op.Params{}, New(dtype.F32, Padded, 3, 2), counting(0, 2, 2), Ints(dtype.I32, 2, 3)), 0, []int{15, 16}},
		{"parts", op.SetRows, Args(op.Params{}, New(dtype.F16, Plain, 2, 2, 3), counting(0, 1, 3), Ints(dtype.I32, 2)), 0, []int{6, 7, 8}},
		{"blocks", op.SetRows, Args(op.Params{}, New(dtype.Q8_0, Padded, 2, 64), counting(0, 1, 64), Ints(dtype.I32, 1)), 0, []int{10, 11}},
		{"a page", op.RotateStore, Args2(op.Params{}, New(dtype.F32, Plain, 2, 1, 2), New(dtype.F32, Padded, 2, 6),
			counting(10, 2, 1, 2), counting(20, 2, 1, 2), counting(30, 2, 1, 1), angle(2), Ints(dtype.I32, 3, -1)), 1, []int{16, 17, 19}},
		{"queries", op.RotateStore, Args2(op.Params{}, New(dtype.F32, Padded, 1, 1, 2), New(dtype.F32, Padded, 2, 6),
			counting(10, 1, 1, 2), counting(20, 1, 1, 2), counting(30, 1, 1, 1), angle(1), Ints(dtype.I32, 3)), 0, []int{5, 6}},
	} {
		if r := op.Check(tt.id, &tt.args); !r.OK() {
			t.Fatal(tt.name, r.Text(tt.id))
		}
		out := tt.args.Out[tt.i]
		size := out.DType.Size()
		mem, before := make([]byte, out.Mem.Len), bytes.Repeat([]byte{1}, out.Mem.Len)
		want := make([]byte, out.Mem.Len)
		for _, e := range tt.want {
			copy(want[e*size:][:size], before)
		}
		if EraseWritten(tt.id, &tt.args, tt.i, mem, before); !bytes.Equal(mem, want) {
			t.Errorf("%s: erases %v, want %v", tt.name, mem, want)
		}
	}
}
