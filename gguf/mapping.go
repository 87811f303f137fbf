package gguf

import (
	"io/fs"
	"sync/atomic"

	"github.com/fucina-go/fucina/internal/offheap"
)

// mapping is a file image that a File and its buffers share. The release of the last
// reference unmaps it.
type mapping struct {
	data []byte
	info fs.FileInfo // of the mapped file, or nil for an image in memory
	refs atomic.Int64
	// unmap, cold and check are nil for an image that the caller owns.
	unmap func() error
	cold  func(off, n int)
	check func() error
}

func newMapping(data []byte, unmap func() error, cold func(off, n int)) *mapping {
	m := &mapping{data: data, unmap: unmap, cold: cold}
	m.refs.Store(1)
	return m
}

// retain adds a reference and returns true, or returns false if the last reference is
// already released.
func (m *mapping) retain() bool {
	for {
		n := m.refs.Load()
		if n == 0 {
			return false
		}
		if m.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// read calls use, which reads the image, and returns its error. If the file has changed
// since it was mapped, read returns an error that wraps [ErrFileChanged] instead. The
// caller holds a reference.
func (m *mapping) read(use func() error) error {
	if m.check == nil {
		return use()
	}
	err := offheap.Guard(use)
	// The change takes precedence: an error about the bytes of a changed file is misleading.
	if changed := m.check(); changed != nil {
		return changed
	}
	return err
}

// release drops a reference. The last one unmaps the image.
func (m *mapping) release() error {
	switch n := m.refs.Add(-1); {
	case n < 0:
		panic("gguf: a file mapping was released more often than retained")
	case n > 0 || m.unmap == nil:
		return nil
	}
	return m.unmap()
}
