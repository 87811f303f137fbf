package fucina

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/fucina-go/fucina/exec"
	"github.com/fucina-go/fucina/tagged"
)

// Context is a queue over an engine and the scopes that are open on it. One
// goroutine at a time drives it: a call that finds another one inside fails with
// ErrBusy. Tensors may be used with any context of their engine. nil and the zero
// Context are closed.
type Context struct {
	e      *Engine
	x      *exec.Queue
	scopes []*Scope
	call   tagged.Call // the call in progress

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
	c := &Context{e: e, done: make(chan struct{})}
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

// SetCancel makes the operations that follow end with ctx's error where they would
// wait and ctx is done. nil stands for context.Background(). It is a call like any
// other: only the goroutine that drives the context makes it.
func (c *Context) SetCancel(ctx context.Context) {
	if !c.none() {
		c.x.SetCancel(ctx)
	}
}

// Close waits for the context's work, closes its scopes and gives its queues back;
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
	c.closeScopes(0)
	err := c.x.Close()
	c.e.forget(c)
	if err != nil {
		return fmt.Errorf("fucina: close context: %w", err)
	}
	return nil
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
func (c *Context) enter(what string) error {
	if c.none() {
		return &opError{what + ": no context", ErrClosed}
	}
	switch c.claim(stateInside) {
	case stateInside:
		return fmt.Errorf("%s: %w", what, ErrBusy)
	case stateClosed:
		if c.e.closed.Load() {
			return fmt.Errorf("%s: %w", what, c.e.isClosed())
		}
		return &opError{what + ": context is closed", ErrClosed}
	}
	return nil
}

func (c *Context) exit() { c.state.Store(stateIdle) }
