package main

import (
	"fmt"

	. "github.com/fucina-go/fucina/kernels/cpu/_asm/gen"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// wideSmall is a format of small blocks that are not those of small. A product takes 256 elements at
// once.
type wideSmall struct {
	name  string
	size  int // elements of a block: 32, 64 or 128
	bytes int // of a block
	bias  int // what the codes of pair have too much
	// constants sets registers from 24 on, before the loop.
	constants func()
	two       bool // a block has 64 elements, and a scale of each 16
	// wide sets the bytes of v to the codes 64u to 64u+63 of a stretch, without a sign, whose block
	// is at b, or begins there. It may change the registers 20 to 23.
	wide func(b Mem, u int, v reg.VecPhysical)
	// products is room for eight words.
	products Mem
}

// rows multiplies rows of the format by one row of activations.
func (f *wideSmall) rows() {
	TEXT(f.name+"RowsVNNI", NOSPLIT, "func(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)")
	sum := reg.X17
	f.stretches(sum, func() {
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
		VMOVDQU32(Table(fmt.Sprintf("blocks%d_%d", f.size, f.bytes), Dwords(offsets...)), reg.Y18)
	}, func(p, act reg.Register) { f.eight(p, act, sum) })
}

// stretches is the body of a function that multiplies rows by a row of activations. add adds 256
// elements of the row at p to the sum. A rest of blocks is copied into the frame, before zeros. It
// changes ymm 0.
func (f *wideSmall) stretches(sum reg.VecPhysical, constants func(), add func(p, act reg.Register)) {
	blocks := 256 / f.size
	size := (blocks*f.bytes + 31) / 32 * 32
	rest := AllocLocal(size)
	f.products = AllocLocal(32)
	out, w := Load(Param("out"), GP64()), Load(Param("w"), GP64())
	rowBytes, rows := Load(Param("rowBytes"), GP64()), Load(Param("rows"), GP64())
	act, p, n := GP64(), GP64(), GP64()
	constants()
	Label("row")
	Load(Param("act"), act)
	Load(Param("blocks"), n)
	MOVQ(w, p)
	VXORPS(sum, sum, sum)
	SUBQ(Imm(uint64(blocks)), n)
	JL(LabelRef("rest"))
	Label("stretch")
	prefetchRow(p, blocks*f.bytes)
	add(p, act)
	ADDQ(I32(int32(blocks*f.bytes)), p)
	ADDQ(I32(actBytes), act)
	SUBQ(Imm(uint64(blocks)), n)
	JGE(LabelRef("stretch"))
	Label("rest")
	ADDQ(Imm(uint64(blocks)), n)
	JZ(LabelRef("done"))
	VXORPS(reg.Y0, reg.Y0, reg.Y0)
	for i := 0; i < size; i += 32 {
		VMOVUPS(reg.Y0, rest.Offset(i))
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
	add(p, act)
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
func (f *wideSmall) eight(p, act reg.Register, sum reg.VecPhysical) {
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
	f.halves(p, 0, d)
	VCVTDQ2PS(reg.Y0, reg.Y0)
	VMULPS(At(act, actScales), d, d)
	VMULPS(d, reg.Y0, reg.Y0)
	f.addEight(sum)
}

// order returns the register of the permutation of the words of the combined totals, in which the
// lanes 0 and 1 have the halves of 0, 2, 4 and 6, and the lanes 2 and 3 those of the others. It brings
// the first halves into the lower ymm, in order, and the second halves into the upper one.
func (f *wideSmall) order() reg.VecPhysical { return Z(15) }

// addEight adds the sum of the words of Y0, one after the other, to the sum.
func (f *wideSmall) addEight(sum reg.VecPhysical) {
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

func (f *wideSmall) one() reg.VecPhysical  { return reg.X9 }
func (f *wideSmall) zero() reg.VecPhysical { return reg.X8 }

// block returns the offset of the block that has the elements from 32i on.
func (f *wideSmall) block(i int) int { return 32 * i / f.size * f.bytes }

// codes sets the bytes of v to the codes 64u to 64u+63 of the blocks at p, without a sign.
func (f *wideSmall) codes(p reg.Register, u int, v reg.VecPhysical) {
	f.wide(At(p, f.block(2*u)), u, v)
}

// halves sets the words of y to the halves at the given offset of the blocks of eight times 32
// elements at p.
func (f *wideSmall) halves(p reg.Register, offset int, y reg.VecPhysical) {
	x := y.AsX()
	t := reg.Y19
	KXNORB(reg.K3, reg.K3, reg.K3)
	VPXORD(t, t, t)
	VPGATHERDD(Mem{Base: p, Index: reg.Y18, Scale: 1, Disp: offset}, reg.K3, t)
	VPMOVDW(t, x)
	VCVTPH2PS(x, y)
}
