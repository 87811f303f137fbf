package simd

import (
	"encoding/binary"
	"math"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/quant"
)

// DotSuper returns the product of a row w of a format with super-blocks and a row of activations,
// whose stretches have one scale and are stride bytes apart.
func DotSuper(d dtype.DType, w, act []byte, stride int, order *Order) (sum float32) {
	for i := 0; len(w) > 0; i++ {
		var s quant.Super
		s.Set(d, w[:d.Size()])
		w = w[d.Size():]
		a := act[i*stride:][:ActBytes]
		var dot, mins int32
		for g := range 16 {
			var part, codes int32
			at := a[32*int(order[g/2])+g%2*16:][:16]
			for j, c := range at {
				part += int32(s.Codes[16*g+j]) * int32(int8(c))
				codes += int32(int8(c))
			}
			dot += int32(s.Scales[g]) * part
			mins += int32(s.Mins[g]) * codes
		}
		t := s.D * float32(dot)
		if hasMins(d) {
			t = fma(-s.DMin, float32(mins), t)
		}
		sum = fma(f32(a[actScale:]), t, sum)
	}
	return sum
}

// hasMins reports whether the blocks of a format with super-blocks have minima.
func hasMins(d dtype.DType) bool { return d == dtype.Q2_K || d == dtype.Q4_K || d == dtype.Q5_K }

// DotSmall returns the product of a row w of a format with small blocks and a row of activations,
// whose stretches have one scale for 32 activations and are stride bytes apart.
func DotSmall(d dtype.DType, w, act []byte, stride int) (sum float32) {
	var part float32
	n := 0 // blocks of 32 so far
	for ; len(w) > 0; w = w[d.Size():] {
		var list [4]quant.Small
		blocks := list[:d.BlockSize()/32]
		quant.SetSmall(blocks, d, w[:d.Size()])
		for i := range blocks {
			a := act[n/8*stride:][:ActBytes]
			part += small(d, &blocks[i], a[n%8*32:][:32], f32(a[actScales+n%8*4:]))
			if n++; n%8 == 0 {
				sum += part
				part = 0
			}
		}
	}
	if n%8 != 0 {
		sum += part
	}
	return sum
}

// small returns the product of a block and activations with the scale dAct.
func small(d dtype.DType, s *quant.Small, act []byte, dAct float32) float32 {
	var dot [2]int32
	var codes int32
	for i, c := range act {
		dot[i/16] += int32(s.Codes[i]) * int32(int8(c))
		codes += int32(int8(c))
	}
	switch d {
	case dtype.Q4_1, dtype.Q5_1:
		return dAct * fma(s.M, float32(codes), float32(s.D[0]*float32(dot[0]+dot[1])))
	case dtype.NVFP4:
		return dAct * fma(s.D[1], float32(dot[1]), float32(s.D[0]*float32(dot[0])))
	}
	return float32(s.D[0]*dAct) * float32(dot[0]+dot[1])
}

func f32(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }

// fma returns x*y + z, rounded once to f32. The product is exact in float64. The sum is rounded to
// odd there, so that the second rounding, to f32, is right.
func fma(x, y, z float32) float32 {
	p, c := float64(x)*float64(y), float64(z)
	s := p + c
	if math.IsInf(s, 0) || s != s || math.IsInf(p, 0) {
		return float32(s)
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
	return float32(s)
}
