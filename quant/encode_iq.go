package quant

import (
	"encoding/binary"
	"math"
	"slices"
)

// gridFormat describes the search for the codes of an IQ2 or IQ3 format. A group of 16 or
// 32 values shares a scale. Points of a lattice are the codes of its magnitudes, and the
// signs are stored separately.
type gridFormat struct {
	lattice func() *lattice
	group   int // elements per scale
	// evenSigns says that 7 of 8 signs are stored. The eighth makes the number of negative
	// signs even.
	evenSigns bool
	// spread is the factor of the mean square in the weights with importance, and
	// floor its factor, after that, in those without.
	spread, floor float32
	// eps is the magnitude below which a group counts as zero.
	eps float32
	// tries and step give the inverse scales to try. They map the largest magnitude to
	// the last level plus step*i, for i from -tries to tries.
	tries int32
	step  float32
	// refine says which points are chosen again for the best scale.
	refine refinement
	// fudge is a factor of the stored scale.
	fudge float32
}

type refinement uint8

const (
	// refineOff chooses the points again that were off the grid.
	refineOff refinement = iota
	// refineAll chooses all points again, unless all were on the grid.
	refineAll
	// refineFitted chooses all points again. The inverse scales to try are around the
	// scale of searchPositive instead of the largest magnitude.
	refineFitted
)

// The parameters are ggml's.
var (
	iq2xxs = gridFormat{
		lattice: iq2xxsLattice, group: 32, evenSigns: true, spread: 1, floor: 0, eps: 1e-15,
		tries: 6, step: 0.1, refine: refineFitted, fudge: 1,
	}
	iq2xs = gridFormat{
		lattice: iq2xsLattice, group: 16, evenSigns: true, spread: 1, floor: 0, eps: 1e-15,
		tries: 9, step: 0.1, refine: refineOff, fudge: 1,
	}
	iq2s = gridFormat{
		lattice: iq2sLattice, group: 16, evenSigns: false, spread: 2, floor: 0.25, eps: 1e-8,
		tries: 9, step: 0.1, refine: refineOff, fudge: 0.9875,
	}
	iq3xxs = gridFormat{
		lattice: iq3xxsLattice, group: 32, evenSigns: true, spread: 2, floor: 0, eps: 1e-8,
		tries: 15, step: 0.2, refine: refineOff, fudge: 1.0125,
	}
	iq3s = gridFormat{
		lattice: iq3sLattice, group: 32, evenSigns: false, spread: 2, floor: 0, eps: 0,
		tries: 9, step: 0.2, refine: refineAll, fudge: 1.033,
	}
)

// gridGroup is a group and its codes.
type gridGroup struct {
	x, w  [groupMax]float32 // magnitudes, negative if the sign was flipped, and weights
	root  [groupMax]float32 // square roots of the weights
	words [8]uint16
	signs [4]uint8
	scale float32
}

// levelValues has the values of the levels, which are odd numbers.
var levelValues = [8]float32{1, 3, 5, 7, 9, 11, 13, 15}

// gridSearch finds the codes of the groups of a block one after another.
type gridSearch struct {
	format     *gridFormat
	lattice    *lattice
	meanSquare float32
	group      gridGroup
	scales     [16]float32
	top        float32
}

// start clears the block. Groups of zeros stay cleared.
func (f *gridFormat) start(dst []byte, b *block) gridSearch {
	clear(dst)
	return gridSearch{format: f, lattice: f.lattice(), meanSquare: f.spread * sumSquares(b.x) / 256}
}

// next finds the codes of group g. It returns false for a group of zeros.
func (s *gridSearch) next(b *block, g int) bool {
	s.format.load(&s.group, b, g*s.format.group, s.meanSquare)
	if !s.format.search(s.lattice, &s.group) {
		return false
	}
	s.scales[g] = s.group.scale
	s.top = max(s.top, s.group.scale)
	return true
}

// index returns the grid index of point k of the group.
func (s *gridSearch) index(k int) uint16 { return uint16(s.lattice.index[s.group.words[k]]) }

