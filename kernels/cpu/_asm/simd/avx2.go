package main

import (
	. "github.com/fucina-go/fucina/kernels/cpu/_asm/gen"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The functions of this file need AVX2, FMA and F16C, and AVX-VNNI where they say so.

var ymms = [...]reg.VecPhysical{
	reg.Y0, reg.Y1, reg.Y2, reg.Y3, reg.Y4, reg.Y5, reg.Y6, reg.Y7, reg.Y8, reg.Y9, reg.Y10, reg.Y11, reg.Y12, reg.Y13, reg.Y14, reg.Y15,
}

func ymm(i int) reg.VecPhysical { return ymms[i] }

// bytes2 returns a table of 32 equal bytes.
func bytes2(name string, b byte) Mem { return Table(name, Repeat([]byte{b}, 32)) }

// wordIndex returns a table for VPSHUFB that takes word g of each lane everywhere, or word g in the
// lower lane and word h in the upper one.
func wordIndex(name string, g, h int) Mem {
	return Table(name, append(Repeat([]byte{byte(2 * g), byte(2*g + 1)}, 8), Repeat([]byte{byte(2 * h), byte(2*h + 1)}, 8)...))
}

// sumWords sets word r of X0 to the sum of the words of v[r], which are ymm 8 to 11. It changes v and
// Y1.
func sumWords(v [4]reg.VecPhysical) {
	VPHADDD(v[1], v[0], v[0])
	VPHADDD(v[3], v[2], v[2])
	VPHADDD(v[2], v[0], v[0])
	VEXTRACTI128(Imm(1), v[0], reg.X1)
	VPADDD(v[0].AsX(), reg.X1, reg.X0)
}

// totals are the sums of four super-blocks.
var totals = [4]reg.VecPhysical{ymm(8), ymm(9), ymm(10), ymm(11)}

// q4kRowsAVX2 multiplies rows of Q4_K, or of Q5_K if fifth.
func q4kRowsAVX2(fifth, vnni bool) {
	name, bytes, codes := "q4k", 144, 16
	if fifth {
		name, bytes, codes = "q5k", 176, 48
	}
	TEXT(name+"Rows"+level2(vnni), NOSPLIT, smallArgs)
	pick, pickHigh := Table("q4kPick", nil), Table("q4kPickHigh", nil)
	mask, high, shifts := Table("q4kMask", nil), Table("q4kHigh", nil), Table("q4kShifts", nil)
	low := bytes2("lowHalves", 15)
	rowLoop(bytes, func(p, act reg.Register, sum reg.VecPhysical, n int) {
		mask4 := ymm(15)
		VMOVDQU(low, mask4)
		for r, v := range totals {
			VPXOR(v, v, v)
			if r >= n {
				continue
			}
			x, t, scales := reg.X0, reg.X1, ymm(2)
			VMOVDQU(At(p, bytes*r), x)
			VPSHUFB(pick, x, t)
			VPSRLVD(shifts, t, t)
			VPAND(mask, t, t)
			VPSHUFB(pickHigh, x, x)
			VPSRLD(Imm(2), x, x)
			VPAND(high, x, x)
			VPOR(x, t, t)
			VPMOVZXBW(t, scales)
			VEXTRACTI128(Imm(1), scales, x)
			VPMADDWD(At(act, actBytes*r+actSums32), x, minsOf(r).AsX())
			addMins(r, n)
			VPERMQ(Imm(0x44), scales, scales)
			if fifth {
				VMOVDQU(At(p, bytes*r+16), ymm(6))
			}
			words := &scaled2{vnni: vnni, total: v, second: ymm(1)}
			for g := range 8 {
				two, q, s := ymm(0), ymm(3), ymm(4)
				if g%2 == 0 {
					VMOVDQU(At(p, bytes*r+codes+32*(g/2)), two)
					VPAND(mask4, two, q)
				} else {
					VPSRLW(Imm(4), two, q)
					VPAND(mask4, q, q)
				}
				if fifth {
					f := ymm(7)
					switch {
					case g < 4:
						VPSLLW(Imm(uint64(4-g)), ymm(6), f)
					default:
						VPSRLW(Imm(uint64(g-4)), ymm(6), f)
					}
					VPAND(bytes2("fifthBits", 16), f, f)
					VPOR(f, q, q)
				}
				VPMADDUBSW(At(act, actBytes*r+32*halvesOrder[g]), q, q)
				scale2(32, g, scales, s)
				words.add(s, q)
			}
			words.finish()
		}
		VCVTDQ2PS(reg.X12, reg.X4)
		sumWords(totals)
		VCVTDQ2PS(reg.X0, reg.X0)
		halfPairs(p, bytes, 0, n)
		VMULPS(reg.X1, reg.X0, reg.X0)
		VFNMADD231PS(reg.X2, reg.X4, reg.X0)
		addLanes(act, sum, n)
	})
}

// minsOf is where the words of the minima of super-block r come.
func minsOf(r int) reg.VecPhysical { return ymm(12 + (r+1)/2) }

// addMins adds the words that minsOf(r) has for super-block r, one of n. After the last super-block,
// word r of X12 is the sum for super-block r of what was in lower lanes, and word r of the upper lane of
// Y12 that of what was in upper lanes. It changes the registers 12 to 14.
func addMins(r, n int) {
	a, b, c := ymm(12), ymm(13), ymm(14)
	switch {
	case n == 1:
		VPHADDD(a, a, a)
		VPHADDD(a, a, a)
	case r == 1:
		VPHADDD(b, a, a)
	case r == 3:
		VPHADDD(c, b, b)
		VPHADDD(b, a, a)
	}
}

// halfPairs sets the words of X1 and X2 to the two halves at the given offset of n super-blocks.
func halfPairs(p reg.Register, bytes, offset, n int) {
	VMOVD(At(p, offset), reg.X1)
	for r := 1; r < n; r++ {
		VPINSRD(Imm(uint64(r)), At(p, bytes*r+offset), reg.X1, reg.X1)
	}
	VPSRLD(Imm(16), reg.X1, reg.X2)
	VPSLLD(Imm(16), reg.X1, reg.X1)
	VPSRLD(Imm(16), reg.X1, reg.X1)
	VPACKUSDW(reg.X2, reg.X1, reg.X1)
	VCVTPH2PS(reg.X1, reg.Y1)
	VEXTRACTF128(Imm(1), reg.Y1, reg.X2)
}

// halfWords sets the words of X1 to the halves at the given offset of n super-blocks.
func halfWords(p reg.Register, bytes, offset, n int) {
	VPXOR(reg.X1, reg.X1, reg.X1)
	for r := range n {
		VPINSRW(Imm(uint64(r)), At(p, bytes*r+offset), reg.X1, reg.X1)
	}
	VCVTPH2PS(reg.X1, reg.X1)
}

// q6kRowsAVX2 multiplies rows of Q6_K.
func q6kRowsAVX2(vnni bool) {
	const bytes = 210
	TEXT("q6kRows"+level2(vnni), NOSPLIT, smallArgs)
	low, upper := bytes2("lowHalves", 15), bytes2("upperBits2", 0x30)
	rowLoop(bytes, func(p, act reg.Register, sum reg.VecPhysical, n int) {
		mask4, mask2, bits := ymm(15), ymm(14), ymm(13)
		VMOVDQU(low, mask4)
		VMOVDQU(upper, mask2)
		for r, v := range totals {
			VPXOR(v, v, v)
			if r >= n {
				continue
			}
			scales, offset := ymm(2), ymm(3)
			VPMOVSXBW(At(p, bytes*r+192), scales)
			VPMADDWD(At(act, actBytes*r+actSums16), scales, offset)
			VPSLLD(Imm(5), offset, offset)
			VPSUBD(offset, v, v)
			// The words of each lane are the scales of 8 groups of 16.
			both := [2]reg.VecPhysical{ymm(6), ymm(7)}
			lanes2(scales, both)
			words := &scaled2{vnni: vnni, total: v, second: ymm(1)}
			for g := range 8 {
				h, k := g/4, g%4
				q, f, s := ymm(3), ymm(4), ymm(12)
				if m := At(p, bytes*r+64*h+32*(k%2)); k < 2 {
					VPAND(m, mask4, q)
				} else {
					VMOVDQU(m, q)
					VPSRLW(Imm(4), q, q)
					VPAND(mask4, q, q)
				}
				if k == 0 {
					VMOVDQU(At(p, bytes*r+128+32*h), bits)
				}
				shift := bits
				if k != 2 {
					shift = f
					shifted(bits, 4-2*k, f)
				}
				VPAND(mask2, shift, f)
				VPOR(f, q, q)
				VPMADDUBSW(At(act, actBytes*r+32*g), q, q)
				scale2(16, k, both[h], s)
				words.add(s, q)
			}
			words.finish()
		}
		sumWords(totals)
		VCVTDQ2PS(reg.X0, reg.X0)
		halfWords(p, bytes, 208, n)
		VMULPS(reg.X1, reg.X0, reg.X0)
		addLanes(act, sum, n)
	})
}
