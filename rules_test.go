package fucina_test

import (
	"context"
	"errors"
	"testing"

	. "github.com/fucina-go/fucina"
)

// opened returns an engine on the CPU and a context. At the end it checks that the given
// number of Shared tensors is left and no other tensor.
func opened(t *testing.T, shared int64) (*Engine, *Context) {
	t.Helper()
	e, err := Open(WithProvider("cpu"), WithThreads(1))
	if err != nil {
		t.Fatal(err)
	}
	c, err := e.NewContext()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error("close:", err)
		}
		if s := e.Stats(); s.Handles != shared {
			t.Errorf("%d tensors left, want %d", s.Handles, shared)
		}
	})
	return e, c
}

func neg(t Tensor) Tensor { return t.Scale(-1) }

// The rules of ownership hold.
func TestRules(t *testing.T) {
	e, c := opened(t, 1)
	w := c.Zeros(F32, Ax("d", 2)).Shared()
	x := c.Ones(F32, Ax("d", 2))
	live := func() int64 { return e.Stats().Handles }
	start := live()
	check := func(what string, want int64, ok bool) {
		t.Helper()
		if n := live() - start; n != want || !ok {
			t.Errorf("%s: %d more tensors, want %d, %v", what, n, want, ok)
		}
	}

	// The tensors of a frame that is never closed end with the frame around it, or with the
	// context.
	f := c.Frame()
	neg(x.Add(w).Scale(2))
	check("open", 3, true)
	f.Close()
	check("closed", 0, true)

	// A callee does not close its frame. The caller's frame closes it, and Return keeps a tensor
	// of the inner frame.
	f = c.Frame()
	x.Frame()
	y := x.Add(w)
	y = f.Return(y.Scale(2))
	check("callee forgot", 1, y.Err() == nil)
	y.Release()

	// A function returns a view of a temporary tensor, a view of a captured tensor, or the
	// captured tensor itself.
	f = c.Frame()
	y = f.Return(x.Add(w).Rename("d", "e"))
	f2 := c.Frame()
	z := f2.Return(x)
	f3 := c.Frame()
	v := f3.Return(w.On(c))
	check("views", 3, !z.Same(x) && !v.Same(w) && y.Err() == nil)
	y.Release()
	z.Release()
	v.Release()
	f2.Close()
	f.Close()
	check("x and w live on", 0, x.Dim("d") == 2 && w.Dim("d") == 2)

	// A function with two results keeps both. Keep after Return fails.
	two := func() (Tensor, Tensor) {
		f := x.Frame()
		defer f.Close()
		return f.Keep(x.Scale(2)), f.Keep(neg(x))
	}
	a, b := two()
	check("two", 2, a.Err() == nil && b.Err() == nil)
	a.Release()
	b.Release()
	wrong := func() (Tensor, Tensor) { f := x.Frame(); return f.Return(x.Scale(2)), f.Keep(neg(x)) }
	a, b = wrong()
	check("wrong order", 2, a.Err() == nil && errors.Is(b.Err(), ErrReleased))
	a.Release()
	start = live()

	// Keep moves a tensor out by one frame. Replace or Shared keeps the state of a struct alive.
	var state struct{ h Tensor }
	f = c.Frame()
	g := c.Frame()
	k := g.Keep(x.Scale(2))
	if err := Replace(&state.h, neg(x)); err != nil {
		t.Error(err)
	}
	s := x.Scale(3).Shared()
	g.Close()
	check("after g", 3, k.Dim("d") == 2)
	f.Close()
	check("after f", 2, state.h.Dim("d") == 2 && s.Dim("d") == 2)
	state.h.Release()
	s.Release()
	start = live()

	// A tensor that is stored without Keep is an error at its next use.
	f = c.Frame()
	state.h = neg(x)
	f.Close()
	if err := state.h.Scale(2).Err(); !errors.Is(err, ErrReleased) {
		t.Error(err)
	}

	// In a Frame inside a Scope, tensors end as elsewhere, and the scope holds their memory for
	// Backward.
	outstanding := func() int64 { return e.Stats().Pool.Outstanding }
	mem := outstanding()
	sc := c.Scope()
	f = x.Frame()
	y = f.Return(x.Scale(2).Scale(3))
	check("in a scope", 1, outstanding() == mem+2)
	n := c.NoGrad()
	x.Scale(2)
	n.Close()
	check("without gradients", 1, outstanding() == mem+2)
	y.Release()
	check("released early", 0, outstanding() == mem+2)
	sc.Close()
	check("scope closed", 0, outstanding() == mem)

	// Closing a frame closes the scope inside it. Closing the scope again does nothing.
	f = c.Frame()
	sc = c.Scope()
	x.Scale(2)
	f.Close()
	sc.Close()
	f.Close()
	check("order", 0, true)

	// Move marks the value, and x lives until the operation that takes the marked value.
	f = c.Frame()
	h := x.Scale(2)
	h = h.Move().Add(neg(h).Scale(3))
	check("move", 3, h.Err() == nil)
	if err := x.Move().Add(h).Err(); !errors.Is(err, ErrNotOwned) {
		t.Error("moved a tensor that an outer frame owns", err)
	}
	bad := h.Move().Rename("nope", "n")
	check("move of a failed op", 2, bad.Err() != nil && h.Scale(2).Err() != nil)
	f.Close()

	// A thousand steps run in one frame, or each step in its own frame.
	f = c.Frame()
	h = x
	for range 1000 {
		h = h.Scale(1)
	}
	check("one frame", 1000, true)
	f.Close()
	f = c.Frame()
	h = x.Ref()
	most := int64(0)
	for range c.Frames(1000) {
		if err := Replace(&h, h.Scale(1)); err != nil {
			t.Fatal(err)
		}
		most = max(most, live()-start)
	}
	check("frames", 1, most <= 2)
	f.Close()

	// If a failed result is never used, the result of the frame carries the failure. Outside of
	// frames, Context.Err and Close return it.
	f = x.Frame()
	x.Rename("nope", "n")
	y = f.Return(x.Scale(2))
	if y.Err() == nil {
		t.Error("lost")
	}
	x.CopyFrom(c.Zeros(F32, Ax("d", 3)))
	if c.Err() == nil || c.Err() != nil {
		t.Error("Err does not return the first failure and then nil")
	}
	// A failure that has been looked at is not reported again.
	f = x.Frame()
	if x.Rename("nope", "n").Err() != nil {
		y = f.Return(x.Scale(2))
	}
	if y.Err() != nil {
		t.Error(y)
	}
	// An operation without a context fails.
	if err := w.Add(w).Err(); err == nil {
		t.Error("no context")
	}
	fw := w.Frame()
	if y := fw.Return(w.On(c).Scale(2)); y.Err() == nil {
		t.Error("frame of a tensor without a context")
	}
	var none Tensor
	if err := x.Add(none).Err(); !errors.Is(err, ErrReleased) {
		t.Error(err)
	}
	if err := (*Context)(nil).Zeros(F32).Err(); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if err := c.Err(); err != nil {
		t.Error(err)
	}
}

