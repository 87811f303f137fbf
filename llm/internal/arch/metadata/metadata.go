// Package metadata reads the metadata keys of a model file that begin with the name of its
// architecture, such as llama.block_count. It reads files of any architecture, also of those
// that llm does not support, and depends only on the file format.
//
// Files are untrusted, so each value is read with bounds.
package metadata

import (
	"errors"
	"fmt"
	"math"

	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/internal/untrusted"
)

// Names of keys that files of most architectures have, without the name of the architecture.
const (
	BlockCount  = "block_count"
	HeadCount   = "attention.head_count"
	KVHeadCount = "attention.head_count_kv"
	ExpertCount = "expert_count"
)

// Reader reads typed values of one file and keeps the first error. A method that fails returns
// a value within its bounds, so that callers can continue. The values are valid only if Err
// returns nil at the end. Methods take the name of a key without the architecture.
type Reader struct {
	m       *gguf.Metadata
	arch    string
	invalid error
	err     error
}

// NewReader returns a reader of the keys of m that begin with the value of
// general.architecture. Its errors, and those of the reader, wrap invalid and the error of
// package gguf, if there is one.
func NewReader(m *gguf.Metadata, invalid error) (*Reader, error) {
	arch, err := m.String("general.architecture")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", invalid, err)
	}
	return &Reader{m: m, arch: arch, invalid: invalid}, nil
}

// Architecture returns the value of general.architecture.
func (r *Reader) Architecture() string { return r.arch }

// Key returns the complete key for use in an error. A key that is very long or has control
// characters is shortened and quoted.
func (r *Reader) Key(name string) string { return untrusted.Name(r.key(name)) }

func (r *Reader) key(name string) string { return r.arch + "." + name }

// Err returns the first error.
func (r *Reader) Err() error { return r.err }

// Fail sets the error of the reader to err, if it has none.
func (r *Reader) Fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// Invalidf is Fail with an error that wraps the sentinel of NewReader.
func (r *Reader) Invalidf(format string, args ...any) {
	r.Fail(fmt.Errorf("%w: %w", r.invalid, fmt.Errorf(format, args...)))
}

// Value returns the value of the key, and whether the file has the key.
func (r *Reader) Value(name string) (gguf.Value, bool) { return r.m.Value(r.key(name)) }

// Has reports whether the file has the key.
func (r *Reader) Has(name string) bool {
	_, ok := r.Value(name)
	return ok
}

// Size returns an integer, which must be in [1, limit]. If the key is missing, it returns def,
// or fails if def is 0. After an error it returns 1.
func (r *Reader) Size(name string, def, limit int) int { return r.integer(name, def, 1, limit) }

// Count returns an integer, which must be in [0, limit]. If the key is missing, it returns def,
// or fails if def is -1. After an error it returns 0.
func (r *Reader) Count(name string, def, limit int) int { return r.integer(name, def, 0, limit) }

// integer returns an integer, which must be in [low, limit]. If the key is missing, it returns
// def, or fails if def is less than low. After an error it returns low.
func (r *Reader) integer(name string, def, low, limit int) int {
	v, err := r.m.Int(r.key(name))
	if errors.Is(err, gguf.ErrNoKey) && def >= low {
		return def
	}
	if err != nil {
		r.Invalidf("%w", err)
		return low
	}
	if v < int64(low) || v > int64(limit) {
		r.Invalidf("%s is %d, want %d to %d", r.Key(name), v, low, limit)
		return low
	}
	return int(v)
}

// PerBlock returns one number for each of the n blocks. The value of the key is an array with a
// number in [0, limit] for each block, or one number for all blocks, which is read like Size.
func (r *Reader) PerBlock(name string, def, limit, n int) []int {
	list := make([]int, n)
	if !r.isArray(name) {
		size := r.Size(name, def, limit)
		for i := range list {
			list[i] = size
		}
		return list
	}
	values, err := r.m.Ints(r.key(name))
	switch {
	case err != nil:
		r.Invalidf("%w", err)
	case len(values) != n:
		r.Invalidf("%s has %d entries, want one for each of %d blocks", r.Key(name), len(values), n)
	default:
		for i, v := range values {
			if v < 0 || v > int64(limit) {
				r.Invalidf("%s[%d] is %d, want 0 to %d", r.Key(name), i, v, limit)
				v = 0
			}
			list[i] = int(v)
		}
	}
	return list
}

// First returns the number of the first block. The value of the key is an array of integers, of
// which First checks only the first, or one number for all blocks, which is read like Count.
func (r *Reader) First(name string, def, limit int) int {
	if !r.isArray(name) {
		return r.Count(name, def, limit)
	}
	values, err := r.m.Ints(r.key(name))
	switch {
	case err != nil:
		r.Invalidf("%w", err)
		return 0
	case len(values) == 0:
		r.Invalidf("%s is an empty array", r.Key(name))
		return 0
	case values[0] < 0 || values[0] > int64(limit):
		r.Invalidf("%s[0] is %d, want 0 to %d", r.Key(name), values[0], limit)
		return 0
	}
	return int(values[0])
}

// isArray reports whether the value of the key is an array of integers, bools or arrays.
func (r *Reader) isArray(name string) bool {
	v, ok := r.Value(name)
	if !ok || v.Type() != gguf.TypeArray {
		return false
	}
	switch v.Elem() {
	case gguf.TypeFloat32, gguf.TypeFloat64, gguf.TypeString:
		return false
	}
	return true
}

// Number returns a float, which must be finite and at least low, or def if the key is missing.
func (r *Reader) Number(name string, def, low float64) float64 {
	if !r.Has(name) {
		return def
	}
	return r.Needed(name, low)
}

// Needed is like Number for a key that must exist. After an error it returns low.
func (r *Reader) Needed(name string, low float64) float64 {
	v, err := r.m.Float(r.key(name))
	if err != nil {
		r.Invalidf("%w", err)
		return low
	}
	if !(v >= low) || v > math.MaxFloat32 {
		r.Invalidf("%s is %v, want a finite number of at least %v", r.Key(name), v, low)
		return low
	}
	return v
}

// Text returns a string, or def if the key is missing. After an error it returns def.
func (r *Reader) Text(name, def string) string {
	s, err := r.m.StringOr(r.key(name), def)
	if err != nil {
		r.Invalidf("%w", err)
		return def
	}
	return s
}
