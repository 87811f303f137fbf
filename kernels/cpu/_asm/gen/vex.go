package gen

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// VexDPBUSD adds the products of four unsigned bytes of u and signed bytes of s to the words of acc.
// It is the form of AVX-VNNI for ymm registers: that of the assembler needs AVX-512.
func VexDPBUSD(s, u, acc reg.VecPhysical) { emit(vex(0x50, s, u, acc)) }

// VexDPWSSD adds the products of two signed words of a and b to the words of acc; see VexDPBUSD.
func VexDPWSSD(a, b, acc reg.VecPhysical) { emit(vex(0x52, a, b, acc)) }

// vex returns VEX.256.66.0F38.W0 op /r, with the operands in the order of the assembler.
func vex(op byte, c, b, a reg.VecPhysical) [5]byte {
	x, y, z := number(a), number(b), number(c)
	return [5]byte{
		0xc4,
		(^x>>3&1)<<7 | 1<<6 | (^z>>3&1)<<5 | 2, // the inverted upper bits of a and c, and the map 0F38
		(^y&15)<<3 | 1<<2 | 1,                  // the inverted b, 256 bits, and the prefix 66
		op,
		3<<6 | x&7<<3 | z&7,
	}
}

// number returns the number of a register that VEX can name.
func number(r reg.VecPhysical) byte {
	n := r.(reg.Physical).PhysicalIndex()
	if n > 15 || r.Size() != 32 {
		panic("gen: no VEX form with " + r.Asm())
	}
	return byte(n)
}

func emit(code [5]byte) {
	word := uint32(code[0]) | uint32(code[1])<<8 | uint32(code[2])<<16 | uint32(code[3])<<24
	Instruction(&ir.Instruction{Opcode: "LONG", Operands: []operand.Op{operand.U32(word)}})
	Instruction(&ir.Instruction{Opcode: "BYTE", Operands: []operand.Op{operand.U8(code[4])}})
}
