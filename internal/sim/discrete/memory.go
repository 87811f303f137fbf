//go:build accel

package discrete

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/shape"
)

// alignment of every allocation, in bytes.
const alignment = 64

// firstID is the id of the first allocation. It is large, so that a wrong computation does
// not give a valid id by chance. Ids are never reused.
const firstID = 1 << 32

// block is one allocation of device memory, or of pinned host memory. The device's mutex
// guards its fields but not its bytes: fences must order works that share them.
type block struct {
	id    uint64 // 0 for pinned host memory
	bytes []byte
	uses  accel.Fences
	freed atomic.Bool
}

func newBytes(n int) []byte {
	p := make([]byte, n+alignment-1)
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(p))) & (alignment - 1))
	return p[skip:][:n:n]
}

// poison fills p with a repeated 0xFFA5, which is a NaN as f16 and bf16. Two of them are a
// NaN as f32, and four as f64.
func poison(p []byte) {
	n := copy(p, []byte{0xA5, 0xFF})
	for n < len(p) {
		n += copy(p[n:], p[:n])
	}
}

// poisonOperand poisons the elements of o, whose memory is mem, and no byte between them. If
// o has no shape, it poisons all of mem.
func poisonOperand(mem []byte, o *op.Operand) {
	storage, err := o.Shape.Storage(o.DType)
	if err != nil {
		poison(mem)
		return
	}
	poisonAxis(mem, &storage, &o.Strides, 0, o.Offset, o.DType.Size())
}

func poisonAxis(mem []byte, dims, strides *shape.Shape, axis, at, size int) {
	if axis == dims.Rank() {
		poison(mem[at*size:][:size])
		return
	}
	for i := range dims.Dim(axis) {
		poisonAxis(mem, dims, strides, axis+1, at+i*strides.Dim(axis), size)
	}
}

// rangeOf returns the bytes of m, which lies in b.
func rangeOf(b *block, m *op.Mem) ([]byte, error) {
	switch {
	case b == nil:
		return nil, fmt.Errorf("memory %#x was freed or never allocated", m.ID)
	case b.freed.Load():
		return nil, fmt.Errorf("memory %#x was freed before the work executed", m.ID)
	case m.Off < 0 || m.Len < 0 || m.Off > len(b.bytes)-m.Len:
		return nil, fmt.Errorf("bytes %d to %d of memory %#x, which has %d", m.Off, m.Off+m.Len, m.ID, len(b.bytes))
	}
	return b.bytes[m.Off:][:m.Len:m.Len], nil
}

// Alloc returns n bytes of poisoned device memory. It fails with
// accel.ErrOutOfMemory if they do not fit Options.MemoryBytes.
func (d *Device) Alloc(n int) (op.Mem, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable(); err != nil {
		return op.Mem{}, fmt.Errorf("discrete: alloc of %d bytes: %w", n, err)
	}
	if n < 1 {
		return op.Mem{}, fmt.Errorf("discrete: alloc of %d bytes: want at least 1", n)
	}
	d.events.Allocs++
	if f := d.due(AllocError, nil); f != nil {
		return op.Mem{}, fmt.Errorf("discrete: alloc of %d bytes: %w", n, f.failure(accel.ErrOutOfMemory))
	}
	if int64(n) > d.opt.MemoryBytes-d.stats.LiveBytes {
		return op.Mem{}, fmt.Errorf("discrete: alloc of %d bytes with %d of %d in use: %w",
			n, d.stats.LiveBytes, d.opt.MemoryBytes, accel.ErrOutOfMemory)
	}
	b := &block{id: d.nextID, bytes: newBytes(n)}
	d.nextID++
	poison(b.bytes)
	d.blocks[b.id] = b
	d.stats.Allocs++
	d.stats.LiveBlocks++
	d.stats.LiveBytes += int64(n)
	d.peak = max(d.peak, d.stats.LiveBytes)
	return op.Mem{ID: b.id, Len: n}, nil
}

// Free poisons and frees memory of Alloc. Memory that is not of Alloc, or that pending work
// uses, is a hazard.
func (d *Device) Free(m op.Mem) {
	if m.IsZero() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.blocks[m.ID]
	switch {
	case b == nil && d.closed:
		return // Close has freed and reported it
	case b == nil:
		d.hazard("free of memory %#x, which was freed or never allocated", m.ID)
		return
	case m.Off != 0 || m.Len != len(b.bytes):
		d.hazard("free of bytes %d to %d of memory %#x, want all %d", m.Off, m.Off+m.Len, m.ID, len(b.bytes))
		return
	}
	for _, w := range b.uses {
		if !w.Done() {
			d.hazard("free of memory %#x, which op %d of %s still uses", b.id, w.Seq(), w.Timeline().Name())
		}
	}
	d.drop(b)
	d.stats.Frees++
}

// drop frees a block. The caller holds mu.
func (d *Device) drop(b *block) {
	b.freed.Store(true)
	poison(b.bytes)
	delete(d.blocks, b.id)
	d.stats.LiveBlocks--
	d.stats.LiveBytes -= int64(len(b.bytes))
}

// AllocPinned returns n bytes of host memory. The device records the transfers that use it.
// It lies on the Go heap, and Options.MemoryBytes does not bound it.
func (d *Device) AllocPinned(n int) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable(); err != nil {
		return nil, fmt.Errorf("discrete: alloc of %d pinned bytes: %w", n, err)
	}
	if n < 1 {
		return nil, fmt.Errorf("discrete: alloc of %d pinned bytes: want at least 1", n)
	}
	b := &block{bytes: newBytes(n)}
	poison(b.bytes)
	d.pinned = append(d.pinned, b)
	d.stats.PinnedBytes += int64(n)
	return b.bytes, nil
}

// FreePinned poisons and frees memory of AllocPinned. Memory that is not of AllocPinned, or
// that a pending transfer uses, is a hazard.
func (d *Device) FreePinned(p []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, b := range d.pinned {
		if unsafe.SliceData(b.bytes) != unsafe.SliceData(p) {
			continue
		}
		for _, w := range b.uses {
			if !w.Done() {
				d.hazard("free of %d pinned bytes, which op %d of %s still uses", len(b.bytes), w.Seq(), w.Timeline().Name())
			}
		}
		poison(b.bytes)
		d.stats.PinnedBytes -= int64(len(b.bytes))
		d.pinned = append(d.pinned[:i], d.pinned[i+1:]...)
		return
	}
	if !d.closed {
		d.hazard("free of %d pinned bytes that were freed or never allocated", len(p))
	}
}

// pinnedAround returns the pinned block that p lies in, or nil. The caller holds mu.
func (d *Device) pinnedAround(p []byte) *block {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(p)))
	for _, b := range d.pinned {
		from := uintptr(unsafe.Pointer(unsafe.SliceData(b.bytes)))
		if from <= at && at-from < uintptr(len(b.bytes)) {
			return b
		}
	}
	return nil
}
