//go:build cuda || metal || accel

package storage

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/fucina-go/fucina/core/accel"
)

// ErrNoDeviceMemory reports a device access to a buffer with no device bytes.
var ErrNoDeviceMemory = errors.New("buffer has no device memory")

// slots is the device state of a buffer. While mem is nil the host copy is the
// only one and the other fields are zero.
type slots struct {
	mu        sync.Mutex
	mem       accel.Memory
	retired   *Retired
	hostValid bool
	devValid  bool
	pins      int32 // device operations between Begin and End

	writer  accel.Work   // latest writer of the device bytes: an op or an upload
	readers accel.Fences // latest reader of the device bytes, per queue
	failed  accel.Fences // failed users whose place others took: the device may still be at work

	fetch    accel.Work   // download that will validate the host copy
	fetchGen uint64       // the generation that it fetches
	hostUse  accel.Fences // downloads into the host bytes that have not ended well

	resource accel.Resource
}

// Attach gives the buffer its device bytes, which need size at least b.Size().
// uses are earlier uses of the same bytes, which the first device write must
// follow; r takes host memory that outlives the buffer. It reports false, and
// takes nothing, if the buffer has device bytes already.
func (b *Buffer) Attach(mem accel.Memory, uses accel.Fences, r *Retired) bool {
	b.check()
	s := &b.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mem != nil {
		return false
	}
	s.mem, s.retired = mem, r
	s.hostValid = b.host.Load() != nil
	s.devValid = false
	s.readers = append(s.readers[:0], uses...)
	return true
}

// DeviceMemory returns the device bytes, or nil.
func (b *Buffer) DeviceMemory() accel.Memory {
	b.slots.mu.Lock()
	defer b.slots.mu.Unlock()
	return b.slots.mem
}

// NewestOnDevice reports whether the device holds the newest bytes and the host
// does not.
func (b *Buffer) NewestOnDevice() bool {
	s := &b.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mem != nil && s.devValid && !s.hostValid
}

// BeginDevice prepares a device operation on the queue whose timeline is t: it
// uploads if the access needs a valid device copy, adds to deps the work of other
// queues that the operation must follow, and pins the device bytes, which it
// returns. Every success is paired with EndDevice. It waits for the device only
// where the upload does: for room in its staging memory.
func (b *Buffer) BeginDevice(ctx context.Context, t *accel.Timeline, a Access, deps *accel.Fences) (accel.Memory, error) {
	b.check()
	if a != Read && b.ro {
		return nil, fmt.Errorf("storage: device write to %s: %w", b.origin(), ErrReadOnly)
	}
	s := &b.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mem == nil {
		return nil, fmt.Errorf("storage: %s: %w", b.origin(), ErrNoDeviceMemory)
	}
	if a != Overwrite {
		if err := s.validateDevice(ctx, b); err != nil {
			return nil, err
		}
	}
	if s.writer.Timeline() != t {
		if !t.Follows(s.writer) {
			deps.Add(s.writer)
		} else if err := s.writer.Err(); err != nil && a != Overwrite {
			return nil, err // the upload that was just begun failed at once
		}
	}
	if a != Read {
		for _, w := range s.readers {
			if !t.Follows(w) {
				deps.Add(w)
			}
		}
	}
	s.pins++
	return s.mem, nil
}

// validateDevice makes the device copy the newest. The caller holds mu.
func (s *slots) validateDevice(ctx context.Context, b *Buffer) error {
	if err := s.writer.Err(); err != nil {
		if !s.hostValid {
			return err
		}
		// A failed upload: the host still has the bytes.
		s.failed.Add(s.writer)
		s.writer, s.devValid = accel.Work{}, false
	}
	if s.devValid || !s.hostValid {
		return nil
	}
	s.readers = s.setAside(s.readers)
	// Whatever made the device copy stale has waited for its writer.
	w, err := s.mem.Upload(ctx, 0, b.bytes(), s.readers)
	if err != nil {
		s.readers.Add(w) // a part may be under way
		return fmt.Errorf("storage: upload of %s: %w", b.origin(), err)
	}
	s.writer, s.readers = w, s.readers[:0]
	s.devValid = true
	return nil
}

