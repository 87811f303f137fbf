// Command _asm generates the AVX2 encoders of package quant. The comments of the stubs in
// encode_decl_amd64.go define the results.
package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// roundNearest is the immediate of VCVTPS2PH for rounding to the nearest, ties to even,
// independently of MXCSR.
const roundNearest = 0

// halfExponent masks the exponent of a binary16. It is all ones in an infinity or a NaN.
const halfExponent = 0x7c00

func main() {
	ConstraintExpr("amd64,!noasm")
	encodeQ4_0()
	encodeQ4_1()
	Generate()
}

// loop has the registers that both routines keep across blocks.
type loop struct {
	dst, src, blocks, done GPVirtual
	order                  VecVirtual // permutation that undoes the order of two packs within lanes
	last                   VecVirtual // the last code, in bytes
	one, zero              VecVirtual
}

// begin loads the arguments of func(dst []byte, src []float32) (blocks int).
func begin(name string) *loop {
	TEXT(name, NOSPLIT, "func(dst []byte, src []float32) (blocks int)")
	l := &loop{
		dst: GP64(), src: GP64(), blocks: GP64(), done: GP64(),
		order: YMM(), last: XMM(), one: XMM(), zero: XMM(),
	}
	Load(Param("dst").Base(), l.dst)
	Load(Param("src").Base(), l.src)
	Load(Param("src").Len(), l.blocks)
	SHRQ(Imm(5), l.blocks)
	XORL(l.done.As32(), l.done.As32())
	VMOVDQU(dwords("laneOrder", 0, 4, 1, 5, 2, 6, 3, 7), l.order)
	VMOVDQU(dwords("lastCode", 0x0f0f0f0f, 0x0f0f0f0f, 0x0f0f0f0f, 0x0f0f0f0f), l.last)
	VMOVSS(float("one", 1), l.one)
	VXORPS(l.zero, l.zero, l.zero)
	TESTQ(l.blocks, l.blocks)
	JZ(LabelRef("done"))
	Label("block")
	return l
}

