package offheap

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/fucina-go/fucina/internal/invariants"
)

// Align is the least alignment of a block in bytes.
const Align = 64

// LargeMin is the least length in bytes of a block that is page-aligned and spans whole
// pages.
const LargeMin = 16 << 10

// applePage is the page size of Apple's processors, and the unit in which Metal wraps
// memory even if the processor's page is smaller.
const applePage = 16 << 10

// ErrNoMemory is wrapped by the error of an allocation that the system refused.
var ErrNoMemory = errors.New("out of memory")

// pageSize is the page in bytes to which large blocks are aligned and rounded: 16 KiB on
// Apple systems, the system's page elsewhere.
var pageSize = func() int {
	n := os.Getpagesize()
	if runtime.GOOS == "darwin" || runtime.GOOS == "ios" {
		n = max(n, applePage)
	}
	return n
}()

// kind says where a block's memory came from, hence how it goes back. The values
// are those of the build's allocator.
type kind uint8

// Block is one allocation. It is a small value; copies denote the same memory,
// and exactly one of them is given to [Free]. The zero Block has no memory.
type Block struct {
	// ptr keeps the memory reachable if the block is on the Go heap.
	ptr  unsafe.Pointer
	n    int
	cap  int
	id   uint64 // serial number of the allocation; zero unless invariants.Enabled
	kind kind
}

// Bytes returns the block's memory, with the requested length. The slice is valid until the
// block is freed and cannot be resliced beyond its length.
func (b Block) Bytes() []byte { return unsafe.Slice((*byte)(b.ptr), b.n) }

// Cap returns the number of bytes that the block spans: whole pages for blocks of
// [LargeMin] bytes or more.
func (b Block) Cap() int { return b.cap }

// Statistics counts blocks since the start of the process. The fields are read one by one,
// so that concurrent allocations may be counted in some of them only.
type Statistics struct {
	LiveBytes  int64 // capacities of the blocks not yet freed
	LiveBlocks int64 // blocks not yet freed
	Allocs     int64 // successful allocations
	Frees      int64 // releases
	SlabBytes  int64 // bytes mapped for blocks under 16 KiB, live or free
}

var stats struct {
	liveBytes, allocs, frees, slabBytes atomic.Int64
}

// Stats returns the counts of the whole process. It may be called at any time
// from any goroutine.
func Stats() Statistics {
	// frees is read first, so that a block that is freed meanwhile counts as live and the
	// difference is not negative.
	frees := stats.frees.Load()
	allocs := stats.allocs.Load()
	return Statistics{
		LiveBytes:  stats.liveBytes.Load(),
		LiveBlocks: allocs - frees,
		Allocs:     allocs,
		Frees:      frees,
		SlabBytes:  stats.slabBytes.Load(),
	}
}

// Alloc returns n bytes of zeroed memory outside the Go heap. The caller frees it with
// [Free]. Alloc may be called concurrently. It fails if n is not positive. If the system
// has no memory left, the error wraps [ErrNoMemory].
func Alloc(n int) (Block, error) {
	if n <= 0 {
		return Block{}, fmt.Errorf("offheap: allocating %d bytes: length must be positive", n)
	}
	if n > math.MaxInt-4*pageSize {
		return Block{}, fmt.Errorf("offheap: allocating %d bytes: %w", n, ErrNoMemory)
	}
	b, err := alloc(n)
	if err != nil {
		return Block{}, fmt.Errorf("offheap: allocating %d bytes: %w: %w", n, ErrNoMemory, err)
	}
	if invariants.Enabled {
		recordAlloc(&b)
	}
	stats.allocs.Add(1)
	stats.liveBytes.Add(int64(b.cap))
	return b, nil
}

// Free frees b and sets it to the zero Block. It does nothing for the zero Block. All
// slices of the block's memory and all copies of b are invalid afterwards: freeing a copy
// corrupts memory in a normal build and panics under invariants. Free may be called
// concurrently.
func Free(b *Block) {
	if b.ptr == nil {
		return
	}
	if invariants.Enabled {
		recordFree(*b)
	}
	stats.frees.Add(1)
	stats.liveBytes.Add(-int64(b.cap))
	release(*b)
	*b = Block{}
}

// roundUp returns the smallest multiple of unit, a power of two, that is at
// least n.
func roundUp(n, unit int) int { return (n + unit - 1) &^ (unit - 1) }
