//go:build cuda || metal || accel

package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/internal/ctxlock"
	"github.com/fucina-go/fucina/internal/offheap"
)

// ErrNoDeviceMemory reports a device access to a buffer with no device bytes.
var ErrNoDeviceMemory = errors.New("buffer has no device memory")

// deviceState is a buffer's device bytes, valid bits and fences. While mem is nil, the
// host copy is the only one and both valid bits are false.
type deviceState struct {
	mu        sync.Mutex
	mem       accel.Memory
	retired   *Retired
	hostValid bool
	devValid  bool
	pins      int32 // operations between BeginDevice and EndDevice, and transfers being enqueued

	// Between BeginHostWrite and EndHostWrite no device operation begins. Between
	// BeginDevice and EndDevice of an operation that writes, no other one that writes
	// begins, so that the later one is known to follow the earlier one.
	hostWriters int32         // writes between BeginHostWrite and EndHostWrite
	devWriters  int32         // operations in pins that write: 0 or 1
	unpinned    chan struct{} // closed when a pin ends; nil if no goroutine waits for that

	// Enqueueing a transfer may wait for room, so the goroutine that enqueues it holds
	// transferLock instead of mu. transferring is true meanwhile.
	transferLock ctxlock.Lock
	transferring bool

	writer  accel.Work    // latest writer of the device bytes: an operation or an upload
	sources accel.Sources // points besides writer that the device bytes may come from
	readers accel.Fences  // latest user of the device bytes besides writer, per queue
	failed  accel.Fences  // failed uses that newer uses replaced; the device may still be touching the memory
	earlier accel.Fences  // works that the upload being enqueued follows

	fetch    accel.Work   // download that will validate the host copy
	fetchGen uint64       // generation of the bytes that fetch downloads
	hostUse  accel.Fences // downloads into the host bytes that have not ended well

	resource accel.Resource
}

// Attach gives the buffer the device bytes mem, at least b.Size() of them. The first
// device write follows uses, the earlier uses of mem. r takes the host memory that a
// transfer still fills when the buffer is released. If the buffer already has device
// bytes, Attach changes nothing and returns false.
func (b *Buffer) Attach(mem accel.Memory, uses accel.Fences, r *Retired) bool {
	b.check()
	s := &b.device
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mem != nil {
		return false
	}
	s.attach(b, mem, uses, r)
	return true
}

// attach gives the buffer, which has no device bytes, the device bytes mem; see Attach. The
// caller holds mu, or no other goroutine knows the buffer.
func (s *deviceState) attach(b *Buffer, mem accel.Memory, uses accel.Fences, r *Retired) {
	s.mem, s.retired = mem, r
	if s.transferLock == (ctxlock.Lock{}) {
		s.transferLock = ctxlock.New()
	}
	s.hostValid = b.host.Load() != nil
	s.devValid = false
	s.readers = append(s.readers[:0], uses...)
}

// BeginNew is Attach followed by BeginDevice with Overwrite, for a buffer without device bytes
// that no other goroutine knows yet. It takes no lock and does not wait. EndNew ends the
// operation. If the provider does not accept the operation, there is nothing to end, and the
// caller releases the buffer.
func (b *Buffer) BeginNew(t *accel.Timeline, mem accel.Memory, uses accel.Fences, r *Retired, needs *Needs) {
	b.check()
	b.device.attach(b, mem, uses, r)
	needs.Follow(t, uses)
}

// EndNew ends an operation that BeginNew began and that the provider accepted. See EndDevice for
// w and data.
func (b *Buffer) EndNew(w accel.Work, data accel.Sources) {
	b.device.wrote(b, w, data) // a new buffer has no shadow
}

// DeviceMemory returns the device bytes, or nil.
func (b *Buffer) DeviceMemory() accel.Memory {
	b.device.mu.Lock()
	defer b.device.mu.Unlock()
	return b.device.mem
}

// NewestOnDevice reports whether only the device holds the newest bytes.
func (b *Buffer) NewestOnDevice() bool {
	s := &b.device
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mem != nil && s.devValid && !s.hostValid
}

// Needs are the dependencies of a device operation, collected from its operands.
type Needs struct {
	// Order is the work of other queues that the operation must follow.
	Order accel.Fences
	// Data is the work that the operands' contents come from. If it fails, the
	// operation's results fail too. A failure of work that is only in Order does not.
	Data accel.Sources
}

