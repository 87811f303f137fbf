package quant

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// In the IQ formats a code is an index into a grid. An entry of a grid has 8 (or 4)
// magnitudes, one per byte, the first in the lowest byte.

// evenSigns[i] has the 7 sign bits i and an eighth bit that makes the number of set bits
// even. IQ2_XXS, IQ2_XS and IQ3_XXS store only sign patterns of even parity.
var evenSigns = func() (t [128]uint8) {
	for i := range t {
		t[i] = uint8(i | bits.OnesCount(uint(i))&1<<7)
	}
	return t
}()

// signed8 writes d times each byte of grid, negated where the sign bit is set.
func signed8(y *[8]float32, d float32, grid uint64, signs uint8) {
	for j := range y {
		v := d * float32(uint8(grid>>(8*j)))
		y[j] = math.Float32frombits(math.Float32bits(v) ^ uint32(signs>>j)<<31)
	}
}

// delta is the shift of the IQ1 grids. A sign bit says whether it is up or down.
const delta = 0.125

// shifted8 writes d times each signed byte of grid plus or minus delta. The sum is
// exact.
func shifted8(y *[8]float32, d float32, grid uint64, down bool) {
	shift := float32(delta)
	if down {
		shift = -delta
	}
	for j := range y {
		y[j] = d * (float32(int8(grid>>(8*j))) + shift)
	}
}

// decodeIQ2_XXS: per 32 elements, 4 grid indices of a byte, then 32 bits with 4
// sign patterns of 7 bits and a 4-bit scale.
func decodeIQ2_XXS(dst []float32, src []byte) {
	for ; len(dst) >= 256 && len(src) >= 66; dst, src = dst[256:], src[66:] {
		y, b := (*[256]float32)(dst), (*[66]byte)(src)
		d := half(b[0:])
		for g := range 8 {
			index := (*[4]byte)(b[2+8*g:])
			rest := binary.LittleEndian.Uint32(b[6+8*g:])
			dl := d * (0.5 + float32(rest>>28)) * 0.25
			for l, i := range index {
				signed8((*[8]float32)(y[32*g+8*l:]), dl, iq2xxsGrid[i], evenSigns[rest>>(7*l)&127])
			}
		}
	}
}

// decodeIQ2_XS: per 8 elements a 9-bit grid index and 7 sign bits, per 16 elements a
// 4-bit scale.
func decodeIQ2_XS(dst []float32, src []byte) {
	for ; len(dst) >= 256 && len(src) >= 74; dst, src = dst[256:], src[74:] {
		y, b := (*[256]float32)(dst), (*[74]byte)(src)
		d := half(b[0:])
		for l := range 32 {
			scale := b[66+l/4] >> (l % 4 / 2 * 4) & 15
			dl := d * (0.5 + float32(scale)) * 0.25
			q := binary.LittleEndian.Uint16(b[2+2*l:])
			signed8((*[8]float32)(y[8*l:]), dl, iq2xsGrid[q&511], evenSigns[q>>9])
		}
	}
}

// decodeIQ2_S: per 8 elements a 10-bit grid index, its 2 high bits apart, and 8 sign
// bits; scales as in IQ2_XS.
func decodeIQ2_S(dst []float32, src []byte) {
	for ; len(dst) >= 256 && len(src) >= 82; dst, src = dst[256:], src[82:] {
		y, b := (*[256]float32)(dst), (*[82]byte)(src)
		d := half(b[0:])
		for l := range 32 {
			scale := b[74+l/4] >> (l % 4 / 2 * 4) & 15
			dl := d * (0.5 + float32(scale)) * 0.25
			i := int(b[2+l]) | int(b[66+l/4])>>(l%4*2)&3<<8
			signed8((*[8]float32)(y[8*l:]), dl, iq2sGrid[i], b[34+l])
		}
	}
}

// grid4x2 joins two grid entries of 4 into one of 8.
func grid4x2(lo, hi uint32) uint64 { return uint64(lo) | uint64(hi)<<32 }

// decodeIQ3_XXS: per 4 elements a grid index of a byte; per 32 elements, after all
// indices, 32 bits as in IQ2_XXS.
func decodeIQ3_XXS(dst []float32, src []byte) {
	for ; len(dst) >= 256 && len(src) >= 98; dst, src = dst[256:], src[98:] {
		y, b := (*[256]float32)(dst), (*[98]byte)(src)
		d := half(b[0:])
		for g := range 8 {
			index := (*[8]byte)(b[2+8*g:])
			rest := binary.LittleEndian.Uint32(b[66+4*g:])
			dl := d * (0.5 + float32(rest>>28)) * 0.5
			for l := range 4 {
				grid := grid4x2(iq3xxsGrid[index[2*l]], iq3xxsGrid[index[2*l+1]])
				signed8((*[8]float32)(y[32*g+8*l:]), dl, grid, evenSigns[rest>>(7*l)&127])
			}
		}
	}
}

