// Command simd generates the assembly of package simd. The comments of the stubs in decl_amd64.go
// define the results.
package main

import (
	. "github.com/fucina-go/fucina/kernels/cpu/_asm/gen"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The layout of a stretch of 256 activations; see package simd.
const (
	actBytes  = 320
	actSums16 = 256
	actSums32 = 288
	actScale  = 304
	actScales = 256
	actSums   = 288
)

func main() {
	ConstraintExpr("amd64,!noasm")
	quantizeSuper()
	quantizeSmall()
	quantizeSuper2()
	quantizeSmall2()
	for _, vbmi := range []bool{false, true} {
		q4kRows(vbmi)
		q5kRows(vbmi)
		q6kRows(vbmi)
		q2kRows(vbmi)
		q3kRows(vbmi)
		tq20Rows(vbmi)
	}
	for _, vbmi := range []bool{false, true} {
		for _, f := range smallFormatsWith(vbmi, 16) {
			if !vbmi || f.name != "q80" {
				f.rows(vbmi)
			}
		}
	}
	iq4xsRows()
	iq4xsRowsVBMI()
	wide := ymmWide()
	for _, f := range wideFormats() {
		f.rows()
		f.ymmRows(wide[f.name])
	}
	k := new(coder)
	ymm := k.ymmFormats()
	for _, f := range k.formats() {
		f.rows()
		if c, ok := ymm[f.name]; ok {
			f.ymmRows(c)
		}
	}
	for _, vnni := range []bool{false, true} {
		for _, f := range smallFormats2() {
			f.rows(vnni)
		}
		q4kRowsAVX2(false, vnni)
		q4kRowsAVX2(true, vnni)
		q6kRowsAVX2(vnni)
		q2kRows2(vnni)
		q3kRows2(vnni)
		tq20Rows2(vnni)
		iq4xsRows2(vnni)
	}
	unpackers()
	for _, f := range append(gridUnpackers(), wideUnpackers()...) {
		f.generate(true)
		f.generate(false)
	}
	superTiles(16, true, 16)
	superTiles(32, true, 16)
	superTiles(32, true, 0)
	superTiles(16, false, 16)
	superTiles(16, false, 8)
	superTiles(16, false, 0)
	superTiles(32, false, 32)
	superTiles(32, false, 0)
	for _, f := range []smallTile{
		{kind: "Small1", bias: 1}, {kind: "Small8", bias: 8}, {kind: "Small16", bias: 16}, {kind: "Small128", bias: 128},
		{kind: "SmallTerm", term: true}, {kind: "SmallTwo", bias: 16, two: true},
	} {
		f.generate()
	}
	ymmTiles()
	peaks()
	Generate()
}

// ahead is the distance in bytes at which rows of weights are fetched. Without it a core waits for
// memory a third of the time. Distances from 4096 to 16384 differ little, and so do both caches.
const ahead = 8192

// prefetchRow fetches weights for a later iteration, of which each takes the given number of bytes from p.
func prefetchRow(p reg.Register, bytes int) {
	for i := 0; i < bytes; i += 64 {
		PREFETCHT1(At(p, ahead+i))
	}
}

// rowLoop is the body of a function that multiplies rows by a row of activations. blocks adds n
// super-blocks, 4 or 1, of the given number of bytes, to the sum in X5.
func rowLoop(bytes int, blocks func(p, act reg.Register, sum reg.VecPhysical, n int)) {
	out, w := Load(Param("out"), GP64()), Load(Param("w"), GP64())
	rowBytes, rows := Load(Param("rowBytes"), GP64()), Load(Param("rows"), GP64())
	act, p, n := GP64(), GP64(), GP64()
	sum := reg.X5
	Label("row")
	Load(Param("act"), act)
	Load(Param("blocks"), n)
	MOVQ(w, p)
	VXORPS(sum, sum, sum)
	SUBQ(Imm(4), n)
	JL(LabelRef("rest"))
	Label("four")
	prefetchRow(p, 4*bytes)
	blocks(p, act, sum, 4)
	ADDQ(I32(int32(4*bytes)), p)
	ADDQ(I32(4*actBytes), act)
	SUBQ(Imm(4), n)
	JGE(LabelRef("four"))
	Label("rest")
	ADDQ(Imm(4), n)
	JZ(LabelRef("done"))
	Label("one")
	blocks(p, act, sum, 1)
	ADDQ(I32(int32(bytes)), p)
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

// sumLanes sets word r of X0 to the sum of the words of total[r]. It changes X1, zmm0 and total.
func sumLanes(total [4]reg.VecPhysical) { reduce(addWords, total, Z(0)) }

// addLanes adds the first n words of X0, times the scales of n stretches of activations, to the sum,
// one after the other. It changes X1 to X3.
func addLanes(act reg.Register, sum reg.VecPhysical, n int) {
	lane := [4]reg.VecPhysical{reg.X0, reg.X1, reg.X2, reg.X3}
	for r := 1; r < n; r++ {
		VPERMILPS(Imm(uint64(r)), reg.X0, lane[r])
	}
	for r, t := range lane[:n] {
		VFMADD231SS(At(act, actBytes*r+actScale), t, sum)
	}
}
