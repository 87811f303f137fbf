package op

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/core/tensor"
)

// of returns a contiguous operand.
func of(d dtype.DType, dims ...int) Operand {
	s := shape.Must(dims...)
	st, err := s.Storage(d)
	if err != nil {
		panic(err)
	}
	return Operand{DType: d, Shape: s, Strides: st.Contiguous()}
}

// same reports whether two operands without memory are equal.
func same(a, b Operand) bool {
	return a.DType == b.DType && a.Shape == b.Shape && a.Strides == b.Strides && a.Offset == b.Offset
}

// ofF32 returns contiguous f32 operands.
func ofF32(dims ...[]int) []Operand {
	var list []Operand
	for _, d := range dims {
		list = append(list, of(dtype.F32, d...))
	}
	return list
}

func args(p Params, in ...Operand) *Args {
	a := &Args{NIn: len(in), Params: p}
	copy(a.In[:], in)
	return a
}

// into returns a with the output i, which exists.
func into(i int, out Operand, a *Args) *Args {
	a.Out[i] = out
	return a
}

// d returns its arguments, the sizes of axes.
func d(dims ...int) []int { return dims }

// Every operation has a contract: a unique name, roles that accept at least one format, and
// an output.
func TestEveryOperationHasAContract(t *testing.T) {
	names := make(map[string]ID)
	for id := ID(1); id < Count; id++ {
		c := &contracts[id]
		if c.name == "" {
			t.Errorf("operation %d has no contract", id)
			continue
		}
		if other, ok := names[c.name]; ok {
			t.Errorf("operation %d is called %q, as operation %d", id, c.name, other)
		}
		names[c.name] = id
		if c.infer == nil || len(c.in) == 0 || len(c.in) > MaxIn || len(c.out) == 0 || len(c.out) > MaxOut || c.in[0].Optional {
			t.Errorf("%s: %d inputs, %d outputs", id, len(c.in), len(c.out))
		}
		indices := slices.ContainsFunc(c.in, func(r Role) bool { return r.Index })
		if indices != (c.limit != nil) {
			t.Errorf("%s: has an operand of indices %t, and a limit %t", id, indices, c.limit != nil)
		}
		for p, r := range c.in {
			if r.Into || r.Sparse && !r.Index || r.Index && (r.Layout != Contiguous || p > int(MaxIn)-2) {
				t.Errorf("%s: input %+v at %d", id, r, p)
			}
		}
		for _, r := range append(id.Inputs(), id.Outputs()...) {
			if r.Name == "" || r.Formats == 0 || r.Rank > shape.MaxRank {
				t.Errorf("%s: role %+v", id, r)
			}
		}
	}
	for _, id := range []ID{0, Count, 255} {
		if id.Valid() || id.String() != "invalid op" || id.Inputs() != nil {
			t.Errorf("operation %d is %s", id, id)
		}
		if r := Infer(id, &Args{}); r.Why != UnknownOp {
			t.Errorf("operation %d: %+v", id, r)
		}
	}
}