// finish stores the scale of the block, and returns the 4-bit scales s of the groups. The
// value of s is 2s+1.
func (s *gridSearch) finish(dst []byte) (scale [16]uint8, err error) {
	if s.top == 0 {
		return scale, nil
	}
	d := s.top / 31
	if err := putHalf(dst, d*s.format.fudge); err != nil {
		return scale, err
	}
	inv := 1 / d
	for g := range 256 / s.format.group {
		scale[g] = uint8(oddLevel(inv*s.scales[g], 16))
	}
	return scale, nil
}

// oddLevel returns the level below n whose odd number 2*level+1 is nearest to v.
func oddLevel(v float32, n int32) int32 {
	return max(0, min(n-1, nearest(0.5*(float32(v)-1))))
}

// load sets the weights, magnitudes and signs of a group. If evenSigns is set and a number
// of negative signs is odd, load flips the sign whose flip costs least.
func (f *gridFormat) load(group *gridGroup, b *block, first int, meanSquare float32) {
	x, w := b.x[first:][:f.group], group.w[:f.group]
	if b.importance != nil {
		weigh(w, b.importance[first:], x, meanSquare)
	} else {
		for i, v := range x {
			w[i] = float32(f.floor*meanSquare) + float32(v*v)
		}
	}
	for i, v := range w {
		group.root[i] = sqrt(v)
	}
	for k := range f.group / 8 {
		out := (*[8]float32)(group.x[8*k:])
		var signs, odd uint8
		for i, v := range (*[8]float32)(x[8*k:]) {
			out[i] = v
			if !(v >= 0) {
				out[i] = -v
				signs |= 1 << i
				odd ^= 1
			}
		}
		if f.evenSigns && odd != 0 {
			cheapest, least := 0, float32(0)
			for i, v := range out {
				if cost := float32(w[8*k+i]*v) * v; i == 0 || cost < least {
					cheapest, least = i, cost
				}
			}
			out[cheapest] = -out[cheapest]
			signs ^= 1 << cheapest
		}
		group.signs[k] = signs
	}
}

// search finds the points and the scale of a group. It returns false for a group of
// zeros.
func (f *gridFormat) search(l *lattice, group *gridGroup) bool {
	x, w := group.x[:f.group], group.w[:f.group]
	top := slices.Max(x)
	if top < f.eps || top == 0 {
		return false
	}
	last := 2*float32(l.levels()) - 1
	// The inverse scales to try are (last + step*i) / span.
	span, scale := top, top/last
	if f.refine == refineFitted {
		var code [groupMax]uint8
		scale = searchPositive(code[:f.group], x, w, int32(l.levels()+1))
		span = scale * float32(l.levels())
		if span <= 0 {
			return false
		}
	}
	points := f.group / l.values
	words := &group.words
	*words = [8]uint16{}
	var offGrid uint8 // bit k for point k
	if f.refine == refineAll {
		offGrid = 0xff
	}
	var best float32
	for try := -f.tries; try <= f.tries; try++ {
		inv := (last + float32(float32(try)*f.step)) / span
		var tryWords [8]uint16
		var tryOff uint8
		for k := range points {
			var on bool
			tryWords[k], on = l.snap(group, k, inv, 1/inv)
			if !on {
				tryOff |= 1 << k
			}
		}
		qx, q2 := l.sums(group, &tryWords, points)
		if q2 > 0 && float32(qx*qx) > float32(best*q2) {
			scale = qx / q2
			best = scale * qx
			*words, offGrid = tryWords, tryOff
		}
	}
	if scale > 0 && (offGrid != 0 || f.refine == refineFitted) {
		scale = f.rechoose(l, group, scale, offGrid)
	}
	if scale < 0 {
		scale = -scale
		for k := range group.signs {
			group.signs[k] = ^group.signs[k]
		}
	}
	group.scale = scale
	return true
}

