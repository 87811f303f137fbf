package main

import (
	"math/bits"

	. "github.com/fucina-go/fucina/kernels/cpu/_asm/gen"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// small2 is how rows of a format of small blocks are multiplied with AVX2.
type small2 struct {
	*small
	// most is the largest magnitude of the codes of code.
	most int
	// signed says that the codes of code are not without a sign.
	signed bool
	// tables has the first constants of Y10 to Y12.
	tables []Mem
	// code sets q to the codes of the block at m. It may change Y5.
	code func(m Mem, q reg.VecPhysical)
	// scale changes the first words of eight blocks in Y2 to their scales, and may change Y3 to Y7. If
	// it is nil, a block begins with a half.
	scale func()
}

// blocksLoop has the parts of a loop over the blocks of a row, whose sum is in X8.
type blocksLoop struct {
	start  func()                     // or nil
	four   func(p, a, b reg.Register) // adds 32 blocks at p, or nil
	two    func(p, a, b reg.Register) // adds 16 blocks at p
	finish func()                     // or nil
}

// smallLoop is the body of a function that multiplies rows of blocks by a row of activations. The
// activations of the first two stretches at p are at a and b. A rest of fewer than 16 blocks is copied
// into the frame, before zeros. There, b is a if the second stretch has no blocks: products with the
// scale 0 are 0, or NaN where those of the first stretch are NaN.
func smallLoop(bytes int, constants func(), loop blocksLoop) {
	size := (16*bytes + 31) / 32 * 32
	rest := AllocLocal(size)
	out, w := Load(Param("out"), GP64()), Load(Param("w"), GP64())
	rowBytes, rows := Load(Param("rowBytes"), GP64()), Load(Param("rows"), GP64())
	a, b, p, n := GP64(), GP64(), GP64(), GP64()
	sum := reg.X8
	constants()
	Label("row")
	Load(Param("act"), a)
	Load(Param("blocks"), n)
	MOVQ(w, p)
	VXORPS(sum, sum, sum)
	if loop.start != nil {
		loop.start()
	}
	pass := func(name string, count int, body func(p, a, b reg.Register)) {
		Label(name)
		prefetchRow(p, count*bytes)
		LEAQ(At(a, actBytes), b)
		body(p, a, b)
		ADDQ(I32(int32(count*bytes)), p)
		ADDQ(I32(int32(count/8*actBytes)), a)
		SUBQ(Imm(uint64(count)), n)
	}
	if loop.four != nil {
		SUBQ(Imm(32), n)
		JL(LabelRef("half"))
		pass("whole", 32, loop.four)
		JGE(LabelRef("whole"))
		Label("half")
		ADDQ(Imm(32), n)
	}
	SUBQ(Imm(16), n)
	JL(LabelRef("rest"))
	pass("sixteen", 16, loop.two)
	JGE(LabelRef("sixteen"))
	Label("rest")
	ADDQ(Imm(16), n)
	JZ(LabelRef("done"))
	MOVQ(a, b)
	CMPQ(n, Imm(8))
	JLE(LabelRef("first"))
	ADDQ(I32(actBytes), b)
	Label("first")
	VPXOR(reg.X0, reg.X0, reg.X0)
	for i := 0; i < size; i += 32 {
		VMOVDQU(reg.Y0, rest.Offset(i))
	}
	// A block has more than 16 bytes.
	IMUL3Q(I8(int8(bytes)), n, n)
	to := GP64()
	LEAQ(rest, to)
	SUBQ(Imm(16), n)
	Label("copy")
	VMOVDQU(At(p, 0), reg.X0)
	VMOVDQU(reg.X0, At(to, 0))
	ADDQ(Imm(16), p)
	ADDQ(Imm(16), to)
	SUBQ(Imm(16), n)
	JGE(LabelRef("copy"))
	VMOVDQU(Mem{Base: p, Index: n, Scale: 1}, reg.X0)
	VMOVDQU(reg.X0, Mem{Base: to, Index: n, Scale: 1})
	LEAQ(rest, p)
	loop.two(p, a, b)
	Label("done")
	if loop.finish != nil {
		loop.finish()
	}
	VMOVSS(sum, Mem{Base: out})
	ADDQ(Imm(4), out)
	ADDQ(rowBytes, w)
	DECQ(rows)
	JNZ(LabelRef("row"))
	VZEROUPPER()
	RET()
}

const smallArgs = "func(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)"

// rows multiplies rows with AVX2, or also with AVX-VNNI.
func (f *small2) rows(vnni bool) {
	TEXT(f.name+"Rows"+level2(vnni), NOSPLIT, smallArgs)
	smallLoop(f.bytes, f.constants2, blocksLoop{two: func(p, a, b reg.Register) {
		f.eight(vnni, p, 0, a)
		VMOVAPS(reg.Y0, reg.Y9)
		f.eight(vnni, p, 8*f.bytes, b)
		// The products of both stretches, one after the other. The first is not added to 0, because
		// a sum of 0 and -0 is no other sum than one of 0 and 0.
		low, high, part := reg.Y1, reg.Y2, reg.Y3
		VPERM2F128(Imm(0x20), reg.Y0, reg.Y9, low)
		VPERM2F128(Imm(0x31), reg.Y0, reg.Y9, high)
		for h, v := range []reg.VecPhysical{low, high} {
			if h > 0 {
				VADDPS(v, part, part)
			}
			for i := 1; i < 4; i++ {
				VPERMILPS(Imm(uint64(i)), v, reg.Y4)
				if h == 0 && i == 1 {
					VADDPS(reg.Y4, v, part)
					continue
				}
				VADDPS(reg.Y4, part, part)
			}
		}
		VADDSS(part.AsX(), reg.X8, reg.X8)
		VEXTRACTF128(Imm(1), part, reg.X3)
		VADDSS(reg.X3, reg.X8, reg.X8)
	}})
}

// level2 returns the end of the name of a function.
func level2(vnni bool) string {
	if vnni {
		return "AVXVNNI"
	}
	return "AVX2"
}

// constants2 sets what nibble2 needs.
func (f *small2) constants2() {
	VMOVDQU(Table("nibbleShifts", nil), reg.Y15)
	VMOVDQU(bytes2("lowHalves", 15), reg.Y14)
	VMOVDQU(Table("ones2", Repeat(Dwords(0x00010001), 8)), reg.Y13)
	for i, m := range f.tables {
		VMOVDQU(m, ymm(10+i))
	}
}

// nibble2 sets q to the low halves and then the high halves of the 16 bytes at m.
func nibble2(m Mem, q reg.VecPhysical) {
	VBROADCASTI128(m, q)
	VPSRLVQ(reg.Y15, q, q)
	VPAND(reg.Y14, q, q)
}

// eight sets Y0 to the products of the eight blocks at p + at. It changes Y1 to Y7.
func (f *small2) eight(vnni bool, p reg.Register, at int, act reg.Register) {
	v := [4]reg.VecPhysical{reg.Y0, reg.Y1, reg.Y2, reg.Y3}
	t := reg.Y4
	// The sums of two products of up to 31 times 127 can be added four times as words of 16 bits.
	words := !vnni && f.most < 32
	bias := f.bias
	if !vnni && f.signed {
		bias = 0
	}
	leaf := func(i int, q reg.VecPhysical) {
		m := At(act, 32*i)
		code := q
		if vnni {
			code = reg.Y4
		}
		f.code(At(p, at+i*f.bytes), code)
		switch {
		case vnni:
			if f.signed {
				VPXOR(reg.Y11, code, code)
			}
			VMOVDQU(m, reg.Y5)
			VPXOR(q, q, q)
			DotBytes(reg.Y5, code, q)
			return
		case f.signed:
			VMOVDQU(m, reg.Y5)
			VPSIGNB(q, reg.Y5, reg.Y5)
			VPABSB(q, q)
			VPMADDUBSW(reg.Y5, q, q)
		default:
			VPMADDUBSW(m, q, q)
		}
		if !words {
			VPMADDWD(reg.Y13, q, q)
		}
	}
	pair := func(level int, a, b reg.VecPhysical) {
		switch {
		case words && level == 0:
			VPUNPCKHWD(b, a, t)
			VPUNPCKLWD(b, a, a)
			VPADDW(t, a, a)
		case words:
			VPUNPCKHDQ(b, a, t)
			VPUNPCKLDQ(b, a, a)
			VPADDW(t, a, a)
		case level == 0:
			VPUNPCKHDQ(b, a, t)
			VPUNPCKLDQ(b, a, a)
			VPADDD(t, a, a)
		default:
			VPUNPCKHQDQ(b, a, t)
			VPUNPCKLQDQ(b, a, a)
			VPADDD(t, a, a)
		}
	}
	for i := range 8 {
		depth := bits.OnesCount(uint(i))
		leaf(i, v[depth])
		for j := range bits.TrailingZeros(uint(i + 1)) {
			if j < 2 {
				pair(j, v[depth-1-j], v[depth-j])
			}
		}
	}
	if words {
		// The words of a lane are of the blocks 0 to 3, and again.
		couple := Table("couple2", Repeat([]byte{0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15}, 2))
		for _, v := range v[:2] {
			VPSHUFB(couple, v, v)
			VPMADDWD(reg.Y13, v, v)
		}
	}
	VPERM2I128(Imm(0x31), v[1], v[0], t)
	VPERM2I128(Imm(0x20), v[1], v[0], v[0])
	VPADDD(t, v[0], v[0])
	sums := reg.Y1
	if bias > 0 || f.term > 0 {
		VPMOVSXWD(At(act, actSums), sums)
	}
	if bias > 0 {
		VPSLLD(Imm(uint64(bits.Len(uint(bias)))-1), sums, sums)
		VPSUBD(sums, v[0], v[0])
	}
	d := reg.Y2
	VCVTDQ2PS(v[0], v[0])
	switch {
	case f.term > 0:
		// The halves of eight words, those of the terms after those of the scales.
		words2(p, at, f.bytes, d)
		VPSHUFB(Table("halves2", Repeat([]byte{0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15}, 2)), d, d)
		VPERMQ(Imm(0xd8), d, d)
		VEXTRACTI128(Imm(1), d, reg.X3)
		VCVTPH2PS(d.AsX(), d)
		VCVTPH2PS(reg.X3, reg.Y3)
		VCVTDQ2PS(sums, sums)
		VMULPS(d, v[0], v[0])
		VFMADD231PS(sums, reg.Y3, v[0])
		VMULPS(At(act, actScales), v[0], v[0])
		return
	case f.scale != nil:
		words2(p, at, f.bytes, d)
		f.scale()
	default:
		// The halves are bytes apart. Each is loaded where it belongs, with what is around it.
		x := d.AsX()
		VMOVDQU(At(p, at), x)
		for i := 1; i < 8; i++ {
			VPBLENDW(Imm(1<<i), At(p, at+(f.bytes-2)*i), x, x)
		}
		VCVTPH2PS(x, d)
	}
	VMULPS(At(act, actScales), d, d)
	VMULPS(d, v[0], v[0])
}

// words2 sets the words of y to the first words of eight blocks at p + at. Each is loaded where it
// belongs, with what is around it.
func words2(p reg.Register, at, bytes int, y reg.VecPhysical) {
	VMOVDQU(At(p, at), y)
	for i := 1; i < 8; i++ {
		VPBLENDD(Imm(1<<i), At(p, at+(bytes-4)*i), y, y)
	}
}

// smallFormats2 returns the formats of small blocks.
func smallFormats2() (list []*small2) {
	nibble := func(o int) func(m Mem, q reg.VecPhysical) {
		return func(m Mem, q reg.VecPhysical) { nibble2(m.Offset(o), q) }
	}
	fifth := func(o int) func(m Mem, q reg.VecPhysical) {
		return func(m Mem, q reg.VecPhysical) {
			// Each byte of Y5 becomes the byte that has the fifth bit of its code. The mask leaves that bit.
			VPBROADCASTD(m.Offset(o), reg.Y5)
			VPSHUFB(reg.Y10, reg.Y5, reg.Y5)
			VPAND(reg.Y11, reg.Y5, reg.Y5)
			VPCMPEQB(reg.Y11, reg.Y5, reg.Y5)
			VPAND(reg.Y12, reg.Y5, reg.Y5)
			nibble2(m.Offset(o+4), q)
			VPOR(reg.Y5, q, q)
		}
	}
	fifthTables := []Mem{
		Table("fifthByte2", append(append(append(Repeat([]byte{0}, 8), Repeat([]byte{1}, 8)...), Repeat([]byte{2}, 8)...), Repeat([]byte{3}, 8)...)),
		Table("fifthBit2", Repeat([]byte{1, 2, 4, 8, 16, 32, 64, 128}, 4)),
		bytes2("fifthBits", 16),
	}
	look := func(o int) func(m Mem, q reg.VecPhysical) {
		return func(m Mem, q reg.VecPhysical) {
			nibble2(m.Offset(o), q)
			VPSHUFB(q, reg.Y10, q)
		}
	}
	levels := func(name string, levels [16]int) []Mem {
		var b []byte
		for _, l := range levels {
			b = append(b, byte(l))
		}
		return []Mem{Table(name+"Levels2", Repeat(b, 2)), bytes2("bias128", 0x80)}
	}
	for _, f := range smallFormats() {
		g := &small2{small: f}
		switch f.name {
		case "q40":
			g.most, g.code = 15, nibble(2)
		case "q41":
			g.most, g.code = 15, nibble(4)
		case "q50":
			g.most, g.tables, g.code = 31, fifthTables, fifth(2)
		case "q51":
			g.most, g.tables, g.code = 31, fifthTables, fifth(4)
		case "q80":
			g.most, g.signed, g.tables = 128, true, []Mem{bytes2("bias128", 0x80), bytes2("bias128", 0x80)}
			g.code = func(m Mem, q reg.VecPhysical) { VMOVDQU(m.Offset(2), q) }
		case "iq4nl":
			g.most, g.signed, g.tables, g.code = 127, true, levels("iq4nl", iq4nlLevels), look(2)
		case "mxfp4":
			g.most, g.signed, g.tables, g.code = 12, true, levels("fp4", fp4Levels), look(1)
			g.scale = func() { e8m02(reg.Y2) }
		}
		list = append(list, g)
	}
	return list
}

// e8m02 changes the words of v to 2^(e-128), where e is the first byte. It changes Y3 to Y5.
func e8m02(v reg.VecPhysical) {
	low, mask := reg.Y3, reg.Y4
	VPAND(all2("byte2", 0xff), v, v)
	VMOVDQU(all2("subnormal2", 0x00200000), low)
	VPSLLVD(v, low, low)
	VPCMPGTD(all2("one2", 1), v, mask)
	VPCMPEQD(all2("byte2", 0xff), v, reg.Y5)
	VPAND(all2("nan2", 0x7fc00000), reg.Y5, reg.Y5)
	VPSUBD(all2("one2", 1), v, v)
	VPSLLD(Imm(23), v, v)
	VBLENDVPS(mask, v, low, v)
	VPOR(reg.Y5, v, v)
}
