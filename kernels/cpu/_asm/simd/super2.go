package main

import (
	. "github.com/fucina-go/fucina/kernels/cpu/_asm/gen"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The functions of this file multiply rows of super-blocks with AVX2, or also with AVX-VNNI.

// scaled2 adds words of q times words of s to v. It changes q.
func scaled2(vnni bool, s, q, v reg.VecPhysical) {
	if vnni {
		VexDPWSSD(s, q, v)
		return
	}
	VPMADDWD(s, q, q)
	VPADDD(q, v, v)
}

// scale2 sets s to words of scales of the groups 2k and 2k+1 of 16, or of the group k of 32.
func scale2(group, k int, scales, s reg.VecPhysical) {
	if group == 32 {
		VPSHUFB(wordIndex("word"+string(rune('0'+k)), k, k), scales, s)
		return
	}
	VPSHUFB(wordIndex("words"+string(rune('0'+k)), 2*k, 2*k+1), scales, s)
}

// two2 sets q to code k of the bytes at m.
func two2(m Mem, k int, q reg.VecPhysical) {
	mask := bytes2("lowTwos", 3)
	if k == 0 {
		VMOVDQU(mask, q)
		VPAND(m, q, q)
		return
	}
	VMOVDQU(m, q)
	VPSRLW(Imm(uint64(2*k)), q, q)
	VPAND(mask, q, q)
}

// lanes2 sets both to the lower and to the upper lane of v, twice.
func lanes2(v reg.VecPhysical, both [2]reg.VecPhysical) {
	VPERMQ(Imm(0xee), v, both[1])
	VPERMQ(Imm(0x44), v, both[0])
}

// q2kRows2 multiplies rows of Q2_K.
func q2kRows2(vnni bool) {
	const bytes = 84
	TEXT("q2kRows"+level2(vnni), NOSPLIT, smallArgs)
	mins := [4]reg.VecPhysical{ymm(12), ymm(13), ymm(14), ymm(15)}
	rowLoop(bytes, func(p, act reg.Register, sum reg.VecPhysical, n int) {
		for r, v := range totals {
			VPXOR(v, v, v)
			if r >= n {
				VPXOR(mins[r], mins[r], mins[r])
				continue
			}
			scales, m := ymm(2), mins[r]
			VPMOVZXBW(At(p, bytes*r), scales)
			VPSRLW(Imm(4), scales, m)
			VPMADDWD(At(act, actBytes*r+actSums16), m, m)
			VPAND(bytes2("lowHalves", 15), scales, scales)
			both := [2]reg.VecPhysical{ymm(6), ymm(7)}
			lanes2(scales, both)
			for k := range 4 {
				for h := range 2 {
					q, s := ymm(3), ymm(4)
					two2(At(p, bytes*r+16+32*h), k, q)
					VPMADDUBSW(At(act, actBytes*r+64*k+32*h), q, q)
					scale2(16, k, both[h], s)
					scaled2(vnni, s, q, v)
				}
			}
		}
		sumWords(mins)
		VCVTDQ2PS(reg.X0, reg.X4)
		sumWords(totals)
		VCVTDQ2PS(reg.X0, reg.X0)
		halfPairs(p, bytes, 80, n)
		VMULPS(reg.X1, reg.X0, reg.X0)
		VFNMADD231PS(reg.X2, reg.X4, reg.X0)
		addLanes(act, sum, n)
	})
}

// q3kRows2 multiplies rows of Q3_K.
func q3kRows2(vnni bool) {
	const bytes = 110
	TEXT("q3kRows"+level2(vnni), NOSPLIT, smallArgs)
	third := bytes2("thirdBits", 4)
	rowLoop(bytes, func(p, act reg.Register, sum reg.VecPhysical, n int) {
		for r, v := range totals {
			VPXOR(v, v, v)
			if r >= n {
				continue
			}
			scales, high, t := ymm(2), ymm(12), ymm(0)
			VMOVQ(At(p, bytes*r+96), reg.X0)
			VPINSRD(Imm(2), At(p, bytes*r+104), reg.X0, reg.X0)
			VPSHUFB(Table("q3kLow", nil), reg.X0, reg.X1)
			VPSRLVQ(Table("q3kLowShift", nil), reg.X1, reg.X1)
			VPAND(Table("q3kNibble", nil), reg.X1, reg.X1)
			VPSHUFB(Table("q3kHigh", nil), reg.X0, reg.X0)
			VPSRLVD(Table("q3kHighShift", nil), reg.X0, reg.X0)
			VPAND(Table("q3kUpper", nil), reg.X0, reg.X0)
			VPSLLD(Imm(4), reg.X0, reg.X0)
			VPOR(reg.X0, reg.X1, reg.X1)
			VPSUBB(Table("q3kOffset", nil), reg.X1, reg.X1)
			VPMOVSXBW(reg.X1, scales)
			VPMADDWD(At(act, actBytes*r+actSums16), scales, t)
			VPSLLD(Imm(2), t, t)
			VPSUBD(t, v, v)
			both := [2]reg.VecPhysical{ymm(6), ymm(7)}
			lanes2(scales, both)
			VMOVDQU(At(p, bytes*r), high)
			for k := range 4 {
				for h := range 2 {
					q, s, f := ymm(3), ymm(4), ymm(1)
					two2(At(p, bytes*r+32+32*h), k, q)
					shifted(high, 2-4*h-k, f)
					VPAND(third, f, f)
					VPOR(f, q, q)
					VPMADDUBSW(At(act, actBytes*r+64*k+32*h), q, q)
					scale2(16, k, both[h], s)
					scaled2(vnni, s, q, v)
				}
			}
		}
		sumWords(totals)
		VCVTDQ2PS(reg.X0, reg.X0)
		halfWords(p, bytes, 108, n)
		VMULPS(reg.X1, reg.X0, reg.X0)
		addLanes(act, sum, n)
	})
}

// shifted sets f to the words of v, left bits to the left.
func shifted(v reg.VecPhysical, left int, f reg.VecPhysical) {
	switch {
	case left > 0:
		VPSLLW(Imm(uint64(left)), v, f)
	case left < 0:
		VPSRLW(Imm(uint64(-left)), v, f)
	default:
		VMOVDQA(v, f)
	}
}

// tq20Rows2 multiplies rows of TQ2_0. The sums of two products of 3 times 127 can be added eight
// times as words of 16 bits.
func tq20Rows2(vnni bool) {
	const bytes = 66
	TEXT("tq20Rows"+level2(vnni), NOSPLIT, smallArgs)
	ones := ymm(15)
	VMOVDQU(Table("ones2", nil), ones)
	rowLoop(bytes, func(p, act reg.Register, sum reg.VecPhysical, n int) {
		for r, v := range totals {
			if r >= n {
				VPXOR(v, v, v)
				continue
			}
			offset := ymm(2)
			VPMADDWD(At(act, actBytes*r+actSums16), ones, offset)
			VPXOR(v, v, v)
			if vnni {
				VPSUBD(offset, v, v)
			}
			for k := range 4 {
				for h := range 2 {
					q, a := ymm(3), ymm(4)
					two2(At(p, bytes*r+32*h), k, q)
					m := At(act, actBytes*r+64*k+32*h)
					if vnni {
						VMOVDQU(m, a)
						VexDPBUSD(a, q, v)
						continue
					}
					VPMADDUBSW(m, q, q)
					VPADDW(q, v, v)
				}
			}
			if !vnni {
				VPMADDWD(ones, v, v)
				VPSUBD(offset, v, v)
			}
		}
		sumWords(totals)
		VCVTDQ2PS(reg.X0, reg.X0)
		halfWords(p, bytes, 64, n)
		VMULPS(reg.X1, reg.X0, reg.X0)
		addLanes(act, sum, n)
	})
}

// iq4xsRows2 multiplies rows of IQ4_XS. The activations get the signs of the levels.
func iq4xsRows2(vnni bool) {
	TEXT("iq4xsRows"+level2(vnni), NOSPLIT, smallArgs)
	// The first 8 bytes of a block have d, the upper two bits of the 8 scales, and their lower four.
	var low, high []uint32
	for g := range uint32(8) {
		low, high = append(low, 4*g), append(high, 16+2*g)
	}
	all := func(name string, w uint32) Mem { return Table(name, Repeat(Dwords(w), 8)) }
	shifts, mask, levels := ymm(15), ymm(14), ymm(13)
	VMOVDQU(Table("nibbleShifts", nil), shifts)
	VMOVDQU(bytes2("lowHalves", 15), mask)
	VMOVDQU(Table("iq4nlLevels2", nil), levels)
	rowLoop(iq4xsBytes, func(p, act reg.Register, sum reg.VecPhysical, n int) {
		for r, v := range totals {
			VPXOR(v, v, v)
			if r >= n {
				continue
			}
			scales, t := ymm(2), ymm(3)
			VPBROADCASTD(At(p, iq4xsBytes*r+4), scales)
			VPSRLVD(Table("iq4xsLow2", Dwords(low...)), scales, scales)
			VPAND(all("nibble2", 15), scales, scales)
			VPBROADCASTD(At(p, iq4xsBytes*r), t)
			VPSRLVD(Table("iq4xsHigh2", Dwords(high...)), t, t)
			VPAND(all("two2", 3), t, t)
			VPSLLD(Imm(4), t, t)
			VPOR(t, scales, scales)
			VPSUBD(all("offset2", 32), scales, scales)
			VPACKSSDW(scales, scales, scales)
			VPERMQ(Imm(0x88), scales, scales)
			for g := range 8 {
				q, a, s := ymm(3), ymm(4), ymm(6)
				VBROADCASTI128(At(p, iq4xsBytes*r+8+16*g), q)
				VPSRLVQ(shifts, q, q)
				VPAND(mask, q, q)
				VPSHUFB(q, levels, q)
				VMOVDQU(At(act, actBytes*r+32*g), a)
				VPSIGNB(q, a, a)
				VPABSB(q, q)
				VPMADDUBSW(a, q, q)
				scale2(32, g, scales, s)
				scaled2(vnni, s, q, v)
			}
		}
		sumWords(totals)
		VCVTDQ2PS(reg.X0, reg.X0)
		halfWords(p, iq4xsBytes, 0, n)
		VMULPS(reg.X1, reg.X0, reg.X0)
		addLanes(act, sum, n)
	})
}
