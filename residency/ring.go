//go:build cuda || metal || accel

package residency

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/internal/ctxlock"
	"github.com/fucina-go/fucina/internal/offheap"
)

// ring runs the transfers in one direction. It has no queue and no staging memory before
// the first transfer.
type ring struct {
	p           provider.Device
	kind        provider.QueueKind
	slots, size int // number of slots, and bytes of each

	making ctxlock.Lock // held by open while it makes the staging, and by close
	closed bool         // guarded by making
	made   atomic.Pointer[staging]
}

// staging is a transfer queue and its staging memory.
type staging struct {
	p     provider.Device
	q     provider.Queue
	slots chan *slot // idle slots, in the order in which they became idle
	all   []*slot
	done  chan struct{} // closed by close

	submitting ctxlock.Lock // held during a submission to q
}

// slot is a piece of staging memory. The last transfer of an idle slot may still be
// running.
type slot struct {
	p     []byte
	block offheap.Block // the memory, unless the provider allocated it
	fence accel.Work    // the last transfer that used the memory
}

func newRing(p provider.Device, kind provider.QueueKind, slots, size int) *ring {
	return &ring{p: p, kind: kind, slots: slots, size: size, making: ctxlock.New()}
}

// open returns the staging. The first call makes it; if that fails, the next call tries
// again.
func (r *ring) open(ctx context.Context) (*staging, error) {
	if s := r.made.Load(); s != nil {
		return s, nil
	}
	if err := r.making.Lock(ctx); err != nil {
		return nil, err
	}
	defer r.making.Unlock()
	if s := r.made.Load(); s != nil {
		return s, nil
	}
	if r.closed {
		return nil, fmt.Errorf("residency: %s queue: %w", r.kind, provider.ErrClosed)
	}
	s, err := newStaging(r.p, r.kind, r.slots, r.size)
	if err != nil {
		return nil, fmt.Errorf("residency: %s queue with %d bytes of staging memory: %w", r.kind, r.slots*r.size, err)
	}
	r.made.Store(s)
	return s, nil
}

// dead returns the failure of the queue, if it was made and failed.
func (r *ring) dead() error {
	if s := r.made.Load(); s != nil {
		return s.q.Timeline().Dead()
	}
	return nil
}

// close frees the queue and the staging memory. Later transfers fail. A second close does
// nothing.
func (r *ring) close(ctx context.Context) error {
	if err := r.making.Lock(ctx); err != nil {
		return err
	}
	defer r.making.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	if s := r.made.Load(); s != nil {
		return s.close()
	}
	return nil
}

func newStaging(p provider.Device, kind provider.QueueKind, slots, size int) (*staging, error) {
	q, err := p.NewQueue(kind)
	if err != nil {
		return nil, err
	}
	r := &staging{p: p, q: q, slots: make(chan *slot, slots), done: make(chan struct{}), submitting: ctxlock.New()}
	pinned, _ := p.(provider.PinnedAllocator)
	for range slots {
		s := new(slot)
		if pinned != nil {
			s.p, err = pinned.AllocPinned(size)
		} else if s.block, err = offheap.Alloc(size); err == nil {
			s.p = s.block.Bytes()
		}
		if err != nil {
			return nil, errors.Join(err, r.close())
		}
		r.all = append(r.all, s)
		r.slots <- s
	}
	return r, nil
}

// close closes the queue, which waits for its work, and frees the staging memory. A
// concurrent read keeps its slot until it has copied from it, and close waits for that.
func (r *staging) close() error {
	err := r.p.CloseQueue(r.q)
	close(r.done)
	pinned, _ := r.p.(provider.PinnedAllocator)
	for range r.all {
		s := <-r.slots // a concurrent take that gets a slot finds the queue closed and returns the slot
		if pinned != nil {
			pinned.FreePinned(s.p)
		} else {
			offheap.Free(&s.block)
		}
	}
	r.all = nil
	return err
}

