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

// Context is a queue over an engine, and the frames and scopes that are open on it. What
// is made on it outside of them belongs to the context. One goroutine at a time drives it:
// a call that finds another one inside fails with ErrBusy. nil and the zero Context are
// closed.
type Context struct {
	e *Engine
	x *exec.Queue

	frames []*frame  // that are open; the first is the context's own
	gen    uint64    // of the frame that was opened last
	spare  []*header // idle headers
	call   tagged.Call
	in     [tagged.MaxIn]Tensor // the operands of the call in progress

	number   uint64 // among the engine's, from 1
	failures failures
	debug    atomic.Pointer[DebugOptions] // nil is none

	cancelling sync.Mutex // guards cancel, which reads of elements read
	cancel     context.Context

	// state is the one word that says who may use the fields above.
	state atomic.Uint32
	done  chan struct{} // closed when the context has given everything back
}

// The states of a context.
const (
	stateIdle uint32 = iota
	// stateInside: a call is under way, which makes the context idle again. Every
	// other call fails with ErrBusy.
	stateInside
	// stateHeld: Engine.Close decides whether the context closes or becomes idle
	// again. It decides before it unlocks the engine, and calls wait for that.
	stateHeld
	// stateClosed is the last state.
	stateClosed
)

// NewContext returns a context. The caller closes it; closing the engine does too.
func (e *Engine) NewContext() (*Context, error) {
	if e.none() {
		return nil, fmt.Errorf("fucina: new context: %w", e.isClosed())
	}
	// The context is entered until it is complete, so that the engine does not close
	// meanwhile.
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

// SetCancel makes what follows on c fail with ctx's error once ctx is done: an operation
// that would start or wait, and a read that would wait. nil ends that. It is a call like
// any other: only the goroutine that drives the context makes it.
func (c *Context) SetCancel(ctx context.Context) {
	if c.none() {
		return
	}
	c.cancelling.Lock()
	c.cancel = ctx
	c.cancelling.Unlock()
	c.x.SetCancel(ctx)
}

// context returns what SetCancel was given, or the background.
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

// Err returns the first failure on the context that nobody has looked at, or nil. It is
// a look.
func (c *Context) Err() error {
	if c.none() {
		return nil
	}
	return c.failures.first(0).look()
}

// Sync waits until the context's work has ended, and returns the device's failure if there
// was one, and Err. After a failure of the device, which is the end of the context's work
// there, every Sync returns it.
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
		return err // what failed is the business of the goroutine that is inside
	}
	return errors.Join(err, c.Err())
}

// Fail returns a failed tensor that carries err, with the caller's line; or the failure
// itself if err is one.
func (c *Context) Fail(err error) Tensor {
	f, ok := err.(*Failure)
	if ok && f != nil {
		return failedTensor(c, f)
	}
	if ok || err == nil {
		err = errors.New("fail: no error")
	}
	return c.fail(err)
}

// fail is Fail. The context may be nil; the caller is not inside it. If another goroutine
// is, the failure is in the value alone.
func (c *Context) fail(err error) Tensor {
	f := newFailure(c, err)
	if c.none() || errors.Is(err, ErrBusy) {
		return failedTensor(c, f)
	}
	since := uint64(0)
	switch c.claim(stateInside) {
	case stateInside:
		return failedTensor(c, f)
	case stateIdle:
		since = c.innermost().since
		c.exit()
	}
	c.failures.add(f, since)
	if d := c.debug.Load(); d != nil && d.OnFailure != nil {
		d.OnFailure(f)
	}
	return failedTensor(c, f)
}

// DebugOptions are what a context does at each operation and failure.
type DebugOptions struct {
	// Trace, if set, is given a line for each operation: the place, the operation, the
	// axes of the operands, and the result. "outer" marks a product of operands that
	// have no axis in common, which is most often a misspelled axis.
	Trace func(line string)
	// OnFailure, if set, is called when an operation fails, on its goroutine: a place for
	// a breakpoint.
	OnFailure func(err error)
	// CheckNaN makes a NaN or an infinity in an f32 result a failure. It waits for each
	// operation.
	CheckNaN bool
}

// Debug sets what c does at each operation and failure; the zero value is nothing.
func (c *Context) Debug(d DebugOptions) {
	if !c.none() {
		c.debug.Store(&d)
	}
}

// Close waits for the context's work, ends everything that was made on it and is not
// Shared, gives its queues back, and returns the first failure that nobody has looked at;
// no other context waits for that. While a call is inside, it fails with ErrBusy and
// leaves the context open. A second Close only waits until the first one, or the
// engine's, has ended.
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

// end gives everything back, for whoever closed the context. It waits for the device.
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

// none reports whether c was not made by NewContext.
func (c *Context) none() bool { return c == nil || c.x == nil }

// claim makes an idle context next, and returns the state that it found: idle,
// inside or closed.
func (c *Context) claim(next uint32) uint32 {
	for {
		if c.state.CompareAndSwap(stateIdle, next) {
			return stateIdle
		}
		switch s := c.state.Load(); s {
		case stateInside, stateClosed:
			return s
		case stateHeld:
			// While this goroutine has the lock, nobody looks.
			c.e.mu.Lock()
			ok := c.state.CompareAndSwap(stateIdle, next)
			c.e.mu.Unlock()
			if ok {
				return stateIdle
			}
		}
	}
}

// enter claims the context for a call until exit.
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
