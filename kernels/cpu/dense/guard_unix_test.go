//go:build unix

package dense

import (
	"os"
	"syscall"
	"testing"
)

// guarded returns n bytes that end where memory ends that may be used.
func guarded(t testing.TB, n int) []byte {
	page := os.Getpagesize()
	size := (n+page-1)/page*page + page
	b, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Munmap(b) })
	if err := syscall.Mprotect(b[size-page:], syscall.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	return b[size-page-n : size-page : size-page]
}
