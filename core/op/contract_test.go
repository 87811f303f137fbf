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
		if c.infer == nil || len(c.in) == 0 || len(c.in) > MaxIn || len(c.out) == 0 || len(c.out) > MaxOut {
			t.Errorf("%s: %d inputs, %d outputs", id, len(c.in), len(c.out))
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
		cost int64
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
		{
			id:   Attention,
			args: args(Params{Past: 5}, of(dtype.F32, 2, 4, 32), of(dtype.F16, 7, 2, 32), of(dtype.Q8_0, 7, 2, 64)),
			want: of(dtype.F32, 2, 4, 64), cost: 2 * 2 * 4 * 64 * 7,
		},
		{id: Softmax, args: args(Params{}, ofF32(d(2, 3))...), want: of(dtype.F32, 2, 3)},
		{id: Argmax, args: args(Params{}, ofF32(d(2, 3))...), want: of(dtype.I32, 2)},
		{id: Argmax, args: args(Params{}, ofF32(d(3))...), want: of(dtype.I32, 1)},
	} {
		t.Run(fmt.Sprint(tt.id, tt.want.Shape), func(t *testing.T) {
			tt.args.Out[0].DType = tt.to
			if r := Infer(tt.id, tt.args); !r.OK() {
				t.Fatal(r.Text(tt.id))
			}
			if got := tt.args.Out[0]; tt.args.NOut != 1 || !same(got, tt.want) {
				t.Errorf("%d outputs, the first %+v, want %+v", tt.args.NOut, got, tt.want)
			}
			if r := Check(tt.id, tt.args); !r.OK() {
				t.Errorf("refuses what was inferred: %s", r.Text(tt.id))
			}
			n := int64(1)
			for _, d := range tt.want.Shape.Slice() {
				n *= int64(d)
			}
			if tt.cost != 0 {
				n = tt.cost
			}
			if got := Cost(tt.id, tt.args); got != n {
				t.Errorf("costs %d, want %d", got, n)
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
		{Attention, args(Params{}, ofF32(d(1, 3, 4), d(1, 2, 4), d(1, 2, 4))...), 0, shape.ErrShapeMismatch, "axis 1 of the query is 3, want a multiple of 2, as axis 1 of the key"},
		{Attention, args(Params{}, ofF32(d(1, 2, 4), d(1, 2, 5), d(1, 2, 4))...), 0, shape.ErrShapeMismatch, "axis 2 of the key is 5, want 4, as axis 2 of the query"},
		{Attention, args(Params{}, ofF32(d(1, 2, 4), d(1, 2, 4), d(2, 2, 4))...), 0, shape.ErrShapeMismatch, "axis 0 of the value is 2, want 1, as axis 0 of the key"},
		{Attention, args(Params{Past: 1}, ofF32(d(1, 2, 4), d(1, 2, 4), d(1, 2, 4))...), 0, tensor.ErrIndexOutOfBounds, "0 keys after the past ones, want at least the 1 queries"},
		{Attention, args(Params{Past: -1}, ofF32(d(1, 2, 4), d(1, 2, 4), d(1, 2, 4))...), 0, ErrParam, "the number of past keys is -1, want at least 0"},
		{Attention, args(Params{Past: math.MaxInt}, ofF32(d(1, 2, 4), d(1, 2, 4), d(1, 2, 4))...), 0, tensor.ErrIndexOutOfBounds, "0 keys after the past ones, want at least the 1 queries"},
		{Attention, args(Params{}, of(dtype.F32, 1, 2, 8), as(dtype.Q8_0, 1, 2, 8), of(dtype.F32, 1, 2, 8)), 0, shape.ErrShapeMismatch, "axis 2 of the key is 8, want a multiple of 32"},
		{Attention, args(Params{Window: -1}, ofF32(d(1, 2, 4), d(1, 2, 4), d(1, 2, 4))...), 0, ErrParam, "the window is -1, want at least 0"},
		{Attention, args(Params{}, of(dtype.F32, 1, 2, 4), of(dtype.BF16, 1, 2, 4), of(dtype.F32, 1, 2, 4)), 0, tensor.ErrDType, "the key is bf16, want f16, f32 or q8_0"},
	} {
		tt.args.Out[0].DType = tt.to
		r := Infer(tt.id, tt.args)
		if got := r.Text(tt.id); r.OK() || r.Op != tt.id || len(got) < len(tt.want) || got[:len(tt.want)] != tt.want {
			t.Errorf("%s: %q, want %q", tt.id, got, tt.want)
		}
		if !errors.Is(r.Sentinel(), tt.is) {
			t.Errorf("%s: %q is %v, want %v", tt.id, tt.want, r.Sentinel(), tt.is)
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
		a = args(Params{Past: 3}, of(dtype.F32, 2, 4, 32), of(dtype.Q8_0, 7, 2, 32), of(dtype.F16, 7, 2, 6))
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
			for i := -1; i < len(id.Inputs()); i++ {
				a := sample(t, id)
				o := &a.Out[0]
				if i >= 0 {
					o = &a.In[i]
				}
				if fault.name == "overflowing stride" && o.Shape.Dim(0) < 3 {
					continue // the offset of the second element of an axis fits an int
				}
				fault.f(o)
				if r := Check(id, a); r.OK() || r.Op != id {
					t.Errorf("%s with %s at operand %d: %+v", id, fault.name, i, r)
				}
			}
		}
		for _, n := range []int{-1, 0, 4, MaxIn, MaxIn + 1, math.MaxInt} {
			a := sample(t, id)
			a.NIn = n
			if r := Check(id, a); r.Why != WrongCount {
				t.Errorf("%s with %d inputs: %+v", id, n, r)
			}
			if r := Infer(id, a); r.Why != WrongCount {
				t.Errorf("%s with %d inputs: %+v", id, n, r)
			}
			a = sample(t, id)
			a.NOut = n
			if r := Check(id, a); r.Why != WrongCount {
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
			a.Past, a.Window, a.Mode = in.number(), in.number(), RoPEMode(in.byte())
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
		_ = Cost(id, a)
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

func TestInferAllocatesNothing(t *testing.T) {
	a := args(Params{Past: 5}, of(dtype.F32, 2, 4, 32), of(dtype.F16, 7, 2, 32), of(dtype.Q8_0, 7, 2, 64))
	if n := testing.AllocsPerRun(100, func() {
		if r := Infer(Attention, a); !r.OK() {
			t.Error(r)
		}
		if r := Check(Attention, a); !r.OK() {
			t.Error(r)
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
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
