//go:build (darwin || dragonfly || freebsd || linux || netbsd || openbsd) && !race

package offheap

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapPages maps n zeroed bytes. n is a multiple of the page size.
func mapPages(n int) (unsafe.Pointer, error) {
	return mapProt(n, unix.PROT_READ|unix.PROT_WRITE)
}

// mapProt maps n bytes at a multiple of pageSize. If pageSize is larger than the system's
// page, mapProt maps more and unmaps the excess on either side.
func mapProt(n, prot int) (unsafe.Pointer, error) {
	excess := pageSize - os.Getpagesize()
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(n+excess), prot, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil || excess == 0 {
		return p, err
	}
	head := int(-uintptr(p) & uintptr(pageSize-1))
	if head > 0 {
		unmapPages(p, head)
	}
	if tail := excess - head; tail > 0 {
		unmapPages(unsafe.Add(p, head+n), tail)
	}
	return unsafe.Add(p, head), nil
}

// unmapPages returns a mapping to the system.
func unmapPages(p unsafe.Pointer, n int) {
	err := unix.MunmapPtr(p, uintptr(n))
	if err == unix.ENOMEM {
		// The kernel merges neighbouring mappings, and removing one from their middle may
		// exceed the number of mappings of a process. Its memory can be dropped anyway.
		err = unix.Madvise(unsafe.Slice((*byte)(p), n), unix.MADV_DONTNEED)
	}
	if err != nil {
		panic(fmt.Sprintf("offheap: unmapping %d bytes at %p: %v", n, p, err))
	}
}

// discardPages ignores the error, because then the pages only stay resident. On Linux
// MADV_FREE would leave the pages resident until memory is short. On the other systems
// MADV_DONTNEED keeps the contents.
func discardPages(p []byte) {
	advice := unix.MADV_FREE
	if runtime.GOOS == "linux" {
		advice = unix.MADV_DONTNEED
	}
	_ = unix.Madvise(p, advice)
}

// mapGuarded maps n zeroed bytes with an inaccessible page on either side.
func mapGuarded(n int) (unsafe.Pointer, error) {
	base, err := mapProt(n+2*pageSize, unix.PROT_NONE)
	if err != nil {
		return nil, err
	}
	p := unsafe.Add(base, pageSize)
	if err := unix.Mprotect(unsafe.Slice((*byte)(p), n), unix.PROT_READ|unix.PROT_WRITE); err != nil {
		unmapPages(base, n+2*pageSize)
		return nil, err
	}
	return p, nil
}

// revokePages makes n bytes inaccessible and drops their contents. The addresses stay
// reserved.
func revokePages(p unsafe.Pointer, n int) {
	b := unsafe.Slice((*byte)(p), n)
	err := unix.Madvise(b, unix.MADV_DONTNEED)
	if err == nil {
		err = unix.Mprotect(b, unix.PROT_NONE)
	}
	if err != nil {
		panic(fmt.Sprintf("offheap: revoking %d bytes at %p: %v", n, p, err))
	}
}

// unmapGuarded returns a mapping made by mapGuarded, guards included.
func unmapGuarded(p unsafe.Pointer, n int) {
	unmapPages(unsafe.Add(p, -pageSize), n+2*pageSize)
}
