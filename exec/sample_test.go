package exec

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/core/storage"
	"github.com/fucina-go/fucina/core/tensor"
	"github.com/x448/float16"
)

// operandOf describes an operand of a sample. The zero value is an operand that is absent.
type operandOf struct {
	d    dtype.DType
	dims []int
	ints []int32 // the values of an i32 operand; other values are random
	// turned says that the last two axes are stored in the other order.
	turned bool
}

func f32s(dims ...int) operandOf              { return operandOf{d: dtype.F32, dims: dims} }
func of(d dtype.DType, dims ...int) operandOf { return operandOf{d: d, dims: dims} }
func ints(values ...int32) operandOf {
	return operandOf{d: dtype.I32, dims: []int{len(values)}, ints: values}
}

// turned returns o with its last two axes stored in the other order.
func turned(o operandOf) operandOf {
	o.turned = true
	return o
}

// make returns a new tensor outside the pool, in host memory.
func (o operandOf) make(t *testing.T, rng *rand.Rand) tensor.Tensor {
	t.Helper()
	dims := slices.Clone(o.dims)
	n := len(dims)
	if o.turned {
		dims[n-1], dims[n-2] = dims[n-2], dims[n-1]
	}
	s := shape.Must(dims...)
	count, err := s.StorageElements(o.d)
	if err != nil {
		t.Fatal(err)
	}
	var x tensor.Tensor
	switch o.d {
	case dtype.F32:
		x, err = tensor.FromSlice(s, fill(count, func() float32 { return rng.Float32()*2 - 1 }))
	case dtype.F16:
		x, err = tensor.FromSlice(s, fill(count, func() float16.Float16 { return float16.Fromfloat32(rng.Float32()*2 - 1) }))
	case dtype.Q8_0:
		x, err = tensor.FromSlice(s, fill(count, func() (b dtype.BlockQ8_0) {
			b.D = float16.Fromfloat32(rng.Float32() / 64)
			for i := range b.QS {
				b.QS[i] = int8(rng.IntN(255) - 127)
			}
			return b
		}))
	case dtype.I32:
		x, err = tensor.FromSlice(s, o.ints)
	default:
		t.Fatalf("no sample of %s", o.d)
	}
	if err != nil {
		t.Fatal(err)
	}
	if o.turned {
		order := make([]int, n)
		for i := range order {
			order[i] = i
		}
		order[n-1], order[n-2] = n-2, n-1
		v, err := x.Permute(order...)
		if err != nil {
			t.Fatal(err)
		}
		x.Release()
		x = v
	}
	return x
}

func fill[T any](n int, next func() T) []T {
	list := make([]T, n)
	for i := range list {
		list[i] = next()
	}
	return list
}

// sample is a call with its operands.
type sample struct {
	name string
	id   op.ID
	p    op.Params
	in   []operandOf
	into operandOf // the existing output, or the zero value
}

// operands are the tensors of a sample.
type operands struct {
	in   []*tensor.Tensor
	into *tensor.Tensor
}

// make returns the sample's tensors in host memory. They are the same each time.
func (s *sample) make(t *testing.T) (o operands) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	for _, in := range s.in {
		if in.d == dtype.Invalid {
			o.in = append(o.in, nil)
			continue
		}
		x := in.make(t, rng)
		o.in = append(o.in, &x)
	}
	if s.into.d != dtype.Invalid {
		x := s.into.make(t, rng)
		o.into = &x
	}
	return o
}

func (o *operands) release() {
	for _, x := range append(o.in, o.into) {
		if x != nil {
			x.Release()
		}
	}
}

// run runs the sample on o, and returns its new outputs.
func (s *sample) run(c *Queue, o operands) (out [op.MaxOut]tensor.Tensor, err error) {
	switch {
	case len(s.id.Outputs()) == op.MaxOut:
		out[0], out[1], err = c.doBoth(s.id, &s.p, o.into, o.in...)
	case o.into != nil:
		err = c.DoInto(s.id, &s.p, o.into, o.in...)
	default:
		out[0], err = c.Do(s.id, &s.p, o.in...)
	}
	return out, err
}

// doBoth runs an operation with two outputs. If into is not nil, it is the second one.
func (c *Queue) doBoth(id op.ID, p *op.Params, into *tensor.Tensor, in ...*tensor.Tensor) (first, second tensor.Tensor, err error) {
	r := Results{&first}
	if into == nil {
		r[1] = &second
	}
	err = c.DoTo(id, p, r, into, in...)
	return first, second, err
}

// allocatesNothing reports an error if the sample allocates on the Go heap when c runs it again.
func (s *sample) allocatesNothing(t *testing.T, c *Queue) {
	t.Helper()
	o := s.make(t)
	defer o.release()
	if n := testing.AllocsPerRun(20, func() {
		out, err := s.run(c, o)
		if err != nil {
			t.Fatal(err)
		}
		releaseAll(out[:])
	}); n != 0 {
		t.Errorf("%s %s: %v allocations", s.id, s.name, n)
	}
}

// result runs the sample on c with operands from host memory, and returns the bytes of the
// outputs, in order. It releases everything.
func (s *sample) result(t *testing.T, c *Queue) ([][]byte, error) {
	t.Helper()
	o := s.make(t)
	defer o.release()
	return s.resultOf(c, o)
}

