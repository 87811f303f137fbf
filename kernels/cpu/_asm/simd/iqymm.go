package main

import (
	"fmt"

	. "github.com/fucina-go/fucina/kernels/cpu/_asm/gen"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The functions of this file need AVX2, BMI2, FMA and F16C only. An entry of a grid is loaded by
// itself: gathers are slow on many processors without AVX-512.

// ymmCoded is what rows of a coded format need.
type ymmCoded struct {
	// constants sets registers from 13 on.
	constants func()
	// codes sets ymm 3 to the codes of the group g of 32, or to their magnitudes, with signs.
	codes func(p reg.Register, o, g int)
	// signs sets the quadwords of ymm 12 to the signs of 64 codes. It may change the registers 0 and 1.
	signs func(p reg.Register, o, u int)
	// words is that of coded. It may change the registers 0 and 1.
	words func(p reg.Register, o int, v reg.VecPhysical)
}

// ymmRows multiplies rows by one row of activations.
func (f *coded) ymmRows(c ymmCoded) {
	TEXT(f.name+"RowsAVX2", NOSPLIT, "func(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)")
	c.constants()
	ones := Table("wordOnes", Repeat([]byte{1, 0}, 16))
	scales, q, s, a := ymm(2), ymm(3), ymm(4), ymm(1)
	rowLoop(f.bytes, func(p, act reg.Register, sum reg.VecPhysical, n int) {
		for r, v := range totals {
			VPXOR(v, v, v)
			if r >= n {
				continue
			}
			o := f.bytes * r
			if f.group > 0 {
				c.words(p, o, scales)
			} else {
				VMOVDQU(ones, scales)
			}
			if c.signs == nil && !f.wide {
				t := reg.Y0
				if f.group == 16 {
					VPMADDWD(At(act, actBytes*r+actSums16), scales, t)
				} else {
					VPMADDWD(At(act, actBytes*r+actSums32), scales.AsX(), t.AsX())
				}
				VPSLLD(Imm(uint64(f.shift)), t, t)
				VPSUBD(t, v, v)
			}
			both := [2]reg.VecPhysical{ymm(6), ymm(7)}
			if f.group == 16 {
				VPERMQ(Imm(0x44), scales, both[0])
				VPERMQ(Imm(0xee), scales, both[1])
			} else if f.group == 32 {
				VPERMQ(Imm(0x44), scales, scales)
			}
			for g := range 8 {
				at := At(act, actBytes*r+32*g)
				if c.signs != nil && g%2 == 0 {
					c.signs(p, o, g/2)
				}
				c.codes(p, o, g)
				if f.wide {
					VMOVDQU(at, a)
					VPSIGNB(q, a, a)
					VPABSB(q, q)
					VPMADDUBSW(a, q, q)
					VPMADDWD(scales, q, q)
					VPADDD(q, v, v)
					continue
				}
				if c.signs == nil {
					VPMADDUBSW(at, q, q)
				} else {
					ymmSigns(g%2, s)
					VPOR(ymm(14), s, s)
					VMOVDQU(at, a)
					VPSIGNB(s, a, a)
					VPMADDUBSW(a, q, q)
				}
				switch k := g % 4; f.group {
				case 0:
					// The codes are so small that the words of all groups have room in one.
					if g > 0 {
						VPADDW(ymm(15), q, q)
					}
					if g < 7 {
						VMOVDQA(q, ymm(15))
						continue
					}
					VPMADDWD(scales, q, q)
				case 16:
					VPSHUFB(wordIndex(fmt.Sprintf("words%d", k), 2*k, 2*k+1), both[g/4], s)
					VPMADDWD(s, q, q)
				case 32:
					VPSHUFB(wordIndex(fmt.Sprintf("word%d", g), g, g), scales, s)
					VPMADDWD(s, q, q)
				}
				VPADDD(q, v, v)
			}
		}
		sumWords(totals)
		f.halves(p, n)
		VCVTDQ2PS(reg.X0, reg.X0)
		VMULPS(reg.X1, reg.X0, reg.X0)
		addLanes(act, sum, n)
	})
}

// ymmSigns sets the bytes of v to 255 where the bits of half h of the signs in ymm 12 are set, and to 0
// elsewhere. Each byte of ymm 13 has its bit.
func ymmSigns(h int, v reg.VecPhysical) {
	VPSHUFB(signBytes(h), ymm(12), v)
	VPAND(ymm(13), v, v)
	VPCMPEQB(ymm(13), v, v)
}

// signBytes returns an index of half h of the bytes of quadwords, each eight times.
func signBytes(h int) Mem {
	var b []byte
	for i := range 4 {
		b = append(b, Repeat([]byte{byte(4*h + i)}, 8)...)
	}
	return Table(fmt.Sprintf("signBytes%d", h), b)
}

// eightsOf sets ymm 3 to the four entries of 8 bytes that index returns. It changes X0.
func (g *grid) eightsOf(index func(l int) reg.GPVirtual) {
	for i, x := range []reg.VecPhysical{reg.X3, reg.X0} {
		VMOVQ(Mem{Base: g.table, Index: index(2 * i), Scale: 8}, x)
		VPINSRQ(Imm(1), Mem{Base: g.table, Index: index(2*i + 1), Scale: 8}, x, x)
	}
	VINSERTI128(Imm(1), reg.X0, reg.Y3, reg.Y3)
}

// foursOf is eightsOf for eight entries of 4 bytes.
func (g *grid) foursOf(index func(l int) reg.GPVirtual) {
	for i, x := range []reg.VecPhysical{reg.X3, reg.X0} {
		VMOVD(Mem{Base: g.table, Index: index(4 * i), Scale: 4}, x)
		for j := 1; j < 4; j++ {
			VPINSRD(Imm(uint64(j)), Mem{Base: g.table, Index: index(4*i + j), Scale: 4}, x, x)
		}
	}
	VINSERTI128(Imm(1), reg.X0, reg.Y3, reg.Y3)
}

// byteAt returns the byte at m.
func byteAt(m Mem) reg.GPVirtual {
	t := GP64()
	MOVBLZX(m, t.As32())
	return t
}

// above returns the byte at m, with the bits of high above it that mask selects after a rotation to
// the right.
func above(m Mem, high reg.GPVirtual, turn int, mask uint32) reg.GPVirtual {
	t, b := GP64(), byteAt(m)
	RORXL(Imm(uint64(turn&31)), high.As32(), t.As32())
	ANDL(U32(mask), t.As32())
	ORL(b.As32(), t.As32())
	return t
}

// eachWord returns a table of eight equal words of 32 bits.
func eachWord(w uint32) Mem { return Table(fmt.Sprintf("each%x", w), Repeat(Dwords(w), 8)) }

// ymmNibbleScales is nibbleScales.
func ymmNibbleScales(m Mem, n int, v reg.VecPhysical) {
	view := func(v reg.VecPhysical) reg.Register { return v }
	if n == 4 {
		view = func(v reg.VecPhysical) reg.Register { return v.AsX() }
	}
	x, t := view(v), view(reg.Y0)
	VPMOVZXBD(m, x)
	VPSLLD(Imm(13), x, t)
	VPADDD(x, x, x)
	VPOR(t, x, x)
	VPAND(eachWord(0x001e001e), x, x)
	VPOR(eachWord(0x00010001), x, x)
}

// ymmFormats returns what the rows of formats need, by name.
func (k *coder) ymmFormats() map[string]ymmCoded {
	signed := func(name string) func() {
		return func() {
			k.table.load(name)
			k.even.constants()
			VMOVDQU(Table("eachBit", Repeat([]byte{1, 2, 4, 8, 16, 32, 64, 128}, 4)), ymm(13))
			VMOVDQU(eachWord(0x01010101), ymm(14))
		}
	}
	// use sets ymm 12 to the signs whose bytes of seven bits are x.
	use := func(x reg.GPVirtual) {
		k.fill(x)
		VMOVQ(x, reg.X12)
		VPBROADCASTQ(reg.X12, ymm(12))
	}
	iq1 := func() {
		k.table.load("gridIQ1")
		k.stored = GP64()
		MOVQ(U64(0xf000f000f000f000), k.stored)
		VBROADCASTI128(Table("iq1Levels", nil), ymm(13))
		VMOVDQU(eachWord(0x09090909), ymm(14))
		VPXOR(ymm(15), ymm(15), ymm(15))
	}
	// shifted makes codes of the grid in ymm 3, where the bytes of down are 255 or 0.
	shifted := func(down reg.VecPhysical) {
		VPSHUFB(ymm(3), ymm(13), ymm(3))
		VPADDB(down, down, down)
		VPADDB(ymm(14), down, down)
		VPADDB(down, ymm(3), ymm(3))
	}
	return map[string]ymmCoded{
		"iq2xxs": {constants: signed("gridIQ2XXS"), codes: func(p reg.Register, o, g int) {
			k.table.eightsOf(func(l int) reg.GPVirtual { return byteAt(At(p, o+2+8*g+l)) })
		}, signs: func(p reg.Register, o, u int) {
			x := GP64()
			k.pair(At(p, o+6+16*u), At(p, o+14+16*u), x)
			use(x)
		}, words: func(p reg.Register, o int, v reg.VecPhysical) {
			t := reg.Y0
			VMOVDQU(At(p, o+2), v)
			VMOVDQU(At(p, o+34), t)
			VPSRLQ(Imm(59), v, v)
			VPSRLQ(Imm(59), t, t)
			VPACKUSDW(t, v, v) // 0 1 4 5, 2 3 6 7
			VPACKUSDW(v, v, v)
			VEXTRACTI128(Imm(1), v, t.AsX())
			VPUNPCKLDQ(t.AsX(), v.AsX(), v.AsX())
			VPOR(eachWord(0x00010001), v.AsX(), v.AsX())
		}},
		"iq3xxs": {constants: signed("gridIQ3XXS"), codes: func(p reg.Register, o, g int) {
			k.table.foursOf(func(l int) reg.GPVirtual { return byteAt(At(p, o+2+8*g+l)) })
		}, signs: func(p reg.Register, o, u int) {
			x := GP64()
			k.both(At(p, o+66+8*u), x)
			use(x)
		}, words: func(p reg.Register, o int, v reg.VecPhysical) {
			VMOVDQU(At(p, o+66), v)
			VPSRLD(Imm(27), v, v)
			VEXTRACTI128(Imm(1), v, reg.X0)
			VPACKUSDW(reg.X0, v.AsX(), v.AsX())
			VPOR(eachWord(0x00010001), v.AsX(), v.AsX())
		}},
		"iq2xs": {constants: signed("gridIQ2XS"), codes: func(p reg.Register, o, g int) {
			k.table.eightsOf(func(l int) reg.GPVirtual {
				t := GP64()
				MOVWLZX(At(p, o+2+8*g+2*l), t.As32())
				ANDL(U32(511), t.As32())
				return t
			})
		}, signs: func(p reg.Register, o, u int) {
			VMOVDQU(At(p, o+2+16*u), reg.X0)
			VPSRLW(Imm(9), reg.X0, reg.X0)
			VPACKUSWB(reg.X0, reg.X0, reg.X0)
			x := GP64()
			VMOVQ(reg.X0, x)
			use(x)
		}, words: func(p reg.Register, o int, v reg.VecPhysical) {
			ymmNibbleScales(At(p, o+66), 8, v)
		}},
		"iq2s": {constants: signed("gridIQ2S"), codes: func(p reg.Register, o, g int) {
			high := byteAt(At(p, o+66+g))
			k.table.eightsOf(func(l int) reg.GPVirtual { return above(At(p, o+2+4*g+l), high, 2*l-8, 0x300) })
		}, signs: func(p reg.Register, o, u int) {
			VPBROADCASTQ(At(p, o+34+8*u), ymm(12))
		}, words: func(p reg.Register, o int, v reg.VecPhysical) {
			ymmNibbleScales(At(p, o+74), 8, v)
		}},
		"iq3s": {constants: signed("gridIQ3S"), codes: func(p reg.Register, o, g int) {
			high := byteAt(At(p, o+66+g))
			k.table.foursOf(func(l int) reg.GPVirtual { return above(At(p, o+2+8*g+l), high, l-8, 0x100) })
		}, signs: func(p reg.Register, o, u int) {
			VPBROADCASTQ(At(p, o+74+8*u), ymm(12))
		}, words: func(p reg.Register, o int, v reg.VecPhysical) {
			ymmNibbleScales(At(p, o+106), 4, v)
		}},
		"iq1s": {constants: iq1, codes: func(p reg.Register, o, g int) {
			high := GP64()
			MOVWLZX(At(p, o+34+2*g), high.As32())
			k.table.eightsOf(func(l int) reg.GPVirtual { return above(At(p, o+2+4*g+l), high, 3*l-8, 0x700) })
			VPBROADCASTW(At(p, o+34+2*g), ymm(4))
			VPSRAW(Imm(15), ymm(4), ymm(4))
			shifted(ymm(4))
		}, words: func(p reg.Register, o int, v reg.VecPhysical) {
			x := v.AsX()
			VMOVDQU(At(p, o+34), x)
			VPSRLW(Imm(11), x, x)
			VPAND(eachWord(0x000e000e), x, x)
			VPOR(eachWord(0x00010001), x, x)
		}},
		"iq1m": {constants: iq1, codes: func(p reg.Register, o, g int) {
			high := GP64()
			MOVWLZX(At(p, o+32+2*g), high.As32())
			k.table.eightsOf(func(l int) reg.GPVirtual { return above(At(p, o+4*g+l), high, 4*l-8, 0x700) })
			// The signs of shifts come to the tops of quadwords.
			VPBROADCASTW(At(p, o+32+2*g), ymm(4))
			VPSLLVQ(Table("iq1mTops", Dwords(60, 0, 56, 0, 52, 0, 48, 0)), ymm(4), ymm(4))
			VPCMPGTQ(ymm(4), ymm(15), ymm(4))
			shifted(ymm(4))
		}, words: func(p reg.Register, o int, v reg.VecPhysical) {
			VPBROADCASTQ(At(p, o+48), v)
			VPSHUFB(Table("iq1mPick", nil), v, v)
			VPMULLW(Table("iq1mPowers", Repeat([]byte{0, 2, 64, 0, 8, 0, 1, 0}, 4)), v, v)
			VPSRLW(Imm(8), v, v)
			VPAND(eachWord(0x000e000e), v, v)
			VPOR(eachWord(0x00010001), v, v)
		}},
		"tq10": {constants: func() {
			VMOVDQU(eachWord(0xffffffff), ymm(13))
			VMOVDQU(eachWord(0x03030303), ymm(14))
		}, codes: func(p reg.Register, o, g int) {
			x, q, t := ymm(12), ymm(3), ymm(4)
			thrice := func() {
				VPADDB(x, x, t)
				VPADDB(t, x, x)
			}
			switch g {
			case 0:
				VMOVDQU(At(p, o), x)
			case 5: // 16 bytes, and three times those
				VBROADCASTI128(At(p, o+32), x)
				VPADDB(x, x, t)
				VPADDB(t, x, t)
				VPBLENDD(Imm(0xf0), t, x, x)
			case 6, 7:
				thrice()
				thrice()
			default:
				thrice()
			}
			if g == 7 { // 4 bytes have four digits
				low, high, mask := reg.X0, t.AsX(), eachWord(0xff00ff00)
				powers := Table("tq10Powers3", nil).Offset(48)
				VPBROADCASTD(At(p, o+48), low)
				VPAND(mask, low, high)
				VPMULLW(powers, high, high)
				VPMULLW(powers, low, low)
				VPAND(eachWord(0x00ff00ff), low, low)
				VPOR(high, low, low)
				VINSERTI128(Imm(1), low, x, x)
			}
			// Averages with 255 multiply the complement of a fraction by 3/4, so that the upper two bits are
			// the complement of its digit.
			VPXOR(ymm(13), x, q)
			VPAVGB(ymm(13), q, t)
			VPAVGB(t, q, q)
			VPSRLW(Imm(6), q, q)
			VPANDN(ymm(14), q, q)
		}},
		"q8k": {constants: func() {}, codes: func(p reg.Register, o, g int) {
			VMOVDQU(At(p, o+4+32*g), ymm(3)) // with a sign
		}},
	}
}
