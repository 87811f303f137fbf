package cpu

import (
	"encoding/binary"
	"math"
)

// tile is the number of rows that dots multiplies at a time.
const tile = 4

// dots are the dot products of a row with four others. Each is the sum of two
// accumulators, one for the even and one for the odd elements. The eight independent
// chains hide the latency of the additions. Every dot product of this package is
// computed in this order, so that its value depends neither on the other rows of the tile
// nor on the pieces in which it is added.
type dots struct{ even, odd [tile]float32 }

func (d *dots) sums() (s [tile]float32) {
	for i := range s {
		s[i] = d.even[i] + d.odd[i]
	}
	return s
}

// add adds the products of x with four rows of at least its length. The number of elements
// added before x is even.
func (d *dots) add(x, w0, w1, w2, w3 []float32) {
	s0, s1, s2, s3 := d.even[0], d.even[1], d.even[2], d.even[3]
	t0, t1, t2, t3 := d.odd[0], d.odd[1], d.odd[2], d.odd[3]
	n := len(x)
	w0, w1, w2, w3 = w0[:n], w1[:n], w2[:n], w3[:n]
	for len(x) >= 8 && len(w0) >= 8 && len(w1) >= 8 && len(w2) >= 8 && len(w3) >= 8 {
		x0, x1 := x[0], x[1]
		s0 += x0 * w0[0]
		s1 += x0 * w1[0]
		s2 += x0 * w2[0]
		s3 += x0 * w3[0]
		t0 += x1 * w0[1]
		t1 += x1 * w1[1]
		t2 += x1 * w2[1]
		t3 += x1 * w3[1]
		x0, x1 = x[2], x[3]
		s0 += x0 * w0[2]
		s1 += x0 * w1[2]
		s2 += x0 * w2[2]
		s3 += x0 * w3[2]
		t0 += x1 * w0[3]
		t1 += x1 * w1[3]
		t2 += x1 * w2[3]
		t3 += x1 * w3[3]
		x0, x1 = x[4], x[5]
		s0 += x0 * w0[4]
		s1 += x0 * w1[4]
		s2 += x0 * w2[4]
		s3 += x0 * w3[4]
		t0 += x1 * w0[5]
		t1 += x1 * w1[5]
		t2 += x1 * w2[5]
		t3 += x1 * w3[5]
		x0, x1 = x[6], x[7]
		s0 += x0 * w0[6]
		s1 += x0 * w1[6]
		s2 += x0 * w2[6]
		s3 += x0 * w3[6]
		t0 += x1 * w0[7]
		t1 += x1 * w1[7]
		t2 += x1 * w2[7]
		t3 += x1 * w3[7]
		x, w0, w1, w2, w3 = x[8:], w0[8:], w1[8:], w2[8:], w3[8:]
	}
	for i, v := range x {
		if i&1 == 0 {
			s0 += v * w0[i]
			s1 += v * w1[i]
			s2 += v * w2[i]
			s3 += v * w3[i]
		} else {
			t0 += v * w0[i]
			t1 += v * w1[i]
			t2 += v * w2[i]
			t3 += v * w3[i]
		}
	}
	d.even = [tile]float32{s0, s1, s2, s3}
	d.odd = [tile]float32{t0, t1, t2, t3}
}

// dotBytes adds the products of x with w to the accumulators s and t, in the order of
// dots.add, and returns the accumulators. w has f32 values that need not be aligned.
func dotBytes(s, t float32, x []float32, w []byte) (even, odd float32) {
	w = w[:4*len(x)]
	for len(x) >= 2 && len(w) >= 8 {
		s += x[0] * math.Float32frombits(binary.LittleEndian.Uint32(w))
		t += x[1] * math.Float32frombits(binary.LittleEndian.Uint32(w[4:]))
		x, w = x[2:], w[8:]
	}
	if len(x) > 0 {
		s += x[0] * math.Float32frombits(binary.LittleEndian.Uint32(w))
	}
	return s, t
}

// axpy4 adds p0*v0 + p1*v1 + p2*v2 + p3*v3 to acc. The rows have at least its length.
func axpy4(acc []float32, p0, p1, p2, p3 float32, v0, v1, v2, v3 []float32) {
	n := len(acc)
	v0, v1, v2, v3 = v0[:n], v1[:n], v2[:n], v3[:n]
	for i := range acc {
		acc[i] += p0*v0[i] + p1*v1[i] + (p2*v2[i] + p3*v3[i])
	}
}

// axpy adds p*v to acc.
func axpy(acc []float32, p float32, v []float32) {
	v = v[:len(acc)]
	for i := range acc {
		acc[i] += p * v[i]
	}
}

// exp returns e**x with a relative error below 1e-11, so that the caller's rounding to f32
// is almost always right. It returns 0 or +Inf if the result is out of the range of f32.
func exp(x float64) float64 {
	switch {
	case x != x:
		return x
	case x > 89:
		return math.Inf(1)
	case x < -104:
		return 0
	}
	// The result is 2**(n+f) with |f| <= 1/2. Adding 1.5*2**52 rounds to an integer, which
	// is then in the low bits of the sum.
	const round = 0x1.8p52
	t := x * math.Log2E
	r := t + round
	f := t - (r - round)
	n := int64(math.Float64bits(r)) << 52
	// The Taylor series of 2**f. The first omitted term is below 7e-12.
	p := 1 + f*(0.6931471805599453+f*(0.2402265069591007+f*(0.05550410866482158+f*(0.009618129107628477+
		f*(0.0013333558146428443+f*(0.00015403530393381608+f*(1.525273380405984e-05+f*(1.3215486790144307e-06+f*1.0178086009239699e-07))))))))
	return math.Float64frombits(uint64(int64(math.Float64bits(p)) + n))
}
