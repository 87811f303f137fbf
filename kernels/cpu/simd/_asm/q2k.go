package main

import (
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
		words[k] = zmm(first + k)
		var b []byte
		for _, g := range []int{2 * k, 2*k + 1, 8 + 2*k, 9 + 2*k} {
			b = append(b, repeat([]byte{byte(g), 0}, 8)...)
		}
		VMOVDQU16(table("q2kWords"+string(rune('0'+k)), b), words[k])
	}
	return words
}

// two sets q to code k of the bytes of v.
func two(k int, v, q reg.VecPhysical) {
	if k == 0 {
		VPANDD(zmm(31), v, q)
		return
	}
	VPSRLW(Imm(uint64(2*k)), v, q)
	VPANDD(zmm(31), q, q)
}

// q2kRows multiplies rows of Q2_K by one row of activations, as q4kRows does.
func q2kRows() {
	const bytes = 84
	TEXT("q2kRowsVNNI", NOSPLIT, "func(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)")
	broadcast(0x03030303, zmm(31))
	broadcast(0x000f000f, zmm(30))
	words := spread(26)
	rowLoop(bytes, func(p, act reg.Register, sum reg.VecPhysical, n int) {
		total := [4]reg.VecPhysical{zmm(11), zmm(12), zmm(13), zmm(14)}
		mins := [4]reg.VecPhysical{zmm(16), zmm(17), zmm(18), zmm(19)}
		for r, v := range total {
			VPXORD(v, v, v)
			VPXORD(mins[r], mins[r], mins[r])
			if r >= n {
				continue
			}
			scales, m, codes := zmm(10), zmm(9), zmm(8)
			VPMOVZXBW(at(p, bytes*r), scales.AsY())
			VPSRLW(Imm(4), scales.AsY(), m.AsY())
			VPANDD(zmm(30).AsY(), scales.AsY(), scales.AsY())
			VPMADDWD(at(act, actBytes*r+actSums16), m.AsY(), mins[r].AsY())
			VMOVDQU8(at(p, bytes*r+16), codes)
			for k := range 4 {
				q, s := zmm(7), zmm(6)
				two(k, codes, q)
				VPMADDUBSW(at(act, actBytes*r+64*k), q, q)
				VPERMW(scales, words[k], s)
				VPDPWSSD(s, q, v)
			}
		}
		sumLanes(mins)
		VCVTDQ2PS(reg.X0, reg.X4)
		sumLanes(total)
		VCVTDQ2PS(reg.X0, reg.X0)
		VMOVD(at(p, 80), reg.X1)
		for r := 1; r < n; r++ {
			VPINSRD(Imm(uint64(r)), at(p, bytes*r+80), reg.X1, reg.X1)
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
func q3kRows() {
	const bytes = 110
	TEXT("q3kRowsVNNI", NOSPLIT, "func(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)")
	broadcast(0x03030303, zmm(31))
	words := spread(26)
	bit := table("q3kBit", dwords(0x04040404, 0x04040404))
	var turns [4]Mem
	for k := range turns {
		// Bit g of a byte belongs to group g, and comes to bit 2.
		g := uint32(k)
		turns[k] = table("q3kTurns"+string(rune('0'+k)), append(repeat(dwords((2-g)&63, 0), 4), repeat(dwords((2-g-4)&63, 0), 4)...))
	}
	// The 12 bytes of scales have the lower four bits of the 16 scales, then the upper two.
	lowPick := table("q3kLow", []byte{0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7})
	highPick := table("q3kHigh", []byte{8, 9, 10, 11, 8, 9, 10, 11, 8, 9, 10, 11, 8, 9, 10, 11})
	lowShift := table("q3kLowShift", dwords(0, 0, 4, 0))
	highShift := table("q3kHighShift", dwords(0, 2, 4, 6))
	nibble := table("q3kNibble", repeat(dwords(0x0f0f0f0f), 4))
	upper := table("q3kUpper", repeat(dwords(0x03030303), 4))
	offset := table("q3kOffset", repeat(dwords(0x20202020), 4))
	rowLoop(bytes, func(p, act reg.Register, sum reg.VecPhysical, n int) {
		total := [4]reg.VecPhysical{zmm(11), zmm(12), zmm(13), zmm(14)}
		for r, v := range total {
			VPXORD(v, v, v)
			if r >= n {
				continue
			}
			scales, high, codes := zmm(10), zmm(9), zmm(8)
			VMOVQ(at(p, bytes*r+96), reg.X0)
			VPINSRD(Imm(2), at(p, bytes*r+104), reg.X0, reg.X0)
			VPSHUFB(lowPick, reg.X0, reg.X1)
			VPSRLVQ(lowShift, reg.X1, reg.X1)
			VPAND(nibble, reg.X1, reg.X1)
			VPSHUFB(highPick, reg.X0, reg.X0)
			VPSRLVD(highShift, reg.X0, reg.X0)
			VPAND(upper, reg.X0, reg.X0)
			VPSLLD(Imm(4), reg.X0, reg.X0)
			VPOR(reg.X0, reg.X1, reg.X1)
			VPSUBB(offset, reg.X1, reg.X1)
			VPMOVSXBW(reg.X1, scales.AsY())
			VPMADDWD(at(act, actBytes*r+actSums16), scales.AsY(), reg.Y0)
			VPSLLD(Imm(2), reg.Y0, reg.Y0)
			VPSUBD(reg.Y0, v.AsY(), v.AsY())
			VBROADCASTI64X4(at(p, bytes*r), high)
			VMOVDQU8(at(p, bytes*r+32), codes)
			for k := range 4 {
				q, s, f := zmm(7), zmm(6), zmm(4)
				two(k, codes, q)
				VPROLVQ(turns[k], high, f)
				VPTERNLOGD_BCST(Imm(0xf8), bit, f, q) // q | f&bit
				VPMADDUBSW(at(act, actBytes*r+64*k), q, q)
				VPERMW(scales, words[k], s)
				VPDPWSSD(s, q, v)
			}
		}
		sumLanes(total)
		VPXOR(reg.X1, reg.X1, reg.X1)
		for r := range n {
			VPINSRW(Imm(uint64(r)), at(p, bytes*r+108), reg.X1, reg.X1)
		}
		VCVTPH2PS(reg.X1, reg.X1)
		VCVTDQ2PS(reg.X0, reg.X0)
		VMULPS(reg.X1, reg.X0, reg.X0)
		addLanes(act, sum, n)
	})
}

// tq20Rows is q2kRows for TQ2_0: the codes have an offset of 1, and there is one scale.
func tq20Rows() {
	const bytes = 66
	TEXT("tq20RowsVNNI", NOSPLIT, "func(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)")
	broadcast(0x03030303, zmm(31))
	broadcast(0xffffffff, zmm(30)) // words of -1
	rowLoop(bytes, func(p, act reg.Register, sum reg.VecPhysical, n int) {
		total := [4]reg.VecPhysical{zmm(11), zmm(12), zmm(13), zmm(14)}
		for r, v := range total {
			VPXORD(v, v, v)
			if r >= n {
				continue
			}
			codes := zmm(8)
			VPMADDWD(at(act, actBytes*r+actSums16), zmm(30).AsY(), v.AsY())
			VMOVDQU8(at(p, bytes*r), codes)
			for k := range 4 {
				q := zmm(7)
				two(k, codes, q)
				VPDPBUSD(at(act, actBytes*r+64*k), q, v)
			}
		}
		sumLanes(total)
		VPXOR(reg.X1, reg.X1, reg.X1)
		for r := range n {
			VPINSRW(Imm(uint64(r)), at(p, bytes*r+64), reg.X1, reg.X1)
		}
		VCVTPH2PS(reg.X1, reg.X1)
		VCVTDQ2PS(reg.X0, reg.X0)
		VMULPS(reg.X1, reg.X0, reg.X0)
		addLanes(act, sum, n)
	})
}
