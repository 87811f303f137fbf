package simd

import "github.com/fucina-go/fucina/internal/isa"

// Peak multiplies integers of 8 bits in registers, with the instructions that the tiles of the level
// have, and returns how many multiplications and additions it did: at least least. It is 0 if the
// level has none. Benchmarks compare Panel with the time that it takes.
func Peak(level isa.Level, least int) (ops int) {
	const rounds = 1000
	f, each := peak(level)
	if f == nil {
		return 0
	}
	for ; ops < least; ops += rounds * each {
		f(rounds)
	}
	return ops
}
