package main

import (
	"fmt"

	. "github.com/fucina-go/fucina/kernels/cpu/_asm/gen"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// An unpacker makes a panel of 32 rows; see pack in package simd. It takes 16 rows at a time in zmm, or
// 8 in ymm. 16 bytes of the rows i, i+4, ... are the lanes of a register, so that the transposes of the
// words of its lanes are words of all rows. These become steps of the panel: bits of the codes are
// taken apart after the transpose, which is then of fewer bytes.

type unpacker struct {
	name string
	size int // of 256 elements, in bytes
	// The codes of 256 elements are so many units, which are step bytes apart, and alike.
	units, step int
	// unit writes the codes of a unit.
	unit func(l *lanes)
	// scales writes the other parts of super-blocks. In small blocks unit does, or it copies them to
	// where they belong, as they are.
	scales func(l *lanes)
	// after completes copied scales.
	after func(l *lanes)
}

// lanes is 16 rows in zmm, or 8 rows in ymm. Its registers are numbered from 0 to 15.
type lanes struct {
	wide  bool
	q     reg.Register   // the panel, from the first row on
	codes reg.Register   // those of this unit
	small reg.Register   // the scales of this unit of a small block
	rows4 []reg.Register // every fourth row, at this unit
	row   reg.Register   // the bytes of a row
	three reg.Register   // those of three
}

func (f *unpacker) generate(wide bool) {
	name, n := f.name+"UnpackAVX2", 2
	if wide {
		name, n = f.name+"Unpack", 4
	}
	TEXT(name, NOSPLIT, "func(panel, w *byte, rowBytes int)")
	l := &lanes{wide: wide, codes: GP64(), three: GP64()}
	w := Load(Param("w"), GP64())
	l.q, l.row = Load(Param("panel"), GP64()), Load(Param("rowBytes"), GP64())
	LEAQ(Mem{Base: l.row, Index: l.row, Scale: 2}, l.three)
	left, units := GP64(), GP64()
	MOVQ(I32(int32(8/n)), left)
	if f.scales == nil {
		l.small = GP64()
	}
	Label("rows")
	for i := range n {
		p := GP64()
		if i == 0 {
			MOVQ(w, p)
		} else {
			LEAQ(Mem{Base: l.rows4[i-1], Index: l.row, Scale: 4}, p)
		}
		l.rows4 = append(l.rows4, p)
	}
	if f.scales != nil {
		f.scales(l)
	} else {
		LEAQ(At(l.q, panelScales), l.small)
	}
	l.prefetch(f.size)
	MOVQ(l.q, l.codes)
	if f.units > 1 {
		MOVQ(I32(int32(f.units)), units)
	}
	Label("unit")
	f.unit(l)
	if f.units > 1 {
		ADDQ(I32(int32(panelScales/f.units)), l.codes)
		for _, p := range l.rows4 {
			ADDQ(I32(int32(f.step)), p)
		}
		if f.scales == nil {
			ADDQ(I32(int32(8*128/f.units)), l.small)
		}
		DECQ(units)
		JNZ(LabelRef("unit"))
	}
	if f.after != nil {
		f.after(l)
	}
	for range n / 2 {
		LEAQ(Mem{Base: w, Index: l.row, Scale: 8}, w)
	}
	ADDQ(I32(int32(16*n)), l.q)
	DECQ(left)
	JNZ(LabelRef("rows"))
	VZEROUPPER()
	RET()
}

// v returns a register.
func (l *lanes) v(i int) reg.VecPhysical {
	if l.wide {
		return Z(i)
	}
	return ymm(i)
}

// prefetch loads the next size bytes of the rows, which follow as many at rows4, to the first cache: rows
// are too many streams for the processor to foresee.
func (l *lanes) prefetch(size int) {
	for o := 0; o < size; o += 64 {
		for _, p := range l.rows4 {
			for _, m := range l.four(p) {
				PREFETCHT0(m.Offset(size + o))
			}
		}
	}
}

// four returns the first bytes of four rows.
func (l *lanes) four(p reg.Register) [4]Mem {
	return [4]Mem{{Base: p}, {Base: p, Index: l.row, Scale: 1}, {Base: p, Index: l.row, Scale: 2}, {Base: p, Index: l.three, Scale: 1}}
}

// words returns the four words of 16 bytes of the rows at offset o. They are in the registers base to
// base+3. If words are named, the others are of no meaning. It changes the register 15.
func (l *lanes) words(o, base int, words ...int) [4]reg.VecPhysical {
	a, t := [4]reg.VecPhysical{}, l.v(15)
	for i := range a {
		a[i] = l.v(base + i)
		for k, p := range l.rows4 {
			m := l.four(p)[i].Offset(o)
			switch {
			case k == 0:
				VMOVDQU(m, a[i].AsX())
			case l.wide:
				VINSERTI32X4(Imm(uint64(k)), m, a[i], a[i])
			default:
				VINSERTI128(Imm(uint64(k)), m, a[i], a[i])
			}
		}
	}
	need := [4]bool{len(words) == 0, len(words) == 0, len(words) == 0, len(words) == 0}
	for _, i := range words {
		need[i] = true
	}
	low, high := need[0] || need[1], need[2] || need[3]
	if high {
		VPUNPCKHDQ(a[1], a[0], t)
	}
	if low {
		VPUNPCKLDQ(a[1], a[0], a[0])
	}
	if high {
		VPUNPCKHDQ(a[3], a[2], a[1])
	}
	if low {
		VPUNPCKLDQ(a[3], a[2], a[2])
	}
	if need[0] {
		VPUNPCKLQDQ(a[2], a[0], a[3])
	}
	if need[1] {
		VPUNPCKHQDQ(a[2], a[0], a[0])
	}
	if need[2] {
		VPUNPCKLQDQ(a[1], t, a[2])
	}
	if need[3] {
		VPUNPCKHQDQ(a[1], t, a[1])
	}
	return [4]reg.VecPhysical{a[3], a[0], a[2], a[1]}
}

// copy copies the words of 16 bits at offset o of the rows to the scales of this unit: no other
// instructions leave the ports of the shuffles alone.
func (l *lanes) copy(o int) {
	t := GP32()
	for k, p := range l.rows4 {
		for i, m := range l.four(p) {
			MOVWLZX(m.Offset(o), t)
			MOVW(t.As16(), At(l.small, 8*k+2*i))
		}
	}
}

// convert makes the copied halves of 8 blocks f32.
func convert(l *lanes) {
	for b := range 8 {
		VCVTPH2PS(At(l.q, panelScales+128*b), l.v(0))
		l.scale(b, l.v(0))
	}
}

// word returns a table of one word, twice.
func word(name string, w uint32) Mem { return Table(name, Dwords(w, w)) }

// mask returns a table of a byte, for a memory operand.
func (l *lanes) mask(b byte) Mem {
	if l.wide {
		return word(fmt.Sprintf("four%02x", b), 0x01010101*uint32(b))
	}
	return bytes2(fmt.Sprintf("bytes%02x", b), b)
}

// and sets y to x and the byte b everywhere.
func (l *lanes) and(b byte, x, y reg.VecPhysical) {
	if l.wide {
		VPANDD_BCST(l.mask(b), x, y)
	} else {
		VPAND(l.mask(b), x, y)
	}
}

// xor sets y to x ^ the byte b everywhere.
func (l *lanes) xor(b byte, x, y reg.VecPhysical) {
	if l.wide {
		VPXORD_BCST(l.mask(b), x, y)
	} else {
		VPXOR(l.mask(b), x, y)
	}
}

// or sets z to x | y.
func (l *lanes) or(x, y, z reg.VecPhysical) {
	if l.wide {
		VPORD(x, y, z)
	} else {
		VPOR(x, y, z)
	}
}

// andNot sets z to y without the bits of x.
func (l *lanes) andNot(x, y, z reg.VecPhysical) {
	if l.wide {
		VPANDND(y, x, z)
	} else {
		VPANDN(y, x, z)
	}
}

// set sets all words of v.
func (l *lanes) set(w uint32, v reg.VecPhysical) { VPBROADCASTD(word(fmt.Sprintf("all%x", w), w), v) }

// shift sets y to x with bit in the place of bit to of its byte. Other bits come from other bytes.
func shift(x reg.VecPhysical, bit, to int, y reg.VecPhysical) reg.VecPhysical {
	switch {
	case bit > to:
		VPSRLW(Imm(uint64(bit-to)), x, y)
	case bit < to:
		VPSLLW(Imm(uint64(to-bit)), x, y)
	default:
		return x
	}
	return y
}

// bits sets y to the given number of bits of the bytes of x, from bit on.
func (l *lanes) bits(x reg.VecPhysical, bit, bits int, y reg.VecPhysical) {
	l.and(1<<bits-1, shift(x, bit, 0, y), y)
}

// merge adds bits of the bytes of x, from bit on, to those of y, from bit to on. It changes the
// register 14.
func (l *lanes) merge(x reg.VecPhysical, bit, bits, to int, y reg.VecPhysical) {
	t := shift(x, bit, to, l.v(14))
	mask := byte((1<<bits - 1) << to)
	if l.wide {
		VPTERNLOGD_BCST(Imm(0xf8), l.mask(mask), t, y)
		return
	}
	l.and(mask, t, l.v(14))
	l.or(l.v(14), y, y)
}

// fifth adds bit i of the words of x, from bit 4*s on, to the code i of the words of y, as its fifth
// bit. It changes the register 14 and the mask K1.
func (l *lanes) fifth(x reg.VecPhysical, s int, y reg.VecPhysical) {
	t, n := l.v(14), 2
	if l.wide {
		n = 4
	}
	var index []byte
	for i := range byte(4) {
		index = append(index, Repeat([]byte{4*i + byte(s/2)}, 4)...)
	}
	VPSHUFB(Table(fmt.Sprintf("spread%d%d", s/2, n), Repeat(index, n)), x, t)
	b := byte(1) << (s % 2 * 4)
	each := Table(fmt.Sprintf("each%d%d", s%2, n), Repeat([]byte{b, 2 * b, 4 * b, 8 * b}, 4*n))
	if l.wide {
		VPTESTMB(each, t, reg.K1)
		VPADDB(Table("sixteens", Repeat([]byte{16}, 64)), y, reg.K1, y)
		return
	}
	VPAND(each, t, t)
	VPCMPEQB(each, t, t)
	l.and(16, t, t)
	l.or(t, y, y)
}

// look makes the codes of v indices of 16 levels, to which bias is added.
func (l *lanes) look(name string, levels [16]int, bias int, v reg.VecPhysical) {
	var b []byte
	for _, x := range levels {
		b = append(b, byte(x+bias))
	}
	t := l.v(14)
	if l.wide {
		VBROADCASTI32X4(Table(name+"Levels", b), t)
	} else {
		VBROADCASTI128(Table(name+"Levels", b), t)
	}
	VPSHUFB(v, t, v)
}

// step writes the codes v of step s of this unit.
func (l *lanes) step(s int, v reg.VecPhysical) { VMOVUPS(v, At(l.codes, 128*s)) }

// nibbles writes the low halves of the bytes of x as the codes of the first steps, and the high halves
// as those of the steps from high on, after change. It changes the registers 12 to 14.
func (l *lanes) nibbles(x [4]reg.VecPhysical, first, high int, change func(h, s int, v reg.VecPhysical)) {
	for s, x := range x {
		for h, to := range []int{first, high} {
			v := l.v(12 + h)
			l.bits(x, 4*h, 4, v)
			if change != nil {
				change(h, s, v)
			}
			l.step(to+s, v)
		}
	}
}

// The offsets of a panel of super-blocks.
func panelPairs(groups int) int { return panelScales + 128*groups }
func panelD(groups int) int     { return panelPairs(groups) + 128*groups/2 }

// store writes v to the given offset of the panel.
func (l *lanes) store(v reg.VecPhysical, offset int) { VMOVUPS(v, At(l.q, offset)) }

// scale writes the scale v of the group at the given position.
func (l *lanes) scale(position int, v reg.VecPhysical) { l.store(v, panelScales+128*position) }

// pair writes the pair of words low and high, which are at least 0 or whose upper halves are of no
// importance, of the groups 2i and 2i+1. It changes both, and the register 14.
func (l *lanes) pair(groups, i int, low, high reg.VecPhysical) {
	VPSLLD(Imm(16), high, high)
	if l.wide {
		VPTERNLOGD_BCST(Imm(0xf8), word("lowWord", 0xffff), low, high)
	} else {
		VPBLENDW(Imm(0x55), low, high, high)
	}
	l.store(high, panelPairs(groups)+128*i)
}

// half writes the f32 of the halves in the lower words of v. It changes v.
func (l *lanes) half(v reg.VecPhysical, m Mem) {
	if l.wide {
		VPMOVDW(v, v.AsY())
		VCVTPH2PS(v.AsY(), v)
	} else {
		VPSHUFB(Table("packWords", Repeat([]byte{0, 1, 4, 5, 8, 9, 12, 13, 128, 128, 128, 128, 128, 128, 128, 128}, 2)), v, v)
		VPERMQ(Imm(8), v, v)
		VCVTPH2PS(v.AsX(), v)
	}
	VMOVUPS(v, m)
}

// halves writes the f32 of the lower and of the upper words of v. It changes v and the register 14.
func (l *lanes) halves(v reg.VecPhysical, low, high Mem) {
	VPSRLD(Imm(16), v, l.v(14))
	l.half(v, low)
	l.half(l.v(14), high)
}

// upperHalf writes the f32 of the upper words of v. It changes v.
func (l *lanes) upperHalf(v reg.VecPhysical, m Mem) {
	VPSRLD(Imm(16), v, v)
	l.half(v, m)
}

// field sets v to bits bits of the words of u, from bit on.
func field(u reg.VecPhysical, bit, bits int, v reg.VecPhysical) {
	VPSLLD(Imm(uint64(32-bits-bit)), u, v)
	VPSRLD(Imm(uint64(32-bits)), v, v)
}

// across sets v to the upper halves of the words of u and the lower halves of those of w. It changes
// the register 14.
func (l *lanes) across(u, w, v reg.VecPhysical) {
	VPSLLD(Imm(16), w, l.v(14))
	VPSRLD(Imm(16), u, v)
	l.or(l.v(14), v, v)
}

var halvesOrder = [8]int{0, 2, 1, 3, 4, 6, 5, 7}
var quartersOrder = [8]int{0, 2, 4, 6, 1, 3, 5, 7}

// kScales is the scales of Q4_K and Q5_K, whose 16 bytes a block begins with.
func kScales(l *lanes) {
	u := l.words(0, 0)
	scale := func(first, shift int, j int, v reg.VecPhysical) {
		if j < 4 {
			field(u[first], 8*j, 6, v)
			return
		}
		j -= 4
		t := l.v(6)
		field(u[3], 8*j+shift, 4, v)
		field(u[first], 8*j+6, 2, t)
		VPSLLD(Imm(4), t, t)
		l.or(t, v, v)
	}
	for j := range 8 {
		scale(1, 0, j, l.v(4))
		l.scale(halvesOrder[j], l.v(4))
	}
	for i := range 4 {
		scale(2, 4, 2*i, l.v(4))
		scale(2, 4, 2*i+1, l.v(5))
		l.pair(8, i, l.v(4), l.v(5))
	}
	l.halves(u[0], At(l.q, panelD(8)), At(l.q, panelD(8)+128))
}

// biased writes the scale v of the group g of n, at its position, and keeps it for the pair of
// groups, in which it is multiplied by 1<<shift. It changes the registers 10 to 14.
func biased(l *lanes, n, g, position, shift int, v reg.VecPhysical) {
	l.scale(position, v)
	VPSLLD(Imm(uint64(shift)), v, l.v(10+g%2))
	if g%2 == 1 {
		l.pair(n, g/2, l.v(10), l.v(11))
	}
}

// signedByte sets v to byte j of the words of u.
func signedByte(u reg.VecPhysical, j int, v reg.VecPhysical) {
	VPSLLD(Imm(uint64(24-8*j)), u, v)
	VPSRAD(Imm(24), v, v)
}

// e8m0 changes the words of v to 2^(e-128), where e is the first byte. Byte 255 is a NaN. It changes
// the registers 13 and 14.
func (l *lanes) e8m0(v reg.VecPhysical) {
	t, nan := l.v(13), l.v(14)
	VPSLLD(Imm(24), v, v)
	VPSRLD(Imm(24), v, v)
	l.set(1, t)
	VPADDD(t, v, nan)
	VPSRLD(Imm(8), nan, nan)
	VPSLLD(Imm(22), nan, nan)
	VPSLLD(Imm(23), v, v)
	l.set(0x00400000, t) // 2^-127
	VPMAXUD(t, v, v)
	l.set(0x3f000000, t) // 1/2
	VMULPS(t, v, v)
	l.or(nan, v, v)
}

// ue4m3 sets t to half the value of byte j of the words of v, which has 4 bits of exponent and 3 of
// fraction. The sign counts for nothing, but byte 127 is 0. It changes the registers 11 to 14.
func (l *lanes) ue4m3(v reg.VecPhysical, j int, t reg.VecPhysical) {
	least, is, c := l.v(12), l.v(13), l.v(14)
	field(v, 8*j, 8, t)
	l.set(127, c)
	VPSUBD(c, t, is)
	VPABSD(is, is)
	l.set(1, c)
	VPSUBD(c, is, is)
	VPSRAD(Imm(31), is, is) // -1 for byte 127
	l.andNot(is, t, t)
	VPSLLD(Imm(25), t, t)
	VPSRLD(Imm(25), t, c)
	// The numbers below 8 are subnormal, in steps of 2^-10. They do not become subnormal f32, which
	// take a hundred times as long.
	VCVTDQ2PS(c, least)
	l.set(0x3a800000, l.v(11))
	VMULPS(l.v(11), least, least)
	l.set(7, is)
	VPSUBD(c, is, is)
	VPSRAD(Imm(31), is, is) // -1 from 8 on
	l.andNot(is, least, least)
	l.set(8, is)
	VPSUBD(is, c, is)
	VPSRAD(Imm(31), is, is)
	VPSRLD(Imm(5), t, t)
	l.set(119<<23, c)
	VPADDD(c, t, t)
	l.andNot(is, t, t)
	l.or(least, t, t)
}

func unpackers() {
	// quarters writes the codes of two bits of the 64 bytes at o, after change.
	quarters := func(l *lanes, o int, change func(c, s, group int, v reg.VecPhysical)) {
		for c := range 4 {
			for s, x := range l.words(o+16*c, 0) {
				for k := range 4 {
					v := l.v(12 + k%2)
					l.bits(x, 2*k, 2, v)
					if change != nil {
						change(c%2, s, 4*(c/2)+k, v)
					}
					l.step(16*k+4*c+s, v)
				}
			}
		}
	}
	iq4nl := func(l *lanes) func(h, s int, v reg.VecPhysical) {
		return func(_, _ int, v reg.VecPhysical) { l.look("iq4nl", iq4nlLevels, 128, v) }
	}
	first := func(l *lanes) Mem { return At(l.small, 0) }
	second := func(l *lanes) Mem { return At(l.small, 8*128) }
	for _, f := range []*unpacker{
		{name: "q4k", size: 144, units: 2, step: 64, scales: kScales, unit: func(l *lanes) {
			for c := range 4 {
				l.nibbles(l.words(16+16*c, 0), 4*c, 16+4*c, nil)
			}
		}},
		{name: "q5k", size: 176, units: 1, scales: kScales, unit: func(l *lanes) {
			upper := [2][4]reg.VecPhysical{l.words(16, 4), l.words(32, 8)}
			for c := range 8 {
				at := 32*(c/4) + 4*(c%4)
				l.nibbles(l.words(48+16*c, 0), at, 16+at, func(h, s int, v reg.VecPhysical) {
					l.merge(upper[c%2][s], c/2*2+h, 1, 4, v)
				})
			}
		}},
		{name: "q6k", size: 210, units: 1, unit: func(l *lanes) {
			var upper [2][4]reg.VecPhysical
			for c := range 8 {
				if c%4 == 0 {
					upper = [2][4]reg.VecPhysical{l.words(128+8*c, 4), l.words(144+8*c, 8)}
				}
				at := 32*(c/4) + 4*(c%4)
				l.nibbles(l.words(16*c, 0), at, 16+at, func(h, s int, v reg.VecPhysical) {
					l.merge(upper[c%2][s], 4*h+c/2%2*2, 2, 4, v)
				})
			}
		}, scales: func(l *lanes) {
			for i, u := range l.words(192, 0) {
				for j := range 4 {
					signedByte(u, j, l.v(8))
					biased(l, 16, 4*i+j, 4*i+j, 5, l.v(8))
				}
			}
			l.upperHalf(l.words(194, 0, 3)[3], At(l.q, panelD(16)))
		}},
		{name: "q2k", size: 84, units: 1, unit: func(l *lanes) {
			quarters(l, 16, nil)
		}, scales: func(l *lanes) {
			for i, u := range l.words(0, 0) {
				for j := range 4 {
					n := 4*i + j
					field(u, 8*j, 4, l.v(8))
					l.scale(2*quartersOrder[n/2]+n%2, l.v(8))
					field(u, 8*j+4, 4, l.v(10+j%2))
					if j%2 == 1 {
						l.pair(16, n/2, l.v(10), l.v(11))
					}
				}
			}
			l.halves(l.words(68, 0, 3)[3], At(l.q, panelD(16)), At(l.q, panelD(16)+128))
		}},
		{name: "q3k", size: 110, units: 1, unit: func(l *lanes) {
			upper := [2][4]reg.VecPhysical{l.words(0, 4), l.words(16, 8)}
			quarters(l, 32, func(c, s, group int, v reg.VecPhysical) { l.merge(upper[c][s], group, 1, 2, v) })
		}, scales: func(l *lanes) {
			u := l.words(94, 0)
			var words [3]reg.VecPhysical
			for i := range words {
				words[i] = l.v(4 + i)
				l.across(u[i], u[i+1], words[i])
			}
			l.upperHalf(u[3], At(l.q, panelD(16)))
			l.set(32, l.v(7))
			for n := range 16 {
				field(words[n%8/4], n%4*8+n/8*4, 4, l.v(8))
				field(words[2], n%4*8+n/4*2, 2, l.v(9))
				VPSLLD(Imm(4), l.v(9), l.v(9))
				l.or(l.v(9), l.v(8), l.v(8))
				VPSUBD(l.v(7), l.v(8), l.v(8))
				biased(l, 16, n, 2*quartersOrder[n/2]+n%2, 2, l.v(8))
			}
		}},
		{name: "tq20", size: 66, units: 1, unit: func(l *lanes) {
			quarters(l, 0, nil)
		}, scales: func(l *lanes) {
			for n := range 8 {
				l.set(1, l.v(0))
				biased(l, 8, n, n, 0, l.v(0))
			}
			l.upperHalf(l.words(50, 0, 3)[3], At(l.q, panelD(8)))
		}},
		{name: "iq4xs", size: 136, units: 8, step: 16, unit: func(l *lanes) {
			l.nibbles(l.words(8, 0), 0, 4, iq4nl(l))
		}, scales: func(l *lanes) {
			u := l.words(0, 0, 0, 1)
			l.set(32, l.v(7))
			for n := range 8 {
				field(u[1], 4*n, 4, l.v(8))
				field(u[0], 16+2*n, 2, l.v(9))
				VPSLLD(Imm(4), l.v(9), l.v(9))
				l.or(l.v(9), l.v(8), l.v(8))
				VPSUBD(l.v(7), l.v(8), l.v(8))
				biased(l, 8, n, n, 7, l.v(8))
			}
			l.half(u[0], At(l.q, panelD(8)))
		}},
		{name: "q40", size: 144, units: 8, step: 18, after: convert, unit: func(l *lanes) {
			l.copy(0)
			l.nibbles(l.words(2, 0), 0, 4, nil)
		}},
		{name: "q41", size: 160, units: 8, step: 20, unit: func(l *lanes) {
			l.halves(l.words(0, 0, 0)[0], first(l), second(l))
			l.nibbles(l.words(4, 0), 0, 4, nil)
		}},
		{name: "q50", size: 176, units: 8, step: 22, after: convert, unit: func(l *lanes) {
			l.copy(0)
			upper := l.words(2, 4, 0)[0]
			l.nibbles(l.words(6, 0), 0, 4, func(h, s int, v reg.VecPhysical) { l.fifth(upper, 4*h+s, v) })
		}},
		{name: "q51", size: 192, units: 8, step: 24, unit: func(l *lanes) {
			u := l.words(0, 4, 0, 1)
			l.halves(u[0], first(l), second(l))
			upper := u[1]
			l.nibbles(l.words(8, 0), 0, 4, func(h, s int, v reg.VecPhysical) { l.fifth(upper, 4*h+s, v) })
		}},
		{name: "q80", size: 272, units: 8, step: 34, after: convert, unit: func(l *lanes) {
			l.copy(0)
			for c := range 2 {
				for s, x := range l.words(2+16*c, 0) {
					l.xor(128, x, x)
					l.step(4*c+s, x)
				}
			}
		}},
		{name: "iq4nl", size: 144, units: 8, step: 18, after: convert, unit: func(l *lanes) {
			l.copy(0)
			l.nibbles(l.words(2, 0), 0, 4, iq4nl(l))
		}},
		{name: "mxfp4", size: 136, units: 8, step: 17, unit: func(l *lanes) {
			l.copy(0)
			l.nibbles(l.words(1, 0), 0, 4, func(_, _ int, v reg.VecPhysical) { l.look("fp4Panel", fp4Levels, 16, v) })
		}, after: func(l *lanes) {
			for b := range 8 {
				VPMOVZXWD(At(l.q, panelScales+128*b), l.v(0))
				l.e8m0(l.v(0))
				l.scale(b, l.v(0))
			}
		}},
		{name: "nvfp4", size: 144, units: 4, step: 36, unit: func(l *lanes) {
			scales := l.words(0, 0, 0)[0]
			for g := range 4 {
				l.ue4m3(scales, g, l.v(4))
				VMOVUPS(l.v(4), At(l.small, g/2*128+g%2*8*128))
			}
			for c := range 2 {
				// 8 bytes have 8 codes in their low halves, and then 8 in their high halves.
				x := l.words(4+16*c, 0)
				for g := range 2 {
					for s := range 4 {
						v := l.v(12)
						l.bits(x[2*g+s%2], s/2*4, 4, v)
						l.look("fp4Panel", fp4Levels, 16, v)
						l.step(8*c+4*g+s, v)
					}
				}
			}
		}},
	} {
		f.generate(true)
		f.generate(false)
	}
}
