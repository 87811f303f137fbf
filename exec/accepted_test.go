package exec

import (
	"errors"
	"math"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/core/tensor"
	"github.com/fucina-go/fucina/tests/leak"
)

// A call that differs from an accepted one is checked: in a shape, a dtype, strides, a parameter, an
// operand that is absent, or the output that exists. A call that is like an accepted one has the
// same result, also after more different ones than are remembered.
func TestAcceptedCalls(t *testing.T) {
	leak.Check(t)
	_, c := newCPU(t)
	of := func(d dtype.DType, dims ...int) *tensor.Tensor {
		s := shape.Must(dims...)
		n, err := s.Elements()
		if err != nil {
			t.Fatal(err)
		}
		x, err := FromSlice(c, s, make([]float32, n))
		if err != nil {
			t.Fatal(err)
		}
		if d != dtype.F32 {
			y, err := c.Do(op.Copy, &op.Params{To: d}, &x)
			if err != nil {
				t.Fatal(err)
			}
			x.Release()
			x = y
		}
		t.Cleanup(x.Release)
		return &x
	}
	x, w, bias := of(dtype.F32, 2, 4), of(dtype.F32, 3, 4), of(dtype.F32, 3)
	turned, err := of(dtype.F32, 4, 3).Permute(1, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(turned.Release)
	one := op.Params{Scales: [3]float32{1, 1, 1}}
	run := func(what string, want error, shape string, p op.Params, in ...*tensor.Tensor) {
		t.Helper()
		y, err := c.Do(op.Project, &p, in...)
		if !errors.Is(err, want) {
			t.Errorf("%s: error %v, want %v", what, err, want)
		}
		if err != nil {
			return
		}
		if got := y.Shape().String(); got != shape {
			t.Errorf("%s: result %s, want %s", what, got, shape)
		}
		y.Release()
	}
	none := (*tensor.Tensor)(nil)
	for range 2 {
		run("at first", nil, "[2 3]", one, x, w)
		run("again", nil, "[2 3]", one, x, w)
		run("other rows", nil, "[5 3]", one, of(dtype.F32, 5, 4), w)
		run("other columns", nil, "[2 7]", one, x, of(dtype.F32, 7, 4))
		run("a size that does not fit", tensor.ErrShapeMismatch, "", one, x, of(dtype.F32, 3, 5))
		run("a dtype that is not taken", tensor.ErrDType, "", one, x, of(dtype.I32, 3, 4))
		run("another dtype", nil, "[2 3]", one, x, of(dtype.F16, 3, 4))
		run("other strides", nil, "[2 3]", one, x, &turned)
		run("a scale that is not finite", op.ErrParam, "", op.Params{Scales: [3]float32{float32(math.Inf(1)), 1, 1}}, x, w)
		run("two matrices", nil, "[2 6]", one, x, w, w)
		run("a bias", nil, "[2 3]", one, x, w, none, none, bias)
		run("a bias of nothing", tensor.ErrShapeMismatch, "", one, x, w, none, none, none, bias)
		run("no matrix", tensor.ErrDType, "", one, x, none)
	}
	into := func(what string, want error, dst, x *tensor.Tensor) {
		t.Helper()
		if err := c.DoInto(op.Copy, nil, dst, x); !errors.Is(err, want) {
			t.Errorf("copy into %s: error %v, want %v", what, err, want)
		}
	}
	repeated, err := of(dtype.F32, 1, 4).BroadcastTo(shape.Must(2, 4))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(repeated.Release)
	dst := of(dtype.F32, 2, 4)
	for range 2 {
		into("a tensor", nil, dst, x)
		into("a tensor of another shape", tensor.ErrShapeMismatch, of(dtype.F32, 4, 2), x)
		into("a view that repeats", tensor.ErrUnsupportedView, &repeated, x)
		into("another dtype", nil, of(dtype.F16, 2, 4), x)
	}
}
