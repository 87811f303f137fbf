package quant

import (
	"encoding/binary"
	"math"

	"github.com/fucina-go/fucina/core/dtype"
)

// The block formats are integers with scales. A product with activations of 8 bits multiplies the
// integers exactly and applies the scales to their sums. These functions are the definition of the
// integers; kernels that take them from the bytes directly are compared with it.

// Super is a block of 256 elements. Element i is
//
//	D*Scales[i/16]*Codes[i] - DMin*Mins[i/16]
//
// where a format with groups of 32 has equal scales in two neighbours.
type Super struct {
	Codes   [256]int8
	Scales  [16]int16
	Mins    [16]uint8
	D, DMin float32
}

// Small is a block of 32 elements, or a part of a larger block. Element i is D[i/16]*Codes[i] + M.
type Small struct {
	Codes [32]int8
	D     [2]float32
	M     float32
}

// Scratch is memory that Super.Set and SetSmall use and leave in any state. Without it, each call would
// allocate.
type Scratch struct {
	block  [292]byte // of the largest size
	values [256]float32
}

// supers has the formats whose blocks are a Super. The function sets the scales, and changes b so
// that the decoder of the format returns the codes.
var supers = [dtype.Count]func(s *Super, b []byte){
	dtype.Q2_K: func(s *Super, b []byte) {
		s.D, s.DMin = half(b[80:]), half(b[82:])
		for g := range 16 {
			s.Scales[g], s.Mins[g] = int16(b[g]&15), b[g]>>4
			b[g] = 1
		}
		one(b[80:])
		clear(b[82:84])
	},
	dtype.Q3_K: func(s *Super, b []byte) {
		s.D = half(b[108:])
		p := b[96:108]
		for g := range 16 {
			s.Scales[g] = int16(p[g%8]>>(g/8*4)&15|p[8+g%4]>>(g/4*2)&3<<4) - 32
		}
		for i := range 8 { // 33 in each scale
			p[i] = 0x11
		}
		for i := range 4 {
			p[8+i] = 0xaa
		}
		one(b[108:])
	},
	dtype.Q4_K: func(s *Super, b []byte) { kScales(s, b) },
	dtype.Q5_K: func(s *Super, b []byte) { kScales(s, b) },
	dtype.Q6_K: func(s *Super, b []byte) {
		s.D = half(b[208:])
		for g := range 16 {
			s.Scales[g] = int16(int8(b[192+g]))
			b[192+g] = 1
		}
		one(b[208:])
	},
	dtype.Q8_K: func(s *Super, b []byte) {
		s.D = math.Float32frombits(binary.LittleEndian.Uint32(b))
		s.fill(1)
		binary.LittleEndian.PutUint32(b, math.Float32bits(1))
	},
	dtype.TQ1_0: func(s *Super, b []byte) { s.whole(b[52:]) },
	dtype.TQ2_0: func(s *Super, b []byte) { s.whole(b[64:]) },
	dtype.IQ4_XS: func(s *Super, b []byte) {
		s.D = half(b[0:])
		high := int(binary.LittleEndian.Uint16(b[2:]))
		for g := range 16 {
			s.Scales[g] = int16(int(b[4+g/4]>>(g/2%2*4)&15)|high>>(g/2*2)&3<<4) - 32
		}
		one(b)
		binary.LittleEndian.PutUint16(b[2:], 0xaaaa)
		for i := range 4 {
			b[4+i] = 0x11
		}
	},
	dtype.IQ2_XXS: func(s *Super, b []byte) {
		s.eighths(b)
		for g := range 16 {
			s.Scales[g] = int16(2*(b[9+g/2*8]>>4) + 1)
		}
		for g := range 8 {
			b[9+8*g] &= 15
		}
	},
	dtype.IQ2_XS: func(s *Super, b []byte) { s.eighths(b); s.nibbles(b[66:74]) },
	dtype.IQ2_S:  func(s *Super, b []byte) { s.eighths(b); s.nibbles(b[74:82]) },
	dtype.IQ3_XXS: func(s *Super, b []byte) {
		s.D = half(b) / 4
		binary.LittleEndian.PutUint16(b, 0x4400) // 4
		for g := range 16 {
			s.Scales[g] = int16(2*(b[69+g/2*4]>>4) + 1)
		}
		for g := range 8 {
			b[69+4*g] &= 15
		}
	},
	dtype.IQ3_S: func(s *Super, b []byte) {
		s.D = half(b)
		for g := range 16 {
			s.Scales[g] = int16(2*(b[106+g/4]>>(g/2%2*4)&15) + 1)
		}
		one(b)
		clear(b[106:110])
	},
	dtype.IQ1_S: func(s *Super, b []byte) {
		s.eighths(b)
		for g := range 16 {
			s.Scales[g] = int16(2*(b[35+g/2*2]>>4&7) + 1)
		}
		for g := range 8 {
			b[35+2*g] &^= 0x70
		}
	},
	dtype.IQ1_M: func(s *Super, b []byte) {
		packed := binary.LittleEndian.Uint64(b[48:])
		var d [2]byte
		binary.LittleEndian.PutUint16(d[:],
			uint16(packed>>12&15|packed>>28&15<<4|packed>>44&15<<8|packed>>60<<12))
		s.D = half(d[:]) / 8
		for g := range 16 {
			s.Scales[g] = int16(2*(packed>>(g/4*16+g%4*3)&7) + 1)
		}
		binary.LittleEndian.PutUint64(b[48:], 0x4000_8000_0000_0000) // 8, whose half is 0x4800
	},
}