// setAside returns the works of f that have not failed, and keeps those that have
// for freeDevice.
func (s *slots) setAside(f accel.Fences) accel.Fences {
	kept := f[:0]
	for _, w := range f {
		if w.Err() != nil {
			s.failed.Add(w)
			continue
		}
		kept = append(kept, w)
	}
	return kept
}

// replaceUsers makes w, which follows every earlier user of the device bytes,
// stand for them all.
func (s *slots) replaceUsers(w accel.Work) {
	if s.writer.Err() != nil {
		s.failed.Add(s.writer)
	}
	s.writer, s.readers = w, s.setAside(s.readers)[:0]
}

// EndDevice ends an operation that BeginDevice began. submitted says whether the
// operation was accepted; w is its fence, and may be zero if it has completed.
func (b *Buffer) EndDevice(a Access, w accel.Work, submitted bool) {
	s := &b.slots
	s.mu.Lock()
	s.pins--
	wrote := submitted && a != Read
	switch {
	case wrote:
		s.replaceUsers(w)
		s.devValid, s.hostValid = true, false
		b.gen.Add(1) // under mu: a fetch belongs to one generation
	case submitted:
		s.readers.Add(w)
	}
	s.mu.Unlock()
	if wrote {
		b.dropShadow()
	}
}

// DropDevice gives the device bytes back if the host copy is valid and no
// operation is being prepared on them; it reports whether it did. It does not
// wait: the bytes go back under their fences.
func (b *Buffer) DropDevice() bool {
	s := &b.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mem == nil || !s.hostValid || s.pins > 0 {
		return false
	}
	s.freeDevice()
	return true
}

// freeDevice hands the device bytes back under their fences. The caller holds mu
// or is the buffer's end.
func (s *slots) freeDevice() {
	s.readers.Add(s.writer)
	for _, w := range s.failed {
		s.readers.Add(w)
	}
	s.mem.Free(s.readers)
	s.mem = nil
	s.writer, s.readers, s.failed = accel.Work{}, s.readers[:0], s.failed[:0]
	s.hostValid, s.devValid = false, false
	s.fetch, s.fetchGen = accel.Work{}, 0
}

// Cold tells the lender of the bytes, if it cares, that a device holds a copy.
func (b *Buffer) Cold() {
	if b.loan != nil && b.loan.cold != nil {
		b.loan.cold()
	}
}

// SetResource ties provider state to the allocation and destroys what was tied to
// it before.
func (b *Buffer) SetResource(r accel.Resource) {
	s := &b.slots
	s.mu.Lock()
	old := s.resource
	s.resource = r
	s.mu.Unlock()
	if old != nil {
		old.Destroy()
	}
}

// Resource returns the provider state tied to the allocation, or nil.
func (b *Buffer) Resource() accel.Resource {
	b.slots.mu.Lock()
	defer b.slots.mu.Unlock()
	return b.slots.resource
}

func (s *slots) release(b *Buffer) {
	s.mu.Lock() // an evictor may be looking at the buffer
	if s.mem != nil {
		if s.pins != 0 {
			s.mu.Unlock()
			panic("storage: last release of a buffer in a device operation: " + b.origin())
		}
		s.freeDevice()
	}
	uses := s.hostUse
	s.hostUse = nil
	s.mu.Unlock()
	switch {
	case uses.Done() && uses.Err() == nil:
	case b.kind == lent:
		// The bytes are the caller's as soon as this returns. A failure
		// leaves nothing to report it to: the transfer has ended either way.
		_ = uses.Wait(context.Background())
	default:
		s.retired.add(&b.block, s.resource, uses)
		s.resource = nil
		b.host.Store(nil)
	}
}

func (s *slots) destroy() {
	if s.resource != nil {
		s.resource.Destroy()
		s.resource = nil
	}
}

