package main

import (
	"fmt"

	. "github.com/fucina-go/fucina/kernels/cpu/_asm/gen"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The tiles of this file have 16 rows of weights in two ymm, and take the halves of a panel one after
// the other. They use VEX instructions only.

// ymmTileSizes are the numbers of activations of tiles that keep sums in registers besides the words.
var ymmTileSizes = []int{3, 2, 1}

// A multiplier multiplies codes of weights by those of activations.
type multiplier struct {
	name string
	// depth is the number of products of VPMADDUBSW, of codes of the panel and -127 or 127, whose sum
	// is a word: at most 8, the number of steps of a group of 32. It is 0 if sums of 32 bits are made
	// by VPDPBUSD.
	depth int
	// signed is what the codes have too much, if it is taken off so that their magnitudes are
	// multiplied.
	signed byte
	// word says that the sum of 16 products is a word.
	word bool
}

func ymmTiles() {
	words := func(depth int) multiplier { return multiplier{name: fmt.Sprintf("D%d", depth), depth: depth} }
	signed := func(bias byte) multiplier { return multiplier{name: "S", depth: 1, signed: bias} }
	dot, dotWord := multiplier{}, multiplier{name: "W", word: true}
	for _, t := range []ymmTile{
		{kind: "Mins16", group: 16, mins: true, multiplier: words(4)},
		{kind: "Mins32", group: 32, mins: true, multiplier: words(8)},
		{kind: "Mins32", group: 32, mins: true, multiplier: words(4)},
		{kind: "Bias16", group: 16, multiplier: words(4)},
		{kind: "Bias16", group: 16, multiplier: words(2)},
		{kind: "Bias16", group: 16, multiplier: words(1)},
		{kind: "Bias32", group: 32, multiplier: words(4)},
		{kind: "Bias32", group: 32, multiplier: words(1)},
		{kind: "Bias32", group: 32, multiplier: signed(128)},
		{kind: "Small1", bias: 1, multiplier: words(8)},
		{kind: "Small8", bias: 8, multiplier: words(8)},
		{kind: "Small16", bias: 16, multiplier: words(4)},
		{kind: "Small128", multiplier: signed(128)},
		{kind: "SmallTwo", two: true, multiplier: signed(16)},
		{kind: "SmallTerm", mins: true, multiplier: words(4)},

		{kind: "Mins16", group: 16, mins: true, multiplier: dotWord},
		{kind: "Mins32", group: 32, mins: true, multiplier: dotWord},
		{kind: "Mins32", group: 32, mins: true, multiplier: dot},
		{kind: "Bias16", group: 16, multiplier: dotWord},
		{kind: "Bias16", group: 16, multiplier: dot},
		{kind: "Bias32", group: 32, multiplier: dot},
		{kind: "Small1", bias: 1, multiplier: dot},
		{kind: "Small8", bias: 8, multiplier: dot},
		{kind: "Small16", bias: 16, multiplier: dot},
		{kind: "Small128", bias: 128, multiplier: dot},
		{kind: "SmallTerm", mins: true, multiplier: dot},
	} {
		sizes := ymmTileSizes
		if t.depth == 0 {
			sizes = tileSizes
		}
		for _, n := range sizes {
			t.generate(n)
		}
	}
}

// ymmTile is a tile of formats of one kind.
type ymmTile struct {
	kind  string
	group int // elements of a scale in a super-block, or 0 for small blocks
	bias  int // what the sums of small blocks have too much
	mins  bool
	two   bool // the halves of a small block have scales of their own
	multiplier
}

// ymmRegisters are what generate gives to the parts of a tile.
type ymmRegisters struct {
	c, p, act reg.Register // of this tile
	n         int
	left, off reg.Register
	codes, a  reg.Register // of this group
	ahead     reg.Register // the activations of the next tile
	frame     Mem
	parts     int
}

// sum is the register of the products of a tile, or of a group of it. They are the registers 0 to 5,
// or to 11 in tiles with VPDPBUSD.
func (g *ymmRegisters) sum(r, i int) reg.VecPhysical { return ymm(r*g.n + i) }

// part is the register of products that are added to the sum later, or to memory.
func (g *ymmRegisters) part(r, i int) reg.VecPhysical { return ymm(g.parts + r*g.n + i) }

// memory is a place in the frame, for a sum.
func (g *ymmRegisters) memory(r, i int) Mem { return g.frame.Offset(32 * (r*g.n + i)) }

// zero sets the memory to 0. It changes the register 15.
func (g *ymmRegisters) zero() {
	VPXOR(ymm(15), ymm(15), ymm(15))
	g.each(func(r, i int) { VMOVDQU(ymm(15), g.memory(r, i)) })
}

func (g *ymmRegisters) each(f func(r, i int)) {
	for r := range 2 {
		for i := range g.n {
			f(r, i)
		}
	}
}

func (t *ymmTile) generate(n int) {
	level := "AVX2"
	if t.depth == 0 {
		level = "AVXVNNI"
	}
	TEXT(fmt.Sprintf("tile%s%sx%d%s", t.kind, t.name, n, level), NOSPLIT, "func(c *float32, panel, act *byte, tiles int)")
	g := &ymmRegisters{n: n, c: GP64(), act: GP64(), left: GP64(), off: GP64(), codes: GP64(), a: GP64(), ahead: GP64()}
	g.p = Load(Param("panel"), GP64())
	half, tiles := GP64(), GP64()
	XORQ(half, half)
	switch {
	case t.two:
		g.frame = AllocLocal(2 * 64 * n)
	case t.group == 0:
		g.frame = AllocLocal(64*n + 32*n)
	case t.depth == 0:
		g.frame = AllocLocal(64 * n)
	}
	if t.depth > 0 {
		g.parts = 6
	}
	Label("half")
	Load(Param("c"), g.c)
	ADDQ(half, g.c)
	Load(Param("act"), g.act)
	Load(Param("tiles"), tiles)
	Label("tile")
	MOVQ(g.p, g.codes)
	MOVQ(g.act, g.a)
	LEAQ(At(g.act, actBytes*n), g.ahead)
	if t.group > 0 {
		t.super(g)
	} else {
		t.small(g)
	}
	ADDQ(I32(int32(128*n)), g.c)
	ADDQ(I32(int32(actBytes*n)), g.act)
	DECQ(tiles)
	JNZ(LabelRef("tile"))
	ADDQ(I32(64), g.p)
	ADDQ(I32(64), half)
	CMPQ(half, I32(128))
	JNE(LabelRef("half"))
	VZEROUPPER()
	RET()
}

// super is the part of a tile for super-blocks.
func (t *ymmTile) super(g *ymmRegisters) {
	groups := 256 / t.group
	pairs := panelPairs(groups)
	d := panelD(groups)
	if t.depth == 0 {
		g.zero()
	} else {
		g.each(func(r, i int) { VPXOR(g.sum(r, i), g.sum(r, i), g.sum(r, i)) })
	}
	LEAQ(At(g.p, panelScales), g.off)
	MOVQ(I32(int32(groups)), g.left)
	Label("group")
	prefetch(g.ahead, actBytes*g.n, groups)
	t.products(g, t.group/4, func(r int, v reg.VecPhysical) {
		VMOVDQU(At(g.off, 32*r), v)
		switch {
		case t.word: // the words that are multiplied by signs are 0
			VPAND(Table("wordMask", Repeat([]byte{255, 255, 0, 0}, 8)), v, v)
		case t.depth > 0: // each scale twice, in words
			VPSHUFB(Table("lowWords", Repeat([]byte{0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13}, 2)), v, v)
		}
	})
	ADDQ(I32(int32(32*t.group)), g.codes)
	ADDQ(I32(128), g.off)
	ADDQ(I32(int32(t.group)), g.a)
	DECQ(g.left)
	JNZ(LabelRef("group"))
	w, b, v := [2]reg.VecPhysical{ymm(12), ymm(13)}, ymm(14), ymm(15)
	if t.signed == 0 {
		sums := actSums32
		if t.group == 16 {
			sums = actSums16
		}
		for k := range groups / 2 {
			VMOVDQU(At(g.p, pairs+128*k), w[0])
			VMOVDQU(At(g.p, pairs+128*k+32), w[1])
			for i := range g.n {
				VPBROADCASTD(At(g.act, actBytes*i+sums+4*k), b)
				for r := range 2 {
					if k == 0 {
						VPMADDWD(b, w[r], g.part(r, i))
						continue
					}
					if t.depth == 0 {
						DotWords(b, w[r], g.part(r, i))
						continue
					}
					VPMADDWD(b, w[r], v)
					VPADDD(v, g.part(r, i), g.part(r, i))
				}
			}
		}
	}
	for r := range 2 {
		VMOVUPS(At(g.p, d+32*r), w[0])
		if t.mins {
			VMOVUPS(At(g.p, d+128+32*r), w[1])
		}
		for i := range g.n {
			sum, part := g.sum(r, i), g.part(r, i)
			if t.depth == 0 {
				sum = v
				VMOVDQU(g.memory(r, i), sum)
			}
			if !t.mins && t.signed == 0 {
				VPSUBD(part, sum, sum)
			}
			VCVTDQ2PS(sum, sum)
			VMULPS(w[0], sum, sum)
			if t.mins {
				VCVTDQ2PS(part, part)
				VFNMADD231PS(w[1], part, sum)
			}
			m := At(g.c, 128*i+32*r)
			VBROADCASTSS(At(g.act, actBytes*i+actScale), b)
			VMOVUPS(m, part)
			VFMADD231PS(b, sum, part)
			VMOVUPS(part, m)
		}
	}
}

// products adds the products of a group of the given number of steps to the sums. load sets v to the
// scales of the rows.
func (t *ymmTile) products(g *ymmRegisters, steps int, load func(r int, v reg.VecPhysical)) {
	switch {
	case t.depth == 0:
		w, b := [2]reg.VecPhysical{ymm(12), ymm(13)}, [2]reg.VecPhysical{ymm(14), ymm(15)}
		for s := range steps {
			if t.group > 0 && (s == 0 || t.word && s%4 == 0) {
				g.each(func(r, i int) { VPXOR(g.part(r, i), g.part(r, i), g.part(r, i)) })
			}
			VMOVDQU(At(g.codes, 128*s), w[0])
			VMOVDQU(At(g.codes, 128*s+32), w[1])
			for i := range g.n {
				VPBROADCASTD(At(g.a, actBytes*i+4*s), b[i%2])
				for r := range 2 {
					DotBytes(b[i%2], w[r], g.part(r, i))
				}
			}
			if t.group == 0 || s != steps-1 && !(t.word && s%4 == 3) {
				continue
			}
			for r := range 2 {
				load(r, w[r])
				for i := range g.n {
					part, m := g.part(r, i), g.memory(r, i)
					if t.word {
						VMOVDQU(m, b[i%2])
						DotWords(w[r], part, b[i%2])
						VMOVDQU(b[i%2], m)
						continue
					}
					VPMULLD(w[r], part, part)
					VPADDD(m, part, part)
					VMOVDQU(part, m)
				}
			}
		}
	case t.signed > 0:
		scale, w, size, b, v := [2]reg.VecPhysical{ymm(6), ymm(7)}, [2]reg.VecPhysical{ymm(8), ymm(9)}, [2]reg.VecPhysical{ymm(10), ymm(11)}, ymm(12), ymm(14)
		load(0, scale[0])
		load(1, scale[1])
		for s := range steps {
			for r := range 2 {
				VMOVDQU(At(g.codes, 128*s+32*r), w[r])
				VPSUBB(bytes2(fmt.Sprintf("bytes%02x", t.signed), t.signed), w[r], w[r])
				VPABSB(w[r], size[r])
			}
			for i := range g.n {
				VPBROADCASTD(At(g.a, actBytes*i+4*s), b)
				for r := range 2 {
					VPSIGNB(w[r], b, v)
					VPMADDUBSW(v, size[r], v)
					VPMADDWD(scale[r], v, v)
					VPADDD(v, g.sum(r, i), g.sum(r, i))
				}
			}
		}
	case t.depth < 4:
		scale, w := [2]reg.VecPhysical{ymm(6), ymm(7)}, [4]reg.VecPhysical{ymm(8), ymm(9), ymm(10), ymm(11)}
		b, v := [2]reg.VecPhysical{ymm(12), ymm(13)}, [2]reg.VecPhysical{ymm(14), ymm(15)}
		load(0, scale[0])
		load(1, scale[1])
		for s := 0; s < steps; s += t.depth {
			for k := range t.depth {
				VMOVDQU(At(g.codes, 128*(s+k)), w[2*k])
				VMOVDQU(At(g.codes, 128*(s+k)+32), w[2*k+1])
			}
			for i := range g.n {
				for k := range t.depth {
					VPBROADCASTD(At(g.a, actBytes*i+4*(s+k)), b[k])
				}
				for r := range 2 {
					for k := range t.depth {
						VPMADDUBSW(b[k], w[2*k+r], v[k])
					}
					if t.depth == 2 {
						VPADDW(v[1], v[0], v[0])
					}
					VPMADDWD(scale[r], v[0], v[0])
					VPADDD(v[0], g.sum(r, i), g.sum(r, i))
				}
			}
		}
	default:
		w, b, v := [2]reg.VecPhysical{ymm(12), ymm(13)}, ymm(14), ymm(15)
		for s := range steps {
			VMOVDQU(At(g.codes, 128*s), w[0])
			VMOVDQU(At(g.codes, 128*s+32), w[1])
			for i := range g.n {
				VPBROADCASTD(At(g.a, actBytes*i+4*s), b)
				for r := range 2 {
					if s%t.depth == 0 {
						VPMADDUBSW(b, w[r], g.part(r, i))
						continue
					}
					VPMADDUBSW(b, w[r], v)
					VPADDW(v, g.part(r, i), g.part(r, i))
				}
			}
			if s%t.depth != t.depth-1 && s != steps-1 {
				continue
			}
			for r := range 2 {
				load(r, w[r])
				for i := range g.n {
					VPMADDWD(w[r], g.part(r, i), g.part(r, i))
					VPADDD(g.part(r, i), g.sum(r, i), g.sum(r, i))
				}
			}
		}
	}
}

// small is the part of a tile for small blocks. The sums of blocks are in memory.
func (t *ymmTile) small(g *ymmRegisters) {
	w, b, v := [2]reg.VecPhysical{ymm(12), ymm(13)}, ymm(14), ymm(15)
	g.zero()
	sums := GP64()
	if t.bias > 0 || t.mins {
		makeSums(g.act, g.frame.Offset(64*g.n), t.bias, g.n)
		LEAQ(g.frame.Offset(64*g.n), sums)
	}
	LEAQ(At(g.p, panelScales), g.off)
	// left counts from 0 to 8, and is the block.
	XORQ(g.left, g.left)
	// sum is the place of what makeSums makes of the activations.
	sum := func(i int) Mem { return Mem{Base: sums, Index: g.left, Scale: 4, Disp: 32 * i} }
	ones := func(_ int, v reg.VecPhysical) { VMOVDQU(Table("ones", Repeat([]byte{1, 0}, 16)), v) }
	// part multiplies the next codes of a block.
	part := func(steps int) {
		for i := range g.n {
			if t.bias > 0 {
				VPBROADCASTD(sum(i), g.sum(0, i))
				VMOVDQA(g.sum(0, i), g.sum(1, i))
				continue
			}
			VPXOR(g.sum(0, i), g.sum(0, i), g.sum(0, i))
			VPXOR(g.sum(1, i), g.sum(1, i), g.sum(1, i))
		}
		t.products(g, steps, ones)
		ADDQ(I32(int32(128*steps)), g.codes)
		ADDQ(I32(int32(4*steps)), g.a)
	}
	// first is the place of the products of the first half of a block.
	first := func(r, i int) Mem { return g.memory(2+r, i) }
	Label("block")
	prefetch(g.ahead, actBytes*g.n, 8)
	if t.two {
		part(4)
		for r := range 2 {
			VMOVUPS(At(g.off, 32*r), w[0])
			for i := range g.n {
				p := g.sum(r, i)
				VCVTDQ2PS(p, p)
				VMULPS(w[0], p, p)
				VMOVUPS(p, first(r, i))
			}
		}
		part(4)
	} else {
		part(8)
	}
	for r := range 2 {
		VMOVUPS(At(g.off, 32*r), w[0])
		if t.mins || t.two {
			VMOVUPS(At(g.off, 8*128+32*r), w[1])
		}
		for i := range g.n {
			p := g.sum(r, i)
			VCVTDQ2PS(p, p)
			VBROADCASTSS(Mem{Base: g.act, Index: g.left, Scale: 4, Disp: actBytes*i + actScales}, b)
			switch {
			case t.mins:
				VMULPS(w[0], p, p)
				VBROADCASTSS(sum(i), v)
				VFMADD231PS(v, w[1], p)
			case t.two:
				VFMADD213PS(first(r, i), w[1], p)
			default:
				VMULPS(w[0], b, b)
			}
			VMULPS(b, p, p)
			m := g.memory(r, i)
			VADDPS(m, p, p)
			VMOVUPS(p, m)
		}
	}
	ADDQ(I32(128), g.off)
	INCQ(g.left)
	CMPQ(g.left, I32(8))
	JNE(LabelRef("block"))
	g.each(func(r, i int) {
		m := At(g.c, 128*i+32*r)
		VMOVUPS(m, v)
		VADDPS(g.memory(r, i), v, v)
		VMOVUPS(v, m)
	})
}
