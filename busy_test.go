package fucina

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
)

// While a call is inside a context, every other one on it is refused, and the
// engine does not close.
func TestBusy(t *testing.T) {
	e, c := openCPU(t)
	x, err := FromSlice(c, []float32{1, 2}, Ax("d", 2))
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.OpenScope()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.enter("call"); err != nil {
		t.Fatal(err)
	}
	one := func(_ Tensor, err error) error { return err }
	for name, err := range map[string]error{
		"from slice":  one(FromSlice(c, []float32{1})),
		"add":         one(x.Add(c, x)),
		"dot":         one(x.Dot(c, x, "d")),
		"rms_norm":    one(x.RMSNorm(c, x, "d", 1)),
		"softmax":     one(x.Softmax(c, "d", 1)),
		"argmax":      one(x.Argmax(c, "d")),
		"get_rows":    one(x.GetRows(c, x, "d")),
		"rope":        one(x.RoPE(c, x, RoPENeoX, "d", "d")),
		"attention":   one(Attention(c, x, x, x, AttentionOptions{})),
		"to":          one(x.To(c, dtype.F16)),
		"copy":        one(x.Materialize(c)),
		"copy from":   x.CopyFrom(c, x),
		"narrow":      one(x.Narrow(c, "d", 0, 1)),
		"rename":      one(x.Rename(c, "d", "e")),
		"permute":     one(x.Permute(c, "d")),
		"split":       one(x.Split(c, "d", Ax("d", 2))),
		"merge":       one(x.Merge(c, "d", "d")),
		"broadcast":   one(x.BroadcastTo(c, Ax("d", 2))),
		"close scope": s.Close(),
		"context":     c.Close(),
		"engine":      e.Close(),
	} {
		if !errors.Is(err, ErrBusy) {
			t.Errorf("%s in a busy context: %v", name, err)
		}
	}
	if _, err := c.OpenScope(); !errors.Is(err, ErrBusy) {
		t.Errorf("scope in a busy context: %v", err)
	}
	if _, err := Data[float32](x); err != nil {
		t.Errorf("data needs no context: %v", err)
	}
	c.exit()
	if err := errors.Join(s.Close(), x.Release(), e.Close()); err != nil {
		t.Error(err)
	}
	if _, err := c.OpenScope(); !errors.Is(err, ErrClosed) {
		t.Errorf("scope of a closed engine: %v", err)
	}
}

// An Engine.Close that is refused because one context is busy once claimed the others
// for a moment, and calls on these failed with ErrBusy.
func TestRefusedCloseIsNotNoticed(t *testing.T) {
	e, busy := openCPU(t)
	if err := busy.enter("call"); err != nil {
		t.Fatal(err)
	}
	var c *Context
	for range 50 { // a closer has many to look at
		var err error
		if c, err = e.NewContext(); err != nil {
			t.Fatal(err)
		}
	}
	x, err := FromSlice(c, []float32{1, 2}, Ax("d", 2))
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var closes atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := e.Close(); !errors.Is(err, ErrBusy) {
				t.Errorf("close of an engine with a busy context: %v", err)
				return
			}
			closes.Add(1)
		}
	})
	for i := 0; i < 100000 || closes.Load() < 20000 && !t.Failed(); i++ {
		v, err := x.Narrow(c, "d", 0, 1)
		if err == nil {
			err = v.Release()
		}
		if err == nil && i%100 == 0 {
			var s *Scope
			if s, err = c.OpenScope(); err == nil {
				err = s.Close()
			}
		}
		if err != nil {
			t.Errorf("call %d, of the context's only goroutine: %v", i, err)
			break
		}
	}
	close(stop)
	wg.Wait()
	busy.exit()
	if err := errors.Join(x.Release(), e.Close()); err != nil {
		t.Error(err)
	}
}

// waits fails the test unless call waits for event, and returns call's error.
func waits(t *testing.T, call func() error, event func()) error {
	t.Helper()
	began, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		close(began)
		ended <- call()
	}()
	<-began
	for range 100 {
		runtime.Gosched()
	}
	if len(ended) != 0 {
		t.Error("the call did not wait")
	}
	event()
	return <-ended
}

