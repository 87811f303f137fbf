package gguf

import (
	"errors"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/storage"
	"github.com/fucina-go/fucina/tests/ggufbuild"
)

// The release of the last reference unmaps the image once. A retain fails afterwards.
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

// The file is unmapped when the File and its buffers are closed and released, in any order.
// A buffer that is a copy does not keep the mapping alive.
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
	f.parts[0] = newMapping(f.parts[0].data, func() error { unmapped++; return nil }, nil)

	var borrowed, copied []*storage.Buffer
	for _, ti := range f.Tensors() {
		buf, err := f.Buffer(ti)
		if err != nil {
			t.Fatal(err)
		}
		if buf.Borrowed() {
			borrowed = append(borrowed, buf)
		} else {
			copied = append(copied, buf)
		}
	}
	// b and d are an odd number of bytes apart.
	if len(borrowed) != 3 || len(copied) != 1 {
		t.Fatalf("%d tensors borrow and %d are copies, want 3 and 1", len(borrowed), len(copied))
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for i, buf := range borrowed {
		if unmapped != 0 {
			t.Fatalf("unmapped before borrowing buffer %d was released", i)
		}
		buf.Release()
	}
	if unmapped != 1 {
		t.Errorf("unmapped %d times by the last borrowing buffer, want 1", unmapped)
	}
	copied[0].Release()
}
