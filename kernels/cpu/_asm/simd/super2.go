package main

import (
	. "github.com/fucina-go/fucina/kernels/cpu/_asm/gen"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The functions of this file multiply rows of super-blocks with AVX2, or also with AVX-VNNI.

// scaled2 adds up words times scales. VPDPWSSD takes long, so that it needs a second register.
type scaled2 struct {
	vnni          bool
	total, second reg.VecPhysical
	n             int
}

// add adds words of q times words of s. It changes q.
func (t *scaled2) add(s, q reg.VecPhysical) {
	t.n++
	switch {
	case !t.vnni:
		VPMADDWD(s, q, q)
		VPADDD(q, t.total, t.total)
	case t.n == 2:
		VPMADDWD(s, q, t.second)
	case t.n%2 == 0:
		DotWords(s, q, t.second)
	default:
		DotWords(s, q, t.total)
	}
}

// finish completes the total.
func (t *scaled2) finish() {
	if t.vnni {
		VPADDD(t.second, t.total, t.total)
	}
}

// scale2 sets s to words of scales of the groups 2k and 2k+1 of 16, or of the group k of 32.
func scale2(group, k int, scales, s reg.VecPhysical) {
	if group == 32 {
		VPSHUFB(wordIndex("word"+string(rune('0'+k)), k, k), scales, s)
		return
	}
	VPSHUFB(wordIndex("words"+string(rune('0'+k)), 2*k, 2*k+1), scales, s)
}

// two2 sets q to code k of the bytes of v. Y15 has 3 in each byte.
func two2(v reg.VecPhysical, k int, q reg.VecPhysical) {
	if k > 0 {
		VPSRLW(Imm(uint64(2*k)), v, q)
		v = q
	}
	VPAND(ymm(15), v, q)
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
	VMOVDQU(bytes2("lowTwos", 3), ymm(15))
	codes := [2]reg.VecPhysical{ymm(0), ymm(1)}
	rowLoop(bytes, func(p, act reg.Register, sum reg.VecPhysical, n int) {
		for r, v := range totals {
			VPXOR(v, v, v)
			if r >= n {
				continue
			}
			scales, m := ymm(2), minsOf(r)
			VPMOVZXBW(At(p, bytes*r), scales)
			VPSRLW(Imm(4), scales, m)
			VPMADDWD(At(act, actBytes*r+actSums16), m, m)
			addMins(r, n)
			VPAND(bytes2("lowHalves", 15), scales, scales)
			both := [2]reg.VecPhysical{ymm(6), ymm(7)}
			lanes2(scales, both)
			for h, v := range codes {
				VMOVDQU(At(p, bytes*r+16+32*h), v)
			}
			words := &scaled2{vnni: vnni, total: v, second: scales}
			for k := range 4 {
				for h := range 2 {
					q, s := ymm(3), ymm(4)
					two2(codes[h], k, q)
					VPMADDUBSW(At(act, actBytes*r+64*k+32*h), q, q)
					scale2(16, k, both[h], s)
					words.add(s, q)
				}
			}
			words.finish()
		}
		VEXTRACTI128(Imm(1), ymm(12), reg.X4)
		VPADDD(reg.X12, reg.X4, reg.X4)
		VCVTDQ2PS(reg.X4, reg.X4)
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
	third := ymm(14)
	VMOVDQU(bytes2("thirdBits", 4), third)
	VMOVDQU(bytes2("lowTwos", 3), ymm(15))
	codes := [2]reg.VecPhysical{ymm(0), ymm(13)}
	rowLoop(bytes, func(p, act reg.Register, sum reg.VecPhysical, n int) {
		for r, v := range totals {
			VPXOR(v, v, v)
			if r >= n {
				continue
			}
			scales, high, t := ymm(2), ymm(12), ymm(0)
			VMOVQ(At(p, bytes*r+96), reg.X0)
			VPINSRD(Imm(2), At(p, bytes*r+104), reg.X0, reg.X0)
			VPSHUFB(Table("q3kLow", []byte{0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7}), reg.X0, reg.X1)
			VPSRLVQ(Table("q3kLowShift", nil), reg.X1, reg.X1)
			VPAND(Table("q3kNibble", Repeat(Dwords(0x0f0f0f0f), 4)), reg.X1, reg.X1)
			VPSHUFB(Table("q3kHigh", Repeat([]byte{8, 9, 10, 11}, 4)), reg.X0, reg.X0)
			VPSRLVD(Table("q3kHighShift", Dwords(0, 2, 4, 6)), reg.X0, reg.X0)
			VPAND(Table("q3kUpper", Repeat(Dwords(0x03030303), 4)), reg.X0, reg.X0)
			VPSLLD(Imm(4), reg.X0, reg.X0)
			VPOR(reg.X0, reg.X1, reg.X1)
			VPSUBB(Table("q3kOffset", Repeat(Dwords(0x20202020), 4)), reg.X1, reg.X1)
			VPMOVSXBW(reg.X1, scales)
			VPMADDWD(At(act, actBytes*r+actSums16), scales, t)
			VPSLLD(Imm(2), t, t)
			VPSUBD(t, v, v)
			both := [2]reg.VecPhysical{ymm(6), ymm(7)}
			lanes2(scales, both)
			VMOVDQU(At(p, bytes*r), high)
			for h, v := range codes {
				VMOVDQU(At(p, bytes*r+32+32*h), v)
			}
			words := &scaled2{vnni: vnni, total: v, second: scales}
			for k := range 4 {
				for h := range 2 {
					q, s, f := ymm(3), ymm(4), ymm(1)
					two2(codes[h], k, q)
					shifted(high, 2-4*h-k, f)
					VPAND(third, f, f)
					VPOR(f, q, q)
					VPMADDUBSW(At(act, actBytes*r+64*k+32*h), q, q)
					scale2(16, k, both[h], s)
					words.add(s, q)
				}
			}
			words.finish()
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
	ones := ymm(14)
	VMOVDQU(Table("ones2", nil), ones)
	VMOVDQU(bytes2("lowTwos", 3), ymm(15))
	codes := [2]reg.VecPhysical{ymm(0), ymm(1)}
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
			for h, v := range codes {
				VMOVDQU(At(p, bytes*r+32*h), v)
			}
			for k := range 4 {
				for h := range 2 {
					q, a := ymm(3), ymm(4)
					two2(codes[h], k, q)
					m := At(act, actBytes*r+64*k+32*h)
					if vnni {
						VMOVDQU(m, a)
						DotBytes(a, q, v)
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
			VPAND(all2("nibble2", 15), scales, scales)
			VPBROADCASTD(At(p, iq4xsBytes*r), t)
			VPSRLVD(Table("iq4xsHigh2", Dwords(high...)), t, t)
			VPAND(all2("two2", 3), t, t)
			VPSLLD(Imm(4), t, t)
			VPOR(t, scales, scales)
			VPSUBD(all2("offset2", 32), scales, scales)
			VPACKSSDW(scales, scales, scales)
			VPERMQ(Imm(0x88), scales, scales)
			words := &scaled2{vnni: vnni, total: v, second: ymm(7)}
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
				words.add(s, q)
			}
			words.finish()
		}
		sumWords(totals)
		VCVTDQ2PS(reg.X0, reg.X0)
		halfWords(p, iq4xsBytes, 0, n)
		VMULPS(reg.X1, reg.X0, reg.X0)
		addLanes(act, sum, n)
	})
}
