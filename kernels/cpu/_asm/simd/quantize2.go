package main

import (
	. "github.com/fucina-go/fucina/kernels/cpu/_asm/gen"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// all2 returns a table of 8 equal words.
func all2(name string, w uint32) Mem { return Table(name, Repeat(Dwords(w), 8)) }

// codes2 sets q to the codes of the 32 activations at m, which are multiplied by inv. It changes
// registers from q on, four in all.
func codes2(m Mem, inv, q reg.VecPhysical) {
	v := func(i int) reg.VecPhysical { return ymm(int(q.PhysicalIndex()) + i) }
	for i := range 4 {
		VMULPS(m.Offset(32*i), inv, v(i))
		VCVTPS2DQ(v(i), v(i))
	}
	VPACKSSDW(v(1), v(0), v(0))
	VPACKSSDW(v(3), v(2), v(2))
	VPACKSSWB(v(2), v(0), v(0))
	// Each lane has four codes of each vector.
	VMOVDQU(Table("unpacked2", Dwords(0, 4, 1, 5, 2, 6, 3, 7)), v(1))
	VPERMD(v(0), v(1), v(0))
}

// sums2 sets word i of the lanes of v[0] to the sum of the codes in that lane of v[i]. It changes v.
func sums2(v [8]reg.VecPhysical) {
	VMOVDQU(Table("oneBytes2", Repeat([]byte{1}, 32)), reg.Y0)
	for _, v := range v {
		VPMADDUBSW(v, reg.Y0, v)
	}
	for step := 1; step < 8; step *= 2 {
		for i := 0; i < 8; i += 2 * step {
			VPHADDW(v[i+step], v[i], v[i])
		}
	}
}

// topOf sets v to the bits of the larger magnitudes of the 32 activations at m. It changes t.
func topOf(m Mem, abs, v, t reg.VecPhysical) {
	VPAND(m, abs, v)
	for i := 1; i < 4; i++ {
		VPAND(m.Offset(32*i), abs, t)
		VPMAXUD(t, v, v)
	}
}

var upper8 = [8]reg.VecPhysical{ymm(8), ymm(9), ymm(10), ymm(11), ymm(12), ymm(13), ymm(14), ymm(15)}

// quantizeSuper2 is quantizeSuper with AVX2.
func quantizeSuper2() {
	TEXT("quantizeSuperAVX2", NOSPLIT, "func(dst *byte, stride int, x *float32, stretches int, order *byte)")
	dst, stride := Load(Param("dst"), GP64()), Load(Param("stride"), GP64())
	src, n, order := Load(Param("x"), GP64()), Load(Param("stretches"), GP64()), Load(Param("order"), GP64())
	t := GP32()
	Label("stretch")
	abs := reg.Y7
	VMOVDQU(all2("abs2", 0x7fffffff), abs)
	topOf(At(src, 0), abs, reg.Y2, reg.Y0)
	topOf(At(src, 128), abs, reg.Y3, reg.Y1)
	for i := 2; i < 8; i += 2 {
		topOf(At(src, 128*i), abs, reg.Y4, reg.Y0)
		topOf(At(src, 128*i+128), abs, reg.Y5, reg.Y1)
		VPMAXUD(reg.Y4, reg.Y2, reg.Y2)
		VPMAXUD(reg.Y5, reg.Y3, reg.Y3)
	}
	VPMAXUD(reg.Y3, reg.Y2, reg.Y2)
	VEXTRACTI128(Imm(1), reg.Y2, reg.X3)
	VPMAXUD(reg.X3, reg.X2, reg.X2)
	VPSHUFD(Imm(0x4e), reg.X2, reg.X3)
	VPMAXUD(reg.X3, reg.X2, reg.X2)
	VPSHUFD(Imm(0xb1), reg.X2, reg.X3)
	VPMAXUD(reg.X3, reg.X2, reg.X2)
	VMOVD(reg.X2, t)
	CMPL(t, U32(leastBits))
	JB(LabelRef("small"))
	VMOVSS(all2("f127", f127), reg.X4)
	VDIVSS(reg.X4, reg.X2, reg.X3)
	VMOVSS(reg.X3, At(dst, actScale))
	CMPL(t, U32(mostBits))
	JA(LabelRef("zeros"))
	VDIVSS(reg.X2, reg.X4, reg.X4)
	inv, at32 := reg.Y6, GP64()
	VBROADCASTSS(reg.X4, inv)
	for i, v := range upper8 {
		codes2(At(src, 128*i), inv, reg.Y0)
		VMOVDQA(reg.Y0, v)
		MOVBQZX(At(order, i), at32)
		SHLQ(Imm(5), at32)
		VMOVDQU(v, Mem{Base: dst, Index: at32, Scale: 1})
	}
	sums2(upper8)
	// The sums of the first 16 codes of the groups, and of the others.
	first, second := reg.X8, reg.X1
	VEXTRACTI128(Imm(1), reg.Y8, second)
	VPUNPCKLWD(second, first, reg.X2)
	VPUNPCKHWD(second, first, reg.X3)
	VPADDW(second, first, reg.X4)
	VMOVDQU(reg.X2, At(dst, actSums16))
	VMOVDQU(reg.X3, At(dst, actSums16+16))
	VMOVDQU(reg.X4, At(dst, actSums32))
	JMP(LabelRef("next"))
	Label("small")
	MOVL(U32(0), At(dst, actScale))
	Label("zeros")
	VPXOR(reg.Y0, reg.Y0, reg.Y0)
	for i := range 9 {
		VMOVDQU(reg.Y0, At(dst, 32*i))
	}
	VMOVDQU(reg.X0, At(dst, actSums32))
	Label("next")
	MOVL(U32(0), At(dst, actScale+4))
	MOVQ(I32(0), At(dst, actScale+8))
	ADDQ(stride, dst)
	ADDQ(I32(1024), src)
	DECQ(n)
	JNZ(LabelRef("stretch"))
	VZEROUPPER()
	RET()
}

// quantizeSmall2 is quantizeSmall with AVX2.
func quantizeSmall2() {
	TEXT("quantizeSmallAVX2", NOSPLIT, "func(dst *byte, stride int, x *float32, stretches int)")
	factors, masks := AllocLocal(32), AllocLocal(32)
	dst, stride := Load(Param("dst"), GP64()), Load(Param("stride"), GP64())
	src, n := Load(Param("x"), GP64()), Load(Param("stretches"), GP64())
	Label("stretch")
	abs, top, t := reg.Y7, reg.Y8, reg.Y1
	VMOVDQU(all2("abs2", 0x7fffffff), abs)
	v := upper8
	for i, v := range v {
		topOf(At(src, 128*i), abs, v, t)
	}
	pair := func(low, high func(...Op), a, b reg.VecPhysical) {
		high(b, a, t)
		low(b, a, a)
		VPMAXUD(t, a, a)
	}
	for i := 0; i < 8; i += 2 {
		pair(func(o ...Op) { VPUNPCKLDQ(o...) }, func(o ...Op) { VPUNPCKHDQ(o...) }, v[i], v[i+1])
	}
	for i := 0; i < 8; i += 4 {
		pair(func(o ...Op) { VPUNPCKLQDQ(o...) }, func(o ...Op) { VPUNPCKHQDQ(o...) }, v[i], v[i+2])
	}
	VPERM2I128(Imm(0x31), v[4], v[0], t)
	VPERM2I128(Imm(0x20), v[4], v[0], top)
	VPMAXUD(t, top, top)
	// The bits have no sign, so that they compare as integers.
	enough, finite, d, c127 := reg.Y2, reg.Y3, reg.Y4, reg.Y5
	VPCMPGTD(all2("belowLeast2", leastBits-1), top, enough)
	VPCMPGTD(all2("most2", mostBits), top, finite)
	VPANDN(enough, finite, finite)
	VMOVUPS(all2("f127", f127), c127)
	VDIVPS(c127, top, d)
	VANDPS(enough, d, d)
	VMOVUPS(d, At(dst, actScales))
	VDIVPS(top, c127, d)
	VMOVUPS(d, factors)
	VMOVDQU(finite, masks)
	for i, v := range upper8 {
		VBROADCASTSS(factors.Offset(4*i), reg.Y6)
		codes2(At(src, 128*i), reg.Y6, reg.Y0)
		VPBROADCASTD(masks.Offset(4*i), v)
		VPAND(v, reg.Y0, v)
		VMOVDQU(v, At(dst, 32*i))
	}
	sums2(upper8)
	VEXTRACTI128(Imm(1), reg.Y8, reg.X1)
	VPADDW(reg.X1, reg.X8, reg.X1)
	VPXOR(reg.X2, reg.X2, reg.X2)
	VMOVDQU(reg.X1, At(dst, actSums))
	VMOVDQU(reg.X2, At(dst, actSums+16))
	ADDQ(stride, dst)
	ADDQ(I32(1024), src)
	DECQ(n)
	JNZ(LabelRef("stretch"))
	VZEROUPPER()
	RET()
}
