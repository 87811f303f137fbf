// Package gen has what the generators of assembly have in common.
package gen

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Z returns a vector register. Functions that need more than 16 of them name their registers,
// because avo's allocator does not know which instructions reach the upper 16.
func Z(i int) reg.VecPhysical {
	return [...]reg.VecPhysical{
		reg.Z0, reg.Z1, reg.Z2, reg.Z3, reg.Z4, reg.Z5, reg.Z6, reg.Z7, reg.Z8, reg.Z9, reg.Z10, reg.Z11, reg.Z12, reg.Z13, reg.Z14, reg.Z15,
		reg.Z16, reg.Z17, reg.Z18, reg.Z19, reg.Z20, reg.Z21, reg.Z22, reg.Z23, reg.Z24, reg.Z25, reg.Z26, reg.Z27, reg.Z28, reg.Z29, reg.Z30, reg.Z31,
	}[i]
}

// At returns the address base + disp.
func At(base reg.Register, disp int) Mem { return Mem{Base: base, Disp: disp} }

// tables has the tables by name.
var tables = make(map[string]Mem)

// Table returns a read-only table of bytes, whose number is a multiple of 8. A name has one table.
func Table(name string, b []byte) Mem {
	if m, ok := tables[name]; ok {
		return m
	}
	m := GLOBL(name, RODATA|NOPTR)
	for i := 0; i < len(b); i += 8 {
		var v uint64
		for j := 7; j >= 0; j-- {
			v = v<<8 | uint64(b[i+j])
		}
		DATA(i, U64(v))
	}
	tables[name] = m
	return m
}

// Dwords returns the bytes of 32-bit words.
func Dwords(words ...uint32) (b []byte) {
	for _, w := range words {
		b = append(b, byte(w), byte(w>>8), byte(w>>16), byte(w>>24))
	}
	return b
}

// Repeat returns n copies of b.
func Repeat(b []byte, n int) (out []byte) {
	for range n {
		out = append(out, b...)
	}
	return out
}

// Broadcast sets all 32-bit words of v.
func Broadcast(word uint32, v reg.VecPhysical) {
	t := GP32()
	MOVL(U32(word), t)
	VPBROADCASTD(t, v)
}