// A second Close returns when the first has ended.
func TestCloseWaitsForClose(t *testing.T) {
	e, c := openCPU(t)
	if found := c.claim(stateClosed); found != stateIdle {
		t.Fatalf("the context is in state %d", found)
	}
	if err := waits(t, c.Close, func() {
		if err := c.end(); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Errorf("second close of the context: %v", err)
	}
	if _, err := e.shut(); err != nil {
		t.Fatal(err)
	}
	if err := waits(t, e.Close, func() {
		if err := e.end(nil); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Errorf("second close of the engine: %v", err)
	}
}

// A call that finds Engine.Close deciding about its context waits for the decision,
// whichever it is.
func TestCallsWaitForTheCloser(t *testing.T) {
	for _, tt := range []struct {
		name     string
		decision uint32
		want     error
	}{
		{"refused", stateIdle, nil},
		{"closed", stateClosed, ErrClosed},
		{"entered by another call", stateInside, ErrBusy},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e, c := openCPU(t)
			e.mu.Lock()
			c.state.Store(stateHeld)
			err := waits(t, func() error {
				_, err := c.OpenScope()
				return err
			}, func() {
				c.state.Store(tt.decision)
				e.mu.Unlock()
			})
			if !errors.Is(err, tt.want) {
				t.Errorf("the call after the decision: %v, want %v", err, tt.want)
			}
			c.state.Store(stateIdle)
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// An engine that a context is being made of, or closed on, does not close under it.
func TestEngineWaitsForContexts(t *testing.T) {
	e, c := openCPU(t)
	for _, state := range []uint32{stateInside, stateClosed} {
		c.state.Store(state)
		if err := e.Close(); !errors.Is(err, ErrBusy) {
			t.Errorf("close with a context in state %d: %v", state, err)
		}
	}
	c.state.Store(stateIdle)
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// However many goroutines close a context or an engine, one does, and each finds it
// closed when its own Close returns.
func TestCloseTogether(t *testing.T) {
	for range 200 {
		e, c := openCPU(t)
		x := scalar(t, c, 1)
		if _, err := c.OpenScope(); err != nil {
			t.Fatal(err)
		}
		scoped := scalar(t, c, 2)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if err := c.Close(); err != nil {
					t.Errorf("close of the context: %v", err)
				}
				if scoped.Valid() {
					t.Error("the context's scope is open after Close")
				}
			})
		}
		wg.Wait()
		if err := x.Release(); err != nil {
			t.Error(err)
		}
		for range 3 {
			wg.Go(func() {
				if err := e.Close(); err != nil {
					t.Errorf("close of the engine: %v", err)
				}
				if n := e.Stats().CPU.LiveQueues; n != 0 {
					t.Errorf("%d queues after Close", n)
				}
			})
		}
		wg.Wait()
	}
}

// Contexts come, work and go while others try to close their engine; every call ends
// well or says that something is busy or closed.
func TestCloseStorm(t *testing.T) {
	e, c := openCPU(t)
	x := scalar(t, c, 1)
	fine := func(err error) bool {
		return err == nil || errors.Is(err, ErrClosed)
	}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for range 300 {
				own, err := e.NewContext()
				if err != nil {
					if !fine(err) {
						t.Error(err)
					}
					return
				}
				y, err := x.Add(own, x)
				if err == nil {
					err = ReadInto(context.Background(), y, make([]float32, 1))
					err = errors.Join(err, y.Release())
				}
				if !fine(err) {
					t.Error(err)
				}
				if err := own.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for {
		err := e.Close()
		if errors.Is(err, ErrLeak) {
			break
		}
		if !errors.Is(err, ErrBusy) {
			t.Errorf("close: %v", err)
			break
		}
		runtime.Gosched()
	}
	wg.Wait()
	if err := errors.Join(x.Release(), c.Close(), e.Close()); err != nil {
		t.Error(err)
	}
	if s := e.Stats(); s.Handles != 0 || s.Pool.Outstanding != 0 || s.CPU.LiveQueues != 0 {
		t.Errorf("after Close: %+v", s)
	}
}
