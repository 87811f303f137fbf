package main

import (
	"fmt"

	. "github.com/fucina-go/fucina/kernels/cpu/_asm/gen"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// format is a format of weights.
type format struct {
	name string
	size int
}

var formats = []format{{"F32", 4}, {"F16", 2}, {"BF16", 2}}

// load512 sets v to 16 weights. With a mask, the others become 0.
func (f format) load512(m Mem, v reg.VecPhysical, mask ...reg.Register) {
	switch {
	case f.name == "F32" && mask == nil:
		VMOVUPS(m, v)
	case f.name == "F32":
		VMOVUPS_Z(m, mask[0], v)
	case f.name == "F16" && mask == nil:
		VCVTPH2PS(m, v)
	case f.name == "F16":
		VCVTPH2PS_Z(m, mask[0], v)
	case mask == nil:
		VPMOVZXWD(m, v)
		VPSLLD(Imm(16), v, v)
	default:
		VPMOVZXWD_Z(m, mask[0], v)
		VPSLLD(Imm(16), v, v)
	}
}

// Masks of the folds: where the second of two vectors goes.
const (
	tailMask  = 1
	rowsMask  = 2
	foldMask8 = 3
	foldMask4 = 4
	foldMask2 = 5
	foldMask1 = 6
)

func k(i int) reg.Register {
	return [...]reg.Register{reg.K0, reg.K1, reg.K2, reg.K3, reg.K4, reg.K5, reg.K6, reg.K7}[i]
}

// setMask sets the mask to a constant.
func setMask(i int, mask uint32) {
	t := GP32()
	MOVL(U32(mask), t)
	KMOVW(t, k(i))
}

// lowMask sets the mask to its first n bits.
func lowMask(i int, n reg.Register) {
	t := GP32()
	MOVQ(n, reg.RCX)
	MOVL(U32(1), t)
	SHLL(reg.CL, t)
	DECL(t)
	KMOVW(t, k(i))
}

// foldMasks sets the masks of the folds.
func foldMasks() {
	setMask(foldMask8, 0xff00)
	setMask(foldMask4, 0xf0f0)
	setMask(foldMask2, 0xcccc)
	setMask(foldMask1, 0xaaaa)
}

// quads4 and words1 are the orders of the permutations in fold4 and fold1.
func quads4() Mem {
	var b []byte
	for _, i := range []byte{2, 3, 8, 9, 6, 7, 12, 13} {
		b = append(b, i, 0, 0, 0, 0, 0, 0, 0)
	}
	return Table("quads4", b)
}

func words1() Mem {
	var words []uint32
	for i := uint32(0); i < 16; i += 2 {
		words = append(words, i+1, 16+i)
	}
	return Table("words1", Dwords(words...))
}

// fold8 adds the halves of each of a and b: the sums of a are the first half of the result, in a, and
// those of b the second. t is free.
func fold8(a, b, t reg.VecPhysical) {
	VBLENDMPS(b, a, k(foldMask8), t)
	VSHUFF32X4(Imm(0x4e), b, a, a)
	VADDPS(t, a, a)
}

// fold4 adds the halves of each half of a and b. In each half of the result, in a, the sums of a come
// first. order is quads4.
func fold4(a, b, t, order reg.VecPhysical) {
	VBLENDMPS(b, a, k(foldMask4), t)
	VPERMT2PD(b, order, a)
	VADDPS(t, a, a)
}

// fold2 adds the halves of each quarter of a and b.
func fold2(a, b, t reg.VecPhysical) {
	VBLENDMPS(b, a, k(foldMask2), t)
	VSHUFPD(Imm(0x55), b, a, a)
	VADDPS(t, a, a)
}

// fold1 adds neighbours in a and b. The sums of a have the even places. order is words1.
func fold1(a, b, t, order reg.VecPhysical) {
	VBLENDMPS(b, a, k(foldMask1), t)
	VPERMT2PS(b, order, a)
	VADDPS(t, a, a)
}

const tileSignature = "func(out *float32, outStride int, w *byte, wStride int, x *float32, xStride int, steps, tail int, acc *float32, mode, rows, count int, wrap *float32, next *byte, nextStride, nextStep, nextMask int)"
const singleSignature = "func(out *float32, outStride int, w *byte, wStride int, x *float32, xStride int, steps, tail int, acc *float32, mode, rows int)"

// tile512 has a tile of 8 rows of weights and n rows of x. With a format, it is a single tile, which
// reads weights of that format.
func tile512(n int, f *format) {
	name, signature := fmt.Sprintf("tile512x%d", n), tileSignature
	size := 4
	if f != nil {
		name, signature, size = fmt.Sprintf("single512x%d%s", n, f.name), singleSignature, f.size
	}
	TEXT(name, NOSPLIT, signature)
	sum := func(i, r int) reg.VecPhysical { return Z(8*i + r) }
	each := func(f func(i, r int)) {
		for i := range n {
			for r := range 8 {
				f(i, r)
			}
		}
	}
	lowMask(tailMask, Load(Param("tail"), GP64()))
	lowMask(rowsMask, Load(Param("rows"), GP64()))
	foldMasks()
	out, acc, x := Load(Param("out"), GP64()), Load(Param("acc"), GP64()), Load(Param("x"), GP64())
	s, xs := Load(Param("wStride"), GP64()), Load(Param("xStride"), GP64())
	var count, next, nextStep reg.Register
	if f == nil {
		count, next, nextStep = Load(Param("count"), GP64()), Load(Param("next"), GP64()), Load(Param("nextStep"), GP64())
	}
	s3, p, q, steps, mode, ahead := GP64(), GP64(), GP64(), GP64(), GP64(), GP64()
	LEAQ(Mem{Base: s, Index: s, Scale: 2}, s3)
	w := func(r int) Mem {
		base := p
		if r >= 4 {
			base = q
		}
		switch r % 4 {
		case 0:
			return Mem{Base: base}
		case 3:
			return Mem{Base: base, Index: s3, Scale: 1}
		}
		return Mem{Base: base, Index: s, Scale: uint8(r % 4)}
	}
	xrow := func(base reg.Register, i int) Mem {
		if i == 0 {
			return Mem{Base: base}
		}
		return Mem{Base: base, Index: xs, Scale: uint8(i)}
	}
	Label("tile")
	Load(Param("mode"), mode)
	Load(Param("steps"), steps)
	Load(Param("w"), p)
	LEAQ(Mem{Base: p, Index: s, Scale: 4}, q)
	LEAQ(xrow(x, n&2), ahead)
	if n != 2 {
		ADDQ(xs, ahead)
	}
	if f == nil {
		CMPQ(count, Imm(1))
		JNE(LabelRef("ahead"))
		Load(Param("wrap"), ahead)
		Label("ahead")
	}
	TESTQ(I32(1), mode)
	JNZ(LabelRef("resume"))
	each(func(i, r int) { VPXORD(sum(i, r), sum(i, r), sum(i, r)) })
	JMP(LabelRef("begin"))
	Label("resume")
	each(func(i, r int) { VMOVUPS(At(acc, 64*(8*i+r)), sum(i, r)) })
	Label("begin")
	TESTQ(steps, steps)
	JZ(LabelRef("tail"))
	Label("step")
	for i := range n {
		VMOVUPS(xrow(x, i), Z(24+i))
	}
	for r := range 8 {
		v := Z(27 + r%5)
		if f == nil {
			VMOVUPS(w(r), v)
		} else {
			f.load512(w(r), v)
		}
		for i := range n {
			VFMADD231PS(v, Z(24+i), sum(i, r))
		}
	}
	for i := range n {
		PREFETCHT0(xrow(ahead, i))
	}
	if f == nil {
		PREFETCHT1(Mem{Base: next})
		ADDQ(nextStep, next)
	}
	ADDQ(I32(int32(16*size)), p)
	ADDQ(I32(int32(16*size)), q)
	ADDQ(I32(64), x)
	ADDQ(I32(64), ahead)
	DECQ(steps)
	JNZ(LabelRef("step"))
	Label("tail")
	KTESTW(k(tailMask), k(tailMask))
	JZ(LabelRef("end"))
	for i := range n {
		VMOVUPS_Z(xrow(x, i), k(tailMask), Z(24+i))
	}
	for r := range 8 {
		v := Z(27 + r%5)
		if f == nil {
			VMOVUPS_Z(w(r), k(tailMask), v)
		} else {
			f.load512(w(r), v, k(tailMask))
		}
		for i := range n {
			VFMADD231PS(v, Z(24+i), k(tailMask), sum(i, r))
		}
	}
	Label("end")
	TESTQ(I32(2), mode)
	JZ(LabelRef("fold"))
	each(func(i, r int) { VMOVUPS(sum(i, r), At(acc, 64*(8*i+r))) })
	JMP(LabelRef("next"))
	Label("fold")
	VMOVUPS(quads4(), Z(28))
	VMOVUPS(words1(), Z(29))
	if n >= 2 {
		for r := range 8 {
			fold8(sum(0, r), sum(1, r), Z(24+r%4))
		}
		for r := range 4 {
			fold4(sum(0, r), sum(0, r+4), Z(24+r), Z(28))
		}
		for r := range 2 {
			fold2(sum(0, r), sum(0, r+2), Z(24+r))
		}
		fold1(sum(0, 0), sum(0, 1), Z(24), Z(29))
	}
	if n != 2 {
		a := func(r int) reg.VecPhysical { return sum(n-1, r) }
		for r := range 4 {
			fold8(a(r), a(r+4), Z(24+r))
		}
		for r := range 2 {
			fold4(a(r), a(r+2), Z(24+r), Z(28))
		}
		fold2(a(0), a(1), Z(24))
		VPERMILPS(Imm(0xb1), a(0), Z(24))
		VADDPS(Z(24), a(0), a(0))
		VPMOVQD(a(0), Z(24).AsY())
	}
	rowOut := out
	if n >= 2 {
		outStride := Load(Param("outStride"), GP64())
		VMOVUPS(sum(0, 0).AsY(), k(rowsMask), Mem{Base: out})
		ADDQ(outStride, rowOut)
		// VEXTRACTF32X8 with a mask faults for what the mask leaves out.
		VEXTRACTF32X8(Imm(1), sum(0, 0), reg.Y25)
		VMOVUPS(reg.Y25, k(rowsMask), Mem{Base: rowOut})
		ADDQ(outStride, rowOut)
	}
	if n != 2 {
		VMOVUPS(Z(24).AsY(), k(rowsMask), Mem{Base: rowOut})
		ADDQ(Load(Param("outStride"), GP64()), out)
	}
	Label("next")
	if f == nil {
		ADDQ(I32(int32(512*n)), acc)
		Load(Param("steps"), steps)
		SHLQ(Imm(6), steps)
		SUBQ(steps, x)
		for range n {
			ADDQ(xs, x)
		}
		Load(Param("nextMask"), mode)
		DECQ(count)
		JZ(LabelRef("done"))
		TESTQ(mode, count)
		JNZ(LabelRef("tile"))
		ADDQ(Load(Param("nextStride"), GP64()), next)
		JMP(LabelRef("tile"))
		Label("done")
	}
	VZEROUPPER()
	RET()
}

// rows512 multiplies rows of weights by one row of x.
func rows512(f format) {
	TEXT("rows512"+f.name, NOSPLIT, "func(out *float32, w *byte, rowBytes, rows int, x *float32, k int)")
	out, w := Load(Param("out"), GP64()), Load(Param("w"), GP64())
	s, rows := Load(Param("rowBytes"), GP64()), Load(Param("rows"), GP64())
	x0, steps0 := Load(Param("x"), GP64()), Load(Param("k"), GP64())
	tail, p, x := GP64(), GP64(), GP64()
	loop := rowLoop{f, w.(reg.GPVirtual), s.(reg.GPVirtual), p, x, x0, steps0, GP64(), GP64(), GP64()}
	MOVQ(steps0, tail)
	ANDQ(Imm(15), tail)
	lowMask(tailMask, tail)
	SHRQ(Imm(4), steps0)
	setMask(foldMask8, 0xff00)
	row := func(r int) Mem {
		return [...]Mem{{Base: p}, {Base: p, Index: s, Scale: 1}}[r]
	}
	group := func(n int, name string) {
		for r := range n {
			VPXORD(Z(r), Z(r), Z(r))
		}
		loop.run(name, func() {
			VMOVUPS(Mem{Base: x}, Z(8))
			for r := range n {
				f.load512(row(r), Z(9+r))
				VFMADD231PS(Z(9+r), Z(8), Z(r))
			}
		})
		KTESTW(k(tailMask), k(tailMask))
		JZ(LabelRef(name + "Fold"))
		VMOVUPS_Z(Mem{Base: x}, k(tailMask), Z(8))
		for r := range n {
			f.load512(row(r), Z(9+r), k(tailMask))
			VFMADD231PS(Z(9+r), Z(8), k(tailMask), Z(r))
		}
		Label(name + "Fold")
	}
	JMP(LabelRef("rest"))
	Label("many")
	group(lockstep, "many")
	fold8(Z(0), Z(1), Z(8))
	VEXTRACTF32X8(Imm(1), Z(0), reg.Y1)
	foldY(reg.Y0, reg.Y2)
	foldY(reg.Y1, reg.Y2)
	VUNPCKLPS(reg.X1, reg.X0, reg.X0)
	VMOVLPS(reg.X0, Mem{Base: out})
	ADDQ(I32(int32(4*lockstep)), out)
	LEAQ(Mem{Base: w, Index: s, Scale: uint8(lockstep)}, w)
	SUBQ(Imm(uint64(lockstep)), rows)
	Label("rest")
	CMPQ(rows, Imm(uint64(lockstep)))
	JGE(LabelRef("many"))
	TESTQ(rows, rows)
	JZ(LabelRef("done"))
	Label("one")
	group(1, "one")
	VEXTRACTF32X8(Imm(1), Z(0), reg.Y1)
	VADDPS(reg.Y1, reg.Y0, reg.Y0)
	foldY(reg.Y0, reg.Y1)
	VMOVSS(reg.X0, Mem{Base: out})
	ADDQ(I32(4), out)
	ADDQ(s, w)
	DECQ(rows)
	JNZ(LabelRef("one"))
	Label("done")
	VZEROUPPER()
	RET()
}

// foldY sets the first word of a to the fold of its 8 words. t is free.
func foldY(a, t reg.VecPhysical) {
	x, y := a.AsX(), t.AsX()
	VEXTRACTF128(Imm(1), a, y)
	VADDPS(y, x, x)
	VPERMILPS(Imm(0x4e), x, y)
	VADDPS(y, x, x)
	VPERMILPS(Imm(0xb1), x, y)
	VADDPS(y, x, x)
}

// convert512 has the conversions of 16 values at a time.
func convert512() {
	for _, f := range formats[1:] {
		TEXT("widen512"+f.name, NOSPLIT, "func(dst *float32, src *byte, count int)")
		dst, src, n := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("count"), GP64())
		Label("step")
		f.load512(Mem{Base: src}, Z(0))
		VMOVUPS(Z(0), Mem{Base: dst})
		ADDQ(I32(32), src)
		ADDQ(I32(64), dst)
		SUBQ(Imm(16), n)
		JNZ(LabelRef("step"))
		VZEROUPPER()
		RET()
	}
	TEXT("narrow512F16", NOSPLIT, "func(dst *byte, src *float32, count int)")
	dst, src, n := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("count"), GP64())
	Broadcast(0x80000000, Z(4))
	Broadcast(0x7fc00000, Z(5))
	Label("step")
	VMOVUPS(Mem{Base: src}, Z(0))
	VCMPPS(Imm(3), Z(0), Z(0), k(1))
	VPANDD(Z(4), Z(0), Z(1))
	VPORD(Z(5), Z(1), k(1), Z(0))
	VCVTPS2PH(Imm(0), Z(0), Mem{Base: dst})
	ADDQ(I32(64), src)
	ADDQ(I32(32), dst)
	SUBQ(Imm(16), n)
	JNZ(LabelRef("step"))
	VZEROUPPER()
	RET()

	TEXT("narrow512BF16", NOSPLIT, "func(dst *byte, src *float32, count int)")
	dst, src, n = Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("count"), GP64())
	Broadcast(0x7fff, Z(4))
	Broadcast(1, Z(5))
	Broadcast(0x400000, Z(6))
	Label("step")
	VMOVUPS(Mem{Base: src}, Z(0))
	VCMPPS(Imm(3), Z(0), Z(0), k(1))
	VPSRLD(Imm(16), Z(0), Z(1))
	VPANDD(Z(5), Z(1), Z(1))
	VPADDD(Z(4), Z(1), Z(1))
	VPADDD(Z(0), Z(1), Z(1))
	VPORD(Z(6), Z(0), k(1), Z(1))
	VPSRLD(Imm(16), Z(1), Z(1))
	VPMOVDW(Z(1), Mem{Base: dst})
	ADDQ(I32(64), src)
	ADDQ(I32(32), dst)
	SUBQ(Imm(16), n)
	JNZ(LabelRef("step"))
	VZEROUPPER()
	RET()
}