// decodeIQ3_S: per 4 elements a 9-bit grid index, its high bit apart; per 8 elements
// 8 sign bits; per 32 elements a 4-bit scale s that stands for 2s+1.
func decodeIQ3_S(dst []float32, src []byte) {
	for ; len(dst) >= 256 && len(src) >= 110; dst, src = dst[256:], src[110:] {
		y, b := (*[256]float32)(dst), (*[110]byte)(src)
		d := half(b[0:])
		for g := range 8 {
			index, high := (*[8]byte)(b[2+8*g:]), int(b[66+g])
			signs := (*[4]byte)(b[74+4*g:])
			dl := d * float32(1+2*(b[106+g/2]>>(g%2*4)&15))
			for l, s := range signs {
				lo := iq3sGrid[int(index[2*l])|high>>(2*l)&1<<8]
				hi := iq3sGrid[int(index[2*l+1])|high>>(2*l+1)&1<<8]
				signed8((*[8]float32)(y[32*g+8*l:]), dl, grid4x2(lo, hi), s)
			}
		}
	}
}

// decodeIQ1_S: per 8 elements an 11-bit grid index; per 32 elements a word with the
// 4 groups' high index bits, a 3-bit scale s that stands for 2s+1, and the sign of
// delta.
func decodeIQ1_S(dst []float32, src []byte) {
	for ; len(dst) >= 256 && len(src) >= 50; dst, src = dst[256:], src[50:] {
		y, b := (*[256]float32)(dst), (*[50]byte)(src)
		d := half(b[0:])
		for g := range 8 {
			index := (*[4]byte)(b[2+4*g:])
			high := int(binary.LittleEndian.Uint16(b[34+2*g:]))
			dl := d * float32(2*(high>>12&7)+1)
			for l, i := range index {
				shifted8((*[8]float32)(y[32*g+8*l:]), dl, iq1sGrid[int(i)|high>>(3*l)&7<<8], high&0x8000 != 0)
			}
		}
	}
}

// decodeIQ1_M: per 8 elements an 11-bit grid index and the sign of delta, in a byte
// and half a byte; per 16 elements a 3-bit scale as in IQ1_S. Of the four words of
// scales, each holds four of them and, in its top 4 bits, a quarter of d.
func decodeIQ1_M(dst []float32, src []byte) {
	for ; len(dst) >= 256 && len(src) >= 56; dst, src = dst[256:], src[56:] {
		y, b := (*[256]float32)(dst), (*[56]byte)(src)
		packed := binary.LittleEndian.Uint64(b[48:])
		var db [2]byte
		binary.LittleEndian.PutUint16(db[:],
			uint16(packed>>12&15|packed>>28&15<<4|packed>>44&15<<8|packed>>60<<12))
		d := half(db[:])
		for l := range 32 {
			scale := packed >> (l/8*16 + l%8/2*3) & 7
			dl := d * float32(2*scale+1)
			high := int(b[32+l/2] >> (l % 2 * 4))
			shifted8((*[8]float32)(y[8*l:]), dl, iq1sGrid[int(b[l])|high&7<<8], high&8 != 0)
		}
	}
}

// decodeIQ4_NL: d times one of 16 uneven levels.
func decodeIQ4_NL(dst []float32, src []byte) {
	for ; len(dst) >= 32 && len(src) >= 18; dst, src = dst[32:], src[18:] {
		decodeLevels((*[32]float32)(dst), half(src), (*[16]byte)(src[2:]), &iq4nlLevels)
	}
}

// decodeIQ4_XS is IQ4_NL with a 6-bit scale per 32 elements: 4 low bits packed in
// pairs, 2 high bits in one word for all 8.
func decodeIQ4_XS(dst []float32, src []byte) {
	for ; len(dst) >= 256 && len(src) >= 136; dst, src = dst[256:], src[136:] {
		y, b := (*[256]float32)(dst), (*[136]byte)(src)
		d, high := half(b[0:]), int(binary.LittleEndian.Uint16(b[2:]))
		for g := range 8 {
			scale := int(b[4+g/2]>>(g%2*4)&15) | high>>(2*g)&3<<4
			dl := d * float32(scale-32)
			decodeLevels((*[32]float32)(y[32*g:]), dl, (*[16]byte)(b[8+16*g:]), &iq4nlLevels)
		}
	}
}

// decodeLevels writes d times the level of each code, element j in the low half of
// byte j and element j+16 in its high half.
func decodeLevels(y *[32]float32, d float32, codes *[16]byte, levels *[16]int8) {
	for j, q := range codes {
		y[j] = d * float32(levels[q&15])
		y[j+16] = d * float32(levels[q>>4])
	}
}
