//go:build unix

package simd

import (
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// guarded returns n bytes of zeros, after which memory is not accessible. They are aligned as n is.
func guarded(t testing.TB, n int) []byte {
	t.Helper()
	page := os.Getpagesize()
	size := (n + page - 1) / page * page
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(size+page), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.MunmapPtr(p, uintptr(size+page)); err != nil {
			t.Error(err)
		}
	})
	all := unsafe.Slice((*byte)(p), size+page)
	if err := unix.Mprotect(all[size:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	return all[size-n : size : size]
}

// guardedFloats is guarded for n floats.
func guardedFloats(t testing.TB, n int) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(guarded(t, 4*n)))), n)
}
