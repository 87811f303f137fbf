//go:build cuda || metal || accel

package residency

import (
	"math"
	"math/bits"
)

const (
	// quantum divides the sizes of larger blocks.
	quantum = 4 << 10
	// classes is the number of sizes per power of two, so that a block is at most an
	// eighth larger than the request.
	classes = 8
	// While there is memory, an idle block serves a request if the block is at most loose
	// times as large as the request, or at most littleWaste bytes larger.
	loose       = 4
	littleWaste = 1 << 20
)

// exactSize rounds the size of a weight, which keeps its block for long: up to 4 KiB to
// powers of two, above that to multiples of 4 KiB. A size that would overflow is returned
// unchanged.
func exactSize(n int) int {
	switch {
	case n <= 256:
		return 256
	case n <= quantum:
		return 1 << bits.Len(uint(n-1))
	}
	return roundUp(n, quantum)
}

// classSize rounds the size of an activation so that nearby sizes share blocks. Above
// 32 KiB there are 8 sizes per power of two.
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