// rechoose makes a second choice of points, for the given scale, and returns the best scale
// for the new points. It chooses only the points that were off the grid if f.refine is
// refineOff, and otherwise all. Bit k of offGrid says that point k was off the grid.
func (f *gridFormat) rechoose(l *lattice, group *gridGroup, scale float32, offGrid uint8) float32 {
	points := f.group / l.values
	inv := 1 / scale
	for k := range points {
		if f.refine == refineOff && offGrid>>k&1 == 0 {
			continue
		}
		group.words[k], _ = l.snap(group, k, inv, scale)
	}
	if qx, q2 := l.sums(group, &group.words, points); q2 > 0 {
		return qx / q2
	}
	return scale
}

// snap returns a point on the grid for the values of point k at a scale. on says that the
// point of the nearest levels is on the grid.
func (l *lattice) snap(group *gridGroup, k int, inv, scale float32) (word uint16, on bool) {
	if l.values == 8 {
		for i, v := range (*[8]float32)(group.x[8*k:]) {
			word |= uint16(oddLevel(inv*v, 3)) << (2 * i)
		}
	} else {
		for i, v := range (*[4]float32)(group.x[4*k:]) {
			word |= uint16(oddLevel(inv*v, 8)) << (3 * i)
		}
	}
	if l.index[word] >= 0 {
		return word, true
	}
	first := k * l.values
	var c costs
	c.fill(levelValues[:l.levels()], scale, group.x[first:first+l.values], group.root[first:first+l.values])
	return l.nearest(word, &c), false
}

// sums returns the sums of w*x*q and w*q*q over the values q of the points.
func (l *lattice) sums(group *gridGroup, words *[8]uint16, points int) (qx, q2 float32) {
	bits := l.bits()
	mask := uint16(1)<<bits - 1
	for k := range points {
		word := words[k]
		x, w := group.x[k*l.values:][:l.values], group.w[k*l.values:][:l.values]
		for i, v := range x {
			q := levelValues[word&mask&7]
			word >>= bits
			qx += float32(float32(w[i]*v) * q)
			q2 += float32(float32(w[i]*q) * q)
		}
	}
	return qx, q2
}

func encodeIQ2_XXS(dst []byte, b block) error {
	s := iq2xxs.start(dst, &b)
	for g := range 8 {
		if s.next(&b, g) {
			for k := range 4 {
				dst[2+8*g+k] = uint8(s.index(k))
			}
			putSigns28(dst[6+8*g:], &s.group)
		}
	}
	scale, err := s.finish(dst)
	for g := range 8 {
		dst[6+8*g+3] |= scale[g] << 4
	}
	return err
}

// putSigns28 stores four times 7 signs in the low bits of a word.
func putSigns28(dst []byte, group *gridGroup) {
	var signs uint32
	for k, s := range group.signs {
		signs |= uint32(s&127) << (7 * k)
	}
	binary.LittleEndian.PutUint32(dst, signs)
}

// putScales stores 4-bit scales in pairs.
func putScales(dst []byte, scale []uint8) {
	for i := range dst {
		dst[i] = scale[2*i] | scale[2*i+1]<<4
	}
}

func encodeIQ2_XS(dst []byte, b block) error {
	s := iq2xs.start(dst, &b)
	for g := range 16 {
		if s.next(&b, g) {
			for k := range 2 {
				binary.LittleEndian.PutUint16(dst[2+2*(2*g+k):], s.index(k)|uint16(s.group.signs[k]&127)<<9)
			}
		}
	}
	scale, err := s.finish(dst)
	putScales(dst[66:74], scale[:])
	return err
}

func encodeIQ2_S(dst []byte, b block) error {
	s := iq2s.start(dst, &b)
	for g := range 16 {
		if s.next(&b, g) {
			for k := range 2 {
				at, i := 2*g+k, s.index(k)
				dst[2+at] = uint8(i)
				dst[34+at] = s.group.signs[k]
				dst[66+at/4] |= uint8(i>>8) << (at % 4 * 2)
			}
		}
	}
	scale, err := s.finish(dst)
	putScales(dst[74:82], scale[:])
	return err
}

