package main

import (
	"math/bits"

	. "github.com/fucina-go/fucina/kernels/cpu/_asm/gen/a64"
)

// small is a format of blocks of 32 elements.
type small struct {
	name  string
	bytes int // of a block
	most  int // of the magnitudes of the codes
	bias  int // what the codes have too much, a power of two
	term  int // the offset of the term of each element, or 0 if there is none
	// constants loads constants.
	constants func()
	// codes sets lo and hi to the codes of the block at p + off. It may change tmp.
	codes func(p R, off int, lo, hi V, tmp []V)
	// exponent says that a block begins with the exponent of its scale instead of a half.
	exponent bool
}

func smalls() []*small {
	return []*small{
		{name: "q40", bytes: 18, most: 15, bias: 8, constants: justNibbles, codes: fours(2)},
		{name: "q41", bytes: 20, most: 15, term: 2, constants: justNibbles, codes: fours(4)},
		{name: "q50", bytes: 22, most: 31, bias: 16, constants: fivesConstants, codes: fives(2)},
		{name: "q51", bytes: 24, most: 31, term: 2, constants: fivesConstants, codes: fives(4)},
		{name: "q80", bytes: 34, most: 128, codes: func(p R, off int, lo, hi V, tmp []V) {
			LoadQ(lo, p, off+2)
			LoadQ(hi, p, off+18)
		}},
		{name: "iq4nl", bytes: 18, most: 127, constants: levelConstants("iq4nlConstants", iq4nlLevels), codes: looked(2)},
		{name: "mxfp4", bytes: 17, most: 12, constants: levelConstants("mxfp4Constants", fp4Levels), codes: looked(1), exponent: true},
	}
}

func justNibbles() { constants("nibbles", nibbles) }

// fours are codes of four bits at an offset.
func fours(at int) func(p R, off int, lo, hi V, tmp []V) {
	return func(p R, off int, lo, hi V, tmp []V) {
		LoadQ(tmp[0], p, off+at)
		AND(lo, tmp[0], firstConstant)
		USHR(B16, hi, tmp[0], 4)
	}
}

func fivesConstants() {
	constants("fivesConstants", nibbles, repeat(16), repeat(1, 2, 4, 8, 16, 32, 64, 128),
		[]byte{8: 1, 9: 1, 10: 1, 11: 1, 12: 1, 13: 1, 14: 1, 15: 1},
		[]byte{2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3})
}

// fives are the upper bits of 32 codes at an offset, and their lower four bits.
func fives(at int) func(p R, off int, lo, hi V, tmp []V) {
	return func(p R, off int, lo, hi V, tmp []V) {
		fours(at+4)(p, off, lo, hi, tmp)
		LoadS(tmp[0], p, off+at)
		for i, v := range []V{lo, hi} {
			TBL(tmp[1], tmp[0], V(27+i))
			CMTST(B16, tmp[1], tmp[1], 26)
			AND(tmp[1], tmp[1], 25)
			ORR(v, v, tmp[1])
		}
	}
}

func levelConstants(name string, levels []byte) func() {
	return func() { constants(name, nibbles, levels) }
}

// looked are indices of levels, of four bits, at an offset.
func looked(at int) func(p R, off int, lo, hi V, tmp []V) {
	return func(p R, off int, lo, hi V, tmp []V) {
		fours(at)(p, off, lo, hi, tmp)
		TBL(lo, 25, lo)
		TBL(hi, 25, hi)
	}
}

// scales sets lane i of d to the scale of the block at p[i] + off[i]. It changes tmp.
func (f *small) scales(d V, p []R, off []int, tmp []V) {
	if !f.exponent {
		gather(d, p, off, 0, tmp)
		return
	}
	LoadB(d, p[0], off[0])
	for i := 1; i < len(p); i++ {
		LoadB(tmp[0], p[i], off[i])
		INS(B16, d, i, tmp[0], 0)
	}
	USHLL(B8, d, d, 0)
	USHLL(H4, d, d, 0)
	// e is 2^(e-128). 0 and 1 give numbers without a leading one, 255 gives NaN.
	e, one, t, u := tmp[0], tmp[1], tmp[2], tmp[3]
	ORR(e, d, d)
	MOVI(one, 1)
	USHR(S4, one, one, 24)
	SUB(S4, d, e, one)
	SHL(S4, d, d, 23)
	ADD(S4, t, one, one)
	CMHI(S4, t, t, e)
	SHL(S4, u, one, 21)
	USHL(S4, u, u, e)
	BIT(d, u, t)
	MOVI(t, 255)
	USHR(S4, u, t, 24)
	CMEQ(S4, u, u, e)
	USHR(S4, t, t, 30)
	SHL(S4, t, t, 22)
	AND(t, t, u)
	ORR(d, d, t)
}

