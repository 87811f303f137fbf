// Package fma32 has the fused multiplication and addition of f32 in plain Go.
package fma32

import "math"

// FMA returns x*y + z, rounded once. It has the bits of the instructions of processors, except
// that a NaN may have other bits.
func FMA(x, y, z float32) float32 {
	// The product is exact in float64. The conversion of the sum rounds a second time, which is
	// wrong only if the rounded sum lies in the middle between two values of f32 and the exact sum
	// does not. Then the last 28 bits are 0, also if the result is subnormal.
	p, c := float64(x)*float64(y), float64(z)
	s := p + c
	if math.Float64bits(s)&(1<<28-1) != 0 {
		return float32(s)
	}
	return float32(odd(s, p, c))
}

// odd returns p+c, which is s when rounded to the nearest, rounded to odd instead.
func odd(s, p, c float64) float64 {
	if math.IsInf(s, 0) || s != s || math.IsInf(p, 0) {
		return s
	}
	// e is the exact error of s.
	b := s - p
	e := (p - (s - b)) + (c - b)
	if e != 0 && math.Float64bits(s)&1 == 0 {
		// The exact sum is not a float64: take the neighbour towards it, which is odd.
		if (e > 0) == (s > 0) {
			s = math.Float64frombits(math.Float64bits(s) + 1)
		} else {
			s = math.Float64frombits(math.Float64bits(s) - 1)
		}
	}
	return s
}
