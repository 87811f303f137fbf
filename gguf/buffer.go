package gguf

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/storage"
)

// Buffer returns a storage buffer with one reference over the bytes of a tensor of this
// file. The buffer borrows the bytes read-only and keeps the mapping alive until its last
// Release, even after [File.Close]. If the bytes are not aligned for elements of t.DType,
// the buffer is a writable copy instead. That happens only if the alignment of the file is
// below 8, or if an image given to [Parse] does not begin at a multiple of 8 bytes.
//
// The error wraps [ErrClosed] after Close, [ErrNoTensor] for a tensor of another file,
// [ErrEmptyTensor] for a tensor with a dim of 0, or [ErrFileChanged] if the file changed
// before a copy. Otherwise it is the error of an allocation.
func (f *File) Buffer(t TensorInfo) (*storage.Buffer, error) {
	m, data, err := f.borrow(t)
	if err != nil {
		return nil, err
	}
	// An error of unmap is ignored: only address space is lost, and Release returns no
	// error.
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
