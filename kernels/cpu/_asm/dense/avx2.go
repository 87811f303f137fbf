package main

import (
	"fmt"

	. "github.com/fucina-go/fucina/kernels/cpu/_asm/gen"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Y returns a vector register.
func Y(i int) reg.VecPhysical { return Z(i).AsY().(reg.VecPhysical) }

// load2 sets v to 8 weights. The words that mask leaves out are not loaded, and become 0.
func (f format) load2(m Mem, v reg.VecPhysical, mask ...reg.VecPhysical) {
	switch {
	case f.name == "F32" && mask == nil:
		VMOVUPS(m, v)
	case f.name == "F32":
		VMASKMOVPS(m, mask[0], v)
	case f.name == "F16":
		VCVTPH2PS(m, v)
	default:
		VPMOVZXWD(m, v)
		VPSLLD(Imm(16), v, v)
	}
}

// The masks of a tail of n elements begin 16-n words after the beginning of these tables.
func tailMasks() Mem {
	return Table("tails", append(Repeat([]byte{255}, 64), make([]byte, 64)...))
}

func tailSigns() Mem {
	return Table("signs", append(make([]byte, 64), Repeat([]byte{0, 0, 0, 0x80}, 16)...))
}

// tile2 has a tile of 3 rows of weights and n rows of x, as tile512. A row of sums has two registers.
func tile2(n int, f *format) {
	name, signature := fmt.Sprintf("tile2x%d", n), tileSignature
	size := 4
	if f != nil {
		name, signature, size = fmt.Sprintf("single2x%d%s", n, f.name), singleSignature, f.size
	}
	TEXT(name, NOSPLIT, signature)
	sum := func(i, r, half int) reg.VecPhysical { return Y(6*i + 2*r + half) }
	each := func(f func(i, r, half int)) {
		for i := range n {
			for r := range 3 {
				f(i, r, 0)
				f(i, r, 1)
			}
		}
	}
	out, acc, x := Load(Param("out"), GP64()), Load(Param("acc"), GP64()), Load(Param("x"), GP64())
	s, xs := Load(Param("wStride"), GP64()), Load(Param("xStride"), GP64())
	var count, next, nextStep reg.Register
	if f == nil {
		count, next, nextStep = Load(Param("count"), GP64()), Load(Param("next"), GP64()), Load(Param("nextStep"), GP64())
	}
	p, steps, mode, ahead, tail := GP64(), GP64(), GP64(), GP64(), GP64()
	w := func(r, half int) Mem {
		return [...]Mem{{Base: p}, {Base: p, Index: s, Scale: 1}, {Base: p, Index: s, Scale: 2}}[r].Offset(8 * size * half)
	}
	xrow := func(base reg.Register, i, half int) Mem {
		if i == 0 {
			return Mem{Base: base, Disp: 32 * half}
		}
		return Mem{Base: base, Index: xs, Scale: 1, Disp: 32 * half}
	}
	var buffer Mem
	if f != nil && f.size == 2 {
		buffer = AllocLocal(32)
		VXORPS(reg.Y0, reg.Y0, reg.Y0)
		VMOVUPS(reg.Y0, buffer)
	}
	Label("tile")
	Load(Param("mode"), mode)
	Load(Param("steps"), steps)
	Load(Param("w"), p)
	LEAQ(Mem{Base: x, Index: xs, Scale: uint8(n)}, ahead)
	if f == nil {
		CMPQ(count, Imm(1))
		JNE(LabelRef("ahead"))
		Load(Param("wrap"), ahead)
		Label("ahead")
	}
	TESTQ(I32(1), mode)
	JNZ(LabelRef("resume"))
	each(func(i, r, half int) { VXORPS(sum(i, r, half), sum(i, r, half), sum(i, r, half)) })
	JMP(LabelRef("begin"))
	Label("resume")
	each(func(i, r, half int) { VMOVUPS(At(acc, 64*(3*i+r)+32*half), sum(i, r, half)) })
	Label("begin")
	TESTQ(steps, steps)
	JZ(LabelRef("tail"))
	Label("step")
	for half := range 2 {
		for i := range n {
			VMOVUPS(xrow(x, i, half), Y(12+i))
		}
		for r := range 3 {
			v := Y(14 + r%2)
			if f == nil {
				VMOVUPS(w(r, half), v)
			} else {
				f.load2(w(r, half), v)
			}
			for i := range n {
				VFMADD231PS(v, Y(12+i), sum(i, r, half))
			}
		}
	}
	for i := range n {
		PREFETCHT0(xrow(ahead, i, 0))
	}
	if f == nil {
		PREFETCHT1(Mem{Base: next})
		ADDQ(nextStep, next)
	}
	ADDQ(I32(int32(16*size)), p)
	ADDQ(I32(64), x)
	ADDQ(I32(64), ahead)
	DECQ(steps)
	JNZ(LabelRef("step"))
	Label("tail")
	Load(Param("tail"), tail)
	TESTQ(tail, tail)
	JZ(LabelRef("end"))
	masks, signs := GP64(), GP64()
	LEAQ(tailMasks(), masks)
	LEAQ(tailSigns(), signs)
	SHLQ(Imm(2), tail)
	SUBQ(tail, masks)
	SUBQ(tail, signs)
	// Where there is no element, x is 0 and w is -0, so that their product changes no sum.
	for half := range 2 {
		VMOVUPS(At(masks, 64+32*half), Y(15))
		for i := range n {
			VMASKMOVPS(xrow(x, i, half), Y(15), Y(12+i))
		}
		for r := range 3 {
			if f == nil || f.size == 4 {
				VMASKMOVPS(w(r, half), Y(15), Y(14))
			} else {
				f.tail2(fmt.Sprintf("word%d%d", half, r), half, w(r, 0), tail, buffer, Y(14))
			}
			VORPS(At(signs, 64+32*half), Y(14), Y(14))
			for i := range n {
				VFMADD231PS(Y(14), Y(12+i), sum(i, r, half))
			}
		}
	}
	Label("end")
	TESTQ(I32(2), mode)
	JZ(LabelRef("fold"))
	each(func(i, r, half int) { VMOVUPS(sum(i, r, half), At(acc, 64*(3*i+r)+32*half)) })
	JMP(LabelRef("next"))
	Label("fold")
	for i := range n {
		for r := range 3 {
			VADDPS(sum(i, r, 1), sum(i, r, 0), sum(i, r, 0))
		}
	}
	a := func(r int) reg.VecPhysical { return sum(0, r, 0) }
	for r := range 3 {
		b := sum(n-1, r, 0)
		VBLENDPS(Imm(0xf0), b, a(r), Y(12))
		VPERM2F128(Imm(0x21), b, a(r), a(r))
		VADDPS(Y(12), a(r), a(r))
	}
	VBLENDPS(Imm(0xcc), a(1), a(0), Y(12))
	VSHUFPD(Imm(5), a(1), a(0), a(0))
	VADDPS(Y(12), a(0), a(0))
	VPERMILPS(Imm(0x4e), a(2), Y(12))
	VADDPS(Y(12), a(2), a(2))
	VHADDPS(a(2), a(0), a(0))
	rows, outStride := GP64(), GP64()
	Load(Param("rows"), rows)
	Load(Param("outStride"), outStride)
	for i := range n {
		if i == 1 {
			VEXTRACTF128(Imm(1), a(0), reg.X0)
		}
		done := fmt.Sprintf("stored%d", i)
		VMOVSS(reg.X0, Mem{Base: out})
		CMPQ(rows, Imm(2))
		JL(LabelRef(done))
		VEXTRACTPS(Imm(1), reg.X0, At(out, 4))
		JE(LabelRef(done))
		VEXTRACTPS(Imm(2), reg.X0, At(out, 8))
		Label(done)
		ADDQ(outStride, out)
	}
	Label("next")
	if f == nil {
		ADDQ(I32(int32(192*n)), acc)
		Load(Param("steps"), steps)
		SHLQ(Imm(6), steps)
		SUBQ(steps, x)
		LEAQ(Mem{Base: x, Index: xs, Scale: uint8(n)}, x)
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

// rows2 multiplies rows of weights by one row of x.
func rows2(f format) {
	TEXT("rows2"+f.name, NOSPLIT, "func(out *float32, w *byte, rowBytes, rows int, x *float32, k int)")
	out, w := Load(Param("out"), GP64()), Load(Param("w"), GP64())
	s, rows := Load(Param("rowBytes"), GP64()), Load(Param("rows"), GP64())
	x0, steps0 := Load(Param("x"), GP64()), Load(Param("k"), GP64())
	tail, p, x := GP64(), GP64(), GP64()
	loop := rowLoop{f, w.(reg.GPVirtual), s.(reg.GPVirtual), p, x, x0, steps0, GP64(), GP64(), GP64()}
	masks, signs := GP64(), GP64()
	var buffer Mem
	if f.size == 2 {
		buffer = AllocLocal(32)
		VXORPS(reg.Y0, reg.Y0, reg.Y0)
		VMOVUPS(reg.Y0, buffer)
	}
	MOVQ(steps0, tail)
	ANDQ(Imm(15), tail)
	SHRQ(Imm(4), steps0)
	LEAQ(tailMasks(), masks)
	LEAQ(tailSigns(), signs)
	SHLQ(Imm(2), tail)
	SUBQ(tail, masks)
	SUBQ(tail, signs)
	row := func(r, half int) Mem {
		m := [...]Mem{{Base: p}, {Base: p, Index: s, Scale: 1}}[r]
		m.Disp = 8 * f.size * half
		return m
	}
	group := func(n int, name string) {
		for r := range 2 * n {
			VXORPS(Y(r), Y(r), Y(r))
		}
		loop.run(name, func() {
			VMOVUPS(Mem{Base: x}, Y(8))
			VMOVUPS(At(x, 32), Y(9))
			for r := range n {
				for half := range 2 {
					v := Y(10 + (2*r+half)%6)
					f.load2(row(r, half), v)
					VFMADD231PS(v, Y(8+half), Y(2*r+half))
				}
			}
		})
		TESTQ(tail, tail)
		JZ(LabelRef(name + "Fold"))
		for half := range 2 {
			VMOVUPS(At(masks, 64+32*half), Y(15))
			VMASKMOVPS(At(x, 32*half), Y(15), Y(8))
			for r := range n {
				f.tail2(fmt.Sprintf("%s%d%d", name, half, r), half, row(r, 0), tail, buffer, Y(10))
				VORPS(At(signs, 64+32*half), Y(10), Y(10))
				VFMADD231PS(Y(10), Y(8), Y(2*r+half))
			}
		}
		Label(name + "Fold")
		for r := range n {
			VADDPS(Y(2*r+1), Y(2*r), Y(2*r))
		}
	}
	JMP(LabelRef("rest"))
	Label("many")
	group(lockstep, "many")
	foldY(Y(0), Y(1))
	foldY(Y(2), Y(3))
	VUNPCKLPS(reg.X2, reg.X0, reg.X0)
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
	foldY(Y(0), Y(1))
	VMOVSS(reg.X0, Mem{Base: out})
	ADDQ(I32(4), out)
	ADDQ(s, w)
	DECQ(rows)
	JNZ(LabelRef("one"))
	Label("done")
	VZEROUPPER()
	RET()
}

// tail2 sets v to half a tail of weights, which begins at m and has tail/4 elements. The others
// become 0. There are no masks for loads of 16-bit words, so that they pass through the buffer, which
// is 0 behind the tail.
func (f format) tail2(name string, half int, m Mem, tail reg.Register, buffer Mem, v reg.VecPhysical) {
	if f.size == 4 {
		m.Disp += 32 * half
		VMASKMOVPS(m, Y(15), v)
		return
	}
	src, i, end, word := GP64(), GP64(), GP64(), GP32()
	LEAQ(m, src)
	XORQ(i, i)
	Label(name)
	MOVWLZX(Mem{Base: src, Index: i, Scale: 2}, word)
	MOVW(word.As16(), buffer.Idx(i, 2))
	INCQ(i)
	LEAQ(Mem{Base: i, Index: i, Scale: 1}, end)
	ADDQ(end, end)
	CMPQ(end, tail)
	JL(LabelRef(name))
	f.load2(buffer.Offset(16*half), v)
}

// convert2 has the conversions of 16 values at a time.
func convert2() {
	for _, f := range formats[1:] {
		TEXT("widen2"+f.name, NOSPLIT, "func(dst *float32, src *byte, count int)")
		dst, src, n := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("count"), GP64())
		Label("step")
		for half := range 2 {
			f.load2(At(src, 16*half), Y(half))
			VMOVUPS(Y(half), At(dst, 32*half))
		}
		ADDQ(I32(32), src)
		ADDQ(I32(64), dst)
		SUBQ(Imm(16), n)
		JNZ(LabelRef("step"))
		VZEROUPPER()
		RET()
	}
	for _, f := range formats[1:] {
		TEXT("narrow2"+f.name, NOSPLIT, "func(dst *byte, src *float32, count int)")
		dst, src, n := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("count"), GP64())
		words := func(word uint32) Mem { return Table(fmt.Sprintf("dwords%x", word), Repeat(Dwords(word), 8)) }
		if f.name == "F16" {
			VMOVUPS(words(0x80000000), Y(4))
			VMOVUPS(words(0x7fc00000), Y(5))
		} else {
			VMOVUPS(words(0x7fff), Y(4))
			VMOVUPS(words(1), Y(5))
			VMOVUPS(words(0x400000), Y(6))
		}
		Label("step")
		for half := range 2 {
			a, b, nan := Y(half), Y(2+half), Y(7)
			VMOVUPS(At(src, 32*half), a)
			VCMPPS(Imm(3), a, a, nan)
			if f.name == "F16" {
				VANDPS(Y(4), a, b)
				VORPS(Y(5), b, b)
				VBLENDVPS(nan, b, a, a)
				VCVTPS2PH(Imm(0), a, At(dst, 16*half))
				continue
			}
			VPSRLD(Imm(16), a, b)
			VPAND(Y(5), b, b)
			VPADDD(Y(4), b, b)
			VPADDD(a, b, b)
			VORPS(Y(6), a, a)
			VBLENDVPS(nan, a, b, b)
			VPSRLD(Imm(16), b, b)
		}
		if f.name == "BF16" {
			VPACKUSDW(Y(3), Y(2), Y(2))
			VPERMQ(Imm(0xd8), Y(2), Y(2))
			VMOVUPS(Y(2), Mem{Base: dst})
		}
		ADDQ(I32(64), src)
		ADDQ(I32(32), dst)
		SUBQ(Imm(16), n)
		JNZ(LabelRef("step"))
		VZEROUPPER()
		RET()
	}
}
