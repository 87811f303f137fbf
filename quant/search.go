package quant

import "math"

// The functions of this file search for the scale of a group and the codes of its values.
// They try a number of inverse scales and keep the one with the least weighted square error.
// The order of the f32 operations is ggml's, so that ties and near-ties have the same
// result.

// groupMax is the length of the longest group that shares one scale.
const groupMax = 32

// tinyGroup is the magnitude below which a group counts as all zero.
const tinyGroup = 1e-15

// nearest rounds f to an integer, ties to even, by adding a number whose last bit has the
// value one. It is correct for magnitudes below 2^22. For a larger one the result is some
// integer, the same on every processor and in ggml. For infinities and NaNs it is -2^22 and
// 0.
func nearest(f float32) int32 {
	return int32(math.Float32bits(float32(f)+0x1.8p23)&0x7fffff) - 0x400000
}

// A clampTable has, at the index i modulo 256, the integer i clamped to bounds, as a float. i
// is from -64 to 191.
type clampTable [256]float32

func newClampTable(lo, hi int32) *clampTable {
	t := new(clampTable)
	for i := range t {
		n := int32(i)
		if n >= 192 {
			n -= 256
		}
		t[i] = float32(max(lo, min(hi, n)))
	}
	return t
}

// nearest returns nearest(f), clamped to the bounds of the table.
func (t *clampTable) nearest(f float32) float32 {
	return t[math.Float32bits(float32(f)+0x1.8p23)&255]
}

// The tables by the parameter nmax of searchSymmetric and searchAffine.
var (
	symmetricTables = [33]*clampTable{
		4: newClampTable(-4, 3), 8: newClampTable(-8, 7), 16: newClampTable(-16, 15), 32: newClampTable(-32, 31),
	}
	affineTables = [32]*clampTable{3: newClampTable(0, 3), 15: newClampTable(0, 15), 31: newClampTable(0, 31)}
)

// weigh sets w to the weights of the errors: the importance of each value times
// sqrt(meanSquare + x*x).
func weigh(w, importance, x []float32, meanSquare float32) {
	importance, x = importance[:len(w)], x[:len(w)]
	for i := range w {
		w[i] = importance[i] * sqrt(meanSquare+float32(x[i]*x[i]))
	}
}

// squares sets w to the weights without an importance vector, the squares of x.
func squares(w, x []float32) {
	x = x[:len(w)]
	for i := range w {
		w[i] = x[i] * x[i]
	}
}

// searchSymmetric fits x to scale*(code-nmax) with codes from 0 to 2*nmax-1, starting with
// the scale that maps the extreme of x to -nmax. In a group of zeros the codes and the scale
// are 0.
func searchSymmetric(code []uint8, x, w []float32, nmax int32) (scale float32) {
	code, w = code[:len(x)], w[:len(x)]
	amax, ext := extreme(x)
	if amax < tinyGroup {
		clear(code)
		return 0
	}
	var wxs [groupMax]float32
	wx := wxs[:len(x)]
	for i, v := range x {
		wx[i] = w[i] * v
	}
	inv := -float32(nmax) / ext
	table := symmetricTables[nmax]
	lx, l2 := symmetricSums(x, w, wx, inv, table)
	if l2 != 0 {
		scale = lx / l2
	}
	best := scale * lx
	for try := int32(-9); try <= 9; try++ {
		if try == 0 {
			continue
		}
		tryInv := -(float32(nmax) + float32(0.1*float32(try))) / ext
		lx, l2 = symmetricSums(x, w, wx, tryInv, table)
		if l2 > 0 && float32(lx*lx) > float32(best*l2) {
			inv = tryInv
			scale = lx / l2
			best = scale * lx
		}
	}
	for i, v := range x {
		code[i] = uint8(nmax + max(-nmax, min(nmax-1, nearest(inv*v))))
	}
	return scale
}

// symmetricSums returns the sums of w*x*l and w*l*l over the codes l that inv gives.
func symmetricSums(x, w, wx []float32, inv float32, table *clampTable) (lx, l2 float32) {
	w, wx = w[:len(x)], wx[:len(x)]
	for i, v := range x {
		l := table.nearest(inv * v)
		lx += float32(wx[i] * l)
		l2 += float32(float32(w[i]*l) * l)
	}
	return lx, l2
}

// descend changes one code at a time to the nearest code for the scale that the other codes
// give, as long as that improves the fit. lx and l2 are the sums of [symmetricSums]. Codes
// are from lo to hi. If positive is set, a code without which l2 is zero does not change.
func descend[T int8 | uint8](code []T, x, w []float32, lx, l2 float32, lo, hi int32, positive bool) (scale float32) {
	code, w = code[:len(x)], w[:len(x)]
	for range 5 {
		changed := false
		for i, v := range x {
			l, wi := float32(code[i]), w[i]
			wx := float32(wi * v)
			lxi := lx - float32(wx*l)
			if !(lxi > 0) {
				continue
			}
			l2i := l2 - float32(float32(wi*l)*l)
			if positive && !(l2i > 0) {
				continue
			}
			to := max(lo, min(hi, nearest(float32(v*l2i)/lxi)))
			if to == int32(code[i]) {
				continue
			}
			l = float32(to)
			lxi += float32(wx * l)
			l2i += float32(float32(wi*l) * l)
			if l2i > 0 && float32(float32(lxi*lxi)*l2) > float32(float32(lx*lx)*l2i) {
				code[i], lx, l2 = T(to), lxi, l2i
				changed = true
			}
		}
		if !changed {
			break
		}
	}
	if l2 > 0 {
		return lx / l2
	}
	return 0
}

