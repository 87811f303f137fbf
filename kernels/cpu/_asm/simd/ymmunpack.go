package main

import (
	"fmt"

	. "github.com/fucina-go/fucina/kernels/cpu/_asm/gen"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The unpackers of this file take 8 rows at a time, with AVX2. 16 codes of the rows i and i+4 are in a
// ymm, so that the transposes of the words of its two lanes are 4 steps of the panel.

// ymmCodes says how the codes of a format are unpacked.
type ymmCodes struct {
	// A block is so many units, which are step bytes apart, and alike.
	units, step int
	// codes sets v to the codes 16u to 16u+15 of a unit, in the order of the activations. It may
	// change the registers 8 to 13.
	codes func(rows ymmRows, u int, v reg.VecPhysical)
}

// ymmRows is a pair of rows.
type ymmRows struct{ low, high Mem }

// load sets v to the 16 bytes of the two rows at offset o.
func (r ymmRows) load(o int, v reg.VecPhysical) {
	VMOVDQU(r.low.Offset(o), v.AsX())
	VINSERTI128(Imm(1), r.high.Offset(o), v, v)
}

// bits sets v to bits bits of the 16 bytes at offset o, from bit on, moved up to bit to.
func (r ymmRows) bits(o, bit, bits, to int, v reg.VecPhysical) {
	r.load(o, v)
	if bit > to {
		VPSRLW(Imm(uint64(bit-to)), v, v)
	} else if bit < to {
		VPSLLW(Imm(uint64(to-bit)), v, v)
	}
	mask := byte((1<<bits - 1) << to)
	VPAND(bytes2(fmt.Sprintf("bytes%02x", mask), mask), v, v)
}

// fifth adds bit 16*h+i of the words at offset o to the code i, as its fifth bit.
func (r ymmRows) fifth(o, h int, v reg.VecPhysical) {
	t, high := ymm(8), ymm(9)
	VPBROADCASTD(r.low.Offset(o), t.AsX())
	VPBROADCASTD(r.high.Offset(o), high.AsX())
	VINSERTI128(Imm(1), high.AsX(), t, t)
	b := byte(2 * h)
	VPSHUFB(Table(fmt.Sprintf("spread%d", h), Repeat(append(Repeat([]byte{b}, 8), Repeat([]byte{b + 1}, 8)...), 2)), t, t)
	each := Table("eachBit", Repeat([]byte{1, 2, 4, 8, 16, 32, 64, 128}, 4))
	VPAND(each, t, t)
	VPCMPEQB(each, t, t)
	VPAND(bytes2("bytes10", 16), t, t)
	VPOR(t, v, v)
}

// look makes the codes of v indices of the named table of 16 levels.
func look(name string, v reg.VecPhysical) {
	VBROADCASTI128(Table(name+"Levels", nil), ymm(8))
	VPSHUFB(v, ymm(8), v)
}

// quarter is the place of the codes 16u to 16u+15 in the order of quarters: their bytes in each 64,
// which bits they have, and their group.
func quarter(u int) (at, bit, group int) {
	h, k := u/2%2, u/4
	return 32*h + u%2*16, 2 * k, 4*h + k
}

// ymmFormats are the formats of unpackers by name.
var ymmFormats = map[string]ymmCodes{
	"q4k": {units: 2, step: 64, codes: func(rows ymmRows, u int, v reg.VecPhysical) {
		rows.bits(16+u%4*16, u/4*4, 4, 0, v)
	}},
	"q5k": {units: 1, codes: func(rows ymmRows, u int, v reg.VecPhysical) {
		rows.bits(48+u/8*64+u%4*16, u/4%2*4, 4, 0, v)
		// A half of 64 bytes has a group in the lower bits, and the next one in the upper bits.
		group := u/8*4 + u/2%2*2 + u/4%2
		rows.bits(16+u%2*16, group, 1, 4, ymm(8))
		VPOR(ymm(8), v, v)
	}},
	"q6k": {units: 1, codes: func(rows ymmRows, u int, v reg.VecPhysical) {
		h := u / 8
		rows.bits(64*h+u%4*16, u/4%2*4, 4, 0, v)
		rows.bits(128+32*h+u%2*16, u/2%4*2, 2, 4, ymm(8))
		VPOR(ymm(8), v, v)
	}},
	"q2k": {units: 1, codes: func(rows ymmRows, u int, v reg.VecPhysical) {
		at, bit, _ := quarter(u)
		rows.bits(16+at, bit, 2, 0, v)
	}},
	"q3k": {units: 1, codes: func(rows ymmRows, u int, v reg.VecPhysical) {
		at, bit, group := quarter(u)
		rows.bits(32+at, bit, 2, 0, v)
		rows.bits(u%2*16, group, 1, 2, ymm(8))
		VPOR(ymm(8), v, v)
	}},
	"tq20": {units: 1, codes: func(rows ymmRows, u int, v reg.VecPhysical) {
		at, bit, _ := quarter(u)
		rows.bits(at, bit, 2, 0, v)
	}},
	"iq4xs": {units: 8, step: 16, codes: func(rows ymmRows, u int, v reg.VecPhysical) {
		rows.bits(8, 4*u, 4, 0, v)
		look("iq4nl", v)
	}},
	"q40": {units: 8, step: 18, codes: func(rows ymmRows, u int, v reg.VecPhysical) { rows.bits(2, 4*u, 4, 0, v) }},
	"q41": {units: 8, step: 20, codes: func(rows ymmRows, u int, v reg.VecPhysical) { rows.bits(4, 4*u, 4, 0, v) }},
	"q50": {units: 8, step: 22, codes: func(rows ymmRows, u int, v reg.VecPhysical) {
		rows.bits(6, 4*u, 4, 0, v)
		rows.fifth(2, u, v)
	}},
	"q51": {units: 8, step: 24, codes: func(rows ymmRows, u int, v reg.VecPhysical) {
		rows.bits(8, 4*u, 4, 0, v)
		rows.fifth(4, u, v)
	}},
	"q80": {units: 8, step: 34, codes: func(rows ymmRows, u int, v reg.VecPhysical) {
		rows.load(2+16*u, v)
		VPXOR(bytes2("bytes80", 128), v, v)
	}},
	"iq4nl": {units: 8, step: 18, codes: func(rows ymmRows, u int, v reg.VecPhysical) {
		rows.bits(2, 4*u, 4, 0, v)
		look("iq4nl", v)
	}},
	"mxfp4": {units: 8, step: 17, codes: func(rows ymmRows, u int, v reg.VecPhysical) {
		rows.bits(1, 4*u, 4, 0, v)
		look("fp4", v)
	}},
}

// ymmUnpack is the unpacker f with AVX2.
func ymmUnpack(f *unpacker) {
	TEXT(f.name+"UnpackAVX2", NOSPLIT, "func(panel, w *byte, rowBytes int)")
	q, w, rowBytes := Load(Param("panel"), GP64()), Load(Param("w"), GP64()), Load(Param("rowBytes"), GP64())
	format := ymmFormats[f.name]
	three, first, second, codes, units, left := GP64(), GP64(), GP64(), GP64(), GP64(), GP64()
	LEAQ(Mem{Base: rowBytes, Index: rowBytes, Scale: 2}, three)
	MOVQ(I32(4), left)
	Label("rows")
	MOVQ(q, codes)
	MOVQ(w, first)
	LEAQ(Mem{Base: w, Index: rowBytes, Scale: 1}, second)
	if format.units > 1 {
		MOVQ(I32(int32(format.units)), units)
	}
	Label("unit")
	row := [8]Mem{
		{Base: first}, {Base: second}, {Base: first, Index: rowBytes, Scale: 2}, {Base: first, Index: three, Scale: 1},
		{Base: first, Index: rowBytes, Scale: 4}, {Base: second, Index: rowBytes, Scale: 4}, {Base: first, Index: three, Scale: 2}, {Base: second, Index: three, Scale: 2},
	}
	for u := range 16 / format.units {
		for i := range 4 {
			format.codes(ymmRows{row[i], row[i+4]}, u, ymm(i))
		}
		for i := range 2 {
			VPUNPCKLDQ(ymm(2*i+1), ymm(2*i), ymm(4+2*i))
			VPUNPCKHDQ(ymm(2*i+1), ymm(2*i), ymm(5+2*i))
		}
		for i := range 2 {
			VPUNPCKLQDQ(ymm(6+i), ymm(4+i), ymm(2*i))
			VPUNPCKHQDQ(ymm(6+i), ymm(4+i), ymm(2*i+1))
		}
		for s := range 4 {
			VMOVDQU(ymm(s), At(codes, 128*(4*u+s)))
		}
	}
	if format.units > 1 {
		ADDQ(I32(int32(panelScales/format.units)), codes)
		ADDQ(I32(int32(format.step)), first)
		ADDQ(I32(int32(format.step)), second)
		DECQ(units)
		JNZ(LabelRef("unit"))
	}
	index := ymm(15)
	VMOVD(rowBytes.(reg.GP).As32(), index.AsX())
	VPBROADCASTD(index.AsX(), index)
	VPMULLD(Table("unpackRows", nil), index, index)
	f.scales(&lanes{q, w, index, false})
	LEAQ(Mem{Base: w, Index: rowBytes, Scale: 8}, w)
	ADDQ(I32(32), q)
	DECQ(left)
	JNZ(LabelRef("rows"))
	VZEROUPPER()
	RET()
}

// e8m0Ymm is e8m0 for a ymm. It changes the registers 8 and 9.
func e8m0Ymm(l *lanes, v reg.VecPhysical) {
	low, t := ymm(8), ymm(9)
	VPSLLD(Imm(24), v, v)
	VPSRLD(Imm(24), v, v)
	l.set(0x00200000, low)
	VPSLLVD(v, low, low)
	l.set(2, t)
	VPCMPGTD(v, t, t) // e <= 1
	VPAND(t, low, low)
	VPSLLD(Imm(23), v, ymm(10))
	l.set(255, ymm(11))
	VPCMPEQD(ymm(11), v, v)
	l.set(0x00800000, ymm(11))
	VPSUBD(ymm(11), ymm(10), ymm(10))
	VPANDN(ymm(10), t, t)
	VPOR(low, t, t)
	l.set(0x7fc00000, low)
	VPBLENDVB(v, low, t, v)
}
