package quant

import (
	"encoding/binary"
	"math"
)

// roundAway rounds to the nearest integer, halves away from zero, for |v| below 512.
// The factor moves halves of either sign off the fence, by less than an f32 beside
// them is away from it; the offset makes truncation a floor.
func roundAway(v float32) int32 {
	const offset = 512
	return int32(float64(v)*(1+0x1p-30)+(offset+0.5)) - offset
}

// encodeQ1_0 keeps the signs, zeros counting as positive, and the mean magnitude.
func encodeQ1_0(dst []byte, b *block) error {
	codes := (*[16]byte)(dst[2:])
	x := (*[128]float32)(b.x)
	var sum float32
	for i := range codes {
		var bits byte
		for j, v := range (*[8]float32)(x[8*i:]) {
			sum += magnitude(v)
			if v >= 0 {
				bits |= 1 << j
			}
		}
		codes[i] = bits
	}
	return putHalf(dst, sum/128)
}

// encodeQ2_0 scales the largest magnitude to 1: the fourth code, 2, stays unused. It
// serves both group lengths.
func encodeQ2_0(dst []byte, b *block) error {
	if err := putHalf(dst, b.amax); err != nil {
		return err
	}
	inv := inverse(b.amax)
	codes := dst[2:]
	if inv == 0 && b.amax > 0 {
		clear(codes)
		return nil
	}
	for i := range codes {
		x := (*[4]float32)(b.x[4*i:])
		codes[i] = uint8(roundAway(x[0]*inv) + 1 | (roundAway(x[1]*inv)+1)<<2 |
			(roundAway(x[2]*inv)+1)<<4 | (roundAway(x[3]*inv)+1)<<6)
	}
	return nil
}

// The formats of 4 and 5 bits without an importance vector share two ways to a
// scale. The symmetric one maps the value of the largest magnitude, with its sign,
// to code 0, which stands for -half; its own negative would be 2*half and gets one
// less. The affine one maps the smallest value to 0 and the largest to the last
// code. Where the scale has no inverse, all codes are 0.

func (b *block) symmetricCodes(code *[32]uint8, half float32) (scale float32) {
	scale = extreme(b.x, b.amax) / -half
	inv := inverse(scale)
	if inv == 0 && scale != 0 {
		return scale
	}
	last := int32(2*half - 1)
	for j, v := range (*[32]float32)(b.x) {
		code[j] = uint8(min(int32(float32(v*inv)+(half+0.5)), last))
	}
	return scale
}

func (b *block) affineCodes(code *[32]uint8, last int32) (scale, lo float32) {
	x := (*[32]float32)(b.x)
	lo = x[0]
	hi := lo
	for _, v := range x {
		if v < lo {
			lo = v
		}
		if v > hi {
			hi = v
		}
	}
	scale = (hi - lo) / float32(last)
	inv := inverse(scale)
	if inv == 0 && scale != 0 {
		return scale, lo
	}
	for j, v := range x {
		code[j] = uint8(min(int32(float32((v-lo)*inv)+0.5), last))
	}
	return scale, lo
}

// weights returns what the searches weigh errors by, given an importance vector.
func (b *block) weights(w *[32]float32) []float32 {
	weigh(w[:], b.importance, b.x, b.rowMean)
	return w[:]
}

// legacySteps is how Q4_1 and Q5_1, and the K-quants with a minimum, search with an
// importance vector.
var legacySteps = affineSteps{first: -0.9, step: 0.05, n: 36}

func encodeQ4_0(dst []byte, b *block) error {
	var code [32]uint8
	var scale float32
	if b.importance == nil {
		scale = b.symmetricCodes(&code, 8)
	} else {
		var w [32]float32
		scale = searchSymmetric(code[:], b.x, b.weights(&w), 8)
	}
	putNibbles((*[16]byte)(dst[2:]), &code)
	return putHalf(dst, scale)
}

