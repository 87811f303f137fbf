//go:build unix

package vector

import (
	"syscall"
	"testing"
	"unsafe"
)

// guarded returns n floats that end at a page that cannot be read.
func guarded(t testing.TB, n int) []float32 {
	t.Helper()
	page := syscall.Getpagesize()
	size := (4*n + page - 1) / page * page
	mem, err := syscall.Mmap(-1, 0, size+page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mprotect(mem[size:], syscall.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Munmap(mem); err != nil {
			t.Error(err)
		}
	})
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(mem[size-4*n:]))), n)
}