// gather sets lane i of d to the half at p[i] + off[i] + at.
func gather(d V, p []R, off []int, at int, tmp []V) {
	LoadH(d, p[0], off[0]+at)
	for i := 1; i < len(p); i++ {
		LoadH(tmp[0], p[i], off[i]+at)
		INS(H8, d, i, tmp[0], 0)
	}
	FCVTL(d, d)
}

// rows multiplies rows by one row of activations: eight blocks at once, then one by one.
func (f *small) rows(l level) {
	const part = V(23)
	rowsBegin(f.name+"Rows"+l.name, f.constants)
	Go("SUBS $8, %v", rBlocks)
	Go("BLT rest")
	Label("eight")
	MOVI(part, 0)
	for i := range 2 {
		f.blocks(l, 4, 4*f.bytes*i, rAct, 128*i, rAct, actScales+16*i, rAct, actSums+8*i, part)
	}
	FADDScalar(vSum, vSum, part)
	Go("ADD $%d, %v", 8*f.bytes, rP)
	Go("ADD $%d, %v", actBytes, rAct)
	Go("SUBS $8, %v", rBlocks)
	Go("BGE eight")
	Label("rest")
	Go("ADDS $8, %v", rBlocks)
	Go("BEQ done")
	Go("ADD $%d, %v, %v", actScales, rAct, rScales)
	Go("ADD $%d, %v, %v", actSums, rAct, rSums)
	MOVI(part, 0)
	Label("one")
	f.blocks(l, 1, 0, rAct, 0, rScales, 0, rSums, 0, part)
	Go("ADD $%d, %v", f.bytes, rP)
	Go("ADD $32, %v", rAct)
	Go("ADD $4, %v", rScales)
	Go("ADD $2, %v", rSums)
	Go("SUB $1, %v", rBlocks)
	Go("CBNZ %v, one", rBlocks)
	FADDScalar(vSum, vSum, part)
	Label("done")
	rowsEnd()
}

// blocks adds the products of n blocks at rP + off, 4 or 1, one after the other, to part. The
// activations, their scales and their sums are at registers plus offsets.
func (f *small) blocks(l level, n, off int, act R, actOff int, scales R, scalesOff int, sums R, sumsOff int, part V) {
	lo, hi, tmp, a := V(0), V(1), []V{2, 3, 4, 5}, []V{6, 7}
	acc := []V{16, 17, 18, 19}[:n]
	base := rP
	if off+n*f.bytes > 255 {
		base = rT
		Go("ADD $%d, %v, %v", off, rP, rT)
		off = 0
	}
	var p []R
	var offs []int
	for i, v := range acc {
		p, offs = append(p, base), append(offs, off+f.bytes*i)
		f.codes(base, offs[i], lo, hi, tmp)
		if n > 1 {
			LoadPair(a[0], a[1], act, actOff+32*i)
		} else {
			LoadQ(a[0], act, actOff)
			LoadQ(a[1], act, actOff+16)
		}
		s := &slot{v: v, most: f.most}
		l.mul(s, lo, a[0], 2)
		l.mul(s, hi, a[1], 2)
		l.end(s, 2)
	}
	dot, sum, d, dAct := acc[0], V(7), V(6), V(8)
	if n > 1 {
		ADDP(S4, acc[0], acc[0], acc[1])
		ADDP(S4, acc[2], acc[2], acc[3])
		ADDP(S4, dot, acc[0], acc[2])
		LoadQ(dAct, scales, scalesOff)
	} else {
		ADDV(S4, dot, dot)
		LoadS(dAct, scales, scalesOff)
	}
	if f.bias > 0 || f.term > 0 {
		if n > 1 {
			LoadD(sum, sums, sumsOff)
		} else {
			LoadH(sum, sums, sumsOff)
		}
		shift := 0
		if f.bias > 0 {
			shift = bits.TrailingZeros(uint(f.bias))
		}
		SSHLL(H4, sum, sum, shift)
		if f.bias > 0 {
			SUB(S4, dot, dot, sum)
		}
	}
	SCVTF(dot, dot)
	f.scales(d, p, offs, tmp)
	if f.term > 0 {
		m := V(9)
		SCVTF(sum, sum)
		gather(m, p, offs, f.term, tmp)
		FMUL(dot, dot, d)
		FMLA(dot, m, sum)
		FMUL(dot, dot, dAct)
	} else {
		FMUL(d, d, dAct)
		FMUL(dot, dot, d)
	}
	FADDScalar(part, part, dot)
	for i := 1; i < n; i++ {
		DUPScalar(0, dot, i)
		FADDScalar(part, part, 0)
	}
}
