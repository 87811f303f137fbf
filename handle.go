package fucina

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fucina-go/fucina/core/tensor"
	"github.com/fucina-go/fucina/tagged"
	"github.com/fucina-go/fucina/tags"
)

// Tensor denotes a tensor and the context that drives it. It is a small value, and its
// copies denote the same tensor. Once the tensor has ended, every copy is stale, and using
// one fails with ErrReleased. The zero Tensor denotes no tensor.
//
// Operations are methods and functions that return a Tensor. If an operation fails, its result
// is a failed tensor, which carries the error. An operation on a failed tensor computes nothing
// and returns the same failure. The package documentation has the rules.
//
// The operator == also compares the context and the mark of Move; Same does not.
type Tensor struct {
	c *Context // nil for a Shared tensor
	h *header
	// epoch is the epoch of the header when the tensor was made, combined with the mark of
	// Move. The epoch of a header increases when its tensor ends, so a stale Tensor is an
	// error even after its header has been reused.
	epoch uint64
}

// moved is the bit of an epoch that Move sets.
const moved = 1 << 63

// mark returns the epoch without the mark of Move.
func (t Tensor) mark() uint64 { return t.epoch &^ moved }

// header holds the tensor that a Tensor denotes. Its engine reuses a header for one tensor
// after another.
type header struct {
	e    *Engine
	fail *Failure // set only for a failed tensor, whose header is not reused

	// mu guards epoch and t. If the header has an owner, only the owner's context writes them,
	// so a goroutine inside that context reads them without mu.
	mu    sync.Mutex
	epoch uint64
	t     tagged.Tensor
	// owner is nil for a Shared tensor. It changes with mu, inside the owner's context, unless the
	// header is idle. An idle header in Context.spare may keep an owner, which is a frame of that
	// context. One in headers.idle has none, because any context may reuse it.
	owner atomic.Pointer[frame]

	prev, next *header // links of the owner's items; used inside the owner's context
}

// headers counts the headers of an engine that are in use, and keeps the idle ones.
type headers struct {
	inUse atomic.Int64
	mu    sync.Mutex
	idle  []*header
}

func (p *headers) live() int64 { return p.inUse.Load() }

func (p *headers) get(e *Engine) *header {
	p.inUse.Add(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.idle); n > 0 {
		h := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return h
	}
	return &header{e: e}
}

func (p *headers) put(h *header) {
	h.owner.Store(nil)
	p.inUse.Add(-1)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, h)
}

// keep adds the idle headers of a context that closes. They do not keep the context reachable.
func (p *headers) keep(idle []*header) {
	for _, h := range idle {
		h.owner.Store(nil)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, idle...)
}

// wrap returns a Shared Tensor for t, and takes the reference of t.
func (e *Engine) wrap(t tensor.Tensor, names tags.List) Tensor {
	h := e.headers.get(e)
	return Tensor{nil, h, h.fill(&tagged.Tensor{Raw: t, Names: names}, nil)}
}

// fill makes the idle header h the header of t with the given owner, and returns h's epoch.
func (h *header) fill(t *tagged.Tensor, owner *frame) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.t = *t
	if h.owner.Load() != owner { // an atomic store costs more than a load
		h.owner.Store(owner)
	}
	return h.epoch
}

// empty ends the tensor of h and returns the raw tensor. The caller holds mu.
func (h *header) empty() tensor.Tensor {
	raw := h.t.Raw
	h.epoch++
	h.t = tagged.Tensor{}
	return raw
}

// spareHeaders is the largest number of idle headers that a context keeps.
const spareHeaders = 64

// wrapIn returns a Tensor for t that the frame s of c owns. It takes the reference of t, and sets
// t.Raw to zero. The caller is inside the context.
func (c *Context) wrapIn(s *frame, t *tagged.Tensor) Tensor {
	var h *header
	if n := len(c.spare); n > 0 {
		h = c.spare[n-1]
		c.spare = c.spare[:n-1]
		c.e.headers.inUse.Add(1)
	} else {
		h = c.e.headers.get(c.e)
	}
	epoch := h.fill(t, s)
	t.Raw = tensor.Tensor{}
	s.link(h)
	return Tensor{c, h, epoch}
}

// discard makes the header h idle and releases raw, after the end of a tensor that a frame
// of c owned. If holder is not nil, that scope holds raw instead.
func (c *Context) discard(h *header, raw tensor.Tensor, holder *frame) {
	if holder != nil {
		holder.held = append(holder.held, raw)
	} else {
		raw.Release()
	}
	if len(c.spare) < spareHeaders {
		c.spare = append(c.spare, h)
		c.e.headers.inUse.Add(-1)
	} else {
		c.e.headers.put(h)
	}
}

// link adds h to the items of s. The caller is inside s's context.
func (s *frame) link(h *header) {
	h.prev, h.next = nil, s.items
	if h.next != nil {
		h.next.prev = h
	}
	s.items = h
}

// unlink removes h from the items of s. The caller is inside s's context.
func (s *frame) unlink(h *header) {
	if h.prev != nil {
		h.prev.next = h.next
	} else {
		s.items = h.next
	}
	if h.next != nil {
		h.next.prev = h.prev
	}
	h.prev, h.next = nil, nil
}

// own returns a Shared Tensor for t, and makes the engine the owner of t's buffer. It takes
// the reference of t, unless it fails, with ErrClosed or ErrEngine.
func (e *Engine) own(t tensor.Tensor, names tags.List) (Tensor, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed.Load() {
		return Tensor{}, e.isClosed()
	}
	if !t.Buffer().Adopt(e.number) {
		return Tensor{}, &opError{fmt.Sprintf("the buffer belongs to %s, not to %s", engineName(t.Buffer().Owner()), e), ErrEngine}
	}
	return e.wrap(t, names), nil
}

