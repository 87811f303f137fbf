//go:build windows && !race

package offheap

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/windows"
)

// mapPages maps n zeroed bytes. n is a multiple of the page size.
func mapPages(n int) (unsafe.Pointer, error) {
	addr, err := windows.VirtualAlloc(0, uintptr(n), windows.MEM_RESERVE|windows.MEM_COMMIT, windows.PAGE_READWRITE)
	return pointer(addr), err
}

// pointer converts the address of memory that the garbage collector does not manage.
func pointer(addr uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }

// unmapPages returns a mapping to the system, which knows its length.
func unmapPages(p unsafe.Pointer, n int) {
	if err := windows.VirtualFree(uintptr(p), 0, windows.MEM_RELEASE); err != nil {
		panic(fmt.Sprintf("offheap: unmapping %d bytes at %p: %v", n, p, err))
	}
}

// discardPages says that the contents need not be kept, and takes the pages out of the working
// set: VirtualUnlock does so with pages that are not locked, and fails. discardPages ignores
// the errors, because then the pages only stay resident.
func discardPages(p []byte) {
	addr, n := uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p))
	if _, err := windows.VirtualAlloc(addr, n, windows.MEM_RESET, windows.PAGE_READWRITE); err == nil {
		_ = windows.VirtualUnlock(addr, n)
	}
}

// mapGuarded maps n zeroed bytes with an inaccessible page on either side.
func mapGuarded(n int) (unsafe.Pointer, error) {
	base, err := windows.VirtualAlloc(0, uintptr(n+2*pageSize), windows.MEM_RESERVE, windows.PAGE_NOACCESS)
	if err != nil {
		return nil, err
	}
	p := base + uintptr(pageSize)
	if _, err := windows.VirtualAlloc(p, uintptr(n), windows.MEM_COMMIT, windows.PAGE_READWRITE); err != nil {
		unmapPages(pointer(base), n+2*pageSize)
		return nil, err
	}
	return pointer(p), nil
}

// revokePages makes n bytes inaccessible and drops their contents. The addresses stay
// reserved.
func revokePages(p unsafe.Pointer, n int) {
	if err := windows.VirtualFree(uintptr(p), uintptr(n), windows.MEM_DECOMMIT); err != nil {
		panic(fmt.Sprintf("offheap: revoking %d bytes at %p: %v", n, p, err))
	}
}

// unmapGuarded returns a mapping made by mapGuarded, guards included.
func unmapGuarded(p unsafe.Pointer, n int) {
	unmapPages(unsafe.Add(p, -pageSize), n+2*pageSize)
}
