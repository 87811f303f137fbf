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

// slots is the device state of a buffer. While mem is nil the host copy is the
// only one and the other fields are zero.
type slots struct {
	mu        sync.Mutex
	mem       accel.Memory
	retired   *Retired
	hostValid bool
	devValid  bool
	pins      int32 // device operations between Begin and End, and transfers being begun

	// A write on the host that lasts and a device operation exclude each other, and so
	// do two device operations that write, between Begin and End: of the second one it is
	// then known that it follows the first.
	hostWriters int32         // between BeginHostWrite and EndHostWrite
	devWriters  int32         // of pins, the operation that writes, if there is one
	unpinned    chan struct{} // closed when a pin ends, if anyone waits for that

	// A transfer is begun without mu, since it may wait for room, by the holder of
	// moving; busy says that there is one.
	moving ctxlock.Lock
	busy   bool

	writer  accel.Work    // latest writer of the device bytes: an op or an upload
	sources accel.Sources // what the device bytes may come from, beside the writer
	readers accel.Fences  // latest user of the device bytes beside the writer, per queue
	failed  accel.Fences  // failed uses that newer uses replaced; the device may still be touching the memory
	earlier accel.Fences  // what the transfer that is being begun follows

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
	if s.moving == (ctxlock.Lock{}) {
		s.moving = ctxlock.New()
	}
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

// Needs are what a device operation depends on, collected from its operands.
type Needs struct {
	// Order is the work of other queues that the operation must follow.
	Order accel.Fences
	// Data is the work that the operands' contents come from. If it fails, the
	// operation's results fail too. A failure of work that is only in Order does not.
	Data accel.Sources
}

// Reset empties n, keeping its memory.
func (n *Needs) Reset() { n.Order, n.Data = n.Order[:0], n.Data[:0] }

// BeginDevice prepares a device operation on the queue whose timeline is t: it
// uploads if the access needs a valid device copy, adds to needs what the operation
// depends on, and pins the device bytes, which it returns. Every success is paired
// with EndDevice. It waits for the device only where the upload does, for room in its
// staging memory and for earlier uses of the bytes, and for the end of another one that
// writes if this one does, until ctx is done. It fails with
// ErrHostWrite between BeginHostWrite and EndHostWrite.
func (b *Buffer) BeginDevice(ctx context.Context, t *accel.Timeline, a Access, needs *Needs) (accel.Memory, error) {
	b.check()
	if a != Read && b.ro {
		return nil, fmt.Errorf("storage: device write to %s: %w", b.origin(), ErrReadOnly)
	}
	s := &b.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.admit(ctx, b, a); err != nil {
		return nil, err
	}
	if s.mem == nil {
		return nil, fmt.Errorf("storage: %s: %w", b.origin(), ErrNoDeviceMemory)
	}
	if a != Overwrite {
		if err := s.sources.Err(); err != nil {
			return nil, err
		}
		if err := s.writer.Err(); err != nil {
			return nil, err // the upload that was just begun failed at once
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
		for _, w := range s.readers {
			if !t.Follows(w) {
				needs.Order.Add(w)
			}
		}
	}
	s.pins++
	if a != Read {
		s.devWriters++
	}
	return s.mem, nil
}

// admit returns when a device operation may begin: the device copy is valid if the access
// needs it, and nobody else is about to write, with whom the operation could not be put in
// order. The caller holds mu, which is given up while waiting.
func (s *slots) admit(ctx context.Context, b *Buffer, a Access) error {
	for {
		if err := s.still(ctx); err != nil {
			return err
		}
		if a != Overwrite {
			if err := s.validateDevice(ctx, b); err != nil {
				return err
			}
		}
		if s.hostWriters > 0 {
			return s.hostWrites(b)
		}
		if a == Read || s.devWriters == 0 {
			return nil
		}
		if err := s.awaitUnpin(ctx); err != nil {
			return err
		}
	}
}

// hostWrites is the refusal of a device operation while the host writes.
func (*slots) hostWrites(b *Buffer) error {
	return fmt.Errorf("storage: %s: %w", b.origin(), ErrHostWrite)
}

// still returns when no transfer is being begun. The caller holds mu, which is given up
// while waiting.
func (s *slots) still(ctx context.Context) error {
	for s.busy {
		if err := s.unlocked(func() error { return s.moving.Lock(ctx) }); err != nil {
			return err
		}
		s.moving.Unlock()
	}
	return nil
}

// begin lets the caller alone begin a transfer, until begun. If it had to wait for
// another transfer, waited is true and the caller looks at the buffer's state again. The
// caller holds mu, which is given up while waiting.
func (s *slots) begin(ctx context.Context) (waited bool, err error) {
	if !s.moving.TryLock() {
		waited = true
		if err := s.unlocked(func() error { return s.moving.Lock(ctx) }); err != nil {
			return waited, err
		}
	}
	s.busy = true
	s.pins++ // keeps the device bytes from being given back
	return waited, nil
}

// begun ends what begin started. The caller holds mu.
func (s *slots) begun() {
	s.unpin()
	s.busy = false
	s.moving.Unlock()
}

// validateDevice makes the device copy the newest. The caller holds mu, which is given up
// meanwhile.
func (s *slots) validateDevice(ctx context.Context, b *Buffer) error {
	if stale, err := s.staleDevice(b); !stale || err != nil {
		return err
	}
	waited, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer s.begun()
	if waited {
		if stale, err := s.staleDevice(b); !stale || err != nil {
			return err
		}
	}
	// An upload that fails at once is seen by the caller.
	if err := s.upload(ctx, b); err != nil {
		return fmt.Errorf("storage: upload of %s: %w", b.origin(), err)
	}
	return nil
}

// staleDevice reports whether the device copy has to be validated, and why it cannot be:
// the host is writing, or the work failed that was to write the only copy.
func (s *slots) staleDevice(b *Buffer) (bool, error) {
	if s.hostWriters > 0 {
		return false, s.hostWrites(b)
	}
	if s.mem == nil {
		return false, nil
	}
	if err := s.writer.Err(); err != nil {
		if !s.hostValid {
			return false, err
		}
		// A failed upload: the host still has the bytes.
		s.failed.Add(s.writer)
		s.writer, s.devValid = accel.Work{}, false
	}
	return s.hostValid && !s.devValid, nil
}

// upload copies the host bytes to the device. The caller holds mu, which is given up
// meanwhile, and has begun a transfer.
func (s *slots) upload(ctx context.Context, b *Buffer) error {
	s.readers = s.setAside(s.readers)
	s.earlier = append(s.earlier[:0], s.readers...)
	mem, gen, earlier := s.mem, b.gen.Load(), s.earlier
	// Whatever made the device copy stale has waited for its writer.
	var w accel.Work
	err := s.unlocked(func() (err error) {
		w, err = mem.Upload(ctx, 0, b.bytes(), earlier)
		return err
	})
	if err != nil || b.gen.Load() != gen {
		// Either a part may be under way, or an operation that was begun before has
		// written meanwhile, and its bytes are the newest.
		s.readers.Add(w)
		return err
	}
	s.replaceUsers(w)
	s.sources = s.sources[:0]
	s.devValid = true
	return nil
}

// unlocked calls f with mu given up, and takes mu again also if f panics.
func (s *slots) unlocked(f func() error) error {
	s.mu.Unlock()
	defer s.mu.Lock()
	return f()
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

// replaceUsers makes w, which follows every earlier user of the device bytes, the latest
// writer. It stands for the earlier users of its own queue. Those of other queues are
// kept until they have ended: if w's queue dies, w ends before they do.
func (s *slots) replaceUsers(w accel.Work) {
	if s.writer.Err() != nil {
		s.failed.Add(s.writer)
		s.writer = accel.Work{}
	}
	s.readers = slices.DeleteFunc(s.setAside(s.readers), func(u accel.Work) bool { return replaced(u, w) })
	if !replaced(s.writer, w) {
		s.readers.Add(s.writer)
	}
	s.writer = w
}

// replaced reports whether w, which follows u, ends after it whatever fails.
func replaced(u, w accel.Work) bool { return u.Timeline() == w.Timeline() || u.Done() }

// EndDevice ends an operation that BeginDevice began. submitted says whether the
// operation was accepted; w is its fence, and may be zero if it has completed. data is
// what the operation's results come from, for the buffers that it wrote.
func (b *Buffer) EndDevice(a Access, w accel.Work, submitted bool, data accel.Sources) {
	s := &b.slots
	s.mu.Lock()
	s.unpin()
	if a != Read {
		s.devWriters--
	}
	wrote := submitted && a != Read
	switch {
	case wrote:
		s.replaceUsers(w)
		s.sources = append(s.sources[:0], data...)
		s.devValid, s.hostValid = true, false
		b.gen.Add(1) // under mu: a transfer belongs to one generation
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
	if !s.droppable() {
		return false
	}
	s.freeDevice()
	return true
}

// CanDropDevice reports whether DropDevice would give the device bytes back now.
func (b *Buffer) CanDropDevice() bool {
	s := &b.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.droppable()
}

// droppable reports whether the device bytes can be given back. The caller holds mu.
func (s *slots) droppable() bool { return s.mem != nil && s.hostValid && s.pins == 0 }

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
	s.sources = s.sources[:0]
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

// host validates the host copy for the access a; see Buffer.Host. A write belongs to a
// new generation once mu is given up: whoever uploads from then on uploads that one.
func (s *slots) host(ctx context.Context, b *Buffer, a Access) error {
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

// beginHostWrite is the device's part of Buffer.BeginHostWrite.
func (s *slots) beginHostWrite(ctx context.Context, b *Buffer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hostWriters++ // from here on no device operation begins, so that the wait ends
	if err := s.hostToWrite(ctx, b, Update); err != nil {
		s.hostWriters--
		return err
	}
	b.gen.Add(1)
	return nil
}

// endHostWrite is the device's part of Buffer.EndHostWrite.
func (s *slots) endHostWrite(b *Buffer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hostWriters--
	b.gen.Add(1)
}

// unpin ends a pin. The caller holds mu.
func (s *slots) unpin() {
	s.pins--
	if s.unpinned != nil {
		close(s.unpinned)
		s.unpinned = nil
	}
}

// awaitUnpin waits until a pin ends, with mu given up meanwhile.
func (s *slots) awaitUnpin(ctx context.Context) error {
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

// hostToWrite makes the host copy the only valid one, and unused, for the access a, which
// is a write. The caller holds mu, which is given up while waiting.
func (s *slots) hostToWrite(ctx context.Context, b *Buffer, a Access) error {
	for s.mem != nil {
		if a != Overwrite {
			if err := s.validateHost(ctx, b); err != nil {
				return err
			}
		}
		if s.busy {
			if err := s.still(ctx); err != nil {
				return err
			}
			continue
		}
		if s.hostWriters > 0 && s.pins > 0 {
			// A result would replace what is written, and an upload of that would not
			// follow a read that nobody knows of.
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
		s.hostUse = unended(s.hostUse)
		s.replaceUsers(accel.Work{})
		s.sources = s.sources[:0]
		s.fetch = accel.Work{}
		s.hostValid, s.devValid = true, false
		if s.droppable() && !s.failed.Quiet() {
			s.freeDevice() // failed work may still write to these bytes; an upload takes others
		}
		return nil
	}
	return s.ensureHost(b)
}

// pendingUse returns a use of either copy that has not ended, or the zero Work.
func (s *slots) pendingUse() accel.Work {
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

// pendingData returns work that the newest contents come from and that has not ended,
// or the zero Work. An operation that followed it may be known to have ended before it
// is.
func (s *slots) pendingData() accel.Work {
	if !s.writer.Done() {
		return s.writer
	}
	return s.sources.Pending()
}

// dataErr returns the failure of the work that the newest contents come from. All of it
// has ended.
func (s *slots) dataErr() error {
	if err := s.writer.Err(); err != nil {
		return err
	}
	return s.sources.Err()
}

// validateHost makes the host copy the newest, downloading if it must. The caller
// holds mu, which is given up while waiting: several readers share one download.
func (s *slots) validateHost(ctx context.Context, b *Buffer) error {
	for s.mem != nil && s.devValid && !s.hostValid {
		if w := s.pendingData(); !w.IsZero() {
			// A copy that waited for it on the device would hold up other copies.
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
func (s *slots) noFetch(b *Buffer) bool { return s.fetch.IsZero() || s.fetchGen != b.gen.Load() }

// beginFetch begins a download of the newest contents, or waits for what is in its way.
func (s *slots) beginFetch(ctx context.Context, b *Buffer) error {
	for _, w := range s.hostUse {
		if !w.Done() {
			// A download of older contents still fills the host bytes.
			return s.await(ctx, w)
		}
	}
	if err := s.ensureHost(b); err != nil {
		return err
	}
	waited, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer s.begun()
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
		s.fetched(b, w, gen) // it has ended already
	}
	return nil
}

// awaitFetch waits for the download under way, and makes the host copy valid if nothing
// has changed meanwhile.
func (s *slots) awaitFetch(ctx context.Context, b *Buffer) error {
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

// fetched makes the host copy valid after the download fetch of generation gen, unless
// something has changed meanwhile.
func (s *slots) fetched(b *Buffer, fetch accel.Work, gen uint64) {
	if s.fetch == fetch && b.gen.Load() == gen && s.mem != nil {
		s.fetch = accel.Work{}
		s.hostValid = true
		s.hostUse = unended(s.hostUse)
		s.sources.Forget()
	}
}

// await waits until w has ended, well or not, with mu given up meanwhile, and returns
// ctx's error if that comes first.
func (s *slots) await(ctx context.Context, w accel.Work) error {
	if err := s.unlocked(func() error { return w.Wait(ctx) }); err != nil && !w.Done() {
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
	if done, err := s.readDevice(ctx, b, dst, off); done || err != nil {
		return err
	}
	return offheap.Guard(func() error { copy(dst, b.bytes()[off:]); return nil })
}

// readDevice reads from the device if only it has the newest bytes, and reports whether
// it did; otherwise the host has them.
func (s *slots) readDevice(ctx context.Context, b *Buffer, dst []byte, off int) (bool, error) {
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

// readPinned reads from the device, which has the newest bytes. The caller holds mu, which
// is given up meanwhile.
func (s *slots) readPinned(ctx context.Context, dst []byte, off int) error {
	s.pins++ // keeps the device bytes from being given back
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