func encodeIQ3_XXS(dst []byte, b block) error {
	s := iq3xxs.start(dst, &b)
	for g := range 8 {
		if s.next(&b, g) {
			for k := range 8 {
				dst[2+8*g+k] = uint8(s.index(k))
			}
			putSigns28(dst[66+4*g:], &s.group)
		}
	}
	scale, err := s.finish(dst)
	for g := range 8 {
		dst[66+4*g+3] |= scale[g] << 4
	}
	return err
}

// encodeIQ3_S encodes a block. As in ggml, a group of zeros takes no room for its codes and
// signs, so that the codes of later groups are at the places of earlier groups, while the
// scales are not.
func encodeIQ3_S(dst []byte, b block) error {
	s := iq3s.start(dst, &b)
	at := 0
	for g := range 8 {
		if s.next(&b, g) {
			for k := range 8 {
				i := s.index(k)
				dst[2+8*at+k] = uint8(i)
				dst[66+g] |= uint8(i>>8) << k
			}
			copy(dst[74+4*at:], s.group.signs[:])
			at++
		}
	}
	scale, err := s.finish(dst)
	putScales(dst[106:110], scale[:])
	return err
}

// In the ternary IQ formats a point has the values -1, 0 and 1, shifted up or down by delta.
// The encoders sort the values of a group, try every split into three runs, and then move
// the points of the best split to the grid.

// shifted has the values of the levels, shifted up and down.
var shifted = [2][3]float32{
	{-1 + delta, delta, 1 + delta},
	{-1 - delta, -delta, 1 - delta},
}

// ternaryGroup is a group of an IQ1 format and its codes.
type ternaryGroup struct {
	x     []float32
	w     [groupMax]float32
	order [groupMax]uint8 // indices of x in ascending order of its values
	level [groupMax]uint8
	words [4]uint16
	down  [4]uint8 // for each point, whether the shift is down: 0 or 1
	scale float32
}

// load sets the values and weights of a group. It returns false for a group of zeros.
func (t *ternaryGroup) load(b *block, first, n int, meanSquare, eps float32) bool {
	t.x = b.x[first:][:n]
	t.weigh(b, first, meanSquare)
	t.scale = 0
	t.down = [4]uint8{}
	if maxAbs(t.x) < eps {
		return false
	}
	// The insertion sort keeps the order of equal values.
	for i, v := range t.x {
		j := i
		for ; j > 0 && v < t.x[t.order[j-1]]; j-- {
			t.order[j] = t.order[j-1]
		}
		t.order[j] = uint8(i)
	}
	return true
}

func (t *ternaryGroup) weigh(b *block, first int, meanSquare float32) {
	if b.importance != nil {
		weigh(t.w[:len(t.x)], b.importance[first:], t.x, meanSquare)
	} else {
		squares(t.w[:len(t.x)], t.x)
	}
}

// split gives the first i1 values in order the lowest level, and those from i2 on the
// highest. If the scale is negative, it reverses the levels, the shifts and the scale.
func (t *ternaryGroup) split(i1, i2 int) {
	for j, i := range t.order[:len(t.x)] {
		level := uint8(1)
		if j < i1 {
			level = 0
		} else if j >= i2 {
			level = 2
		}
		if t.scale < 0 {
			level = 2 - level
		}
		t.level[i] = level
	}
	if t.scale < 0 {
		t.scale = -t.scale
		for k := range t.down {
			t.down[k] ^= 1
		}
	}
}

// snap moves the points to the grid, and fits the scale again if a point changes.
func (t *ternaryGroup) snap(l *lattice) {
	moved := false
	for k := range len(t.x) / 8 {
		var word uint16
		for i, level := range (*[8]uint8)(t.level[8*k:]) {
			word |= uint16(level) << (2 * i)
		}
		if l.index[word] < 0 {
			moved = true
			var c costs
			c.fill(shifted[t.down[k]][:], t.scale, t.x[8*k:8*k+8], t.w[8*k:8*k+8])
			word = l.nearest(word, &c)
		}
		t.words[k] = word
	}
	if !moved {
		return
	}
	var qx, q2 float32
	t.sums(&qx, &q2, 1)
	if qx > 0 && q2 > 0 {
		t.scale = qx / q2
	}
}

