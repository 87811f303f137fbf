//go:build race || !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows)

package offheap

import (
	"errors"
	"unsafe"

	"github.com/fucina-go/fucina/internal/invariants"
)

const kindHeap kind = 0

// maxHeapBlock bounds a block, because the runtime ends the process if it cannot allocate a
// larger one.
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
	// The block's pointer points into the slice and keeps all of it reachable. The garbage
	// collector does not move it.
	p := unsafe.Pointer(unsafe.SliceData(make([]byte, b.cap+align-1)))
	b.ptr = unsafe.Add(p, int(-uintptr(p)&uintptr(align-1)))
	return b, nil
}

// release leaves the memory to the garbage collector.
func release(b Block) {
	if invariants.Enabled || invariants.RaceEnabled {
		// Under the race detector the write also reveals an access that is not ordered
		// before the release.
		Poison(b.Bytes())
	}
}

func discardPages([]byte) {}
