package gen

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// DotBytes adds the products of unsigned bytes of u and bytes of s, four by four, to the words of v.
// It is VPDPBUSD in its VEX form, which Go's assembler does not have.
func DotBytes(s, u, v reg.VecPhysical) { vex("VPDPBUSD", 0x50, s, u, v) }

// DotWords adds the products of words of a and b, two by two, to the words of 32 bits of v. It is
// VPDPWSSD in its VEX form.
func DotWords(a, b, v reg.VecPhysical) { vex("VPDPWSSD", 0x52, a, b, v) }

func vex(name string, opcode byte, a, b, v reg.VecPhysical) {
	Commentf("%s %s, %s, %s", name, a.Asm(), b.Asm(), v.Asm())
	for _, c := range encode(opcode, int(a.PhysicalIndex()), int(b.PhysicalIndex()), int(v.PhysicalIndex())) {
		Instruction(&ir.Instruction{Opcode: "BYTE", Operands: []operand.Op{operand.U8(c)}})
	}
}

// encode returns VEX.256.66.0F38.W0 opcode /r, with the registers of the operands in the order of
// Go's assembler: rm, vvvv, reg.
func encode(opcode byte, rm, vvvv, r int) []byte {
	const (
		map0F38  = 2
		bits256  = 1 << 2
		prefix66 = 1
		direct   = 3 << 6
	)
	inverted := func(i int) byte { return byte(^i >> 3 & 1) }
	return []byte{
		0xc4,
		inverted(r)<<7 | 1<<6 | inverted(rm)<<5 | map0F38,
		byte(^vvvv&15)<<3 | bits256 | prefix66,
		opcode,
		direct | byte(r&7)<<3 | byte(rm&7),
	}
}
