package main

import (
	"fmt"

	. "github.com/fucina-go/fucina/kernels/cpu/_asm/gen"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// small is a format of small blocks. A product takes 256 elements at once.
type small struct {
	name  string
	size  int // elements of a block: 32, 64 or 128; 0 means 32
	bytes int // of a block
	bias  int // what the codes of pair have too much
	term  int // the offset of the term of each element, or 0 if there is none
	// constants sets registers from 24 on, before the loop.
	constants func()
	two       bool // a block has 64 elements, and a scale of each 16
	// pair sets the bytes of v to the codes of the blocks at a and b, without a sign. It may change
	// the registers 20 to 23.
	pair func(a, b Mem, v reg.VecPhysical)
	// wide is pair for blocks of 64 or 128 elements: b is where the codes 64u to 64u+63 of a stretch
	// have their block.
	wide func(b Mem, u int, v reg.VecPhysical)
	// word changes the first word of blocks to their scales, and may change the registers 20 to 23.
	// If it is nil, a block begins with a half. Only the first byte of the word counts.
	word func(v reg.VecPhysical)
	// products is room for eight words.
	products Mem
}

// smallRows multiplies rows of the format by one row of activations. 256 elements of a row are taken
// at once. A rest of blocks is copied into the frame, before zeros.
func (f *small) rows() {
	TEXT(f.name+"RowsVNNI", NOSPLIT, "func(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)")
	blocks := 256 / f.elements()
	rest := AllocLocal((blocks*f.bytes + 63) / 64 * 64)
	f.products = AllocLocal(32)
	out, w := Load(Param("out"), GP64()), Load(Param("w"), GP64())
	rowBytes, rows := Load(Param("rowBytes"), GP64()), Load(Param("rows"), GP64())
	act, p, n := GP64(), GP64(), GP64()
	sum := reg.X17
	f.constants()
	var offsets, first, second []uint32
	for i := range 8 {
		offsets = append(offsets, uint32(f.block(i)))
		lane, word := uint32(i%2*2), uint32(i/2)
		first, second = append(first, 4*lane+word), append(second, 4*lane+4+word)
	}
	VMOVDQU32(Table("smallOrder", Dwords(append(first, second...)...)), f.order())
	VXORPS(f.zero(), f.zero(), f.zero())
	Broadcast(0x3f800000, Z(9)) // 1
	VMOVDQU32(Table(fmt.Sprintf("blocks%d_%d", f.elements(), f.bytes), Dwords(offsets...)), reg.Y18)
	Label("row")
	Load(Param("act"), act)
	Load(Param("blocks"), n)
	MOVQ(w, p)
	VPXORD(sum, sum, sum)
	SUBQ(Imm(uint64(blocks)), n)
	JL(LabelRef("rest"))
	Label("eight")
	f.eight(p, act, sum)
	ADDQ(I32(int32(blocks*f.bytes)), p)
	ADDQ(I32(actBytes), act)
	SUBQ(Imm(uint64(blocks)), n)
	JGE(LabelRef("eight"))
	Label("rest")
	ADDQ(Imm(uint64(blocks)), n)
	JZ(LabelRef("done"))
	zero := Z(0)
	VPXORD(zero, zero, zero)
	for i := 0; i < (blocks*f.bytes+63)/64; i++ {
		VMOVDQU32(zero, rest.Offset(64*i))
	}
	IMUL3Q(I8(int8(f.bytes)), n, n)
	from, to, b := GP64(), GP64(), GP32()
	LEAQ(rest, to)
	MOVQ(p, from)
	Label("copy")
	MOVBLZX(Mem{Base: from}, b)
	MOVB(b.As8(), Mem{Base: to})
	INCQ(from)
	INCQ(to)
	DECQ(n)
	JNZ(LabelRef("copy"))
	LEAQ(rest, p)
	f.eight(p, act, sum)
	Label("done")
	VMOVSS(sum, Mem{Base: out})
	ADDQ(Imm(4), out)
	ADDQ(rowBytes, w)
	DECQ(rows)
	JNZ(LabelRef("row"))
	VZEROUPPER()
	RET()
}

// eight adds 256 elements at p, eight times 32, to the sum.
func (f *small) eight(p, act reg.Register, sum reg.VecPhysical) {
	total := [4]reg.VecPhysical{Z(11), Z(12), Z(13), Z(14)}
	for i, v := range total {
		q := Z(10)
		f.codes(p, i, q)
		VPXORD(v, v, v)
		VPDPBUSD(At(act, 64*i), q, v)
	}
	if f.two {
		f.eightTwo(p, act, total)
		f.addEight(sum)
		return
	}
	combine(addWords, total, Z(0))
	VPERMD(total[0], f.order(), Z(0))
	VEXTRACTI64X4(Imm(1), Z(0), reg.Y1)
	VPADDD(reg.Y1, reg.Y0, reg.Y0)
	sums := reg.Y4
	VPMOVSXWD(At(act, actSums), sums)
	switch {
	case f.bias > 0:
		t := reg.Y1
		shift := 0
		for 1<<shift < f.bias {
			shift++
		}
		VPSLLD(Imm(uint64(shift)), sums, t)
		VPSUBD(t, reg.Y0, reg.Y0)
	}
	d := reg.Y5
	if f.word != nil {
		VPXOR(reg.X5, reg.X5, reg.X5)
		for i := range 8 {
			VPINSRB(Imm(uint64(i)), At(p, f.block(i)), reg.X5, reg.X5)
		}
		VPMOVZXBD(reg.X5, d)
		f.word(Z(5))
	} else {
		f.halves(p, 0, d)
	}
	VCVTDQ2PS(reg.Y0, reg.Y0)
	if f.term > 0 {
		VCVTDQ2PS(sums, sums)
		VMULPS(d, reg.Y0, reg.Y0)
		f.halves(p, f.term, reg.Y6)
		VFMADD231PS(sums, reg.Y6, reg.Y0)
		VMULPS(At(act, actScales), reg.Y0, reg.Y0)
	} else {
		VMULPS(At(act, actScales), d, d)
		VMULPS(d, reg.Y0, reg.Y0)
	}
	f.addEight(sum)
}

// order returns the register of the permutation of the words of the combined totals, in which the
// lanes 0 and 1 have the halves of 0, 2, 4 and 6, and the lanes 2 and 3 those of the others. It brings
// the first halves into the lower ymm, in order, and the second halves into the upper one.
func (f *small) order() reg.VecPhysical { return Z(15) }

// addEight adds the sum of the words of Y0, one after the other, to the sum.
func (f *small) addEight(sum reg.VecPhysical) {
	part := reg.X7
	VMOVUPS(reg.Y0, f.products)
	VMOVSS(f.products, part)
	VADDSS(f.zero(), part, part)
	for i := 1; i < 8; i++ {
		// The unit that adds is also the one that permutes.
		VFMADD231SS(f.products.Offset(4*i), f.one(), part)
	}
	VADDSS(part, sum, sum)
}

func (f *small) one() reg.VecPhysical  { return reg.X9 }
func (f *small) zero() reg.VecPhysical { return reg.X8 }

// block returns the offset of the block that has the elements from 32i on.
func (f *small) block(i int) int { return 32 * i / f.elements() * f.bytes }

// elements returns the number of elements of a block.
func (f *small) elements() int {
	if f.size == 0 {
		return 32
	}
	return f.size
}

// codes sets the bytes of v to the codes 64u to 64u+63 of the blocks at p, without a sign.
func (f *small) codes(p reg.Register, u int, v reg.VecPhysical) {
	if f.wide != nil {
		f.wide(At(p, f.block(2*u)), u, v)
		return
	}
	f.pair(At(p, f.block(2*u)), At(p, f.block(2*u+1)), v)
}

// halves sets the words of y to the halves at the given offset of the blocks of eight times 32
// elements at p.
func (f *small) halves(p reg.Register, offset int, y reg.VecPhysical) {
	x := y.AsX()
	t := reg.Y19
	KXNORB(reg.K3, reg.K3, reg.K3)
	VPXORD(t, t, t)
	VPGATHERDD(Mem{Base: p, Index: reg.Y18, Scale: 1, Disp: offset}, reg.K3, t)
	VPMOVDW(t, x)
	VCVTPH2PS(x, y)
}

// nibbles sets v to the low halves and then the high halves of 16 bytes at offset o of a, and then
// those of b.
func nibbles(a, b Mem, o int, v reg.VecPhysical) {
	VBROADCASTI32X4(a.Offset(o), v.AsY())
	VBROADCASTI32X4(b.Offset(o), reg.Y20)
	VINSERTI64X4(Imm(1), reg.Y20, v, v)
	VPSRLVQ(Z(24), v, v)
	VPANDD(Z(25), v, v)
}

// nibbleConstants sets what nibbles needs.
func nibbleConstants() {
	VMOVDQU32(Table("nibbleShifts", Repeat(Dwords(0, 0, 0, 0, 4, 0, 4, 0), 2)), Z(24))
	Broadcast(0x0f0f0f0f, Z(25))
}

// whole sets v to the 32 bytes at offset o of a, and then those of b, plus 128.
func whole(a, b Mem, o int, v reg.VecPhysical) {
	VMOVDQU(a.Offset(o), v.AsY())
	VINSERTI64X4(Imm(1), b.Offset(o), v, v)
	VPXORD(Z(24), v, v)
}

// levels makes the codes of v indices of a table of 16 levels, to which 128 is added.
func levels(name string, list [16]int) (constants func(), look func(v reg.VecPhysical)) {
	var b []byte
	for _, l := range list {
		b = append(b, byte(l+128))
	}
	return func() {
		nibbleConstants()
		VBROADCASTI32X4(Table(name+"Levels", b), Z(26))
	}, func(v reg.VecPhysical) { VPSHUFB(v, Z(26), v) }
}

// iq4nlLevels are the levels of IQ4_NL and IQ4_XS.
var iq4nlLevels = [16]int{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// fp4Levels are the levels of MXFP4 and NVFP4.
var fp4Levels = [16]int{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

// smallFormats returns the formats of small blocks that have functions.
func smallFormats() []*small {
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
	fp4, fp4Look := levels("fp4", fp4Levels)
	list := []*small{
		{name: "q40", bytes: 18, bias: 8, constants: nibbleConstants, pair: func(a, b Mem, v reg.VecPhysical) { nibbles(a, b, 2, v) }},
		{name: "q41", bytes: 20, term: 2, constants: nibbleConstants, pair: func(a, b Mem, v reg.VecPhysical) { nibbles(a, b, 4, v) }},
		{name: "q50", bytes: 22, bias: 16, constants: fifthConstants, pair: fifth(2)},
		{name: "q51", bytes: 24, term: 2, constants: fifthConstants, pair: fifth(4)},
		{name: "q80", bytes: 34, bias: 128, constants: func() { Broadcast(0x80808080, Z(24)) }, pair: func(a, b Mem, v reg.VecPhysical) {
			whole(a, b, 2, v)
		}},
		{name: "q81", bytes: 36, bias: 128, constants: func() { Broadcast(0x80808080, Z(24)) }, pair: func(a, b Mem, v reg.VecPhysical) {
			whole(a, b, 4, v)
		}},
		{name: "iq4nl", bytes: 18, bias: 128, constants: nl, pair: func(a, b Mem, v reg.VecPhysical) { nibbles(a, b, 2, v); nlLook(v) }},
		{name: "mxfp4", bytes: 17, bias: 128, constants: func() {
			fp4()
			Broadcast(1, Z(27))
			Broadcast(0x00200000, Z(28))
			Broadcast(255, Z(29))
			Broadcast(0x7fc00000, Z(30))
		}, pair: func(a, b Mem, v reg.VecPhysical) { nibbles(a, b, 1, v); fp4Look(v) }, word: e8m0},
	}
	return append(list, wideFormats()...)
}

// e8m0 changes the words of v to 2^(e-128), where e is the first byte. The values of the bytes 0 and
// 1 are subnormal, and byte 255 is a NaN.
func e8m0(v reg.VecPhysical) {
	low := Z(20)
	VPSLLD(Imm(24), v, v)
	VPSRLD(Imm(24), v, v)
	VPSLLVD(v, Z(28), low)
	VPCMPUD(Imm(2), Z(27), v, reg.K1) // e <= 1
	VPCMPUD(Imm(0), Z(29), v, reg.K3) // e == 255
	VPSUBD(Z(27), v, v)
	VPSLLD(Imm(23), v, v)
	VMOVDQU32(low, reg.K1, v)
	VMOVDQU32(Z(30), reg.K3, v)
}