// sums adds to the sums of w*q*x and w*q*q over the values q of the points times a
// factor.
func (t *ternaryGroup) sums(qx, q2 *float32, factor float32) {
	for k := range len(t.x) / 8 {
		values := &shifted[t.down[k]]
		for i, v := range (*[8]float32)(t.x[8*k:]) {
			q := values[min(2, t.words[k]>>(2*i)&3)] * factor
			wq := float32(t.w[8*k+i] * q)
			*qx += float32(wq * v)
			*q2 += float32(wq * q)
		}
	}
}

// encodeIQ1_S encodes a block of groups of 32 with one shift each.
func encodeIQ1_S(dst []byte, b block) error {
	clear(dst)
	l := iq1Lattice()
	meanSquare := 2 * sumSquares(b.x) / 256
	var t ternaryGroup
	var scales [8]float32
	var high [8]uint16
	var top float32
	for g := range scales {
		if !t.load(&b, 32*g, 32, meanSquare, 1e-12) || !t.fitOne() {
			continue
		}
		t.snap(l)
		if !(t.scale >= 0) {
			return scaleError(t.scale)
		}
		for k, word := range t.words {
			i := l.index[word]
			dst[2+4*g+k] = uint8(i)
			high[g] |= uint16(i>>8) << (3 * k)
		}
		high[g] |= uint16(t.down[0]) << 15
		scales[g] = t.scale
		top = max(top, t.scale)
	}
	if top == 0 {
		// ggml stores no shift in such a block.
		for g, h := range high {
			binary.LittleEndian.PutUint16(dst[34+2*g:], h&0xfff)
		}
		return nil
	}
	d := top / 15
	inv := 1 / d
	for g, h := range high {
		h |= uint16(oddLevel(inv*scales[g], 8)) << 12
		binary.LittleEndian.PutUint16(dst[34+2*g:], h)
	}
	return putHalf(dst, d*1.125)
}

// fitOne finds the split, the shift and the scale of a group with one shift. It
// returns false if no split has any weight.
func (t *ternaryGroup) fitOne() bool {
	var sumX, sumW [33]float32
	for j, i := range t.order {
		sumX[j+1] = sumX[j] + float32(t.w[i]*t.x[i])
		sumW[j+1] = sumW[j] + t.w[i]
	}
	// These parts of the sums depend on only one end of the middle run.
	var lowX, lowQ, highX, highQ [2][33]float32
	for s, q := range shifted {
		for i := range sumX {
			lowX[s][i] = sumX[i] * q[0]
			lowQ[s][i] = float32(sumW[i]*q[0]) * q[0]
			highX[s][i] = (sumX[32] - sumX[i]) * q[2]
			highQ[s][i] = float32((sumW[32]-sumW[i])*q[2]) * q[2]
		}
	}
	best, found := -float32(math.MaxFloat32), false
	var first, second int
	var down uint8
	for i1 := range sumX {
		for i2 := i1; i2 < len(sumX); i2++ {
			midX, midW := sumX[i2]-sumX[i1], sumW[i2]-sumW[i1]
			for s := range shifted {
				q := shifted[s][1]
				qx := lowX[s][i1] + float32(midX*q) + highX[s][i2]
				q2 := lowQ[s][i1] + float32(float32(midW*q)*q) + highQ[s][i2]
				if q2 > 0 && float32(qx*qx) > float32(best*q2) {
					t.scale = qx / q2
					best = t.scale * qx
					first, second, down, found = i1, i2, uint8(s), true
				}
			}
		}
	}
	if !found {
		t.scale = 0
		return false
	}
	t.down = [4]uint8{down, down, down, down}
	t.split(first, second)
	return true
}

