package fucina

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/fucina-go/fucina/core/tensor"
	"github.com/fucina-go/fucina/exec"
	"github.com/fucina-go/fucina/tags"
)

// Context is a queue over an engine and the scopes that are open on it. One
// goroutine at a time drives it: a call that finds another one inside fails with
// ErrBusy. Tensors may be used with any context of their engine. nil and the zero
// Context are closed.
type Context struct {
	e *Engine
	x *exec.Context

	// busy is held for the whole of a call, which may be several ops of x.
	busy   atomic.Bool
	closed atomic.Bool
}

// NewContext returns a context. The caller closes it; closing the engine does too.
func (e *Engine) NewContext() (*Context, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, fmt.Errorf("fucina: new context: engine: %w", ErrClosed)
	}
	x, err := e.x.NewContext()
	if err != nil {
		return nil, fmt.Errorf("fucina: new context: %w", err)
	}
	c := &Context{e: e, x: x}
	e.contexts[c] = struct{}{}
	return c, nil
}

// Engine returns the context's engine.
func (c *Context) Engine() *Engine { return c.e }

// SetCancel makes the operations that follow end with ctx's error where they would
// wait and ctx is done. nil stands for context.Background(). It is a call like any
// other: only the goroutine that drives the context makes it.
func (c *Context) SetCancel(ctx context.Context) { c.x.SetCancel(ctx) }

// Close waits for the context's work, closes its scopes and gives its queues back.
// It fails with ErrBusy, and leaves the context open, while a call is inside.
// Closing again does nothing.
func (c *Context) Close() error {
	if c.none() {
		return nil
	}
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	if c.closed.Load() {
		return nil
	}
	if !c.busy.CompareAndSwap(false, true) {
		return fmt.Errorf("fucina: close: %w", ErrBusy)
	}
	defer c.exit()
	c.closed.Store(true)
	delete(c.e.contexts, c)
	if err := c.x.Close(); err != nil {
		return fmt.Errorf("fucina: close context: %w", err)
	}
	return nil
}

// none reports whether c was not made by NewContext.
func (c *Context) none() bool { return c == nil || c.x == nil }

// enter claims the context for a call until exit.
func (c *Context) enter(what string) error {
	if c.none() {
		return fmt.Errorf("%s: no context: %w", what, ErrClosed)
	}
	if !c.busy.CompareAndSwap(false, true) {
		return fmt.Errorf("%s: %w", what, ErrBusy)
	}
	if c.closed.Load() {
		c.exit()
		return fmt.Errorf("%s: context: %w", what, ErrClosed)
	}
	return nil
}

func (c *Context) exit() { c.busy.Store(false) }

// wrap makes t, whose reference it takes, a result: of the innermost scope or, if
// none is open, the caller's.
func (c *Context) wrap(t tensor.Tensor, names tags.List) Tensor {
	return Tensor{c.x.Wrap(t, names)}
}

// Scope owns the results of the operations of its context that run while it is
// the innermost open scope: Release of such a result does nothing, and Close
// releases them all. A backward pass needs that; inference should do without, as
// a scope keeps every intermediate value alive.
type Scope struct {
	c *Context
	s *exec.Scope
}

// OpenScope opens a scope inside those that are open. The caller closes it.
func (c *Context) OpenScope() (*Scope, error) {
	if err := c.enter("open scope"); err != nil {
		return nil, err
	}
	defer c.exit()
	s, err := c.x.OpenScope()
	if err != nil {
		return nil, fmt.Errorf("open scope: %w", err)
	}
	return &Scope{c, s}, nil
}

// Close releases what the scope owns, newest first, after closing the scopes that
// were opened inside it. Closing again, or after the context, does nothing.
func (s *Scope) Close() error {
	if !s.c.busy.CompareAndSwap(false, true) {
		return fmt.Errorf("close scope: %w", ErrBusy)
	}
	defer s.c.exit()
	if s.c.closed.Load() {
		return nil
	}
	if err := s.s.Close(); err != nil {
		return fmt.Errorf("close scope: %w", err)
	}
	return nil
}
