package fucina

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// While a call is inside a context, every other call on the context fails with ErrBusy, and
// the engine does not close. Only the results of those calls carry these failures: the
// context does not report them to the goroutine that is inside.
func TestBusy(t *testing.T) {
	e, c := openCPU(t)
	x := FromSlice(c, []float32{1, 2}, Ax("d", 2))
	s, f := c.Scope(), c.Frame()
	y := x.Scale(2)
	if err := c.enter(); err != nil {
		t.Fatal(err)
	}
	var none Tensor
	for name, err := range map[string]error{
		"from slice": FromSlice(c, []float32{1}).Err(),
		"zeros":      c.Zeros(F32).Err(),
		"range":      c.Range("d", 2).Err(),
		"add":        x.Add(x).Err(),
		"dot":        x.Dot(x, "d").Err(),
		"rms_norm":   x.RMSNorm(x, "d", 1).Err(),
		"softmax":    x.Softmax("d").Err(),
		"argmax":     x.Argmax("d").Err(),
		"gather":     x.Gather(x, "d").Err(),
		"rope":       x.RoPE(x, RoPENeoX, "d", "d").Err(),
		"attention":  Attention(x, x, x, AttentionOptions{}).Err(),
		"to":         x.To(F16).Err(),
		"copy":       x.Copy().Err(),
		"copy from":  x.CopyFrom(x).Err(),
		"narrow":     x.Narrow("d", 0, 1).Err(),
		"rename":     x.Rename("d", "e").Err(),
		"permute":    x.Permute("d").Err(),
		"split":      x.Split("d", Ax("d", 2)).Err(),
		"merge":      x.Merge("d", "d").Err(),
		"broadcast":  x.BroadcastTo(Ax("d", 2)).Err(),
		"moved":      y.Move().Scale(2).Err(),
		"shared":     x.Shared().Err(),
		"replace":    Replace(&none, x),
		"frame":      c.Frame().Keep(x).Err(),
		"no grad":    c.NoGrad().Return(x).Err(),
		"scope":      c.Scope().Keep(x).Err(),
		"t's frame":  x.Frame().Return(x).Err(),
		"keep":       f.Keep(y).Err(),
		"sync":       c.Sync(),
		"context":    c.Close(),
		"engine":     e.Close(),
	} {
		if !errors.Is(err, ErrBusy) {
			t.Errorf("%s in a busy context: %v", name, err)
		}
	}
	if n := x.Dim("e") + x.Expect("e").Len() + c.Fail(errors.New("mine")).Len(); n != 0 {
		t.Errorf("failures of a goroutine that is not inside have %d elements", n)
	}
	f.Close()
	s.Close()
	y.Release()
	for range c.Frames(2) {
	}
	if _, err := Data[float32](x); err != nil {
		t.Errorf("data needs no context: %v", err)
	}
	if !y.Valid() {
		t.Error("a goroutine that is not inside ended a frame or a tensor")
	}
	c.exit()
	if z := f.Return(y); z.Err() != nil {
		t.Errorf("the frame has %v", z)
	}
	if err := errors.Join(c.Err(), e.Close()); err != nil {
		t.Error(err)
	}
	if err := c.Frame().Return(x).Err(); !errors.Is(err, ErrClosed) {
		t.Errorf("frame of a closed engine: %v", err)
	}
}

// Guards this fault: an Engine.Close that failed because one context was busy had claimed
// the other contexts for a moment, and calls on these failed with ErrBusy.
func TestRefusedCloseIsNotNoticed(t *testing.T) {
	e, busy := openCPU(t)
	if err := busy.enter(); err != nil {
		t.Fatal(err)
	}
	var c *Context
	for range 50 { // so that Engine.Close takes some time to check them
		var err error
		if c, err = e.NewContext(); err != nil {
			t.Fatal(err)
		}
	}
	x := FromSlice(c, []float32{1, 2}, Ax("d", 2))
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
		v := x.Narrow("d", 0, 1)
		v.Release()
		err := v.Err()
		if i%100 == 0 {
			f := c.Frame()
			y := f.Return(x)
			y.Release()
			err = y.Err()
		}
		if err != nil {
			t.Errorf("call %d, of the context's only goroutine: %v", i, err)
			break
		}
	}
	close(stop)
	wg.Wait()
	busy.exit()
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// waits runs call and returns its error. It fails the test if call returns before event.
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

// A second Close waits until the first one has ended.
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

// If Engine.Close is deciding whether a context closes, a call on that context waits for the
// decision and follows it.
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
			x := scalar(c, 1)
			e.mu.Lock()
			c.state.Store(stateHeld)
			err := waits(t, func() error {
				return c.Frame().Keep(x).Err()
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

// An engine does not close while one of its contexts is being made or closed.
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

// If several goroutines close a context or an engine, each finds it closed when its own
// Close returns.
func TestCloseTogether(t *testing.T) {
	for range 200 {
		e, c := openCPU(t)
		x := scalar(c, 1).Shared()
		c.Scope()
		scoped := scalar(c, 2)
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
		x.Release()
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

// Goroutines make, use and close contexts while others try to close the engine. Every call
// succeeds or fails with ErrBusy or ErrClosed.
func TestCloseStorm(t *testing.T) {
	e, c := openCPU(t)
	x := scalar(c, 1).Shared()
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
				err = CopyOut(x.On(own).Add(x), make([]float32, 1))
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
	x.Release()
	if err := errors.Join(c.Close(), e.Close()); err != nil {
		t.Error(err)
	}
	if s := e.Stats(); s.Handles != 0 || s.Pool.Outstanding != 0 || s.CPU.LiveQueues != 0 {
		t.Errorf("after Close: %+v", s)
	}
}
