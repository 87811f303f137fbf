package main

import (
	. "github.com/fucina-go/fucina/kernels/cpu/_asm/gen"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// peak is a function of n rounds of 12 independent products of registers.
func peak(name string, product func(i int)) {
	TEXT(name, NOSPLIT, "func(n int)")
	n := Load(Param("n"), GP64())
	for i := range 15 {
		VPXOR(ymm(i), ymm(i), ymm(i))
	}
	Label("round")
	for i := range 12 {
		product(i)
	}
	DECQ(n)
	JNZ(LabelRef("round"))
	VZEROUPPER()
	RET()
}

func peaks() {
	peak("peakAVX2", func(i int) {
		VPMADDUBSW(ymm(12), ymm(13), ymm(14))
		VPADDW(ymm(14), ymm(i), ymm(i))
	})
	peak("peakAVXVNNI", func(i int) { DotBytes(ymm(12), ymm(13), ymm(i)) })
	peak("peak512", func(i int) { VPDPBUSD(Z(12), Z(13), Z(i)) })
}
