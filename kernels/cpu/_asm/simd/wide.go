package main

import (
	. "github.com/fucina-go/fucina/kernels/cpu/_asm/gen"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// wideFormats are Q8_1, and the formats of small blocks that have more than 32 elements.
func wideFormats() []*wideSmall {
	// two sets v to 64 codes of two bits, the first in the lowest bits of a byte.
	two := func(m Mem, v reg.VecPhysical) {
		t := Z(20)
		VPMOVZXBD(m, v)
		VPSLLD(Imm(6), v, t)
		VPORD(t, v, v)
		VPSLLD(Imm(12), v, t)
		VPTERNLOGD(Imm(0xa8), Z(25), t, v) // (v|t)&mask
	}
	twos := func() { Broadcast(0x03030303, Z(25)) }
	fp4, look := levels("fp4", fp4Levels)
	return []*wideSmall{
		{name: "q10", size: 128, bytes: 18, bias: 1, constants: func() { Broadcast(0x02020202, Z(25)) }, wide: func(b Mem, u int, v reg.VecPhysical) {
			KMOVQ(b.Offset(2+u%2*8), reg.K1)
			VMOVDQU8_Z(Z(25), reg.K1, v)
		}},
		{name: "q20", size: 128, bytes: 34, bias: 1, constants: twos, wide: func(b Mem, u int, v reg.VecPhysical) {
			two(b.Offset(2+u%2*16), v)
		}},
		{name: "q20g64", size: 64, bytes: 18, bias: 1, constants: twos, wide: func(b Mem, _ int, v reg.VecPhysical) {
			two(b.Offset(2), v)
		}},
		{name: "q81", size: 32, bytes: 36, bias: 128, constants: func() { Broadcast(0x80808080, Z(24)) }, wide: func(b Mem, _ int, v reg.VecPhysical) {
			VMOVDQU(b.Offset(4), v.AsY())
			VINSERTI64X4(Imm(1), b.Offset(36+4), v, v)
			VPXORD(Z(24), v, v)
		}},
		{name: "nvfp4", size: 64, bytes: 36, bias: 128, two: true, constants: func() {
			// 8 bytes have the first 8 of 16 codes in their lower halves.
			fp4()
			VMOVDQU32(Table("nvfp4Shifts", Repeat(Dwords(0, 0, 4, 0), 4)), Z(24))
			VMOVDQU32(Table("nvfp4Pick", Dwords(0, 0, 0, 0, 1, 0, 1, 0, 2, 0, 2, 0, 3, 0, 3, 0)), Z(27))
			Broadcast(0x7f, Z(28))
			Broadcast(8<<20, Z(29))
			Broadcast(0x80808080, Z(30))
			Broadcast(119<<23, Z(31))
			Broadcast(120<<23, Z(23)) // 2^-7
		}, wide: func(b Mem, _ int, v reg.VecPhysical) {
			VMOVDQU(b.Offset(4), v.AsY())
			VPERMQ(v, Z(27), v)
			VPSRLVQ(Z(24), v, v)
			VPANDD(Z(25), v, v)
			look(v)
		}},
	}
}

// ue4m3 changes the words of v to half the values of unsigned E4M3 numbers, which are in the byte
// that begins at the given bit. 0x7f is 0. The sign bit is ignored. Masks make it shorter than that of
// lanes. It changes the masks K1 and K3.
func ue4m3(u reg.VecPhysical, bit int, v reg.VecPhysical) {
	least := Z(23)
	field(u, bit, 8, v)
	VPCMPUD(Imm(4), Z(28), v, reg.K1) // not equal
	VPSLLD(Imm(25), v, v)
	VPSRLD(Imm(5), v, v)
	// A number without an exponent is that of the least exponent, less what that would add.
	VPCMPUD(Imm(1), Z(29), v, reg.K3) // less
	VPADDD_Z(Z(31), v, reg.K1, v)
	VPADDD(Z(29), v, reg.K3, v)
	VSUBPS(least, v, reg.K3, v)
}

// eightTwo sets the words of Y0 to the products of eight times 32 elements at p, with two scales each.
func (f *wideSmall) eightTwo(p, act reg.Register, total [4]reg.VecPhysical) {
	for i, v := range total {
		t := Z(10)
		VPXORD(t, t, t)
		VPDPBUSD(At(act, 64*i), Z(30), t) // 128 times the activations
		VPSUBD(t, v, v)
	}
	combine(addWords, total, Z(0))
	first, second := reg.Y4, reg.Y6
	VPERMD(total[0], f.order(), Z(4))
	VEXTRACTI64X4(Imm(1), Z(4), second)
	VMOVD(At(p, 0), reg.X1)
	for i := 1; i < 4; i++ {
		VPINSRD(Imm(uint64(i)), At(p, i*f.bytes), reg.X1, reg.X1)
	}
	VPMOVZXWD(reg.X1, reg.Y1)
	ue4m3(Z(1), 0, Z(2))
	ue4m3(Z(1), 8, Z(3))
	VCVTDQ2PS(first, reg.Y0)
	VMULPS(reg.Y2, reg.Y0, reg.Y0)
	VCVTDQ2PS(second, second)
	VFMADD231PS(second, reg.Y3, reg.Y0)
	VMULPS(At(act, actScales), reg.Y0, reg.Y0)
}
