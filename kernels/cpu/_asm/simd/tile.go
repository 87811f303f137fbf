package main

import (
	"fmt"

	. "github.com/fucina-go/fucina/kernels/cpu/_asm/gen"
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
// once; the name has a W then.
func superTiles(group int, mins bool, words int) {
	kind, groups := "Bias", 256/group
	if mins {
		kind = "Mins"
	}
	w := ""
	if words > 0 {
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
		TEXT(name, NOSPLIT, "func(c *float32, panel, act *byte, tiles int)")
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
				clear(part)
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
		DECQ(left)
		JNZ(LabelRef(name + "Group"))
		clear(part)
		for g := range groups / 2 {
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
				if mins {
					VCVTDQ2PS(part(r, i), part(r, i))
				} else {
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

// smallTiles has the tiles of formats of small blocks whose codes have bias too much. With term, an
// element has the term m.
func smallTiles(kind string, bias int, term bool) {
	for _, n := range tileSizes {
		name := fmt.Sprintf("tile%sx%d", kind, n)
		TEXT(name, NOSPLIT, "func(c *float32, panel, act *byte, tiles int)")
		c, p := Load(Param("c"), GP64()), Load(Param("panel"), GP64())
		act, tiles := Load(Param("act"), GP64()), Load(Param("tiles"), GP64())
		dot := func(r, i int) reg.VecPhysical { return Z(r*n + i) }
		part := func(r, i int) reg.VecPhysical { return Z(12 + r*n + i) }
		Label(name + "Tile")
		for r := range 2 {
			for i := range n {
				VPXORD(part(r, i), part(r, i), part(r, i))
			}
		}
		codes, scales, a, s, left, w := GP64(), GP64(), GP64(), GP64(), GP64(), GP32()
		MOVQ(p, codes)
		LEAQ(At(p, panelScales), scales)
		MOVQ(act, a)
		MOVQ(act, s)
		MOVQ(I32(8), left)
		scale, ahead := GP64(), GP64()
		MOVQ(act, scale)
		LEAQ(At(act, actBytes*n), ahead)
		Label(name + "Block")
		prefetch(ahead, actBytes*n, 8)
		for i := range n {
			if bias == 0 {
				VPXORD(dot(0, i), dot(0, i), dot(0, i))
				VPXORD(dot(1, i), dot(1, i), dot(1, i))
				continue
			}
			MOVWLSX(At(s, actBytes*i+actSums), w)
			IMUL3L(I32(int32(-bias)), w, w)
			VPBROADCASTD(w, dot(0, i))
			VMOVDQA32(dot(0, i), dot(1, i))
		}
		products(codes, a, 0, 8, n, dot)
		for r := range 2 {
			VMOVUPS(At(scales, 64*r), Z(24))
			if term {
				VMOVUPS(At(scales, 8*128+64*r), Z(25))
			}
			for i := range n {
				v := dot(r, i)
				VCVTDQ2PS(v, v)
				if term {
					VMULPS(Z(24), v, v)
					MOVWLSX(At(s, actBytes*i+actSums), w)
					VPBROADCASTD(w, Z(26))
					VCVTDQ2PS(Z(26), Z(26))
					VFMADD231PS(Z(26), Z(25), v)
					VMULPS_BCST(At(scale, actBytes*i+actScales), v, v)
				} else {
					VMULPS_BCST(At(scale, actBytes*i+actScales), Z(24), Z(26))
					VMULPS(Z(26), v, v)
				}
				VADDPS(v, part(r, i), part(r, i))
			}
		}
		ADDQ(I32(1024), codes)
		ADDQ(I32(128), scales)
		ADDQ(I32(32), a)
		ADDQ(I32(2), s)
		ADDQ(I32(4), scale)
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
