package gguf

import (
	"errors"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/tests/ggufbuild"
)

// The mapping is dropped once, with its last reference, and cannot be revived.
func TestMappingReferences(t *testing.T) {
	failure := errors.New("unmap failed")
	unmapped := 0
	m := newMapping([]byte{1}, func() error { unmapped++; return failure }, nil)
	if !m.retain() {
		t.Fatal("retain failed on a live mapping")
	}
	if err := m.release(); err != nil || unmapped != 0 {
		t.Fatalf("first release: %v, unmapped %d times", err, unmapped)
	}
	if err := m.release(); err != failure || unmapped != 1 {
		t.Fatalf("last release: %v, unmapped %d times", err, unmapped)
	}
	if m.retain() {
		t.Error("retain revived a dropped mapping")
	}
	defer func() {
		if recover() == nil {
			t.Error("a release too many did not panic")
		}
	}()
	_ = m.release()
}

// The last of a file and its buffers to go drops the mapping; a tensor that was
// copied for its alignment does not hold it.
func TestBuffersHoldMapping(t *testing.T) {
	b := ggufbuild.Builder{Alignment: 1}
	b.AddTensor("a", dtype.I8, []int{1}, []byte{1})
	b.AddTensor("b", dtype.F16, []int{1}, []byte{2, 3})
	b.AddTensor("c", dtype.I8, []int{1}, []byte{4})
	b.AddTensor("d", dtype.F16, []int{1}, []byte{5, 6})
	f, err := Parse(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	unmapped := 0
	f.mapping = newMapping(f.mapping.data, func() error { unmapped++; return nil }, nil)

	borrowed := 0
	for _, ti := range f.Tensors() {
		buf, err := f.Buffer(ti)
		if err != nil {
			t.Fatal(err)
		}
		if buf.Borrowed() {
			borrowed++
			defer func() {
				if unmapped != 0 {
					t.Error("unmapped while a buffer borrows from the file")
				}
				buf.Release()
				if borrowed--; borrowed == 0 && unmapped != 1 {
					t.Errorf("unmapped %d times by the last buffer", unmapped)
				}
			}()
		} else {
			defer buf.Release()
		}
	}
	if got, want := f.mapping.refs.Load(), int64(1+borrowed); got != want {
		t.Errorf("%d references for %d borrowing buffers, want %d", got, borrowed, want)
	}
	if borrowed == 4 {
		t.Error("no tensor was unaligned")
	}
	if err := f.Close(); err != nil || unmapped != 0 {
		t.Errorf("Close: %v, unmapped %d times", err, unmapped)
	}
}
