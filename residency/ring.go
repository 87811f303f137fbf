//go:build cuda || metal || accel

package residency

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/internal/offheap"
)

// ring is one transfer queue and its staging memory.
type ring struct {
	p     provider.Provider
	q     provider.Queue
	slots chan *slot // idle slots, the longest idle first
	all   []*slot
	done  chan struct{} // closed by close

	mu sync.Mutex // one goroutine at a time submits to q
}

// slot is a piece of staging memory. A slot that is idle may still be in use by
// work, when its last user did not wait.
type slot struct {
	p     []byte
	block offheap.Block // when the memory is not the provider's
	work  accel.Work
}

func newRing(p provider.Provider, kind provider.QueueKind, slots, size int) (*ring, error) {
	q, err := p.NewQueue(kind)
	if err != nil {
		return nil, err
	}
	r := &ring{p: p, q: q, slots: make(chan *slot, slots), done: make(chan struct{})}
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

// close ends the queue, which waits for its work, and frees the staging memory once
// those who read tensors at this moment have copied what they waited for. It is
// called once.
func (r *ring) close() error {
	err := r.p.CloseQueue(r.q)
	close(r.done)
	pinned, _ := r.p.(provider.PinnedAllocator)
	for range r.all {
		s := <-r.slots // whoever takes one now finds the queue closed, and gives it back
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
func (r *ring) take(ctx context.Context) (*slot, error) {
	var s *slot
	select {
	case s = <-r.slots:
	case <-r.done:
		return nil, fmt.Errorf("residency: staging memory: %w", provider.ErrClosed)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := s.work.Wait(ctx); err != nil {
		if !s.work.Done() {
			r.slots <- s
			return nil, err
		}
		// Its last transfer failed, which is for the transfer's owner to report.
	}
	s.work = accel.Work{}
	return s, nil
}

// after makes the queue wait for w. The caller holds mu.
func (r *ring) after(ctx context.Context, w accel.Work) error {
	if w.Timeline() == r.q.Timeline() || w.Done() {
		return nil
	}
	return r.p.WaitFor(ctx, r.q, w)
}

func (r *ring) upload(ctx context.Context, dst provider.Mem, src []byte, after accel.Fences) (accel.Work, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range after {
		if err := r.after(ctx, w); err != nil {
			return accel.Work{}, err
		}
	}
	var last accel.Work // copies of one queue end in order
	for off := 0; off < len(src); {
		s, err := r.take(ctx)
		if err != nil {
			return last, err
		}
		n := 0
		if err := offheap.Guard(func() error { n = copy(s.p, src[off:]); return nil }); err != nil {
			r.slots <- s // src lies in a mapped file that was cut
			return last, err
		}
		w, err := r.p.Upload(ctx, r.q, dst.Slice(off, n), s.p[:n])
		s.work = w
		r.slots <- s
		if err != nil {
			return last, err
		}
		last = w
		off += n
	}
	return last, nil
}

func (r *ring) download(ctx context.Context, dst []byte, src provider.Mem, after accel.Work) (accel.Work, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.after(ctx, after); err != nil {
		return accel.Work{}, err
	}
	return r.p.Download(ctx, r.q, dst, src)
}

// read copies src to dst through staging memory, and waits. With an error it
// returns the copy that was under way.
func (r *ring) read(ctx context.Context, dst []byte, src provider.Mem, after accel.Work) (accel.Work, error) {
	for off := 0; off < len(dst); {
		n, w, err := r.readPiece(ctx, dst[off:], src, off, after)
		if err != nil {
			return w, err
		}
		off += n
	}
	return accel.Work{}, nil
}

func (r *ring) readPiece(ctx context.Context, dst []byte, src provider.Mem, off int, after accel.Work) (int, accel.Work, error) {
	s, err := r.take(ctx)
	if err != nil {
		return 0, accel.Work{}, err
	}
	defer func() { r.slots <- s }()
	n := min(len(dst), len(s.p))
	if s.work, err = r.download(ctx, s.p[:n], src.Slice(off, n), after); err != nil {
		return 0, accel.Work{}, err
	}
	if err := s.work.Wait(ctx); err != nil {
		return 0, s.work, err
	}
	return copy(dst, s.p[:n]), accel.Work{}, nil
}