// host validates the host copy for the access a; see Buffer.Host.
func (s *slots) host(ctx context.Context, b *Buffer, a Access) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mem == nil {
		return s.ensureHost(b)
	}
	for {
		if a != Overwrite {
			if err := s.validateHost(ctx, b); err != nil {
				return err
			}
			if a == Read {
				return nil
			}
		}
		// A write waits for every user of both copies. A reader's failure is not
		// this buffer's, and a writer's no longer matters to Overwrite.
		if s.writer.Done() && s.readers.Done() && s.hostUse.Done() {
			break
		}
		uses := append(accel.Fences(nil), s.readers...)
		uses.Add(s.writer)
		for _, w := range s.hostUse {
			uses.Add(w)
		}
		if err := s.await(ctx, uses); err != nil {
			return err
		}
	}
	if err := s.ensureHost(b); err != nil {
		return err
	}
	s.hostUse = unended(s.hostUse)
	s.replaceUsers(accel.Work{})
	s.fetch = accel.Work{}
	s.hostValid, s.devValid = true, false
	return nil
}

// validateHost makes the host copy the newest, downloading if it must. The caller
// holds mu, which is given up while waiting: several readers share one download.
func (s *slots) validateHost(ctx context.Context, b *Buffer) error {
	for s.mem != nil && s.devValid && !s.hostValid {
		if err := s.writer.Err(); err != nil {
			return err
		}
		gen := b.gen.Load()
		if s.fetch.IsZero() || s.fetchGen != gen {
			if !s.hostUse.Done() {
				// A download that nobody wants any more still fills the host bytes.
				if err := s.await(ctx, append(accel.Fences(nil), s.hostUse...)); err != nil {
					return err
				}
				continue
			}
			if err := s.ensureHost(b); err != nil {
				return err
			}
			w, err := s.mem.Download(ctx, b.bytes(), 0, s.writer)
			if err != nil {
				return fmt.Errorf("storage: download of %s: %w", b.origin(), err)
			}
			s.fetch, s.fetchGen = w, gen
			s.readers.Add(w)
			s.hostUse.Add(w)
		}
		fetch, writer := s.fetch, s.writer
		s.mu.Unlock()
		err := fetch.Wait(ctx)
		s.mu.Lock()
		if werr := writer.Err(); werr != nil {
			err = werr
		}
		if err != nil {
			if fetch.Done() && s.fetch == fetch {
				s.fetch = accel.Work{}
			}
			return err
		}
		if s.fetch == fetch && b.gen.Load() == gen && s.mem != nil {
			s.fetch = accel.Work{}
			s.hostValid = true
			s.hostUse = unended(s.hostUse)
		}
	}
	return s.ensureHost(b)
}

// await waits until all of uses have ended, well or not, with mu given up
// meanwhile, and returns ctx's error if that comes first.
func (s *slots) await(ctx context.Context, uses accel.Fences) error {
	s.mu.Unlock()
	defer s.mu.Lock()
	_ = uses.Wait(ctx)
	if err := ctx.Err(); err != nil && !uses.Done() {
		return err
	}
	return nil
}

// unended returns the works of f that have not ended well.
func unended(f accel.Fences) accel.Fences {
	kept := f[:0]
	for _, w := range f {
		if !w.Done() || w.Err() != nil {
			kept = append(kept, w)
		}
	}
	return kept
}

func (s *slots) ensureHost(b *Buffer) error {
	if b.host.Load() == nil {
		return b.allocateHost()
	}
	return nil
}

func (s *slots) readAt(ctx context.Context, b *Buffer, dst []byte, off int) error {
	s.mu.Lock()
	if s.mem == nil || s.hostValid || !s.devValid {
		err := s.ensureHost(b)
		s.mu.Unlock()
		if err == nil {
			copy(dst, b.bytes()[off:])
		}
		return err
	}
	mem, writer := s.mem, s.writer
	s.pins++ // keeps the device bytes from being given back
	s.mu.Unlock()
	err := writer.Err()
	var pending accel.Work
	if err == nil {
		pending, err = mem.Read(ctx, dst, off, writer)
		if werr := writer.Err(); werr != nil {
			err = werr
		}
	}
	s.mu.Lock()
	s.pins--
	s.readers.Add(pending)
	s.mu.Unlock()
	return err
}
