package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const q4kBytes = 144

// q4kRows multiplies rows of Q4_K by one row of activations. Four super-blocks of a row are taken at
// once, so that the weights are one sequential stream. Their headers share a zmm, in which all
// scales are unpacked together. The block sums come into the lanes of an xmm.
func q4kRows() {
	TEXT("q4kRowsVBMI", NOSPLIT, "func(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)")
	out, w := Load(Param("out"), GP64()), Load(Param("w"), GP64())
	rowBytes, rows := Load(Param("rowBytes"), GP64()), Load(Param("rows"), GP64())
	k := q4kConsts()
	act, p, n := GP64(), GP64(), GP64()
	sum := reg.X5

	Label("row")
	Load(Param("act"), act)
	Load(Param("blocks"), n)
	MOVQ(w, p)
	VPXORD(zmm(5), zmm(5), zmm(5))
	SUBQ(Imm(4), n)
	JL(LabelRef("rest"))
	Label("four")
	k.blocks(p, act, sum, 4)
	ADDQ(I32(4*q4kBytes), p)
	ADDQ(I32(4*actBytes), act)
	SUBQ(Imm(4), n)
	JGE(LabelRef("four"))
	Label("rest")
	ADDQ(Imm(4), n)
	JZ(LabelRef("done"))
	Label("one")
	k.blocks(p, act, sum, 1)
	ADDQ(I32(q4kBytes), p)
	ADDQ(I32(actBytes), act)
	DECQ(n)
	JNZ(LabelRef("one"))
	Label("done")
	VMOVSS(sum, Mem{Base: out})
	ADDQ(Imm(4), out)
	ADDQ(rowBytes, w)
	DECQ(rows)
	JNZ(LabelRef("row"))
	VZEROUPPER()
	RET()
}

// q4k are the constants of q4kRows.
type q4k struct {
	low, shift4, zero                  reg.VecPhysical
	words                              [4]reg.VecPhysical // the scales of two groups as words
	pick, pickHigh, mask, high, shifts reg.VecPhysical
	halves, lanes                      reg.VecPhysical
	even                               reg.OpmaskPhysical
}

func q4kConsts() *q4k {
	k := &q4k{
		low: zmm(31), shift4: zmm(30), zero: zmm(20), words: [4]reg.VecPhysical{zmm(26), zmm(27), zmm(28), zmm(29)},
		pick: zmm(25), pickHigh: zmm(24), mask: zmm(23), high: zmm(22), shifts: zmm(21), halves: zmm(19), lanes: zmm(18), even: reg.K1,
	}
	broadcast(0x0f0f0f0f, k.low)
	t := GP64()
	MOVQ(U64(0x1020408000000000), t) // the matrix of a shift right by 4
	VPBROADCASTQ(t, k.shift4)
	for i, v := range k.words {
		g := []byte{0, 1, 4, 5}[i]
		VMOVDQU32(table("q4kWords"+string(rune('0'+i)), append(repeat([]byte{g, 0}, 16), repeat([]byte{g + 2, 0}, 16)...)), v)
	}
	// The scales and minima are in the bytes 4 to 15 of a header: those of the groups 0 to 3 are the
	// low 6 bits of the first two words, those of the groups 4 to 7 the halves of the bytes of the
	// third, with the upper two bits of the first two above them.
	VBROADCASTI32X4(table("q4kPick", []byte{4, 5, 6, 7, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15}), k.pick)
	VBROADCASTI32X4(table("q4kPickHigh", []byte{128, 128, 128, 128, 4, 5, 6, 7, 128, 128, 128, 128, 8, 9, 10, 11}), k.pickHigh)
	VBROADCASTI32X4(table("q4kMask", dwords(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f)), k.mask)
	VBROADCASTI32X4(table("q4kHigh", repeat(dwords(0x30303030), 4)), k.high)
	VBROADCASTI32X4(table("q4kShifts", dwords(0, 0, 0, 4)), k.shifts)
	VPXORD(k.zero, k.zero, k.zero)
	words := make([]byte, 64)
	for r := range byte(4) {
		words[2*r], words[8+2*r] = 8*r, 8*r+1
	}
	VMOVDQU32(table("q4kHalves", words), k.halves)
	VMOVDQU32(table("q4kLanes", append(dwords(0, 4, 8, 12), make([]byte, 48)...)), k.lanes)
	MOVQ(U64(0x5555555555555555), t)
	KMOVQ(t, k.even)
	return k
}

