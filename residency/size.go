//go:build cuda || metal || accel

package residency

import (
	"math"
	"math/bits"
)

const (
	// quantum is what larger blocks are a multiple of.
	quantum = 4 << 10
	// classes is the number of sizes per power of two, so that a block is at most an
	// eighth larger than the request.
	classes = 8
	// An idle block that serves a smaller request, before another one is allocated,
	// is at most loose times as large as the request, or littleWaste larger.
	loose       = 4
	littleWaste = 1 << 20
)

// exactSize rounds the size of a weight, which keeps its block for long: to powers of
// two up to 4 KiB, to multiples of 4 KiB above. A size too large to be rounded, which
// no device has, stays.
func exactSize(n int) int {
	switch {
	case n <= 256:
		return 256
	case n <= quantum:
		return 1 << bits.Len(uint(n-1))
	}
	return roundUp(n, quantum)
}

// classSize rounds the size of an activation so that nearby sizes share blocks:
// above 32 KiB there are 8 sizes per power of two.
func classSize(n int) int {
	if n <= classes*quantum {
		return exactSize(n)
	}
	return roundUp(n, 1<<(bits.Len(uint(n-1))-1)/classes)
}

func roundUp(n, step int) int {
	if n > math.MaxInt-step {
		return n
	}
	return (n + step - 1) / step * step
}
