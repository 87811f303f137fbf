package offheap

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/fucina-go/fucina/internal/invariants"
)

// Except for Poison, the functions of this file are called only if invariants.Enabled.

const (
	// poisonByte fills memory that must not be read. As a float16, bfloat16, float32 or
	// float64 pattern it is a large negative number, because a maximum could drop a NaN.
	poisonByte = 0xDB

	// freedKept is the number of latest releases whose stacks are kept.
	freedKept = 4096
)

// stack is a call stack, cheap to take and slow to print.
type stack struct {
	pcs [24]uintptr
	n   int
}

func (s *stack) capture() {
	// Skips runtime.Callers, capture and the recording function.
	s.n = runtime.Callers(3, s.pcs[:])
}

func (s *stack) String() string {
	var b strings.Builder
	frames := runtime.CallersFrames(s.pcs[:s.n])
	for {
		f, more := frames.Next()
		if f.Function != "" {
			fmt.Fprintf(&b, "\t%s\n\t\t%s:%d\n", f.Function, f.File, f.Line)
		}
		if !more {
			return b.String()
		}
	}
}

type record struct {
	block           Block
	allocated, free stack
}

var debug struct {
	mu     sync.Mutex
	lastID uint64
	live   map[uint64]*record // by id
	freed  map[uint64]*record // the latest releases, by id
	order  []uint64           // ids of freed, oldest first
}

// recordAlloc numbers b, records the stack of the allocation, and poisons the bytes after
// the block's length.
func recordAlloc(b *Block) {
	r := &record{}
	r.allocated.capture()
	Poison(b.slack())

	debug.mu.Lock()
	defer debug.mu.Unlock()
	if debug.live == nil {
		debug.live = make(map[uint64]*record)
		debug.freed = make(map[uint64]*record)
	}
	debug.lastID++
	b.id = debug.lastID
	r.block = *b
	r.block.ptr = nil // the record must not keep a leaked Go heap block reachable
	debug.live[b.id] = r
}

// recordFree panics unless b is live and intact, and records the stack of the release.
func recordFree(b Block) {
	debug.mu.Lock()
	defer debug.mu.Unlock()
	r := debug.live[b.id]
	if r == nil {
		if r = debug.freed[b.id]; r != nil {
			panic(fmt.Sprintf("offheap: double free of %d bytes at %p\nfirst freed at\n%sallocated at\n%s",
				b.n, b.ptr, &r.free, &r.allocated))
		}
		panic(fmt.Sprintf("offheap: free of %d bytes at %p that are not allocated", b.n, b.ptr))
	}
	if i := unpoisoned(b.slack()); i >= 0 {
		panic(fmt.Sprintf("offheap: byte %d of the %d-byte block at %p was written, past its end\nallocated at\n%s",
			b.n+i, b.n, b.ptr, &r.allocated))
	}
	delete(debug.live, b.id)
	r.free.capture()
	debug.freed[b.id] = r
	debug.order = append(debug.order, b.id)
	if len(debug.order) > freedKept {
		delete(debug.freed, debug.order[0])
		debug.order = debug.order[1:]
	}
}

// Leaks describes every live block, oldest first: its size and the stack that
// allocated it. It returns nil in builds without the tag invariants.
func Leaks() []string {
	if !invariants.Enabled {
		return nil
	}
	debug.mu.Lock()
	defer debug.mu.Unlock()
	var out []string
	for _, id := range slices.Sorted(maps.Keys(debug.live)) {
		r := debug.live[id]
		out = append(out, fmt.Sprintf("%d bytes allocated at\n%s", r.block.n, &r.allocated))
	}
	return out
}

// slack returns the bytes between the block's length and its capacity.
func (b Block) slack() []byte { return unsafe.Slice((*byte)(b.ptr), b.cap)[b.n:] }

// Poison fills p with a pattern that shows that the memory must not be read.
func Poison(p []byte) {
	for i := range p {
		p[i] = poisonByte
	}
}

// unpoisoned returns the index of the first byte that is not poisonByte, or -1.
func unpoisoned(p []byte) int {
	return slices.IndexFunc(p, func(c byte) bool { return c != poisonByte })
}
