// Command _asm generates the assembly of package simd. The comments of the stubs in decl_amd64.go
// define the results.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The layout of a stretch of 256 activations; see package simd.
const (
	actBytes  = 320
	actSums16 = 256
	actSums32 = 288
	actScale  = 304
	actScales = 256
	actSums   = 288
)

func main() {
	ConstraintExpr("amd64,!noasm")
	q4kRows()
	Generate()
}

// zmm returns a vector register. Functions that need more than 16 of them name their registers,
// because avo's allocator does not know which instructions reach the upper 16.
func zmm(i int) reg.VecPhysical {
	return [...]reg.VecPhysical{
		reg.Z0, reg.Z1, reg.Z2, reg.Z3, reg.Z4, reg.Z5, reg.Z6, reg.Z7, reg.Z8, reg.Z9, reg.Z10, reg.Z11, reg.Z12, reg.Z13, reg.Z14, reg.Z15,
		reg.Z16, reg.Z17, reg.Z18, reg.Z19, reg.Z20, reg.Z21, reg.Z22, reg.Z23, reg.Z24, reg.Z25, reg.Z26, reg.Z27, reg.Z28, reg.Z29, reg.Z30, reg.Z31,
	}[i]
}

// at returns the address base + disp.
func at(base reg.Register, disp int) Mem { return Mem{Base: base, Disp: disp} }

// table returns a read-only table of bytes, whose number is a multiple of 8.
func table(name string, b []byte) Mem {
	m := GLOBL(name, RODATA|NOPTR)
	for i := 0; i < len(b); i += 8 {
		var v uint64
		for j := 7; j >= 0; j-- {
			v = v<<8 | uint64(b[i+j])
		}
		DATA(i, U64(v))
	}
	return m
}

// dwords returns the bytes of 32-bit words.
func dwords(words ...uint32) (b []byte) {
	for _, w := range words {
		b = append(b, byte(w), byte(w>>8), byte(w>>16), byte(w>>24))
	}
	return b
}

// repeat returns n copies of b.
func repeat(b []byte, n int) (out []byte) {
	for range n {
		out = append(out, b...)
	}
	return out
}

// broadcast sets all 32-bit words of v.
func broadcast(word uint32, v reg.VecPhysical) {
	t := GP32()
	MOVL(U32(word), t)
	VPBROADCASTD(t, v)
}

// unpackAdd sets a to the sums of pairs of words of a and b: of neighbours, or of words at distance
// two if wide. It changes t.
func unpackAdd(a, b, t reg.VecPhysical, wide bool) {
	if wide {
		VPUNPCKHQDQ(b, a, t)
		VPUNPCKLQDQ(b, a, a)
	} else {
		VPUNPCKHDQ(b, a, t)
		VPUNPCKLDQ(b, a, a)
	}
	VPADDD(t, a, a)
}
