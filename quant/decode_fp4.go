package quant

import "math"

// The FP4 formats have E2M1 codes and one scale byte per block. The tables hold twice the
// value of a code, so that the levels are integers, and half the value of a scale.

// e8m0Half returns half the value of an E8M0 scale byte: 2^(e-128). Bytes 0 and 1 give f32
// subnormals. Byte 255 is a NaN (OCP Microscaling 1.0, section 5.4.1), which ggml does not
// check for.
func e8m0Half(e uint8) float32 {
	switch {
	case e == 0xff:
		return float32(math.NaN())
	case e < 2:
		return math.Float32frombits(0x00200000 << e)
	}
	return math.Float32frombits(uint32(e-1) << 23)
}

// ue4m3Half has half the value of every unsigned E4M3 scale byte. The bias is 7, and bit 7
// is ignored. As in ggml, the NaN code 0x7f is zero.
var ue4m3Half = func() (t [256]float32) {
	for c := range t {
		if c != 0x7f {
			t[c] = math.Float32frombits(uint32(c&0x7f)<<20) * 0x1p119
		}
	}
	return t
}()

// decodeMXFP4: one E8M0 scale per 32 elements.
func decodeMXFP4(dst []float32, src []byte) {
	for ; len(dst) >= 32 && len(src) >= 17; dst, src = dst[32:], src[17:] {
		decodeLevels((*[32]float32)(dst), e8m0Half(src[0]), (*[16]byte)(src[1:]), &fp4Levels)
	}
}

// decodeNVFP4: four UE4M3 scales, then per 16 elements 8 bytes with element j in the
// low half of byte j and element j+8 in its high half.
func decodeNVFP4(dst []float32, src []byte) {
	for ; len(dst) >= 64 && len(src) >= 36; dst, src = dst[64:], src[36:] {
		y, b := (*[64]float32)(dst), (*[36]byte)(src)
		for g, scale := range b[:4] {
			d := ue4m3Half[scale]
			codes := (*[8]byte)(b[4+8*g:])
			out := (*[16]float32)(y[16*g:])
			for j, q := range codes {
				out[j] = d * float32(fp4Levels[q&15])
				out[j+8] = d * float32(fp4Levels[q>>4])
			}
		}
	}
}
