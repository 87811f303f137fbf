package quant

import "encoding/binary"

// These formats have one scale per block of 32, 64 or 128 elements. In those of 4 and 5 bits,
// byte j of the codes holds element j in its low half and element j+16 in its high half.

// decodeQ1_0: d where the bit is set, -d where it is not.
func decodeQ1_0(dst []float32, src []byte) {
	for ; len(dst) >= 128 && len(src) >= 18; dst, src = dst[128:], src[18:] {
		y, b := (*[128]float32)(dst), (*[18]byte)(src)
		d := half(b[0:])
		pair := [2]float32{-d, d}
		for i, q := range b[2:] {
			out := (*[8]float32)(y[8*i:])
			for j := range out {
				out[j] = pair[q>>j&1]
			}
		}
	}
}

// decodeQ2_0: d * (q - 1), four codes per byte from the low bits up.
func decodeQ2_0(dst []float32, src []byte) {
	for ; len(dst) >= 128 && len(src) >= 34; dst, src = dst[128:], src[34:] {
		decodeQ2(dst[:128], half(src), src[2:34])
	}
}

// decodeQ2_0_G64 is Q2_0 with groups of 64.
func decodeQ2_0_G64(dst []float32, src []byte) {
	for ; len(dst) >= 64 && len(src) >= 18; dst, src = dst[64:], src[18:] {
		decodeQ2(dst[:64], half(src), src[2:18])
	}
}

func decodeQ2(dst []float32, d float32, codes []byte) {
	levels := [4]float32{-d, 0 * d, d, 2 * d}
	for i, q := range codes {
		y := (*[4]float32)(dst[4*i:])
		y[0] = levels[q&3]
		y[1] = levels[q>>2&3]
		y[2] = levels[q>>4&3]
		y[3] = levels[q>>6]
	}
}

// decodeQ4_0: d * (q - 8).
func decodeQ4_0(dst []float32, src []byte) {
	for ; len(dst) >= 32 && len(src) >= 18; dst, src = dst[32:], src[18:] {
		y, b := (*[32]float32)(dst), (*[18]byte)(src)
		d := half(b[0:])
		for j, q := range b[2:] {
			y[j] = d * float32(int(q&15)-8)
			y[j+16] = d * float32(int(q>>4)-8)
		}
	}
}

// decodeQ4_1: d*q + m.
func decodeQ4_1(dst []float32, src []byte) {
	for ; len(dst) >= 32 && len(src) >= 20; dst, src = dst[32:], src[20:] {
		y, b := (*[32]float32)(dst), (*[20]byte)(src)
		d, m := half(b[0:]), half(b[2:])
		for j, q := range b[4:] {
			y[j] = float32(d*float32(q&15)) + m
			y[j+16] = float32(d*float32(q>>4)) + m
		}
	}
}

// decodeQ5_0: d * (q - 16). Bit j of the four high-bit bytes is bit 4 of code j.
func decodeQ5_0(dst []float32, src []byte) {
	for ; len(dst) >= 32 && len(src) >= 22; dst, src = dst[32:], src[22:] {
		y, b := (*[32]float32)(dst), (*[22]byte)(src)
		d, high := half(b[0:]), binary.LittleEndian.Uint32(b[2:])
		for j, q := range b[6:] {
			y[j] = d * float32(int(uint32(q&15)|high>>j&1<<4)-16)
			y[j+16] = d * float32(int(uint32(q>>4)|high>>(j+16)&1<<4)-16)
		}
	}
}

// decodeQ5_1: d*q + m, with the high bits of Q5_0.
func decodeQ5_1(dst []float32, src []byte) {
	for ; len(dst) >= 32 && len(src) >= 24; dst, src = dst[32:], src[24:] {
		y, b := (*[32]float32)(dst), (*[24]byte)(src)
		d, m, high := half(b[0:]), half(b[2:]), binary.LittleEndian.Uint32(b[4:])
		for j, q := range b[8:] {
			y[j] = float32(d*float32(uint32(q&15)|high>>j&1<<4)) + m
			y[j+16] = float32(d*float32(uint32(q>>4)|high>>(j+16)&1<<4)) + m
		}
	}
}

// decodeQ8_0: d * q.
func decodeQ8_0(dst []float32, src []byte) {
	for ; len(dst) >= 32 && len(src) >= 34; dst, src = dst[32:], src[34:] {
		decodeBytes(dst[:32], half(src), src[2:34])
	}
}

// decodeQ8_1 is Q8_0 with a block sum between the scale and the codes.
func decodeQ8_1(dst []float32, src []byte) {
	for ; len(dst) >= 32 && len(src) >= 36; dst, src = dst[32:], src[36:] {
		decodeBytes(dst[:32], half(src), src[4:36])
	}
}

func decodeBytes(dst []float32, d float32, codes []byte) {
	codes = codes[:len(dst)]
	for j := range dst {
		dst[j] = d * float32(int8(codes[j]))
	}
}
