//go:build (darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows) && !race

package offheap

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// The functions of this file are called only if invariants.Enabled.

const (
	// maxGuarded bounds the blocks with guard pages, live or in quarantine. Each costs
	// two kernel mappings, and Linux allows a process 65530 of them.
	maxGuarded = 8192

	// quarantined is the number of freed guarded blocks whose addresses stay
	// inaccessible.
	quarantined = 256
)

var guards struct {
	taken atomic.Int64 // guarded blocks, live or in quarantine

	mu         sync.Mutex
	quarantine []Block // oldest first
}

// takeGuard reserves one of the maxGuarded blocks. It returns false if none is left.
func takeGuard() bool {
	if guards.taken.Add(1) <= maxGuarded {
		return true
	}
	guards.taken.Add(-1)
	return false
}

func returnGuard() { guards.taken.Add(-1) }

// allocGuarded maps a block between inaccessible pages. A small block ends at the second
// one.
func allocGuarded(n int) (ptr unsafe.Pointer, capacity int, err error) {
	if n >= LargeMin {
		capacity = roundUp(n, pageSize)
		ptr, err = mapGuarded(capacity)
		return ptr, capacity, err
	}
	capacity = roundUp(n, Align)
	span := roundUp(n, pageSize)
	if ptr, err = mapGuarded(span); err != nil {
		return nil, 0, err
	}
	return unsafe.Add(ptr, span-capacity), capacity, nil
}

// pages returns the accessible part of a guarded block's mapping.
func (b Block) pages() (unsafe.Pointer, int) {
	span := roundUp(b.cap, pageSize)
	return unsafe.Add(b.ptr, b.cap-span), span
}

// freeGuarded makes b inaccessible and puts it into quarantine. If the quarantine is full,
// freeGuarded unmaps its oldest block.
func freeGuarded(b Block) {
	revokePages(b.pages())
	guards.mu.Lock()
	defer guards.mu.Unlock()
	guards.quarantine = append(guards.quarantine, b)
	if len(guards.quarantine) <= quarantined {
		return
	}
	unmapGuarded(guards.quarantine[0].pages())
	guards.quarantine = guards.quarantine[1:]
	returnGuard()
}
