package main

import (
	. "github.com/fucina-go/fucina/kernels/cpu/_asm/gen"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const q6kBytes = 210

// q6kRows multiplies rows of Q6_K by one row of activations, as q4kRows does. The codes are taken
// without their offset of 32, which the sums of the activations make good.
func q6kRows(vbmi bool) {
	TEXT("q6kRows"+level(vbmi), NOSPLIT, "func(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)")
	k := &q6k{vbmi: vbmi, low: Z(31), shift4: Z(30), high: Z(29), turns: [2]reg.VecPhysical{Z(28), Z(27)}}
	Broadcast(0x0f0f0f0f, k.low)
	Broadcast(0x30303030, k.high)
	if vbmi {
		shiftMatrix(k.shift4)
	}
	// A rotation brings the upper two bits of a code to their place above its lower four.
	for i, v := range k.turns {
		VMOVDQU32(turns("q6kTurn"+string(rune('0'+i)), 4-4*i, 2-4*i), v)
	}
	for i := range k.words {
		// Scales 4i to 4i+3 as words, 8 times each.
		k.words[i] = Z(23 + i)
		var b []byte
		for g := range 4 {
			b = append(b, Repeat([]byte{byte(4*i + g), 0}, 8)...)
		}
		VMOVDQU16(Table("q6kWords"+string(rune('0'+i)), b), k.words[i])
	}
	rowLoop(q6kBytes, k.blocks)
}

// q6k are the constants of q6kRows.
type q6k struct {
	vbmi              bool
	low, shift4, high reg.VecPhysical
	turns             [2]reg.VecPhysical
	words             [4]reg.VecPhysical
}

// blocks adds n super-blocks, 4 or 1, at p to the sum.
func (k *q6k) blocks(p, act reg.Register, sum reg.VecPhysical, n int) {
	total := [4]reg.VecPhysical{Z(11), Z(12), Z(13), Z(14)}
	for r, v := range total {
		VPXORD(v, v, v)
		if r >= n {
			continue
		}
		scales, offset := Z(10), Z(9)
		VPMOVSXBW(At(p, q6kBytes*r+192), scales.AsY())
		VPMADDWD(At(act, actBytes*r+actSums16), scales.AsY(), offset.AsY())
		VPSLLD(Imm(5), offset.AsY(), offset.AsY())
		VPSUBD(offset.AsY(), v.AsY(), v.AsY())
		for h := range 2 {
			low, high, bits := Z(8), Z(7), Z(6)
			VMOVDQU8(At(p, q6kBytes*r+64*h), low)
			VBROADCASTI64X4(At(p, q6kBytes*r+128+32*h), bits)
			halvesOf(k.vbmi, low, high, k.low, k.shift4)
			for i, q := range []reg.VecPhysical{low, high} {
				f, s := Z(4), Z(3)
				VPROLVQ(k.turns[i], bits, f)
				VPTERNLOGD(Imm(0xf8), k.high, f, q) // q | f&high
				VPMADDUBSW(At(act, actBytes*r+128*h+64*i), q, q)
				VPERMW(scales, k.words[2*h+i], s)
				VPDPWSSD(s, q, v)
			}
		}
	}
	sumLanes(total)
	// The scales of the blocks are 210 bytes apart.
	VMOVD(At(p, q6kBytes-4), reg.X1)
	VPSRLD(Imm(16), reg.X1, reg.X1)
	for r := 1; r < n; r++ {
		VPINSRW(Imm(uint64(r)), At(p, q6kBytes*r+208), reg.X1, reg.X1)
	}
	VCVTPH2PS(reg.X1, reg.X1)
	VCVTDQ2PS(reg.X0, reg.X0)
	VMULPS(reg.X1, reg.X0, reg.X0)
	addLanes(act, sum, n)
}

// turns returns a table of rotations to the left, of the lower and of the upper half.
func turns(name string, low, high int) Mem {
	return Table(name, append(Repeat(Dwords(uint32(low)&63, 0), 4), Repeat(Dwords(uint32(high)&63, 0), 4)...))
}
