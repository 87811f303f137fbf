package gguf

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/storage"
)

// Buffer returns a storage buffer with one reference over the bytes of a
// tensor of this file. It is a read-only loan that keeps the mapping alive
// until its release, past [File.Close]. Where the bytes are not aligned for elements
// of t.DType, it is a writable copy in memory of its own instead: that takes a file
// whose alignment is below 8, or an image given to [Parse] that does not begin at a
// multiple of 8 bytes itself.
//
// The error wraps [ErrClosed] after Close, [ErrNoTensor] for a tensor of
// another file, [ErrEmptyTensor] for one with a dim of 0, [ErrFileChanged] if a copy
// finds the file changed, or is that of an allocation.
func (f *File) Buffer(t TensorInfo) (*storage.Buffer, error) {
	m, data, err := f.borrow(t)
	if err != nil {
		return nil, err
	}
	// Nothing is lost but address space if the system refuses to unmap, and a
	// release has no one to tell.
	release := func() { _ = m.release() }

	if len(data) == 0 {
		defer release()
		return nil, fmt.Errorf("%w: %s has shape %v", ErrEmptyTensor, quote(t.Name), t.Shape)
	}
	if uintptr(unsafe.Pointer(&data[0]))%uintptr(elementAlign(t.DType)) != 0 {
		defer release()
		return copyOf(m, data)
	}
	opt := storage.BorrowOptions{ReadOnly: true, OnRelease: release}
	if m.cold != nil {
		opt.Cold = func() { m.cold(int(t.Offset), int(t.Size)) }
	}
	return storage.Borrow(data, opt), nil
}

// copyOf returns a copy of data, which is part of m.
func copyOf(m *mapping, data []byte) (*storage.Buffer, error) {
	b, err := storage.New(len(data))
	if err != nil {
		return nil, fmt.Errorf("gguf: copy of an unaligned tensor: %w", err)
	}
	dst, err := b.Host(context.Background(), storage.Overwrite)
	if err == nil {
		err = m.read(func() error { copy(dst, data); return nil })
	}
	if err != nil {
		b.Release()
		return nil, fmt.Errorf("gguf: copy of an unaligned tensor: %w", err)
	}
	return b, nil
}

// elementAlign returns the alignment in bytes of d's Go elements. Block structs
// hold nothing wider than 16 bits.
func elementAlign(d dtype.DType) int {
	if d.IsScalar() {
		return d.Size()
	}
	return 2
}
