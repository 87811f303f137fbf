// Command vector generates the assembly of package vector. The comments of the stubs in
// decl_amd64.go define the results.
package main

import (
	"math"

	. "github.com/fucina-go/fucina/kernels/cpu/_asm/gen"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func main() {
	ConstraintExpr("amd64,!noasm")
	for _, v := range []isa{{"AVX2", 8}, {"AVX512", 16}} {
		elementwise(v)
		reductions(v)
		v.turn()
		v.turnNeoX()
		attention(v)
	}
	encodeQ80()
	Generate()
}

// isa is AVX2 or AVX-512, with the number of f32 in a register.
type isa struct {
	name  string
	lanes int
}

func (v isa) wide() bool { return v.lanes == 16 }

// parts returns the number of registers for 16 elements.
func (v isa) parts() int { return 16 / v.lanes }

// r returns a register. The masks of AVX2 are in Y14 and Y15.
func (v isa) r(i int) reg.VecPhysical {
	if v.wide() {
		return Z(i)
	}
	return [...]reg.VecPhysical{
		reg.Y0, reg.Y1, reg.Y2, reg.Y3, reg.Y4, reg.Y5, reg.Y6, reg.Y7,
		reg.Y8, reg.Y9, reg.Y10, reg.Y11, reg.Y12, reg.Y13, reg.Y14, reg.Y15,
	}[i]
}

// constant returns a table of 16 equal numbers.
func constant(name string, f float64) Mem {
	return words(name, math.Float32bits(float32(f)))
}

func words(name string, w uint32) Mem { return Table(name, Repeat(Dwords(w), 16)) }

var (
	expTerms  = []float64{1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1}
	expNames  = []string{"exp5", "exp4", "exp3", "exp2", "exp1", "exp0"}
	tanhTerms = []float64{-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1}
	tanhNames = []string{"tanh4", "tanh3", "tanh2", "tanh1", "tanh0"}
)

// exp sets x to e^(x+low), where low is absent if it is nil. It changes registers t to t+3.
func (v isa) exp(x, low reg.VecPhysical, t int) {
	n, r, p, s := v.r(t), v.r(t+1), v.r(t+2), v.r(t+3)
	VMOVUPS(constant("expMost", 89), p)
	VMINPS(x, p, x)
	VMOVUPS(constant("expLeast", -104), p)
	VMAXPS(x, p, x)
	VMOVUPS(constant("round", 0x1.8p23), s)
	VMOVUPS(constant("log2e", 1.44269504), n)
	VFMADD213PS(s, x, n)
	if !v.wide() {
		VMOVAPS(n, r)
	}
	VSUBPS(s, n, n)
	if !v.wide() {
		VPSUBD(s, r, s) // n as an integer
	}
	VFNMADD231PS(constant("ln2Hi", 0.693359375), n, x)
	if low != nil {
		VADDPS(low, x, x)
	}
	VFNMADD231PS(constant("ln2Lo", -2.12194440e-4), n, x)
	VMOVUPS(constant(expNames[0], expTerms[0]), p)
	for i := range expTerms[1:] {
		VFMADD213PS(constant(expNames[i+1], expTerms[i+1]), x, p)
	}
	VMULPS(x, x, r)
	VFMADD213PS(x, r, p)
	VADDPS(constant("one", 1), p, p)
	if v.wide() {
		VSCALEFPS(n, p, x)
		return
	}
	VPSRAD(Imm(1), s, n)
	VPSUBD(n, s, s)
	for _, i := range []reg.VecPhysical{n, s} {
		VPADDD(words("bias", 127), i, i)
		VPSLLD(Imm(23), i, i)
		VMULPS(i, p, p)
	}
	VMOVAPS(p, x)
}

// or, xor and and are the bitwise operations.
func (v isa) or(a Op, b, c reg.VecPhysical) {
	if v.wide() {
		VPORD(a, b, c)
	} else {
		VPOR(a, b, c)
	}
}

func (v isa) xor(a Op, b, c reg.VecPhysical) {
	if v.wide() {
		VPXORD(a, b, c)
	} else {
		VPXOR(a, b, c)
	}
}

func (v isa) and(a Op, b, c reg.VecPhysical) {
	if v.wide() {
		VPANDD(a, b, c)
	} else {
		VPAND(a, b, c)
	}
}

// ifNegative sets x to y where s is negative.
func (v isa) ifNegative(y, s, x reg.VecPhysical) {
	if v.wide() {
		VPMOVD2M(s, reg.K2)
		VMOVAPS(y, reg.K2, x)
	} else {
		VBLENDVPS(s, y, x, x)
	}
}

// glu sets x to sigmoid(s+low)*x*y, where s has the sign of x, and low is absent if it is nil. It
// changes s, low and registers t to t+6.
func (v isa) glu(x, y, s, low reg.VecPhysical, t int) {
	sign, z := words("sign", 1<<31), s
	v.or(sign, s, z)
	if low != nil {
		v.and(sign, x, v.r(t))
		v.xor(sign, v.r(t), v.r(t))
		v.xor(v.r(t), low, low)
	}
	v.exp(z, low, t)
	one, d, dLow, negative, negativeLow := v.r(t), v.r(t+1), v.r(t+2), v.r(t+3), v.r(t+4)
	tLow, inv := v.r(t+5), v.r(t+6)
	VMULPS(z, x, negative)
	VMOVAPS(z, negativeLow)
	VFMSUB213PS(negative, x, negativeLow)
	VXORPS(tLow, tLow, tLow)
	v.ifNegative(negativeLow, x, tLow)
	v.ifNegative(negative, x, x)
	VMOVUPS(constant("one", 1), one)
	VADDPS(z, one, d)
	VSUBPS(one, d, dLow)
	VSUBPS(dLow, z, dLow)
	VDIVPS(d, one, inv)
	q := z
	VMULPS(inv, x, q)
	VFNMADD231PS(d, q, x)
	VADDPS(tLow, x, x)
	VFNMADD231PS(dLow, q, x)
	VMULPS(inv, x, x)
	VMULPS(y, x, x)
	VFMADD231PS(y, q, x)
	VMULPS(y, q, q)
	if v.wide() {
		VCMPPS(Imm(3), x, x, reg.K2)
		VMOVAPS(q, reg.K2, x)
	} else {
		VCMPPS(Imm(3), x, x, one)
		VBLENDVPS(one, q, x, x)
	}
}

// loop is a loop over elements, 16 at a time. body computes a part of them: its elements are in
// memory at disp bytes after the position. masked is set for the last elements, if there are fewer
// than 16.
type loop struct {
	isa
	index  reg.Register // bytes
	masked bool
	part   int
}

// each makes the loop over n elements. It changes Y14 and Y15 or K1.
func (v isa) each(n reg.Register, body func(l *loop)) {
	l := &loop{isa: v, index: GP64()}
	XORQ(l.index, l.index)
	SUBQ(Imm(16), n)
	JL(LabelRef("rest"))
	Label("more")
	for l.part = range v.parts() {
		body(l)
	}
	ADDQ(Imm(64), l.index)
	SUBQ(Imm(16), n)
	JGE(LabelRef("more"))
	Label("rest")
	ADDQ(Imm(16), n)
	JZ(LabelRef("done"))
	if v.wide() {
		t := GP64()
		MOVQ(I32(-1), t)
		SHLXQ(n, t, t)
		NOTQ(t)
		KMOVW(t.As32(), reg.K1)
	} else {
		t, m := GP64(), GP64()
		LEAQ(Table("masks", append(Repeat(Dwords(1<<32-1), 16), make([]byte, 64)...)), t)
		MOVQ(U32(16), m)
		SUBQ(n, m)
		LEAQ(Mem{Base: t, Index: m, Scale: 4}, t)
		VMOVUPS(At(t, 0), v.r(14))
		VMOVUPS(At(t, 32), v.r(15))
	}
	l.masked = true
	for l.part = range v.parts() {
		body(l)
	}
	Label("done")
}

func (l *loop) mem(base reg.Register) Mem {
	return Mem{Base: base, Index: l.index, Scale: 1, Disp: l.part * 4 * l.lanes}
}

// load loads elements; those that are masked are 0.
func (l *loop) load(base reg.Register, x reg.VecPhysical) {
	switch {
	case !l.masked:
		VMOVUPS(l.mem(base), x)
	case l.wide():
		VMOVUPS_Z(l.mem(base), reg.K1, x)
	default:
		VMASKMOVPS(l.mem(base), l.r(14+l.part), x)
	}
}

func (l *loop) store(x reg.VecPhysical, base reg.Register) {
	switch {
	case !l.masked:
		VMOVUPS(x, l.mem(base))
	case l.wide():
		VMOVUPS(x, reg.K1, l.mem(base))
	default:
		VMASKMOVPS(x, l.r(14+l.part), l.mem(base))
	}
}

// zero makes the masked elements of x 0.
func (l *loop) zero(x reg.VecPhysical) {
	switch {
	case !l.masked:
	case l.wide():
		VMOVAPS_Z(x, reg.K1, x)
	default:
		VANDPS(l.r(14+l.part), x, x)
	}
}

func end() {
	VZEROUPPER()
	RET()
}

// binary makes a function of two inputs. body computes x from x and y, and may change registers
// from 2 on.
func (v isa) binary(name string, body func(x, y reg.VecPhysical)) {
	TEXT(name+v.name, NOSPLIT, "func(out, x, y *float32, n int)")
	out, px, py := Load(Param("out"), GP64()), Load(Param("x"), GP64()), Load(Param("y"), GP64())
	v.each(Load(Param("n"), GP64()), func(l *loop) {
		x, y := v.r(0), v.r(1)
		l.load(px, x)
		l.load(py, y)
		body(x, y)
		l.store(x, out)
	})
	end()
}

// unary makes a function of an input and a number, which is in all elements of register 1.
func (v isa) unary(name string, body func(x, c reg.VecPhysical)) {
	TEXT(name+v.name, NOSPLIT, "func(out, x *float32, n int, c float32)")
	out, px, n := Load(Param("out"), GP64()), Load(Param("x"), GP64()), Load(Param("n"), GP64())
	VBROADCASTSS(NewParamAddr("c", 24), v.r(1))
	v.each(n, func(l *loop) {
		x := v.r(0)
		l.load(px, x)
		body(x, v.r(1))
		l.store(x, out)
	})
	end()
}

func elementwise(v isa) {
	v.binary("add", func(x, y reg.VecPhysical) { VADDPS(y, x, x) })
	v.binary("sub", func(x, y reg.VecPhysical) { VSUBPS(y, x, x) })
	v.binary("mul", func(x, y reg.VecPhysical) { VMULPS(y, x, x) })
	v.binary("swiglu", func(x, y reg.VecPhysical) {
		VMOVAPS(x, v.r(2))
		v.glu(x, y, v.r(2), nil, 3)
	})
	v.binary("geglu", func(x, y reg.VecPhysical) {
		s, p, low, u, c := v.r(4), v.r(5), v.r(3), v.r(2), v.r(6)
		VMULPS(x, x, s)
		const gelu1, gelu3 = 1.5957691216057308, 0.07135481282053462
		VMOVUPS(constant("gelu3", gelu3), c)
		m, g, b := v.r(7), v.r(8), v.r(9)
		VMULPS(s, c, m)
		VMOVUPS(constant("gelu1", gelu1), g)
		VADDPS(m, g, p)
		VSUBPS(g, p, b)
		VSUBPS(b, p, low)
		VSUBPS(low, g, low)
		VSUBPS(b, m, b)
		VADDPS(b, low, low)
		VMOVAPS(s, b)
		VFMSUB213PS(m, c, b)
		VADDPS(b, low, low)
		VMOVUPS(constant("gelu3Low", gelu3-float64(float32(gelu3))), u)
		VFMADD213PS(constant("gelu1Low", gelu1-float64(float32(gelu1))), s, u)
		VADDPS(u, low, low)
		VFMSUB231PS(x, x, s)
		VFMADD231PS(s, c, low)
		VMULPS(x, p, u)
		VFMSUB213PS(u, x, p)
		VFMADD213PS(p, x, low)
		// A low part that is not small becomes 0.
		v.and(words("magnitude", 1<<31-1), low, s)
		VMOVUPS(constant("one", 1), c)
		if v.wide() {
			VCMPPS(Imm(1), c, s, reg.K2)
			VMOVAPS_Z(low, reg.K2, low)
		} else {
			VCMPPS(Imm(1), c, s, s)
			VANDPS(s, low, low)
		}
		v.glu(x, y, u, low, 4)
	})
	v.unary("scale", func(x, c reg.VecPhysical) { VMULPS(c, x, x) })
	v.unary("softCap", func(x, c reg.VecPhysical) {
		VDIVPS(c, x, x)
		v.tanh(x, 2)
		VMULPS(c, x, x)
	})

	TEXT("weigh"+v.name, NOSPLIT, "func(out, x, w *float32, n int, scale float32)")
	out, px, pw := Load(Param("out"), GP64()), Load(Param("x"), GP64()), Load(Param("w"), GP64())
	n := Load(Param("n"), GP64())
	VBROADCASTSS(NewParamAddr("scale", 32), v.r(1))
	v.each(n, func(l *loop) {
		x, w := v.r(0), v.r(2)
		l.load(px, x)
		l.load(pw, w)
		VMULPS(v.r(1), x, x)
		VMULPS(w, x, x)
		l.store(x, out)
	})
	end()
}

// tanh sets x to tanh(x). It changes registers t to t+7.
func (v isa) tanh(x reg.VecPhysical, t int) {
	a, p, s, z, u := v.r(t), v.r(t+1), v.r(t+2), v.r(t+3), v.r(t+4)
	v.and(words("magnitude", 1<<31-1), x, a)
	// The polynomial.
	VMULPS(x, x, s)
	VMOVUPS(constant(tanhNames[0], tanhTerms[0]), p)
	for i := range tanhTerms[1:] {
		VFMADD213PS(constant(tanhNames[i+1], tanhTerms[i+1]), s, p)
	}
	VMULPS(s, p, p)
	VFMADD213PS(x, x, p)
	// The quotient.
	VMULPS(constant("minusTwo", -2), a, z)
	v.exp(z, nil, t+4)
	VMOVUPS(constant("one", 1), s)
	VSUBPS(z, s, u)
	VADDPS(z, s, z)
	VDIVPS(z, u, z)
	v.and(words("sign", 1<<31), x, x)
	v.or(x, z, x)
	VMOVUPS(constant("tanhSmall", 0.625), s)
	if v.wide() {
		VCMPPS(Imm(1), s, a, reg.K2)
		VMOVAPS(p, reg.K2, x)
	} else {
		VCMPPS(Imm(1), s, a, s)
		VBLENDVPS(s, p, x, x)
	}
}

// sums are 16 sums in float64, from register first on.
func (v isa) sum(i, first int) reg.VecPhysical { return v.r(first + i) }

// addDoubles adds part of 16 f32 to the sums in float64; square squares them. It changes registers
// 8 and 9.
func (l *loop) addDoubles(x reg.VecPhysical, first int, square bool) {
	for i := range 2 {
		half := x.(interface{ AsX() reg.Register }).AsX()
		if l.wide() {
			half = x.(interface{ AsY() reg.Register }).AsY()
		}
		d, sum := l.r(8), l.r(first+2*l.part+i)
		if i == 1 {
			if l.wide() {
				half = reg.Y9
				VEXTRACTF32X8(Imm(1), x, half)
			} else {
				half = reg.X9
				VEXTRACTF128(Imm(1), x, half)
			}
		}
		VCVTPS2PD(half, d)
		if square {
			VFMADD231PD(d, d, sum)
		} else {
			VADDPD(d, sum, sum)
		}
	}
}

// withSums makes a loop with 16 sums in float64.
func (v isa) withSums(n reg.Register, body func(l *loop)) {
	sums := Load(Param("sums"), GP64())
	for i := range 2 * v.parts() {
		VMOVUPS(At(sums, i*4*v.lanes), v.r(10+i))
	}
	v.each(n, body)
	for i := range 2 * v.parts() {
		VMOVUPS(v.r(10+i), At(sums, i*4*v.lanes))
	}
	end()
}

func reductions(v isa) {
	TEXT("squares"+v.name, NOSPLIT, "func(sums *float64, x *float32, n int)")
	px := Load(Param("x"), GP64())
	v.withSums(Load(Param("n"), GP64()), func(l *loop) {
		l.load(px, v.r(0))
		l.addDoubles(v.r(0), 10, true)
	})

	TEXT("exps"+v.name, NOSPLIT, "func(sums *float64, x *float32, n int, top float32)")
	p := Load(Param("x"), GP64())
	VBROADCASTSS(NewParamAddr("top", 24), v.r(1))
	v.withSums(Load(Param("n"), GP64()), func(l *loop) {
		x := v.r(0)
		l.load(p, x)
		VSUBPS(v.r(1), x, x)
		v.exp(x, nil, 2)
		l.store(x, p)
		l.zero(x)
		l.addDoubles(x, 10, false)
	})

	TEXT("most"+v.name, NOSPLIT, "func(x *float32, n int) float32")
	px = Load(Param("x"), GP64())
	n := Load(Param("n"), GP64())
	// Two of each, for the parts.
	top := func(part int) reg.VecPhysical { return v.r(2 + part) }
	nan := func(part int) reg.VecPhysical { return v.r(4 + part) }
	inf := v.r(6)
	VMOVUPS(words("negInf", 0xff800000), inf)
	for i := range v.parts() {
		VMOVAPS(inf, top(i))
		VXORPS(nan(i), nan(i), nan(i))
	}
	if v.wide() {
		KXORW(reg.K2, reg.K2, reg.K2)
	}
	v.each(n, func(l *loop) {
		x := v.r(0)
		switch {
		case !l.masked:
			l.load(px, x)
		case v.wide():
			VMOVAPS(inf, x)
			VMOVUPS(l.mem(px), reg.K1, x)
		default:
			l.load(px, x)
			VBLENDVPS(v.r(14+l.part), x, inf, x)
		}
		if v.wide() {
			VCMPPS(Imm(3), x, x, reg.K3)
			KORW(reg.K2, reg.K3, reg.K2)
		} else {
			VCMPPS(Imm(3), x, x, v.r(1))
			VORPS(v.r(1), nan(l.part), nan(l.part))
		}
		VMAXPS(x, top(l.part), top(l.part))
	})
	if v.wide() {
		VEXTRACTF32X8(Imm(1), top(0), reg.Y3)
		KMOVW(reg.K2, reg.EAX)
	} else {
		VORPS(nan(0), nan(1), nan(0))
		VMOVMSKPS(nan(0), reg.EAX)
	}
	VMAXPS(reg.Y3, reg.Y2, reg.Y2)
	VEXTRACTF128(Imm(1), reg.Y2, reg.X3)
	VMAXPS(reg.X3, reg.X2, reg.X2)
	VPERMILPS(Imm(0x4e), reg.X2, reg.X3)
	VMAXPS(reg.X3, reg.X2, reg.X2)
	VPERMILPS(Imm(0xb1), reg.X2, reg.X3)
	VMAXPS(reg.X3, reg.X2, reg.X2)
	TESTL(reg.EAX, reg.EAX)
	JZ(LabelRef("number"))
	MOVL(U32(0x7fc00000), reg.EAX)
	VMOVD(reg.EAX, reg.X2)
	Label("number")
	Store(reg.X2, ReturnIndex(0))
	end()
}
