// Package countdown has a context for tests of cancellation. It is cancelled at a chosen
// call of Err.
package countdown

import (
	"context"
	"sync/atomic"
)

// Context is a context that is done from a given call of Err on. Create it with [After].
type Context struct {
	context.Context
	cancel context.CancelFunc
	left   atomic.Int64 // calls of Err left before the cancellation
	looks  atomic.Int64
}

// After returns a context that is not done for the first looks calls of Err. The next call
// cancels it.
func After(looks int) *Context {
	c := new(Context)
	c.Context, c.cancel = context.WithCancel(context.Background())
	c.left.Store(int64(looks))
	return c
}

// Err implements context.Context, and counts the call.
func (c *Context) Err() error {
	c.looks.Add(1)
	if c.left.Add(-1) < 0 {
		c.cancel()
	}
	return c.Context.Err()
}

// Looks returns the number of calls of Err.
func (c *Context) Looks() int { return int(c.looks.Load()) }

// Cancelled returns a context that was cancelled.
func Cancelled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
