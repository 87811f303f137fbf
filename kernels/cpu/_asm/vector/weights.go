package main

import (
	. "github.com/fucina-go/fucina/kernels/cpu/_asm/gen"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// weightExp computes weights from differences of scores, which are not positive. Its constants and
// temporaries are registers from 3 on.
type weightExp struct{ isa }

// together is the number of registers whose weights are computed side by side.
func (w weightExp) together() int {
	if w.wide() {
		return 4
	}
	return 2
}

// x is a register of differences, which become weights.
func (w weightExp) x(i int) reg.VecPhysical { return w.r(3 + i) }

// least and round are constants in registers.
func (w weightExp) least() reg.VecPhysical { return w.r(15) }
func (w weightExp) round() reg.VecPhysical { return w.r(14 + 16*(w.lanes/16)) }

// constant returns a constant, which is in register i of AVX-512.
func (w weightExp) constant(i int) Op {
	if w.wide() {
		return Z(i)
	}
	return w.table(i)
}

// table returns the constant of register i: 19 to 24 have the terms of the polynomial.
func (w weightExp) table(i int) Mem {
	switch i {
	case 16:
		return constant("log2e", 1.44269504)
	case 17:
		return constant("ln2Hi", 0.693359375)
	case 18:
		return constant("ln2Lo", -2.12194440e-4)
	case 25:
		return constant("one", 1)
	}
	return constant(expNames[i-19], expTerms[i-19])
}

func (w weightExp) loadConstants() {
	VMOVUPS(constant("weightLeast", -87), w.least())
	VMOVUPS(constant("round", 0x1.8p23), w.round())
	if w.wide() {
		for i := 16; i <= 25; i++ {
			VMOVUPS(w.table(i), Z(i))
		}
	}
}

// exp makes n differences weights. Those below the least are 0; they are computed as the least,
// because results that are not normal numbers cost a hundred times as much.
func (w weightExp) exp(n int) {
	each := func(f func(x, t, p, m reg.VecPhysical, i int)) {
		for i := range n {
			g := w.together()
			// t and p are temporaries, and m is the mask of AVX2.
			f(w.x(i), w.r(3+g+i), w.r(3+2*g+i), w.r(9+i), i)
		}
	}
	masks := []reg.Register{reg.K4, reg.K5, reg.K6, reg.K7}
	each(func(x, t, p, m reg.VecPhysical, i int) {
		const notLess = 5 // or NaN
		if w.wide() {
			VCMPPS(Imm(notLess), w.least(), x, masks[i])
		} else {
			VCMPPS(Imm(notLess), w.least(), x, m)
		}
	})
	each(func(x, t, p, m reg.VecPhysical, i int) { VMAXPS(x, w.least(), x) })
	each(func(x, t, p, m reg.VecPhysical, i int) {
		VMOVUPS(w.constant(16), t)
		VFMADD213PS(w.round(), x, t)
	})
	if w.wide() {
		each(func(x, t, p, m reg.VecPhysical, i int) { VSUBPS(w.round(), t, t) })
	}
	integer := func(i int) reg.VecPhysical { return w.r(11 + i) }
	if !w.wide() {
		each(func(x, t, p, m reg.VecPhysical, i int) {
			// The low bits of t are an integer, which is shifted to the exponent.
			VPSLLD(Imm(23), t, integer(i))
			VSUBPS(w.round(), t, t)
		})
	}
	each(func(x, t, p, m reg.VecPhysical, i int) { VFNMADD231PS(w.constant(17), t, x) })
	each(func(x, t, p, m reg.VecPhysical, i int) { VFNMADD231PS(w.constant(18), t, x) })
	each(func(x, t, p, m reg.VecPhysical, i int) { VMOVUPS(w.constant(19), p) })
	for c := 20; c <= 24; c++ {
		each(func(x, t, p, m reg.VecPhysical, i int) { VFMADD213PS(w.constant(c), x, p) })
	}
	if w.wide() {
		square := func(i int) reg.VecPhysical { return Z(26 + i) }
		each(func(x, t, p, m reg.VecPhysical, i int) { VMULPS(x, x, square(i)) })
		each(func(x, t, p, m reg.VecPhysical, i int) { VFMADD213PS(x, square(i), p) })
		each(func(x, t, p, m reg.VecPhysical, i int) { VADDPS(w.constant(25), p, p) })
		each(func(x, t, p, m reg.VecPhysical, i int) { VSCALEFPS_Z(t, p, masks[i], x) })
		return
	}
	each(func(x, t, p, m reg.VecPhysical, i int) {
		VMULPS(x, x, t)
		VFMADD213PS(x, t, p)
		VADDPS(w.constant(25), p, p)
	})
	each(func(x, t, p, m reg.VecPhysical, i int) {
		// A power from -126 to 0 is one factor.
		VPADDD(words("oneBits", 127<<23), integer(i), integer(i))
		VMULPS(integer(i), p, p)
		VANDPS(m, p, x)
	})
}

// weights makes weights of rows of 64 scores. It first finds all tops, and leaves differences of tops
// in factors.
func (v isa) weights() {
	TEXT("weights"+v.name, NOSPLIT, "func(p *float32, rows int, tops, totals, factors *float32)")
	v.tops()
	w := weightExp{v}
	w.loadConstants()
	tops, totals := Load(Param("tops"), GP64()), Load(Param("totals"), GP64())
	factors, left := Load(Param("factors"), GP64()), Load(Param("rows"), GP64())
	// The factors.
	SUBQ(Imm(uint64(v.lanes)), left)
	JL(LabelRef("fewFactors"))
	Label("factors")
	VMOVUPS(At(factors, 0), w.x(0))
	w.exp(1)
	VMOVUPS(w.x(0), At(factors, 0))
	ADDQ(Imm(uint64(4*v.lanes)), factors)
	SUBQ(Imm(uint64(v.lanes)), left)
	JGE(LabelRef("factors"))
	Label("fewFactors")
	ADDQ(Imm(uint64(v.lanes)), left)
	JZ(LabelRef("weights"))
	if v.wide() {
		t := GP64()
		MOVQ(I32(-1), t)
		SHLXQ(left, t, t)
		NOTQ(t)
		KMOVW(t.As32(), reg.K1)
		VMOVUPS_Z(At(factors, 0), reg.K1, w.x(0))
		w.exp(1)
		VMOVUPS(w.x(0), reg.K1, At(factors, 0))
	} else {
		t := GP64()
		LEAQ(Table("masks", append(Repeat(Dwords(1<<32-1), 16), make([]byte, 64)...)), t)
		NEGQ(left)
		VMOVUPS(Mem{Base: t, Index: left, Scale: 4, Disp: 64}, v.r(0))
		VMASKMOVPS(At(factors, 0), v.r(0), w.x(0))
		w.exp(1)
		VMASKMOVPS(w.x(0), v.r(0), At(factors, 0))
	}
	Label("weights")
	p, rows := Load(Param("p"), GP64()), Load(Param("rows"), GP64())
	top := v.r(0)
	sum := func(part int) reg.VecPhysical { return v.r(1 + part) }
	Label("row")
	VBROADCASTSS(At(tops, 0), top)
	for i := range v.parts() {
		VXORPS(sum(i), sum(i), sum(i))
	}
	n := w.together()
	for first := 0; first < 64/v.lanes; first += n {
		for i := range n {
			VMOVUPS(At(p, 4*v.lanes*(first+i)), w.x(i))
			VSUBPS(top, w.x(i), w.x(i))
		}
		w.exp(n)
		for i := range n {
			VMOVUPS(w.x(i), At(p, 4*v.lanes*(first+i)))
			VADDPS(w.x(i), sum(i%v.parts()), sum(i%v.parts()))
		}
	}
	if v.wide() {
		VEXTRACTF32X8(Imm(1), Z(1), reg.Y2)
	}
	VADDPS(reg.Y2, reg.Y1, reg.Y1)
	VEXTRACTF128(Imm(1), reg.Y1, reg.X2)
	VADDPS(reg.X2, reg.X1, reg.X1)
	VPERMILPS(Imm(0x4e), reg.X1, reg.X2)
	VADDPS(reg.X2, reg.X1, reg.X1)
	VPERMILPS(Imm(0xb1), reg.X1, reg.X2)
	VADDPS(reg.X2, reg.X1, reg.X1)
	VMOVSS(reg.X1, At(totals, 0))
	ADDQ(I32(rowBytes), p)
	ADDQ(Imm(4), tops)
	ADDQ(Imm(4), totals)
	DECQ(rows)
	JNZ(LabelRef("row"))
	end()
}

// tops sets tops to the largest scores, and factors to what they were minus what they are.
func (v isa) tops() {
	p, rows := Load(Param("p"), GP64()), Load(Param("rows"), GP64())
	tops, factors := Load(Param("tops"), GP64()), Load(Param("factors"), GP64())
	Label("top")
	top, nan, x := v.r(0), v.r(1), v.r(2)
	VBROADCASTSS(At(tops, 0), top)
	VXORPS(nan, nan, nan)
	if v.wide() {
		KXORW(reg.K2, reg.K2, reg.K2)
	}
	for j := range 64 / v.lanes {
		VMOVUPS(At(p, 4*v.lanes*j), x)
		if v.wide() {
			VCMPPS(Imm(3), x, x, reg.K3)
			KORW(reg.K2, reg.K3, reg.K2)
		} else {
			VCMPPS(Imm(3), x, x, v.r(3))
			VORPS(v.r(3), nan, nan)
		}
		VMAXPS(x, top, top)
	}
	flags := GP32()
	if v.wide() {
		VEXTRACTF32X8(Imm(1), top, reg.Y2)
		VMAXPS(reg.Y2, reg.Y0, reg.Y0)
		KMOVW(reg.K2, flags)
	} else {
		VMOVMSKPS(nan, flags)
	}
	VEXTRACTF128(Imm(1), reg.Y0, reg.X2)
	VMAXPS(reg.X2, reg.X0, reg.X0)
	VPERMILPS(Imm(0x4e), reg.X0, reg.X2)
	VMAXPS(reg.X2, reg.X0, reg.X0)
	VPERMILPS(Imm(0xb1), reg.X0, reg.X2)
	VMAXPS(reg.X2, reg.X0, reg.X0)
	TESTL(flags, flags)
	JZ(LabelRef("number"))
	MOVL(U32(0x7fc00000), flags)
	VMOVD(flags, reg.X0)
	Label("number")
	VMOVSS(At(tops, 0), reg.X2)
	VMOVSS(reg.X0, At(tops, 0))
	VSUBSS(reg.X0, reg.X2, reg.X2)
	VMOVSS(reg.X2, At(factors, 0))
	ADDQ(I32(rowBytes), p)
	ADDQ(Imm(4), tops)
	ADDQ(Imm(4), factors)
	DECQ(rows)
	JNZ(LabelRef("top"))
}