// pass gives h, which a frame owns, to the frame s, or to nobody if s is nil. h has an owner all
// the time if s is not nil, so that a Release on another goroutine does not take h for that of a
// Shared tensor. The caller is inside the contexts of both frames.
func (h *header) pass(s *frame) {
	h.owner.Load().unlink(h)
	if s != nil {
		s.link(h)
	}
	h.mu.Lock()
	h.owner.Store(s)
	h.mu.Unlock()
}

// ownedBy returns the frame that owns the tensor of the given epoch, or nil.
func (h *header) ownedBy(epoch uint64) *frame {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.epoch != epoch {
		return nil
	}
	return h.owner.Load()
}

// ownedIn returns the frame of c that owns h, or nil. The caller is inside c, so no other
// goroutine changes a header that c owns. The caller compares the epoch, because h may be idle.
func (h *header) ownedIn(c *Context) *frame {
	if s := h.owner.Load(); s != nil && s.c == c {
		return s
	}
	return nil
}

// failedTensor returns a tensor of context c that carries f.
func failedTensor(c *Context, f *Failure) Tensor { return Tensor{c, &header{fail: f}, 0} }

// failure returns why t failed, or nil. It does not look at the failure.
func (t Tensor) failure() *Failure {
	if t.h == nil {
		return nil
	}
	return t.h.fail
}

// Errors of operands that an operation cannot use.
var (
	errNoTensor  = fmt.Errorf("the zero Tensor: %w", ErrReleased)
	errNoContext = errors.New("no context; choose one with On")
)

// live reports whether t has neither ended nor failed.
func (t Tensor) live() bool {
	if t.h == nil || t.h.fail != nil {
		return false
	}
	t.h.mu.Lock()
	defer t.h.mu.Unlock()
	return t.h.epoch == t.mark()
}

// use returns a live tensor with a reference for the caller. It does not look at the failure
// of a failed one.
func (t Tensor) use() (o tagged.Tensor, err error) {
	err = t.useAs(&o)
	return o, err
}

// useAs is use with the result in *o. It sets *o only if it succeeds.
func (t Tensor) useAs(o *tagged.Tensor) error {
	switch {
	case t.h == nil:
		return errNoTensor
	case t.h.fail != nil:
		return t.h.fail
	}
	t.h.mu.Lock()
	defer t.h.mu.Unlock()
	if t.h.epoch != t.mark() {
		return errEnded(t)
	}
	*o = t.h.t
	o.Raw.Buffer().Retain()
	return nil
}

// Release ends the tensor early. It is never needed in a frame. It does nothing to a tensor
// that has ended, has failed or is zero.
//
// In a Scope, Release ends the tensor, and the scope holds its memory. After Engine.Close,
// Release still frees the memory of a Shared tensor.
func (t Tensor) Release() {
	if t.h == nil || t.h.fail != nil {
		return
	}
	s := t.h.ownedBy(t.mark())
	if s == nil {
		t.endShared()
		return
	}
	c := s.c
	if c.enter() != nil {
		return // the context is closed or another goroutine drives it; the frame ends the tensor
	}
	defer c.exit()
	c.release(t)
}

// endShared ends a tensor that has no owner.
func (t Tensor) endShared() {
	h := t.h
	h.mu.Lock()
	if h.epoch != t.mark() || h.owner.Load() != nil {
		h.mu.Unlock()
		return
	}
	raw := h.empty()
	h.mu.Unlock()
	raw.Release()
	h.e.headers.put(h)
}

// release ends a tensor that a frame of c owns. The caller is inside the context.
func (c *Context) release(t Tensor) {
	h := t.h
	s := h.ownedIn(c)
	if s == nil || h.epoch != t.mark() {
		return
	}
	h.mu.Lock()
	raw := h.empty()
	h.mu.Unlock()
	s.unlink(h)
	c.discard(h, raw, c.holder(slices.Index(c.frames, s)))
}

// Shared removes t from its frame, scope and context. t then lives until its Release, and
// any context of the engine may use it. Shared returns t without a context; see On.
func (t Tensor) Shared() Tensor {
	if t.failure() != nil {
		return t
	}
	if !t.live() {
		return t.complain("shared", errEnded(t))
	}
	if s := t.h.ownedBy(t.mark()); s != nil {
		if err := s.c.enter(); err != nil {
			return t.complain("shared", err)
		}
		mine := t.h.ownedBy(t.mark()) == s // false if the frame ended before enter
		if mine {
			t.h.pass(nil)
		}
		s.c.exit()
		if !mine {
			return t.complain("shared", errEnded(t))
		}
	}
	return Tensor{nil, t.h, t.mark()}
}

// On returns t, driven by the context c. The owner of t does not change.
func (t Tensor) On(c *Context) Tensor {
	t.c = c
	return t
}

// Move returns t with a mark in the value. The operation that takes the marked value ends t,
// even if the operation fails. If the innermost frame does not own t, that operation fails
// with ErrNotOwned.
func (t Tensor) Move() Tensor {
	t.epoch |= moved
	return t
}

// errEnded returns the error of using t, which is not live. A closed engine may have ended it.
func errEnded(t Tensor) error {
	switch {
	case t.h == nil:
		return errNoTensor
	case t.h.e.closed.Load():
		return t.h.e.isClosed()
	}
	return ErrReleased
}
