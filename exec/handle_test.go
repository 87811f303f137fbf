package exec

import (
	"errors"
	"testing"

	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/core/tensor"
	"github.com/fucina-go/fucina/providers/cpu"
	"github.com/fucina-go/fucina/tags"
)

func openCPU(t *testing.T) (*Engine, *Context) {
	t.Helper()
	p, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	e, err := Open(Options{CPU: p})
	if err != nil {
		t.Fatal(err)
	}
	c, err := e.NewContext()
	if err != nil {
		t.Fatal(err)
	}
	return e, c
}

func own(t *testing.T, e *Engine, x tensor.Tensor, names tags.List) Handle {
	t.Helper()
	h, err := e.Own(x, names)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func vector(t *testing.T, c *Context, values ...float32) tensor.Tensor {
	t.Helper()
	x, err := FromSlice(c, shape.Must(len(values)), values)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// A header serves one tensor after another; a handle of an earlier one stays stale.
func TestHandleReuse(t *testing.T) {
	e, c := openCPU(t)
	names, err := tags.Of("d")
	if err != nil {
		t.Fatal(err)
	}
	first := c.Wrap(vector(t, c, 1), names)
	if err := first.Release(); err != nil {
		t.Fatal(err)
	}
	second := own(t, e, vector(t, c, 2), names)
	if first.h != second.h || first == second {
		t.Error("want the same header at another epoch")
	}
	if _, _, err := first.Use(); !errors.Is(err, ErrReleased) {
		t.Errorf("use of a stale handle: %v", err)
	}
	if err := first.Release(); !errors.Is(err, ErrReleased) {
		t.Errorf("release of a stale handle: %v", err)
	}
	var zero Handle
	if _, _, err := zero.Use(); !errors.Is(err, ErrReleased) {
		t.Errorf("use of the zero handle: %v", err)
	}
	if err := zero.Release(); !errors.Is(err, ErrReleased) {
		t.Errorf("release of the zero handle: %v", err)
	}
	x, got, err := second.Use()
	if err != nil || got != names {
		t.Fatalf("names %v, %v", got, err)
	}
	if err := second.Release(); err != nil {
		t.Error(err)
	}
	if n := e.Stats().Pool.Outstanding; n != 1 {
		t.Errorf("%d buffers outstanding while one is in use", n)
	}
	x.Release()
	if s := e.Stats(); s.Handles != 0 || s.Pool.Outstanding != 0 {
		t.Errorf("%+v", s)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// A scope releases the newest first, and a handle of the engine is not a scope's.
func TestScopeReleases(t *testing.T) {
	e, c := openCPU(t)
	s, err := c.OpenScope()
	if err != nil {
		t.Fatal(err)
	}
	var none tags.List
	a, b := c.Wrap(vector(t, c, 1), none), c.Wrap(vector(t, c, 2), none)
	mine := own(t, e, vector(t, c, 3), none)
	if err := errors.Join(a.Release(), b.Release()); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if x, _, err := mine.Use(); err != nil {
		t.Error(err)
	} else {
		x.Release()
	}
	x, y := vector(t, c, 0), vector(t, c, 0)
	if x.Buffer() == y.Buffer() {
		t.Fatal("one buffer twice")
	}
	next := own(t, e, x, none)
	if next.h != a.h {
		t.Error("want the header that was released last: the oldest of the scope")
	}
	y.Release()
	if err := errors.Join(next.Release(), mine.Release(), e.Close()); err != nil {
		t.Error(err)
	}
}

// One goroutine at a time is inside a context.
func TestContextBusy(t *testing.T) {
	e, c := openCPU(t)
	x := vector(t, c, 1, 2)
	if err := c.enter(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Add(&x, &x); !errors.Is(err, ErrBusy) {
		t.Errorf("add in a busy context: %v", err)
	}
	if _, err := c.OpenScope(); !errors.Is(err, ErrBusy) {
		t.Errorf("scope in a busy context: %v", err)
	}
	if err := c.Close(); !errors.Is(err, ErrBusy) {
		t.Errorf("close of a busy context: %v", err)
	}
	c.exit()
	x.Release()
	if err := errors.Join(c.Close(), c.Close()); err != nil {
		t.Error(err)
	}
	if n := e.CPU().Stats().LiveQueues; n != 0 {
		t.Errorf("%d queues of the closed context", n)
	}
	if err := c.enter(); !errors.Is(err, ErrClosed) {
		t.Errorf("entered a closed context: %v", err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if _, err := e.NewContext(); !errors.Is(err, ErrClosed) {
		t.Errorf("new context of a closed engine: %v", err)
	}
	if _, err := Open(Options{}); err == nil {
		t.Error("opened without a CPU provider")
	}
}
