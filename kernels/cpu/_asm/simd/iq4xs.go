package main

import (
	. "github.com/fucina-go/fucina/kernels/cpu/_asm/gen"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const iq4xsBytes = 136

// iq4xsRows multiplies rows of IQ4_XS by one row of activations, as q4kRows does. 128 is added to the
// levels, which the sums of the activations make good. A sum of two products may be too large for a
// word, so the sums of four are scaled.
func iq4xsRows() {
	TEXT("iq4xsRowsVNNI", NOSPLIT, "func(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)")
	constants, look := levels("iq4nl", iq4nlLevels)
	constants()
	// The first 8 bytes of a block have d, the upper two bits of the 8 scales, and their lower four.
	lowShifts, highShifts, offset := reg.Y31, reg.Y30, reg.Y29
	var low, high []uint32
	for g := range uint32(8) {
		low = append(low, 4*g)
		high = append(high, (2*g-4)&31)
	}
	VMOVDQU32(Table("iq4xsLow", Dwords(low...)), lowShifts)
	VMOVDQU32(Table("iq4xsHigh", Dwords(high...)), highShifts)
	Broadcast(32, Z(29))
	Broadcast(0x30, Z(28))
	Broadcast(15, Z(27))
	var words [4]reg.VecPhysical
	for i := range words {
		words[i] = Z(20 + i)
		a := uint32(2 * i)
		VMOVDQU32(Table("iq4xsWords"+string(rune('0'+i)), append(Repeat(Dwords(a), 8), Repeat(Dwords(a+1), 8)...)), words[i])
	}
	rowLoop(iq4xsBytes, func(p, act reg.Register, sum reg.VecPhysical, n int) {
		total := [4]reg.VecPhysical{Z(11), Z(12), Z(13), Z(14)}
		for r, v := range total {
			VPXORD(v, v, v)
			if r >= n {
				continue
			}
			one, s, t := Z(10), Z(8), reg.Y7
			VPBROADCASTD(At(p, iq4xsBytes*r+4), one.AsY())
			VPSRLVD(lowShifts, one.AsY(), one.AsY())
			VPANDD(reg.Y27, one.AsY(), one.AsY())
			VPBROADCASTW(At(p, iq4xsBytes*r+2), t)
			VPRORVD(highShifts, t, t)
			VPTERNLOGD(Imm(0xf8), reg.Y28, t, one.AsY()) // one | t&0x30
			VPSUBD(offset, one.AsY(), one.AsY())
			VPMOVDW(one.AsY(), reg.X7)
			VPMADDWD(At(act, actBytes*r+actSums32), reg.X7, reg.X7)
			VPSLLD(Imm(7), reg.X7, reg.X7)
			VPSUBD(reg.X7, v.AsX(), v.AsX())
			for i := range 4 {
				q, dot := Z(9), Z(6)
				VBROADCASTI64X4(At(p, iq4xsBytes*r+8+32*i), q)
				VSHUFI64X2(Imm(0x50), q, q, q)
				VPSRLVQ(Z(24), q, q)
				VPANDD(Z(25), q, q)
				look(q)
				VPXORD(dot, dot, dot)
				VPDPBUSD(At(act, actBytes*r+64*i), q, dot)
				VPERMD(one, words[i], s)
				VPMULLD(s, dot, dot)
				VPADDD(dot, v, v)
			}
		}
		sumLanes(total)
		VPXOR(reg.X1, reg.X1, reg.X1)
		for r := range n {
			VPINSRW(Imm(uint64(r)), At(p, iq4xsBytes*r), reg.X1, reg.X1)
		}
		VCVTPH2PS(reg.X1, reg.X1)
		VCVTDQ2PS(reg.X0, reg.X0)
		VMULPS(reg.X1, reg.X0, reg.X0)
		addLanes(act, sum, n)
	})
}
