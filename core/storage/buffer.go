package storage

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/internal/offheap"
)

var (
	// ErrReadOnly reports a write to storage that its owner lent for reading.
	ErrReadOnly = errors.New("read-only storage")
	// ErrRange reports a byte range outside a buffer.
	ErrRange = errors.New("range outside the buffer")
	// ErrHostWrite reports a device access to a buffer that the host is writing to.
	ErrHostWrite = errors.New("the host is writing to the buffer")
)

// Access is what an operation does to a buffer's bytes.
type Access uint8

const (
	// Read leaves the bytes as they are.
	Read Access = iota
	// Overwrite replaces the whole buffer without reading it.
	Overwrite
	// Update changes a part of the buffer, or computes new bytes from the old ones.
	Update
)

// Reclaimer takes a buffer after its last Release, with the host memory that the buffer
// still owns, to reuse or destroy it.
type Reclaimer interface {
	Reclaim(b *Buffer)
}

// Buffer is reference-counted storage. Create one with New, NewLazy or Borrow.
type Buffer struct {
	device deviceState // first, because an empty struct at the end would be padded

	host   atomic.Pointer[byte] // first host byte; nil while there is no host memory
	size   int
	block  offheap.Block // the host memory, when this buffer owns it
	refs   atomic.Int32
	kind   kind
	ro     bool
	stable atomic.Bool
	owner  atomic.Uint32
	gen    atomic.Uint64
	shadow atomic.Pointer[accel.HostShadow]

	reclaimer Reclaimer
	loan      *loan
}

type kind uint8

const (
	owned kind = iota + 1 // host memory from offheap
	lazy                  // no host memory until a host access
	lent                  // the caller's bytes
)

func (k kind) String() string {
	switch k {
	case owned:
		return "owned"
	case lazy:
		return "device"
	case lent:
		return "borrowed"
	}
	return "invalid"
}

type loan struct {
	onRelease func()
	cold      func()
	data      []byte // keeps Go memory reachable
}

// New returns a buffer of size bytes of owned host memory, with one reference.
// The bytes are uninitialised. size must be at least 1.
func New(size int) (*Buffer, error) {
	b := &Buffer{size: size, kind: owned}
	if err := b.allocateHost(); err != nil {
		return nil, err
	}
	b.refs.Store(1)
	return b, nil
}

// NewLazy returns a buffer of size bytes with one reference and no memory. Attach gives
// it device bytes; the first host access allocates its host memory. size must be at
// least 1.
func NewLazy(size int) *Buffer {
	b := &Buffer{size: size, kind: lazy}
	b.refs.Store(1)
	return b
}

// BorrowOptions describe lent bytes.
type BorrowOptions struct {
	// ReadOnly makes every write access fail with ErrReadOnly.
	ReadOnly bool
	// OnRelease runs once, after the last Release and after the last device access to
	// the bytes. The lender may free the bytes from then on.
	OnRelease func()
	// Cold runs when a device holds a copy and no host read is expected soon, so
	// that the lender can drop cached pages. The bytes must stay readable.
	Cold func()
}

// Borrow returns a buffer with one reference over data, which the caller keeps owning.
// data must stay valid and at its address until OnRelease, and must not be empty.
func Borrow(data []byte, opt BorrowOptions) *Buffer {
	b := &Buffer{size: len(data), kind: lent, ro: opt.ReadOnly}
	b.loan = &loan{onRelease: opt.OnRelease, cold: opt.Cold, data: data}
	b.host.Store(unsafe.SliceData(data))
	b.refs.Store(1)
	return b
}

// allocateHost gives the buffer host memory, unless another goroutine has done so
// concurrently.
func (b *Buffer) allocateHost() error {
	block, err := offheap.Alloc(b.size)
	if err != nil {
		return fmt.Errorf("storage: %d bytes of host memory: %w", b.size, err)
	}
	if !b.host.CompareAndSwap(nil, unsafe.SliceData(block.Bytes())) {
		offheap.Free(&block)
		return nil
	}
	b.block = block // not a race: only the release of the buffer reads it
	return nil
}

// SetReclaimer makes r take the buffer after its last Release. The buffer's creator calls
// it before it shares the buffer.
func (b *Buffer) SetReclaimer(r Reclaimer) { b.reclaimer = r }

// Size returns the buffer's size in bytes.
func (b *Buffer) Size() int { return b.size }

// ReadOnly reports whether the buffer refuses writes.
func (b *Buffer) ReadOnly() bool { return b.ro }

// Borrowed reports whether the buffer was made by Borrow.
func (b *Buffer) Borrowed() bool { return b.kind == lent }