// Reset empties n and keeps its memory for reuse.
func (n *Needs) Reset() { n.Order, n.Data = n.Order[:0], n.Data[:0] }

// Follow adds to n.Order those of works that later work on t does not follow already.
func (n *Needs) Follow(t *accel.Timeline, works accel.Fences) {
	for _, w := range works {
		if !t.Follows(w) {
			n.Order.Add(w)
		}
	}
}

// BeginDevice prepares a device operation on the queue whose timeline is t. It uploads
// if the access needs a valid device copy, adds the operation's dependencies to needs,
// and pins and returns the device bytes. Every success is paired with EndDevice.
//
// BeginDevice waits, until ctx is done:
//   - for room in the staging memory of an upload and for earlier uses of the bytes,
//     if it uploads;
//   - for the EndDevice of another operation that writes, if a is a write.
//
// Between BeginHostWrite and EndHostWrite it fails with ErrHostWrite. Without device bytes it
// fails with ErrNoDeviceMemory itself, which wraps nothing: the caller attaches some.
func (b *Buffer) BeginDevice(ctx context.Context, t *accel.Timeline, a Access, needs *Needs) (accel.Memory, error) {
	b.check()
	if a != Read && b.ro {
		return nil, fmt.Errorf("storage: device write to %s: %w", b.origin(), ErrReadOnly)
	}
	s := &b.device
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.admit(ctx, b, a); err != nil {
		return nil, err
	}
	if s.mem == nil {
		return nil, ErrNoDeviceMemory
	}
	if a != Overwrite {
		if err := s.sources.Err(); err != nil {
			return nil, err
		}
		if err := s.writer.Err(); err != nil {
			return nil, err // the upload failed right after it was enqueued
		}
		if s.writer.Timeline() != t {
			needs.Data.Add(s.writer)
		}
		needs.Data.Join(s.sources)
	}
	if !t.Follows(s.writer) {
		needs.Order.Add(s.writer)
	}
	if a != Read {
		needs.Follow(t, s.readers)
	}
	s.pins++
	if a != Read {
		s.devWriters++
	}
	return s.mem, nil
}

// admit returns once a device operation may begin: the device copy is valid if the access
// needs it, and no other write is in progress whose order with the operation would be
// unknown. The caller holds mu; admit unlocks it while it waits.
func (s *deviceState) admit(ctx context.Context, b *Buffer, a Access) error {
	for {
		if err := s.awaitTransfer(ctx); err != nil {
			return err
		}
		if a != Overwrite {
			if err := s.validateDevice(ctx, b); err != nil {
				return err
			}
		}
		if s.hostWriters > 0 {
			return s.hostWriteError(b)
		}
		if a == Read || s.devWriters == 0 {
			return nil
		}
		if err := s.awaitUnpin(ctx); err != nil {
			return err
		}
	}
}

// hostWriteError returns the error of a device operation while the host writes.
func (*deviceState) hostWriteError(b *Buffer) error {
	return fmt.Errorf("storage: %s: %w", b.origin(), ErrHostWrite)
}

// awaitTransfer returns once no transfer is being enqueued. The caller holds mu;
// awaitTransfer unlocks it while it waits.
func (s *deviceState) awaitTransfer(ctx context.Context) error {
	for s.transferring {
		if err := s.unlocked(func() error { return s.transferLock.Lock(ctx) }); err != nil {
			return err
		}
		s.transferLock.Unlock()
	}
	return nil
}

// beginTransfer gives the caller the exclusive right to enqueue a transfer, until
// endTransfer. If waited is true, beginTransfer waited for another transfer and the caller
// must check the buffer's state again. The caller holds mu; beginTransfer unlocks it while
// it waits.
func (s *deviceState) beginTransfer(ctx context.Context) (waited bool, err error) {
	if !s.transferLock.TryLock() {
		waited = true
		if err := s.unlocked(func() error { return s.transferLock.Lock(ctx) }); err != nil {
			return waited, err
		}
	}
	s.transferring = true
	s.pins++ // so that the device bytes are not given back
	return waited, nil
}

// endTransfer ends the right that beginTransfer gave. The caller holds mu.
func (s *deviceState) endTransfer() {
	s.unpin()
	s.transferring = false
	s.transferLock.Unlock()
}