// take returns a slot whose memory no transfer uses. The caller gives it back.
func (r *staging) take(ctx context.Context) (*slot, error) {
	var s *slot
	select {
	case s = <-r.slots:
	case <-r.done:
		return nil, fmt.Errorf("residency: staging memory: %w", provider.ErrClosed)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := s.fence.Wait(ctx); err != nil {
		if !s.fence.Done() {
			r.slots <- s
			return nil, err
		}
		// The failure belongs to the buffer of the earlier transfer.
	}
	s.fence = accel.Work{}
	return s, nil
}

// follow waits until w has ended, well or not. It does not wait if w is on the transfer
// queue itself, which runs in order.
func (r *staging) follow(ctx context.Context, w accel.Work) error {
	if w.Timeline() == r.q.Timeline() {
		return nil
	}
	if err := w.Wait(ctx); err != nil && !w.Done() {
		return err
	}
	return nil
}

func (r *staging) upload(ctx context.Context, dst op.Mem, src []byte, after accel.Fences) (accel.Work, error) {
	for _, w := range after {
		if err := r.follow(ctx, w); err != nil {
			return accel.Work{}, err
		}
	}
	var last accel.Work // covers the earlier copies, because a queue ends them in order
	for off := 0; off < len(src); {
		n, w, err := r.uploadPiece(ctx, dst, src, off)
		if err != nil {
			return last, err
		}
		last = w
		off += n
	}
	return last, nil
}

func (r *staging) uploadPiece(ctx context.Context, dst op.Mem, src []byte, off int) (int, accel.Work, error) {
	s, err := r.take(ctx)
	if err != nil {
		return 0, accel.Work{}, err
	}
	defer func() { r.slots <- s }()
	n := 0
	if err := offheap.Guard(func() error { n = copy(s.p, src[off:]); return nil }); err != nil {
		return 0, accel.Work{}, err // src lies in a mapped file that was truncated
	}
	if err := r.submitting.Lock(ctx); err != nil {
		return 0, accel.Work{}, err
	}
	defer r.submitting.Unlock()
	s.fence, err = r.p.Upload(ctx, r.q, dst.Slice(off, n), s.p[:n])
	return n, s.fence, err
}

func (r *staging) download(ctx context.Context, dst []byte, src op.Mem, after accel.Work) (accel.Work, error) {
	if err := r.follow(ctx, after); err != nil {
		return accel.Work{}, err
	}
	if err := r.submitting.Lock(ctx); err != nil {
		return accel.Work{}, err
	}
	defer r.submitting.Unlock()
	return r.p.Download(ctx, r.q, dst, src)
}

// read copies src to dst through staging memory, and waits. With an error it returns the
// fence of the copy that it did not wait for.
func (r *staging) read(ctx context.Context, dst []byte, src op.Mem, after accel.Work) (accel.Work, error) {
	// A slot is taken only after the wait, so that a read that waits for slow work leaves
	// the slots to others.
	if err := r.follow(ctx, after); err != nil {
		return accel.Work{}, err
	}
	for off := 0; off < len(dst); {
		n, w, err := r.readPiece(ctx, dst[off:], src, off)
		if err != nil {
			return w, err
		}
		off += n
	}
	return accel.Work{}, nil
}

func (r *staging) readPiece(ctx context.Context, dst []byte, src op.Mem, off int) (int, accel.Work, error) {
	s, err := r.take(ctx)
	if err != nil {
		return 0, accel.Work{}, err
	}
	defer func() { r.slots <- s }()
	n := min(len(dst), len(s.p))
	if s.fence, err = r.download(ctx, s.p[:n], src.Slice(off, n), accel.Work{}); err != nil {
		return 0, accel.Work{}, err
	}
	if err := s.fence.Wait(ctx); err != nil {
		return 0, s.fence, err
	}
	return copy(dst, s.p[:n]), accel.Work{}, nil
}
