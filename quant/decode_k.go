package quant

import (
	"encoding/binary"
	"math"
)

// The K-quants have super-blocks of 256 elements with quantized scales, one per 16 or 32
// elements.

// decodeQ2_K: (d*scale)*q - dmin*min per 16 elements, with 4-bit scale and min in
// one byte. A run of 32 code bytes holds 4 runs of 32 elements, 2 bits each.
func decodeQ2_K(dst []float32, src []byte) {
	for ; len(dst) >= 256 && len(src) >= 84; dst, src = dst[256:], src[84:] {
		y, b := (*[256]float32)(dst), (*[84]byte)(src)
		d, dmin := half(b[80:]), half(b[82:])
		for part := range 4 {
			// Half of a run of code bytes has 16 elements of each of 4 groups.
			first := part/2*8 + part%2
			var dl, ml [4]float32
			for k := range 4 {
				s := b[first+2*k]
				dl[k], ml[k] = d*float32(s&15), float32(dmin*float32(s>>4))
			}
			codes := (*[16]byte)(b[16+16*part:])
			out := (*[112]float32)(y[16*first:])
			for j, q := range codes {
				out[j] = float32(dl[0]*float32(q&3)) - ml[0]
				out[j+32] = float32(dl[1]*float32(q>>2&3)) - ml[1]
				out[j+64] = float32(dl[2]*float32(q>>4&3)) - ml[2]
				out[j+96] = float32(dl[3]*float32(q>>6)) - ml[3]
			}
		}
	}
}

// decodeQ3_K: (d * (scale-32)) * q per 16 elements. The codes lie as in Q2_K; the
// high-bit mask holds, for byte l and bit k, the third bit of element 32*k + l,
// where a set bit means that 4 is not subtracted.
func decodeQ3_K(dst []float32, src []byte) {
	for ; len(dst) >= 256 && len(src) >= 110; dst, src = dst[256:], src[110:] {
		y, b := (*[256]float32)(dst), (*[110]byte)(src)
		d := half(b[108:])
		packed := (*[12]byte)(b[96:])
		for part := range 4 {
			first := part/2*8 + part%2
			var dl [4]float32
			for k := range 4 {
				// The first 8 bytes have the four low bits of each scale, the rest the two
				// high bits.
				g := first + 2*k
				s := packed[g%8]>>(g/8*4)&15 | packed[8+g%4]>>(g/4*2)&3<<4
				dl[k] = d * float32(int(s)-32)
			}
			high := (*[16]byte)(b[part%2*16:])
			codes := (*[16]byte)(b[32+16*part:])
			out := (*[112]float32)(y[16*first:])
			for j, q := range codes {
				h := high[j] >> (part / 2 * 4)
				out[j] = dl[0] * float32(int(q&3|h&1<<2)-4)
				out[j+32] = dl[1] * float32(int(q>>2&3|h>>1&1<<2)-4)
				out[j+64] = dl[2] * float32(int(q>>4&3|h>>2&1<<2)-4)
				out[j+96] = dl[3] * float32(int(q>>6|h>>3&1<<2)-4)
			}
		}
	}
}

// scaleMin unpacks 6-bit scale and min j of the 8 pairs in the 12 bytes of Q4_K and
// Q5_K: pairs 0 to 3 lie in the low 6 bits of bytes j and j+4; of pairs 4 to 7, the
// low 4 bits share byte j+4 and the high 2 bits top up bytes j-4 and j.
func scaleMin(p *[12]byte, j int) (scale, min uint8) {
	if j < 4 {
		return p[j] & 63, p[j+4] & 63
	}
	return p[j+4]&15 | p[j-4]>>6<<4, p[j+4]>>4 | p[j]>>6<<4
}

