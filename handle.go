package fucina

import (
	"fmt"
	"sync"

	"github.com/fucina-go/fucina/core/tensor"
	"github.com/fucina-go/fucina/tags"
)

// Tensor names a tensor. It is a small comparable value; copies name the same
// tensor. Once that is released, every one of them is stale, and using it is
// ErrReleased. The zero Tensor is stale.
//
// A tensor belongs to the engine that made it: an operation on a context of another
// engine fails with ErrEngine.
type Tensor struct {
	h *header
	// epoch is that of the header when it was given to this tensor. A release moves
	// the header's epoch on, so that a stale Tensor is an error even after its header
	// was reused, and never someone else's tensor.
	epoch uint64
}

// header is the tensor behind a Tensor. Its engine reuses it for one tensor after
// another.
type header struct {
	e *Engine

	mu     sync.Mutex
	epoch  uint64
	t      tensor.Tensor
	names  tags.List
	scoped bool // a scope owns the tensor
}

// headers are an engine's headers: those in use are counted, the others are kept.
type headers struct {
	mu   sync.Mutex
	idle []*header
	n    int64
}

func (p *headers) live() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n
}

func (p *headers) get(e *Engine) *header {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n++
	if n := len(p.idle); n > 0 {
		h := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return h
	}
	return &header{e: e}
}

func (p *headers) put(h *header) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n--
	p.idle = append(p.idle, h)
}

// wrap makes t, whose reference it takes, a Tensor.
func (e *Engine) wrap(t tensor.Tensor, names tags.List, scoped bool) Tensor {
	h := e.headers.get(e)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.t, h.names, h.scoped = t, names, scoped
	return Tensor{h, h.epoch}
}

// own makes t, whose reference it takes, a Tensor that no scope owns, and its buffer
// the engine's. With an error, which is ErrClosed or ErrEngine, it takes nothing.
func (e *Engine) own(t tensor.Tensor, names tags.List) (Tensor, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed.Load() {
		return Tensor{}, e.isClosed()
	}
	if !t.Buffer().Adopt(e.number) {
		return Tensor{}, &opError{fmt.Sprintf("the buffer belongs to %s, not to %s", engineName(t.Buffer().Owner()), e), ErrEngine}
	}
	return e.wrap(t, names, false), nil
}

// wrap makes t, whose reference it takes, a result: of the innermost scope or, if
// none is open, the caller's.
func (c *Context) wrap(t tensor.Tensor, names tags.List) Tensor {
	if len(c.scopes) == 0 {
		return c.e.wrap(t, names, false)
	}
	s := c.scopes[len(c.scopes)-1]
	x := c.e.wrap(t, names, true)
	s.items = append(s.items, x)
	return x
}

// Release gives the tensor back. While a scope owns it, that does nothing. A second
// release is ErrReleased. After Engine.Close, Release still frees the memory.
func (t Tensor) Release() error { return t.release(false) }

func (t Tensor) release(byScope bool) error {
	h := t.h
	if h == nil {
		return fmt.Errorf("release: %w", ErrReleased)
	}
	h.mu.Lock()
	if h.epoch != t.epoch {
		h.mu.Unlock()
		return fmt.Errorf("release: %w", ErrReleased)
	}
	if h.scoped && !byScope {
		h.mu.Unlock()
		return nil
	}
	h.epoch++
	raw := h.t
	h.t, h.names = tensor.Tensor{}, tags.List{}
	h.mu.Unlock()
	raw.Release()
	h.e.headers.put(h)
	return nil
}
