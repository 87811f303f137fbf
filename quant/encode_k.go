package quant

// The encoders of K-quants with a minimum (Q2_K, Q4_K, Q5_K) first fit each group of a
// super-block, then quantize the scales and minima of all groups, and last choose the codes
// again for the stored scales. Those without a minimum (Q3_K, Q6_K) do the same with
// symmetric groups.

// affineK describes a K-quant with a minimum per group.
type affineK struct {
	group int   // elements per group
	last  int32 // last code
	// lastScale is the last code of a scale or minimum.
	lastScale int32
	// plain and weighted are the searches without and with an importance vector.
	plain, weighted affineSteps
	// spread is the factor of the mean square in the weights with importance.
	spread float32
	// clampPlain and clampWeighted bound the stored scales as ggml does. A negative scale,
	// which only the noise of a nearly constant group causes, is stored modulo 256.
	clampPlain, clampWeighted uint8
}

// The parameters are ggml's.
var (
	q2K = affineK{
		group: 16, last: 3, lastScale: 15,
		plain: affineSteps{first: -0.5, step: 0.1, n: 15, absolute: true}, weighted: weightedSteps,
		spread: 1, clampPlain: 255, clampWeighted: 255,
	}
	q4K = affineK{
		group: 32, last: 15, lastScale: 63,
		plain: affineSteps{first: -1, step: 0.1, n: 20}, weighted: weightedSteps,
		spread: 2, clampPlain: 63, clampWeighted: 255,
	}
	q5K = affineK{
		group: 32, last: 31, lastScale: 63,
		plain: affineSteps{first: -0.5, step: 0.1, n: 15}, weighted: weightedSteps,
		spread: 2, clampPlain: 63, clampWeighted: 63,
	}
)

// superBlock is a K-quant block before packing. Formats with groups of 32 use the first
// half of the arrays that are indexed by group.
type superBlock struct {
	codes       [256]uint8
	scale, mins [16]uint8
	d, dmin     float32
}

// fit finds the codes, and the scales and minima to store.
func (k *affineK) fit(s *superBlock, b *block) {
	var scales, mins, sums [16]float32
	var buf [groupMax]float32
	groups, w := 256/k.group, buf[:k.group]
	steps, meanSquare := &k.plain, float32(0)
	if b.importance != nil {
		steps, meanSquare = &k.weighted, k.spread*sumSquares(b.x)/256
	}
	for g := range groups {
		x := b.x[k.group*g:][:k.group]
		if b.importance == nil {
			k.plainWeights(w, x)
		} else {
			weigh(w, b.importance[k.group*g:], x, meanSquare)
			for _, v := range w {
				sums[g] += v
			}
		}
		scales[g], mins[g] = searchAffine(s.codes[k.group*g:][:k.group], x, w, k.last, steps)
	}
	if b.importance == nil {
		s.d = quantizeScales(s.scale[:groups], scales[:groups], k.lastScale, k.clampPlain)
		s.dmin = quantizeScales(s.mins[:groups], mins[:groups], k.lastScale, k.clampPlain)
		return
	}
	s.d = searchPositive(s.scale[:groups], scales[:groups], sums[:groups], k.lastScale)
	s.dmin = searchPositive(s.mins[:groups], mins[:groups], sums[:groups], k.lastScale)
	for g := range groups {
		s.scale[g] = min(s.scale[g], k.clampWeighted)
		s.mins[g] = min(s.mins[g], k.clampWeighted)
	}
}

// plainWeights gives the larger values of a group more weight.
func (k *affineK) plainWeights(w, x []float32) {
	x = x[:len(w)]
	if k.group == 16 {
		for i, v := range x {
			w[i] = magnitude(v)
		}
		return
	}
	rms := sqrt(sumSquares(x) / float32(k.group))
	for i, v := range x {
		w[i] = rms + magnitude(v)
	}
}

// quantizeScales sets code to the codes of values, and returns their scale. The largest
// value gets the last code.
func quantizeScales(code []uint8, values []float32, last int32, clamp uint8) float32 {
	var top float32
	for _, v := range values {
		if v > top {
			top = v
		}
	}
	var inv float32
	if top > 0 {
		inv = float32(last) / top
	}
	for i, v := range values {
		code[i] = min(clamp, uint8(nearest(inv*v)))
	}
	return top / float32(last)
}

