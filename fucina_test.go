package fucina_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fucina-go/fucina"
)

// check is a test or benchmark with a helper that allocates nothing.
type check struct{ testing.TB }

// of returns x, and fails the test if err is not nil.
func (t check) of(x fucina.Tensor, err error) fucina.Tensor {
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
	return x
}

// open returns a context on an engine that uses the CPU, unless opts say otherwise. The
// function that it returns closes the engine. That function fails the test if a Shared tensor
// was not released, or if a failure was not looked at.
func open(t testing.TB, opts ...fucina.Option) (*fucina.Context, func()) {
	t.Helper()
	e, err := fucina.Open(append([]fucina.Option{fucina.WithProvider("cpu")}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	c, err := e.NewContext()
	if err != nil {
		t.Fatal(err)
	}
	return c, func() {
		t.Helper()
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if s := e.Stats(); s.Handles != 0 || s.Pool.Outstanding != 0 || s.Pool.Cached != 0 {
			t.Errorf("after Close: %+v", s)
		}
	}
}

func drop(ts ...fucina.Tensor) {
	for _, x := range ts {
		x.Release()
	}
}

// notCalled returns a function for a Read or an Update that must not call it.
func notCalled[T fucina.Element](t testing.TB) func([]T) error {
	return func([]T) error {
		t.Error("the function of a refused call was called")
		return nil
	}
}

// values returns the elements of x in the order of its axes.
func values[T fucina.Element](t testing.TB, x fucina.Tensor) []T {
	v, err := fucina.Data[T](x)
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
	return v
}

// want fails the test if x does not have these axes and elements.
func want[T fucina.Element](t testing.TB, x fucina.Tensor, axes string, elements []T) {
	t.Helper()
	if got := x.String(); !strings.HasSuffix(got, axes) {
		t.Errorf("got %s, want %s", got, axes)
	}
	if got := values[T](t, x); fmt.Sprint(got) != fmt.Sprint(elements) {
		t.Errorf("%s: got %v, want %v", x, got, elements)
	}
}

// refused fails the test if err is not of the given kind, or if its message lacks one of the
// parts.
func refused(t testing.TB, err, kind error, parts ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("got error %v, want %v", err, kind)
		return
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q does not say %q", err, p)
		}
	}
}

// ax parses "batch:2 d:3".
func ax(s string) []fucina.Axis {
	var axes []fucina.Axis
	for _, f := range strings.Fields(s) {
		name, size, _ := strings.Cut(f, ":")
		n := 0
		fmt.Sscan(size, &n)
		axes = append(axes, fucina.Ax(name, n))
	}
	return axes
}

func count(axes []fucina.Axis) int {
	n := 1
	for _, a := range axes {
		n *= a.Size
	}
	return n
}

// numbered returns an f32 tensor with the elements 1, 2, 3, ...
func numbered(c *fucina.Context, axes string) fucina.Tensor {
	a := ax(axes)
	x := make([]float32, count(a))
	for i := range x {
		x[i] = float32(i + 1)
	}
	return fucina.FromSlice(c, x, a...)
}
