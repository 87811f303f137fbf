package main

import (
	. "github.com/fucina-go/fucina/kernels/cpu/_asm/gen"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// probes has the functions that benchmarks compare with: what the processor can do.
func probes() {
	for _, level := range []struct {
		name  string
		v     func(int) reg.VecPhysical
		count int
	}{{"512", Z, 24}, {"2", Y, 12}} {
		TEXT("probeFMA"+level.name, NOSPLIT, "func(steps int)")
		n := Load(Param("steps"), GP64())
		for i := range level.count + 2 {
			VXORPS(Y(i%16), Y(i%16), Y(i%16))
			if i >= 16 {
				VPXORD(level.v(i), level.v(i), level.v(i))
			}
		}
		Label("step")
		for i := range level.count {
			VFMADD231PS(level.v(level.count), level.v(level.count+1), level.v(i))
		}
		DECQ(n)
		JNZ(LabelRef("step"))
		VZEROUPPER()
		RET()
	}
	TEXT("probeRead2", NOSPLIT, "func(p *byte, lines int)")
	p, n := Load(Param("p"), GP64()), Load(Param("lines"), GP64())
	Label("step")
	for i := range 4 {
		VMOVUPS(At(p, 32*i), Y(i))
	}
	ADDQ(I32(128), p)
	SUBQ(Imm(2), n)
	JG(LabelRef("step"))
	VZEROUPPER()
	RET()
}
