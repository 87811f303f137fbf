package main

import (
	. "github.com/fucina-go/fucina/kernels/cpu/_asm/gen"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const (
	leastBits = (127 - 119) << 23 // 2^-119
	mostBits  = 0x7f7fffff        // the largest finite number
	f127      = 0x42fe0000
)

// reduce sets word r of X0 to the words of v[r], combined by op. It changes v, Y1 and t.
func reduce(op func(...Op), v [4]reg.VecPhysical, t reg.VecPhysical) {
	combine(op, v, t)
	VEXTRACTI64X4(Imm(1), v[0], reg.Y1)
	op(reg.Y1, v[0].AsY(), reg.Y1)
	VEXTRACTI32X4(Imm(1), reg.Y1, reg.X0)
	op(reg.X0, reg.X1, reg.X0)
}

// combine sets word r of each lane of v[0] to the words of that lane of v[r], combined by op. It
// changes v and t.
func combine(op func(...Op), v [4]reg.VecPhysical, t reg.VecPhysical) {
	pair := func(a, b reg.VecPhysical, wide bool) {
		if wide {
			VPUNPCKHQDQ(b, a, t)
			VPUNPCKLQDQ(b, a, a)
		} else {
			VPUNPCKHDQ(b, a, t)
			VPUNPCKLDQ(b, a, a)
		}
		op(t, a, a)
	}
	pair(v[0], v[1], false)
	pair(v[2], v[3], false)
	pair(v[0], v[2], true)
}

func addWords(o ...Op) { VPADDD(o...) }
func maxWords(o ...Op) { VPMAXUD(o...) }

// quantizeSuper quantizes 256 activations at a time.
func quantizeSuper() {
	TEXT("quantizeSuper512", NOSPLIT, "func(dst *byte, stride int, x *float32, stretches int, order *byte)")
	dst, stride := Load(Param("dst"), GP64()), Load(Param("stride"), GP64())
	src, n, order := Load(Param("x"), GP64()), Load(Param("stretches"), GP64()), Load(Param("order"), GP64())
	c127, abs, one := reg.X31, Z(30), Z(29)
	t := GP32()
	MOVL(U32(f127), t)
	VMOVD(t, c127)
	Broadcast(0x7fffffff, abs)
	Broadcast(0x00010001, one)
	Label("stretch")
	x := func(i int) reg.VecPhysical { return Z(8 + i) }
	top := [2]reg.VecPhysical{Z(2), Z(3)}
	for i := range 16 {
		VMOVUPS(At(src, 64*i), x(i))
		if i < 2 {
			VPANDD(abs, x(i), top[i])
			continue
		}
		VPANDD(abs, x(i), Z(4))
		VPMAXUD(Z(4), top[i%2], top[i%2])
	}
	VPMAXUD(Z(3), Z(2), Z(2))
	VEXTRACTI64X4(Imm(1), Z(2), reg.Y3)
	VPMAXUD(reg.Y3, reg.Y2, reg.Y2)
	VEXTRACTI128(Imm(1), reg.Y2, reg.X3)
	VPMAXUD(reg.X3, reg.X2, reg.X2)
	VPSHUFD(Imm(0x4e), reg.X2, reg.X3)
	VPMAXUD(reg.X3, reg.X2, reg.X2)
	VPSHUFD(Imm(0xb1), reg.X2, reg.X3)
	VPMAXUD(reg.X3, reg.X2, reg.X2)
	VDIVSS(c127, reg.X2, reg.X3)
	VDIVSS(reg.X2, c127, reg.X4)
	VMOVD(reg.X2, t)
	CMPL(t, U32(leastBits))
	JB(LabelRef("small"))
	VMOVSS(reg.X3, At(dst, actScale))
	CMPL(t, U32(mostBits))
	JA(LabelRef("zeros"))
	inv, at32 := Z(5), GP64()
	VBROADCASTSS(reg.X4, inv)
	for i := range 16 {
		v := x(i)
		VMULPS(inv, v, v)
		VCVTPS2DQ(v, v)
		if i%2 == 0 {
			MOVBQZX(At(order, i/2), at32)
			SHLQ(Imm(5), at32)
		}
		VPMOVSDB(v, Mem{Base: dst, Index: at32, Scale: 1, Disp: 16 * (i % 2)})
	}
	for i := range 4 {
		reduce(addWords, [4]reg.VecPhysical{x(4 * i), x(4*i + 1), x(4*i + 2), x(4*i + 3)}, Z(7))
		VMOVDQA32(reg.X0, []reg.VecPhysical{reg.X2, reg.X3, reg.X4, reg.X6}[i])
	}
	VPACKSSDW(reg.X3, reg.X2, reg.X2)
	VPACKSSDW(reg.X6, reg.X4, reg.X4)
	VMOVDQU(reg.X2, At(dst, actSums16))
	VMOVDQU(reg.X4, At(dst, actSums16+16))
	VMOVDQA32(one.AsX(), reg.X3)
	VPMADDWD(reg.X3, reg.X2, reg.X2)
	VPMADDWD(reg.X3, reg.X4, reg.X4)
	VPACKSSDW(reg.X4, reg.X2, reg.X2)
	VMOVDQU(reg.X2, At(dst, actSums32))
	JMP(LabelRef("next"))
	Label("small")
	MOVL(U32(0), At(dst, actScale))
	Label("zeros")
	VPXORD(Z(0), Z(0), Z(0))
	for i := range 4 {
		VMOVDQU32(Z(0), At(dst, 64*i))
	}
	VMOVDQU(reg.Y0, At(dst, actSums16))
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

// quantizeSmall quantizes 8 times 32 activations at a time.
func quantizeSmall() {
	TEXT("quantizeSmall512", NOSPLIT, "func(dst *byte, stride int, x *float32, stretches int)")
	factors, masks := AllocLocal(32), AllocLocal(32)
	dst, stride := Load(Param("dst"), GP64()), Load(Param("stride"), GP64())
	src, n := Load(Param("x"), GP64()), Load(Param("stretches"), GP64())
	abs, c127, least, most := Z(31), Z(30), Z(29), Z(28)
	Broadcast(0x7fffffff, abs)
	Broadcast(f127, c127)
	Broadcast(leastBits, least)
	Broadcast(mostBits, most)
	Label("stretch")
	v := func(i int) reg.VecPhysical { return Z(8 + i) }
	four := func(op func(...Op), h int) {
		reduce(op, [4]reg.VecPhysical{v(4 * h), v(4*h + 1), v(4*h + 2), v(4*h + 3)}, Z(7))
	}
	for i := range 8 {
		VMOVDQU32(At(src, 128*i), v(i))
		VMOVDQU32(At(src, 128*i+64), Z(4))
		VPANDD(abs, v(i), v(i))
		VPANDD(abs, Z(4), Z(4))
		VPMAXUD(Z(4), v(i), v(i))
	}
	four(maxWords, 0)
	VMOVDQA32(reg.X0, reg.X2)
	four(maxWords, 1)
	top, d := reg.Y2, reg.Y3
	VINSERTI128(Imm(1), reg.X0, top, top)
	VPCMPUD(Imm(5), least.AsY(), top, reg.K1)        // not less
	VPCMPUD(Imm(2), most.AsY(), top, reg.K1, reg.K2) // not greater
	VDIVPS_Z(c127.AsY(), top, reg.K1, d)
	VMOVUPS(d, At(dst, actScales))
	VDIVPS_Z(top, c127.AsY(), reg.K2, d)
	VMOVUPS(d, factors)
	VPMOVM2D(reg.K2, d)
	VMOVDQU(d, masks)
	for i := range 8 {
		a, b := v(i), Z(4)
		VMOVUPS(At(src, 128*i), a)
		VMOVUPS(At(src, 128*i+64), b)
		for h, x := range []reg.VecPhysical{a, b} {
			VMULPS_BCST(factors.Offset(4*i), x, x)
			VCVTPS2DQ(x, x)
			VPANDD_BCST(masks.Offset(4*i), x, x)
			VPMOVSDB(x, At(dst, 32*i+16*h))
		}
		VPADDD(b, a, a)
	}
	four(addWords, 0)
	VMOVDQA32(reg.X0, reg.X2)
	four(addWords, 1)
	VPACKSSDW(reg.X0, reg.X2, reg.X2)
	VMOVDQU(reg.X2, At(dst, actSums))
	VPXOR(reg.X2, reg.X2, reg.X2)
	VMOVDQU(reg.X2, At(dst, actSums+16))
	ADDQ(stride, dst)
	ADDQ(I32(1024), src)
	DECQ(n)
	JNZ(LabelRef("stretch"))
	VZEROUPPER()
	RET()
}
