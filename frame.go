package fucina

import (
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/fucina-go/fucina/core/tensor"
)

// Frame owns the results of the operations that run on its context while it is the
// innermost open frame or scope. Close ends these tensors. A Frame is a small value, and
// its copies denote the same frame.
type Frame struct {
	c   *Context
	gen uint64
	bad *Failure // why no frame was opened, or nil
}

// Scope owns results as a Frame does. It also holds the memory of every tensor that is made
// inside it, in frames too, until it closes, because Backward reads that memory. Tensors end
// at the same points in a Scope and in a Frame, so a forward function that is correct in
// training is correct in inference. A tensor that leaves a Scope is a constant.
type Scope struct{ f Frame }

type frameKind uint8

const (
	plainFrame frameKind = iota
	noGradFrame
	scopeFrame
)

// frame is an open frame or scope. The context reuses a frame for one Frame after another;
// gen distinguishes them.
type frame struct {
	c     *Context
	kind  frameKind
	gen   uint64
	since uint64 // the number of the context's last failure when the frame was opened
	from  *Failure
	items *header         // the tensors that the frame owns, newest first
	held  []tensor.Tensor // the memory of the tensors that ended in a scope
}

// Frame opens a frame inside the innermost open frame or scope.
//
// Open a frame first, and end it on every path. A function with one exit ends with
// "return f.Return(y)". A function that can return early, or has two results, begins with
// "defer f.Close()" and returns f.Keep of each result.
func (c *Context) Frame() Frame { return c.open(plainFrame, nil) }

// NoGrad opens a Frame in which nothing is recorded for Backward. Its memory is freed at
// Close, even inside a Scope.
func (c *Context) NoGrad() Frame { return c.open(noGradFrame, nil) }

// Scope opens a scope inside the innermost open frame or scope.
func (c *Context) Scope() Scope { return Scope{c.open(scopeFrame, nil)} }

// Frames yields the integers 0 to n-1, each with a new frame around the body of the loop.
// The frame closes at the end of the body, and on continue, break, return and panic.
func (c *Context) Frames(n int) iter.Seq2[int, Frame] {
	return func(yield func(int, Frame) bool) {
		for i := range n {
			if !c.turn(i, yield) {
				return
			}
		}
	}
}

func (c *Context) turn(i int, yield func(int, Frame) bool) bool {
	f := c.Frame()
	defer f.Close()
	return yield(i, f)
}

// Frame opens a frame of t's context. If t has failed, Keep and Return of the frame give
// t's failure in place of their argument.
func (t Tensor) Frame() Frame {
	from := t.failure()
	if t.c != nil {
		return t.c.open(plainFrame, from)
	}
	if from == nil {
		from = newFailure(nil, fmt.Errorf("frame: %w", errNoContext))
	}
	return Frame{bad: from}
}

// Keep gives t to the frame or scope around f, or to the context if there is none. If f does
// not own t, t keeps its owner and the result is a new tensor over the same memory. If
// failures inside f have not been looked at, the result carries the first of them instead.
//
// A view keeps the whole storage of its tensor alive: keep a Copy of a small view of a large
// tensor.
func (f Frame) Keep(t Tensor) Tensor { return f.keep(t) }

// Return returns f.Keep(t) and closes f.
func (f Frame) Return(t Tensor) Tensor {
	t = f.keep(t)
	f.Close()
	return t
}

// Close ends the tensors that f and the frames inside it own. Closing f again does nothing.
func (f Frame) Close() {
	if f.c == nil || f.c.enter() != nil {
		return // a closed context has ended its frames; another goroutine drives a busy one
	}
	defer f.c.exit()
	if i := f.place(); i > 0 {
		f.c.closeFrames(i)
	}
}

// Keep gives t to the frame or scope around s, like Frame.Keep.
func (s Scope) Keep(t Tensor) Tensor { return s.f.keep(t) }

// Close ends the tensors that s and the frames inside it own, and frees the memory that s
// holds. Closing s again does nothing.
func (s Scope) Close() { s.f.Close() }

// open opens a frame of kind k. If from is not nil, Keep and Return of the frame give it.
func (c *Context) open(k frameKind, from *Failure) Frame {
	if err := c.enter(); err != nil {
		if from == nil {
			from = newFailure(nil, fmt.Errorf("frame: %w", err))
		}
		return Frame{bad: from}
	}
	defer c.exit()
	return Frame{c: c, gen: c.push(k, from)}
}

// push adds an open frame and returns its gen. The caller is inside the context.
func (c *Context) push(k frameKind, from *Failure) uint64 {
	c.gen++
	n := len(c.frames)
	if n < cap(c.frames) && c.frames[:n+1][n] != nil {
		c.frames = c.frames[:n+1]
	} else {
		c.frames = append(c.frames, &frame{c: c})
	}
	s := c.frames[n]
	s.kind, s.gen, s.since, s.from = k, c.gen, c.failures.open(), from
	return c.gen
}

// place returns the index of f in its context's frames, or -1. The caller is inside the
// context.
func (f Frame) place() int {
	for i := len(f.c.frames) - 1; i >= 0; i-- {
		if f.c.frames[i].gen == f.gen {
			return i
		}
	}
	return -1
}

// innermost returns the frame that owns results.
func (c *Context) innermost() *frame { return c.frames[len(c.frames)-1] }

