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

// iq4xsRowsVBMI is iq4xsRows with VBMI and GFNI. 128 is added to the
// levels, which the sums of the activations make good. A sum of two products may be too large for a
// word, so the sums of four are scaled, as f32: four of them, times 32 at most, are below 2^24, so that
// all are exact.
func iq4xsRowsVBMI() {
	TEXT("iq4xsRowsVBMI", NOSPLIT, "func(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)")
	constants, look := levels("iq4nl", iq4nlLevels)
	constants()
	matrices := Z(27)
	VBROADCASTI64X4(Table("nibbleMatrices", nil), matrices)
	// The first 8 bytes of a block have d, the upper two bits of the 8 scales, and their lower four.
	var low, high []byte
	for g := range 8 {
		low = append(low, byte(32+4*g))
		high = append(high, byte(16+2*g-4))
	}
	lowFields, highFields, offset := Z(31).AsY(), Z(30).AsY(), Z(29).AsY()
	VMOVDQU(Table("iq4xsLowFields", Repeat(low, 4)), reg.Y0)
	VMOVDQU32(reg.Y0, lowFields)
	VMOVDQU(Table("iq4xsHighFields", Repeat(high, 4)), reg.Y0)
	VMOVDQU32(reg.Y0, highFields)
	Broadcast(0x20202020, Z(29))
	Broadcast(0x30303030, Z(28))
	var words [4]reg.VecPhysical
	for i := range words {
		words[i] = Z(20 + i)
		a := uint32(2 * i)
		VMOVDQU32(Table("iq4xsWords"+string(rune('0'+i)), append(Repeat(Dwords(a), 8), Repeat(Dwords(a+1), 8)...)), words[i])
	}
	rowLoop(iq4xsBytes, func(p, act reg.Register, sum reg.VecPhysical, n int) {
		head, scales, t := Z(17).AsY(), Z(16), Z(15).AsY()
		VMOVQ(At(p, 0), reg.X0)
		if n > 1 {
			VPINSRQ(Imm(1), At(p, iq4xsBytes), reg.X0, reg.X0)
			VMOVQ(At(p, 2*iq4xsBytes), reg.X1)
			VPINSRQ(Imm(1), At(p, 3*iq4xsBytes), reg.X1, reg.X1)
			VINSERTI128(Imm(1), reg.X1, reg.Y0, reg.Y0)
		}
		VMOVDQU32(reg.Y0, head)
		VPMULTISHIFTQB(head, lowFields, scales.AsY())
		VPANDD(Z(25).AsY(), scales.AsY(), scales.AsY())
		VPMULTISHIFTQB(head, highFields, t)
		VPTERNLOGD(Imm(0xf8), Z(28).AsY(), t, scales.AsY()) // scales | t&0x30
		VPSUBB(offset, scales.AsY(), scales.AsY())
		total := [4]reg.VecPhysical{Z(11), Z(12), Z(13), Z(14)}
		for r, v := range total {
			VPXORD(v, v, v)
			if r >= n {
				continue
			}
			one, s := Z(10), Z(8)
			switch r {
			case 0:
				VMOVDQU32(scales.AsX(), one.AsX())
			case 1:
				VPSRLDQ(Imm(8), scales.AsX(), one.AsX())
			case 2:
				VEXTRACTI32X4(Imm(1), scales.AsY(), one.AsX())
			case 3:
				VEXTRACTI32X4(Imm(1), scales.AsY(), one.AsX())
				VPSRLDQ(Imm(8), one.AsX(), one.AsX())
			}
			VPMOVSXBW(one.AsX(), reg.X7)
			VPMADDWD(At(act, actBytes*r+actSums32), reg.X7, reg.X7)
			VPSLLD(Imm(7), reg.X7, reg.X7)
			VPSUBD(reg.X7, v.AsX(), v.AsX())
			VPMOVSXBD(one.AsX(), one.AsY())
			VCVTDQ2PS(one.AsY(), one.AsY())
			scaled := Z(7)
			for i := range 4 {
				q, dot := Z(9), Z(6)
				m := At(p, iq4xsBytes*r+8+32*i)
				both(m, m.Offset(16), q)
				VGF2P8AFFINEQB(Imm(0), matrices, q, q)
				look(q)
				VPXOR(dot.AsX(), dot.AsX(), dot.AsX())
				VPDPBUSD(At(act, actBytes*r+64*i), q, dot)
				VCVTDQ2PS(dot, dot)
				VPERMPS(one, words[i], s)
				if i == 0 {
					VMULPS(s, dot, scaled)
					continue
				}
				VFMADD231PS(s, dot, scaled)
			}
			VCVTPS2DQ(scaled, scaled)
			VPADDD(scaled, v, v)
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
