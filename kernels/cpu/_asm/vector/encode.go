package main

import (
	. "github.com/fucina-go/fucina/kernels/cpu/_asm/gen"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// encodeQ80 encodes blocks of 32 elements.
func encodeQ80() {
	v := isa{"AVX2", 8}
	TEXT("encodeQ80AVX2", NOSPLIT, "func(dst *byte, x *float32, blocks int) int")
	dst, x, left := Load(Param("dst"), GP64()), Load(Param("x"), GP64()), Load(Param("blocks"), GP64())
	magnitude, half, one, sign, order := v.r(11), v.r(12), v.r(13), v.r(14), v.r(15)
	VMOVUPS(words("magnitude", 1<<31-1), magnitude)
	VMOVUPS(constant("half", 0.5), half)
	VMOVUPS(constant("one", 1), one)
	VMOVUPS(words("sign", 1<<31), sign)
	VMOVUPS(Table("packed", Dwords(0, 4, 1, 5, 2, 6, 3, 7)), order)
	t := GP32()
	Label("block")
	for i := range 4 {
		VMOVUPS(At(x, 32*i), v.r(i))
		VPAND(magnitude, v.r(i), v.r(4+i))
	}
	// The bits of magnitudes are in their order, and those of a NaN are the largest.
	VPMAXSD(reg.Y5, reg.Y4, reg.Y4)
	VPMAXSD(reg.Y7, reg.Y6, reg.Y6)
	VPMAXSD(reg.Y6, reg.Y4, reg.Y4)
	VEXTRACTI128(Imm(1), reg.Y4, reg.X5)
	VPMAXSD(reg.X5, reg.X4, reg.X4)
	VPSHUFD(Imm(0x4e), reg.X4, reg.X5)
	VPMAXSD(reg.X5, reg.X4, reg.X4)
	VPSHUFD(Imm(0xb1), reg.X4, reg.X5)
	VPMAXSD(reg.X5, reg.X4, reg.X4)
	VMOVD(reg.X4, t)
	CMPL(t, U32(0x4afde040)) // 65504*127
	JAE(LabelRef("done"))
	VDIVSS(constant("codes", 127), reg.X4, reg.X5)
	VDIVSS(reg.X5, reg.X13, reg.X6)
	VMOVD(reg.X6, t)
	CMPL(t, U32(0x7f800000))
	JNE(LabelRef("finite"))
	VXORPS(reg.X6, reg.X6, reg.X6)
	Label("finite")
	VCVTPS2PH(Imm(0), reg.X5, reg.X5)
	VMOVD(reg.X5, t)
	MOVW(t.As16(), At(dst, 0))
	VBROADCASTSS(reg.X6, reg.Y6)
	for i := range 4 {
		q, rest := v.r(i), v.r(5)
		whole := reg.Y7
		VMULPS(reg.Y6, q, q)
		VROUNDPS(Imm(3), q, whole)
		VSUBPS(whole, q, rest)
		VANDPS(magnitude, rest, rest)
		VCMPPS(Imm(13), half, rest, rest) // the rest is at least a half
		VANDPS(sign, q, q)
		VORPS(one, q, q)
		VANDPS(rest, q, q)
		VADDPS(whole, q, q)
		VCVTTPS2DQ(q, q)
	}
	VPACKSSDW(reg.Y1, reg.Y0, reg.Y0)
	VPACKSSDW(reg.Y3, reg.Y2, reg.Y2)
	VPACKSSWB(reg.Y2, reg.Y0, reg.Y0)
	VPERMD(reg.Y0, order, reg.Y0)
	VMOVDQU(reg.Y0, At(dst, 2))
	ADDQ(I32(128), x)
	ADDQ(Imm(34), dst)
	DECQ(left)
	JNZ(LabelRef("block"))
	Label("done")
	n := Load(Param("blocks"), GP64())
	SUBQ(left, n)
	VZEROUPPER()
	Store(n, ReturnIndex(0))
	RET()
}
