package main

import (
	"fmt"
	"math/bits"

	. "github.com/fucina-go/fucina/kernels/cpu/_asm/gen"
	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// A tile multiplies a panel, 32 rows of weights in two zmm, by n rows of activations. It adds to c,
// which is [activation][32].

// tiles are the numbers of activations for which there are tiles.
var tileSizes = []int{6, 4, 2, 1}

const panelScales = 64 * 128

// products adds the products of steps 4-byte steps of the panel at p, from first on, with those of the
// n stretches at act to the sums.
func products(p, act reg.Register, first, steps, n int, sum func(r, i int) reg.VecPhysical) {
	for s := first; s < first+steps; s++ {
		VMOVDQU32(At(p, 128*s), Z(24))
		VMOVDQU32(At(p, 128*s+64), Z(25))
		for i := range n {
			b := Z(26 + i%2)
			VPBROADCASTD(At(act, actBytes*i+4*s), b)
			VPDPBUSD(b, Z(24), sum(0, i))
			VPDPBUSD(b, Z(25), sum(1, i))
		}
	}
}

// superTiles has the tiles of formats of super-blocks with groups of the given number of elements. If
// words is above 0, the sum of that number of products is a word, which is multiplied and added at
// once; the name has a W then. If only the sum of 8 products is a word, and of codes without their
// bias, the name has an H, and the sums start at what the bias of 32 makes too much.
func superTiles(group int, mins bool, words int) {
	kind, groups := "Bias", 256/group
	if mins {
		kind = "Mins"
	}
	w, starts := "", words == 8
	switch {
	case starts:
		w = "H"
	case words > 0:
		w = "W"
	}
	pairs := panelScales + 128*groups
	d := pairs + 128*groups/2
	sums := actSums32
	if group == 16 {
		sums = actSums16
	}
	for _, n := range tileSizes {
		name := fmt.Sprintf("tile%s%d%sx%d", kind, group, w, n)
		TEXT(name, tileAttribute(starts), "func(c *float32, panel, act *byte, tiles int)")
		var frame Mem
		if starts {
			frame = AllocLocal(startBytes * n)
		}
		c, p := Load(Param("c"), GP64()), Load(Param("panel"), GP64())
		act, tiles := Load(Param("act"), GP64()), Load(Param("tiles"), GP64())
		part := func(r, i int) reg.VecPhysical { return Z(r*n + i) }
		total := func(r, i int) reg.VecPhysical { return Z(12 + r*n + i) }
		each := func(f func(r, i int)) {
			for r := range 2 {
				for i := range n {
					f(r, i)
				}
			}
		}
		clear := func(v func(r, i int) reg.VecPhysical) {
			each(func(r, i int) { VPXORD(v(r, i), v(r, i), v(r, i)) })
		}
		Label(name + "Tile")
		start := GP64()
		if starts {
			makeStarts(act, frame, 32, 8, n)
			LEAQ(frame, start)
		}
		clear(total)
		codes, scales, a, left := GP64(), GP64(), GP64(), GP64()
		MOVQ(p, codes)
		LEAQ(At(p, panelScales), scales)
		MOVQ(act, a)
		ahead := GP64()
		LEAQ(At(act, actBytes*n), ahead)
		MOVQ(I32(int32(groups)), left)
		Label(name + "Group")
		prefetch(ahead, actBytes*n, groups)
		if words > 0 {
			VMOVDQU32(At(scales, 0), Z(28))
			VMOVDQU32(At(scales, 64), Z(29))
			if !mins { // the words that are multiplied by signs are 0
				VPANDD_BCST(word("lowWord", 0xffff), Z(28), Z(28))
				VPANDD_BCST(word("lowWord", 0xffff), Z(29), Z(29))
			}
			for e := 0; e < group; e += words {
				if starts {
					loadStarts(At(start, e), startBytes, n, part)
				} else {
					clear(part)
				}
				products(codes, a, e/4, words/4, n, part)
				each(func(r, i int) { VPDPWSSD(Z(28+r), part(r, i), total(r, i)) })
			}
		} else {
			clear(part)
			products(codes, a, 0, group/4, n, part)
			VMOVDQU32(At(scales, 0), Z(28))
			VMOVDQU32(At(scales, 64), Z(29))
			each(func(r, i int) {
				VPMULLD(Z(28+r), part(r, i), part(r, i))
				VPADDD(part(r, i), total(r, i), total(r, i))
			})
		}
		ADDQ(I32(int32(32*group)), codes)
		ADDQ(I32(128), scales)
		ADDQ(I32(int32(group)), a)
		if starts {
			ADDQ(I32(int32(group)), start)
		}
		DECQ(left)
		JNZ(LabelRef(name + "Group"))
		clear(part)
		for g := range groups / 2 {
			if starts {
				break
			}
			VMOVDQU32(At(p, pairs+128*g), Z(24))
			VMOVDQU32(At(p, pairs+128*g+64), Z(25))
			for i := range n {
				b := Z(26 + i%2)
				VPBROADCASTD(At(act, actBytes*i+sums+4*g), b)
				VPDPWSSD(b, Z(24), part(0, i))
				VPDPWSSD(b, Z(25), part(1, i))
			}
		}
		for r := range 2 {
			VMOVUPS(At(p, d+64*r), Z(24))
			if mins {
				VMOVUPS(At(p, d+128+64*r), Z(25))
			}
			for i := range n {
				switch {
				case mins:
					VCVTDQ2PS(part(r, i), part(r, i))
				case !starts:
					VPSUBD(part(r, i), total(r, i), total(r, i))
				}
				VCVTDQ2PS(total(r, i), total(r, i))
				VMULPS(Z(24), total(r, i), total(r, i))
				if mins {
					VFNMADD231PS(Z(25), part(r, i), total(r, i))
				}
				m := At(c, 128*i+64*r)
				VMOVUPS(m, Z(28))
				VFMADD231PS_BCST(At(act, actBytes*i+actScale), total(r, i), Z(28))
				VMOVUPS(Z(28), m)
			}
		}
		nextTile(name, c, act, tiles, n)
	}
}

// startBytes is the number of bytes of the starts of a stretch.
const startBytes = 256

// tileAttribute is the attribute of a tile. With starts it has a frame that may not be there.
func tileAttribute(starts bool) attr.Attribute {
	if starts {
		return 0
	}
	return NOSPLIT
}

// makeStarts sets words at the frame, one for each of the given number of codes of the n stretches at
// act and as far apart, in bytes, to the sum of the codes times -bias.
func makeStarts(act reg.Register, frame Mem, bias, codes, n int) {
	constant, sign, factor := Z(24), Z(25), Z(26)
	Broadcast(uint32(4*128*bias), constant)
	Broadcast(0x80808080, sign)
	Broadcast(0x01010101*uint32(256-bias), factor)
	for i := range n {
		for k := range 4 {
			v, t := Z(27), Z(28)
			VPXORD(At(act, actBytes*i+64*k), sign, t)
			VMOVDQA32(constant, v)
			VPDPBUSD(factor, t, v)
			for shift := 4; shift < codes; shift *= 2 {
				VPSHUFD(Imm(map[int]uint64{4: 0xb1, 8: 0x4e}[shift]), v, t)
				VPADDD(t, v, v)
			}
			VMOVDQU32(v, frame.Offset(startBytes*i+64*k))
		}
	}
}

// loadStarts sets the sums to the starts at m of each stretch, which are stride bytes apart.
func loadStarts(m Mem, stride, n int, sum func(r, i int) reg.VecPhysical) {
	for i := range n {
		VPBROADCASTD(m.Offset(stride*i), sum(0, i))
		VMOVDQA32(sum(0, i), sum(1, i))
	}
}

// prefetch loads the next part, of so many, of the size bytes at p to the first cache, and advances p.
// Where the activations of a stretch are in the second cache only, the tiles would wait for them.
func prefetch(p reg.Register, size, parts int) {
	lines := (size/parts + 63) / 64
	for i := range lines {
		PREFETCHT0(At(p, 64*i))
	}
	ADDQ(I32(int32(64*lines)), p)
}

// nextTile goes on with the next tile, or returns after the last one.
func nextTile(name string, c, act, tiles reg.Register, n int) {
	ADDQ(I32(int32(128*n)), c)
	ADDQ(I32(int32(actBytes*n)), act)
	DECQ(tiles)
	JNZ(LabelRef(name + "Tile"))
	VZEROUPPER()
	RET()
}

// smallTile is a kind of tiles of formats of small blocks.
type smallTile struct {
	kind string
	bias int  // what the codes have too much
	term bool // an element has the term m
	two  bool // the halves of a block have scales of their own
}

func (f *smallTile) generate() {
	for _, n := range tileSizes {
		name := fmt.Sprintf("tile%sx%d", f.kind, n)
		TEXT(name, tileAttribute(f.two), "func(c *float32, panel, act *byte, tiles int)")
		frame := AllocLocal(f.startBytes() * n)
		c, p := Load(Param("c"), GP64()), Load(Param("panel"), GP64())
		act, tiles := Load(Param("act"), GP64()), Load(Param("tiles"), GP64())
		dot := func(r, i int) reg.VecPhysical { return Z(r*n + i) }
		part := func(r, i int) reg.VecPhysical { return Z(12 + r*n + i) }
		Label(name + "Tile")
		codes, scales, a, left := GP64(), GP64(), GP64(), GP64()
		start, scale, ahead := GP64(), GP64(), GP64()
		if f.two {
			makeStarts(act, frame, f.bias, 16, n)
		} else {
			makeSums(act, frame, f.bias, n)
		}
		LEAQ(frame, start)
		for r := range 2 {
			for i := range n {
				VPXORD(part(r, i), part(r, i), part(r, i))
			}
		}
		MOVQ(p, codes)
		LEAQ(At(p, panelScales), scales)
		MOVQ(act, a)
		MOVQ(I32(8), left)
		MOVQ(act, scale)
		LEAQ(At(act, actBytes*n), ahead)
		Label(name + "Block")
		prefetch(ahead, actBytes*n, 8)
		if f.two {
			f.halves(codes, scales, a, start, scale, n, dot, part)
		} else {
			f.block(codes, scales, a, start, scale, n, dot, part)
		}
		ADDQ(I32(1024), codes)
		ADDQ(I32(128), scales)
		ADDQ(I32(32), a)
		ADDQ(I32(4), scale)
		ADDQ(I32(int32(f.startBytes()/8)), start)
		DECQ(left)
		JNZ(LabelRef(name + "Block"))
		for r := range 2 {
			for i := range n {
				m := At(c, 128*i+64*r)
				VADDPS(m, part(r, i), part(r, i))
				VMOVUPS(part(r, i), m)
			}
		}
		nextTile(name, c, act, tiles, n)
	}
}

// startBytes is the number of bytes that a tile keeps for each row of activations.
func (f *smallTile) startBytes() int {
	if f.two {
		return startBytes
	}
	return 32
}

// makeSums sets 8 words at the frame, for each of the n stretches at act, to what the sums of the blocks
// start at for the bias, or without one to the sums of the codes, in f32. It changes Y0 and Y1.
func makeSums(act reg.Register, frame Mem, bias, n int) {
	v, zero := Z(0).AsY(), Z(1).AsY()
	VPXOR(zero, zero, zero)
	for i := range n {
		VPMOVSXWD(At(act, actBytes*i+actSums), v)
		if bias == 0 {
			VCVTDQ2PS(v, v)
		} else {
			VPSLLD(Imm(uint64(bits.TrailingZeros(uint(bias)))), v, v)
			VPSUBD(v, zero, v)
		}
		VMOVDQU(v, frame.Offset(32*i))
	}
}

// block adds the products of a block to the parts.
func (f *smallTile) block(codes, scales, a, start, scale reg.Register, n int, dot, part func(r, i int) reg.VecPhysical) {
	if f.term {
		for i := range n {
			VPXORD(dot(0, i), dot(0, i), dot(0, i))
			VPXORD(dot(1, i), dot(1, i), dot(1, i))
		}
	} else {
		loadStarts(At(start, 0), 32, n, dot)
	}
	products(codes, a, 0, 8, n, dot)
	for r := range 2 {
		VMOVUPS(At(scales, 64*r), Z(24))
		if f.term {
			VMOVUPS(At(scales, 8*128+64*r), Z(25))
		}
		for i := range n {
			v := dot(r, i)
			VCVTDQ2PS(v, v)
			if f.term {
				VMULPS(Z(24), v, v)
				VFMADD231PS_BCST(At(start, 32*i), Z(25), v)
				VMULPS_BCST(At(scale, actBytes*i+actScales), v, v)
			} else {
				VMULPS_BCST(At(scale, actBytes*i+actScales), Z(24), Z(26))
				VMULPS(Z(26), v, v)
			}
			VADDPS(v, part(r, i), part(r, i))
		}
	}
}

// halves is block for blocks whose halves have scales of their own. A row of activations comes after
// the other, because the sums of the first halves are in the registers of other rows.
func (f *smallTile) halves(codes, scales, a, start, scale reg.Register, n int, dot, part func(r, i int) reg.VecPhysical) {
	for r := range 2 {
		first := func(i int) reg.VecPhysical { return dot(0, i) }
		second := func(i int) reg.VecPhysical { return dot(1, i) }
		for h, sum := range []func(i int) reg.VecPhysical{first, second} {
			for i := range n {
				VPBROADCASTD(At(start, startBytes*i+16*h), sum(i))
			}
			for s := 4 * h; s < 4*h+4; s++ {
				VMOVDQU32(At(codes, 128*s+64*r), Z(24))
				for i := range n {
					VPDPBUSD_BCST(At(a, actBytes*i+4*s), Z(24), sum(i))
				}
			}
		}
		VMOVUPS(At(scales, 64*r), Z(24))
		VMOVUPS(At(scales, 8*128+64*r), Z(25))
		for i := range n {
			VCVTDQ2PS(first(i), first(i))
			VCVTDQ2PS(second(i), second(i))
			VMULPS(Z(24), first(i), first(i))
			VFMADD231PS(Z(25), second(i), first(i))
			VMULPS_BCST(At(scale, actBytes*i+actScales), first(i), first(i))
			VADDPS(first(i), part(r, i), part(r, i))
		}
	}
}
