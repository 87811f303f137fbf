package simd

import (
	"encoding/binary"
	"math"
)

// ActBytes is the number of bytes of a stretch of 256 activations.
const ActBytes = 320

// The offsets of the parts of a stretch.
const (
	// Both forms begin with 256 codes.

	// With one scale for 256 activations follow the 16 sums of 16 codes, the 8 sums of 32 codes,
	// and the scale.
	actSums16 = 256 // int16
	actSums32 = 288 // int16
	actScale  = 304 // f32

	// With one scale for 32 activations follow the 8 scales, and the 8 sums of 32 codes.
	actScales = 256 // f32
	actSums   = 288 // int16
)

// Order says in which order a stretch of 256 activations has its groups of 32 codes: group g is at
// 32*order[g]. The sums of the groups are in ascending order in any case.
type Order [8]uint8

var (
	// Ascending is the order of the groups in memory.
	Ascending = Order{0, 1, 2, 3, 4, 5, 6, 7}
	// Halves is the order in which 64 bytes of Q4_K or Q5_K have groups in their low halves, and
	// then in their high halves.
	Halves = Order{0, 2, 1, 3, 4, 6, 5, 7}
	// Quarters is the order in which 64 bytes of Q2_K or Q3_K have groups, two bits by two bits.
	Quarters = Order{0, 2, 4, 6, 1, 3, 5, 7}
)

// least is the least max|x| that is not taken for 0. Its reciprocal times 127 is finite.
const least = 0x1p-119

// codes sets dst to the codes of x, and returns their scale.
func codes(dst []byte, x []float32) (d float32) {
	var top uint32 // of the bits, so that a NaN is the largest
	for _, v := range x {
		top = max(top, math.Float32bits(v)&^(1<<31))
	}
	most := math.Float32frombits(top)
	switch {
	case most < least:
		clear(dst[:len(x)])
		return 0
	case !(most <= math.MaxFloat32):
		clear(dst[:len(x)])
		return most / 127
	}
	inv := 127 / most
	for i, v := range x {
		dst[i] = byte(int8(math.RoundToEven(float64(v * inv))))
	}
	return most / 127
}

// sum16 returns the sum of the codes.
func sum16(codes []byte) (sum int16) {
	for _, c := range codes {
		sum += int16(int8(c))
	}
	return sum
}

// QuantizeSuper sets dst, a stretch, to 256 activations with one scale.
func QuantizeSuper(dst []byte, x []float32, order *Order) {
	dst, x = dst[:ActBytes], x[:256]
	var q [256]byte
	d := codes(q[:], x)
	for g, at := range order {
		copy(dst[32*int(at):][:32], q[32*g:])
		a, b := sum16(q[32*g:][:16]), sum16(q[32*g+16:][:16])
		binary.LittleEndian.PutUint16(dst[actSums16+4*g:], uint16(a))
		binary.LittleEndian.PutUint16(dst[actSums16+4*g+2:], uint16(b))
		binary.LittleEndian.PutUint16(dst[actSums32+2*g:], uint16(a+b))
	}
	binary.LittleEndian.PutUint32(dst[actScale:], math.Float32bits(d))
	clear(dst[actScale+4:])
}

// QuantizeSmall sets dst, a stretch, to up to 256 activations with one scale for 32 of them. Those
// that x lacks are 0.
func QuantizeSmall(dst []byte, x []float32) {
	dst = dst[:ActBytes]
	clear(dst)
	for g := range len(x) / 32 {
		q := dst[32*g:][:32]
		d := codes(q, x[32*g:][:32])
		binary.LittleEndian.PutUint32(dst[actScales+4*g:], math.Float32bits(d))
		binary.LittleEndian.PutUint16(dst[actSums+2*g:], uint16(sum16(q)))
	}
}