// blocks adds n super-blocks, 4 or 1, at p to the sum.
func (k *q4k) blocks(p, act reg.Register, sum reg.VecPhysical, n int) {
	head, codes, t := zmm(17), zmm(16), zmm(15)
	VMOVDQU32(at(p, 0), head.AsX())
	for r := 1; r < n; r++ {
		VINSERTI32X4(Imm(uint64(r)), at(p, q4kBytes*r), head, head)
	}
	VPSHUFB(k.pick, head, codes)
	VPSRLVD(k.shifts, codes, codes)
	VPANDD(k.mask, codes, codes)
	VPSHUFB(k.pickHigh, head, t)
	VPSRLD(Imm(2), t, t)
	VPTERNLOGD(Imm(0xf8), k.high, t, codes) // codes | t&high
	total := [4]reg.VecPhysical{zmm(11), zmm(12), zmm(13), zmm(14)}
	for r, v := range total {
		VPXORD(v, v, v)
		if r >= n {
			continue
		}
		scales := zmm(10)
		VSHUFI32X4(Imm(uint64(0x55*r)), codes, codes, scales)
		for h := range 2 {
			low, high := zmm(8), zmm(7)
			VMOVDQU8(at(p, q4kBytes*r+16+64*h), low)
			VGF2P8AFFINEQB(Imm(0), k.shift4, low, high)
			VPANDD(k.low, low, low)
			for i, q := range []reg.VecPhysical{low, high} {
				s := zmm(9)
				VPMADDUBSW(at(act, actBytes*r+128*h+64*i), q, q)
				VPERMB_Z(scales, k.words[2*h+i], k.even, s)
				VPDPWSSD(s, q, v)
			}
		}
	}
	mins, m := zmm(4), zmm(3)
	VPUNPCKHBW(k.zero, codes, mins)
	VMOVDQU32(at(act, actSums32), m.AsX())
	for r := 1; r < n; r++ {
		VINSERTI32X4(Imm(uint64(r)), at(act, actBytes*r+actSums32), m, m)
	}
	VPMADDWD(m, mins, mins)
	VPSHUFD(Imm(0x4e), mins, m)
	VPADDD(m, mins, mins)
	VPSHUFD(Imm(0xb1), mins, m)
	VPADDD(m, mins, mins)
	VPERMD(mins, k.lanes, mins)
	unpackAdd(total[0], total[1], zmm(0), false)
	unpackAdd(total[2], total[3], zmm(0), false)
	unpackAdd(total[0], total[2], zmm(0), true)
	VEXTRACTI64X4(Imm(1), total[0], reg.Y1)
	VPADDD(total[0].AsY(), reg.Y1, reg.Y0)
	VEXTRACTI128(Imm(1), reg.Y0, reg.X1)
	VPADDD(reg.X1, reg.X0, reg.X0)
	VPERMW(head, k.halves, zmm(1))
	VCVTPH2PS(reg.X1, reg.Y1)
	VEXTRACTF128(Imm(1), reg.Y1, reg.X2)
	VCVTDQ2PS(reg.X0, reg.X0)
	VCVTDQ2PS(reg.X4, reg.X4)
	VMULPS(reg.X1, reg.X0, reg.X0)
	VFNMADD231PS(reg.X2, reg.X4, reg.X0)
	lane := [4]reg.VecPhysical{reg.X0, reg.X1, reg.X2, reg.X3}
	for r := range n {
		switch r {
		case 1:
			VMOVSHDUP(reg.X0, reg.X1)
		case 2, 3:
			VPERMILPS(Imm(uint64(r)), reg.X0, lane[r])
		}
	}
	for r, t := range lane[:n] {
		VFMADD231SS(at(act, actBytes*r+actScale), t, sum)
	}
}
