package main

import (
	"fmt"
	"math"

	. "github.com/fucina-go/fucina/kernels/cpu/_asm/gen"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// This file has rows of the formats of super-blocks whose codes are entries of a grid or digits of base
// three, and of Q8_K.

// coded is a format of super-blocks without minima.
type coded struct {
	name  string
	bytes int // of a super-block
	group int // elements of a scale: 16 or 32; 0 if all scales are 1
	shift int // 1<<shift is what the codes have too much
	d     int // the offset of the half d, unless half is set
	// factor is what d is multiplied by, if it is not 0.
	factor float32
	// half sets t to the half d of the super-block at offset o of p.
	half func(p reg.Register, o int, t reg.GPVirtual)
	// wide says that d is an f32.
	wide bool
	// constants sets registers from 28 on.
	constants func()
	// codes sets v to the codes 64u to 64u+63 of the super-block at offset o of p, without a sign. It
	// may change the registers 16 to 23, and the masks K1 and K3.
	codes func(p reg.Register, o, u int, v reg.VecPhysical)
	// words sets the words of v to the scales of the super-block at offset o of p: 8 in an xmm, or 16
	// in a ymm. It may change the registers 16 to 23.
	words func(p reg.Register, o int, v reg.VecPhysical)
}

// rows multiplies rows by one row of activations, as q4kRows does.
func (f *coded) rows() {
	TEXT(f.name+"RowsVNNI", NOSPLIT, "func(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)")
	f.constants()
	var words [4]reg.VecPhysical
	for u := range words {
		words[u] = Z(24 + u)
		if f.group == 0 {
			continue
		}
		var b []byte
		for i := range 32 {
			b = append(b, byte((64*u+2*i)/f.group), 0)
		}
		VMOVDQU16(Table(fmt.Sprintf("codedWords%d_%d", f.group, u), b), words[u])
	}
	if f.group == 0 {
		Broadcast(0x00010001, words[0])
	}
	rowLoop(f.bytes, func(p, act reg.Register, sum reg.VecPhysical, n int) {
		total := [4]reg.VecPhysical{Z(11), Z(12), Z(13), Z(14)}
		for r, v := range total {
			VPXORD(v, v, v)
			if r >= n {
				continue
			}
			o := f.bytes * r
			scales, t, sums := Z(9), Z(8), actSums32
			sub := func(v reg.VecPhysical) reg.Register { return v.AsX() }
			if f.group == 16 {
				sub, sums = func(v reg.VecPhysical) reg.Register { return v.AsY() }, actSums16
			}
			if f.group > 0 {
				f.words(p, o, scales)
				VPMADDWD(At(act, actBytes*r+sums), sub(scales), sub(t))
			} else {
				VPMADDWD(At(act, actBytes*r+sums), sub(words[0]), sub(t))
			}
			VPSLLD(Imm(uint64(f.shift)), sub(t), sub(t))
			VPSUBD(sub(t), sub(v), sub(v))
			for u := range 4 {
				q, a := Z(10), At(act, actBytes*r+64*u)
				f.codes(p, o, u, q)
				if f.group == 0 {
					VPDPBUSD(a, q, v)
					continue
				}
				VPMADDUBSW(a, q, q)
				VPERMW(scales, words[u], t)
				VPDPWSSD(t, q, v)
			}
		}
		sumLanes(total)
		f.halves(p, n)
		VCVTDQ2PS(reg.X0, reg.X0)
		VMULPS(reg.X1, reg.X0, reg.X0)
		addLanes(act, sum, n)
	})
}

// halves sets the words of X1 to d of n super-blocks.
func (f *coded) halves(p reg.Register, n int) {
	if f.wide {
		VMOVSS(At(p, f.d), reg.X1)
		for r := 1; r < n; r++ {
			VINSERTPS(Imm(uint64(r<<4)), At(p, f.bytes*r+f.d), reg.X1, reg.X1)
		}
		return
	}
	VPXOR(reg.X1, reg.X1, reg.X1)
	for r := range n {
		if f.half != nil {
			t := GP64()
			f.half(p, f.bytes*r, t)
			VPINSRW(Imm(uint64(r)), t.As32(), reg.X1, reg.X1)
			continue
		}
		VPINSRW(Imm(uint64(r)), At(p, f.bytes*r+f.d), reg.X1, reg.X1)
	}
	VCVTPH2PS(reg.X1, reg.X1)
	if f.factor != 0 {
		w := f.factorWord()
		VMULPS(Table(fmt.Sprintf("four%x", w), Dwords(w, w, w, w)), reg.X1, reg.X1)
	}
}

// factorWord returns the bits of the factor.
func (f *coded) factorWord() uint32 { return math.Float32bits(f.factor) }

// grid is a table of package simd: the entries of a grid.
type grid struct{ table reg.GPVirtual }

// load loads the address from the variable of the given name.
func (g *grid) load(name string) {
	g.table = GP64()
	MOVQ(NewDataAddr(Symbol{Name: "·" + name}, 0), g.table)
}

// eights sets v to the entries of 8 bytes whose indices are the quadwords of index. It changes K3.
func (g *grid) eights(index, v reg.VecPhysical) {
	VPXORD(v, v, v)
	KXNORB(reg.K3, reg.K3, reg.K3)
	VPGATHERQQ(Mem{Base: g.table, Index: index, Scale: 8}, reg.K3, v)
}

// fours is eights for entries of 4 bytes and words of index.
func (g *grid) fours(index, v reg.VecPhysical) {
	VPXORD(v, v, v)
	KXNORW(reg.K3, reg.K3, reg.K3)
	VPGATHERDD(Mem{Base: g.table, Index: index, Scale: 4}, reg.K3, v)
}

// signs makes codes with bias 64 of magnitudes, and of signs in K1. Z31 has the bias.
func signs(magnitudes, v reg.VecPhysical) {
	VPADDB(magnitudes, Z(31), v)
	VPSUBB(magnitudes, Z(31), reg.K1, v)
}

// even has the constants for signs of which seven of eight are stored: their number is even. stored
// are the signs of two words.
type even struct{ seven, top, stored reg.GPVirtual }

func (e *even) constants() {
	e.seven, e.top, e.stored = GP64(), GP64(), GP64()
	MOVQ(U64(0x0fffffff0fffffff), e.stored)
	MOVQ(U64(0x7f7f7f7f7f7f7f7f), e.seven)
	MOVQ(U64(0x8080808080808080), e.top)
}

// mask sets K1 to the signs whose bytes of seven bits are x. It changes x.
func (e *even) mask(x reg.GPVirtual) {
	e.fill(x)
	KMOVQ(x, reg.K1)
}

// fill adds the eighth bits to the bytes of x.
func (e *even) fill(x reg.GPVirtual) {
	t := GP64()
	RORXQ(Imm(63), x, t)
	XORQ(x, t)
	for _, n := range []uint64{62, 60} {
		s := GP64()
		RORXQ(Imm(n), t, s)
		XORQ(t, s)
		t = s
	}
	ANDQ(e.top, t)
	ORQ(t, x)
}

// pair sets x to the bytes of seven bits of the words at a and b.
func (e *even) pair(a, b Mem, x reg.GPVirtual) {
	y := GP64()
	MOVL(a, x.As32())
	MOVL(b, y.As32())
	PDEPL(e.seven.As32(), x.As32(), x.As32())
	PDEPL(e.seven.As32(), y.As32(), y.As32())
	SHLQ(Imm(32), y)
	ORQ(y, x)
}

// both is pair for the two words at m.
func (e *even) both(m Mem, x reg.GPVirtual) {
	MOVQ(m, x)
	PEXTQ(e.stored, x, x)
	PDEPQ(e.seven, x, x)
}

// rotations returns a table of the rotations of eight quadwords to the right.
func rotations(name string, turn func(l int) int) Mem {
	var b []byte
	for l := range 8 {
		b = append(b, byte(turn(l)&63), 0, 0, 0, 0, 0, 0, 0)
	}
	return Table(name, b)
}

// nibbleScales sets the words of v to 2s+1 of the halves s of n bytes, 4 or 8, at m.
func nibbleScales(m Mem, n int, v reg.VecPhysical) {
	if n == 4 {
		x, t := v.AsX(), reg.X16
		VPMOVZXBD(m, x)
		VPSLLD(Imm(13), x, t)
		VPADDD(x, x, x)
		VPTERNLOGD_BCST(Imm(0xa8), word("codedScale", 0x001e001e), t, x) // (t|x)&mask
		VPORD_BCST(word("codedOnes", 0x00010001), x, x)
		return
	}
	y, t := v.AsY(), reg.Y16
	VPMOVZXBD(m, y)
	VPSLLD(Imm(13), y, t)
	VPADDD(y, y, y)
	VPTERNLOGD_BCST(Imm(0xa8), word("codedScale", 0x001e001e), t, y) // (t|y)&mask
	VPORD_BCST(word("codedOnes", 0x00010001), y, y)
}

// coder has the registers that the functions of formats share.
type coder struct {
	table grid
	even
}

func (k *coder) formats() []*coded {
	bias := func() { Broadcast(0x40404040, Z(31)) }
	table, e := &k.table, &k.even
	signed := func(name string) func() {
		return func() {
			bias()
			table.load(name)
			e.constants()
		}
	}
	// shifted sets the indices of Z17 to those of the bytes at index, with the bits of Z18 above them,
	// and v to the codes of IQ1, whose shifts are down where K1 is set.
	shifted := func(index Mem, v reg.VecPhysical) {
		VPMOVZXBQ(index, Z(17))
		VPTERNLOGQ_BCST(Imm(0xf8), Table("iq1High", Dwords(0x700, 0)), Z(18), Z(17)) // Z17 | Z18&mask
		table.eights(Z(17), Z(16))
		VPSHUFB(Z(16), Z(31), v) // -1 becomes 0, 0 becomes 8, and 1 becomes 16
		VPBLENDMQ(Z(29), Z(30), reg.K1, Z(16))
		VPADDB(Z(16), v, v)
	}
	iq1 := func() {
		table.load("gridIQ1")
		VBROADCASTI32X4(Table("iq1Levels", append([]byte{8, 16}, make([]byte, 14)...)), Z(31))
		Broadcast(0x09090909, Z(30))
		Broadcast(0x07070707, Z(29))
	}
	return []*coded{
		{name: "iq2xxs", bytes: 66, group: 32, shift: 6, factor: 0.125, constants: signed("gridIQ2XXS"),
			codes: func(p reg.Register, o, u int, v reg.VecPhysical) {
				o += 16 * u
				VMOVD(At(p, o+2), reg.X16)
				VPINSRD(Imm(1), At(p, o+10), reg.X16, reg.X16)
				VPMOVZXBQ(reg.X16, Z(17))
				table.eights(Z(17), Z(18))
				x := GP64()
				e.pair(At(p, o+6), At(p, o+14), x)
				e.mask(x)
				signs(Z(18), v)
			}, words: func(p reg.Register, o int, v reg.VecPhysical) {
				VPSRLQ(Imm(59), At(p, o+2), Z(16))
				VPORQ_BCST(Table("codedOneQ", Dwords(1, 0)), Z(16), Z(16))
				VPMOVQW(Z(16), v.AsX())
			}},
		{name: "iq3xxs", bytes: 98, group: 32, shift: 6, factor: 0.25, constants: signed("gridIQ3XXS"),
			codes: func(p reg.Register, o, u int, v reg.VecPhysical) {
				VPMOVZXBD(At(p, o+2+16*u), Z(17))
				table.fours(Z(17), Z(18))
				x := GP64()
				e.both(At(p, o+66+8*u), x)
				e.mask(x)
				signs(Z(18), v)
			}, words: func(p reg.Register, o int, v reg.VecPhysical) {
				VPSRLD(Imm(27), At(p, o+66), reg.Y16)
				VPORD_BCST(word("codedOne", 1), reg.Y16, reg.Y16)
				VPMOVDW(reg.Y16, v.AsX())
			}},
		{name: "iq2xs", bytes: 74, group: 16, shift: 6, factor: 0.125, constants: signed("gridIQ2XS"),
			codes: func(p reg.Register, o, u int, v reg.VecPhysical) {
				o += 16*u + 2
				VPMOVZXWQ(At(p, o), Z(17))
				VPANDQ_BCST(Table("iq2xsIndex", Dwords(511, 0)), Z(17), Z(17))
				table.eights(Z(17), Z(18))
				VPSRLW(Imm(9), At(p, o), reg.X16)
				VPACKUSWB(reg.X16, reg.X16, reg.X16)
				x := GP64()
				VMOVQ(reg.X16, x)
				e.mask(x)
				signs(Z(18), v)
			}, words: func(p reg.Register, o int, v reg.VecPhysical) {
				nibbleScales(At(p, o+66), 8, v)
			}},
		{name: "iq2s", bytes: 82, group: 16, shift: 6, factor: 0.125, constants: func() { bias(); table.load("gridIQ2S") },
			codes: func(p reg.Register, o, u int, v reg.VecPhysical) {
				VPMOVZXBQ(At(p, o+2+8*u), Z(17))
				VPBROADCASTW(At(p, o+66+2*u), Z(16))
				VPRORVQ(rotations("iq2sTurns", func(l int) int { return 2*l - 8 }), Z(16), Z(16))
				VPTERNLOGQ_BCST(Imm(0xf8), Table("iq2sHigh", Dwords(0x300, 0)), Z(16), Z(17)) // Z17 | Z16&mask
				table.eights(Z(17), Z(18))
				KMOVQ(At(p, o+34+8*u), reg.K1)
				signs(Z(18), v)
			}, words: func(p reg.Register, o int, v reg.VecPhysical) {
				nibbleScales(At(p, o+74), 8, v)
			}},
		{name: "iq3s", bytes: 110, group: 32, shift: 6, constants: func() { bias(); table.load("gridIQ3S"); Broadcast(256, Z(30)) },
			codes: func(p reg.Register, o, u int, v reg.VecPhysical) {
				VPMOVZXBD(At(p, o+2+16*u), Z(17))
				KMOVW(At(p, o+66+2*u), reg.K1)
				VPORD(Z(30), Z(17), reg.K1, Z(17))
				table.fours(Z(17), Z(18))
				KMOVQ(At(p, o+74+8*u), reg.K1)
				signs(Z(18), v)
			}, words: func(p reg.Register, o int, v reg.VecPhysical) {
				nibbleScales(At(p, o+106), 4, v)
			}},
		{name: "iq1s", bytes: 50, group: 32, shift: 4, factor: 0.125, constants: iq1,
			codes: func(p reg.Register, o, u int, v reg.VecPhysical) {
				VPBROADCASTD(At(p, o+34+4*u), Z(18))
				VPTESTMQ(Table("iq1sDown", append(Repeat(Dwords(0x8000, 0), 4), Repeat(Dwords(0x80000000, 0), 4)...)), Z(18), reg.K1)
				VPRORVQ(rotations("iq1sTurns", func(l int) int { return 3*(l%4) + 16*(l/4) - 8 }), Z(18), Z(18))
				shifted(At(p, o+2+8*u), v)
			}, words: func(p reg.Register, o int, v reg.VecPhysical) {
				x := v.AsX()
				VPSRLW(Imm(11), At(p, o+34), x)
				VPANDD_BCST(word("iq1Scale", 0x000e000e), x, x)
				VPORD_BCST(word("codedOnes", 0x00010001), x, x)
			}},
		{name: "iq1m", bytes: 56, group: 16, shift: 4, d: 48, factor: 0.125, constants: func() {
			iq1()
			e.stored = GP64()
			MOVQ(U64(0xf000f000f000f000), e.stored)
		},
			codes: func(p reg.Register, o, u int, v reg.VecPhysical) {
				VPBROADCASTD(At(p, o+32+4*u), Z(18))
				VPRORVQ(rotations("iq1mTurns", func(l int) int { return 4*l - 8 }), Z(18), Z(18))
				VPTESTMQ_BCST(Table("iq1mDown", Dwords(0x800, 0)), Z(18), reg.K1)
				shifted(At(p, o+8*u), v)
			}, words: func(p reg.Register, o int, v reg.VecPhysical) {
				y := v.AsY()
				VPBROADCASTQ(At(p, o+48), y)
				VPSHUFB(Table("iq1mPick", []byte{
					0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3, 2, 3,
					4, 5, 4, 5, 4, 5, 4, 5, 6, 7, 6, 7, 6, 7, 6, 7,
				}), y, y)
				VPADDW(y, y, y)
				VPSRLVW(Table("iq1mShifts", Repeat([]byte{0, 0, 3, 0, 6, 0, 9, 0}, 4)), y, y)
				VPANDD_BCST(word("iq1Scale", 0x000e000e), y, y)
				VPORD_BCST(word("codedOnes", 0x00010001), y, y)
			}, half: func(p reg.Register, o int, t reg.GPVirtual) {
				MOVQ(At(p, o+48), t)
				PEXTQ(e.stored, t, t)
			}},
		{name: "tq10", bytes: 54, d: 52, constants: func() {
			Broadcast(0x01010101, Z(31))
			Broadcast(0xff00ff00, Z(30))
			Broadcast(86*0x01010101, Z(29))
			Broadcast(171*0x01010101, Z(28))
			t := GP32()
			MOVL(U32(0xf000), t)
			KMOVW(t, reg.K4)
		}, codes: func(p reg.Register, o, u int, v reg.VecPhysical) {
			// A digit is the integer part of three times a fraction.
			low, high := Z(16), Z(17)
			switch u {
			case 0, 1:
				VBROADCASTI64X4(At(p, o), low)
			case 2:
				VBROADCASTI32X4(At(p, o+32), low)
				VINSERTI64X4(Imm(0), At(p, o), low, low)
			case 3:
				VBROADCASTI32X4(At(p, o+32), low)
				VPBROADCASTD(At(p, o+48), reg.K4, low)
			}
			powers := tq10Powers(u)
			VPANDD(Z(30), low, high)
			VPMULLW(powers, high, high)
			VPMULLW(powers, low, low)
			VPTERNLOGD(Imm(0xe2), low, Z(30), high)
			VPCMPUB(Imm(5), Z(29), high, reg.K1)
			VPCMPUB(Imm(5), Z(28), high, reg.K3)
			VMOVDQU8_Z(Z(31), reg.K1, v)
			VPADDB(Z(31), v, reg.K3, v)
		}},
		{name: "q8k", bytes: 292, shift: 7, wide: true, constants: func() { Broadcast(0x80808080, Z(31)) },
			codes: func(p reg.Register, o, u int, v reg.VecPhysical) {
				VPXORD(At(p, o+4+64*u), Z(31), v)
			}},
	}
}

// tq10Powers returns a table of the powers of three as words, which make a digit of the codes 64u to
// 64u+63 the first one.
func tq10Powers(u int) Mem {
	power := [5]byte{1, 3, 9, 27, 81}
	digits := [4][]int{{0, 0, 1, 1}, {2, 2, 3, 3}, {4, 4, 0, 1}, {2, 3, 4}}[u]
	var b []byte
	for _, n := range digits {
		b = append(b, Repeat([]byte{power[n], 0}, 8)...)
	}
	if u == 3 {
		for n := range 4 {
			b = append(b, Repeat([]byte{power[n], 0}, 2)...)
		}
	}
	return Table(fmt.Sprintf("tq10Powers%d", u), b)
}