// recode chooses the codes again. d and dmin are the stored scales of the block, and s.scale
// and s.mins the stored codes of the groups. A group whose stored scale is zero keeps its
// codes.
func (k *affineK) recode(s *superBlock, x []float32, d, dmin float32) {
	for g := range 256 / k.group {
		dl := d * float32(s.scale[g])
		if dl == 0 {
			continue
		}
		ml := float32(dmin * float32(s.mins[g]))
		codes := s.codes[k.group*g:][:k.group]
		for i, v := range x[k.group*g:][:k.group] {
			codes[i] = uint8(max(0, min(k.last, nearest((v+ml)/dl))))
		}
	}
}

func encodeQ2_K(dst []byte, b block) error {
	var s superBlock
	q2K.fit(&s, &b)
	if err := putHalf(dst[80:], s.d); err != nil {
		return err
	}
	if err := putHalf(dst[82:], s.dmin); err != nil {
		return err
	}
	for g := range 16 {
		packed := s.scale[g] | s.mins[g]<<4
		dst[g] = packed
		s.scale[g], s.mins[g] = packed&15, packed>>4
	}
	q2K.recode(&s, b.x, half(dst[80:]), half(dst[82:]))
	putPairs((*[64]byte)(dst[16:]), &s.codes)
	return nil
}

// putPairs packs the low 2 bits of the codes. A run of 32 bytes holds 4 runs of 32 codes.
func putPairs(dst *[64]byte, codes *[256]uint8) {
	for g := range 2 {
		out, c := (*[32]byte)(dst[32*g:]), (*[128]uint8)(codes[128*g:])
		for j := range out {
			out[j] = c[j]&3 | c[j+32]&3<<2 | c[j+64]&3<<4 | c[j+96]<<6
		}
	}
}

func encodeQ4_K(dst []byte, b block) error {
	var s superBlock
	if err := q4K.fitPacked(dst, &s, &b); err != nil {
		return err
	}
	putHalves((*[128]byte)(dst[16:]), &s.codes)
	return nil
}

func encodeQ5_K(dst []byte, b block) error {
	var s superBlock
	if err := q5K.fitPacked(dst, &s, &b); err != nil {
		return err
	}
	high := (*[32]byte)(dst[16:])
	clear(high[:])
	for g := range 8 {
		for j, c := range (*[32]uint8)(s.codes[32*g:]) {
			high[j] |= c >> 4 << g
		}
	}
	putHalves((*[128]byte)(dst[48:]), &s.codes)
	return nil
}

// fitPacked is the common part of Q4_K and Q5_K. It finds the codes, and writes the first 16
// bytes, with the scales and minima that scaleMin unpacks.
func (k *affineK) fitPacked(dst []byte, s *superBlock, b *block) error {
	k.fit(s, b)
	if err := putHalf(dst, s.d); err != nil {
		return err
	}
	if err := putHalf(dst[2:], s.dmin); err != nil {
		return err
	}
	packed := (*[12]byte)(dst[4:])
	for g := range 4 {
		packed[g], packed[g+4] = s.scale[g], s.mins[g]
	}
	for g := 4; g < 8; g++ {
		packed[g+4] = s.scale[g]&15 | s.mins[g]<<4
		packed[g-4] |= s.scale[g] >> 4 << 6
		packed[g] |= s.mins[g] >> 4 << 6
	}
	for g := range 8 {
		s.scale[g], s.mins[g] = scaleMin(packed, g)
	}
	k.recode(s, b.x, half(dst), half(dst[2:]))
	return nil
}

// putHalves packs the low 4 bits of the codes. A run of 32 bytes holds 2 runs of 32 codes.
func putHalves(dst *[128]byte, codes *[256]uint8) {
	for g := range 4 {
		out, c := (*[32]byte)(dst[32*g:]), (*[64]uint8)(codes[64*g:])
		for j := range out {
			out[j] = c[j]&15 | c[j+32]<<4
		}
	}
}

// recodeSymmetric is affineK.recode for groups of 16 without a minimum. scale holds the
// groups' factors. The value of a code is the code minus half.
func recodeSymmetric(codes *[256]uint8, x []float32, d float32, scale *[16]int8, half int32) {
	for g, s := range scale {
		dl := d * float32(s)
		if dl == 0 {
			continue
		}
		c := (*[16]uint8)(codes[16*g:])
		for i, v := range (*[16]float32)(x[16*g:]) {
			c[i] = uint8(half + max(-half, min(half-1, nearest(v/dl))))
		}
	}
}