// encodeIQ1_M encodes a block of groups of 16 with a shift for each half.
func encodeIQ1_M(dst []byte, b block) error {
	clear(dst)
	l := iq1Lattice()
	meanSquare := 2 * sumSquares(b.x) / 256
	var groups [16]ternaryGroup
	var top float32
	for g := range groups {
		t := &groups[g]
		if !t.load(&b, 16*g, 16, meanSquare, 1e-7) || !t.fitTwo() {
			// The bytes stay zero, which is the first point.
			t.words[0], t.words[1] = l.points[0], l.points[0]
			continue
		}
		t.snap(l)
		if !(t.scale >= 0) {
			return scaleError(t.scale)
		}
		for k, word := range t.words[:2] {
			i := l.index[word]
			dst[2*g+k] = uint8(i)
			dst[32+g] |= uint8(i>>8) << (4 * k)
		}
		top = max(top, t.scale)
	}
	if top == 0 {
		return nil
	}
	// The scale of the block is fitted to the points with the stored scales of the groups.
	d := top / 15
	inv := 1 / d
	var packed uint64
	var qx, q2 float32
	for g := range groups {
		t := &groups[g]
		s := oddLevel(inv*t.scale, 8)
		packed |= uint64(s) << (g/4*16 + g%4*3)
		dst[32+g] |= t.down[0]<<3 | t.down[1]<<7
		t.sums(&qx, &q2, float32(2*s+1))
	}
	if q2 > 0 {
		d = qx / q2
	}
	var h [2]byte
	if err := putHalf(h[:], d*1.1125); err != nil {
		return err
	}
	for i := range 4 {
		packed |= uint64(h[i/2]>>(i%2*4)&15) << (16*i + 12)
	}
	binary.LittleEndian.PutUint64(dst[48:], packed)
	return nil
}

// fitTwo finds the split, the shifts and the scale of a group with a shift for each
// half. It returns false if no split has any weight.
func (t *ternaryGroup) fitTwo() bool {
	// The terms of the sums for each value in ascending order, by level and shift.
	type term struct{ x, q [2]float32 }
	var terms [16][3]term
	var second [16]uint8 // whether the value is in the second half
	for j, i := range t.order[:16] {
		second[j] = i / 8
		for level := range 3 {
			for s := range shifted {
				q := shifted[s][level]
				wq := float32(t.w[i] * q)
				terms[j][level].x[s] = wq * t.x[i]
				terms[j][level].q[s] = wq * q
			}
		}
	}
	// Sums for the pairs of shifts: up up, up down, down up, down down.
	type sums struct{ x, q [4]float32 }
	add := func(s *sums, j, level int) {
		e := &terms[j][level]
		if second[j] == 0 {
			s.x[0] += e.x[0]
			s.x[1] += e.x[0]
			s.x[2] += e.x[1]
			s.x[3] += e.x[1]
			s.q[0] += e.q[0]
			s.q[1] += e.q[0]
			s.q[2] += e.q[1]
			s.q[3] += e.q[1]
			return
		}
		s.x[0] += e.x[0]
		s.x[2] += e.x[0]
		s.x[1] += e.x[1]
		s.x[3] += e.x[1]
		s.q[0] += e.q[0]
		s.q[2] += e.q[0]
		s.q[1] += e.q[1]
		s.q[3] += e.q[1]
	}
	best, found := -float32(math.MaxFloat32), false
	var first, last, pair int
	var low sums
	for i1 := range 17 {
		middle := low
		for i2 := i1; i2 <= 16; i2++ {
			all := middle
			for j := i2; j < 16; j++ {
				add(&all, j, 2)
			}
			for p, q2 := range all.q {
				qx := all.x[p]
				if q2 > 0 && float32(qx*qx) > float32(best*q2) {
					t.scale = qx / q2
					best = t.scale * qx
					first, last, pair, found = i1, i2, p, true
				}
			}
			if i2 < 16 {
				add(&middle, i2, 1)
			}
		}
		if i1 < 16 {
			add(&low, i1, 0)
		}
	}
	if !found {
		t.scale = 0
		return false
	}
	t.down = [4]uint8{uint8(pair >> 1), uint8(pair & 1)}
	t.split(first, last)
	return true
}
