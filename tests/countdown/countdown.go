// Package countdown has contexts for tests of cancellation: one that ends at a chosen one
// of the looks at it, and one that has ended.
package countdown

import (
	"context"
	"sync/atomic"
)

// Context is a context that is done from a look at Err on. Make one by [After].
type Context struct {
	context.Context
	cancel context.CancelFunc
	left   atomic.Int64 // looks that find nothing
	looks  atomic.Int64
}

// After returns a context of which so many looks find nothing. The next one cancels it.
func After(looks int) *Context {
	c := new(Context)
	c.Context, c.cancel = context.WithCancel(context.Background())
	c.left.Store(int64(looks))
	return c
}

// Err is a look at the context.
func (c *Context) Err() error {
	c.looks.Add(1)
	if c.left.Add(-1) < 0 {
		c.cancel()
	}
	return c.Context.Err()
}

// Looks returns how many looks there were.
func (c *Context) Looks() int { return int(c.looks.Load()) }

// Cancelled returns a context that was cancelled.
func Cancelled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
