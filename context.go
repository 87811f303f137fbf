package fucina

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/fucina-go/fucina/exec"
	"github.com/fucina-go/fucina/tagged"
)

// Context is a queue on an engine, with the frames and scopes that are open on it. The
// context owns the tensors that are made while no frame or scope is open. One goroutine at
// a time drives a context: a call that finds another call inside fails with ErrBusy. nil
// and the zero Context are closed.
type Context struct {
	e *Engine
	x *exec.Queue

	frames []*frame  // the open frames; the first is the context's own
	gen    uint64    // the gen of the newest frame
	spare  []*header // idle headers
	call   tagged.Call
	moving [tagged.MaxIn]Tensor // the moved operands of the call in progress, by place

	number   uint64 // counts the engine's contexts, from 1
	failures failures
	debug    atomic.Pointer[DebugOptions] // nil if Debug has not been called

	cancelling sync.Mutex // guards cancel, because functions that read elements do not enter the context
	cancel     context.Context

	// state says which call may use the fields above.
	state atomic.Uint32
	done  chan struct{} // closed when the context has released everything
}

// The states of a context.
const (
	stateIdle uint32 = iota
	// stateInside means that a call is running. That call makes the context idle again.
	// Every other call fails with ErrBusy.
	stateInside
	// stateHeld means that Engine.Close is deciding whether the context closes or becomes
	// idle again. It decides before it unlocks the engine, and other calls wait for that.
	stateHeld
	// stateClosed is the final state.
	stateClosed
)

// NewContext returns a new context. The caller closes it; Engine.Close also closes it.
func (e *Engine) NewContext() (*Context, error) {
	if e.none() {
		return nil, fmt.Errorf("fucina: new context: %w", e.isClosed())
	}
	// The context stays entered until it is complete, so that the engine cannot close
	// before that.
	c := &Context{e: e, done: make(chan struct{}), number: e.made.Add(1)}
	c.state.Store(stateInside)
	e.mu.Lock()
	if e.closed.Load() {
		e.mu.Unlock()
		return nil, fmt.Errorf("fucina: new context: %w", e.isClosed())
	}
	e.contexts[c] = struct{}{}
	e.mu.Unlock()
	var err error
	if c.x, err = e.x.NewQueue(); err != nil {
		e.forget(c)
		return nil, fmt.Errorf("fucina: new context: %w", err)
	}
	c.push(plainFrame, nil)
	c.exit()
	return c, nil
}

// forget removes c from the engine's contexts.
func (e *Engine) forget(c *Context) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.contexts, c)
}

// Engine returns the context's engine.
func (c *Context) Engine() *Engine {
	if c.none() {
		return nil
	}
	return c.e
}

// SetCancel makes later calls on c fail with ctx's error once ctx is done: operations that
// would start or wait, and reads of elements that would wait. context.Background(), like nil,
// removes ctx. Only the goroutine that drives the context may call it.
func (c *Context) SetCancel(ctx context.Context) {
	if c.none() {
		return
	}
	c.cancelling.Lock()
	c.cancel = ctx
	c.cancelling.Unlock()
	c.x.SetCancel(ctx)
}

// SetGenerated says that of the rows of the following operations, those of the first n entries
// of the first axis of the first operand belong to tokens that were generated, and the others
// to prompts. A device may compute the two kinds with different kernels. It is 0 at first. Only
// the goroutine that drives the context may call it.
func (c *Context) SetGenerated(n int) {
	if !c.none() {
		c.x.SetGenerated(n)
	}
}

// context returns the argument of the last SetCancel, or context.Background().
func (c *Context) context() context.Context {
	if c != nil {
		c.cancelling.Lock()
		defer c.cancelling.Unlock()
		if c.cancel != nil {
			return c.cancel
		}
	}
	return context.Background()
}

// Err returns the context's first failure that has not been looked at, or nil. It looks at
// that failure.
func (c *Context) Err() error {
	if c.none() {
		return nil
	}
	return c.failures.first(0).look()
}

// Sync waits until the context's work has ended. It returns the failure of the device, if
// there is one, joined with Err. After a failure of the device, the context can do no more
// work there, and every Sync returns that failure.
func (c *Context) Sync() error {
	err := c.enter()
	if err == nil {
		err = c.x.Sync()
		c.exit()
	}
	if err != nil {
		err = wrong("sync", err)
	}
	if errors.Is(err, ErrBusy) {
		return err // the failures belong to the goroutine that is inside
	}
	return errors.Join(err, c.Err())
}