// decodeQ4_K: (d*scale)*q - dmin*min per 32 elements. A run of 32 code bytes holds
// 32 elements in its low halves and the next 32 in its high halves.
func decodeQ4_K(dst []float32, src []byte) {
	for ; len(dst) >= 256 && len(src) >= 144; dst, src = dst[256:], src[144:] {
		y, b := (*[256]float32)(dst), (*[144]byte)(src)
		d, dmin := half(b[0:]), half(b[2:])
		packed := (*[12]byte)(b[4:])
		for g := range 4 {
			scale0, min0 := scaleMin(packed, 2*g)
			scale1, min1 := scaleMin(packed, 2*g+1)
			d0, m0 := d*float32(scale0), float32(dmin*float32(min0))
			d1, m1 := d*float32(scale1), float32(dmin*float32(min1))
			codes := (*[32]byte)(b[16+32*g:])
			out := (*[64]float32)(y[64*g:])
			for j, q := range codes {
				out[j] = float32(d0*float32(q&15)) - m0
				out[j+32] = float32(d1*float32(q>>4)) - m1
			}
		}
	}
}

// decodeQ5_K is Q4_K with a fifth bit: bit g of high byte j belongs to element
// 32*g + j.
func decodeQ5_K(dst []float32, src []byte) {
	for ; len(dst) >= 256 && len(src) >= 176; dst, src = dst[256:], src[176:] {
		y, b := (*[256]float32)(dst), (*[176]byte)(src)
		d, dmin := half(b[0:]), half(b[2:])
		packed, high := (*[12]byte)(b[4:]), (*[32]byte)(b[16:])
		for g := range 4 {
			scale0, min0 := scaleMin(packed, 2*g)
			scale1, min1 := scaleMin(packed, 2*g+1)
			d0, m0 := d*float32(scale0), float32(dmin*float32(min0))
			d1, m1 := d*float32(scale1), float32(dmin*float32(min1))
			codes := (*[32]byte)(b[48+32*g:])
			out := (*[64]float32)(y[64*g:])
			for j, q := range codes {
				h := high[j] >> (2 * g)
				out[j] = float32(d0*float32(q&15|h&1<<4)) - m0
				out[j+32] = float32(d1*float32(q>>4|h>>1&1<<4)) - m1
			}
		}
	}
}

// decodeQ6_K: (d*scale) * (q-32) with an int8 scale per 16 elements. In each half of
// the block, 64 low bytes hold 2 runs of 32 elements in their low halves and 2 in
// their high halves, and 32 high bytes hold 2 bits of each of the 4 runs.
func decodeQ6_K(dst []float32, src []byte) {
	for ; len(dst) >= 256 && len(src) >= 210; dst, src = dst[256:], src[210:] {
		y, b := (*[256]float32)(dst), (*[210]byte)(src)
		d := half(b[208:])
		for part := range 4 {
			first := part/2*8 + part%2
			var dl [4]float32
			for k := range 4 {
				dl[k] = d * float32(int8(b[192+first+2*k]))
			}
			low := (*[48]byte)(b[part/2*64+part%2*16:])
			high := (*[16]byte)(b[128+16*part:])
			out := (*[112]float32)(y[16*first:])
			for j, h := range high {
				q0, q1 := low[j], low[j+32]
				out[j] = dl[0] * float32(int(q0&15|h&3<<4)-32)
				out[j+32] = dl[1] * float32(int(q1&15|h>>2&3<<4)-32)
				out[j+64] = dl[2] * float32(int(q0>>4|h>>4&3<<4)-32)
				out[j+96] = dl[3] * float32(int(q1>>4|h>>6<<4)-32)
			}
		}
	}
}

// decodeQ8_K: d * q with an f32 d. The sums of 16 codes that follow are for dot
// products.
func decodeQ8_K(dst []float32, src []byte) {
	for ; len(dst) >= 256 && len(src) >= 292; dst, src = dst[256:], src[292:] {
		d := math.Float32frombits(binary.LittleEndian.Uint32(src))
		decodeBytes(dst[:256], d, src[4:260])
	}
}
