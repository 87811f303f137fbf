package quant

// encodeTQ1_0 scales the largest magnitude to 1. decodeTQ1_0 describes the layout.
func encodeTQ1_0(dst []byte, b block) error {
	x, inv := (*[256]float32)(b.x), inverse(b.amax)
	for j := range 32 {
		dst[j] = packTrits(x, inv, j, 32, 5)
	}
	for j := range 16 {
		dst[32+j] = packTrits(x, inv, 160+j, 16, 5)
	}
	for j := range 4 {
		dst[48+j] = packTrits(x, inv, 240+j, 4, 4)
	}
	return putHalf(dst[52:], b.amax)
}

// packTrits encodes n values, stride apart, as base-3 digits of a number below 243, the
// first as the most significant digit. It returns the number times 256/243, rounded up.
func packTrits(x *[256]float32, inv float32, first, stride, n int) uint8 {
	q := uint16(0)
	for i := range n {
		q = q*3 + trit(x[first+i*stride]*inv)
	}
	if n == 4 {
		q *= 3
	}
	return uint8((q*256 + 242) / 243)
}

func trit(v float32) uint16 { return uint16(roundAway(v) + 1) }

// encodeTQ2_0 scales the largest magnitude to 1. decodeTQ2_0 describes the layout.
func encodeTQ2_0(dst []byte, b block) error {
	inv := inverse(b.amax)
	for g := range 2 {
		x, codes := (*[128]float32)(b.x[128*g:]), (*[32]byte)(dst[32*g:])
		for j := range codes {
			codes[j] = uint8(trit(x[j]*inv) | trit(x[j+32]*inv)<<2 |
				trit(x[j+64]*inv)<<4 | trit(x[j+96]*inv)<<6)
		}
	}
	return putHalf(dst[64:], b.amax)
}