// searchPositive fits x to scale*code with codes from 0 to nmax. The values should be
// positive. A negative value gets a negative code, stored modulo 256 as in ggml.
func searchPositive(code []uint8, x, w []float32, nmax int32) (scale float32) {
	code, w = code[:len(x)], w[:len(x)]
	var top float32
	for _, v := range x {
		if v > top {
			top = v
		}
	}
	if top < tinyGroup {
		clear(code)
		return 0
	}
	inv := float32(nmax) / top
	best := positiveError(x, w, inv, 255, true)
	for try := int32(-4); try <= 4; try++ {
		if try == 0 {
			continue
		}
		tryInv := (float32(0.1*float32(try)) + float32(nmax)) / top
		if e := positiveError(x, w, tryInv, nmax, false); e < best {
			best, inv = e, tryInv
		}
	}
	var lx, l2 float32
	for i, v := range x {
		n := min(nmax, nearest(inv*v))
		code[i] = uint8(n)
		l := float32(n)
		lx += float32(float32(w[i]*v) * l)
		l2 += float32(float32(w[i]*l) * l)
	}
	return descend(code, x, w, lx, l2, math.MinInt32, nmax, true)
}

// positiveError returns the weighted square error of x at an inverse scale. If stored is
// set, it uses the codes modulo 256.
func positiveError(x, w []float32, inv float32, nmax int32, stored bool) (sum float32) {
	w = w[:len(x)]
	scale := 1 / inv
	for i, v := range x {
		l := min(nmax, nearest(inv*v))
		if stored {
			l &= 255
		}
		diff := v - float32(scale*float32(l))
		sum += float32(float32(w[i]*diff) * diff)
	}
	return sum
}

// affineSteps gives the inverse scales that searchAffine tries: those that spread the group
// over nmax + first + step*i codes, for i from 0 to n.
type affineSteps struct {
	first, step float32
	n           int
	absolute    bool // compare absolute instead of square errors
}

// searchAffine fits x to scale*code - least, with codes from 0 to nmax and least at least 0.
// For each inverse scale, it finds the best scale and minimum by weighted least squares.
func searchAffine(code []uint8, x, w []float32, nmax int32, s *affineSteps) (scale, least float32) {
	code, w = code[:len(x)], w[:len(x)]
	lo, hi := x[0], x[0]
	sumW := w[0]
	sumX := sumW * x[0]
	for i := 1; i < len(x); i++ {
		v := x[i]
		if v < lo {
			lo = v
		}
		if v > hi {
			hi = v
		}
		sumW += w[i]
		sumX += float32(w[i] * v)
	}
	bottom := lo
	if lo > 0 {
		lo = 0
	}
	if hi <= lo {
		clear(code)
		return 0, -lo
	}
	// The codes are floats, and the values are relative to their minimum.
	var offsets, bests, tries [groupMax]float32
	offset, bestCode, tryCode := offsets[:len(x)], bests[:len(x)], tries[:len(x)]
	for i, v := range x {
		offset[i] = v - lo
	}
	span := hi - lo
	inv := float32(nmax) / span
	scale = 1 / inv
	affineCodes(bestCode, offset, inv, inv*(bottom-lo), inv*span, nmax)
	bestError := affineError(bestCode, x, w, scale, lo, s.absolute)
	for try := range s.n + 1 {
		inv := (s.first + float32(s.step*float32(try)) + float32(nmax)) / span
		affineCodes(tryCode, offset, inv, inv*(bottom-lo), inv*span, nmax)
		sumL, sumL2, sumXL := affineSums(tryCode, x, w)
		det := float32(sumW*sumL2) - float32(sumL*sumL)
		if !(det > 0) {
			continue
		}
		tryScale := (float32(sumW*sumXL) - float32(sumX*sumL)) / det
		tryLo := (float32(sumL2*sumX) - float32(sumL*sumXL)) / det
		if tryLo > 0 {
			tryLo = 0
			tryScale = sumXL / sumL2
		}
		if e := affineError(tryCode, x, w, tryScale, tryLo, s.absolute); e < bestError {
			bestError, scale, lo = e, tryScale, tryLo
			bestCode, tryCode = tryCode, bestCode
			// Later inverse scales are tried with the new minimum.
			span = hi - lo
			for i, v := range x {
				offset[i] = v - lo
			}
		}
	}
	for i, l := range bestCode {
		code[i] = uint8(l)
	}
	return scale, -lo
}

// affineCodes sets code to the codes that inv gives. lo and hi bound inv times the offsets.
func affineCodes(code, offset []float32, inv, lo, hi float32, nmax int32) {
	offset = offset[:len(code)]
	if lo > -60 && hi > -60 && lo < 180 && hi < 180 {
		table := affineTables[nmax]
		for i, v := range offset {
			code[i] = table.nearest(inv * v)
		}
		return
	}
	for i, v := range offset {
		code[i] = float32(max(0, min(nmax, nearest(inv*v))))
	}
}

// affineSums returns the sums of w*l, w*l*l and w*l*x over the codes l.
func affineSums(code, x, w []float32) (sumL, sumL2, sumXL float32) {
	x, w = x[:len(code)], w[:len(code)]
	for i, l := range code {
		wl := float32(w[i] * l)
		sumL += wl
		sumL2 += float32(wl * l)
		sumXL += float32(wl * x[i])
	}
	return sumL, sumL2, sumXL
}

// affineError returns the weighted error of scale*code + lo.
func affineError(code, x, w []float32, scale, lo float32, absolute bool) (sum float32) {
	x, w = x[:len(code)], w[:len(code)]
	if absolute {
		for i, l := range code {
			sum += float32(w[i] * magnitude(float32(scale*l)+lo-x[i]))
		}
		return sum
	}
	for i, l := range code {
		diff := float32(scale*l) + lo - x[i]
		sum += float32(w[i] * float32(diff*diff))
	}
	return sum
}
