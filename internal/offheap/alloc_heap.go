//go:build race || !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows)

package offheap

import (
	"errors"
	"unsafe"

	"github.com/fucina-go/fucina/internal/invariants"
)

const kindHeap kind = 0

// maxHeapBlock is refused before the runtime would end the process over it.
const maxHeapBlock = 1 << 40

// alloc returns n zeroed bytes of the Go heap.
func alloc(n int) (Block, error) {
	if int64(n) > maxHeapBlock {
		return Block{}, errors.New("block too large for the Go heap")
	}
	b := Block{n: n, kind: kindHeap}
	align := Align
	if n >= LargeMin {
		align = pageSize
	}
	b.cap = roundUp(n, align)
	// The block's pointer keeps the whole slice alive, the collector honouring
	// interior pointers, and the collector does not move it.
	p := unsafe.Pointer(unsafe.SliceData(make([]byte, b.cap+align-1)))
	b.ptr = unsafe.Add(p, int(-uintptr(p)&uintptr(align-1)))
	return b, nil
}

// release leaves the memory to the collector.
func release(b Block) {
	if invariants.Enabled || invariants.RaceEnabled {
		// Under the race detector the write also exposes an access that the
		// release does not happen after.
		Poison(b.Bytes())
	}
}
