package main

import (
	. "github.com/fucina-go/fucina/kernels/cpu/_asm/gen"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The formats of this file have 64 bytes of codes of two bits. The four codes of a byte belong to
// four groups.

// spread sets words to the indices that spread 16 scales over the words of 64 products, for each of
// the four codes of a byte: group k is in the lower half, group k+4 in the upper one.
func spread(first int) (words [4]reg.VecPhysical) {
	for k := range words {
		words[k] = Z(first + k)
		var b []byte
		for _, g := range []int{2 * k, 2*k + 1, 8 + 2*k, 9 + 2*k} {
			b = append(b, Repeat([]byte{byte(g), 0}, 8)...)
		}
		VMOVDQU16(Table("q2kWords"+string(rune('0'+k)), b), words[k])
	}
	return words
}

// two sets q to code k of the bytes of v. Without GFNI, Z31 has 3 in each byte.
func two(vbmi bool, k int, v, q reg.VecPhysical) {
	switch {
	case vbmi:
		m := Table("twoMatrix"+string(rune('0'+k)), []byte{0, 0, 0, 0, 0, 0, 2 << (2 * k), 1 << (2 * k)})
		VGF2P8AFFINEQB_BCST(Imm(0), m, v, q)
	case k == 0:
		VPANDD(Z(31), v, q)
	default:
		VPSRLW(Imm(uint64(2*k)), v, q)
		VPANDD(Z(31), q, q)
	}
}

// q2kRows multiplies rows of Q2_K by one row of activations, as q4kRows does.
func q2kRows(vbmi bool) {
	const bytes = 84
	TEXT("q2kRows"+level(vbmi), NOSPLIT, smallArgs)
	Broadcast(0x03030303, Z(31))
	Broadcast(0x000f000f, Z(30))
	words := spread(26)
	rowLoop(bytes, func(p, act reg.Register, sum reg.VecPhysical, n int) {
		total := [4]reg.VecPhysical{Z(11), Z(12), Z(13), Z(14)}
		mins := [4]reg.VecPhysical{Z(16), Z(17), Z(18), Z(19)}
		for r, v := range total {
			VPXORD(v, v, v)
			VPXORD(mins[r], mins[r], mins[r])
			if r >= n {
				continue
			}
			scales, m, codes := Z(10), Z(9), Z(8)
			VPMOVZXBW(At(p, bytes*r), scales.AsY())
			VPSRLW(Imm(4), scales.AsY(), m.AsY())
			VPANDD(Z(30).AsY(), scales.AsY(), scales.AsY())
			VPMADDWD(At(act, actBytes*r+actSums16), m.AsY(), mins[r].AsY())
			VMOVDQU8(At(p, bytes*r+16), codes)
			for k := range 4 {
				q, s := Z(7), Z(6)
				two(vbmi, k, codes, q)
				VPMADDUBSW(At(act, actBytes*r+64*k), q, q)
				VPERMW(scales, words[k], s)
				VPDPWSSD(s, q, v)
			}
		}
		sumLanes(mins)
		VCVTDQ2PS(reg.X0, reg.X4)
		sumLanes(total)
		VCVTDQ2PS(reg.X0, reg.X0)
		VMOVD(At(p, 80), reg.X1)
		for r := 1; r < n; r++ {
			VPINSRD(Imm(uint64(r)), At(p, bytes*r+80), reg.X1, reg.X1)
		}
		VPSRLD(Imm(16), reg.X1, reg.X2) // dmin
		VPSLLD(Imm(16), reg.X1, reg.X1)
		VPSRLD(Imm(16), reg.X1, reg.X1)
		VPACKUSDW(reg.X2, reg.X1, reg.X1)
		VCVTPH2PS(reg.X1, reg.Y1)
		VEXTRACTF128(Imm(1), reg.Y1, reg.X2)
		VMULPS(reg.X1, reg.X0, reg.X0)
		VFNMADD231PS(reg.X2, reg.X4, reg.X0)
		addLanes(act, sum, n)
	})
}

// q3kRows is q2kRows for Q3_K: the codes have a third bit and an offset of 4, and there are no
// minima.
func q3kRows(vbmi bool) {
	const bytes = 110
	TEXT("q3kRows"+level(vbmi), NOSPLIT, smallArgs)
	Broadcast(0x03030303, Z(31))
	words := spread(26)
	bit := Table("q3kBit", Dwords(0x04040404, 0x04040404))
	var turns [4]Mem
	for k := range turns {
		// Bit g of a byte belongs to group g, and comes to bit 2.
		g := uint32(k)
		turns[k] = Table("q3kTurns"+string(rune('0'+k)), append(Repeat(Dwords((2-g)&63, 0), 4), Repeat(Dwords((2-g-4)&63, 0), 4)...))
	}
	// The last 16 bytes of a block have 12 bytes of scales from 2 on, the lower four bits of the 16
	// scales and then the upper two, and d.
	low, high, lowShift, highTurn := Z(25), Z(24), Z(23), Z(22)
	nibble, upper, offset, halves := Z(21), Z(20), Z(19), Z(18)
	VBROADCASTI32X4(Table("q3kTailLow", []byte{2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5, 6, 7, 8, 9}), low)
	VBROADCASTI32X4(Table("q3kTailHigh", Repeat([]byte{10, 11, 12, 13}, 4)), high)
	VBROADCASTI32X4(Table("q3kLowShift", Dwords(0, 0, 4, 0)), lowShift)
	VBROADCASTI32X4(Table("q3kHighTurn", Dwords(4, 2, 0, 30)), highTurn)
	Broadcast(0x0f0f0f0f, nibble)
	Broadcast(0x30303030, upper)
	Broadcast(0x20202020, offset)
	VMOVDQU32(Table("q3kHalves", []byte{7, 0, 15, 0, 23, 0, 31, 0, 7, 0, 7, 0, 7, 0, 7, 0}), halves.AsX())
	rowLoop(bytes, func(p, act reg.Register, sum reg.VecPhysical, n int) {
		tail, all, t := Z(17), Z(16), Z(15)
		VMOVDQU32(At(p, bytes-16), tail.AsX())
		for r := 1; r < n; r++ {
			VINSERTI32X4(Imm(uint64(r)), At(p, bytes*(r+1)-16), tail, tail)
		}
		VPSHUFB(low, tail, all)
		VPSRLVQ(lowShift, all, all)
		VPANDD(nibble, all, all)
		VPSHUFB(high, tail, t)
		VPROLVD(highTurn, t, t)
		VPTERNLOGD(Imm(0xf8), upper, t, all) // all | t&upper
		VPSUBB(offset, all, all)
		total := [4]reg.VecPhysical{Z(11), Z(12), Z(13), Z(14)}
		for r, v := range total {
			VPXORD(v, v, v)
			if r >= n {
				continue
			}
			scales, bits, codes := Z(10), Z(9), Z(8)
			if r == 0 {
				VPMOVSXBW(all.AsX(), scales.AsY())
			} else {
				VEXTRACTI32X4(Imm(uint64(r)), all, reg.X0)
				VPMOVSXBW(reg.X0, scales.AsY())
			}
			VPMADDWD(At(act, actBytes*r+actSums16), scales.AsY(), reg.Y0)
			VPSLLD(Imm(2), reg.Y0, reg.Y0)
			VPSUBD(reg.Y0, v.AsY(), v.AsY())
			VBROADCASTI64X4(At(p, bytes*r), bits)
			VMOVDQU8(At(p, bytes*r+32), codes)
			for k := range 4 {
				q, s, f := Z(7), Z(6), Z(4)
				two(vbmi, k, codes, q)
				VPROLVQ(turns[k], bits, f)
				VPTERNLOGD_BCST(Imm(0xf8), bit, f, q) // q | f&bit
				VPMADDUBSW(At(act, actBytes*r+64*k), q, q)
				VPERMW(scales, words[k], s)
				VPDPWSSD(s, q, v)
			}
		}
		sumLanes(total)
		VPERMW(tail, halves, Z(1))
		VCVTPH2PS(reg.X1, reg.X1)
		VCVTDQ2PS(reg.X0, reg.X0)
		VMULPS(reg.X1, reg.X0, reg.X0)
		addLanes(act, sum, n)
	})
}

// tq20Rows is q2kRows for TQ2_0: the codes have an offset of 1, and there is one scale.
func tq20Rows(vbmi bool) {
	const bytes = 66
	TEXT("tq20Rows"+level(vbmi), NOSPLIT, smallArgs)
	Broadcast(0x03030303, Z(31))
	Broadcast(0xffffffff, Z(30)) // words of -1
	rowLoop(bytes, func(p, act reg.Register, sum reg.VecPhysical, n int) {
		total := [4]reg.VecPhysical{Z(11), Z(12), Z(13), Z(14)}
		for r, v := range total {
			VPXORD(v, v, v)
			if r >= n {
				continue
			}
			codes := Z(8)
			VPMADDWD(At(act, actBytes*r+actSums16), Z(30).AsY(), v.AsY())
			VMOVDQU8(At(p, bytes*r), codes)
			for k := range 4 {
				q := Z(7)
				two(vbmi, k, codes, q)
				VPDPBUSD(At(act, actBytes*r+64*k), q, v)
			}
		}
		sumLanes(total)
		VPXOR(reg.X1, reg.X1, reg.X1)
		for r := range n {
			VPINSRW(Imm(uint64(r)), At(p, bytes*r+64), reg.X1, reg.X1)
		}
		VCVTPH2PS(reg.X1, reg.X1)
		VCVTDQ2PS(reg.X0, reg.X0)
		VMULPS(reg.X1, reg.X0, reg.X0)
		addLanes(act, sum, n)
	})
}