// Fail returns a failed tensor that carries err and the caller's line. If err is a *Failure,
// the tensor carries that failure unchanged.
func (c *Context) Fail(err error) Tensor {
	f, ok := err.(*Failure)
	if ok && f.Unwrap() != nil {
		return failedTensor(c, f)
	}
	if ok || err == nil {
		err = errors.New("fail: no error")
	}
	return c.fail(err)
}

// fail returns a failed tensor that carries err, and records the failure on the context. c
// may be nil, and the caller is not inside it. If another goroutine is inside c, only the
// returned tensor carries the failure.
func (c *Context) fail(err error) Tensor {
	f := newFailure(c, err)
	if c.none() || errors.Is(err, ErrBusy) {
		return failedTensor(c, f)
	}
	// fail looks and does not enter, because the failure of a call that only inspects a
	// tensor must not make the calls of the driving goroutine fail.
	if c.state.Load() == stateInside {
		return failedTensor(c, f)
	}
	c.failures.add(f)
	if d := c.debug.Load(); d != nil && d.OnFailure != nil {
		c.quietly(d, func() { d.OnFailure(f) })
	}
	return failedTensor(c, f)
}

// DebugOptions say what a context does at each operation and at each failure. Trace and
// OnFailure may use the context; the options do not apply to what they do with it.
type DebugOptions struct {
	// Trace, if set, is called after each operation with one line: the place, the operation,
	// the axes of the operands, and the result. "outer" marks an operation whose operands
	// have no common axis, which usually means that an axis is misspelled.
	Trace func(line string)
	// OnFailure, if set, is called when an operation fails, on the goroutine of the
	// operation. A debugger can stop there.
	OnFailure func(err error)
	// CheckNaN makes an operation fail if its f32 result has a NaN or an infinity. The
	// context then waits for each operation.
	CheckNaN bool
}

// Debug sets what c does at each operation and at each failure. The zero DebugOptions turn
// debugging off.
func (c *Context) Debug(d DebugOptions) {
	if !c.none() {
		c.debug.Store(&d)
	}
}

// Close waits for the context's work, ends the context's tensors except those that are
// Shared, releases its queues, and returns the first failure that has not been looked at.
// No other context waits for that. If another call is inside the context, Close fails with
// ErrBusy and the context remains open. A second Close waits until the first Close, or that
// of the engine, has ended, and returns nil.
func (c *Context) Close() error {
	if c.none() {
		return nil
	}
	switch c.claim(stateClosed) {
	case stateInside:
		return fmt.Errorf("fucina: close: %w", ErrBusy)
	case stateClosed:
		<-c.done
		return nil
	}
	return c.end()
}

// end releases everything that the context holds, after its state has become stateClosed.
// It waits for the device.
func (c *Context) end() error {
	defer close(c.done)
	c.closeFrames(0)
	c.e.headers.keep(c.spare)
	c.spare = nil
	err := c.x.Close()
	c.e.forget(c)
	if err != nil {
		err = fmt.Errorf("fucina: close context: %w", err)
	}
	return errors.Join(err, c.Err())
}

// none reports whether c is nil or the zero Context.
func (c *Context) none() bool { return c == nil || c.x == nil }

// claim changes the state of an idle context to next. It returns the state before:
// stateIdle if the change was made, else stateInside or stateClosed.
func (c *Context) claim(next uint32) uint32 {
	for {
		if c.state.CompareAndSwap(stateIdle, next) {
			return stateIdle
		}
		switch s := c.state.Load(); s {
		case stateInside, stateClosed:
			return s
		case stateHeld:
			// Engine.Close holds the engine's lock while a context is in stateHeld.
			c.e.mu.Lock()
			ok := c.state.CompareAndSwap(stateIdle, next)
			c.e.mu.Unlock()
			if ok {
				return stateIdle
			}
		}
	}
}

// enter claims the context for a call, which lasts until exit.
func (c *Context) enter() error {
	if c.none() {
		return errClosed("no context")
	}
	switch c.claim(stateInside) {
	case stateInside:
		return ErrBusy
	case stateClosed:
		if c.e.closed.Load() {
			return c.e.isClosed()
		}
		return errClosed("context is closed")
	}
	return nil
}

func errClosed(text string) error { return &opError{text, ErrClosed} }

func (c *Context) exit() { c.state.Store(stateIdle) }

// String names the context in messages.
func (c *Context) String() string {
	if c.none() {
		return "no context"
	}
	return fmt.Sprintf("context %d of %s", c.number, c.e)
}