func encodeQ3_K(dst []byte, b block) error {
	var codes [256]uint8
	var scales [16]float32
	var scale [16]int8
	var d float32
	if b.importance == nil {
		for g := range scales {
			scales[g] = descendGroup((*[16]uint8)(codes[16*g:]), b.x[16*g:][:16])
		}
		if ext := extremeOf(scales[:]); ext != 0 {
			inv := -32 / ext
			for g, v := range scales {
				scale[g] = max(-32, min(31, int8(nearest(inv*v))))
			}
			d = 1 / inv
		} else {
			// The bytes stay zero, whose value is -32.
			for g := range scale {
				scale[g] = -32
			}
		}
	} else {
		meanSquare := 2 * sumSquares(b.x) / 256
		var w, sums [16]float32
		for g := range scales {
			x := b.x[16*g:][:16]
			weigh(w[:], b.importance[16*g:], x, meanSquare)
			for _, v := range w {
				sums[g] += v
			}
			scales[g] = searchSymmetric(codes[16*g:][:16], x, w[:], 4)
		}
		var s [16]uint8
		d = searchSymmetric(s[:], scales[:], sums[:], 32)
		for g := range scale {
			scale[g] = int8(s[g]) - 32
		}
	}
	if err := putHalf(dst[108:], d); err != nil {
		return err
	}
	// The first 8 bytes have the four low bits of each scale, the rest the two high bits.
	packed := (*[12]byte)(dst[96:])
	clear(packed[:])
	for g, s := range scale {
		c := uint8(s + 32)
		packed[g%8] |= c & 15 << (g / 8 * 4)
		packed[8+g%4] |= c >> 4 << (g / 4 * 2)
	}
	recodeSymmetric(&codes, b.x, half(dst[108:]), &scale, 4)
	high := (*[32]byte)(dst)
	clear(high[:])
	for g := range 8 {
		for j, c := range (*[32]uint8)(codes[32*g:]) {
			high[j] |= c >> 2 << g
		}
	}
	putPairs((*[64]byte)(dst[32:]), &codes)
	return nil
}

// descendGroup fits a group of Q3_K without an importance vector. The value of a code is the
// code minus 4. In a group of zeros the codes are 0 nevertheless.
func descendGroup(code *[16]uint8, x []float32) float32 {
	amax, ext := extreme(x)
	if amax < tinyGroup {
		clear(code[:])
		return 0
	}
	var w [16]float32
	squares(w[:], x)
	inv := -4 / ext
	var lx, l2 float32
	var signed [16]int8
	for i, v := range x {
		n := max(-4, min(3, nearest(inv*v)))
		l := float32(n)
		signed[i] = int8(n)
		lx += float32(float32(w[i]*v) * l)
		l2 += float32(float32(w[i]*l) * l)
	}
	scale := descend(signed[:], x, w[:], lx, l2, -4, 3, false)
	for i, l := range signed {
		code[i] = uint8(l + 4)
	}
	return scale
}

// extremeOf returns the first value of x with the largest magnitude. It ignores NaNs.
func extremeOf(x []float32) float32 {
	var ext, top float32
	for _, v := range x {
		if a := magnitude(v); a > top {
			ext, top = v, a
		}
	}
	return ext
}

func encodeQ6_K(dst []byte, b block) error {
	var codes [256]uint8
	var scales [16]float32
	var w [16]float32
	for g := range scales {
		x := b.x[16*g:][:16]
		weights := w[:]
		if b.importance != nil {
			weights = b.importance[16*g:][:16]
		} else {
			squares(w[:], x)
		}
		scales[g] = searchSymmetric(codes[16*g:][:16], x, weights, 32)
	}
	ext := extremeOf(scales[:])
	if magnitude(ext) < tinyGroup {
		clear(dst)
		return nil
	}
	inv := -128 / ext
	if err := putHalf(dst[208:], 1/inv); err != nil {
		return err
	}
	var scale [16]int8
	for g, v := range scales {
		scale[g] = int8(min(127, nearest(inv*v)))
		dst[192+g] = uint8(scale[g])
	}
	recodeSymmetric(&codes, b.x, half(dst[208:]), &scale, 32)
	for g := range 2 {
		low, high := (*[64]byte)(dst[64*g:]), (*[32]byte)(dst[128+32*g:])
		c := (*[128]uint8)(codes[128*g:])
		for j := range high {
			c0, c1, c2, c3 := c[j], c[j+32], c[j+64], c[j+96]
			low[j] = c0&15 | c2<<4
			low[j+32] = c1&15 | c3<<4
			high[j] = c0>>4 | c1>>4<<2 | c2>>4<<4 | c3>>4<<6
		}
	}
	return nil
}