// The rules hold in rare cases: a return out of a loop of frames, a panic in a frame, a tensor
// that is moved twice, a read that is cancelled, a look by another goroutine, and the failures
// of a pooled context.
func TestEdges(t *testing.T) {
	e, c := opened(t, 0)
	x := c.Ones(F32, Ax("d", 2))
	base := e.Stats().Handles
	find := func(x Tensor) Tensor {
		f := x.Frame()
		defer f.Close()
		for i := range c.Frames(100) {
			y := x.Scale(2)
			if i == 7 {
				return f.Keep(y) // y belongs to the frame of the loop
			}
		}
		return f.Keep(x)
	}
	y := find(x)
	if n := e.Stats().Handles - base; y.Err() != nil || y.Same(x) || n != 1 {
		t.Error(y, n)
	}
	y.Release()
	early := func(x Tensor) Tensor {
		f := x.Frame()
		for range c.Frames(100) {
			return f.Return(x.Scale(2)) // closes f and the loop's frame
		}
		return f.Return(x)
	}
	y = early(x)
	if n := e.Stats().Handles - base; y.Err() != nil || n != 1 {
		t.Error(y, n)
	}
	y.Release()
	func() {
		defer func() { _ = recover() }()
		for range c.Frames(3) {
			x.Scale(2)
			panic("user")
		}
	}()
	if n := e.Stats().Handles - base; n != 0 {
		t.Error(n)
	}

	f := c.Frame()
	m := x.Scale(2).Move()
	neg(m)
	if err := neg(m).Err(); !errors.Is(err, ErrReleased) { // an operation has already taken it
		t.Error(err)
	}
	h := x.Scale(2)
	if z := h.Add(h.Move()); z.Err() != nil || !errors.Is(neg(h).Err(), ErrReleased) {
		t.Error(z)
	}
	f.Close()

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c.SetCancel(ctx)
	if _, err := Data[float32](x.Scale(2)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	c.SetCancel(context.Background())

	bad := x.Rename("no", "n")
	done := make(chan error)
	go func() { done <- bad.Err() }()
	if <-done == nil || c.Err() != nil {
		t.Error("a look by another goroutine does not count")
	}
	// A failed tensor may be used on another context. Its failure takes precedence over the
	// mismatch of contexts.
	c2, err := e.NewContext()
	if err != nil {
		t.Fatal(err)
	}
	if err := c2.Zeros(F32).Add(bad).Err(); !errors.Is(err, ErrTag) {
		t.Error(err)
	}
	if err := x.Add(c2.Zeros(F32)).Err(); !errors.Is(err, ErrContext) {
		t.Error(err)
	}
	if err := x.On(c2).Add(c2.Zeros(F32)).Err(); err != nil {
		t.Error(err)
	}
	// The failure of an earlier request does not reach the frame of the next request.
	g := c.Frame()
	x.Rename("no", "n")
	g.Close()
	g = c.Frame()
	if z := g.Return(x.Scale(2)); z.Err() != nil {
		t.Error(z)
	} else {
		z.Release()
	}
	if c.Err() == nil { // the context still reports it
		t.Error("lost")
	}
	if err := c2.Close(); err != nil {
		t.Error(err)
	}
	if z := x.FailIf(errors.New("mine")); z.Err() == nil || c.Err() != nil {
		t.Error(z)
	}
	if x == x.On(c2) || !x.Same(x.Move()) {
		t.Error("comparison")
	}
	x.Release()
	x.Release()
}