// MarkStable declares that the contents rarely or never change, as those of weights, so
// that a device may keep a copy. It must not be called for a pooled buffer: an evictor may
// still look at a stable buffer after its last Release, and a pooled buffer is used again.
func (b *Buffer) MarkStable() { b.stable.Store(true) }

// Stable reports whether the contents were declared stable.
func (b *Buffer) Stable() bool { return b.stable.Load() }

// Adopt makes owner the buffer's owner if the buffer has none yet, and reports whether
// owner owns the buffer now. An owner is the non-zero number of an engine; only that
// engine's device may hold a copy of the bytes. A buffer keeps its owner for life.
func (b *Buffer) Adopt(owner uint32) bool {
	return b.owner.CompareAndSwap(0, owner) || b.owner.Load() == owner
}

// Owner returns the number that Adopt set, or 0.
func (b *Buffer) Owner() uint32 { return b.owner.Load() }

// Generation counts the mutations so far.
func (b *Buffer) Generation() uint64 { return b.gen.Load() }

// HasHost reports whether the buffer has host memory at the moment.
func (b *Buffer) HasHost() bool { return b.host.Load() != nil }

func (b *Buffer) origin() string {
	return fmt.Sprintf("%s buffer of %d bytes at %p", b.kind, b.size, b)
}

// Retain adds a reference.
func (b *Buffer) Retain() {
	if b.refs.Add(1) <= 1 {
		panic("storage: retain of a released " + b.origin())
	}
}

// Release drops a reference. The last Release hands the buffer to its reclaimer, or frees
// its memory. Release does not wait for a device, except for bytes that the caller lent.
func (b *Buffer) Release() {
	switch n := b.refs.Add(-1); {
	case n > 0:
		return
	case n < 0:
		panic("storage: release of a released " + b.origin())
	}
	b.dropShadow()
	b.device.release(b)
	if b.reclaimer != nil {
		b.reclaimer.Reclaim(b)
		return
	}
	b.Destroy()
}

// Unique reports whether exactly one reference is left. The answer is a snapshot; only
// the owner of that reference can rely on it.
func (b *Buffer) Unique() bool { return b.refs.Load() == 1 }

// Revive gives a reclaimed buffer its one reference back. Only its Reclaimer may
// call it, and only once per Reclaim.
func (b *Buffer) Revive() {
	if !b.refs.CompareAndSwap(0, 1) {
		panic("storage: revival of a live " + b.origin())
	}
}

// DropHost destroys the provider state of a reclaimed buffer that owns host memory, then
// frees the host memory. Only its Reclaimer may call it. A later host access allocates
// memory with undefined contents.
func (b *Buffer) DropHost() {
	if b.refs.Load() != 0 {
		panic("storage: DropHost of a live " + b.origin())
	}
	if b.block.Cap() > 0 {
		b.device.destroy()
		b.host.Store(nil)
		offheap.Free(&b.block)
	}
}

// Poison fills the host memory of a reclaimed buffer that owns it with a pattern, so that
// a read after the release is noticed. Only its Reclaimer may call it.
func (b *Buffer) Poison() {
	if b.refs.Load() != 0 {
		panic("storage: poisoning of a live " + b.origin())
	}
	if b.block.Cap() == 0 || !b.HasHost() {
		return
	}
	offheap.Poison(b.bytes())
}

// Destroy frees the memory of a buffer that has no references, or runs OnRelease for lent
// bytes. Only a Reclaimer calls it, for a buffer that it will not revive.
func (b *Buffer) Destroy() {
	if b.refs.Load() != 0 {
		panic("storage: destruction of a live " + b.origin())
	}
	b.device.destroy()
	b.host.Store(nil)
	if b.block.Cap() > 0 {
		offheap.Free(&b.block)
	}
	if l := b.loan; l != nil {
		b.loan = nil
		if l.onRelease != nil {
			l.onRelease()
		}
	}
}

func (b *Buffer) check() {
	if b.refs.Load() <= 0 {
		panic("storage: use of a released " + b.origin())
	}
}

// bytes returns the host bytes. The caller has made sure that they exist.
func (b *Buffer) bytes() []byte { return unsafe.Slice(b.host.Load(), b.size) }

