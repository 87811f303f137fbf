package main

import (
	"math/bits"

	. "github.com/fucina-go/fucina/kernels/cpu/_asm/gen/a64"
)

// small is a format of blocks of 32 elements.
type small struct {
	name  string
	bytes int  // of a block
	most  int  // of the magnitudes of the codes
	bias  int  // what the codes have too much, a power of two
	term  int  // the offset of the term of each element, or 0 if there is none
	parts int  // of 32 elements in a block
	two   bool // the halves of a part have scales
	// constants loads constants.
	constants func()
	// codes sets lo and hi to the codes of a part of the block at p + off. It may change tmp.
	codes func(p R, off, part int, lo, hi V, tmp []V)
	// If convert is not nil, a block begins with bytes, one for a scale, instead of a half, and convert
	// makes words of bytes the scales. It may change tmp.
	convert func(d V, tmp []V)
}

func smalls() []*small {
	return []*small{
		{name: "q40", bytes: 18, parts: 1, most: 15, bias: 8, constants: justNibbles, codes: fours(2)},
		{name: "q41", bytes: 20, parts: 1, most: 15, term: 2, constants: justNibbles, codes: fours(4)},
		{name: "q50", bytes: 22, parts: 1, most: 31, bias: 16, constants: fivesConstants, codes: fives(2)},
		{name: "q51", bytes: 24, parts: 1, most: 31, term: 2, constants: fivesConstants, codes: fives(4)},
		{name: "q80", bytes: 34, parts: 1, most: 128, codes: whole(2)},
		{name: "q81", bytes: 36, parts: 1, most: 128, codes: whole(4)},
		{name: "iq4nl", bytes: 18, parts: 1, most: 127, constants: levelConstants("iq4nlConstants", iq4nlLevels), codes: looked(2)},
		{name: "mxfp4", bytes: 17, parts: 1, most: 12, constants: levelConstants("mxfp4Constants", fp4Levels), codes: looked(1), convert: e8m0},
		{name: "nvfp4", bytes: 36, parts: 2, two: true, most: 12, codes: nvfp4Codes, convert: ue4m3,
			constants: func() { constants("nvfp4Constants", nibbles, fp4Levels, repeat(0, 0, 0, 0x7b)) }}, // 2^119
		{name: "q10", bytes: 18, parts: 4, most: 1, constants: q10Constants, codes: q10Codes},
		{name: "q20", bytes: 34, parts: 4, most: 3, bias: 1, constants: q20Constants, codes: q20Codes},
		{name: "q20g64", bytes: 18, parts: 2, most: 3, bias: 1, constants: q20Constants, codes: q20Codes},
	}
}

// whole are codes of 8 bits at an offset.
func whole(at int) func(p R, off, part int, lo, hi V, tmp []V) {
	return func(p R, off, part int, lo, hi V, tmp []V) {
		LoadQ(lo, p, off+at)
		LoadQ(hi, p, off+at+16)
	}
}

// nvfp4Codes are those of NVFP4. 8 bytes have 16 codes.
func nvfp4Codes(p R, off, part int, lo, hi V, tmp []V) {
	LoadQ(tmp[0], p, off+4+16*part)
	AND(tmp[1], tmp[0], 24)
	USHR(B16, tmp[2], tmp[0], 4)
	TBL(tmp[1], 25, tmp[1])
	TBL(tmp[2], 25, tmp[2])
	ZIP1(D2, lo, tmp[1], tmp[2])
	ZIP2(D2, hi, tmp[1], tmp[2])
}

// ue4m3 makes words of bytes their half values.
func ue4m3(d V, tmp []V) {
	// 127 is 0, 255 is not.
	MOVI(tmp[1], 127)
	USHR(S4, tmp[0], tmp[1], 24)
	CMEQ(S4, tmp[0], tmp[0], d)
	AND(d, d, tmp[1])
	SHL(S4, d, d, 20)
	FMUL(d, d, 26)
	BIC(d, d, tmp[0])
}

func q10Constants() {
	constants("q10Constants",
		[]byte{8: 1, 9: 1, 10: 1, 11: 1, 12: 1, 13: 1, 14: 1, 15: 1},
		[]byte{2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3},
		repeat(1, 2, 4, 8, 16, 32, 64, 128), repeat(0), repeat(1))
}

