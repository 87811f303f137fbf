package exec

import (
	"errors"
	"fmt"
	"sync"

	"github.com/fucina-go/fucina/core/tensor"
	"github.com/fucina-go/fucina/tags"
)

// ErrReleased reports a handle whose tensor was released.
var ErrReleased = errors.New("tensor was released")

// Handle names a tensor by a pooled header and the header's epoch. Releasing moves
// the epoch on, so a stale handle is an error even after its header was reused, and
// never someone else's tensor. The zero Handle is stale.
type Handle struct {
	h     *header
	epoch uint64
}

// header is the tensor behind a handle.
type header struct {
	pool *handlePool

	mu     sync.Mutex
	epoch  uint64
	t      tensor.Tensor
	tags   tags.List
	scoped bool // a scope owns the tensor
}

type handlePool struct {
	mu   sync.Mutex
	idle []*header
	n    int64
}

func (p *handlePool) live() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n
}

func (p *handlePool) get() *header {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n++
	if n := len(p.idle); n > 0 {
		h := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return h
	}
	return &header{pool: p}
}

func (p *handlePool) put(h *header) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n--
	p.idle = append(p.idle, h)
}

// Own wraps t, whose reference it takes, in a handle that no scope owns. On a closed
// engine it fails with ErrClosed and takes nothing.
func (e *Engine) Own(t tensor.Tensor, names tags.List) (Handle, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return Handle{}, fmt.Errorf("exec: tensor of an engine that is %w", ErrClosed)
	}
	return e.wrap(t, names, false), nil
}

// Wrap wraps t, whose reference it takes, as an op's result: it belongs to the
// innermost open scope, or to the caller if there is none. Only the goroutine that
// drives the context may call it; unlike in an op, that is not checked.
func (c *Context) Wrap(t tensor.Tensor, names tags.List) Handle {
	if len(c.scopes) == 0 {
		return c.e.wrap(t, names, false)
	}
	s := c.scopes[len(c.scopes)-1]
	h := c.e.wrap(t, names, true)
	s.items = append(s.items, h)
	return h
}

func (e *Engine) wrap(t tensor.Tensor, names tags.List, scoped bool) Handle {
	h := e.handles.get()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.t, h.tags, h.scoped = t, names, scoped
	return Handle{h, h.epoch}
}

// Use returns the tensor with a reference for the caller, who releases it, and its
// axis names. It fails with ErrReleased for a stale handle.
func (h Handle) Use() (tensor.Tensor, tags.List, error) {
	if h.h == nil {
		return tensor.Tensor{}, tags.List{}, fmt.Errorf("exec: %w", ErrReleased)
	}
	h.h.mu.Lock()
	defer h.h.mu.Unlock()
	if h.h.epoch != h.epoch {
		return tensor.Tensor{}, tags.List{}, fmt.Errorf("exec: %w", ErrReleased)
	}
	return h.h.t.Retained(), h.h.tags, nil
}

// Release gives the tensor back. For a tensor that a scope owns it does nothing.
// It fails with ErrReleased for a stale handle.
func (h Handle) Release() error { return h.release(false) }

func (h Handle) release(byScope bool) error {
	if h.h == nil {
		return fmt.Errorf("exec: release: %w", ErrReleased)
	}
	h.h.mu.Lock()
	if h.h.epoch != h.epoch {
		h.h.mu.Unlock()
		return fmt.Errorf("exec: release: %w", ErrReleased)
	}
	if h.h.scoped && !byScope {
		h.h.mu.Unlock()
		return nil
	}
	h.h.epoch++
	t := h.h.t
	h.h.t, h.h.tags = tensor.Tensor{}, tags.List{}
	h.h.mu.Unlock()
	t.Release()
	h.h.pool.put(h.h)
	return nil
}

// Scope owns the results of the ops that run while it is the innermost open scope
// of its context. It holds every one of them until Close: what backward passes
// need, and what inference should avoid.
type Scope struct {
	c     *Context
	items []Handle
}

// OpenScope opens a scope inside those that are open.
func (c *Context) OpenScope() (*Scope, error) {
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.exit()
	s := &Scope{c: c}
	c.scopes = append(c.scopes, s)
	return s, nil
}

// Close releases what the scope owns, newest first, after closing the scopes that
// were opened inside it. A second Close does nothing.
func (s *Scope) Close() error {
	if err := s.c.enter(); err != nil {
		return err
	}
	defer s.c.exit()
	s.close()
	return nil
}

func (s *Scope) close() {
	c := s.c
	place := -1
	for i, o := range c.scopes {
		if o == s {
			place = i
		}
	}
	if place < 0 {
		return
	}
	for i := len(c.scopes) - 1; i >= place; i-- {
		items := c.scopes[i].items
		for j := len(items) - 1; j >= 0; j-- {
			// Only the scope releases what it owns, so no handle is stale here.
			if err := items[j].release(true); err != nil {
				panic(err)
			}
		}
		c.scopes[i].items = nil
	}
	c.scopes = c.scopes[:place]
}
