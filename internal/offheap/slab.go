//go:build (darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows) && !race

package offheap

import (
	"fmt"
	"math/bits"
	"sync"
	"unsafe"

	"github.com/fucina-go/fucina/internal/invariants"
)

const (
	minClassShift = 6 // 64 bytes, the alignment
	numClasses    = 9 // 64 bytes to 16 KiB

	// slabBytes is the size of a slab: 16 cells of the largest class.
	slabBytes = 256 << 10
)

// class is the free list of the cells of one size.
type class struct {
	mu   sync.Mutex
	size int
	// free is a stack outside the cells, so that a write to a freed cell cannot corrupt
	// it.
	free []unsafe.Pointer
	// rest is the part of the newest slab that was never handed out. It is zero.
	rest      unsafe.Pointer
	restBytes int
}

var classes = func() (cs [numClasses]class) {
	for i := range cs {
		cs[i].size = classSize(i)
	}
	return
}()

// classOf returns the class of a block of n bytes, 0 < n <= 16 KiB.
func classOf(n int) int { return max(bits.Len(uint(n-1))-minClassShift, 0) }

func classSize(i int) int { return 1 << (minClassShift + i) }

// take returns a cell whose first n bytes are zero.
func (c *class) take(n int) (unsafe.Pointer, error) {
	c.mu.Lock()
	if last := len(c.free) - 1; last >= 0 {
		p := c.free[last]
		c.free = c.free[:last]
		c.mu.Unlock()
		if invariants.Enabled {
			if i := unpoisoned(unsafe.Slice((*byte)(p), c.size)); i >= 0 {
				panic(fmt.Sprintf("offheap: byte %d of the freed %d-byte cell at %p was written after its release", i, c.size, p))
			}
		}
		clear(unsafe.Slice((*byte)(p), n))
		return p, nil
	}
	defer c.mu.Unlock()
	if c.restBytes == 0 {
		p, err := mapPages(slabBytes)
		if err != nil {
			return nil, err
		}
		stats.slabBytes.Add(slabBytes)
		c.rest, c.restBytes = p, slabBytes
	}
	p := c.rest
	c.restBytes -= c.size
	if c.restBytes == 0 {
		c.rest = nil
	} else {
		c.rest = unsafe.Add(p, c.size)
	}
	return p, nil
}

// give takes a cell back.
func (c *class) give(p unsafe.Pointer) {
	if invariants.Enabled {
		Poison(unsafe.Slice((*byte)(p), c.size))
	}
	c.mu.Lock()
	c.free = append(c.free, p)
	c.mu.Unlock()
}
