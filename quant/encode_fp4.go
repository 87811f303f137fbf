package quant

import "math"

// encodeMXFP4 picks the power of two that brings the largest magnitude into the
// binade of the largest code. Magnitudes below 2^-125 get the smallest scale, where
// ggml converts a negative number to a byte, which C does not define.
func encodeMXFP4(dst []byte, b *block) error {
	e := uint8(0)
	if b.amax >= 0x1p-125 {
		// As ggml does, take the floor of a logarithm that is rounded to f32: just
		// below a power of two it may be that of the power.
		log := float32(math.Log2(float64(b.amax)))
		e = uint8(int(math.Floor(float64(log))) - 2 + 127)
	}
	dst[0] = e
	levels := fp4Multiples(e8m0Half(e))
	x := (*[32]float32)(b.x)
	for j := range 16 {
		dst[1+j] = fp4Code(x[j], &levels) | fp4Code(x[j+16], &levels)<<4
	}
	return nil
}

// encodeNVFP4 scales the largest magnitude of 16 to the largest code, 6, as nearly
// as a scale of 3 mantissa bits can. The scale saturates at 448.
func encodeNVFP4(dst []byte, b *block) error {
	for g := range 4 {
		x, codes := (*[16]float32)(b.x[16*g:]), (*[8]byte)(dst[4+8*g:])
		scale := ue4m3FromFloat32(maxAbs(x[:]) / 6)
		dst[g] = scale
		levels := fp4Multiples(ue4m3Half[scale])
		for j := range codes {
			codes[j] = fp4Code(x[j], &levels) | fp4Code(x[j+8], &levels)<<4
		}
	}
	return nil
}

// ue4m3FromFloat32 rounds x, which is not negative, to unsigned E4M3, halves up. As in
// ggml, the binade of 256 has only its largest value, 448.
func ue4m3FromFloat32(x float32) uint8 {
	if x < 0x1p-6 {
		return uint8(min(7, int32(float32(x*512)+0.5)))
	}
	// Adding half of the last kept bit rounds the encoding itself; the carry may run
	// into the exponent. The biases of the exponents differ by 120.
	c := (math.Float32bits(x)+1<<19)>>20 - 120<<3
	if c >= 15<<3 {
		return 0x7e
	}
	return uint8(c)
}

// fp4Multiples returns d times the positive levels.
func fp4Multiples(d float32) (levels [8]float32) {
	for i := range levels {
		levels[i] = d * float32(fp4Levels[i])
	}
	return levels
}

// fp4Code returns the code of the level nearest to v, the first of equals.
func fp4Code(v float32, levels *[8]float32) uint8 {
	a := magnitude(v)
	best, code := a, uint8(0)
	for i := uint8(1); i < 8; i++ {
		if diff := magnitude(levels[i] - a); diff < best {
			best, code = diff, i
		}
	}
	if v < 0 && code != 0 {
		code |= 8
	}
	return code
}
