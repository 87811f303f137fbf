//go:build amd64 && !noasm

package simd

import "github.com/fucina-go/fucina/internal/isa"

// peak returns a function of n rounds of 12 products of registers, and the multiplications and
// additions of a round. A call of 1000 rounds takes about 5 us.
func peak(level isa.Level) (round func(n int), ops int) {
	switch {
	case level >= isa.AVX512:
		return peak512, 12 * 128
	case level == isa.AVXVNNI:
		return peakAVXVNNI, 12 * 64
	case level == isa.AVX2:
		return peakAVX2, 12 * 64
	}
	return nil, 0
}
