package main

import (
	"fmt"

	. "github.com/fucina-go/fucina/kernels/cpu/_asm/gen"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The unpackers of grids gather the words of all rows: an index of each row gives a step of the panel.
// They use the registers 12 to 15, and 31 of the zmm.

// gatherer has the grid of an unpacker.
type gatherer struct {
	*lanes
	grid
}

// bias has the bias of codes with a sign.
func (g *gatherer) bias() {
	if g.wide {
		Broadcast(0x40404040, Z(31))
	}
}

// gather sets the register 12 to the words at disp of the entries, of size bytes, whose indices are in
// the register 14.
func (g *gatherer) gather(size uint8, disp int) {
	m := Mem{Base: g.table, Index: g.v(14), Scale: size, Disp: disp}
	v := g.v(12)
	if g.wide {
		VPXORD(v, v, v)
		KXNORW(reg.K1, reg.K1, reg.K1)
		VPGATHERDD(m, reg.K1, v)
		return
	}
	VPXOR(v, v, v)
	VPCMPEQD(g.v(15), g.v(15), g.v(15))
	VPGATHERDD(g.v(15), m, v)
}

// each returns a table of the bits 4h to 4h+3, one in each byte of a word.
func (l *lanes) each(h int) Mem {
	b, n := byte(1)<<(4*h), 8
	if l.wide {
		n = 16
	}
	return Table(fmt.Sprintf("bits%d_%d", h, n), Repeat([]byte{b, 2 * b, 4 * b, 8 * b}, n))
}

// spread sets the bytes of the words of v to byte j of the words of x.
func (l *lanes) spread(x reg.VecPhysical, j int, v reg.VecPhysical) {
	var index []byte
	for i := range 4 {
		index = append(index, Repeat([]byte{byte(4*i + j)}, 4)...)
	}
	n := 2
	if l.wide {
		n = 4
	}
	VPSHUFB(Table(fmt.Sprintf("spreadByte%d_%d", j, n), Repeat(index, n)), x, v)
}

// sign writes the codes of step s, whose magnitudes are in the register 12. Their signs are the bits 4h
// to 4h+3 of byte j of the words of x.
func (g *gatherer) sign(x reg.VecPhysical, j, h, s int) {
	m, t := g.v(12), g.v(13)
	g.spread(x, j, t)
	if g.wide {
		VPTESTMB(g.each(h), t, reg.K1)
		VPADDB(m, Z(31), t)
		VPSUBB(m, Z(31), reg.K1, t)
		g.step(s, t)
		return
	}
	VPAND(g.each(h), t, t)
	VPCMPEQB(g.each(h), t, t)
	VPXOR(t, m, m)
	VPSUBB(t, m, m)
	VPADDB(g.mask(64), m, m)
	g.step(s, m)
}

// andWord sets y to x and the word w.
func (l *lanes) andWord(w uint32, x, y reg.VecPhysical) {
	if l.wide {
		VPANDD_BCST(word(fmt.Sprintf("all%x", w), w), x, y)
	} else {
		VPAND(eachWord(w), x, y)
	}
}

// move sets y to the bits of x that mask selects after a shift that brings bit from to bit to.
func (l *lanes) move(x reg.VecPhysical, from, to int, mask uint32, y reg.VecPhysical) {
	switch {
	case from > to:
		VPSRLD(Imm(uint64(from-to)), x, y)
		x = y
	case from < to:
		VPSLLD(Imm(uint64(to-from)), x, y)
		x = y
	}
	l.andWord(mask, x, y)
}

// index sets the register 14 to byte j of the words of x, with the given number of bits of high above
// it, from bit on. It changes the register 13.
func (l *lanes) index(x reg.VecPhysical, j int, high reg.VecPhysical, bit, bits int) {
	field(x, 8*j, 8, l.v(14))
	if bits > 0 {
		l.move(high, bit, 8, (1<<bits-1)<<8, l.v(13))
		l.or(l.v(13), l.v(14), l.v(14))
	}
}

// sevens sets v to the bytes of seven bits of the words of x, with their eighth bits. It changes the
// registers 12 and 13.
func (l *lanes) sevens(x, v reg.VecPhysical) {
	l.move(x, 0, 0, 0x7f, v)
	for j := 1; j < 4; j++ {
		l.move(x, 7*j, 8*j, 0x7f<<(8*j), l.v(12))
		l.or(l.v(12), v, v)
	}
	l.eighths(v)
}

// eighths adds the eighth bits to bytes of seven. It changes the registers 12 and 13.
func (l *lanes) eighths(v reg.VecPhysical) {
	x := v
	for i, n := range []uint64{1, 2, 4} {
		t := l.v(12 + i%2)
		VPSLLD(Imm(n), x, t)
		if l.wide {
			VPXORD(x, t, t)
		} else {
			VPXOR(x, t, t)
		}
		x = t
	}
	l.andWord(0x80808080, x, x)
	l.or(x, v, v)
}

// oddScale writes the scale 2s+1 of the group i of n, where s is bits bits of the words of u, from bit
// on. It changes the registers 8 to 14.
func (l *lanes) oddScale(u reg.VecPhysical, bit, bits, n, i, shift int) {
	v := l.v(8)
	field(u, bit, bits, v)
	VPADDD(v, v, v)
	l.set(1, l.v(9))
	l.or(l.v(9), v, v)
	biased(l, n, i, i, shift, v)
}

// ones writes scales of 1. It changes the registers 8 to 14.
func (l *lanes) ones(shift int) {
	for i := range 8 {
		l.set(1, l.v(8))
		biased(l, 8, i, i, shift, l.v(8))
	}
}

// part writes the halves in the lower words of v, times a power of two with the given bits, as d. It
// changes v and the register 14.
func (l *lanes) part(v reg.VecPhysical, factor uint32, n int) {
	m := At(l.q, panelD(n))
	l.half(v, m)
	l.set(factor, l.v(14))
	VMULPS(l.v(14), v, v)
	VMOVUPS(v, m)
}

const (
	eighth  = 0x3e000000
	quarter = 0x3e800000
)

// shifts sets v to 9 where bit of the words of x is not set, and to 7 where it is.
func (l *lanes) shifts(x reg.VecPhysical, bit int, v reg.VecPhysical) {
	if bit < 31 {
		VPSLLD(Imm(uint64(31-bit)), x, v)
		x = v
	}
	VPSRAD(Imm(31), x, v)
	VPADDB(v, v, v)
	VPADDB(l.v(10), v, v)
}

// shiftConstants sets the registers 9 and 10 for the codes of IQ1.
func (l *lanes) shiftConstants() {
	if l.wide {
		VBROADCASTI32X4(Table("iq1Levels", nil), l.v(9))
	} else {
		VBROADCASTI128(Table("iq1Levels", nil), l.v(9))
	}
	l.set(0x09090909, l.v(10))
}

// shifted writes the two steps from s on of the entries whose indices are in the register 14, and
// whose shifts are v.
func (g *gatherer) shifted(v reg.VecPhysical, s int) {
	for h := range 2 {
		g.gather(8, 4*h)
		VPSHUFB(g.v(12), g.v(9), g.v(12))
		VPADDB(v, g.v(12), g.v(12))
		g.step(s+h, g.v(12))
	}
}

// pairs expands byte e of the words of x to codes of two bits, which are step s. It changes the
// registers 12 and 13.
func (l *lanes) pairs(x reg.VecPhysical, e, s int) {
	v, t := l.v(12), l.v(13)
	field(x, 8*e, 8, v)
	VPSLLD(Imm(6), v, t)
	l.or(t, v, v)
	VPSLLD(Imm(12), v, t)
	l.or(t, v, v)
	l.and(3, v, v)
	l.step(s, v)
}

// gridUnpackers returns the unpackers of the formats with grids.
func gridUnpackers() []*unpacker {
	var grid grid
	use := func(l *lanes, name string) {
		grid.load(name)
		(&gatherer{l, grid}).bias()
	}
	// signedEight writes the two steps from s on of an entry of 8 magnitudes, whose index is in the
	// register 14, and whose signs are byte j of x.
	signedEight := func(l *lanes, x reg.VecPhysical, j, s int) {
		g := &gatherer{l, grid}
		for h := range 2 {
			g.gather(8, 4*h)
			g.sign(x, j, h, s+h)
		}
	}
	return []*unpacker{
		{name: "iq2xxs", size: 66, units: 4, step: 16, scales: func(l *lanes) {
			for c := range 4 {
				u := l.words(2+16*c, 0, 1, 3)
				l.oddScale(u[1], 28, 4, 8, 2*c, 6)
				l.oddScale(u[3], 28, 4, 8, 2*c+1, 6)
			}
			l.part(l.words(0, 0, 0)[0], eighth, 8)
			use(l, "gridIQ2XXS")
		}, unit: func(l *lanes) {
			u := l.words(2, 0)
			for c := range 2 {
				l.sevens(u[2*c+1], l.v(4))
				for i := range 4 {
					l.index(u[2*c], i, nil, 0, 0)
					signedEight(l, l.v(4), i, 8*c+2*i)
				}
			}
		}},
		{name: "iq2xs", size: 74, units: 4, step: 16, scales: func(l *lanes) {
			u := l.words(58, 0, 2, 3)
			for i := range 16 {
				l.oddScale(u[2+i/8], i%8*4, 4, 16, i, 6)
			}
			l.part(l.words(0, 0, 0)[0], eighth, 16)
			use(l, "gridIQ2XS")
		}, unit: func(l *lanes) {
			for i, x := range l.words(2, 0) {
				l.move(x, 9, 0, 0x007f007f, l.v(4))
				l.eighths(l.v(4))
				for e := range 2 {
					field(x, 16*e, 9, l.v(14))
					signedEight(l, l.v(4), 2*e, 4*i+2*e)
				}
			}
		}},
		{name: "iq2s", size: 82, units: 1, scales: func(l *lanes) {
			u := l.words(66, 0, 2, 3)
			for i := range 16 {
				l.oddScale(u[2+i/8], i%8*4, 4, 16, i, 6)
			}
			l.part(l.words(0, 0, 0)[0], eighth, 16)
			use(l, "gridIQ2S")
		}, unit: func(l *lanes) {
			high := l.words(66, 4, 0, 1)
			for c := range 2 {
				u, signs := l.words(2+16*c, 0), l.words(34+16*c, 8)
				for i, x := range u {
					for e := range 4 {
						l.index(x, e, high[c], 8*i+2*e, 2)
						signedEight(l, signs[i], e, 32*c+8*i+2*e)
					}
				}
			}
		}},
		{name: "iq3xxs", size: 98, units: 1, scales: func(l *lanes) {
			for c := range 2 {
				for i, u := range l.words(66+16*c, 0) {
					l.oddScale(u, 28, 4, 8, 4*c+i, 6)
				}
			}
			l.part(l.words(0, 0, 0)[0], quarter, 8)
			use(l, "gridIQ3XXS")
		}, unit: func(l *lanes) {
			g := &gatherer{l, grid}
			var signs [4]reg.VecPhysical
			for c := range 4 {
				if c%2 == 0 {
					signs = l.words(66+8*c, 8)
				}
				for i, x := range l.words(2+16*c, 0) {
					if i%2 == 0 {
						l.sevens(signs[c%2*2+i/2], l.v(4))
					}
					for e := range 4 {
						l.index(x, e, nil, 0, 0)
						g.gather(4, 0)
						g.sign(l.v(4), i%2*2+e/2, e%2, 16*c+4*i+e)
					}
				}
			}
		}},
		{name: "iq3s", size: 110, units: 1, scales: func(l *lanes) {
			u := l.words(94, 0, 3)[3]
			for i := range 8 {
				l.oddScale(u, 4*i, 4, 8, i, 6)
			}
			l.half(l.words(0, 0, 0)[0], At(l.q, panelD(8)))
			use(l, "gridIQ3S")
		}, unit: func(l *lanes) {
			g := &gatherer{l, grid}
			high := l.words(66, 4, 0, 1)
			var signs [4]reg.VecPhysical
			for c := range 4 {
				if c%2 == 0 {
					signs = l.words(74+8*c, 8)
				}
				for i, x := range l.words(2+16*c, 0) {
					for e := range 4 {
						l.index(x, e, high[c/2], 16*(c%2)+4*i+e, 1)
						g.gather(4, 0)
						g.sign(signs[c%2*2+i/2], i%2*2+e/2, e%2, 16*c+4*i+e)
					}
				}
			}
		}},
		{name: "iq1s", size: 50, units: 1, scales: func(l *lanes) {
			for i, u := range l.words(34, 0) {
				l.oddScale(u, 12, 3, 8, 2*i, 4)
				l.oddScale(u, 28, 3, 8, 2*i+1, 4)
			}
			l.part(l.words(0, 0, 0)[0], eighth, 8)
			grid.load("gridIQ1")
		}, unit: func(l *lanes) {
			l.shiftConstants()
			high := l.words(34, 4)
			for c := range 2 {
				for i, x := range l.words(2+16*c, 0) {
					h := high[2*c+i/2]
					l.shifts(h, 16*(i%2)+15, l.v(8))
					for e := range 4 {
						l.index(x, e, h, 16*(i%2)+3*e, 3)
						(&gatherer{l, grid}).shifted(l.v(8), 32*c+8*i+2*e)
					}
				}
			}
		}},
		{name: "iq1m", size: 56, units: 1, scales: func(l *lanes) {
			u := l.words(40, 0, 2, 3)
			for i := range 16 {
				l.oddScale(u[2+i/8], i/4%2*16+i%4*3, 3, 16, i, 4)
			}
			// The quarters of d are the upper four bits of the four halves.
			d, t := l.v(8), l.v(9)
			l.move(u[2], 12, 0, 15, d)
			for i, x := range []reg.VecPhysical{u[2], u[3], u[3]} {
				l.move(x, 12+(i+1)%2*16, 4*(i+1), 15<<(4*(i+1)), t)
				l.or(t, d, d)
			}
			l.part(d, eighth, 16)
			grid.load("gridIQ1")
		}, unit: func(l *lanes) {
			l.shiftConstants()
			high := l.words(32, 4)
			for c := range 2 {
				for i, x := range l.words(16*c, 0) {
					h := high[2*c+i/2]
					for e := range 4 {
						bit := 16*(i%2) + 4*e
						l.shifts(h, bit+3, l.v(8))
						l.index(x, e, h, bit, 3)
						(&gatherer{l, grid}).shifted(l.v(8), 32*c+8*i+2*e)
					}
				}
			}
		}},
		{name: "tq10", size: 54, units: 1, scales: func(l *lanes) {
			l.ones(0)
			l.upperHalf(l.words(38, 0, 3)[3], At(l.q, panelD(8)))
		}, unit: func(l *lanes) {
			all, three := l.v(8), l.v(9)
			l.set(0xffffffff, all)
			l.set(0x03030303, three)
			// digits writes n digits of the bytes of x, as steps that are so many apart; see ymmFormats.
			digits := func(x reg.VecPhysical, n, s, apart int) {
				for i := range n {
					q, t := l.v(12), l.v(13)
					if i > 0 {
						VPADDB(x, x, t)
						VPADDB(t, x, x)
					}
					l.xor(255, x, q)
					VPAVGB(all, q, t)
					VPAVGB(t, q, q)
					VPSRLW(Imm(6), q, q)
					l.andNot(q, three, q)
					l.step(s+apart*i, q)
				}
			}
			for c := range 2 {
				for j, x := range l.words(16*c, 0) {
					digits(x, 5, 4*c+j, 8)
				}
			}
			for j, x := range l.words(32, 0) {
				digits(x, 5, 40+j, 4)
			}
			u := l.words(38, 0, 2, 3)
			l.across(u[2], u[3], l.v(4))
			digits(l.v(4), 4, 60, 1)
		}},
		{name: "q8k", size: 292, units: 16, step: 16, scales: func(l *lanes) {
			l.ones(7)
			VMOVUPS(l.words(0, 0, 0)[0], At(l.q, panelD(8)))
		}, unit: func(l *lanes) {
			for s, x := range l.words(4, 0) {
				l.xor(128, x, x)
				l.step(s, x)
			}
		}},
	}
}

// wideUnpackers returns the unpackers of the formats of small blocks that have more than 32 elements,
// and of Q8_1.
func wideUnpackers() []*unpacker {
	// scale writes d of n times 32 elements.
	scale := func(l *lanes, n int) {
		v := l.words(0, 0, 0)[0]
		l.half(v, At(l.small, 0))
		for i := 1; i < n; i++ {
			VMOVUPS(v, At(l.small, 128*i))
		}
	}
	two := func(l *lanes, c int) {
		for i, x := range l.words(2+16*c, 0) {
			for e := range 4 {
				l.pairs(x, e, 16*c+4*i+e)
			}
		}
	}
	return []*unpacker{
		{name: "q10", size: 36, units: 2, step: 18, unit: func(l *lanes) {
			scale(l, 4)
			l.set(0x02020202, l.v(8))
			for i, x := range l.words(2, 0) {
				for e := range 8 {
					t := l.v(12)
					l.spread(x, e/2, t)
					if l.wide {
						VPTESTMB(l.each(e%2), t, reg.K1)
						VMOVDQU8_Z(l.v(8), reg.K1, t)
					} else {
						VPAND(l.each(e%2), t, t)
						VPCMPEQB(l.each(e%2), t, t)
						VPAND(l.v(8), t, t)
					}
					l.step(8*i+e, t)
				}
			}
		}},
		{name: "q20", size: 68, units: 2, step: 34, unit: func(l *lanes) {
			scale(l, 4)
			two(l, 0)
			two(l, 1)
		}},
		{name: "q20g64", size: 72, units: 4, step: 18, unit: func(l *lanes) {
			scale(l, 2)
			two(l, 0)
		}},
		{name: "q81", size: 288, units: 8, step: 36, unit: func(l *lanes) {
			scale(l, 1)
			for c := range 2 {
				for s, x := range l.words(4+16*c, 0) {
					l.xor(128, x, x)
					l.step(4*c+s, x)
				}
			}
		}},
	}
}