// one writes the half 1.
func one(b []byte) { binary.LittleEndian.PutUint16(b, 0x3c00) }

// fill sets all scales.
func (s *Super) fill(scale int16) {
	for g := range s.Scales {
		s.Scales[g] = scale
	}
}

// whole is for a format with one scale, which is at b.
func (s *Super) whole(b []byte) {
	s.D = half(b)
	s.fill(1)
	one(b)
}

// eighths takes the scale d at b, of which the codes are eighths.
func (s *Super) eighths(b []byte) {
	s.D = half(b) / 8
	binary.LittleEndian.PutUint16(b, 0x4800) // 8
}

// nibbles takes scales of 4 bits of groups of 16, of which q stands for 2q+1.
func (s *Super) nibbles(b []byte) {
	for g := range s.Scales {
		s.Scales[g] = int16(2*(b[g/2]>>(g%2*4)&15) + 1)
	}
	clear(b)
}

// kScales takes the scales of Q4_K and Q5_K.
func kScales(s *Super, b []byte) {
	s.D, s.DMin = half(b), half(b[2:])
	for g := range 16 {
		scale, least := scaleMin((*[12]byte)(b[4:]), g/2)
		s.Scales[g], s.Mins[g] = int16(scale), least
	}
	one(b)
	clear(b[2:4])
	for i := range 8 { // 1 in each scale
		b[4+i] = 1
	}
	for i := range 4 {
		b[12+i] = 1
	}
}

// HasSuper reports whether a block of d is a Super.
func HasSuper(d dtype.DType) bool { return d.Valid() && supers[d] != nil }

// Set sets s to the block b of a format that HasSuper.
func (s *Super) Set(d dtype.DType, b []byte, t *Scratch) {
	p := t.block[:copy(t.block[:], b[:d.Size()])]
	*s = Super{}
	supers[d](s, p)
	decoders[d](t.values[:], p)
	for i, v := range t.values {
		s.Codes[i] = int8(v)
	}
}

// smalls has the formats whose blocks are one or several Small. The function returns the scales of
// the part i of the block, and the offset of the term of each element. It is called before ones,
// which changes b so that the decoder of the format returns the codes.
var smalls = [dtype.Count]struct {
	scales func(b []byte, i int) (d0, d1, m float32)
	ones   func(b []byte)
}{
	dtype.Q1_0:     {halfScale, one},
	dtype.Q2_0:     {halfScale, one},
	dtype.Q2_0_G64: {halfScale, one},
	dtype.Q4_0:     {halfScale, one},
	dtype.Q4_1:     {halfScaleMin, oneZero},
	dtype.Q5_0:     {halfScale, one},
	dtype.Q5_1:     {halfScaleMin, oneZero},
	dtype.Q8_0:     {halfScale, one},
	dtype.Q8_1:     {halfScale, one},
	dtype.IQ4_NL:   {halfScale, one},
	dtype.MXFP4: {
		func(b []byte, _ int) (d0, d1, m float32) { d0 = e8m0Half(b[0]); return d0, d0, 0 },
		func(b []byte) { b[0] = 128 },
	},
	dtype.NVFP4: {
		func(b []byte, i int) (d0, d1, m float32) { return ue4m3Half[b[2*i]], ue4m3Half[b[2*i+1]], 0 },
		func(b []byte) {
			for i := range 4 {
				b[i] = 8 << 3 // 2, of which half is 1
			}
		},
	},
}

func halfScale(b []byte, _ int) (d0, d1, m float32) { d0 = half(b); return d0, d0, 0 }

func halfScaleMin(b []byte, _ int) (d0, d1, m float32) { d0 = half(b); return d0, d0, half(b[2:]) }

// oneZero writes the halves 1 and 0.
func oneZero(b []byte) { one(b); clear(b[2:4]) }

// HasSmall reports whether a block of d is one or several Small.
func HasSmall(d dtype.DType) bool { return d.Valid() && smalls[d].scales != nil }

// SetSmall sets dst, of which there is one for 32 elements, to the block b of a format that
// HasSmall.
func SetSmall(dst []Small, d dtype.DType, b []byte, t *Scratch) {
	p := t.block[:copy(t.block[:], b[:d.Size()])]
	for i := range dst {
		s := &dst[i]
		s.D[0], s.D[1], s.M = smalls[d].scales(p, i)
	}
	smalls[d].ones(p)
	y := t.values[:d.BlockSize()]
	decoders[d](y, p)
	for i, v := range y[:32*len(dst)] {
		dst[i/32].Codes[i%32] = int8(v)
	}
}
