package quant

import "encoding/binary"

// iq4Codes has the code of the level nearest to x at index 2*x+256, rounded down. All
// midpoints of levels are multiples of 1/2. A midpoint belongs to the upper level.
var iq4Codes = func() (t [512]uint8) {
	for i := range t {
		for i-256 >= int(iq4nlLevels[t[i]])+int(iq4nlLevels[min(15, t[i]+1)]) && t[i] < 15 {
			t[i]++
		}
	}
	return t
}()

func iq4Code(x float32) uint8 {
	switch {
	case x <= float32(iq4nlLevels[0]):
		return 0
	case x >= float32(iq4nlLevels[15]):
		return 15
	}
	return iq4Codes[uint32(float64(x)*2+256)&511]
}

// iq4Values has the levels as floats.
var iq4Values = func() (t [16]float32) {
	for i, l := range iq4nlLevels {
		t[i] = float32(l)
	}
	return t
}()

// iq4Scale fits 32 values to scale times a level. It tries inverse scales that map the
// extreme near the first level.
func iq4Scale(x, w *[32]float32) (scale float32) {
	amax, ext := extreme(x[:])
	if amax < tinyGroup {
		return 0
	}
	qx, q2 := iq4Sums(x, w, 1/(-ext/iq4Values[0]))
	if q2 > 0 {
		scale = qx / q2
	}
	best := scale * qx
	for try := float32(-7); try <= 7; try++ {
		qx, q2 := iq4Sums(x, w, (try+iq4Values[0])/ext)
		if q2 > 0 && float32(qx*qx) > float32(best*q2) {
			scale = qx / q2
			best = scale * qx
		}
	}
	return scale
}

// iq4Sums returns the sums of w*q*x and w*q*q over the levels q that inv gives.
func iq4Sums(x, w *[32]float32, inv float32) (qx, q2 float32) {
	for i, v := range x {
		q := iq4Values[iq4Code(inv*v)&15]
		wq := float32(w[i] * q)
		qx += float32(wq * v)
		q2 += float32(wq * q)
	}
	return qx, q2
}

// iq4Recode chooses the codes for a scale and packs them. The scale may be zero.
func iq4Recode(dst *[16]byte, x *[32]float32, scale float32) {
	var inv float32
	if scale != 0 {
		inv = 1 / scale
	}
	for j := range dst {
		dst[j] = iq4Code(inv*x[j]) | iq4Code(inv*x[j+16])<<4
	}
}

// weighGroup sets w to the weights of the values from first on, with the importance if
// there is one.
func (b *block) weighGroup(w *[32]float32, first int, meanSquare float32) {
	if b.importance == nil {
		squares(w[:], b.x[first:])
		return
	}
	weigh(w[:], b.importance[first:], b.x[first:], meanSquare)
}

func encodeIQ4_NL(dst []byte, b block) error {
	var w [32]float32
	b.weighGroup(&w, 0, sumSquares(b.x)*(2.0/32))
	x := (*[32]float32)(b.x)
	scale := iq4Scale(x, &w)
	iq4Recode((*[16]byte)(dst[2:]), x, scale)
	return putHalf(dst, scale)
}

func encodeIQ4_XS(dst []byte, b block) error {
	var w [32]float32
	var scales [8]float32
	meanSquare := sumSquares(b.x) * (2.0 / 256)
	for g := range scales {
		b.weighGroup(&w, 32*g, meanSquare)
		scales[g] = iq4Scale((*[32]float32)(b.x[32*g:]), &w)
	}
	d := -extremeOf(scales[:]) / 32
	if err := putHalf(dst, d); err != nil {
		return err
	}
	var inv float32
	if d != 0 {
		inv = 1 / d
	}
	low, high := uint32(0), uint16(0)
	for g, v := range scales {
		l := max(-32, min(31, nearest(inv*v)))
		iq4Recode((*[16]byte)(dst[8+16*g:]), (*[32]float32)(b.x[32*g:]), d*float32(l))
		low |= uint32(l+32) & 15 << (4 * g)
		high |= uint16(l+32) >> 4 << (2 * g)
	}
	binary.LittleEndian.PutUint16(dst[2:], high)
	binary.LittleEndian.PutUint32(dst[4:], low)
	return nil
}