// validateDevice uploads the host bytes if the device copy is stale. The caller holds mu;
// validateDevice unlocks it during the upload.
func (s *deviceState) validateDevice(ctx context.Context, b *Buffer) error {
	if stale, err := s.staleDevice(b); !stale || err != nil {
		return err
	}
	waited, err := s.beginTransfer(ctx)
	if err != nil {
		return err
	}
	defer s.endTransfer()
	if waited {
		if stale, err := s.staleDevice(b); !stale || err != nil {
			return err
		}
	}
	// If the enqueued upload has failed already, s.writer.Err tells the caller.
	if err := s.upload(ctx, b); err != nil {
		return fmt.Errorf("storage: upload of %s: %w", b.origin(), err)
	}
	return nil
}

// staleDevice reports whether the device copy must be validated. It fails if the host is
// writing, or if the work that writes the only valid copy failed.
func (s *deviceState) staleDevice(b *Buffer) (bool, error) {
	if s.hostWriters > 0 {
		return false, s.hostWriteError(b)
	}
	if s.mem == nil {
		return false, nil
	}
	if err := s.writer.Err(); err != nil {
		if !s.hostValid {
			return false, err
		}
		// The writer is a failed upload: the host still has the bytes.
		s.failed.Add(s.writer)
		s.writer, s.devValid = accel.Work{}, false
	}
	return s.hostValid && !s.devValid, nil
}

// upload enqueues a copy of the host bytes to the device. The caller holds mu and has
// called beginTransfer; upload unlocks mu while it enqueues.
func (s *deviceState) upload(ctx context.Context, b *Buffer) error {
	s.readers = s.moveFailed(s.readers)
	s.earlier = append(s.earlier[:0], s.readers...)
	mem, gen, earlier := s.mem, b.gen.Load(), s.earlier
	// The upload need not follow s.writer: the host write that made the device copy stale
	// has waited for it.
	var w accel.Work
	err := s.unlocked(func() (err error) {
		w, err = mem.Upload(ctx, 0, b.bytes(), earlier)
		return err
	})
	if err != nil || b.gen.Load() != gen {
		// With an error, w is the part that was enqueued. With another generation, an
		// operation that began earlier has written meanwhile, and its bytes are the newest.
		s.readers.Add(w)
		return err
	}
	s.replaceUsers(w)
	s.sources = s.sources[:0]
	s.devValid = true
	return nil
}

// unlocked calls f without mu, and locks mu again even if f panics.
func (s *deviceState) unlocked(f func() error) error {
	s.mu.Unlock()
	defer s.mu.Lock()
	return f()
}

