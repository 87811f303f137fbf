package main

import (
	"fmt"

	. "github.com/fucina-go/fucina/kernels/cpu/_asm/gen"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// small is a format of blocks of 32 elements.
type small struct {
	name  string
	bytes int // of a block
	bias  int // what the codes of pair have too much
	term  int // the offset of the term of each element, or 0 if there is none
	// plain says that the codes are the halves of the last 16 bytes of a block.
	plain bool
	// most is the largest code of pair.
	most int
	// constants sets registers from 24 on, before the loop.
	constants func()
	// pair sets the bytes of v to the codes of the blocks at a and b, without a sign. It may change
	// the registers 20 and 21.
	pair func(a, b Mem, v reg.VecPhysical)
	// word changes the first word of blocks to their scales, and may change the registers 20 and 21.
	// If it is nil, a block begins with a half. Only the first byte of the word counts.
	word func(v reg.VecPhysical)
}

// rows multiplies rows of the format by one row of activations, 16 blocks at a time: two share a zmm.
//
// With GFNI, one instruction takes both halves of bytes. Without, the upper halves stay where they are,
// if nothing but a factor of 16 is in the way.
func (f *small) rows(vbmi bool) {
	TEXT(f.name+"Rows"+level(vbmi), NOSPLIT, smallArgs)
	k := &smallRows{small: f, chunks: f.chunks(), split: f.plain && !vbmi}
	// Up to 8 products of codes below 32 are words of 16 bits.
	k.pack = f.most < 32 && !k.split
	smallLoop(f.bytes, func() {
		f.constants()
		k.masks()
		switch {
		case k.split:
			VBROADCASTI64X4(Table("splitNibbles", append(Repeat([]byte{0x0f}, 16), Repeat([]byte{0xf0}, 16)...)), Z(25))
		case vbmi:
			VBROADCASTI64X4(Table("nibbleMatrices", append(Repeat(Dwords(0, 0x01020408), 2), Repeat(Dwords(0, 0x10204080), 2)...)), Z(24))
		}
		if k.pack {
			Broadcast(0x00010001, Z(22))
		}
	}, blocksLoop{
		start: func() {
			VPXORD(pending[0], pending[0], pending[0])
			VPXORD(pending[1], pending[1], pending[1])
		},
		// The chain of the additions of products takes long, so that those of the former blocks are
		// added meanwhile.
		four: func(p, a, b reg.Register) {
			steps := chain() // five of which need pending
			k.sixteen(p, a, b, 0, 0, pending[0], steps[:5])
			k.sixteen(p, a, b, 16*f.bytes, 2*actBytes, pending[1], steps[5:])
		},
		two: func(p, a, b reg.Register) {
			k.sixteen(p, a, b, 0, 0, pending[0], chain())
			VPXORD(pending[1], pending[1], pending[1])
		},
		finish: func() {
			for _, step := range chain() {
				step()
			}
		},
	})
}

// smallRows is how a function multiplies rows of small blocks.
type smallRows struct {
	*small
	*chunks
	split bool // the upper halves of bytes are not shifted
	pack  bool
}

// sixteen sets a register to the products of 16 blocks at p with the activations at a and b. Meanwhile
// it executes steps, two by two.
func (f *smallRows) sixteen(p, a, b reg.Register, at, actAt int, to reg.VecPhysical, steps []func()) {
	v := func(i int) reg.VecPhysical { return Z(i) }
	t := Z(9)
	pair := func(level, i int) {
		x, y := v(i), v(i+1<<level)
		switch {
		case f.pack:
			VPACKSSDW(y, x, x)
			VPMADDWD(Z(22), x, x)
			return
		case level == 0:
			VPUNPCKHDQ(y, x, t)
			VPUNPCKLDQ(y, x, x)
		default:
			VPUNPCKHQDQ(y, x, t)
			VPUNPCKLQDQ(y, x, x)
		}
		VPADDD(t, x, x)
	}
	for i := range 8 {
		q, first, second := Z(10), At(p, at+2*i*f.bytes), At(p, at+(2*i+1)*f.bytes)
		if f.split {
			both(first.Offset(f.bytes-16), second.Offset(f.bytes-16), q)
			VPANDD(Z(25), q, q)
		} else {
			f.pair(first, second, q)
		}
		act := At(a, actAt+64*i)
		if i >= 4 {
			act = At(b, actAt+64*(i-4))
		}
		VPXOR(v(i).AsX(), v(i).AsX(), v(i).AsX())
		VPDPBUSD(act, q, v(i))
		for range min(len(steps), 2) {
			steps[0]()
			steps = steps[1:]
		}
		if i%2 == 1 {
			pair(0, i-1)
		}
		if i%4 == 3 {
			pair(1, i-3)
		}
	}
	// The lanes 0 and 1 have parts of the blocks 0, 2, 4 and 6, the lanes 2 and 3 of the others.
	dot := Z(0)
	VSHUFI32X4(Imm(0xdd), v(4), dot, t)
	VSHUFI32X4(Imm(0x88), v(4), dot, dot)
	if f.split {
		VPSRAD(Imm(4), t, t)
	}
	VPADDD(t, dot, dot)
	// From here on, the order of the blocks is that of lane.
	sums, d, m, scales := Z(1), Z(2), Z(3), Z(4)
	if f.bias > 0 || f.term > 0 {
		// A word of each pair of sums is taken, times what makes the bias good.
		factor := 1
		if f.bias > 0 {
			factor = -f.bias
		}
		low, high := Dwords(uint32(uint16(factor))), Dwords(uint32(uint16(factor))<<16)
		both(At(a, actAt+actSums), At(b, actAt+actSums), sums)
		VPMADDWD(Table(fmt.Sprintf("sumsTimes%d", factor&0xffff), Repeat(append(Repeat(low, 4), Repeat(high, 4)...), 2)), sums, sums)
	}
	if f.bias > 0 {
		VPADDD(sums, dot, dot)
	}
	VCVTDQ2PS(dot, dot)
	f.load(p, at, d, t)
	var order []uint32
	for i := range 16 {
		order = append(order, uint32(16*(lane(i)/8)+lane(i)%8))
	}
	VMOVDQU32(Table("smallScales", Dwords(order...)), scales)
	VMOVUPS(At(a, actAt+actScales), t)
	VPERMI2PS(At(b, actAt+actScales), t, scales)
	switch {
	case f.term > 0:
		VEXTRACTI64X4(Imm(1), d, m.AsY())
		VCVTPH2PS(d.AsY(), d)
		VCVTPH2PS(m.AsY(), m)
		VCVTDQ2PS(sums, sums)
		VMULPS(d, dot, dot)
		VFMADD231PS(sums, m, dot)
		VMULPS(scales, dot, to)
		return
	case f.word != nil:
		f.word(d)
	default:
		VCVTPH2PS(d.AsY(), d)
	}
	VMULPS(scales, d, d)
	VMULPS(d, dot, to)
}

// pending are the products of 32 blocks, until they are added up.
var pending = [2]reg.VecPhysical{Z(11), Z(16)}

// lane returns the block whose words are the words i of vectors of sixteen: the lanes have the blocks 0,
// 2, 4 and 6, then 1, 3, 5 and 7, and the same of the second stretch.
func lane(i int) int { return i&8 | i&3<<1 | i>>2&1 }

// chain returns the instructions that add the products of four stretches, one after the other, to the
// sum in X8. The first product of a stretch is not added to 0, because a sum of 0 and -0 is no other
// sum than one of 0 and 0. The registers 12 to 15 change.
func chain() (steps []func()) {
	// The words 0 and 1 of lanes are of the first and third, or of the second and fourth stretch. The
	// even blocks are in the lanes 0 and 2 of even, the odd ones in those of odd.
	even, odd, part, t := Z(12), Z(13), Z(14), Z(15)
	for i := range 8 {
		steps = append(steps, func() {
			switch i {
			case 0:
				VUNPCKLPS(pending[1], pending[0], even)
				VSHUFF32X4(Imm(0xb1), even, even, odd)
			case 4:
				VUNPCKHPS(pending[1], pending[0], even)
				VSHUFF32X4(Imm(0xb1), even, even, odd)
			}
			v := []reg.VecPhysical{even, odd}[i%2]
			if i%4 > 1 {
				VPERMILPS(Imm(0x4e), v, t)
				v = t
			}
			switch i {
			case 0:
				VMOVAPS(v, part)
			default:
				VADDPS(v, part, part)
			}
		})
	}
	return append(steps, func() {
		sum, second := reg.X8, t.AsX()
		VEXTRACTF32X4(Imm(2), part, second)
		VADDSS(part.AsX(), sum, sum)
		VADDSS(second, sum, sum)
		VMOVSHDUP(part.AsX(), part.AsX())
		VMOVSHDUP(second, second)
		VADDSS(part.AsX(), sum, sum)
		VADDSS(second, sum, sum)
	})
}

// chunks says how the headers of 16 blocks come into a zmm. Each of several chunks of 64 bytes has
// those of some blocks. A permutation takes words of 32 bits from two chunks.
type chunks struct {
	offsets []int // of the chunks
	words   Mem   // the word of each block in its two chunks, in the order of lane
	lanes   []uint16
	// pick chooses the parts of the words: by VPSHUFB if they are single bytes, else by VPERMW.
	pick   Mem
	single bool
}

func (f *small) chunks() *chunks {
	size := 2
	switch {
	case f.term > 0:
		size = 4
	case f.word != nil:
		size = 1
	}
	count := (64-size)/f.bytes + 1 // blocks of a chunk
	c := &chunks{single: f.word != nil}
	for i := 0; i < 16; i += count {
		c.offsets = append(c.offsets, min(i*f.bytes, 16*f.bytes-64))
	}
	c.lanes = make([]uint16, (len(c.offsets)+1)/2)
	var words []uint32
	var pick, terms []byte
	for i := range 16 {
		n := lane(i) / count
		at := lane(i)*f.bytes - c.offsets[n]
		c.lanes[n/2] |= 1 << i
		words = append(words, uint32(16*(n%2)+at/4))
		switch {
		case c.single:
			pick = append(pick, byte(4*(i%4)+at%4), 128, 128, 128)
		default:
			pick = append(pick, byte(2*i+at%4/2), 0)
			terms = append(terms, byte(2*i+at%4/2+1), 0)
		}
	}
	c.words = Table(f.name+"Headers", Dwords(words...))
	c.pick = Table(f.name+"Pick", append(pick, terms...))
	return c
}

// masks sets K2 and the following to the lanes of the permutations, and Z23 to pick.
func (c *chunks) masks() {
	t := GP32()
	for i, lanes := range c.lanes {
		MOVL(U32(uint32(lanes)), t)
		KMOVW(t, opmask(2+i))
	}
	VMOVDQU32(c.pick, Z(23))
}

func opmask(i int) reg.OpmaskPhysical {
	return [...]reg.OpmaskPhysical{reg.K0, reg.K1, reg.K2, reg.K3, reg.K4, reg.K5, reg.K6, reg.K7}[i]
}

// load sets d to the picked parts of the headers of 16 blocks at p. It changes t.
func (c *chunks) load(p reg.Register, at int, d, t reg.VecPhysical) {
	VMOVDQU32(c.words, d)
	for i := range c.lanes {
		VMOVDQU32(At(p, at+c.offsets[2*i]), t)
		VPERMI2D(At(p, at+c.offsets[min(2*i+1, len(c.offsets)-1)]), t, opmask(2+i), d)
	}
	if c.single {
		VPSHUFB(Z(23), d, d)
	} else {
		VPERMW(d, Z(23), d)
	}
}

// both sets v to the 16 bytes at a, twice, and those at b, twice. K7 has the upper lanes.
func both(a, b Mem, v reg.VecPhysical) {
	VBROADCASTI32X4(a, v)
	VBROADCASTI32X4(b, reg.K7, v)
}

// nibblesOf returns a function that sets v to the low halves and then the high halves of 16 bytes at
// offset o of a, and then those of b. With GFNI, Z24 has the matrices of both.
func nibblesOf(vbmi bool) func(a, b Mem, o int, v reg.VecPhysical) {
	return func(a, b Mem, o int, v reg.VecPhysical) {
		both(a.Offset(o), b.Offset(o), v)
		if vbmi {
			VGF2P8AFFINEQB(Imm(0), Z(24), v, v)
			return
		}
		VPSRLVQ(Z(24), v, v)
		VPANDD(Z(25), v, v)
	}
}

// nibbleConstants sets what nibblesOf needs without GFNI.
func nibbleConstants() {
	VMOVDQU32(Table("nibbleShifts", Repeat(Dwords(0, 0, 0, 0, 4, 0, 4, 0), 2)), Z(24))
	Broadcast(0x0f0f0f0f, Z(25))
	upperLanes()
}

// upperLanes sets what both needs.
func upperLanes() {
	t := GP32()
	MOVL(U32(0xff00), t)
	KMOVW(t, reg.K7)
}

// levels makes the codes of v indices of a table of 16 levels, to which 128 is added.
func levels(name string, list [16]int) (constants func(), look func(v reg.VecPhysical)) {
	return levelsOver(name, list, 128)
}

// levelsOver is levels with another bias than 128.
func levelsOver(name string, list [16]int, bias int) (constants func(), look func(v reg.VecPhysical)) {
	var b []byte
	for _, l := range list {
		b = append(b, byte(l+bias))
	}
	return func() {
		nibbleConstants()
		VBROADCASTI32X4(Table(name+"Levels", b), Z(26))
	}, func(v reg.VecPhysical) { VPSHUFB(v, Z(26), v) }
}

// iq4nlLevels are the levels of IQ4_NL and IQ4_XS.
var iq4nlLevels = [16]int{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// fp4Levels are twice the levels of MXFP4.
var fp4Levels = [16]int{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

// smallFormats returns the formats of small blocks, as panels have their codes.
func smallFormats() []*small { return smallFormatsWith(false, 128) }

// smallFormatsWith returns the formats of small blocks whose functions use GFNI or not, where MXFP4 has
// the given bias.
func smallFormatsWith(vbmi bool, fp4Bias int) []*small {
	nibbles := nibblesOf(vbmi)
	fifth := func(o int) func(a, b Mem, v reg.VecPhysical) {
		return func(a, b Mem, v reg.VecPhysical) {
			nibbles(a, b, o+4, v)
			low, high := GP64(), GP64()
			MOVL(b.Offset(o), high.As32())
			MOVL(a.Offset(o), low.As32())
			SHLQ(Imm(32), high)
			ORQ(high, low)
			KMOVQ(low, reg.K1)
			VPADDB(Z(27), v, reg.K1, v)
		}
	}
	fifthConstants := func() {
		nibbleConstants()
		Broadcast(0x10101010, Z(27))
	}
	nl, nlLook := levels("iq4nl", iq4nlLevels)
	fp4, fp4Look := levelsOver(fmt.Sprintf("fp4Over%d", fp4Bias), fp4Levels, fp4Bias)
	return []*small{
		{name: "q40", bytes: 18, bias: 8, plain: true, most: 15, constants: nibbleConstants, pair: func(a, b Mem, v reg.VecPhysical) { nibbles(a, b, 2, v) }},
		{name: "q41", bytes: 20, term: 2, plain: true, most: 15, constants: nibbleConstants, pair: func(a, b Mem, v reg.VecPhysical) { nibbles(a, b, 4, v) }},
		{name: "q50", bytes: 22, most: 31, bias: 16, constants: fifthConstants, pair: fifth(2)},
		{name: "q51", bytes: 24, most: 31, term: 2, constants: fifthConstants, pair: fifth(4)},
		{name: "q80", bytes: 34, most: 255, bias: 128, constants: func() { upperLanes(); Broadcast(0x80808080, Z(24)) }, pair: func(a, b Mem, v reg.VecPhysical) {
			VMOVDQU(a.Offset(2), v.AsY())
			VINSERTI64X4(Imm(1), b.Offset(2), v, v)
			VPXORD(Z(24), v, v)
		}},
		{name: "iq4nl", bytes: 18, most: 255, bias: 128, constants: nl, pair: func(a, b Mem, v reg.VecPhysical) { nibbles(a, b, 2, v); nlLook(v) }},
		{name: "mxfp4", bytes: 17, most: 12 + fp4Bias, bias: fp4Bias, constants: func() {
			fp4()
			Broadcast(1, Z(27))
			Broadcast(0x00200000, Z(28))
			Broadcast(255, Z(29))
			Broadcast(0x7fc00000, Z(30))
		}, pair: func(a, b Mem, v reg.VecPhysical) { nibbles(a, b, 1, v); fp4Look(v) }, word: e8m0},
	}
}

// e8m0 changes the words of v to 2^(e-128), where e is the first byte. The values of the bytes 0 and
// 1 are subnormal, and byte 255 is a NaN.
func e8m0(v reg.VecPhysical) {
	low := Z(20)
	VPSLLD(Imm(24), v, v)
	VPSRLD(Imm(24), v, v)
	VPSLLVD(v, Z(28), low)
	VPCMPUD(Imm(2), Z(27), v, reg.K1) // e <= 1
	VPCMPUD(Imm(0), Z(29), v, reg.K6) // e == 255
	VPSUBD(Z(27), v, v)
	VPSLLD(Imm(23), v, v)
	VMOVDQU32(low, reg.K1, v)
	VMOVDQU32(Z(30), reg.K6, v)
}