func TestInfer(t *testing.T) {
	ids3 := of(dtype.I32, 3)
	for _, tt := range []struct {
		id   ID
		args *Args
		to   dtype.DType // the parameter of Copy
		want Operand
		// second is the second output, if the operation has one.
		second Operand
		cost   int64
	}{
		{id: Copy, args: args(Params{}, of(dtype.Q4_K, 2, 256)), to: dtype.F32, want: of(dtype.F32, 2, 256)},
		{id: Copy, args: args(Params{}, of(dtype.I64, 2, 3)), to: dtype.Bool, want: of(dtype.Bool, 2, 3)},
		{id: Copy, args: args(Params{}, of(dtype.F32, 2, 64)), to: dtype.Q8_0, want: of(dtype.Q8_0, 2, 64)},
		{id: Copy, args: args(Params{}, of(dtype.IQ4_XS, 256)), to: dtype.IQ4_XS, want: of(dtype.IQ4_XS, 256)},
		{id: Copy, args: args(Params{}, of(dtype.F8E4M3, 5)), to: dtype.F32, want: of(dtype.F32, 5)},
		{id: GetRows, args: args(Params{}, of(dtype.Q6_K, 10, 256), ids3), want: of(dtype.F32, 3, 256)},
		{id: Add, args: args(Params{}, ofF32(d(2, 3), d(2, 3))...), want: of(dtype.F32, 2, 3)},
		{id: SwiGLU, args: args(Params{}, ofF32(d(4), d(4))...), want: of(dtype.F32, 4)},
		{id: Scale, args: args(Params{}, ofF32(d(4))...), want: of(dtype.F32, 4)},
		{id: SoftCap, args: args(Params{SoftCap: 1}, ofF32(d(4))...), want: of(dtype.F32, 4)},
		{id: RMSNorm, args: args(Params{}, ofF32(d(2, 3, 4), d(4))...), want: of(dtype.F32, 2, 3, 4)},
		{id: RoPE, args: args(Params{}, ofF32(d(2, 3, 5), d(2, 2, 2))...), want: of(dtype.F32, 2, 3, 5)},
		{id: MatMul, args: args(Params{}, of(dtype.F32, 5), of(dtype.F16, 7, 5)), want: of(dtype.F32, 7), cost: 35},
		{id: MatMul, args: args(Params{}, of(dtype.F32, 2, 3, 32), of(dtype.Q8_0, 7, 32)), want: of(dtype.F32, 2, 3, 7), cost: 42 * 32},
		{id: MatMul, args: args(Params{}, ofF32(d(2, 3, 5), d(2, 7, 5))...), want: of(dtype.F32, 2, 3, 7), cost: 42 * 5},
		{id: MatMul, args: args(Params{Chunks: 8}, of(dtype.F32, 256), of(dtype.Q8_0, 7, 256)), want: of(dtype.F32, 7), cost: 7 * 256},
		{
			id:   Attention,
			args: args(Params{}, of(dtype.F32, 2, 4, 32), of(dtype.F16, 7, 2, 32), of(dtype.Q8_0, 7, 2, 64), of(dtype.I32, 2)),
			want: of(dtype.F32, 2, 4, 64), cost: 2 * 2 * 4 * 64 * 7,
		},
		{ // with absent sequences and an absent table
			id: Attention,
			args: args(Params{}, of(dtype.F32, 2, 4, 32), of(dtype.F16, 7, 2, 32), of(dtype.Q8_0, 7, 2, 64), of(dtype.I32, 2),
				Operand{}, Operand{}),
			want: of(dtype.F32, 2, 4, 64), cost: 2 * 2 * 4 * 64 * 7,
		},
		{
			id: Attention,
			args: args(Params{Window: 3}, of(dtype.F32, 2, 4, 8), of(dtype.F16, 9, 5, 2, 8), of(dtype.F32, 9, 5, 2, 3), of(dtype.I32, 2),
				of(dtype.I32, 2), of(dtype.I32, 6, 7)),
			want: of(dtype.F32, 2, 4, 3), cost: 2 * 2 * 4 * 3 * 5 * 7,
		},
		{id: AddRMSNorm, args: args(Params{}, ofF32(d(2, 3), d(2, 3), d(3))...), want: of(dtype.F32, 2, 3), second: of(dtype.F32, 2, 3)},
		{id: Project, args: args(Params{}, ofF32(d(5), d(7, 5))...), want: of(dtype.F32, 7), cost: 35},
		{
			id:   Project,
			args: args(Params{}, of(dtype.F32, 2, 3, 64), of(dtype.Q8_0, 7, 64), of(dtype.F16, 4, 64), of(dtype.F32, 2, 64)),
			want: of(dtype.F32, 2, 3, 13), cost: 6 * 13 * 64,
		},
		{ // without a second matrix
			id: Project,
			args: args(Params{}, of(dtype.F32, 2, 6), of(dtype.F32, 7, 6), Operand{}, of(dtype.F32, 2, 6),
				of(dtype.F32, 7), Operand{}, of(dtype.F32, 2), of(dtype.F32, 2, 9)),
			want: of(dtype.F32, 2, 9), cost: 2 * 9 * 6,
		},
		{
			id:   GatedProject,
			args: args(Params{Act: GELU}, of(dtype.F32, 2, 64), of(dtype.Q8_0, 7, 64), of(dtype.F16, 7, 64), of(dtype.F32, 7), of(dtype.F32, 7)),
			want: of(dtype.F32, 2, 7), cost: 2 * 2 * 7 * 64,
		},
		{id: SetRows, args: into(0, of(dtype.Q8_0, 5, 64), args(Params{}, of(dtype.F32, 3, 64), ids3)), want: of(dtype.Q8_0, 5, 64), cost: 3 * 64},
		{id: SetRows, args: into(0, of(dtype.F16, 2, 5, 7), args(Params{}, of(dtype.F32, 3, 7), ids3)), want: of(dtype.F16, 2, 5, 7), cost: 3 * 7},
		{
			id:   RotateStore,
			args: into(1, of(dtype.F16, 5, 4*2*(8+6)), args(Params{}, append(ofF32(d(3, 4, 8), d(3, 2, 8), d(3, 2, 6), d(3, 4, 2)), ids3)...)),
			want: of(dtype.F32, 3, 4, 8), second: of(dtype.F16, 5, 4*2*(8+6)), cost: 3*4*8 + 3*2*(8+6),
		},
		{
			id: RotateStore,
			args: into(1, of(dtype.Q8_0, 5, 96), args(Params{}, append(ofF32(d(3, 1, 32), d(3, 1, 32), d(3, 1, 64), d(3, 4, 2)), ids3,
				of(dtype.F32, 32), of(dtype.F32, 32))...)),
			want: of(dtype.F32, 3, 1, 32), second: of(dtype.Q8_0, 5, 96), cost: 3 * 4 * 32,
		},
		{id: Softmax, args: args(Params{}, ofF32(d(2, 3))...), want: of(dtype.F32, 2, 3)},
		{id: Argmax, args: args(Params{}, ofF32(d(2, 3))...), want: of(dtype.I32, 2)},
		{id: Argmax, args: args(Params{}, ofF32(d(3))...), want: of(dtype.I32, 1)},
	} {
		t.Run(fmt.Sprint(tt.id, tt.want.Shape), func(t *testing.T) {
			if tt.to != dtype.Invalid {
				tt.args.Out[0].DType = tt.to
			}
			if r := Infer(tt.id, tt.args); !r.OK() {
				t.Fatal(r.Text(tt.id))
			}
			n := 1
			if !tt.second.IsZero() {
				n = 2
			}
			if got := tt.args.Out; tt.args.NOut != n || !same(got[0], tt.want) || !same(got[1], tt.second) {
				t.Errorf("%d outputs, %+v, want %+v and %+v", tt.args.NOut, got, tt.want, tt.second)
			}
			if r := Check(tt.id, tt.args); !r.OK() {
				t.Errorf("refuses what was inferred: %s", r.Text(tt.id))
			}
			cost := int64(1)
			for _, d := range tt.want.Shape.Slice() {
				cost *= int64(d)
			}
			if tt.cost != 0 {
				cost = tt.cost
			}
			if got := Cost(tt.id, tt.args); got != cost {
				t.Errorf("costs %d, want %d", got, cost)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	huge := of(dtype.F32, 1)
	huge.Shape, huge.Strides = shape.Must(math.MaxInt/2, 4), shape.Must(1, 1)
	inf := float32(math.Inf(1))
	for _, tt := range []struct {
		id   ID
		args *Args
		to   dtype.DType
		is   error
		want string
	}{
		{Add, args(Params{}, ofF32(d(2))...), 0, shape.ErrShapeMismatch, "1 operands, want 2"},
		{Add, args(Params{}, of(dtype.F32, 2), of(dtype.F16, 2)), 0, tensor.ErrDType, "the right is f16, want f32"},
		{Add, args(Params{}, ofF32(d(2, 3), d(2, 4))...), 0, shape.ErrShapeMismatch, "axis 1 of the right is 4, want 3, as axis 1 of the left"},
		{Add, args(Params{}, ofF32(d(2, 3), d(2))...), 0, shape.ErrShapeMismatch, "the right has rank 1, want 2"},
		{Scale, args(Params{}, huge), 0, shape.ErrOverflow, "the input is too large to be addressed"},
		{SoftCap, args(Params{SoftCap: -1}, ofF32(d(2))...), 0, ErrParam, "the soft cap is -1, want a finite positive number"},
		{SoftCap, args(Params{SoftCap: inf}, ofF32(d(2))...), 0, ErrParam, "the soft cap is +Inf, want a finite positive number"},
		{RMSNorm, args(Params{Eps: -1}, ofF32(d(2), d(2))...), 0, ErrParam, "the eps is -1, want a finite number of at least 0"},
		{RMSNorm, args(Params{}, ofF32(d(2, 3), d(2))...), 0, shape.ErrShapeMismatch, "axis 0 of the weight is 2, want 3, as axis 1 of the input"},
		{RMSNorm, args(Params{}, ofF32(d(2, 3), d(2, 3))...), 0, shape.ErrShapeMismatch, "the weight has rank 2, want 1"},
		{Copy, args(Params{}, of(dtype.F32, 2, 33)), dtype.Q8_0, shape.ErrShapeMismatch, "axis 1 of the destination is 33, want a multiple of 32"},
		{Copy, args(Params{}, of(dtype.F32, 256)), dtype.Q4_K, tensor.ErrDType, "f32 does not convert to q4_k"},
		{Copy, args(Params{}, of(dtype.Q4_K, 256)), dtype.F16, tensor.ErrDType, "q4_k does not convert to f16"},
		{Copy, args(Params{}, of(dtype.F32, 256)), dtype.Invalid, tensor.ErrDType, "f32 does not convert to dtype(0)"},
		{GetRows, args(Params{}, of(dtype.I32, 2, 2), of(dtype.I32, 1)), 0, tensor.ErrDType, "the table is i32, want f16, bf16, f32"},
		{GetRows, args(Params{}, of(dtype.F32, 2, 2), of(dtype.F32, 1)), 0, tensor.ErrDType, "the ids is f32, want u16, i32 or i64"},
		{GetRows, args(Params{}, of(dtype.F32, 2), of(dtype.I32, 1)), 0, shape.ErrShapeMismatch, "the table has rank 1, want 2"},
		{RoPE, args(Params{Mode: 7}, ofF32(d(2, 3, 4), d(2, 2, 2))...), 0, ErrParam, "the rotation mode is 7, want RoPEInterleaved or RoPENeoX"},
		{RoPE, args(Params{}, ofF32(d(2, 3, 4), d(3, 2, 2))...), 0, shape.ErrShapeMismatch, "axis 0 of the table is 3, want 2, as axis 0 of the input"},
		{RoPE, args(Params{}, ofF32(d(2, 3, 4), d(2, 2, 3))...), 0, shape.ErrShapeMismatch, "axis 2 of the table is 3, want 2"},
		{RoPE, args(Params{}, ofF32(d(2, 3, 4), d(2, 3, 2))...), 0, shape.ErrShapeMismatch, "axis 1 of the table is 3, want at most 2"},
		{MatMul, args(Params{}, of(dtype.F32, 256), of(dtype.Q8_K, 2, 256)), 0, tensor.ErrDType, "the weight is q8_k, want f16, bf16, f32"},
		{MatMul, args(Params{}, of(dtype.F32, 4), of(dtype.I8, 2, 4)), 0, tensor.ErrDType, "the weight is i8, want f16, bf16, f32"},
		{MatMul, args(Params{}, of(dtype.F32, 3, 896), as(dtype.Q4_K, 5, 896)), 0, shape.ErrShapeMismatch, "axis 1 of the weight is 896, want a multiple of 256"},
		{MatMul, args(Params{}, ofF32(d(2, 3), d(3))...), 0, shape.ErrShapeMismatch, "the weight has rank 1, want 2"},
		{MatMul, args(Params{}, ofF32(d(2, 3), d(2, 2, 2, 3))...), 0, shape.ErrShapeMismatch, "the weight has rank 4, want 3"},
		{MatMul, args(Params{}, ofF32(d(2, 3), d(4, 5))...), 0, shape.ErrShapeMismatch, "axis 1 of the weight is 5, want 3, as axis 1 of the input"},
		{MatMul, args(Params{}, ofF32(d(2, 3), d(2, 5, 3))...), 0, shape.ErrShapeMismatch, "the input has rank 2, want 3"},
		{MatMul, args(Params{}, ofF32(d(2, 4, 3), d(3, 5, 3))...), 0, shape.ErrShapeMismatch, "axis 0 of the weight is 3, want 2, as axis 0 of the input"},
		{MatMul, args(Params{Chunks: -1}, ofF32(d(2, 8), d(4, 8))...), 0, ErrParam, "the number of chunks is -1, want 1, 2, 4 or 8, so that the rows of the weight fall into equal chunks of whole blocks"},
		{MatMul, args(Params{Chunks: 3}, ofF32(d(2, 9), d(4, 9))...), 0, ErrParam, "the number of chunks is 3, want 1, 2, 4 or 8"},
		{MatMul, args(Params{Chunks: 16}, ofF32(d(2, 16), d(4, 16))...), 0, ErrParam, "the number of chunks is 16, want 1, 2, 4 or 8"},
		{MatMul, args(Params{Chunks: 4}, ofF32(d(2, 6), d(4, 6))...), 0, ErrParam, "the number of chunks is 4, want 1, 2, 4 or 8"},
		{MatMul, args(Params{Chunks: 4}, of(dtype.F32, 2, 64), of(dtype.Q8_0, 4, 64)), 0, ErrParam, "the number of chunks is 4, want 1, 2, 4 or 8"},
		{Project, args(Params{Chunks: 2}, of(dtype.F32, 2, 32), of(dtype.F32, 4, 32), of(dtype.Q8_0, 4, 32)), 0, ErrParam, "the number of chunks is 2, want 1, 2, 4 or 8"},
		{GatedProject, args(Params{Chunks: 5}, ofF32(d(2, 5), d(4, 5), d(4, 5))...), 0, ErrParam, "the number of chunks is 5, want 1, 2, 4 or 8"},
		{Attention, attend(Params{}, ofF32(d(1, 3, 4), d(1, 2, 4), d(1, 2, 4))...), 0, shape.ErrShapeMismatch, "axis 1 of the query is 3, want a multiple of 2, as axis 1 of the key"},
		{Attention, attend(Params{}, ofF32(d(1, 2, 4), d(1, 2, 5), d(1, 2, 4))...), 0, shape.ErrShapeMismatch, "axis 2 of the key is 5, want 4, as axis 2 of the query"},
		{Attention, attend(Params{}, ofF32(d(1, 2, 4), d(1, 2, 4), d(2, 2, 4))...), 0, shape.ErrShapeMismatch, "axis 0 of the value is 2, want 1, as axis 0 of the key"},
		{Attention, args(Params{}, ofF32(d(1, 2, 4), d(1, 2, 4), d(1, 2, 4))...), 0, shape.ErrShapeMismatch, "3 operands, want 4"},
		{Attention, args(Params{}, ofF32(d(1, 2, 4), d(1, 2, 4), d(1, 2, 4), d(1))...), 0, tensor.ErrDType, "the positions is f32, want i32"},
		{Attention, attend(Params{}, ofF32(d(2, 2, 4), d(1, 2, 4), d(1, 2, 4))...), 0, shape.ErrShapeMismatch, "axis 0 of the positions is 1, want 2, as axis 0 of the query"},
		{Attention, attend(Params{}, of(dtype.F32, 1, 2, 8), as(dtype.Q8_0, 1, 2, 8), of(dtype.F32, 1, 2, 8)), 0, shape.ErrShapeMismatch, "axis 2 of the key is 8, want a multiple of 32"},
		{Attention, attend(Params{Window: -1}, ofF32(d(1, 2, 4), d(1, 2, 4), d(1, 2, 4))...), 0, ErrParam, "the window is -1, want at least 0"},
		{Attention, attend(Params{}, of(dtype.F32, 1, 2, 4), of(dtype.BF16, 1, 2, 4), of(dtype.F32, 1, 2, 4)), 0, tensor.ErrDType, "the key is bf16, want f16, f32 or q8_0"},
		{Attention, attend(Params{}, ofF32(d(1, 2, 4), d(3, 1, 2, 4), d(1, 2, 4))...), 0, shape.ErrShapeMismatch, "the key has rank 4, want 3"},
		{Attention, paged(of(dtype.I32, 1), Operand{}), 0, shape.ErrShapeMismatch, "got the sequences without the table"},
		{Attention, paged(Operand{}, of(dtype.I32, 2, 2)), 0, shape.ErrShapeMismatch, "got the table without the sequences"},
		{Attention, paged(of(dtype.I32, 2), of(dtype.I32, 2, 2)), 0, shape.ErrShapeMismatch, "axis 0 of the sequences is 2, want 1, as axis 0 of the query"},
		{Attention, paged(of(dtype.I32, 1), of(dtype.I32, 2)), 0, shape.ErrShapeMismatch, "the table has rank 1, want 2"},
		{Attention, paged(of(dtype.I32, 1), of(dtype.I64, 2, 2)), 0, tensor.ErrDType, "the table is i64, want i32"},
		{Attention, change(paged(of(dtype.I32, 1), of(dtype.I32, 2, 2)), 2, of(dtype.F32, 3, 4, 2, 4)), 0, shape.ErrShapeMismatch, "axis 1 of the value is 4, want 5, as axis 1 of the key"},
		{Attention, change(paged(of(dtype.I32, 1), of(dtype.I32, 2, 2)), 1, of(dtype.F32, 3, 5, 1, 3)), 0, shape.ErrShapeMismatch, "axis 3 of the key is 3, want 4, as axis 2 of the query"},
		{Attention, change(paged(of(dtype.I32, 1), of(dtype.I32, 2, 2)), 1, of(dtype.F32, 3, 2, 4)), 0, shape.ErrShapeMismatch, "the key has rank 3, want 4"},
		{Attention, change(paged(of(dtype.I32, 1), of(dtype.I32, 2, 2)), 0, of(dtype.F32, 1, 3, 4)), 0, shape.ErrShapeMismatch, "axis 1 of the query is 3, want a multiple of 2, as axis 2 of the key"},
		{SetRows, set(Operand{}), 0, tensor.ErrDType, "the destination is absent, want f16, f32 or q8_0"},
		{SetRows, set(of(dtype.BF16, 5, 4)), 0, tensor.ErrDType, "the destination is bf16, want f16, f32 or q8_0"},
		{SetRows, set(of(dtype.F32, 4)), 0, shape.ErrShapeMismatch, "the destination has rank 1, want 2"},
		{SetRows, set(of(dtype.F32, 1, 2, 3, 4)), 0, shape.ErrShapeMismatch, "the destination has rank 4, want 3"},
		{SetRows, set(of(dtype.F32, 5, 3)), 0, shape.ErrShapeMismatch, "axis 1 of the destination is 3, want 4, as axis 1 of the input"},
		{SetRows, set(of(dtype.F32, 2, 5, 3)), 0, shape.ErrShapeMismatch, "axis 2 of the destination is 3, want 4, as axis 1 of the input"},
		{SetRows, set(as(dtype.Q8_0, 5, 4)), 0, shape.ErrShapeMismatch, "axis 1 of the destination is 4, want a multiple of 32"},
		{SetRows, set(strided(of(dtype.F32, 5, 4), 4, 2)), 0, tensor.ErrUnsupportedView, "elements of the destination share memory"},
		{SetRows, set(strided(of(dtype.F32, 5, 4), 0, 1)), 0, tensor.ErrUnsupportedView, "elements of the destination share memory"},
		{SetRows, set(strided(of(dtype.F32, 5, 4), 8, 2)), 0, tensor.ErrUnsupportedView, "the destination is not contiguous along its last axis"},
		{SetRows, set(strided(of(dtype.F32, 5, 4), -4, 1)), 0, tensor.ErrUnsupportedView, "the strides of the destination are not valid"},
		{SetRows, change(set(of(dtype.F32, 5, 4)), 1, of(dtype.I32, 2)), 0, shape.ErrShapeMismatch, "axis 0 of the places is 2, want 3, as axis 0 of the input"},
		{SetRows, change(set(of(dtype.F32, 5, 4)), 1, of(dtype.I64, 3)), 0, tensor.ErrDType, "the places is i64, want i32"},
		{SetRows, change(set(huge), 0, of(dtype.F32, 3, 4)), 0, shape.ErrOverflow, "the destination is too large to be addressed"},
		{AddRMSNorm, args(Params{Eps: -1}, ofF32(d(2), d(2), d(2))...), 0, ErrParam, "the eps is -1, want a finite number of at least 0"},
		{AddRMSNorm, args(Params{}, ofF32(d(2, 3), d(2, 4), d(3))...), 0, shape.ErrShapeMismatch, "axis 1 of the right is 4, want 3, as axis 1 of the left"},
		{AddRMSNorm, args(Params{}, ofF32(d(2, 3), d(3), d(3))...), 0, shape.ErrShapeMismatch, "the right has rank 1, want 2"},
		{AddRMSNorm, args(Params{}, ofF32(d(2, 3), d(2, 3), d(2))...), 0, shape.ErrShapeMismatch, "axis 0 of the weight is 2, want 3, as axis 1 of the left"},
		{AddRMSNorm, args(Params{}, ofF32(d(2, 3), d(2, 3))...), 0, shape.ErrShapeMismatch, "2 operands, want 3"},
		{Project, args(Params{}, ofF32(d(2, 3))...), 0, shape.ErrShapeMismatch, "1 operands, want 2"},
		{Project, args(Params{}, of(dtype.F32, 2, 3), Operand{}), 0, tensor.ErrDType, "the weight is absent, want f16, bf16, f32"},
		{Project, args(Params{}, ofF32(d(2, 3), d(2, 4, 3))...), 0, shape.ErrShapeMismatch, "the weight has rank 3, want 2"},
		{Project, args(Params{}, ofF32(d(2, 3), d(4, 3), d(4, 2))...), 0, shape.ErrShapeMismatch, "axis 1 of the second weight is 2, want 3, as axis 1 of the input"},
		{Project, args(Params{}, ofF32(d(2, 3), d(4, 3), d(4, 3), d(4, 2))...), 0, shape.ErrShapeMismatch, "axis 1 of the third weight is 2, want 3, as axis 1 of the input"},
		{Project, args(Params{}, of(dtype.F32, 2, 3), of(dtype.F32, 4, 3), of(dtype.I8, 4, 3)), 0, tensor.ErrDType, "the second weight is i8, want f16, bf16, f32"},
		{Project, project(5, of(dtype.F32, 4)), 0, shape.ErrShapeMismatch, "got the second bias without the second weight"},
		{Project, project(6, of(dtype.F32, 4)), 0, shape.ErrShapeMismatch, "got the third bias without the third weight"},
		{Project, project(4, of(dtype.F32, 3)), 0, shape.ErrShapeMismatch, "axis 0 of the bias is 3, want 4, as axis 0 of the weight"},
		{Project, project(4, of(dtype.F16, 4)), 0, tensor.ErrDType, "the bias is f16, want f32"},
		{Project, project(7, of(dtype.F32, 2, 3)), 0, shape.ErrShapeMismatch, "axis 1 of the residual is 3, want 4"},
		{Project, project(7, of(dtype.F32, 4)), 0, shape.ErrShapeMismatch, "the residual has rank 1, want 2"},
		{Project, args(Params{Scales: [3]float32{inf, 1, 1}}, ofF32(d(2, 3), d(4, 3))...), 0, ErrParam, "the scale is +Inf, want a finite number"},
		{Project, args(Params{Scales: [3]float32{1, 1, -inf}}, ofF32(d(2, 3), d(4, 3), d(4, 3), d(4, 3))...), 0, ErrParam, "the scale is -Inf, want a finite number"},
		{Project, args(Params{}, of(dtype.F32, math.MaxInt/64, 1), of(dtype.F32, 64, 1)), 0, shape.ErrOverflow, "the output is too large to be addressed"},
		{GatedProject, args(Params{Act: 2}, ofF32(d(2, 3), d(4, 3), d(4, 3))...), 0, ErrParam, "the activation is 2, want SiLU or GELU"},
		{GatedProject, args(Params{Scales: [3]float32{1, inf, 1}}, ofF32(d(2, 3), d(4, 3), d(4, 3))...), 0, ErrParam, "the scale is +Inf, want a finite number"},
		{GatedProject, args(Params{}, ofF32(d(2, 3), d(4, 3))...), 0, shape.ErrShapeMismatch, "2 operands, want 3"},
		{GatedProject, args(Params{}, ofF32(d(2, 3), d(4, 3), d(5, 3))...), 0, shape.ErrShapeMismatch, "axis 0 of the weight is 5, want 4, as axis 0 of the gate"},
		{GatedProject, args(Params{}, ofF32(d(2, 3), d(4, 2), d(4, 3))...), 0, shape.ErrShapeMismatch, "axis 1 of the gate is 2, want 3, as axis 1 of the input"},
		{GatedProject, args(Params{}, ofF32(d(2, 3), d(4, 3), d(4, 3), d(3))...), 0, shape.ErrShapeMismatch, "axis 0 of the bias of the gate is 3, want 4, as axis 0 of the gate"},
		{GatedProject, args(Params{}, of(dtype.F32, 2, 3), of(dtype.F32, 4, 3), of(dtype.F32, 4, 3), Operand{}, of(dtype.F32, 3)), 0, shape.ErrShapeMismatch, "axis 0 of the bias is 3, want 4, as axis 0 of the weight"},
		{RotateStore, rotate(0, of(dtype.F32, 4, 4, 8)), 0, shape.ErrShapeMismatch, "axis 0 of the key is 3, want 4, as axis 0 of the query"},
		{RotateStore, rotate(0, of(dtype.F32, 3, 32)), 0, shape.ErrShapeMismatch, "the query has rank 2, want 3"},
		{RotateStore, rotate(1, of(dtype.F32, 3, 2, 6)), 0, shape.ErrShapeMismatch, "axis 2 of the key is 6, want 8, as axis 2 of the query"},
		{RotateStore, rotate(2, of(dtype.F32, 2, 2, 6)), 0, shape.ErrShapeMismatch, "axis 0 of the value is 2, want 3, as axis 0 of the query"},
		{RotateStore, rotate(2, of(dtype.F32, 3, 1, 6)), 0, shape.ErrShapeMismatch, "axis 1 of the value is 1, want 2, as axis 1 of the key"},
		{RotateStore, rotate(3, of(dtype.F32, 2, 4, 2)), 0, shape.ErrShapeMismatch, "axis 0 of the table is 2, want 3, as axis 0 of the query"},
		{RotateStore, rotate(3, of(dtype.F32, 3, 5, 2)), 0, shape.ErrShapeMismatch, "axis 1 of the table is 5, want at most 4"},
		{RotateStore, rotate(3, of(dtype.F32, 3, 4, 3)), 0, shape.ErrShapeMismatch, "axis 2 of the table is 3, want 2"},
		{RotateStore, rotate(4, of(dtype.I32, 2)), 0, shape.ErrShapeMismatch, "axis 0 of the places is 2, want 3, as axis 0 of the query"},
		{RotateStore, rotate(5, of(dtype.F32, 4)), 0, shape.ErrShapeMismatch, "axis 0 of the weight of the query is 4, want 8, as axis 2 of the query"},
		{RotateStore, rotate(6, of(dtype.F32, 9)), 0, shape.ErrShapeMismatch, "axis 0 of the weight of the key is 9, want 8, as axis 2 of the query"},
		{RotateStore, rotate(FirstOut+1, Operand{}), 0, tensor.ErrDType, "the cache is absent, want f16, f32 or q8_0"},
		{RotateStore, rotate(FirstOut+1, of(dtype.I32, 5, 112)), 0, tensor.ErrDType, "the cache is i32, want f16, f32 or q8_0"},
		{RotateStore, rotate(FirstOut+1, of(dtype.F32, 112)), 0, shape.ErrShapeMismatch, "the cache has rank 1, want 2"},
		{RotateStore, rotate(FirstOut+1, of(dtype.F32, 5, 1, 112)), 0, shape.ErrShapeMismatch, "the cache has rank 3, want 2"},
		{RotateStore, rotate(FirstOut+1, of(dtype.F32, 5, 113)), 0, shape.ErrShapeMismatch, "axis 1 of the cache is 113, want a multiple of 28"},
		{RotateStore, rotate(FirstOut+1, of(dtype.Q8_0, 5, 224)), 0, shape.ErrShapeMismatch, "axis 2 of the key is 8, want a multiple of 32"},
		{RotateStore, rotate(FirstOut+1, strided(of(dtype.F32, 5, 112), 100, 1)), 0, tensor.ErrUnsupportedView, "elements of the cache share memory"},
		{RotateStore, rotate(FirstOut+1, strided(of(dtype.F32, 5, 112), 300, 2)), 0, tensor.ErrUnsupportedView, "the cache is not contiguous along its last axis"},
		{RotateStore, with(Params{Mode: 7}, rotate(4, of(dtype.I32, 3))), 0, ErrParam, "the rotation mode is 7, want RoPEInterleaved or RoPENeoX"},
		{RotateStore, with(Params{Eps: -1}, rotate(6, of(dtype.F32, 8))), 0, ErrParam, "the eps is -1, want a finite number of at least 0"},
	} {
		if tt.to != dtype.Invalid {
			tt.args.Out[0].DType = tt.to
		}
		r := Infer(tt.id, tt.args)
		if got := r.Text(tt.id); r.OK() || r.Op != tt.id || len(got) < len(tt.want) || got[:len(tt.want)] != tt.want {
			t.Errorf("%s: %q, want %q", tt.id, got, tt.want)
		}
		if !errors.Is(r.Sentinel(), tt.is) {
			t.Errorf("%s: %q is %v, want %v", tt.id, tt.want, r.Sentinel(), tt.is)
		}
	}
}

// attend returns arguments of Attention with one position and the given query, key and value.
func attend(p Params, in ...Operand) *Args { return args(p, append(in, of(dtype.I32, 1))...) }

// paged returns arguments of Attention with pages of 5 rows.
func paged(sequences, table Operand) *Args {
	return args(Params{}, append(ofF32(d(1, 2, 4), d(3, 5, 2, 4), d(3, 5, 2, 4)), of(dtype.I32, 1), sequences, table)...)
}

// set returns arguments of SetRows with three rows of 4 elements.
func set(out Operand) *Args {
	return into(0, out, args(Params{}, of(dtype.F32, 3, 4), of(dtype.I32, 3)))
}

// project returns arguments of Project with a matrix of four rows and the operand o at p.
func project(p Place, o Operand) *Args {
	a := args(Params{}, ofF32(d(2, 3), d(4, 3))...)
	a.NIn = int(p) + 1
	return change(a, p, o)
}

// rotate returns arguments of RotateStore with pages of four rows, whose operand at p is o.
func rotate(p Place, o Operand) *Args {
	a := args(Params{}, append(ofF32(d(3, 4, 8), d(3, 2, 8), d(3, 2, 6), d(3, 4, 2)), of(dtype.I32, 3))...)
	a.Out[1] = of(dtype.F32, 5, 112)
	if p < FirstOut {
		a.NIn = max(a.NIn, int(p)+1)
	}
	return change(a, p, o)
}

// change returns a with the operand o at p.
func change(a *Args, p Place, o Operand) *Args {
	*a.At(p) = o
	return a
}

// with returns a with the parameters p.
func with(p Params, a *Args) *Args {
	a.Params = p
	return a
}

// strided returns o with other strides.
func strided(o Operand, strides ...int) Operand {
	o.Strides, _ = shape.OfStrides(strides...)
	return o
}

// Infer leaves an output alone that the operation writes into, whatever its strides and offset.
func TestInferKeepsWhatExists(t *testing.T) {
	out := strided(of(dtype.F16, 2, 5, 4), 30, 6, 1)
	out.Offset, out.Mem = 7, Mem{ID: 3, Len: 1000}
	a := set(out)
	if r := Infer(SetRows, a); !r.OK() {
		t.Fatal(r.Text(SetRows))
	}
	if got := a.Out[0]; !same(got, out) || got.Mem.ID != 3 || got.Mem.Len != 1000 {
		t.Errorf("the destination is %+v, want %+v", got, out)
	}
	if r := Check(SetRows, a); !r.OK() {
		t.Error(r.Text(SetRows))
	}
}

// Limit is one past the largest index of each operand of indices.
func TestLimit(t *testing.T) {
	contiguous := attend(Params{}, ofF32(d(1, 2, 4), d(6, 2, 4), d(6, 2, 4))...)
	pages := paged(of(dtype.I32, 1), of(dtype.I32, 7, 2))
	for _, tt := range []struct {
		id   ID
		args *Args
		p    Place
		want int
	}{
		{GetRows, args(Params{}, of(dtype.F32, 10, 3), of(dtype.I64, 1)), 1, 10},
		{SetRows, set(of(dtype.F32, 5, 4)), 1, 5},
		{SetRows, set(of(dtype.F32, 3, 5, 4)), 1, 15},
		{Attention, contiguous, 3, 6},
		{Attention, pages, 3, 10}, // two pages of 5 rows
		{Attention, pages, 4, 7},
		{Attention, pages, 5, 3},
		{RotateStore, rotate(FirstOut+1, of(dtype.F32, 5, 112)), 4, 20},
	} {
		if !tt.id.Inputs()[tt.p].Index {
			t.Errorf("%s: the %s has no indices", tt.id, tt.id.Role(tt.p))
		}
		if r := Infer(tt.id, tt.args); !r.OK() {
			t.Fatalf("%s: %s", tt.id, r.Text(tt.id))
		}
		if got := tt.id.Limit(tt.args, tt.p); got != tt.want {
			t.Errorf("%s: the limit of the %s is %d, want %d", tt.id, tt.id.Role(tt.p), got, tt.want)
		}
	}
	if got := rotate(FirstOut+1, of(dtype.F32, 5, 112)).PageRows(); got != 4 {
		t.Errorf("a page has %d rows, want 4", got)
	}
	// Views with stride 0 have so many pages and rows that their product overflows an int.
	a := paged(of(dtype.I32, 1), Operand{DType: dtype.I32, Shape: shape.Must(1, math.MaxInt/8)})
	for p := Place(1); p < 3; p++ {
		a.In[p].Shape = shape.Must(1, math.MaxInt/64, 2, 4)
		a.In[p].Strides, _ = shape.OfStrides(0, 0, 0, 1)
	}
	a.In[5].Strides, _ = shape.OfStrides(1, 1)
	if r := Infer(Attention, a); !r.OK() {
		t.Fatal(r.Text(Attention))
	}
	if got := Attention.Limit(a, 3); got != math.MaxInt {
		t.Errorf("the limit of the positions is %d, want that of an int", got)
	}
}

// Views with stride 0 have so many elements that the cost of their product overflows. It is then
// the largest cost.
func TestCostOfRepeatedElements(t *testing.T) {
	const n = math.MaxInt / 1024
	repeated := func(dims ...int) Operand {
		return strided(Operand{DType: dtype.F32, Shape: shape.Must(dims...)}, make([]int, len(dims))...)
	}
	pages := paged(of(dtype.I32, 1), Operand{DType: dtype.I32, Shape: shape.Must(1, n)})
	pages.In[1], pages.In[2] = repeated(1, n, 1, 4), repeated(1, n, 1, 4)
	pages.In[0] = of(dtype.F32, 1, 2, 4)
	for _, tt := range []struct {
		id   ID
		args *Args
	}{
		{MatMul, args(Params{}, repeated(64, n/64), repeated(4096, n/64))},
		{Project, args(Params{}, repeated(64, n/64), repeated(4096, n/64))},
		{GatedProject, args(Params{}, repeated(64, n/64), repeated(4096, n/64), repeated(4096, n/64))},
		{Attention, pages},
	} {
		if r := Infer(tt.id, tt.args); !r.OK() {
			t.Fatalf("%s: %s", tt.id, r.Text(tt.id))
		}
		if got := Cost(tt.id, tt.args); got != math.MaxInt64 && math.MaxInt > math.MaxInt32 {
			t.Errorf("%s costs %d", tt.id, got)
		}
	}
}

// ChunksOf is the largest number of chunks of whole blocks, which a product accepts.
func TestChunksOf(t *testing.T) {
	for _, tt := range []struct {
		k    int
		d    dtype.DType
		want int
	}{
		{8, dtype.F32, 8}, {4, dtype.F32, 4}, {6, dtype.F16, 2}, {7, dtype.F32, 1}, {256, dtype.Q8_0, 8}, {96, dtype.Q8_0, 1}, {64, dtype.Q8_0, 2},
		{1024, dtype.Q4_K, 4}, {256, dtype.Q4_K, 1},
	} {
		got := ChunksOf(tt.k, tt.d)
		if got != tt.want {
			t.Errorf("%d elements of %v: %d chunks, want %d", tt.k, tt.d, got, tt.want)
		}
		if r := Infer(MatMul, args(Params{Chunks: got}, of(dtype.F32, tt.k), of(tt.d, 3, tt.k))); !r.OK() {
			t.Errorf("%d elements of %v: %s", tt.k, tt.d, r.Text(MatMul))
		}
	}
}

// An index along a longer axis would not fit the i32 output of Argmax.
func TestArgmaxRefusesLongAxes(t *testing.T) {
	n := int64(math.MaxInt32 + 1) // a variable, so that the test compiles for 32 bits too
	if int64(int(n)) != n {
		t.Skip("no int is that large")
	}
	a := args(Params{}, Operand{DType: dtype.F32, Shape: shape.Must(1, int(n)), Strides: shape.Must(1, 1)})
	r := Infer(Argmax, a)
	if got, want := r.Text(Argmax), "axis 1 of the input is 2147483648, want at most 2147483647"; got != want || r.Sentinel() != shape.ErrShapeMismatch {
		t.Errorf("%q (%v), want %q", got, r.Sentinel(), want)
	}
}

// as returns an operand of the dtype d, whose blocks need not divide the last axis.
func as(d dtype.DType, dims ...int) Operand {
	s := shape.Must(dims...)
	return Operand{DType: d, Shape: s, Strides: s.Contiguous()}
}

// Check refuses outputs that differ from Infer's, and layouts that a kernel does not
// accept.
func TestCheck(t *testing.T) {
	strided := of(dtype.F32, 2, 3)
	strided.Strides = shape.Must(6, 2)
	repeated := of(dtype.F32, 2, 3)
	repeated.Strides, _ = shape.OfStrides(0, 1)
	close := of(dtype.F32, 2, 3)
	close.Strides = shape.Must(2, 1)
	block := of(dtype.Q8_0, 2, 64)
	block.Strides = shape.Must(4, 2)
	gapped := of(dtype.Q8_0, 2, 64)
	gapped.Strides = shape.Must(3, 1)
	q8 := of(dtype.Q8_0, 2, 64)
	x := of(dtype.F32, 2, 3)
	for _, tt := range []struct {
		id   ID
		in   []Operand
		out  Operand
		want Refusal
	}{
		{Softmax, []Operand{x}, x, Refusal{}},
		{Softmax, []Operand{x}, of(dtype.F16, 2, 3), Refusal{Why: WrongFormat, Place: FirstOut, Got: int(dtype.F16)}},
		{Softmax, []Operand{x}, of(dtype.F32, 3, 3), Refusal{Why: WrongSize, Place: FirstOut, Other: NoPlace, Got: 3, Want: 2}},
		{Softmax, []Operand{x}, of(dtype.F32, 3), Refusal{Why: WrongRank, Place: FirstOut, Got: 1, Want: 2}},
		{Softmax, []Operand{x}, repeated, Refusal{Why: Overlapping, Place: FirstOut}},
		{Softmax, []Operand{x}, close, Refusal{Why: Overlapping, Place: FirstOut}},
		{Copy, []Operand{x}, close, Refusal{Why: Overlapping, Place: FirstOut}},
		{Argmax, []Operand{x}, of(dtype.F32, 2), Refusal{Why: WrongFormat, Place: FirstOut, Got: int(dtype.F32)}},
		{Argmax, []Operand{x}, of(dtype.I32, 2, 3), Refusal{Why: WrongRank, Place: FirstOut, Got: 2, Want: 1}},
		{Softmax, []Operand{x}, strided, Refusal{Why: WrongLayout, Place: FirstOut, Want: int(Rows)}},
		{Softmax, []Operand{strided}, x, Refusal{Why: WrongLayout, Place: 0, Want: int(Rows)}},
		{Add, []Operand{strided, repeated}, strided, Refusal{}},
		{Copy, []Operand{strided}, strided, Refusal{}},
		{Copy, []Operand{q8}, q8, Refusal{}},
		{Copy, []Operand{gapped}, q8, Refusal{Why: WrongLayout, Place: 0, Want: int(Contiguous)}},
		{Copy, []Operand{q8}, gapped, Refusal{Why: WrongLayout, Place: FirstOut, Want: int(Contiguous)}},
		{Copy, []Operand{of(dtype.F32, 2, 64)}, gapped, Refusal{}},
		{Copy, []Operand{of(dtype.F32, 2, 64)}, block, Refusal{Why: WrongLayout, Place: FirstOut, Want: int(Rows)}},
		{MatMul, []Operand{x, strided}, of(dtype.F32, 2, 2), Refusal{}},
		{MatMul, []Operand{of(dtype.F32, 2, 64), gapped}, of(dtype.F32, 2, 2), Refusal{}},
		{MatMul, []Operand{of(dtype.F32, 2, 64), block}, of(dtype.F32, 2, 2), Refusal{Why: WrongLayout, Place: 1, Want: int(Rows)}},
	} {
		a := args(Params{}, tt.in...)
		a.Out[0], a.NOut = tt.out, 1
		want := tt.want
		if want.Why != NoRefusal {
			want.Op = tt.id
		}
		if got := Check(tt.id, a); got != want {
			t.Errorf("%s into %v %v: %+v, want %+v", tt.id, tt.out.DType, tt.out.Strides, got, want)
		}
		if !same(a.Out[0], tt.out) {
			t.Errorf("%s: Check has changed the output", tt.id)
		}
		a.NOut = 0
		if got := Check(tt.id, a); got.Why == NoRefusal {
			t.Errorf("%s without an output fits", tt.id)
		}
	}
}

// Check names the second output and optional operands where they do not fit. It accepts their
// absence, and the layouts of their roles.
func TestCheckOfManyOperands(t *testing.T) {
	for _, tt := range []struct {
		name   string
		id     ID
		change func(a *Args)
		want   Refusal
	}{
		{"no second output", AddRMSNorm, func(a *Args) { a.NOut = 1 }, Refusal{Why: WrongCount, Place: NoPlace, Got: 1, Want: 2}},
		{"second dtype", AddRMSNorm, func(a *Args) { a.Out[1] = of(dtype.F16, 4, 6) }, Refusal{Why: WrongFormat, Place: FirstOut + 1, Got: int(dtype.F16)}},
		{"second size", AddRMSNorm, func(a *Args) { a.Out[1] = of(dtype.F32, 4, 5) },
			Refusal{Why: WrongSize, Place: FirstOut + 1, Axis: 1, Other: NoPlace, OtherAxis: 1, Got: 5, Want: 6}},
		{"second layout", AddRMSNorm, func(a *Args) { a.Out[1].Strides = shape.Must(12, 2) }, Refusal{Why: WrongLayout, Place: FirstOut + 1, Want: int(Rows)}},
		{"second shares memory", AddRMSNorm, func(a *Args) { a.Out[1].Strides = shape.Must(3, 1) }, Refusal{Why: Overlapping, Place: FirstOut + 1}},
		{"padded outputs", AddRMSNorm, func(a *Args) { a.Out[0].Strides, a.Out[1].Strides = shape.Must(9, 1), shape.Must(7, 1) }, Refusal{}},
		{"padded cache", RotateStore, func(a *Args) { a.Out[1].Strides = shape.Must(120, 1) }, Refusal{}},
		{"cache with gaps", RotateStore, func(a *Args) { a.Out[1].Strides = shape.Must(300, 2) }, Refusal{Why: WrongLayout, Place: FirstOut + 1, Want: int(Rows)}},
		{"padded angles", RotateStore, func(a *Args) { a.In[3].Strides = shape.Must(20, 2, 1) }, Refusal{Why: WrongLayout, Place: 3, Want: int(Contiguous)}},
		{"columns of a product", RotateStore, func(a *Args) {
			a.In[0].Strides, a.In[1].Strides, a.In[2].Strides = shape.Must(60, 8, 1), shape.Must(60, 8, 1), shape.Must(60, 6, 1)
		}, Refusal{}},
		{"gaps in a key", RotateStore, func(a *Args) { a.In[1].Strides = shape.Must(60, 16, 2) }, Refusal{Why: WrongLayout, Place: 1, Want: int(Rows)}},
		{"spread weights of the norms", RotateStore, func(a *Args) { a.In[5].Strides, a.In[6].Strides = shape.Must(3), shape.Must(2) }, Refusal{}},
		{"no norms", RotateStore, func(a *Args) { a.NIn = 5 }, Refusal{}},
		{"a norm of the key only", RotateStore, func(a *Args) { a.In[5] = Operand{} }, Refusal{}},
		{"one axis of places with gaps", SetRows, func(a *Args) { a.In[1].Strides = shape.Must(2) }, Refusal{Why: WrongLayout, Place: 1, Want: int(Contiguous)}},
		{"parts in another order", SetRows, func(a *Args) { a.Out[0].Strides = shape.Must(2, 6, 1) }, Refusal{}},
		{"blocks with gaps", SetRows, func(a *Args) { a.Out[0].Strides = shape.Must(20, 4, 2) }, Refusal{Why: WrongLayout, Place: FirstOut, Want: int(Rows)}},
		{"blocks of the second weight", Project, func(a *Args) {
			a.In[2] = of(dtype.Q8_0, 4, 64)
			a.In[2].Strides = shape.Must(4, 2)
		}, Refusal{Why: WrongLayout, Place: 2, Want: int(Rows)}},
		{"a column of scalars", Project, func(a *Args) { a.In[2].Strides = shape.Must(1, 4) }, Refusal{}},
		{"spread bias", Project, func(a *Args) { a.In[5].Strides = shape.Must(2) }, Refusal{}},
		{"spread residual", Project, func(a *Args) { a.In[7].Strides = shape.Must(24, 2) }, Refusal{Why: WrongLayout, Place: 7, Want: int(Rows)}},
		{"negative stride of the residual", Project, func(a *Args) { a.In[7].Strides.Set(0, -12) }, Refusal{Why: NoView, Place: 7}},
		{"no residual", Project, func(a *Args) { a.NIn = 7 }, Refusal{}},
		{"no biases", Project, func(a *Args) { a.In[4], a.In[5], a.In[6] = Operand{}, Operand{}, Operand{} }, Refusal{}},
		{"blocks of the gate", GatedProject, func(a *Args) { a.In[1].Strides = shape.Must(4, 2) }, Refusal{Why: WrongLayout, Place: 1, Want: int(Rows)}},
		{"a bias of the gate only", GatedProject, func(a *Args) { a.NIn = 4 }, Refusal{}},
		{"table with gaps", Attention, func(a *Args) { a.In[5].Strides = shape.Must(6, 1) }, Refusal{Why: WrongLayout, Place: 5, Want: int(Contiguous)}},
		{"keys and values of one page", Attention, func(a *Args) { a.In[2].Strides = shape.Must(500, 12, 6, 1) }, Refusal{}},
		{"contiguous keys", Attention, func(a *Args) {
			a.NIn, a.In[1], a.In[2] = 4, of(dtype.F32, 7, 2, 32), of(dtype.F32, 7, 2, 6)
		}, Refusal{}},
	} {
		a := sample(t, tt.id)
		tt.change(a)
		want := tt.want
		if want.Why != NoRefusal {
			want.Op = tt.id
		}
		if got := Check(tt.id, a); got != want {
			t.Errorf("%s with %s: %+v, want %+v", tt.id, tt.name, got, want)
		}
	}
}

// sample returns accepted arguments of each operation.
func sample(t testing.TB, id ID) *Args {
	if contracts[id].infer == nil {
		t.Fatalf("operation %d has no contract", id)
	}
	var a *Args
	switch id {
	case Copy:
		a = args(Params{}, of(dtype.F32, 4, 6))
		a.Out[0].DType = dtype.F16
	case GetRows:
		a = args(Params{}, of(dtype.Q8_0, 5, 64), of(dtype.I32, 3))
	case RMSNorm:
		a = args(Params{}, ofF32(d(4, 6), d(6))...)
	case RoPE:
		a = args(Params{}, ofF32(d(3, 2, 8), d(3, 4, 2))...)
	case MatMul:
		a = args(Params{}, of(dtype.F32, 3, 64), of(dtype.Q8_0, 5, 64))
	case Attention:
		a = args(Params{}, of(dtype.F32, 3, 4, 32), of(dtype.Q8_0, 4, 7, 2, 32), of(dtype.F16, 4, 7, 2, 6), of(dtype.I32, 3),
			of(dtype.I32, 3), of(dtype.I32, 3, 5))
	case SetRows:
		a = into(0, of(dtype.Q8_0, 3, 5, 64), args(Params{}, of(dtype.F32, 3, 64), of(dtype.I32, 3)))
	case AddRMSNorm:
		a = args(Params{}, ofF32(d(4, 6), d(4, 6), d(6))...)
	case Project:
		a = args(Params{}, of(dtype.F32, 3, 64), of(dtype.Q8_0, 5, 64), of(dtype.F16, 4, 64), of(dtype.F32, 3, 64),
			of(dtype.F32, 5), of(dtype.F32, 4), of(dtype.F32, 3), of(dtype.F32, 3, 12))
	case GatedProject:
		a = args(Params{}, of(dtype.F32, 3, 64), of(dtype.Q8_0, 5, 64), of(dtype.F16, 5, 64), of(dtype.F32, 5), of(dtype.F32, 5))
	case RotateStore:
		a = into(1, of(dtype.F16, 5, 112), args(Params{}, append(ofF32(d(3, 4, 8), d(3, 2, 8), d(3, 2, 6), d(3, 4, 2)), of(dtype.I32, 3),
			of(dtype.F32, 8), of(dtype.F32, 8))...))
	default:
		a = &Args{NIn: len(id.Inputs()), Params: Params{SoftCap: 1}}
		for i := range a.NIn {
			a.In[i] = of(dtype.F32, 4, 6)
		}
	}
	if r := Infer(id, a); !r.OK() {
		t.Fatalf("%s: %s", id, r.Text(id))
	}
	return a
}

// longer returns s with one more innermost entry.
func longer(s shape.Shape, v int) shape.Shape {
	s, _ = shape.OfStrides(append(slices.Clone(s.Slice()), v)...)
	return s
}

// places returns the places of an operation's operands.
func places(id ID) []Place {
	var list []Place
	for i := range id.Inputs() {
		list = append(list, Place(i))
	}
	for i := range id.Outputs() {
		list = append(list, FirstOut+Place(i))
	}
	return list
}

// absent reports whether the operand at p of the sample may be absent.
func absent(id ID, p Place) bool {
	switch {
	case p >= FirstOut || !id.Inputs()[p].Optional:
		return false
	case id == Project:
		// The matrices have biases, and the residual has their columns.
		return p > 3
	}
	// The sequences of Attention need the table, and the table needs the sequences.
	return id != Attention
}

// If the description of any one operand is wrong, Check refuses it and names that operand.
func TestEveryFaultIsRefused(t *testing.T) {
	faults := []struct {
		name string
		f    func(o *Operand)
	}{
		{"negative stride", func(o *Operand) { o.Strides.Set(0, -1) }},
		{"overflowing stride", func(o *Operand) { o.Strides.Set(0, math.MaxInt) }},
		{"no strides", func(o *Operand) { o.Strides = shape.Shape{} }},
		{"rank of strides", func(o *Operand) { o.Strides = longer(o.Strides, 1) }},
		{"invalid dtype", func(o *Operand) { o.DType = dtype.Invalid }},
		{"dtype out of range", func(o *Operand) { o.DType = 200 }},
		{"zero shape", func(o *Operand) { o.Shape = shape.Shape{} }},
		{"empty axis", func(o *Operand) { o.Shape.Set(0, 0) }},
		{"empty row", func(o *Operand) { o.Shape.Set(o.Shape.Rank()-1, 0) }},
		{"negative axis", func(o *Operand) { o.Shape.Set(0, -3) }},
		{"overflowing shape", func(o *Operand) { o.Shape.Set(0, math.MaxInt) }},
		{"rank", func(o *Operand) {
			o.Shape = longer(o.Shape, o.DType.BlockSize())
			o.Strides = longer(o.Strides, 1)
		}},
	}
	for id := ID(1); id < Count; id++ {
		for _, fault := range faults {
			for _, p := range places(id) {
				a := sample(t, id)
				o := a.At(p)
				if fault.name == "overflowing stride" && o.Shape.Dim(0) < 3 {
					continue // the offset of the second element of an axis fits an int
				}
				fault.f(o)
				if o.IsZero() && absent(id, p) {
					continue
				}
				if r := Check(id, a); r.OK() || r.Op != id {
					t.Errorf("%s with %s at operand %d: %+v", id, fault.name, p, r)
				}
			}
		}
		for _, p := range places(id) {
			a := sample(t, id)
			*a.At(p) = Operand{}
			if r := Check(id, a); r.OK() != absent(id, p) {
				t.Errorf("%s without the %s: %+v", id, id.Role(p), r)
			}
		}
		inputs, outputs := id.Inputs(), len(id.Outputs())
		for _, n := range []int{-1, 0, 1, 4, MaxIn, MaxIn + 1, math.MaxInt} {
			a := sample(t, id)
			a.NIn = n
			if n < len(inputs) && n > 0 && inputs[n].Optional || n == len(inputs) {
				continue
			}
			if r := Check(id, a); r.Why != WrongCount {
				t.Errorf("%s with %d inputs: %+v", id, n, r)
			}
			if r := Infer(id, a); r.Why != WrongCount {
				t.Errorf("%s with %d inputs: %+v", id, n, r)
			}
			a = sample(t, id)
			a.NOut = n
			if r := Check(id, a); n != outputs && r.Why != WrongCount {
				t.Errorf("%s with %d outputs: %+v", id, n, r)
			}
		}
	}
}

// hostile has the large and negative numbers of fuzzed operands.
var hostile = [...]int{
	0, -1, math.MinInt, math.MaxInt, math.MaxInt / 2, math.MaxInt/2 + 1,
	1 << 31 & math.MaxInt, // 0 if an int has 32 bits
	1<<31 - 1, 1 << 20, 32, 256,
}

// fuzzed reads numbers from bytes. After the last byte it reads zeros.
type fuzzed struct{ p []byte }

func (f *fuzzed) byte() byte {
	if len(f.p) == 0 {
		return 0
	}
	b := f.p[0]
	f.p = f.p[1:]
	return b
}

// number returns a small number or one of hostile.
func (f *fuzzed) number() int {
	b := int(f.byte())
	if b >= 128 {
		return hostile[b%len(hostile)]
	}
	return b % 8
}

func (f *fuzzed) shape() shape.Shape {
	dims := make([]int, f.byte()%(shape.MaxRank+1))
	s, _ := shape.OfStrides(dims...) // rank 0 is the zero Shape
	for i := range dims {
		s.Set(i, f.number())
	}
	return s
}

func (f *fuzzed) operand(o *Operand) {
	what := f.byte()
	if what&1 != 0 {
		o.DType = dtype.DType(f.byte())
	}
	if what&2 != 0 {
		o.Shape = f.shape()
	}
	if what&4 != 0 {
		o.Strides = f.shape()
	}
	if what&8 != 0 && o.Shape.Rank() > 0 {
		o.Shape.Set(int(f.byte())%o.Shape.Rank(), f.number())
	}
	if what&16 != 0 && o.Strides.Rank() > 0 {
		o.Strides.Set(int(f.byte())%o.Strides.Rank(), f.number())
	}
	if what&32 != 0 {
		o.Offset = f.number()
	}
	if what&64 != 0 {
		o.Mem = Mem{ID: 1, Len: f.number()}
	}
}

// FuzzContract gives unchecked arguments to the contract. It never panics. Check accepts the
// output of Infer, unless it refuses the strides of inputs. Every refusal has a text.
func FuzzContract(f *testing.F) {
	for id := range Count + 1 {
		f.Add(uint8(id), []byte{})
		f.Add(uint8(id), []byte{0, 2, 2, 200, 201})
		f.Add(uint8(id), []byte{1, 8, 1, 128, 8, 0, 129, 16, 0, 130, 63, 3, 2, 4, 5, 2, 1, 1, 0, 131, 1, 132, 4})
	}
	f.Fuzz(func(t *testing.T, kind uint8, p []byte) {
		id, in := ID(kind), fuzzed{p}
		a := &Args{}
		if id.Valid() {
			a = sample(t, id)
		}
		what := in.byte()
		if what&1 != 0 {
			a.NIn = in.number()
		}
		if what&2 != 0 {
			a.NOut = in.number()
		}
		if what&4 != 0 {
			a.Window, a.Mode, a.Act, a.BiasFirst = in.number(), RoPEMode(in.byte()), Activation(in.byte()), in.byte()&1 != 0
			a.Generated, a.Chunks = in.number(), in.number()
			for i := range a.Scales {
				a.Scales[i] = math.Float32frombits(uint32(in.number()) << 16)
			}
			a.Eps, a.SoftCap = math.Float32frombits(uint32(in.number())), math.Float32frombits(uint32(in.number())<<16)
		}
		for i := range a.In {
			in.operand(&a.In[i])
			_ = a.In[i].Fits()
		}
		for i := range a.Out {
			in.operand(&a.Out[i])
		}
		check := func(r Refusal) {
			if !r.OK() && (r.Op != id || r.Text(id) == "" || r.Sentinel() == nil) {
				t.Errorf("%s: refusal %+v", id, r)
			}
		}
		r := Check(id, a)
		check(r)
		r = Infer(id, a)
		check(r)
		if !r.OK() {
			return
		}
		if n := Cost(id, a); n < 1 {
			t.Errorf("%s: the cost is %d", id, n)
		}
		for p, role := range id.Inputs() {
			if role.Index && a.Has(Place(p)) && id.Limit(a, Place(p)) < 1 {
				t.Errorf("%s: the limit of the %s is %d", id, id.Role(Place(p)), id.Limit(a, Place(p)))
			}
		}
		r = Check(id, a)
		check(r)
		if !r.OK() && (r.Place >= FirstOut || r.Why != WrongLayout && r.Why != NoView) {
			t.Errorf("%s: refuses what was inferred: %s", id, r.Text(id))
		}
	})
}

func TestFits(t *testing.T) {
	for _, tt := range []struct {
		o    Operand
		len  int
		fits bool
	}{
		{of(dtype.F32, 2, 3), 24, true},
		{of(dtype.F32, 2, 3), 23, false},
		{of(dtype.F32, 2, 3), 0, false},
		{of(dtype.Q8_0, 2, 64), 4 * 34, true},
		{of(dtype.Q8_0, 2, 64), 4*34 - 1, false},
		{Operand{DType: dtype.F32, Shape: shape.Must(2), Strides: shape.Must(1), Offset: 1}, 12, true},
		{Operand{DType: dtype.F32, Shape: shape.Must(2), Strides: shape.Must(1), Offset: 1}, 11, false},
		{Operand{DType: dtype.F32, Shape: shape.Must(2), Strides: shape.Must(1), Offset: -1}, 12, false},
		{Operand{DType: dtype.F32, Shape: shape.Must(2), Strides: shape.Must(1), Offset: math.MaxInt}, 12, false},
		{Operand{DType: dtype.F32, Shape: shape.Must(3), Strides: shape.Must(math.MaxInt)}, 12, false},
		{Operand{DType: dtype.F32, Shape: shape.Must(2), Strides: shape.Must(math.MaxInt), Offset: math.MaxInt}, 12, false},
		{of(dtype.F32, 2, 3), -1, false},
		{Operand{DType: dtype.F32, Shape: shape.Must(3), Strides: shape.Must(1, 1)}, 12, false},
		{Operand{DType: dtype.Q8_0, Shape: shape.Must(33), Strides: shape.Must(1)}, 340, false},
		{Operand{DType: dtype.Invalid, Shape: shape.Must(3), Strides: shape.Must(1)}, 12, false},
	} {
		tt.o.Mem = Mem{ID: 1, Len: tt.len}
		if got := tt.o.Fits(); got != tt.fits {
			t.Errorf("%v %v with strides %v at %d in %d bytes: %v", tt.o.DType, tt.o.Shape, tt.o.Strides, tt.o.Offset, tt.len, got)
		}
	}
	for _, o := range []Operand{{DType: dtype.F32, Shape: shape.Must(3)}, {DType: dtype.F32}, {DType: dtype.F32, Strides: shape.Must(1)}} {
		if o.Has(Rows) || o.Has(Contiguous) || !o.Has(Free) {
			t.Errorf("shape %v with strides %v has a layout", o.Shape, o.Strides)
		}
	}
	negative := of(dtype.F32, 2, 3)
	negative.Strides.Set(0, -1)
	negative.Mem.Len = 100
	if negative.Fits() {
		t.Error("a negative stride fits")
	}
}

// Infer, Check, Cost and Limit allocate nothing, for any operation.
func TestInferAllocatesNothing(t *testing.T) {
	for id := ID(1); id < Count; id++ {
		a := sample(t, id)
		if n := testing.AllocsPerRun(100, func() {
			if r := Infer(id, a); !r.OK() {
				t.Error(r)
			}
			if r := Check(id, a); !r.OK() {
				t.Error(r)
			}
			_ = Cost(id, a)
			for p, role := range id.Inputs() {
				if role.Index {
					_ = id.Limit(a, Place(p))
				}
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations, want 0", id, n)
		}
	}
}

func BenchmarkInfer(b *testing.B) {
	a := args(Params{}, ofF32(d(1, 2048), d(5632, 2048))...)
	b.ReportAllocs()
	for b.Loop() {
		if r := Infer(MatMul, a); !r.OK() {
			b.Fatal(r)
		}
	}
}
