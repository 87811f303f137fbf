package exec

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/core/storage"
	"github.com/fucina-go/fucina/core/tensor"
	"github.com/fucina-go/fucina/internal/invariants"
	"github.com/fucina-go/fucina/providers/cpu"
	"github.com/fucina-go/fucina/tests/harness"
	"github.com/fucina-go/fucina/tests/leak"
)

// newCPU returns a queue of an engine without a device, which ends with the test.
func newCPU(t *testing.T) (*Engine, *Queue) {
	t.Helper()
	e, c := openCPU(t)
	harness.CloseLater(t, e)
	harness.CloseLater(t, c)
	return e, c
}

// An operation with two outputs returns both.
func TestTwoOutputs(t *testing.T) {
	leak.Check(t)
	e, c := newCPU(t)
	x, y, w := vector(t, c, 3, 0), vector(t, c, 0, 4), vector(t, c, 2, 1)
	sum, norm, err := c.doBoth(op.AddRMSNorm, nil, nil, &x, &y, &w)
	if err != nil {
		t.Fatal(err)
	}
	want, err := c.Do(op.RMSNorm, nil, &sum, &w)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		t    *tensor.Tensor
		want []float32
	}{{"the sum", &sum, []float32{3, 4}}, {"the norm", &norm, floats(t, &want)}} {
		if got := floats(t, tt.t); !slices.Equal(got, tt.want) {
			t.Errorf("%s is %v, want %v", tt.name, got, tt.want)
		}
	}
	releaseAll([]tensor.Tensor{x, y, w, sum, norm, want})
	if n := e.Stats().Pool.Outstanding; n != 0 {
		t.Errorf("%d buffers are not released", n)
	}
}

func floats(t *testing.T, x *tensor.Tensor) []float32 {
	t.Helper()
	p, err := tensor.Data[float32](context.Background(), x, storage.Read)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clone(p)
}

