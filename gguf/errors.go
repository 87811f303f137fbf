package gguf

import (
	"errors"
	"fmt"

	"github.com/fucina-go/fucina/internal/offheap"
	"github.com/fucina-go/fucina/internal/untrusted"
)

// Errors of reading a file. They are wrapped with the place and the expected value.
var (
	// ErrNotGGUF is returned for a file that does not begin with the magic bytes.
	ErrNotGGUF = errors.New("gguf: not a GGUF file")
	// ErrVersion is returned for a version or byte order that this package does not read.
	ErrVersion = errors.New("gguf: unsupported version")
	// ErrMalformed is returned for a file that contradicts itself, its size or the format.
	ErrMalformed = errors.New("gguf: malformed file")
)

// Errors of using a file.
var (
	// ErrNoKey is returned when a metadata key is absent.
	ErrNoKey = errors.New("gguf: no such key")
	// ErrValueType is returned when a metadata value has another type than the requested one.
	ErrValueType = errors.New("gguf: wrong value type")
	// ErrValueRange is returned when an integer does not fit the requested type.
	ErrValueRange = errors.New("gguf: value out of range")
	// ErrClosed is returned when tensor bytes of a closed file are requested.
	ErrClosed = errors.New("gguf: file is closed")
	// ErrWrite is returned for a value or tensor that a file cannot hold, and for calls of
	// a Writer in a wrong order.
	ErrWrite = errors.New("gguf: cannot write")
	// ErrNoTensor is returned for a tensor that the file does not hold.
	ErrNoTensor = errors.New("gguf: no such tensor")
	// ErrFileChanged is returned when the size or the time of modification of a mapped file
	// is no longer that of its opening, or when bytes of it can no longer be read.
	ErrFileChanged = offheap.ErrFileChanged
	// ErrEmptyTensor is returned when the buffer of a tensor with a dim of 0 is requested.
	ErrEmptyTensor = errors.New("gguf: tensor is empty")
)

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

func quote(s string) string { return untrusted.Quote(s) }