// resultOf is result with the operands o, which it does not release.
func (s *sample) resultOf(c *Queue, o operands) (list [][]byte, err error) {
	out, err := s.run(c, o)
	defer releaseAll(out[:])
	if err != nil {
		if !out[0].IsZero() || !out[1].IsZero() {
			err = fmt.Errorf("a result beside an error: %w", err)
		}
		return nil, err
	}
	read := func(x *tensor.Tensor) error {
		p, err := x.Bytes(context.Background(), storage.Read)
		list = append(list, slices.Clone(p))
		return err
	}
	for i := range out {
		if !out[i].IsZero() {
			if err := read(&out[i]); err != nil {
				return nil, err
			}
		}
	}
	if o.into != nil {
		if err := read(o.into); err != nil {
			return nil, err
		}
	}
	return list, nil
}

const tokens, heads, kvHeads, headDim, valueDim, pages, pageRows = 5, 4, 2, 32, 64, 3, 4

var (
	ones = [3]float32{1, 1, 1}
	none operandOf
)

// rotateStore returns a sample of RotateStore.
func rotateStore(name string, cache dtype.DType, qNorm, kNorm bool) sample {
	s := sample{
		name: "rotate_store " + name, id: op.RotateStore, p: op.Params{Eps: 1e-5, Mode: op.RoPENeoX},
		in: []operandOf{
			f32s(tokens, heads, headDim), f32s(tokens, kvHeads, headDim), f32s(tokens, kvHeads, valueDim),
			f32s(tokens, headDim/4, 2), ints(7, 0, 11, 4, 3), none, none,
		},
		into: of(cache, pages, pageRows*kvHeads*(headDim+valueDim)),
	}
	if qNorm {
		s.in[5] = f32s(headDim)
	}
	if kNorm {
		s.in[6] = f32s(headDim)
	}
	return s
}

// project returns a sample of Project from the columns and the presence of the biases of its
// matrices.
func project(name string, p op.Params, residual bool, columns [3]int, biases [3]bool) sample {
	s := sample{name: "project " + name, id: op.Project, p: p, in: []operandOf{f32s(2, tokens, 64), none, none, none, none, none, none, none}}
	formats := [...]dtype.DType{dtype.Q8_0, dtype.F32, dtype.F16}
	total := 0
	for i, n := range columns {
		if total += n; n == 0 {
			continue
		}
		s.in[1+i] = of(formats[i], n, 64)
		if biases[i] {
			s.in[4+i] = f32s(n)
		}
	}
	if residual {
		s.in[7] = f32s(2, tokens, total)
	}
	return s
}

// composites are samples of the operations that have parts.
var composites = []sample{
	{name: "add_rms_norm", id: op.AddRMSNorm, p: op.Params{Eps: 1e-5}, in: []operandOf{f32s(3, 2, 40), f32s(3, 2, 40), f32s(40)}},
	{name: "add_rms_norm turned", id: op.AddRMSNorm, in: []operandOf{turned(f32s(3, 40)), f32s(3, 40), f32s(40)}},
	project("one", op.Params{Scales: ones}, false, [3]int{7}, [3]bool{}),
	project("one with all", op.Params{Scales: [3]float32{0.3}}, true, [3]int{7}, [3]bool{true}),
	project("bias first", op.Params{Scales: [3]float32{0.3, 1, 0.7}, BiasFirst: true}, true, [3]int{7, 9, 4}, [3]bool{true, false, true}),
	project("two", op.Params{Scales: ones}, true, [3]int{7, 9}, [3]bool{}),
	project("first and third", op.Params{Scales: [3]float32{1, 0, 0.7}}, false, [3]int{7, 0, 4}, [3]bool{false, false, true}),
	project("three", op.Params{Scales: [3]float32{0.3, 1, 0.7}}, false, [3]int{7, 9, 4}, [3]bool{true, true, true}),
	project("in chunks", op.Params{Scales: [3]float32{1, 0.3}, Chunks: 2}, true, [3]int{7, 9}, [3]bool{true}),
	{
		name: "gated_project in chunks", id: op.GatedProject, p: op.Params{Scales: ones, Chunks: 2},
		in: []operandOf{f32s(tokens, 64), of(dtype.Q8_0, 6, 64), f32s(6, 64)},
	},
	{
		name: "gated_project", id: op.GatedProject, p: op.Params{Scales: ones},
		in: []operandOf{f32s(tokens, 64), of(dtype.Q8_0, 6, 64), of(dtype.Q8_0, 6, 64)},
	},
	{
		name: "gated_project with all", id: op.GatedProject, p: op.Params{Scales: [3]float32{0.3, 0.7}, Act: op.GELU},
		in: []operandOf{turned(f32s(tokens, 64)), f32s(6, 64), of(dtype.F16, 6, 64), f32s(6), f32s(6)},
	},
	{
		name: "gated_project bias first", id: op.GatedProject, p: op.Params{Scales: [3]float32{0.3, 0.7}, BiasFirst: true},
		in: []operandOf{f32s(64), f32s(6, 64), f32s(6, 64), none, f32s(6)},
	},
	rotateStore("f32", dtype.F32, false, false),
	rotateStore("f16", dtype.F16, true, false),
	rotateStore("q8_0", dtype.Q8_0, true, true),
	func() sample { // the values have no rows that are contiguous across heads
		s := rotateStore("turned heads", dtype.Q8_0, false, true)
		s.in[0], s.in[2] = turned(s.in[0]), turned(s.in[2])
		return s
	}(),
}
