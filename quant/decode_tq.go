package quant

// The value of an element in the ternary formats is d * (q - 1) with q 0, 1 or 2.

// trits writes digit n (0 the most significant) of each byte's five base-3 digits.
// A byte holds them as the fraction byte/256, rounded up, so that digit n is the
// integer part of 3 * frac(byte * 3^n / 256).
func trits(dst []float32, d float32, codes []byte, n int) {
	levels := [3]float32{-d, 0 * d, d}
	power := [5]uint8{1, 3, 9, 27, 81}[n]
	codes = codes[:len(dst)]
	for j := range dst {
		dst[j] = levels[uint16(codes[j]*power)*3>>8]
	}
}

// decodeTQ1_0: 32 bytes with 5 runs of 32 elements, 16 bytes with 5 runs of 16, and
// 4 bytes with 4 runs of 4.
func decodeTQ1_0(dst []float32, src []byte) {
	for ; len(dst) >= 256 && len(src) >= 54; dst, src = dst[256:], src[54:] {
		d := half(src[52:])
		for n := range 5 {
			trits(dst[32*n:32*n+32], d, src[:32], n)
			trits(dst[160+16*n:160+16*n+16], d, src[32:48], n)
		}
		for n := range 4 {
			trits(dst[240+4*n:240+4*n+4], d, src[48:52], n)
		}
	}
}

// decodeTQ2_0: a run of 32 bytes holds 4 runs of 32 elements, 2 bits each. No encoder
// writes the fourth code, whose value is 2*d.
func decodeTQ2_0(dst []float32, src []byte) {
	for ; len(dst) >= 256 && len(src) >= 66; dst, src = dst[256:], src[66:] {
		y, b := (*[256]float32)(dst), (*[66]byte)(src)
		d := half(b[64:])
		levels := [4]float32{-d, 0 * d, d, 2 * d}
		for g := range 2 {
			codes := (*[32]byte)(b[32*g:])
			out := (*[128]float32)(y[128*g:])
			for j, q := range codes {
				out[j] = levels[q&3]
				out[j+32] = levels[q>>2&3]
				out[j+64] = levels[q>>4&3]
				out[j+96] = levels[q>>6]
			}
		}
	}
}