// moveFailed returns the works of f that have not failed, and moves the failed ones to
// s.failed, which freeDevice hands on.
func (s *deviceState) moveFailed(f accel.Fences) accel.Fences {
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

// replaceUsers makes w, which follows every earlier user of the device bytes, the latest
// writer. w replaces the earlier users of its own queue. Users of other queues are kept
// until they have ended, because w may end before them if w's queue dies.
func (s *deviceState) replaceUsers(w accel.Work) {
	if s.writer.Err() != nil {
		s.failed.Add(s.writer)
		s.writer = accel.Work{}
	}
	s.readers = slices.DeleteFunc(s.moveFailed(s.readers), func(u accel.Work) bool { return replaced(u, w) })
	if !replaced(s.writer, w) {
		s.readers.Add(s.writer)
	}
	s.writer = w
}

// replaced reports whether w, which follows u, ends after u even if a queue fails.
func replaced(u, w accel.Work) bool { return u.Timeline() == w.Timeline() || u.Done() }

// EndDevice ends an operation that BeginDevice began. submitted says whether the provider
// accepted the operation. w is the operation's fence; it is zero if the operation has
// completed. data is the set of points that the operation's results come from; it is used
// only if the access is a write. The set is copied.
func (b *Buffer) EndDevice(a Access, w accel.Work, submitted bool, data accel.Sources) {
	s := &b.device
	s.mu.Lock()
	s.unpin()
	if a != Read {
		s.devWriters--
	}
	wrote := submitted && a != Read
	switch {
	case wrote:
		s.wrote(b, w, data) // under mu, so that a transfer belongs to one generation
	case submitted:
		s.readers.Add(w)
	}
	s.mu.Unlock()
	if wrote {
		b.dropShadow()
	}
}

// wrote records that w writes the device bytes, from data. The caller holds mu, or no other
// goroutine knows the buffer.
func (s *deviceState) wrote(b *Buffer, w accel.Work, data accel.Sources) {
	s.replaceUsers(w)
	s.sources = append(s.sources[:0], data...)
	s.devValid, s.hostValid = true, false
	b.gen.Add(1)
}

// DropDevice gives the device bytes back, and returns true, if the host copy is valid and
// no operation is being prepared with the device bytes. It does not wait: the bytes go
// back under their fences.
func (b *Buffer) DropDevice() bool {
	s := &b.device
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.droppable() {
		return false
	}
	s.freeDevice()
	return true
}

// CanDropDevice reports whether DropDevice would give the device bytes back now.
func (b *Buffer) CanDropDevice() bool {
	s := &b.device
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.droppable()
}

// droppable reports whether the device bytes can be given back. The caller holds mu.
func (s *deviceState) droppable() bool { return s.mem != nil && s.hostValid && s.pins == 0 }

// freeDevice gives the device bytes back under their fences. The caller holds mu, or no other
// goroutine uses the buffer any more.
func (s *deviceState) freeDevice() {
	s.readers.Add(s.writer)
	for _, w := range s.failed {
		s.readers.Add(w)
	}
	s.mem.Free(s.readers)
	s.mem = nil
	s.writer, s.readers, s.failed = accel.Work{}, s.readers[:0], s.failed[:0]
	s.sources = s.sources[:0]
	s.hostValid, s.devValid = false, false
	s.fetch, s.fetchGen = accel.Work{}, 0
}

// Cold runs the lender's BorrowOptions.Cold, if there is one.
func (b *Buffer) Cold() {
	if b.loan != nil && b.loan.cold != nil {
		b.loan.cold()
	}
}

// SetResource ties the provider state r to the allocation and destroys the earlier one.
func (b *Buffer) SetResource(r accel.Resource) {
	s := &b.device
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
	b.device.mu.Lock()
	defer b.device.mu.Unlock()
	return b.device.resource
}

func (s *deviceState) release(b *Buffer) {
	// A device keeps a list of the weights that it has copies of, and may be calling
	// CanDropDevice or DropDevice. Only stable buffers are weights. No other goroutine uses any
	// other buffer after its last release.
	stable := b.Stable()
	if stable {
		s.mu.Lock()
	}
	pinned := s.mem != nil && s.pins != 0
	if s.mem != nil && !pinned {
		s.freeDevice()
	}
	uses := s.hostUse
	s.hostUse = nil
	if stable {
		s.mu.Unlock()
	}
	if pinned {
		panic("storage: last release during a device operation of " + b.origin())
	}
	switch {
	case uses.Done() && uses.Err() == nil:
	case b.kind == lent:
		// The caller may free the bytes once Release returns. A failure of the transfer
		// is ignored, because the transfer has ended and nothing reads the buffer any more.
		_ = uses.Wait(context.Background())
	default:
		s.retired.add(&b.block, s.resource, uses)
		s.resource = nil
		b.host.Store(nil)
	}
}

func (s *deviceState) destroy() {
	if s.resource != nil {
		s.resource.Destroy()
		s.resource = nil
	}
}

// host validates the host copy for the access a; see Buffer.Host. It bumps the generation
// of a write before it unlocks mu, so that a later upload belongs to the new generation.
func (s *deviceState) host(ctx context.Context, b *Buffer, a Access) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a == Read {
		if s.mem == nil {
			return s.ensureHost(b)
		}
		return s.validateHost(ctx, b)
	}
	if err := s.hostToWrite(ctx, b, a); err != nil {
		return err
	}
	b.gen.Add(1)
	return nil
}

// beginHostWrite is the part of Buffer.BeginHostWrite that needs mu.
func (s *deviceState) beginHostWrite(ctx context.Context, b *Buffer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hostWriters++ // no device operation begins from here on, so the wait is finite
	if err := s.hostToWrite(ctx, b, Update); err != nil {
		s.hostWriters--
		return err
	}
	b.gen.Add(1)
	return nil
}

// endHostWrite is the part of Buffer.EndHostWrite that needs mu.
func (s *deviceState) endHostWrite(b *Buffer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hostWriters--
	b.gen.Add(1)
}

// discard is the part of Buffer.Discard that needs mu. It keeps memory that a transfer fills,
// and memory with provider state, which may be registered with a device.
func (s *deviceState) discard(b *Buffer, off, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mem == nil && s.resource == nil && s.hostUse.Quiet() {
		b.discardHost(off, n)
	}
}

