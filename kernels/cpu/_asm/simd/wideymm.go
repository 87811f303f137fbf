package main

import (
	"fmt"

	. "github.com/fucina-go/fucina/kernels/cpu/_asm/gen"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The functions of this file need AVX2, FMA and F16C only.

// ymmSmall is what rows of a format of small blocks need with AVX2.
type ymmSmall struct {
	// constants sets the registers 5 and 7.
	constants func()
	// codes sets the register 3 to the codes of the group g of 32 of a stretch, whose block is at b: with
	// a sign, or 1 too much if that is the bias of the format. It may change the register 4.
	codes func(b Mem, g int)
}

// ymmWide returns those of wideFormats, by name.
func ymmWide() map[string]ymmSmall {
	q := ymm(3)
	// two has the codes of the 8 bytes at m.
	two := func(m Mem) {
		t := ymm(4)
		VPMOVZXBD(m, q)
		VPSLLD(Imm(6), q, t)
		VPOR(t, q, q)
		VPSLLD(Imm(12), q, t)
		VPOR(t, q, q)
		VPAND(ymm(7), q, q)
	}
	twos := func() { VMOVDQU(eachWord(0x03030303), ymm(7)) }
	return map[string]ymmSmall{
		"q10": {func() {
			VMOVDQU(Table("eachBit", Repeat([]byte{1, 2, 4, 8, 16, 32, 64, 128}, 4)), ymm(7))
			VMOVDQU(eachWord(0x02020202), ymm(5))
		}, func(b Mem, g int) {
			VPBROADCASTD(b.Offset(2+4*(g%4)), q)
			VPSHUFB(signBytes(0), q, q)
			VPAND(ymm(7), q, q)
			VPCMPEQB(ymm(7), q, q)
			VPAND(ymm(5), q, q)
		}},
		"q20":    {twos, func(b Mem, g int) { two(b.Offset(2 + 8*(g%4))) }},
		"q20g64": {twos, func(b Mem, g int) { two(b.Offset(2 + 8*(g%2))) }},
		"nvfp4": {func() {
			var levels []byte
			for _, l := range fp4Levels {
				levels = append(levels, byte(l))
			}
			VBROADCASTI128(Table("fp4Signed", levels), ymm(7))
			VMOVDQU(eachWord(0x0f0f0f0f), ymm(5))
		}, func(b Mem, g int) {
			VMOVDQU(b.Offset(4+16*(g%2)), q.AsX())
			VPERMQ(Imm(0x50), q, q)
			VPSRLVQ(Table("nvfp4Shifts", nil), q, q)
			VPAND(ymm(5), q, q)
			VPSHUFB(q, ymm(7), q)
		}},
		"q81": {func() {}, func(b Mem, _ int) { VMOVDQU(b.Offset(4), q) }},
	}
}

// ymmRows multiplies rows of the format by one row of activations, as rows does. Where the codes have a
// sign, the activations take it from them.
func (f *wideSmall) ymmRows(c ymmSmall) {
	TEXT(f.name+"RowsAVX2", NOSPLIT, "func(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)")
	ones := Table("wordOnes", Repeat([]byte{1, 0}, 16))
	sum := reg.X6
	f.stretches(sum, c.constants, func(p, act reg.Register) {
		q, a := ymm(3), ymm(1)
		for g := range 8 {
			t := ymm(8 + g)
			c.codes(At(p, f.block(g)), g)
			if f.bias == 1 {
				VPMADDUBSW(At(act, 32*g), q, t)
				continue
			}
			VMOVDQU(At(act, 32*g), a)
			VPSIGNB(q, a, a)
			VPABSB(q, q)
			VPMADDUBSW(a, q, t)
		}
		// The lower lanes have the first halves of the groups, the upper lanes the second halves. The sums
		// of bytes of Q8_1 have no room in words.
		add, large := VPHADDW, f.size == 32
		if large {
			add = VPHADDD
			for g := range 8 {
				VPMADDWD(ones, ymm(8+g), ymm(8+g))
			}
		}
		for _, n := range [][2]int{{8, 9}, {10, 11}, {12, 13}, {14, 15}, {8, 10}, {12, 14}} {
			add(ymm(n[1]), ymm(n[0]), ymm(n[0]))
		}
		if !large {
			VPMADDWD(ones, ymm(8), ymm(8))
			VPMADDWD(ones, ymm(12), ymm(12))
		}
		first, second, products := ymm(0), ymm(1), ymm(0)
		VPERM2I128(Imm(0x20), ymm(12), ymm(8), first)
		VPERM2I128(Imm(0x31), ymm(12), ymm(8), second)
		if f.two {
			VMOVD(At(p, 0), reg.X2)
			for i := 1; i < 4; i++ {
				VPINSRD(Imm(uint64(i)), At(p, i*f.bytes), reg.X2, reg.X2)
			}
			VPMOVZXWD(reg.X2, reg.Y2)
			l := &lanes{}
			l.ue4m3(ymm(2), 0, ymm(3))
			l.ue4m3(ymm(2), 1, ymm(4))
			VCVTDQ2PS(first, products)
			VMULPS(ymm(3), products, products)
			VCVTDQ2PS(second, second)
			VFMADD231PS(second, ymm(4), products)
			VMULPS(At(act, actScales), products, products)
		} else {
			VPADDD(second, first, first)
			d := ymm(2)
			if f.bias == 1 {
				VPMOVSXWD(At(act, actSums), d)
				VPSUBD(d, first, first)
			}
			VPXOR(d.AsX(), d.AsX(), d.AsX())
			for i := range 256 / f.size {
				VPINSRW(Imm(uint64(i)), At(p, i*f.bytes), d.AsX(), d.AsX())
			}
			if n := f.size / 32; n > 1 {
				var b []byte
				for i := range 8 {
					b = append(b, byte(i/n*2), byte(i/n*2+1))
				}
				VPSHUFB(Table(fmt.Sprintf("wideHalves%d", n), b), d.AsX(), d.AsX())
			}
			VCVTPH2PS(d.AsX(), d)
			VCVTDQ2PS(first, products)
			VMULPS(At(act, actScales), d, d)
			VMULPS(d, products, products)
		}
		part := reg.X3
		VMOVUPS(products, f.products)
		VXORPS(part, part, part)
		for i := range 8 {
			VADDSS(f.products.Offset(4*i), part, part)
		}
		VADDSS(part, sum, sum)
	})
}