func encodeQ4_1(dst []byte, b *block) error {
	var code [32]uint8
	scale, lo := b.affine(&code, 15)
	putNibbles((*[16]byte)(dst[4:]), &code)
	if err := putHalf(dst[2:], lo); err != nil {
		return err
	}
	return putHalf(dst, scale)
}

func encodeQ5_0(dst []byte, b *block) error {
	var code [32]uint8
	var scale float32
	if b.importance == nil {
		scale = b.symmetricCodes(&code, 16)
	} else {
		var w [32]float32
		scale = searchSymmetric(code[:], b.x, b.weights(&w), 16)
	}
	putFive((*[20]byte)(dst[2:]), &code)
	return putHalf(dst, scale)
}

func encodeQ5_1(dst []byte, b *block) error {
	var code [32]uint8
	scale, lo := b.affine(&code, 31)
	putFive((*[20]byte)(dst[4:]), &code)
	if err := putHalf(dst[2:], lo); err != nil {
		return err
	}
	return putHalf(dst, scale)
}

func (b *block) affine(code *[32]uint8, last int32) (scale, lo float32) {
	if b.importance == nil {
		return b.affineCodes(code, last)
	}
	var w [32]float32
	scale, least := searchAffine(code[:], b.x, b.weights(&w), last, &legacySteps)
	return scale, -least
}

// putNibbles packs code j into the low half of byte j and code j+16 into its high
// half.
func putNibbles(dst *[16]byte, code *[32]uint8) {
	for j := range dst {
		dst[j] = code[j]&15 | code[j+16]<<4
	}
}

// putFive packs codes of 5 bits: a word of fifth bits, then nibbles.
func putFive(dst *[20]byte, code *[32]uint8) {
	var high uint32
	for j, c := range code {
		high |= uint32(c>>4) << j
	}
	binary.LittleEndian.PutUint32(dst[:], high)
	putNibbles((*[16]byte)(dst[4:]), code)
}

// encodeQ8_0 scales the largest magnitude to 127.
func encodeQ8_0(dst []byte, b *block) error {
	scale := b.amax / 127
	if err := putHalf(dst, scale); err != nil {
		return err
	}
	byteCodes((*[32]byte)(dst[2:]), (*[32]float32)(b.x), inverse(scale))
	return nil
}

// encodeQ8_1 is Q8_0 with the sum of the codes times the scale. That sum overflows
// long before the scale does.
func encodeQ8_1(dst []byte, b *block) error {
	scale := b.amax / 127
	if err := putHalf(dst, scale); err != nil {
		return err
	}
	codes := (*[32]byte)(dst[4:])
	byteCodes(codes, (*[32]float32)(b.x), inverse(scale))
	sum := 0
	for _, c := range codes {
		sum += int(int8(c))
	}
	return putHalf(dst[2:], float32(sum)*scale)
}

func byteCodes(codes *[32]byte, x *[32]float32, inv float32) {
	for j, v := range x {
		codes[j] = uint8(roundAway(v * inv))
	}
}

// encodeQ8_K maps the value of the largest magnitude, with its sign, to -127. Its
// scale is an f32. In a block of zeros the sums are zeros, where ggml leaves what
// was there.
func encodeQ8_K(dst []byte, b *block) error {
	le := binary.LittleEndian
	if b.amax == 0 {
		clear(dst)
		return nil
	}
	inv := -127 / extreme(b.x, b.amax)
	le.PutUint32(dst, math.Float32bits(1/inv))
	codes, sums := dst[4:260], dst[260:]
	for g := range 16 {
		x, c := (*[16]float32)(b.x[16*g:]), (*[16]byte)(codes[16*g:])
		sum := 0
		for j, v := range x {
			c[j] = uint8(min(127, nearest(inv*v)))
			sum += int(int8(c[j]))
		}
		le.PutUint16(sums[2*g:], uint16(sum))
	}
	return nil
}
