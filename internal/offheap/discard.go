package offheap

import (
	"os"
	"unsafe"

	"github.com/fucina-go/fucina/internal/invariants"
)

// Discard gives the pages that lie wholly inside p, a part of the bytes of a live block, back
// to the system. The contents of all of p are then undefined until they are written. The
// memory remains part of the block: the next access to a page gets a new one. Discard is a
// hint: it never fails, and keeps the pages of a block on the Go heap.
func Discard(p []byte) {
	if invariants.Enabled || invariants.RaceEnabled {
		// Under the race detector the write also reveals an access that is not ordered
		// before or after this one.
		Poison(p[:min(len(p), poisoned)])
	}
	if pages := wholePages(p); len(pages) > 0 {
		discardPages(pages)
	}
}

// poisoned is the number of bytes at the beginning that Discard poisons in builds with checks. The
// rest of a large part may never have been written, and a write would make it resident.
const poisoned = 1 << 20

// wholePages returns the pages of the system that lie wholly inside p.
func wholePages(p []byte) []byte {
	page := os.Getpagesize()
	head := int(-uintptr(unsafe.Pointer(unsafe.SliceData(p))) & uintptr(page-1))
	if head >= len(p) {
		return nil
	}
	return p[head:][:(len(p)-head)&^(page-1)]
}