// closeFrames closes the frames from index i on, the innermost first. The caller is inside
// the context.
func (c *Context) closeFrames(i int) {
	for j := len(c.frames) - 1; j >= i; j-- {
		s := c.frames[j]
		for h := s.items; h != nil; h = s.items {
			s.unlink(h)
			h.mu.Lock()
			raw := h.empty()
			h.mu.Unlock()
			c.discard(h, raw, c.holder(j))
		}
		for k := range s.held {
			s.held[k].Release()
		}
		clear(s.held)
		s.held, s.from = s.held[:0], nil
		c.frames = c.frames[:j]
	}
	if i > 0 {
		c.failures.close(c.frames[i-1].since)
	}
}

// holder returns the scope that holds the memory of tensors that end in frame i, or nil.
func (c *Context) holder(i int) *frame {
	for ; i >= 0 && c.frames[i].kind != noGradFrame; i-- {
		if c.frames[i].kind == scopeFrame {
			return c.frames[i]
		}
	}
	return nil
}

func (f Frame) keep(t Tensor) Tensor {
	switch {
	case f.bad != nil && t.failure() != nil:
		return t
	case f.bad != nil:
		return failedTensor(t.c, f.bad)
	case f.c == nil:
		return failedTensor(t.c, newFailure(nil, errors.New("keep: the zero Frame")))
	}
	c := f.c
	if err := c.enter(); err != nil {
		return failedTensor(c, newFailure(nil, fmt.Errorf("keep: %w", err)))
	}
	kept, err := c.keep(f, t)
	c.exit()
	if err != nil {
		return c.fail(fmt.Errorf("keep: %w", err))
	}
	return kept
}

// keep implements Frame.keep. The caller is inside the context.
func (c *Context) keep(f Frame, t Tensor) (Tensor, error) {
	i := f.place()
	if i < 1 {
		return Tensor{}, fmt.Errorf("the frame is closed: %w", ErrReleased)
	}
	s := c.frames[i]
	if s.from != nil {
		return failedTensor(c, s.from), nil
	}
	if first := c.failures.first(s.since); first != nil {
		return failedTensor(c, first), nil
	}
	if t.failure() != nil {
		return t, nil
	}
	if t.h == nil {
		return Tensor{}, errNoTensor
	}
	if err := c.foreign(t); err != nil {
		return Tensor{}, err
	}
	around := c.frames[i-1]
	if s := t.h.ownedBy(t.mark()); s != nil && slices.Contains(c.frames[i:], s) {
		t.h.pass(around)
		return Tensor{c, t.h, t.mark()}, nil
	}
	o, err := t.use()
	if err != nil {
		return Tensor{}, err
	}
	return c.wrapIn(around, &o), nil
}

// Replace sets *old to fresh: fresh gets the owner and the context of *old, and the tensor
// that *old named ends. If *old is the zero Tensor or has ended, fresh's context becomes the
// owner. If fresh has failed, Replace leaves *old unchanged and returns the failure. A nil
// old is an error.
func Replace(old *Tensor, fresh Tensor) error {
	if err := fresh.Err(); err != nil {
		return err
	}
	if !fresh.live() {
		return fresh.complain("replace", errEnded(fresh)).Err()
	}
	if old == nil {
		return fresh.complain("replace", errNoOld).Err()
	}
	if old.Same(fresh) {
		return nil
	}
	next, err := old.successor(fresh)
	if err != nil {
		return fresh.complain("replace", err).Err()
	}
	old.Release()
	*old = next
	return nil
}

var errNoOld = errors.New("no tensor to replace: the pointer is nil")

// successor gives fresh the owner of t, and returns it. If t has ended, the owner is fresh's
// context. If fresh is Shared and t is not, successor returns a new tensor over the memory of
// fresh instead.
func (t Tensor) successor(fresh Tensor) (Tensor, error) {
	from := fresh.h.ownedBy(fresh.mark())
	c, owner, into := fresh.c, (*frame)(nil), fresh.c
	live := t.live()
	if live {
		c, owner = t.c, t.h.ownedBy(t.mark())
		into = owner.context()
	}
	if err := enterBoth(from.context(), into); err != nil {
		return Tensor{}, err
	}
	defer exitBoth(from.context(), into)
	if into != nil {
		if err := into.foreign(fresh); err != nil {
			return Tensor{}, err
		}
		if !live {
			owner = into.frames[0]
		}
	}
	// No other goroutine can change the owners now, but one may have changed them before.
	if fresh.h.ownedBy(fresh.mark()) != from || live && t.h.ownedBy(t.mark()) != owner {
		return Tensor{}, ErrReleased
	}
	if from == nil && owner != nil {
		o, err := fresh.use()
		if err != nil {
			return Tensor{}, err
		}
		next := owner.c.wrapIn(owner, &o)
		next.c = c
		return next, nil
	}
	if from != nil {
		fresh.h.pass(owner)
	}
	return Tensor{c, fresh.h, fresh.mark()}, nil
}

// context returns the context of s, or nil if s is nil.
func (s *frame) context() *Context {
	if s == nil {
		return nil
	}
	return s.c
}

// enterBoth enters two contexts, which may be the same or nil. If one cannot be entered, it
// enters neither.
func enterBoth(a, b *Context) error {
	if a != nil {
		if err := a.enter(); err != nil {
			return err
		}
	}
	if b == nil || b == a {
		return nil
	}
	err := b.enter()
	if err != nil && a != nil {
		a.exit()
	}
	return err
}

// exitBoth undoes enterBoth.
func exitBoth(a, b *Context) {
	if a != nil {
		a.exit()
	}
	if b != nil && b != a {
		b.exit()
	}
}
