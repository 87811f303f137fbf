package quant

import (
	"encoding/binary"
	"math"
)

// roundAway rounds to the nearest integer, halves away from zero, for |v| below 512. The
// factor moves halves away from zero, by less than the distance to the next f32. The
// offset makes truncation a floor.
func roundAway(v float32) int32 {
	const offset = 512
	return int32(float64(v)*(1+0x1p-30)+(offset+0.5)) - offset
}

// encodeQ1_0 keeps the signs and the mean magnitude. Zeros count as positive.
func encodeQ1_0(dst []byte, b block) error {
	codes := (*[16]byte)(dst[2:])
	x := (*[128]float32)(b.x)
	var sum float32
	for i := range codes {
		var bits byte
		for j, v := range (*[8]float32)(x[8*i:]) {
			sum += magnitude(v)
			// Adding 0 makes a negative zero positive, so that the sign bit is clear.
			bits |= byte(^math.Float32bits(v+0)>>31) << j
		}
		codes[i] = bits
	}
	return putHalf(dst, sum/128)
}

// encodeQ2_0 scales the largest magnitude to 1. It does not use the fourth code, whose value
// is 2. It encodes both group lengths.
func encodeQ2_0(dst []byte, b block) error {
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

// code32 has the codes of 32 values, one per byte. The first is the lowest byte of w0.
type code32 struct{ w0, w1, w2, w3 uint64 }

// Without an importance vector, the formats of 4 and 5 bits have a symmetric or an affine
// scale. The symmetric scale maps the value of the largest magnitude, with its sign, to code
// 0, whose value is -half. The negative of that value would have the code 2*half and gets
// the last code instead. The affine scale maps the smallest value to 0 and the largest to
// the last code. If the scale has no inverse, all codes are 0.

func (b *block) symmetricCodes(half float32, bits uint) (c code32, scale float32) {
	scale = b.ext / -half
	inv := inverse(scale)
	if inv == 0 && scale != 0 {
		return c, scale
	}
	x, offset := (*[32]float32)(b.x), half+0.5
	c.w0 = symmetric8((*[8]float32)(x[0:]), inv, offset, bits)
	c.w1 = symmetric8((*[8]float32)(x[8:]), inv, offset, bits)
	c.w2 = symmetric8((*[8]float32)(x[16:]), inv, offset, bits)
	c.w3 = symmetric8((*[8]float32)(x[24:]), inv, offset, bits)
	return c, scale
}

func (b *block) affineCodes(last float32) (c code32, scale, lo float32) {
	x := (*[32]float32)(b.x)
	lo, hi := bounds(x)
	scale = (hi - lo) / last
	inv := inverse(scale)
	if inv == 0 && scale != 0 {
		return c, scale, lo
	}
	c.w0 = affine8((*[8]float32)(x[0:]), lo, inv)
	c.w1 = affine8((*[8]float32)(x[8:]), lo, inv)
	c.w2 = affine8((*[8]float32)(x[16:]), lo, inv)
	c.w3 = affine8((*[8]float32)(x[24:]), lo, inv)
	return c, scale, lo
}

// bounds returns the smallest and the largest value of x. Of equal ones it returns the first,
// because zeros may differ in sign.
func bounds(x *[32]float32) (lo, hi float32) {
	// The code has no branches, because their conditions are unpredictable. As integers,
	// with the bits of negative ones inverted, encodings have the order of the numbers.
	lo0, hi0 := int32(math.MaxInt32), int32(math.MinInt32)
	lo1, hi1 := lo0, hi0
	for i := 0; i < len(x); i += 2 {
		a, b := ordered(x[i]), ordered(x[i+1])
		lo0, hi0 = min(lo0, a), max(hi0, a)
		lo1, hi1 = min(lo1, b), max(hi1, b)
	}
	lo, hi = unordered(min(lo0, lo1)), unordered(max(hi0, hi1))
	if lo != 0 && hi != 0 {
		return lo, hi
	}
	lo, hi = x[0], x[0]
	for _, v := range x {
		if v < lo {
			lo = v
		}
		if v > hi {
			hi = v
		}
	}
	return lo, hi
}

func ordered(v float32) int32 {
	b := int32(math.Float32bits(v))
	return b ^ b>>31&math.MaxInt32
}

func unordered(b int32) float32 { return math.Float32frombits(uint32(b ^ b>>31&math.MaxInt32)) }

// symmetric8 returns x*inv + offset, rounded down. A result that does not fit the bits is
// reduced by one.
func symmetric8(x *[8]float32, inv, offset float32, bits uint) uint64 {
	c0 := uint64(int64(float32(x[0]*inv) + offset))
	c1 := uint64(int64(float32(x[1]*inv) + offset))
	c2 := uint64(int64(float32(x[2]*inv) + offset))
	c3 := uint64(int64(float32(x[3]*inv) + offset))
	c4 := uint64(int64(float32(x[4]*inv) + offset))
	c5 := uint64(int64(float32(x[5]*inv) + offset))
	c6 := uint64(int64(float32(x[6]*inv) + offset))
	c7 := uint64(int64(float32(x[7]*inv) + offset))
	w := c0 | c1<<8 | c2<<16 | c3<<24 | (c4|c5<<8|c6<<16|c7<<24)<<32
	return w - w>>bits&0x0101010101010101
}

// affine8 returns (x-lo)*inv, rounded to the nearest integer, halves up.
func affine8(x *[8]float32, lo, inv float32) uint64 {
	c0 := uint64(int64(float32((x[0]-lo)*inv) + 0.5))
	c1 := uint64(int64(float32((x[1]-lo)*inv) + 0.5))
	c2 := uint64(int64(float32((x[2]-lo)*inv) + 0.5))
	c3 := uint64(int64(float32((x[3]-lo)*inv) + 0.5))
	c4 := uint64(int64(float32((x[4]-lo)*inv) + 0.5))
	c5 := uint64(int64(float32((x[5]-lo)*inv) + 0.5))
	c6 := uint64(int64(float32((x[6]-lo)*inv) + 0.5))
	c7 := uint64(int64(float32((x[7]-lo)*inv) + 0.5))
	return c0 | c1<<8 | c2<<16 | c3<<24 | (c4|c5<<8|c6<<16|c7<<24)<<32
}

// joined returns the code32 of 32 codes.
func joined(code *[32]uint8) code32 {
	le := binary.LittleEndian
	return code32{le.Uint64(code[0:]), le.Uint64(code[8:]), le.Uint64(code[16:]), le.Uint64(code[24:])}
}

// weights returns the weights of the errors in the searches with an importance vector.
func (b *block) weights(w *[32]float32) []float32 {
	weigh(w[:], b.importance, b.x, b.rowMean)
	return w[:]
}

// weightedSteps is the search of Q4_1, Q5_1 and the K-quants with a minimum if there is an
// importance vector.
var weightedSteps = affineSteps{first: -0.9, step: 0.05, n: 36}

func encodeQ4_0(dst []byte, b block) error {
	c, scale := b.symmetric(8, 4)
	c.putNibbles((*[16]byte)(dst[2:]))
	return putHalf(dst, scale)
}

func encodeQ4_1(dst []byte, b block) error {
	c, scale, lo := b.affine(15)
	c.putNibbles((*[16]byte)(dst[4:]))
	if err := putHalf(dst[2:], lo); err != nil {
		return err
	}
	return putHalf(dst, scale)
}

func encodeQ5_0(dst []byte, b block) error {
	c, scale := b.symmetric(16, 5)
	c.putFive((*[20]byte)(dst[2:]))
	return putHalf(dst, scale)
}

func encodeQ5_1(dst []byte, b block) error {
	c, scale, lo := b.affine(31)
	c.putFive((*[20]byte)(dst[4:]))
	if err := putHalf(dst[2:], lo); err != nil {
		return err
	}
	return putHalf(dst, scale)
}

func (b *block) symmetric(half int32, bits uint) (c code32, scale float32) {
	if b.importance == nil {
		return b.symmetricCodes(float32(half), bits)
	}
	var w [32]float32
	var code [32]uint8
	scale = searchSymmetric(code[:], b.x, b.weights(&w), half)
	return joined(&code), scale
}

func (b *block) affine(last int32) (c code32, scale, lo float32) {
	if b.importance == nil {
		return b.affineCodes(float32(last))
	}
	var w [32]float32
	var code [32]uint8
	scale, least := searchAffine(code[:], b.x, b.weights(&w), last, &weightedSteps)
	return joined(&code), scale, -least
}

// putNibbles packs code j into the low half of byte j, and code j+16 into the high half.
func (c code32) putNibbles(dst *[16]byte) {
	const low = 0x0f0f0f0f0f0f0f0f
	binary.LittleEndian.PutUint64(dst[:], c.w0&low|c.w2&low<<4)
	binary.LittleEndian.PutUint64(dst[8:], c.w1&low|c.w3&low<<4)
}

// putFive packs codes of 5 bits as a word of their fifth bits, followed by nibbles.
func (c code32) putFive(dst *[20]byte) {
	for i, w := range [4]uint64{c.w0, c.w1, c.w2, c.w3} {
		// The multiplication moves bit 0 of byte j to bit 56+j.
		dst[i] = uint8(w >> 4 & 0x0101010101010101 * 0x0102040810204080 >> 56)
	}
	c.putNibbles((*[16]byte)(dst[4:]))
}

// encodeQ8_0 scales the largest magnitude to 127.
func encodeQ8_0(dst []byte, b block) error {
	scale := b.amax / 127
	if err := putHalf(dst, scale); err != nil {
		return err
	}
	byteCodes((*[32]byte)(dst[2:]), (*[32]float32)(b.x), inverse(scale))
	return nil
}

// encodeQ8_1 is encodeQ8_0 with the sum of the codes times the scale. That product overflows
// binary16 for much smaller values than the scale does.
func encodeQ8_1(dst []byte, b block) error {
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

// encodeQ8_K maps the value of the largest magnitude, with its sign, to -127. The scale is an
// f32. In a block of zeros the sums are zeros, whereas ggml leaves them unset.
func encodeQ8_K(dst []byte, b block) error {
	le := binary.LittleEndian
	if b.amax == 0 {
		clear(dst)
		return nil
	}
	inv := -127 / b.ext
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