// An operation writes rows of a tensor that exists, through a view of it too.
func TestRowsOfExistingTensor(t *testing.T) {
	_, c := newCPU(t)
	cache, err := FromSlice(c, shape.Must(2, 2, 3), make([]float32, 12))
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Release()
	part, err := cache.Narrow(2, 1, 2) // [2, 2, 2] in the last two columns
	if err != nil {
		t.Fatal(err)
	}
	defer part.Release()
	x, err := FromSlice(c, shape.Must(2, 2), []float32{1, 2, 3, 4})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Release()
	places, err := FromSlice(c, shape.Must(2), []int32{3, 0})
	if err != nil {
		t.Fatal(err)
	}
	defer places.Release()
	if err := c.DoInto(op.SetRows, nil, &part, &x, &places); err != nil {
		t.Fatal(err)
	}
	if got, want := floats(t, &cache), []float32{0, 3, 4, 0, 0, 0, 0, 0, 0, 0, 1, 2}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// Inputs of other strides than an operation takes are copied first, in any place.
func TestLayoutOfCompositeOperands(t *testing.T) {
	leak.Check(t)
	e, c := newCPU(t)
	for _, s := range composites {
		whole := s.make(t)
		want, err := s.resultOf(c, whole)
		if err != nil {
			t.Fatal(err)
		}
		for i, in := range s.in {
			if len(in.dims) < 2 || in.d == dtype.Q8_0 {
				continue
			}
			o := s.make(t)
			// The same values, stored in the opposite order of axes.
			var order, back []int
			for k := range in.dims {
				order = append(order, len(in.dims)-1-k)
			}
			back = order // its own inverse
			p, err := o.in[i].Permute(order...)
			if err != nil {
				t.Fatal(err)
			}
			stored, err := c.Do(op.Copy, &op.Params{To: in.d}, &p)
			if err != nil {
				t.Fatal(err)
			}
			v, err := stored.Permute(back...)
			if err != nil {
				t.Fatal(err)
			}
			p.Release()
			stored.Release()
			o.in[i].Release()
			*o.in[i] = v
			got, err := s.resultOf(c, o)
			if err != nil || !slices.EqualFunc(got, want, slices.Equal) {
				t.Errorf("%s with other strides of the %s: other bits, %v", s.name, s.id.Role(op.Place(i)), err)
			}
			o.release()
		}
		whole.release()
	}
	if n := e.Stats().Pool.Outstanding; n != 0 {
		t.Errorf("%d buffers are not released", n)
	}
}

// A call that does not fit its operation is refused: by the number of its operands, for an
// operand that is absent, and for an output that exists or does not.
func TestCallsThatDoNotFit(t *testing.T) {
	leak.Check(t)
	_, c := newCPU(t)
	x, w := f32s(1, 64), f32s(4, 64)
	add := sample{in: []operandOf{f32s(4), f32s(4), f32s(4)}}
	for _, tt := range []struct {
		name string
		in   []operandOf
		into operandOf
		call func(o operands) error
		text string
		err  error
	}{
		{"one output of two", add.in, none, func(o operands) error { _, err := c.Do(op.AddRMSNorm, nil, o.in...); return err },
			"add_rms_norm: 4 operands, want 5: left f32 [4], right f32 [4], weight f32 [4]", shape.ErrShapeMismatch},
		{"two outputs of one", add.in[:2], none, func(o operands) error { _, _, err := c.doBoth(op.Add, nil, nil, o.in...); return err },
			"add: 4 operands, want 3: left f32 [4], right f32 [4]", shape.ErrShapeMismatch},
		{"a second output that is new", add.in, f32s(4), func(o operands) error { _, _, err := c.doBoth(op.AddRMSNorm, nil, o.into, o.in...); return err },
			"add_rms_norm: 4 operands, want 5: left f32 [4], right f32 [4], weight f32 [4]", shape.ErrShapeMismatch},
		{"no destination", []operandOf{f32s(1, 4), ints(0)}, none, func(o operands) error { _, err := c.Do(op.SetRows, nil, o.in...); return err },
			"set_rows: the destination is absent, want f16, f32 or q8_0: input f32 [1 4], places i32 [1]", tensor.ErrDType},
		{"no cache", rotateStore("", dtype.F32, false, false).in[:5], none, func(o operands) error { _, _, err := c.doBoth(op.RotateStore, nil, nil, o.in...); return err },
			"rotate_store: the cache is absent, want f16, f32 or q8_0: query f32 [5 4 32], key f32 [5 2 32], value f32 [5 2 64], table f32 [5 8 2], places i32 [5]", tensor.ErrDType},
		{"nine operands", []operandOf{x, w, w, w, none, none, none, none, x}, none, func(o operands) error { _, err := c.Do(op.Project, nil, o.in...); return err },
			"project: 9 operands, want 8: input f32 [1 64], weight f32 [4 64], second weight f32 [4 64], third weight f32 [4 64]", shape.ErrShapeMismatch},
		{"no weight", []operandOf{x, none, w}, none, func(o operands) error { _, err := c.Do(op.Project, nil, o.in...); return err },
			"project: the weight is absent, want ", tensor.ErrDType},
		{"no operand", nil, none, func(operands) error { _, err := c.Do(op.Add, nil, nil, nil); return err },
			"add: the left is absent, want f32", tensor.ErrDType},
		{"a bias without its weight", []operandOf{x, w, none, none, none, f32s(4)}, none, func(o operands) error { _, err := c.Do(op.Project, nil, o.in...); return err },
			"project: got the second bias without the second weight: input f32 [1 64], weight f32 [4 64], second bias f32 [4]", shape.ErrShapeMismatch},
		{"an unknown operation", add.in[:1], none, func(o operands) error { _, err := c.Do(op.Count, nil, o.in...); return err },
			"invalid op: operation ", shape.ErrShapeMismatch},
	} {
		s := sample{in: tt.in, into: tt.into}
		o := s.make(t)
		err := tt.call(o)
		if err == nil || !errors.Is(err, tt.err) || len(err.Error()) < len(tt.text) || err.Error()[:len(tt.text)] != tt.text {
			t.Errorf("%s: error %v, want %s", tt.name, err, tt.text)
		}
		o.release()
	}
}

// An output in a read-only buffer is refused.
func TestReadOnlyCache(t *testing.T) {
	_, c := newCPU(t)
	s := rotateStore("", dtype.F32, false, false)
	o := s.make(t)
	defer o.release()
	cache, err := tensor.FromBuffer(storage.Borrow(make([]byte, 4*o.into.Len()), storage.BorrowOptions{ReadOnly: true}), dtype.F32, o.into.Shape())
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Release()
	if _, _, err := c.doBoth(s.id, &s.p, &cache, o.in...); !errors.Is(err, tensor.ErrReadOnly) {
		t.Errorf("error %v, want ErrReadOnly", err)
	}
}

// An input in the buffer of the output is copied first only if the bytes of the two overlap.
func TestInputsInTheBufferOfTheOutput(t *testing.T) {
	for _, tt := range []struct {
		name    string
		out, in func(x *tensor.Tensor) (tensor.Tensor, error)
		copies  uint64
		want    []float32
	}{
		{"other rows", narrow(0, 0, 1), narrow(0, 1, 1), 0, []float32{3, 4, 5, 3, 4, 5, 6, 7, 8}},
		{"the rows below", narrow(0, 0, 2), narrow(0, 1, 2), 1, []float32{3, 4, 5, 6, 7, 8, 6, 7, 8}},
		{"the rows above", narrow(0, 1, 2), narrow(0, 0, 2), 1, []float32{0, 1, 2, 0, 1, 2, 3, 4, 5}},
		{"the last row and the first", narrow(0, 2, 1), narrow(0, 0, 1), 0, []float32{0, 1, 2, 3, 4, 5, 0, 1, 2}},
		// The extents of columns overlap, although no element is in both.
		{"other columns", narrow(1, 0, 1), narrow(1, 2, 1), 1, []float32{2, 1, 2, 5, 4, 5, 8, 7, 8}},
		{"the same", narrow(0, 1, 1), narrow(0, 1, 1), 1, []float32{0, 1, 2, 3, 4, 5, 6, 7, 8}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			leak.Check(t)
			e, c := newCPU(t)
			x, err := FromSlice(c, shape.Must(3, 3), []float32{0, 1, 2, 3, 4, 5, 6, 7, 8})
			if err != nil {
				t.Fatal(err)
			}
			defer x.Release()
			out, err := tt.out(&x)
			if err != nil {
				t.Fatal(err)
			}
			defer out.Release()
			in, err := tt.in(&x)
			if err != nil {
				t.Fatal(err)
			}
			defer in.Release()
			if err := c.DoInto(op.Copy, nil, &out, &in); err != nil {
				t.Fatal(err)
			}
			if stats := e.CPU().Stats(); stats.Ops() != 1+tt.copies {
				t.Errorf("%d operations, want %d", stats.Ops(), 1+tt.copies)
			}
			if got := floats(t, &x); !slices.Equal(got, tt.want) {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

// narrow returns a function that makes a view.
func narrow(axis, start, count int) func(x *tensor.Tensor) (tensor.Tensor, error) {
	return func(x *tensor.Tensor) (tensor.Tensor, error) { return x.Narrow(axis, start, count) }
}

// Calls of every kind allocate nothing on the Go heap in their steady state.
func TestCompositesAllocateNothing(t *testing.T) {
	if invariants.Enabled || invariants.RaceEnabled {
		t.Skip("checks allocate")
	}
	_, c := newCPU(t)
	for _, s := range append(slices.Clone(composites), attention(ints(0, 7, 1), ints(0, 1, 1), tableOf(0, 1, 2, 0))) {
		s.allocatesNothing(t, c)
	}
}

// faultyCPU records the arguments of each Submit, and fails one.
type faultyCPU struct {
	provider.Provider
	left int // the Submit that fails, counting down
	seen []op.Args
	err  error
}

func (p *faultyCPU) Submit(ctx context.Context, q provider.Queue, id op.ID, a *op.Args) (accel.Work, error) {
	p.seen = append(p.seen, *a)
	if p.left--; p.left == 0 {
		return accel.Work{}, p.err
	}
	return p.Provider.Submit(ctx, q, id, a)
}

// newFaultyCPU returns a CPU whose nth Submit fails with err.
func newFaultyCPU(t *testing.T, nth int, err error) *faultyCPU {
	t.Helper()
	host, e := cpu.New(cpu.Options{Threads: 1})
	if e != nil {
		t.Fatal(e)
	}
	return &faultyCPU{Provider: host, left: nth, err: err}
}

// The provider learns how many of an operation's rows are generated. It is never more than
// the operation has.
func TestGeneratedRows(t *testing.T) {
	p := newFaultyCPU(t, 0, nil)
	e, err := Open(Options{CPU: p})
	if err != nil {
		t.Fatal(err)
	}
	harness.CloseLater(t, e)
	c, err := e.NewQueue()
	if err != nil {
		t.Fatal(err)
	}
	harness.CloseLater(t, c)
	s := sample{id: op.Add, in: []operandOf{f32s(3, 4), f32s(3, 4)}}
	run := func(want int) {
		t.Helper()
		p.seen = nil
		if _, err := s.result(t, c); err != nil {
			t.Fatal(err)
		}
		if len(p.seen) != 1 || p.seen[0].Generated != want {
			t.Errorf("%d operations, the last with %d generated rows, want 1 with %d", len(p.seen), p.seen[len(p.seen)-1].Generated, want)
		}
	}
	run(0)
	for _, n := range [][2]int{{2, 2}, {3, 3}, {4, 3}, {0, 0}, {-1, 0}} {
		c.SetGenerated(n[0])
		run(n[1])
		run(n[1])
	}
}
