package main

import (
	"fmt"

	. "github.com/fucina-go/fucina/kernels/cpu/_asm/gen"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// An unpacker makes a panel of 32 rows; see pack in package simd. It takes 16 rows at a time: 64
// codes of each are in a zmm, and the transpose of the 16 zmm is 16 steps of the panel.

type unpacker struct {
	name string
	// constants sets registers from 24 on.
	constants func()
	// codes sets v to the codes 64u to 64u+63, in the order of the activations, of the block at p. It
	// may change the registers 16 to 23, and the mask K1.
	codes func(p reg.Register, u int, v reg.VecPhysical)
	// scales writes the other parts of the rows.
	scales func(l *lanes)
}

// lanes makes the parts of a panel that follow the codes, for 16 rows in zmm or 8 rows in ymm. Its
// registers are numbered from 0 to 13.
type lanes struct {
	q     reg.Register    // the panel
	w     reg.Register    // the first row
	index reg.VecPhysical // of the rows, in bytes
	wide  bool            // zmm
}

// v returns a register.
func (l *lanes) v(i int) reg.VecPhysical {
	if l.wide {
		return Z(i)
	}
	return ymm(i)
}

// load sets v to the words of 32 bits at the given offset of the rows.
func (l *lanes) load(offset int, v reg.VecPhysical) {
	m := Mem{Base: l.w, Index: l.index, Scale: 1, Disp: offset}
	if l.wide {
		KXNORW(reg.K1, reg.K1, reg.K1)
		VPGATHERDD(m, reg.K1, v)
		return
	}
	VPCMPEQD(ymm(14), ymm(14), ymm(14))
	VPGATHERDD(ymm(14), m, v)
}

// or sets z to x | y.
func (l *lanes) or(x, y, z reg.VecPhysical) {
	if l.wide {
		VPORD(x, y, z)
	} else {
		VPOR(x, y, z)
	}
}

// set sets all words of v.
func (l *lanes) set(w uint32, v reg.VecPhysical) { VPBROADCASTD(word(fmt.Sprintf("all%x", w), w), v) }

// store writes v to the given offset of the panel.
func (l *lanes) store(v reg.VecPhysical, offset int) { VMOVUPS(v, At(l.q, offset)) }

// scale writes the scale v of the group at the given position.
func (l *lanes) scale(position int, v reg.VecPhysical) { l.store(v, panelScales+128*position) }

// pair writes the pair of words low and high, which are at least 0 or whose upper halves are of no
// importance, of the groups 2i and 2i+1. It changes both.
func (l *lanes) pair(groups, i int, low, high reg.VecPhysical) {
	VPSLLD(Imm(16), high, high)
	if l.wide {
		VPBLENDMW(high, low, reg.K2, low)
	} else {
		VPBLENDW(Imm(0xaa), high, low, low)
	}
	l.store(low, panelPairs(groups)+128*i)
}

// half writes the f32 of the halves in the lower words of v. It changes v.
func (l *lanes) half(v reg.VecPhysical, offset int) {
	l.widen(v)
	l.store(v, offset)
}

// widen changes the halves in the lower words of v to f32.
func (l *lanes) widen(v reg.VecPhysical) {
	if l.wide {
		VPMOVDW(v, v.AsY())
		VCVTPH2PS(v.AsY(), v)
	} else {
		VPSHUFB(Table("packWords", Repeat([]byte{0, 1, 4, 5, 8, 9, 12, 13, 128, 128, 128, 128, 128, 128, 128, 128}, 2)), v, v)
		VPERMQ(Imm(8), v, v)
		VCVTPH2PS(v.AsX(), v)
	}
}

func (f *unpacker) generate() {
	TEXT(f.name+"Unpack", NOSPLIT, "func(panel, w *byte, rowBytes int)")
	q, w, rowBytes := Load(Param("panel"), GP64()), Load(Param("w"), GP64()), Load(Param("rowBytes"), GP64())
	f.constants()
	left, p := GP64(), GP64()
	MOVQ(I32(2), left)
	Label("half")
	for u := range 4 {
		var rows [16]reg.VecPhysical
		MOVQ(w, p)
		for i := range rows {
			rows[i] = Z(i)
			f.codes(p, u, rows[i])
			if i < 15 {
				ADDQ(rowBytes, p)
			}
		}
		for s, v := range transpose(rows, Z(16)) {
			VMOVDQU32(v, At(q, 128*(16*u+s)))
		}
	}
	index := Z(15)
	VPBROADCASTD(rowBytes.(reg.GP).As32(), index)
	VPMULLD(Table("unpackRows", Dwords(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)), index, index)
	f.scales(&lanes{q, w, index, true})
	SHLQ(Imm(4), rowBytes)
	ADDQ(rowBytes, w)
	SHRQ(Imm(4), rowBytes)
	ADDQ(I32(64), q)
	DECQ(left)
	JNZ(LabelRef("half"))
	VZEROUPPER()
	RET()
}

// transpose returns the columns of 16 vectors of 16 words. It needs the free register t.
func transpose(a [16]reg.VecPhysical, t reg.VecPhysical) [16]reg.VecPhysical {
	// pair replaces a[x] and a[y] by low and high of both.
	pair := func(low, high func(...Op), x, y int) {
		high(a[y], a[x], t)
		low(a[y], a[x], a[x])
		a[y], t = t, a[y]
	}
	words := [2]func(...Op){func(o ...Op) { VPUNPCKLDQ(o...) }, func(o ...Op) { VPUNPCKHDQ(o...) }}
	doubles := [2]func(...Op){func(o ...Op) { VPUNPCKLQDQ(o...) }, func(o ...Op) { VPUNPCKHQDQ(o...) }}
	lanes := func(imm uint64) func(...Op) {
		return func(o ...Op) { VSHUFI32X4(append([]Op{Imm(imm)}, o...)...) }
	}
	even, odd := lanes(0x88), lanes(0xdd)
	for i := 0; i < 16; i += 2 {
		pair(words[0], words[1], i, i+1)
	}
	for i := 0; i < 16; i += 4 {
		pair(doubles[0], doubles[1], i, i+2)
		pair(doubles[0], doubles[1], i+1, i+3)
		a[i+1], a[i+2] = a[i+2], a[i+1]
	}
	var out [16]reg.VecPhysical
	for e := range 4 {
		pair(even, odd, e, 4+e)
		pair(even, odd, 8+e, 12+e)
		pair(even, odd, e, 8+e)
		pair(even, odd, 4+e, 12+e)
		out[e], out[8+e], out[4+e], out[12+e] = a[e], a[8+e], a[4+e], a[12+e]
	}
	return out
}

// The offsets of a panel of super-blocks.
func panelPairs(groups int) int { return panelScales + 128*groups }
func panelD(groups int) int     { return panelPairs(groups) + 128*groups/2 }

// oddWords sets the mask that pair needs of lanes of zmm.
func oddWords() {
	t := GP32()
	MOVL(U32(0xaaaaaaaa), t)
	KMOVD(t, reg.K2)
}

// field sets v to bits bits of the words of u, from bit on.
func field(u reg.VecPhysical, bit, bits int, v reg.VecPhysical) {
	VPSLLD(Imm(uint64(32-bits-bit)), u, v)
	VPSRLD(Imm(uint64(32-bits)), v, v)
}

var halvesOrder = [8]int{0, 2, 1, 3, 4, 6, 5, 7}
var quartersOrder = [8]int{0, 2, 4, 6, 1, 3, 5, 7}

// kScales is the scales of Q4_K and Q5_K, whose 12 bytes are at offset 4.
func kScales(l *lanes) {
	u := [3]reg.VecPhysical{l.v(0), l.v(1), l.v(2)}
	for i, v := range u {
		l.load(4+4*i, v)
	}
	scale := func(u0, shift int, j int, v reg.VecPhysical) {
		if j < 4 {
			field(u[u0], 8*j, 6, v)
			return
		}
		j -= 4
		t := l.v(5)
		field(u[2], 8*j+shift, 4, v)
		field(u[u0], 8*j+6, 2, t)
		VPSLLD(Imm(4), t, t)
		l.or(t, v, v)
	}
	for j := range 8 {
		scale(0, 0, j, l.v(3))
		l.scale(halvesOrder[j], l.v(3))
	}
	for i := range 4 {
		scale(1, 4, 2*i, l.v(3))
		scale(1, 4, 2*i+1, l.v(4))
		l.pair(8, i, l.v(3), l.v(4))
	}
	l.load(0, l.v(0))
	VPSRLD(Imm(16), l.v(0), l.v(1))
	l.half(l.v(0), panelD(8))
	l.half(l.v(1), panelD(8)+128)
}

// biased writes the scale v of the group g of n, at its position, and keeps it for the pair of
// groups, in which it is multiplied by 1<<shift.
func biased(l *lanes, n, g, position, shift int, v reg.VecPhysical) {
	l.scale(position, v)
	keep := l.v(10 + g%2)
	VPSLLD(Imm(uint64(shift)), v, keep)
	if g%2 == 1 {
		l.pair(n, g/2, l.v(10), l.v(11))
	}
}

// signedByte sets v to byte j of the words of u.
func signedByte(u reg.VecPhysical, j int, v reg.VecPhysical) {
	VPSLLD(Imm(uint64(24-8*j)), u, v)
	VPSRAD(Imm(24), v, v)
}

// turned sets q to q | the bits of b that mask selects, after a rotation of b.
func turned(b, q reg.VecPhysical, turns, mask Mem) {
	t := Z(17)
	VPROLVQ(turns, b, t)
	VPTERNLOGD_BCST(Imm(0xf8), mask, t, q)
}

// turns returns a table of rotations to the left, of the lower and of the upper half.
func turns(name string, low, high int) Mem {
	return Table(name, append(Repeat(Dwords(uint32(low)&63, 0), 4), Repeat(Dwords(uint32(high)&63, 0), 4)...))
}

// word returns a table of one word, twice.
func word(name string, w uint32) Mem { return Table(name, Dwords(w, w)) }

func unpackers() {
	low := func() { Broadcast(0x0f0f0f0f, Z(31)); oddWords() }
	twos := func() { Broadcast(0x03030303, Z(31)); oddWords() }
	// nibble sets v to the low or the high halves of 64 bytes.
	nibble := func(m Mem, high bool, v reg.VecPhysical) {
		VMOVDQU8(m, v)
		if high {
			VPSRLW(Imm(4), v, v)
		}
		VPANDD(Z(31), v, v)
	}
	code2 := func(m Mem, k int, v reg.VecPhysical) {
		VMOVDQU8(m, v)
		if k > 0 {
			VPSRLW(Imm(uint64(2*k)), v, v)
		}
		VPANDD(Z(31), v, v)
	}
	levels, look := levels("iq4nl", iq4nlLevels)
	list := []*unpacker{
		{name: "q4k", constants: low, scales: kScales, codes: func(p reg.Register, u int, v reg.VecPhysical) {
			nibble(At(p, 16+64*(u/2)), u%2 == 1, v)
		}},
		{name: "q5k", constants: low, scales: kScales, codes: func(p reg.Register, u int, v reg.VecPhysical) {
			nibble(At(p, 48+64*(u/2)), u%2 == 1, v)
			VBROADCASTI64X4(At(p, 16), Z(18))
			g := 4*(u/2) + u%2
			turned(Z(18), v, turns(fmt.Sprintf("q5kTurn%d", u), 4-g, 2-g), word("fifthBit", 0x10101010))
		}},
		{name: "q6k", constants: low, codes: func(p reg.Register, u int, v reg.VecPhysical) {
			nibble(At(p, 64*(u/2)), u%2 == 1, v)
			VBROADCASTI64X4(At(p, 128+32*(u/2)), Z(18))
			turned(Z(18), v, turns(fmt.Sprintf("q6kTurn%d", u%2), 4-4*(u%2), 2-4*(u%2)), word("upperBits", 0x30303030))
		}, scales: func(l *lanes) {
			for i := range 4 {
				l.load(192+4*i, l.v(0))
				for j := range 4 {
					signedByte(l.v(0), j, l.v(1))
					biased(l, 16, 4*i+j, 4*i+j, 5, l.v(1))
				}
			}
			l.load(206, l.v(0))
			VPSRLD(Imm(16), l.v(0), l.v(0))
			l.half(l.v(0), panelD(16))
		}},
		{name: "q2k", constants: twos, codes: func(p reg.Register, u int, v reg.VecPhysical) {
			code2(At(p, 16), u, v)
		}, scales: func(l *lanes) {
			for i := range 4 {
				l.load(4*i, l.v(0))
				for j := range 4 {
					n := 4*i + j
					field(l.v(0), 8*j, 4, l.v(1))
					l.scale(2*quartersOrder[n/2]+n%2, l.v(1))
					field(l.v(0), 8*j+4, 4, l.v(10+j%2))
					if j%2 == 1 {
						l.pair(16, n/2, l.v(10), l.v(11))
					}
				}
			}
			l.load(80, l.v(0))
			VPSRLD(Imm(16), l.v(0), l.v(1))
			l.half(l.v(0), panelD(16))
			l.half(l.v(1), panelD(16)+128)
		}},
		{name: "q3k", constants: twos, codes: func(p reg.Register, u int, v reg.VecPhysical) {
			code2(At(p, 32), u, v)
			VBROADCASTI64X4(At(p, 0), Z(18))
			turned(Z(18), v, turns(fmt.Sprintf("q3kTurn%d", u), 2-u, -2-u), word("thirdBit", 0x04040404))
		}, scales: func(l *lanes) {
			words := [3]reg.VecPhysical{l.v(0), l.v(1), l.v(2)}
			for i, v := range words {
				l.load(96+4*i, v)
			}
			l.set(32, l.v(5))
			for n := range 16 {
				field(words[n%8/4], n%4*8+n/8*4, 4, l.v(3))
				field(words[2], n%4*8+n/4*2, 2, l.v(4))
				VPSLLD(Imm(4), l.v(4), l.v(4))
				l.or(l.v(4), l.v(3), l.v(3))
				VPSUBD(l.v(5), l.v(3), l.v(3))
				biased(l, 16, n, 2*quartersOrder[n/2]+n%2, 2, l.v(3))
			}
			l.load(106, l.v(0))
			VPSRLD(Imm(16), l.v(0), l.v(0))
			l.half(l.v(0), panelD(16))
		}},
		{name: "tq20", constants: twos, codes: func(p reg.Register, u int, v reg.VecPhysical) {
			code2(At(p, 0), u, v)
		}, scales: func(l *lanes) {
			for n := range 8 {
				l.set(1, l.v(0))
				biased(l, 8, n, n, 0, l.v(0))
			}
			l.load(62, l.v(0))
			VPSRLD(Imm(16), l.v(0), l.v(0))
			l.half(l.v(0), panelD(8))
		}},
		{name: "iq4xs", constants: func() { levels(); oddWords() }, codes: func(p reg.Register, u int, v reg.VecPhysical) {
			VBROADCASTI64X4(At(p, 8+32*u), v)
			VSHUFI64X2(Imm(0x50), v, v, v)
			VPSRLVQ(Z(24), v, v)
			VPANDD(Z(25), v, v)
			look(v)
		}, scales: func(l *lanes) {
			l.load(0, l.v(0))
			l.load(4, l.v(1))
			l.set(32, l.v(5))
			for n := range 8 {
				field(l.v(1), 4*n, 4, l.v(3))
				field(l.v(0), 16+2*n, 2, l.v(4))
				VPSLLD(Imm(4), l.v(4), l.v(4))
				l.or(l.v(4), l.v(3), l.v(3))
				VPSUBD(l.v(5), l.v(3), l.v(3))
				biased(l, 8, n, n, 7, l.v(3))
			}
			l.half(l.v(0), panelD(8))
		}},
	}
	for _, f := range smallFormats() {
		list = append(list, &unpacker{name: f.name, constants: f.constants, codes: func(p reg.Register, u int, v reg.VecPhysical) {
			f.codes(p, u, v)
		}, scales: func(l *lanes) {
			for b := range 8 {
				l.load(f.block(b), l.v(0))
				if f.two {
					ue4m3(l.v(0), b%2*16, l.v(1))
					l.scale(b, l.v(1))
					ue4m3(l.v(0), b%2*16+8, l.v(1))
					l.store(l.v(1), panelScales+8*128+128*b)
					continue
				}
				if f.word != nil {
					if l.wide {
						f.word(l.v(0))
					} else {
						e8m0Ymm(l, l.v(0))
					}
					l.scale(b, l.v(0))
					continue
				}
				if f.term > 0 {
					VPSRLD(Imm(16), l.v(0), l.v(1))
					l.half(l.v(1), panelScales+8*128+128*b)
				}
				l.half(l.v(0), panelScales+128*b)
			}
		}})
	}
	for _, f := range list {
		f.generate()
		if _, ok := ymmFormats[f.name]; ok {
			ymmUnpack(f)
		}
	}
}
