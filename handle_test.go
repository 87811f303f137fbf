package fucina

import (
	"errors"
	"testing"
)

// An engine reuses a header for one tensor after another. A Tensor of an earlier epoch
// remains stale.
func TestHeaderReuse(t *testing.T) {
	e, c := openCPU(t)
	first := scalar(c, 1)
	first.Release()
	second := scalar(c, 2)
	if first.h != second.h || first == second {
		t.Error("want the same header at another epoch")
	}
	for name, x := range map[string]Tensor{"stale": first, "zero": {}} {
		if _, err := x.use(); !errors.Is(err, ErrReleased) {
			t.Errorf("use of a %s tensor: %v", name, err)
		}
		x.Release()
	}
	o, err := second.use()
	if err != nil {
		t.Fatal(err)
	}
	second.Release()
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

// A scope releases its newest tensor first, so the header of its oldest tensor is reused
// first.
func TestScopeReleasesHeaders(t *testing.T) {
	e, c := openCPU(t)
	s := c.Scope()
	a := scalar(c, 1)
	scalar(c, 2)
	s.Close()
	if next := scalar(c, 3); next.h != a.h {
		t.Error("want the header that was released last: the oldest of the scope")
	}
	if err := e.Close(); err != nil {
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

func scalar(c *Context, v float32) Tensor { return FromSlice(c, []float32{v}) }
