package gguf

import (
	"io/fs"
	"sync/atomic"
)

// mapping is a file image shared by a File and the buffers that borrow from
// it. It is dropped by whoever releases the last reference.
type mapping struct {
	data []byte
	info fs.FileInfo // of the file, nil for an image in memory
	refs atomic.Int64
	// unmap and cold are nil for an image that the caller owns.
	unmap func() error
	cold  func(off, n int)
}

func newMapping(data []byte, unmap func() error, cold func(off, n int)) *mapping {
	m := &mapping{data: data, unmap: unmap, cold: cold}
	m.refs.Store(1)
	return m
}

// retain adds a reference, unless the last one is gone already.
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

// release drops a reference, and with the last one the mapping.
func (m *mapping) release() error {
	switch n := m.refs.Add(-1); {
	case n < 0:
		panic("gguf: a file mapping was released more often than retained")
	case n > 0 || m.unmap == nil:
		return nil
	}
	return m.unmap()
}
