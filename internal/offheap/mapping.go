package offheap

import (
	"fmt"
	"io"
	"math"
	"os"
	"unsafe"
)

// Mapping is a read-only view of the first bytes of a file. It keeps the file open.
// Copies denote the same view, and exactly one of them is unmapped. The slices of
// [Mapping.Bytes] are invalid after that. The zero Mapping is empty.
//
// A write to the bytes faults. If another process truncates the file, a read of the pages
// behind the new end faults too (on Unix as SIGBUS), which ends the process unless the read
// is inside [Guard]. The bytes behind the new end in the file's last page read as zeros.
// [Mapping.Check] reports a file that was truncated or overwritten. If another file is
// renamed over this one, the mapping still shows the old file.
//
// If the system cannot map files, the bytes are a copy on the Go heap.
type Mapping struct {
	ptr    unsafe.Pointer
	n      int
	origin *origin // nil for the zero Mapping
}

// MapFile maps the first n bytes of f for reading, starting on a page boundary. The Mapping
// owns f: Unmap closes it. If n is zero, MapFile returns the empty Mapping. After an error,
// and with the empty Mapping, the caller closes f. The error wraps [io.ErrUnexpectedEOF] if
// the file is shorter, or [ErrNoMemory] if n exceeds the address space.
func MapFile(f *os.File, n int64) (Mapping, error) {
	state, err := stateOf(f)
	if err != nil {
		return Mapping{}, fmt.Errorf("offheap: mapping: %w", err)
	}
	if n < 0 {
		return Mapping{}, fmt.Errorf("offheap: mapping %s: length %d is negative", f.Name(), n)
	}
	if state.size < n {
		return Mapping{}, fmt.Errorf("offheap: mapping %d bytes of %s, which has %d: %w", n, f.Name(), state.size, io.ErrUnexpectedEOF)
	}
	if n > math.MaxInt-int64(pageSize) {
		return Mapping{}, fmt.Errorf("offheap: mapping %d bytes of %s: %w", n, f.Name(), ErrNoMemory)
	}
	if n == 0 {
		return Mapping{}, nil
	}
	p, err := mapFile(f, int(n))
	if err != nil {
		return Mapping{}, fmt.Errorf("offheap: mapping %d bytes of %s: %w", n, f.Name(), err)
	}
	m := Mapping{ptr: p, n: int(n), origin: &origin{f, state}}
	register(m)
	return m, nil
}

// Bytes returns the mapped bytes, which must not be written. The slice is valid until
// Unmap.
func (m Mapping) Bytes() []byte { return unsafe.Slice((*byte)(m.ptr), m.n) }

// Check returns an error that wraps [ErrFileChanged] if the file's size or time of
// modification has changed since it was mapped. If Check succeeds, the bytes that were read
// before it were in the file, unless the file was written within the resolution of the
// system's times, a few milliseconds. Check allocates only if it fails.
func (m Mapping) Check() error {
	if m.origin == nil {
		return nil
	}
	return m.origin.check()
}

// DropPages tells the system that the pages wholly inside the bytes [off, off+n) will not
// be read soon, so that it can reuse their memory. A later read fetches them from the file
// again. DropPages is a hint: it never fails, and does nothing on systems without such a
// call. It panics if the range is outside the mapping.
func (m Mapping) DropPages(off, n int) {
	if off < 0 || n < 0 || off > m.n || n > m.n-off {
		panic(fmt.Sprintf("offheap: dropping %d bytes at %d of a mapping of %d", n, off, m.n))
	}
	page := os.Getpagesize()
	end := off + n
	if end < m.n {
		end &^= page - 1
	}
	if off = roundUp(off, page); off < end {
		dropPages(m.Bytes()[off:end])
	}
}

// Unmap ends the mapping, closes the file and sets m to the empty Mapping. It does nothing
// for the empty Mapping. If the system refuses to unmap, m does not change.
func (m *Mapping) Unmap() error {
	if m.ptr == nil {
		return nil
	}
	file := m.origin.file
	// unregister comes first, because after the unmap another mapping may get the
	// addresses.
	unregister(m.ptr)
	if err := unmapFile(m.ptr, m.n); err != nil {
		register(*m)
		return fmt.Errorf("offheap: unmapping %d bytes of %s: %w", m.n, file.Name(), err)
	}
	*m = Mapping{}
	if err := file.Close(); err != nil {
		return fmt.Errorf("offheap: %w", err)
	}
	return nil
}
