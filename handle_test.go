package fucina

import (
	"errors"
	"testing"
)

// A header serves one tensor after another of its engine; a tensor of an earlier epoch
// stays stale.
func TestHeaderReuse(t *testing.T) {
	e, c := openCPU(t)
	first := scalar(t, c, 1)
	if err := first.Release(); err != nil {
		t.Fatal(err)
	}
	second := scalar(t, c, 2)
	if first.h != second.h || first == second {
		t.Error("want the same header at another epoch")
	}
	for name, x := range map[string]Tensor{"stale": first, "zero": {}} {
		if _, err := x.use("use"); !errors.Is(err, ErrReleased) {
			t.Errorf("use of a %s tensor: %v", name, err)
		}
		if err := x.Release(); !errors.Is(err, ErrReleased) {
			t.Errorf("release of a %s tensor: %v", name, err)
		}
	}
	o, err := second.use("use")
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Release(); err != nil {
		t.Error(err)
	}
	if n := e.Stats().Pool.Outstanding; n != 1 {
		t.Errorf("%d buffers outstanding while one is in use", n)
	}
	o.t.Release()
	if s := e.Stats(); s.Handles != 0 || s.Pool.Outstanding != 0 {
		t.Errorf("%+v", s)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// A scope releases the newest first, so that its oldest header is the next to serve.
func TestScopeReleasesHeaders(t *testing.T) {
	e, c := openCPU(t)
	s, err := c.OpenScope()
	if err != nil {
		t.Fatal(err)
	}
	a, b := scalar(t, c, 1), scalar(t, c, 2)
	if err := errors.Join(a.Release(), b.Release(), s.Close()); err != nil {
		t.Error(err)
	}
	next := scalar(t, c, 3)
	if next.h != a.h {
		t.Error("want the header that was released last: the oldest of the scope")
	}
	if err := errors.Join(next.Release(), e.Close()); err != nil {
		t.Error(err)
	}
}

func openCPU(t *testing.T) (*Engine, *Context) {
	t.Helper()
	e, err := Open(WithProvider("cpu"), WithThreads(1))
	if err != nil {
		t.Fatal(err)
	}
	c, err := e.NewContext()
	if err != nil {
		t.Fatal(err)
	}
	return e, c
}

func scalar(t *testing.T, c *Context, v float32) Tensor {
	t.Helper()
	x, err := FromSlice(c, []float32{v})
	if err != nil {
		t.Fatal(err)
	}
	return x
}