// end advances by one block of size bytes, and ends the routine after the last one.
func (l *loop) end(size uint64) {
	ADDQ(Imm(size), l.dst)
	SUBQ(I8(-128), l.src)
	INCQ(l.done)
	CMPQ(l.done, l.blocks)
	JLT(LabelRef("block"))
	Label("done")
	Store(l.done, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

// values loads the 32 values of a block.
func (l *loop) values() (x [4]VecVirtual) {
	for i := range x {
		x[i] = YMM()
		VMOVUPS(Mem{Base: l.src, Disp: 32 * i}, x[i])
	}
	return x
}

// first loads the first value of a block whose element of equal is set.
func (l *loop) first(equal [4]VecVirtual) VecVirtual {
	at, v := GP64(), XMM()
	VPACKSSDW(equal[1], equal[0], equal[0])
	VPACKSSDW(equal[3], equal[2], equal[2])
	VPACKSSWB(equal[2], equal[0], equal[0])
	VPERMD(equal[0], l.order, equal[0])
	VPMOVMSKB(equal[0], at.As32())
	TZCNTL(at.As32(), at.As32())
	VMOVSS(Mem{Base: l.src, Index: at, Scale: 4}, v)
	return v
}

// half returns v as binary16. If the result is not finite, the code leaves the loop.
func half(v VecVirtual) GPVirtual {
	x, h, exponent := XMM(), GP32(), GP32()
	VCVTPS2PH(Imm(roundNearest), v, x)
	VMOVD(x, h)
	MOVL(h, exponent)
	ANDL(U32(halfExponent), exponent)
	CMPL(exponent, U32(halfExponent))
	JEQ(LabelRef("done"))
	return h
}

// nibbles stores the integer parts of x as codes: code j in the low half of byte j, and code
// j+16 in the high half. An integer part of 16 becomes 15. A value that does not fit an
// int32 becomes the least int32 and packs to 0, which is the code if the inverse of the
// scale is infinite.
func (l *loop) nibbles(x [4]VecVirtual, at int) {
	for _, v := range x {
		VCVTTPS2DQ(v, v)
	}
	high := XMM()
	VPACKSSDW(x[1], x[0], x[0])
	VPACKSSDW(x[3], x[2], x[2])
	VPACKUSWB(x[2], x[0], x[0])
	VPERMD(x[0], l.order, x[0])
	VEXTRACTI128(Imm(1), x[0], high)
	low := x[0].AsX()
	VPMINUB(l.last, low, low)
	VPMINUB(l.last, high, high)
	VPSLLW(Imm(4), high, high)
	VPOR(high, low, low)
	VMOVDQU(low, Mem{Base: l.dst, Disp: at})
}

// reduce sets every lane of v to the result of op over all lanes.
func reduce(v VecVirtual, op func(a, b, dst Op)) {
	other := YMM()
	VPERM2F128(Imm(1), v, v, other)
	op(other, v, v)
	VSHUFPS(Imm(0x4e), v, v, other)
	op(other, v, v)
	VSHUFPS(Imm(0xb1), v, v, other)
	op(other, v, v)
}

func encodeQ4_0() {
	l := begin("encodeQ4_0AVX2")
	x := l.values()
	magnitude := YMM()
	VPCMPEQD(magnitude, magnitude, magnitude)
	VPSRLD(Imm(1), magnitude, magnitude)
	var abs [4]VecVirtual
	for i := range abs {
		abs[i] = YMM()
		VPAND(magnitude, x[i], abs[i])
	}
	// Magnitudes have the same order as their encodings, with NaNs last.
	amax, other := YMM(), YMM()
	VPMAXUD(abs[1], abs[0], amax)
	VPMAXUD(abs[3], abs[2], other)
	VPMAXUD(other, amax, amax)
	reduce(amax, func(a, b, dst Op) { VPMAXUD(a, b, dst) })
	for _, v := range abs {
		VPCMPEQD(amax, v, v)
	}
	scale := l.first(abs)
	VADDSS(l.zero, scale, scale) // makes a negative zero positive
	VMULSS(float("minusEighth", -0.125), scale, scale)
	MOVW(half(scale).As16(), Mem{Base: l.dst})
	VUCOMISS(l.zero, scale)
	JEQ(LabelRef("zero"))

	inv, factor, offset := XMM(), YMM(), YMM()
	VDIVSS(scale, l.one, inv)
	VBROADCASTSS(inv, factor)
	VBROADCASTSS(float("offset", 8.5), offset)
	for _, v := range x {
		VMULPS(factor, v, v)
		VADDPS(offset, v, v)
	}
	l.nibbles(x, 2)
	JMP(LabelRef("next"))

	Label("zero")
	codes := XMM()
	VMOVDQU(dwords("eights", 0x88888888, 0x88888888, 0x88888888, 0x88888888), codes)
	VMOVDQU(codes, Mem{Base: l.dst, Disp: 2})

	Label("next")
	l.end(18)
}

func encodeQ4_1() {
	l := begin("encodeQ4_1AVX2")
	x := l.values()
	// A NaN may be lost in minima and maxima.
	nan, other := YMM(), YMM()
	found := GP32()
	VCMPPS(Imm(3), x[1], x[0], nan)
	VCMPPS(Imm(3), x[3], x[2], other)
	VORPS(other, nan, nan)
	VMOVMSKPS(nan, found)
	TESTL(found, found)
	JNZ(LabelRef("done"))

	lo, hi := YMM(), YMM()
	VMINPS(x[1], x[0], lo)
	VMINPS(x[3], x[2], other)
	VMINPS(other, lo, lo)
	reduce(lo, func(a, b, dst Op) { VMINPS(a, b, dst) })
	VMAXPS(x[1], x[0], hi)
	VMAXPS(x[3], x[2], other)
	VMAXPS(other, hi, hi)
	reduce(hi, func(a, b, dst Op) { VMAXPS(a, b, dst) })
	var equal [4]VecVirtual
	for i := range equal {
		equal[i] = YMM()
		VCMPPS(Imm(0), lo, x[i], equal[i])
	}
	least := l.first(equal) // lo may be a zero with the sign of another one
	scale := XMM()
	VSUBSS(least, hi.AsX(), scale)
	VADDSS(l.zero, scale, scale) // makes a negative zero positive
	VDIVSS(float("fifteen", 15), scale, scale)
	d, m := half(scale), half(least)
	MOVW(d.As16(), Mem{Base: l.dst})
	MOVW(m.As16(), Mem{Base: l.dst, Disp: 2})

	inv, factor, offset := XMM(), YMM(), YMM()
	VDIVSS(scale, l.one, inv)
	VBROADCASTSS(inv, factor)
	VBROADCASTSS(float("half", 0.5), offset)
	for _, v := range x {
		VSUBPS(lo, v, v)
		VMULPS(factor, v, v)
		VADDPS(offset, v, v)
	}
	l.nibbles(x, 4)
	l.end(20)
}

// known has the constants that are already defined.
var known = map[string]Mem{}

func dwords(name string, values ...uint32) Mem {
	m, ok := known[name]
	if !ok {
		m = GLOBL(name, RODATA|NOPTR)
		for i, v := range values {
			DATA(4*i, U32(v))
		}
		known[name] = m
	}
	return m
}

func float(name string, v float32) Mem { return dwords(name, math.Float32bits(v)) }
