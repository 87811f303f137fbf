package quant

import "math"

// encodeMXFP4 chooses the power of two that brings the largest magnitude into the binade
// of the largest code. Magnitudes below 2^-125 get the smallest scale. ggml converts a
// negative number to a byte there, which C does not define.
func encodeMXFP4(dst []byte, b block) error {
	e := uint8(0)
	if b.amax >= 0x1p-125 {
		// As in ggml, the logarithm is rounded to f32 before the floor. Just below a power
		// of two, the result may be that of the power.
		log := float32(math.Log2(float64(b.amax)))
		e = uint8(int(math.Floor(float64(log))) - 2 + 127)
	}
	dst[0] = e
	codes, x := (*[16]byte)(dst[1:]), (*[32]float32)(b.x)
	inv := fp4Inverse(e8m0Half(e))
	for j := range codes {
		codes[j] = fp4Code(x[j], inv) | fp4Code(x[j+16], inv)<<4
	}
	return nil
}

// encodeNVFP4 scales the largest magnitude of 16 to the largest code, 6, as nearly
// as a scale of 3 mantissa bits can. The scale saturates at 448.
func encodeNVFP4(dst []byte, b block) error {
	for g := range 4 {
		x, codes := (*[16]float32)(b.x[16*g:]), (*[8]byte)(dst[4+8*g:])
		scale := ue4m3FromFloat32(maxAbs(x[:]) / 6)
		dst[g] = scale
		inv := fp4Inverse(ue4m3Half[scale])
		for j := range codes {
			codes[j] = fp4Code(x[j], inv) | fp4Code(x[j+8], inv)<<4
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
	// Adding half of the last kept bit rounds the encoding. The carry may increase the
	// exponent. The biases of the exponents differ by 120.
	c := (math.Float32bits(x)+1<<19)>>20 - 120<<3
	if c >= 15<<3 {
		return 0x7e
	}
	return uint8(c)
}

// fp4Inverse returns the factor for fp4Code, 2/scale, or 0 if scale is 0. The midpoints
// between levels are multiples of scale/2.
func fp4Inverse(scale float32) float64 {
	if scale == 0 {
		return 0
	}
	return 2 / float64(scale)
}

// fp4Code returns the code of the level nearest to v, or of the lower one if two are
// equally near. Adding a little less than one and truncating is a ceiling that tolerates
// the rounding of the product: an f32 that is not a multiple of half the scale is further
// from a multiple than that.
func fp4Code(v float32, inv float64) uint8 {
	b := math.Float32bits(v)
	a := float64(math.Float32frombits(b&magnitudeBits))*inv + (1 - 0x1p-45)
	return fp4Codes[min(uint64(int64(a)), 31)|uint64(b>>31<<5)]
}

// fp4Codes has the code for each sign, in bit 5, and each ceiling of twice a value divided
// by the scale, in the low 5 bits. The code of zero has no sign.
var fp4Codes = func() (t [64]uint8) {
	code := uint8(0)
	for i := range 32 {
		for code < 7 && i > int(fp4Levels[code])+int(fp4Levels[code+1]) {
			code++
		}
		t[i] = code
		if code > 0 {
			t[i+32] = code | 8
		}
	}
	return t
}()