// q10Codes are those of Q1_0: 1 where the bit is set, -1 where it is not.
func q10Codes(p R, off, part int, lo, hi V, tmp []V) {
	LoadS(tmp[0], p, off+2+4*part)
	for i, v := range []V{lo, hi} {
		TBL(v, tmp[0], V(24+i))
		AND(v, v, 26)
		CMEQ(B16, v, v, 27)
		ORR(v, v, 28)
	}
}

func q20Constants() {
	constants("q20Constants",
		[]byte{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3},
		[]byte{4, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7},
		repeat(0, 0xfe, 0xfc, 0xfa), repeat(3))
}

// q20Codes are those of Q2_0. A byte has four neighbours.
func q20Codes(p R, off, part int, lo, hi V, tmp []V) {
	LoadD(tmp[0], p, off+2+8*part)
	for i, v := range []V{lo, hi} {
		TBL(v, tmp[0], V(24+i))
		USHL(B16, v, v, 26)
		AND(v, v, 27)
	}
}

func justNibbles() { constants("nibbles", nibbles) }

// fours are codes of four bits at an offset.
func fours(at int) func(p R, off, part int, lo, hi V, tmp []V) {
	return func(p R, off, part int, lo, hi V, tmp []V) {
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
func fives(at int) func(p R, off, part int, lo, hi V, tmp []V) {
	return func(p R, off, part int, lo, hi V, tmp []V) {
		fours(at+4)(p, off, part, lo, hi, tmp)
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
func looked(at int) func(p R, off, part int, lo, hi V, tmp []V) {
	return func(p R, off, part int, lo, hi V, tmp []V) {
		fours(at)(p, off, part, lo, hi, tmp)
		TBL(lo, 25, lo)
		TBL(hi, 25, hi)
	}
}

// scales sets lane i of d to the scale of the part of the block at p[i] + off[i], or if second is set
// to that of its second half. It changes tmp.
func (f *small) scales(d V, p []R, off, part []int, second bool, tmp []V) {
	if f.convert == nil {
		gather(d, p, off, 0, tmp)
		return
	}
	at := func(i int) int {
		switch {
		case second:
			return off[i] + 2*part[i] + 1
		case f.two:
			return off[i] + 2*part[i]
		}
		return off[i]
	}
	LoadB(d, p[0], at(0))
	for i := 1; i < len(p); i++ {
		LoadB(tmp[0], p[i], at(i))
		INS(B16, d, i, tmp[0], 0)
	}
	USHLL(B8, d, d, 0)
	USHLL(H4, d, d, 0)
	f.convert(d, tmp)
}

// e8m0 makes words of bytes half of 2 to the power of them minus 127.
func e8m0(d V, tmp []V) {
	// 0 and 1 give numbers without a leading one, 255 gives NaN.
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

// rows multiplies rows by one row of activations: eight parts at once, then block by block.
func (f *small) rows(l level) {
	const part = V(15)
	rowsBegin(f.name+"Rows"+l.name, f.constants)
	Go("SUBS $%d, %v", 8/f.parts, rBlocks)
	Go("BLT rest")
	Label("eight")
	MOVI(part, 0)
	for i := range 2 {
		f.add(l, 4, 4*f.bytes/f.parts*i, rAct, 128*i, rAct, actScales+16*i, rAct, actSums+8*i, part)
	}
	FADDScalar(vSum, vSum, part)
	Go("ADD $%d, %v", 8*f.bytes/f.parts, rP)
	Go("ADD $%d, %v", actBytes, rAct)
	Go("SUBS $%d, %v", 8/f.parts, rBlocks)
	Go("BGE eight")
	Label("rest")
	Go("ADDS $%d, %v", 8/f.parts, rBlocks)
	Go("BEQ done")
	Go("ADD $%d, %v, %v", actScales, rAct, rScales)
	Go("ADD $%d, %v, %v", actSums, rAct, rSums)
	MOVI(part, 0)
	Label("one")
	f.add(l, f.parts, 0, rAct, 0, rScales, 0, rSums, 0, part)
	Go("ADD $%d, %v", f.bytes, rP)
	Go("ADD $%d, %v", 32*f.parts, rAct)
	Go("ADD $%d, %v", 4*f.parts, rScales)
	Go("ADD $%d, %v", 2*f.parts, rSums)
	Go("SUB $1, %v", rBlocks)
	Go("CBNZ %v, one", rBlocks)
	FADDScalar(vSum, vSum, part)
	Label("done")
	rowsEnd()
}

// add adds the products of n parts from rP + off on, 4, 2 or 1, one after the other, to sum. The
// activations, their scales and their sums are at registers plus offsets.
func (f *small) add(l level, n, off int, act R, actOff int, scales R, scalesOff int, sums R, sumsOff int, sum V) {
	lo, hi, tmp, a := V(0), V(1), []V{2, 3, 4, 5}, []V{6, 7}
	acc := [2][]V{{16, 17, 18, 19}, {20, 21, 22, 23}}
	base := rP
	if off+n*f.bytes/f.parts > 255 {
		base = rT
		Go("ADD $%d, %v, %v", off, rP, rT)
		off = 0
	}
	p, offs, parts := make([]R, n), make([]int, n), make([]int, n)
	for i := range n {
		p[i], offs[i], parts[i] = base, off+i/f.parts*f.bytes, i%f.parts
		f.codes(base, offs[i], parts[i], lo, hi, tmp)
		if n > 1 {
			LoadPair(a[0], a[1], act, actOff+32*i)
		} else {
			LoadQ(a[0], act, actOff)
			LoadQ(a[1], act, actOff+16)
		}
		s, groups := &slot{v: acc[0][i], most: f.most}, 2
		if f.two {
			groups = 1
		}
		l.mul(s, lo, a[0], groups)
		if f.two {
			l.end(s, groups)
			s = &slot{v: acc[1][i], most: f.most}
		}
		l.mul(s, hi, a[1], groups)
		l.end(s, groups)
	}
	dot, d, codes, dAct, second := acc[0][0], V(6), V(7), V(8), V(9)
	reduce(acc[0][:n])
	loads := [...]func(v V, r R, off int){1: LoadS, 2: LoadD, 4: LoadQ}
	loads[n](dAct, scales, scalesOff)
	if f.bias > 0 || f.term > 0 {
		loads := [...]func(v V, r R, off int){1: LoadH, 2: LoadS, 4: LoadD}
		loads[n](codes, sums, sumsOff)
		SSHLL(H4, codes, codes, bits.Len(uint(f.bias)|1)-1)
		if f.bias > 0 {
			SUB(S4, dot, dot, codes)
		}
	}
	SCVTF(dot, dot)
	f.scales(d, p, offs, parts, false, tmp)
	switch {
	case f.term > 0:
		SCVTF(codes, codes)
		gather(second, p, offs, f.term, tmp)
		FMUL(dot, dot, d)
		FMLA(dot, second, codes)
		FMUL(dot, dot, dAct)
	case f.two:
		reduce(acc[1][:n])
		SCVTF(acc[1][0], acc[1][0])
		f.scales(second, p, offs, parts, true, tmp)
		FMUL(dot, dot, d)
		FMLA(dot, second, acc[1][0])
		FMUL(dot, dot, dAct)
	default:
		FMUL(d, d, dAct)
		FMUL(dot, dot, d)
	}
	FADDScalar(sum, sum, dot)
	for i := 1; i < n; i++ {
		DUPScalar(0, dot, i)
		FADDScalar(sum, sum, 0)
	}
}

// reduce sets lane i of the first register to the sum of the words of register i.
func reduce(acc []V) {
	dot := acc[0]
	switch len(acc) {
	case 4:
		ADDP(S4, acc[0], acc[0], acc[1])
		ADDP(S4, acc[2], acc[2], acc[3])
		ADDP(S4, dot, acc[0], acc[2])
	case 2:
		ADDP(S4, dot, acc[0], acc[1])
		ADDP(S4, dot, dot, dot)
	case 1:
		ADDV(S4, dot, dot)
	}
}