// unpin ends a pin. The caller holds mu.
func (s *deviceState) unpin() {
	s.pins--
	if s.unpinned != nil {
		close(s.unpinned)
		s.unpinned = nil
	}
}

// awaitUnpin waits until a pin ends. The caller holds mu; awaitUnpin unlocks it while it
// waits.
func (s *deviceState) awaitUnpin(ctx context.Context) error {
	if s.unpinned == nil {
		s.unpinned = make(chan struct{})
	}
	unpinned := s.unpinned
	s.mu.Unlock()
	defer s.mu.Lock()
	select {
	case <-unpinned:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// hostToWrite makes the host copy the only valid one for the access a, which is a write,
// and waits for all users of both copies. The caller holds mu; hostToWrite unlocks it
// while it waits.
func (s *deviceState) hostToWrite(ctx context.Context, b *Buffer, a Access) error {
	for s.mem != nil {
		if a != Overwrite {
			if err := s.validateHost(ctx, b); err != nil {
				return err
			}
		}
		if s.transferring {
			if err := s.awaitTransfer(ctx); err != nil {
				return err
			}
			continue
		}
		if s.hostWriters > 0 && s.pins > 0 {
			// A pinned operation that writes would replace the written bytes. A pinned
			// operation that reads is not in readers yet, so a later upload would not
			// follow it.
			if err := s.awaitUnpin(ctx); err != nil {
				return err
			}
			continue
		}
		// A write waits for every user of both copies. A failed reader leaves the
		// contents intact, and Overwrite replaces what a failed writer left.
		if w := s.pendingUse(); !w.IsZero() {
			if err := s.await(ctx, w); err != nil {
				return err
			}
			continue
		}
		if err := s.ensureHost(b); err != nil {
			return err
		}
		s.hostUse = unfinished(s.hostUse)
		s.replaceUsers(accel.Work{})
		s.sources = s.sources[:0]
		s.fetch = accel.Work{}
		s.hostValid, s.devValid = true, false
		if s.droppable() && !s.failed.Quiet() {
			s.freeDevice() // failed work may still write to these bytes, so the next upload uses others
		}
		return nil
	}
	return s.ensureHost(b)
}

// pendingUse returns a use of either copy that has not ended, or the zero Work.
func (s *deviceState) pendingUse() accel.Work {
	if !s.writer.Done() {
		return s.writer
	}
	for _, w := range s.readers {
		if !w.Done() {
			return w
		}
	}
	for _, w := range s.hostUse {
		if !w.Done() {
			return w
		}
	}
	return accel.Work{}
}

// pendingData returns a work that the newest contents come from and that is not known to
// have ended, or the zero Work. The writer may be known to have ended before its sources
// are.
func (s *deviceState) pendingData() accel.Work {
	if !s.writer.Done() {
		return s.writer
	}
	return s.sources.Pending()
}

// dataErr returns the failure of a work that the newest contents come from. The caller
// has waited for all of them.
func (s *deviceState) dataErr() error {
	if err := s.writer.Err(); err != nil {
		return err
	}
	return s.sources.Err()
}

// validateHost downloads the newest bytes if the host copy is stale. Several readers share
// one download. The caller holds mu; validateHost unlocks it while it waits.
func (s *deviceState) validateHost(ctx context.Context, b *Buffer) error {
	for s.mem != nil && s.devValid && !s.hostValid {
		if w := s.pendingData(); !w.IsZero() {
			// The wait is here, because a download that waited on the device would delay
			// the downloads behind it.
			if err := s.await(ctx, w); err != nil {
				return err
			}
			continue
		}
		if err := s.dataErr(); err != nil {
			return err
		}
		if s.noFetch(b) {
			if err := s.beginFetch(ctx, b); err != nil {
				return err
			}
			continue
		}
		if err := s.awaitFetch(ctx, b); err != nil {
			return err
		}
	}
	return s.ensureHost(b)
}

// noFetch reports whether no download of the newest contents is under way.
func (s *deviceState) noFetch(b *Buffer) bool { return s.fetch.IsZero() || s.fetchGen != b.gen.Load() }

// beginFetch enqueues a download of the newest contents. It may instead wait for an
// obstacle and return nil without a download; the caller then checks the state again.
func (s *deviceState) beginFetch(ctx context.Context, b *Buffer) error {
	for _, w := range s.hostUse {
		if !w.Done() {
			// A download of older contents still fills the host bytes.
			return s.await(ctx, w)
		}
	}
	if err := s.ensureHost(b); err != nil {
		return err
	}
	waited, err := s.beginTransfer(ctx)
	if err != nil {
		return err
	}
	defer s.endTransfer()
	if waited && !(s.mem != nil && s.devValid && !s.hostValid && s.noFetch(b) && s.hostUse.Done() && s.pendingData().IsZero()) {
		return nil
	}
	mem, writer, gen := s.mem, s.writer, b.gen.Load()
	var w accel.Work
	err = s.unlocked(func() (err error) {
		w, err = mem.Download(ctx, b.bytes(), 0, writer)
		return err
	})
	s.readers.Add(w)
	s.hostUse.Add(w)
	if err != nil {
		return fmt.Errorf("storage: download of %s: %w", b.origin(), err)
	}
	s.fetch, s.fetchGen = w, gen
	if w.IsZero() {
		s.fetched(b, w, gen) // the download has completed already
	}
	return nil
}

// awaitFetch waits for the download s.fetch, and marks the host copy valid if the contents
// have not changed meanwhile.
func (s *deviceState) awaitFetch(ctx context.Context, b *Buffer) error {
	fetch, gen := s.fetch, s.fetchGen
	if err := s.unlocked(func() error { return fetch.Wait(ctx) }); err != nil {
		if fetch.Done() && s.fetch == fetch {
			s.fetch = accel.Work{}
		}
		return err
	}
	s.fetched(b, fetch, gen)
	return nil
}

// fetched marks the host copy valid after the download fetch of generation gen, unless
// the contents have changed meanwhile.
func (s *deviceState) fetched(b *Buffer, fetch accel.Work, gen uint64) {
	if s.fetch == fetch && b.gen.Load() == gen && s.mem != nil {
		s.fetch = accel.Work{}
		s.hostValid = true
		s.hostUse = unfinished(s.hostUse)
		s.sources.Forget()
	}
}

// await waits until w has ended, well or not, and returns ctx's error if ctx ends first.
// The caller holds mu; await unlocks it while it waits.
func (s *deviceState) await(ctx context.Context, w accel.Work) error {
	if err := s.unlocked(func() error { return w.Wait(ctx) }); err != nil && !w.Done() {
		return err
	}
	return nil
}

// unfinished returns the works of f that are pending or failed.
func unfinished(f accel.Fences) accel.Fences {
	kept := f[:0]
	for _, w := range f {
		if !w.Done() || w.Err() != nil {
			kept = append(kept, w)
		}
	}
	return kept
}

func (s *deviceState) ensureHost(b *Buffer) error {
	if b.host.Load() == nil {
		return b.allocateHost()
	}
	return nil
}

func (s *deviceState) readAt(ctx context.Context, b *Buffer, dst []byte, off int) error {
	if done, err := s.readDevice(ctx, b, dst, off); done || err != nil {
		return err
	}
	return offheap.Guard(func() error { copy(dst, b.bytes()[off:]); return nil })
}

// readDevice reads from the device and returns true if only the device has the newest
// bytes. Otherwise it makes sure that there is host memory and returns false.
func (s *deviceState) readDevice(ctx context.Context, b *Buffer, dst []byte, off int) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.mem != nil && s.devValid && !s.hostValid {
		if w := s.pendingData(); !w.IsZero() {
			if err := s.await(ctx, w); err != nil {
				return false, err
			}
			continue
		}
		if err := s.dataErr(); err != nil {
			return false, err
		}
		s.sources.Forget()
		return true, s.readPinned(ctx, dst, off)
	}
	return false, s.ensureHost(b)
}

// readPinned reads from the device, which has the newest bytes, with the device bytes
// pinned. The caller holds mu; readPinned unlocks it during the read.
func (s *deviceState) readPinned(ctx context.Context, dst []byte, off int) error {
	s.pins++ // so that the device bytes are not given back
	defer s.unpin()
	mem, writer := s.mem, s.writer
	var pending accel.Work
	err := s.unlocked(func() (err error) {
		pending, err = mem.Read(ctx, dst, off, writer)
		return err
	})
	s.readers.Add(pending)
	return err
}
