package main

import (
	. "github.com/fucina-go/fucina/kernels/cpu/_asm/gen"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// q4kRows multiplies rows of Q4_K by one row of activations. Four super-blocks of a row are taken at
// once, so that the weights are one sequential stream. Their headers share a zmm, in which all
// scales are unpacked together. The block sums come into the lanes of an xmm.
//
// With VBMI and GFNI, a permutation of bytes spreads the scales, and one instruction shifts bytes.
func q4kRows(vbmi bool) {
	TEXT("q4kRows"+level(vbmi), NOSPLIT, "func(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)")
	k := q4kConsts(vbmi)
	k.bytes, k.codes = 144, 16
	rowLoop(k.bytes, k.blocks)
}

// q5kRows is q4kRows for Q5_K, which has a fifth bit of each code.
func q5kRows(vbmi bool) {
	TEXT("q5kRows"+level(vbmi), NOSPLIT, "func(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)")
	k := q4kConsts(vbmi)
	k.bytes, k.codes, k.fifth = 176, 48, true
	for i := range k.turns {
		// Bit g of a byte belongs to group g, and comes to bit 4.
		g := uint32([]int{0, 1, 4, 5}[i])
		k.turns[i] = Table("q5kTurns"+string(rune('0'+i)), append(Repeat(Dwords((4-g)&63, 0), 4), Repeat(Dwords((4-g-2)&63, 0), 4)...))
	}
	k.bit = Table("q5kBit", Dwords(0x10101010, 0x10101010))
	rowLoop(k.bytes, k.blocks)
}

// q4k are the constants of q4kRows and q5kRows.
type q4k struct {
	bytes, codes int // of a super-block, and where its codes begin
	vbmi         bool

	// fifth says that the bytes 16 to 47 have the fifth bits.
	fifth bool
	turns [4]Mem
	bit   Mem

	low, shift4, zero                  reg.VecPhysical
	words                              [4]reg.VecPhysical // the scales of two groups as words
	pick, pickHigh, mask, high, shifts reg.VecPhysical
	halves, lanes                      reg.VecPhysical
	even                               reg.OpmaskPhysical
}

func q4kConsts(vbmi bool) *q4k {
	k := &q4k{
		vbmi: vbmi,
		low:  Z(31), shift4: Z(30), zero: Z(20), words: [4]reg.VecPhysical{Z(26), Z(27), Z(28), Z(29)},
		pick: Z(25), pickHigh: Z(24), mask: Z(23), high: Z(22), shifts: Z(21), halves: Z(19), lanes: Z(18), even: reg.K1,
	}
	Broadcast(0x0f0f0f0f, k.low)
	t := GP64()
	if vbmi {
		shiftMatrix(k.shift4)
	}
	for i, v := range k.words {
		g := []byte{0, 1, 4, 5}[i]
		VMOVDQU32(Table("q4kWords"+string(rune('0'+i)), append(Repeat([]byte{g, 0}, 16), Repeat([]byte{g + 2, 0}, 16)...)), v)
	}
	// The scales and minima are in the bytes 4 to 15 of a header: those of the groups 0 to 3 are the
	// low 6 bits of the first two words, those of the groups 4 to 7 the halves of the bytes of the
	// third, with the upper two bits of the first two above them.
	VBROADCASTI32X4(Table("q4kPick", []byte{4, 5, 6, 7, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15}), k.pick)
	VBROADCASTI32X4(Table("q4kPickHigh", []byte{128, 128, 128, 128, 4, 5, 6, 7, 128, 128, 128, 128, 8, 9, 10, 11}), k.pickHigh)
	VBROADCASTI32X4(Table("q4kMask", Dwords(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f)), k.mask)
	VBROADCASTI32X4(Table("q4kHigh", Repeat(Dwords(0x30303030), 4)), k.high)
	VBROADCASTI32X4(Table("q4kShifts", Dwords(0, 0, 0, 4)), k.shifts)
	VPXORD(k.zero, k.zero, k.zero)
	words := make([]byte, 64)
	for r := range byte(4) {
		words[2*r], words[8+2*r] = 8*r, 8*r+1
	}
	VMOVDQU32(Table("q4kHalves", words), k.halves)
	VMOVDQU32(Table("q4kLanes", append(Dwords(0, 4, 8, 12), make([]byte, 48)...)), k.lanes)
	if vbmi {
		MOVQ(U64(0x5555555555555555), t)
		KMOVQ(t, k.even)
	}
	return k
}

// blocks adds n super-blocks, 4 or 1, at p to the sum.
func (k *q4k) blocks(p, act reg.Register, sum reg.VecPhysical, n int) {
	head, codes, t := Z(17), Z(16), Z(15)
	VMOVDQU32(At(p, 0), head.AsX())
	for r := 1; r < n; r++ {
		VINSERTI32X4(Imm(uint64(r)), At(p, k.bytes*r), head, head)
	}
	VPSHUFB(k.pick, head, codes)
	VPSRLVD(k.shifts, codes, codes)
	VPANDD(k.mask, codes, codes)
	VPSHUFB(k.pickHigh, head, t)
	VPSRLD(Imm(2), t, t)
	VPTERNLOGD(Imm(0xf8), k.high, t, codes) // codes | t&high
	total := [4]reg.VecPhysical{Z(11), Z(12), Z(13), Z(14)}
	for r, v := range total {
		VPXORD(v, v, v)
		if r >= n {
			continue
		}
		scales := Z(10)
		if k.vbmi {
			VSHUFI32X4(Imm(uint64(0x55*r)), codes, codes, scales)
		} else {
			VEXTRACTI32X4(Imm(uint64(r)), codes, scales.AsX())
			VPMOVZXBW(scales.AsX(), scales.AsY())
		}
		bits, f := Z(6), Z(3)
		if k.fifth {
			VBROADCASTI64X4(At(p, k.bytes*r+16), bits)
		}
		for h := range 2 {
			low, high := Z(8), Z(7)
			VMOVDQU8(At(p, k.bytes*r+k.codes+64*h), low)
			halvesOf(k.vbmi, low, high, k.low, k.shift4)
			for i, q := range []reg.VecPhysical{low, high} {
				if k.fifth {
					VPROLVQ(k.turns[2*h+i], bits, f)
					VPTERNLOGD_BCST(Imm(0xf8), k.bit, f, q) // q | f&bit
				}
				s := Z(9)
				VPMADDUBSW(At(act, actBytes*r+128*h+64*i), q, q)
				if k.vbmi {
					VPERMB_Z(scales, k.words[2*h+i], k.even, s)
				} else {
					VPERMW(scales, k.words[2*h+i], s)
				}
				VPDPWSSD(s, q, v)
			}
		}
	}
	mins, m := Z(4), Z(3)
	VPUNPCKHBW(k.zero, codes, mins)
	VMOVDQU32(At(act, actSums32), m.AsX())
	for r := 1; r < n; r++ {
		VINSERTI32X4(Imm(uint64(r)), At(act, actBytes*r+actSums32), m, m)
	}
	VPMADDWD(m, mins, mins)
	VPSHUFD(Imm(0x4e), mins, m)
	VPADDD(m, mins, mins)
	VPSHUFD(Imm(0xb1), mins, m)
	VPADDD(m, mins, mins)
	VPERMD(mins, k.lanes, mins)
	sumLanes(total)
	VPERMW(head, k.halves, Z(1))
	VCVTPH2PS(reg.X1, reg.Y1)
	VEXTRACTF128(Imm(1), reg.Y1, reg.X2)
	VCVTDQ2PS(reg.X0, reg.X0)
	VCVTDQ2PS(reg.X4, reg.X4)
	VMULPS(reg.X1, reg.X0, reg.X0)
	VFNMADD231PS(reg.X2, reg.X4, reg.X0)
	addLanes(act, sum, n)
}

// level returns the end of the name of a function.
func level(vbmi bool) string {
	if vbmi {
		return "VBMI"
	}
	return "VNNI"
}

// shiftMatrix sets v to the matrix of a shift of bytes to the right by 4.
func shiftMatrix(v reg.VecPhysical) {
	t := GP64()
	MOVQ(U64(0x1020408000000000), t)
	VPBROADCASTQ(t, v)
}

// halvesOf divides the bytes of low into their halves. mask has 15 in each byte. With VBMI, matrix is
// that of shiftMatrix.
func halvesOf(vbmi bool, low, high, mask, matrix reg.VecPhysical) {
	if vbmi {
		VGF2P8AFFINEQB(Imm(0), matrix, low, high)
	} else {
		VPSRLW(Imm(4), low, high)
		VPANDD(mask, high, high)
	}
	VPANDD(mask, low, low)
}