// Host returns the host bytes for the access a. It waits for the device as the access
// demands, and downloads the newest bytes if the access needs a valid host copy. With
// Overwrite, the caller must write every byte. The slice is valid until the buffer's last
// Release. The caller must not write through it after a later device access began.
//
// If the device work that produces the bytes failed, every call returns that failure.
// Otherwise an error is ErrReadOnly, that of an allocation or a transfer, or ctx's.
func (b *Buffer) Host(ctx context.Context, a Access) ([]byte, error) {
	b.check()
	if a != Read && b.ro {
		return nil, fmt.Errorf("storage: write to %s: %w", b.origin(), ErrReadOnly)
	}
	if err := b.device.host(ctx, b, a); err != nil {
		return nil, err
	}
	if a != Read {
		b.dropShadow()
	}
	return b.bytes(), nil
}

// BeginHostWrite is Host with Update for a write that lasts until EndHostWrite. Every
// success is paired with EndHostWrite. Several goroutines may be between the two at once.
// In between BeginDevice fails, so that no upload takes a half-written state and no device
// operation's result replaces the write. BeginHostWrite waits for everything that Host
// waits for, and for the device operations and transfers that are being prepared, until
// ctx is done.
func (b *Buffer) BeginHostWrite(ctx context.Context) ([]byte, error) {
	b.check()
	if b.ro {
		return nil, fmt.Errorf("storage: write to %s: %w", b.origin(), ErrReadOnly)
	}
	if err := b.device.beginHostWrite(ctx, b); err != nil {
		return nil, err
	}
	b.dropShadow()
	return b.bytes(), nil
}

// EndHostWrite ends the write that BeginHostWrite began.
func (b *Buffer) EndHostWrite() {
	b.device.endHostWrite(b)
	b.dropShadow()
}

// Discard makes the contents of the n bytes from off on undefined, until they are written
// again. If the buffer owns host memory, and no device has the bytes or uses that memory, the
// pages that lie wholly in the range go back to the system. Otherwise the memory stays. Discard
// does not wait. The caller makes sure that nothing reads or writes the range meanwhile. It
// fails with ErrReadOnly if the buffer refuses writes.
func (b *Buffer) Discard(off, n int) error {
	b.check()
	switch {
	case off < 0 || n < 0 || off > b.size || n > b.size-off:
		return fmt.Errorf("storage: discard of %d bytes at %d of %s: %w", n, off, b.origin(), ErrRange)
	case b.ro:
		return fmt.Errorf("storage: write to %s: %w", b.origin(), ErrReadOnly)
	case b.kind == lent:
		return nil
	}
	b.device.discard(b, off, n)
	b.dropShadow() // without the lock that device.discard holds, because the shadow's Destroy may use b
	return nil
}

// discardHost is the part of Discard for a buffer without device bytes.
func (b *Buffer) discardHost(off, n int) {
	if b.HasHost() {
		b.gen.Add(1)
		offheap.Discard(b.bytes()[off:][:n])
	}
}

// ReadAt copies len(dst) bytes from offset off into dst. If only the device has the
// newest bytes, ReadAt downloads that range alone and leaves the valid bits as they are.
// If the bytes lie in a mapped file that was truncated, the error wraps
// offheap.ErrFileChanged.
func (b *Buffer) ReadAt(ctx context.Context, dst []byte, off int) error {
	b.check()
	if off < 0 || off > b.size || len(dst) > b.size-off {
		return fmt.Errorf("storage: read of %d bytes at %d of %s: %w", len(dst), off, b.origin(), ErrRange)
	}
	return b.device.readAt(ctx, b, dst, off)
}

// SetShadow attaches the derived copy s and destroys an earlier one. s may be nil.
func (b *Buffer) SetShadow(s *accel.HostShadow) {
	if old := b.shadow.Swap(s); old != nil && old.Destroy != nil {
		old.Destroy(old.Data)
	}
}

// Shadow returns the derived copy if it belongs to the current generation.
func (b *Buffer) Shadow() *accel.HostShadow {
	if s := b.shadow.Load(); s != nil && s.Generation == b.gen.Load() {
		return s
	}
	return nil
}

func (b *Buffer) dropShadow() {
	if b.shadow.Load() != nil {
		b.SetShadow(nil)
	}
}

// Elements views bytes as elements of type T. It fails with ErrRange if the length is not
// a multiple of T's size, or the address is not aligned for T.
func Elements[T any](p []byte) ([]T, error) {
	var zero T
	size := int(unsafe.Sizeof(zero))
	data := unsafe.Pointer(unsafe.SliceData(p))
	if len(p)%size != 0 || uintptr(data)%unsafe.Alignof(zero) != 0 {
		return nil, fmt.Errorf("storage: %d bytes at %p as elements of %d bytes: %w", len(p), data, size, ErrRange)
	}
	return unsafe.Slice((*T)(data), len(p)/size), nil
}
