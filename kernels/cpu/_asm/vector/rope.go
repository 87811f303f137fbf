package main

import (
	. "github.com/fucina-go/fucina/kernels/cpu/_asm/gen"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// turn rotates pairs of neighbours.
func (v isa) turn() {
	TEXT("turn"+v.name, NOSPLIT, "func(out, x, table *float32, n int)")
	out, px, table := Load(Param("out"), GP64()), Load(Param("x"), GP64()), Load(Param("table"), GP64())
	n := Load(Param("n"), GP64())
	i := GP64()
	XORQ(i, i)
	even := v.r(4)
	VMOVUPS(Table("evenSigns", Repeat(Dwords(1<<31, 0), 8)), even)
	Label("pairs")
	for part := range v.parts() {
		mem := func(base reg.Register) Mem {
			return Mem{Base: base, Index: i, Scale: 4, Disp: 4 * v.lanes * part}
		}
		x, t, c, s := v.r(0), v.r(1), v.r(2), v.r(3)
		VMOVUPS(mem(px), x)
		VMOVUPS(mem(table), t)
		VMOVSLDUP(t, c)
		VMOVSHDUP(t, s)
		VMULPS(x, c, c)
		VPERMILPS(Imm(0xb1), x, x)
		VMULPS(x, s, s)
		v.xor(even, s, s)
		VADDPS(s, c, c)
		VMOVUPS(c, mem(out))
	}
	ADDQ(Imm(16), i)
	CMPQ(i, n)
	JB(LabelRef("pairs"))
	end()
}

// turnNeoX rotates pairs of an element of x0 and one of x1.
func (v isa) turnNeoX() {
	TEXT("turnNeoX"+v.name, NOSPLIT, "func(o0, o1, x0, x1, table *float32, n int)")
	o0, o1 := Load(Param("o0"), GP64()), Load(Param("o1"), GP64())
	x0, x1 := Load(Param("x0"), GP64()), Load(Param("x1"), GP64())
	table, n := Load(Param("table"), GP64()), Load(Param("n"), GP64())
	i := GP64()
	XORQ(i, i)
	if v.wide() {
		var cos, sin []uint32
		for j := range uint32(16) {
			cos, sin = append(cos, 2*j), append(sin, 2*j+1)
		}
		VMOVUPS(Table("evenWords", Dwords(cos...)), Z(6))
		VMOVUPS(Table("oddWords", Dwords(sin...)), Z(7))
	}
	Label("pairs")
	for part := range v.parts() {
		at := 4 * v.lanes * part
		mem := func(base reg.Register) Mem { return Mem{Base: base, Index: i, Scale: 4, Disp: at} }
		a, b, c, s, t := v.r(0), v.r(1), v.r(2), v.r(3), v.r(4)
		low := Mem{Base: table, Index: i, Scale: 8, Disp: 2 * at}
		high := low
		high.Disp += 4 * v.lanes
		if v.wide() {
			VMOVUPS(low, s)
			VMOVUPS(high, t)
			VMOVAPS(Z(6), c)
			VPERMI2PS(t, s, c)
			VPERMT2PS(t, Z(7), s)
		} else {
			VMOVUPS(low, s)
			VMOVUPS(high, t)
			VSHUFPS(Imm(0x88), t, s, c)
			VSHUFPS(Imm(0xdd), t, s, s)
			VPERMPD(Imm(0xd8), c, c)
			VPERMPD(Imm(0xd8), s, s)
		}
		VMOVUPS(mem(x0), a)
		VMOVUPS(mem(x1), b)
		VMULPS(a, c, t)
		VMULPS(b, s, v.r(5))
		VSUBPS(v.r(5), t, t)
		VMOVUPS(t, mem(o0))
		VMULPS(a, s, s)
		VMULPS(b, c, c)
		VADDPS(c, s, s)
		VMOVUPS(s, mem(o1))
	}
	ADDQ(Imm(16), i)
	CMPQ(i, n)
	JB(LabelRef("pairs"))
	end()
}
