package fucina

import (
	"errors"
	"testing"
	"time"
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
	o.Raw.Release()
	if s := e.Stats(); s.Handles != 0 || s.Pool.Outstanding != 0 {
		t.Errorf("%+v", s)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// Any context may reuse an idle header of the engine, so the header has no owner. With an owner,
// it would keep a closed context reachable, and that owner would read it without its lock.
func TestIdleHeadersHaveNoOwner(t *testing.T) {
	e, c := openCPU(t)
	check := func(n int, after string) {
		t.Helper()
		if len(e.headers.idle) != n {
			t.Errorf("after %s the engine has %d idle headers, want %d", after, len(e.headers.idle), n)
		}
		for _, h := range e.headers.idle {
			if h.owner.Load() != nil {
				t.Fatalf("after %s an idle header of the engine has an owner", after)
			}
		}
	}
	f := c.Frame()
	for range spareHeaders + 2 {
		scalar(c, 1)
	}
	f.Close()
	check(2, "the frame")
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	check(spareHeaders+2, "the context")
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// After an operation, the context keeps neither its operands nor its results reachable, whether it
// has failed or not.
func TestContextKeepsNoOperands(t *testing.T) {
	e, c := openCPU(t)
	shared := scalar(c, 2).Shared()
	for _, run := range []func() Tensor{
		func() Tensor { return scalar(c, 1).Move().Add(shared) },
		func() Tensor { return scalar(c, 1).Move().Softmax("d") }, // there is no such axis
	} {
		y := run()
		if c.moving != [len(c.moving)]Tensor{} || !c.call.Out().Raw.IsZero() || !c.call.Second().Raw.IsZero() {
			t.Errorf("after %s the context keeps an operand or a result", y)
		}
		y.Release()
	}
	if err := c.Err(); !errors.Is(err, ErrTag) {
		t.Errorf("error %v, want ErrTag", err)
	}
	shared.Release()
	if s := e.Stats(); s.Handles != 0 {
		t.Errorf("%d tensors are left", s.Handles)
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

// A context keeps at most one failure for each open frame that nobody looked at, however many
// frames with a failure have been opened and closed.
func TestFailuresAreBounded(t *testing.T) {
	e, c := openCPU(t)
	x := scalar(c, 1)
	bad := func() Tensor { return x.Rename("no", "n") }
	var first Tensor
	for i := range 3 {
		f := c.Frame()
		for range 100 {
			for range c.Frames(2) {
				bad()
			}
		}
		if i == 0 {
			first = Tensor{c, &header{fail: c.failures.first(0)}, 0}
		}
		if n := len(c.failures.list); n > 2 {
			t.Errorf("%d failures with a frame open", n)
		}
		f.Close()
	}
	if n := len(c.failures.list); n != 1 || c.failures.first(0) != first.failure() {
		t.Errorf("%d failures, the first of them %v, want %v", n, c.failures.first(0), first)
	}
	if err := c.Close(); !errors.Is(err, first.Err()) {
		t.Errorf("closed with %v, want the first failure %v", err, first)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// A failure of a call that only inspects a tensor does not enter the context: otherwise a
// call of the goroutine that drives it might find the context in use.
func TestInspectionDoesNotEnter(t *testing.T) {
	e, c := openCPU(t)
	x := scalar(c, 1)
	c.state.Store(stateHeld) // enter waits for the end of this state
	done := make(chan int)
	go func() { done <- x.Dim("no") }()
	select {
	case <-done:
		c.state.Store(stateIdle)
	case <-time.After(10 * time.Second):
		t.Error("a failed Dim enters the context")
		c.state.Store(stateIdle)
		<-done
	}
	if err := c.Err(); !errors.Is(err, ErrTag) {
		t.Errorf("the failure is lost: %v", err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}
