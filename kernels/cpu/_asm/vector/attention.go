package main

import (
	"fmt"

	. "github.com/fucina-go/fucina/kernels/cpu/_asm/gen"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// rowBytes is the number of bytes of a row of scores.
const rowBytes = 64 * 4

func attention(v isa) {
	for _, half := range []bool{false, true} {
		for _, rows := range []int{4, 2, 1} {
			if v.wide() {
				scores512(v, rows, half)
			} else {
				scoresAVX2(v, rows, half)
			}
			v.accumulate(rows, half)
		}
	}
	v.weights()
	v.widen()
	v.widenQ80()
}

func form(half bool) string {
	if half {
		return "F16"
	}
	return "F32"
}

// elementBytes is the size of an element of a key or a value.
func elementBytes(half bool) int {
	if half {
		return 2
	}
	return 4
}

// load loads elements of a key or a value.
func (v isa) load(half bool, m Mem, x reg.VecPhysical) {
	if half {
		VCVTPH2PS(m, x)
	} else {
		VMOVUPS(m, x)
	}
}

// rowsAt returns registers that point to the rows of q.
func rowsAt(rows int) []reg.GPVirtual {
	q := make([]reg.GPVirtual, rows)
	d := GP64()
	Load(Param("d"), d)
	for r := range q {
		q[r] = GP64()
		if r == 0 {
			Load(Param("q"), q[0])
		} else {
			LEAQ(Mem{Base: q[r-1], Index: d, Scale: 4}, q[r])
		}
	}
	return q
}

// pointers sets p to the rows whose offsets begin at disp.
func pointers(p []reg.GPVirtual, offsets reg.Register, disp int) {
	keys := GP64()
	Load(Param("keys"), keys)
	for i := range p {
		MOVQ(At(offsets, disp+8*i), p[i])
		ADDQ(keys, p[i])
	}
}

// scoresText begins a function of scores.
func (v isa) scoresText(rows int, half bool) {
	TEXT(fmt.Sprintf("scores%sx%d%s", form(half), rows, v.name), NOSPLIT,
		"func(out, q *float32, d int, keys *byte, offsets *int, n int, scale float32)")
	VBROADCASTSS(NewParamAddr("scale", 48), v.r(15))
}

// elements is the loop over the elements of a product, 16 at a time.
func elements(label string, body func(i reg.Register)) {
	i := GP64()
	XORQ(i, i)
	Label(label)
	body(i)
	ADDQ(Imm(16), i)
	CMPQ(i, NewParamAddr("d", 16))
	JB(LabelRef(label))
}

// tiles is the loop over the keys of a function of scores, some at a time.
func tiles(keys int, body func(out, offsets reg.Register)) {
	out, offsets := Load(Param("out"), GP64()), Load(Param("offsets"), GP64())
	left := Load(Param("n"), GP64())
	Label("tile")
	body(out, offsets)
	ADDQ(Imm(uint64(4*keys)), out)
	ADDQ(Imm(uint64(8*keys)), offsets)
	SUBQ(Imm(uint64(keys)), left)
	JG(LabelRef("tile"))
	end()
}

// scores512 multiplies rows by 16/rows keys at a time.
func scores512(v isa, rows int, half bool) {
	v.scoresText(rows, half)
	scale := Z(31)
	VMOVAPS(Z(15), scale)
	q := rowsAt(rows)
	keys := 16 / rows
	p := make([]reg.GPVirtual, min(keys, 8))
	for i := range p {
		p[i] = GP64()
	}
	tiles(keys, func(out, offsets reg.Register) {
		for first := 0; first < keys; first += len(p) {
			// Four keys of a row end in a lane.
			acc := func(row, key int) reg.VecPhysical {
				key += first
				return Z(4*(key%4) + row + rows*(key/4))
			}
			pointers(p, offsets, 8*first)
			for k := range p {
				for r := range rows {
					VPXORD(acc(r, k), acc(r, k), acc(r, k))
				}
			}
			elements(fmt.Sprint("elements", first), func(i reg.Register) {
				for r := range rows {
					VMOVUPS(Mem{Base: q[r], Index: i, Scale: 4}, Z(24+r))
				}
				for k := range p {
					x := Z(16 + k)
					v.load(half, Mem{Base: p[k], Index: i, Scale: uint8(elementBytes(half))}, x)
					for r := range rows {
						VFMADD231PS(Z(24+r), x, acc(r, k))
					}
				}
			})
		}
		fold512()
		VMULPS(scale, Z(0), Z(0))
		for g := range 4 {
			m := At(out, rowBytes*(g%rows)+16*(g/rows))
			if g == 0 {
				VMOVUPS(reg.X0, m)
			} else {
				VEXTRACTF32X4(Imm(uint64(g)), Z(0), m)
			}
		}
	})
}

// fold512 sets word k of lane g of Z0 to the folded sum of register 4*k+g. It changes Z0 to Z17.
func fold512() {
	t := Z(16)
	for k := range 4 {
		a, b, c, d := Z(4*k), Z(4*k+1), Z(4*k+2), Z(4*k+3)
		for _, p := range [][2]reg.VecPhysical{{a, b}, {c, d}} {
			VSHUFF64X2(Imm(0xee), p[1], p[0], t)
			VSHUFF64X2(Imm(0x44), p[1], p[0], p[0])
			VADDPS(t, p[0], p[0])
		}
		VSHUFF64X2(Imm(0xdd), c, a, t)
		VSHUFF64X2(Imm(0x88), c, a, a)
		VADDPS(t, a, a)
	}
	for _, p := range [][2]int{{0, 4}, {8, 12}} {
		x, y := Z(p[0]), Z(p[1])
		VUNPCKHPD(y, x, t)
		VUNPCKLPD(y, x, x)
		VADDPS(t, x, x)
	}
	VSHUFPS(Imm(0xdd), Z(8), Z(0), t)
	VSHUFPS(Imm(0x88), Z(8), Z(0), Z(0))
	VADDPS(t, Z(0), Z(0))
}

// scoresAVX2 multiplies two rows by two keys at a time, or a row by four keys. Four rows are two
// times two.
func scoresAVX2(v isa, rows int, half bool) {
	v.scoresText(rows, half)
	together := min(rows, 2)
	keys := 4 / together
	q := rowsAt(rows)
	p := make([]reg.GPVirtual, keys)
	for i := range p {
		p[i] = GP64()
	}
	tiles(keys, func(out, offsets reg.Register) {
		pointers(p, offsets, 0)
		for pair := 0; pair < rows; pair += together {
			acc := func(row, key, part int) reg.VecPhysical { return v.r(2*(row*keys+key) + part) }
			for j := range 8 {
				VXORPS(v.r(j), v.r(j), v.r(j))
			}
			elements(fmt.Sprint("elements", pair), func(i reg.Register) {
				for part := range 2 {
					for r := range together {
						VMOVUPS(Mem{Base: q[pair+r], Index: i, Scale: 4, Disp: 32 * part}, v.r(8+r))
					}
					for k := range keys {
						x, size := v.r(10+k), elementBytes(half)
						v.load(half, Mem{Base: p[k], Index: i, Scale: uint8(size), Disp: 8 * size * part}, x)
						for r := range together {
							VFMADD231PS(v.r(8+r), x, acc(r, k, part))
						}
					}
				}
			})
			foldAVX2(v)
			VMULPS(reg.X15, reg.X0, reg.X0)
			if together == 1 {
				VMOVUPS(reg.X0, At(out, 0))
			} else {
				VMOVLPS(reg.X0, At(out, rowBytes*pair))
				VMOVHPS(reg.X0, At(out, rowBytes*(pair+1)))
			}
		}
	})
}

// foldAVX2 sets word j of X0 to the folded sum of registers 2*j and 2*j+1. It changes Y0 to Y7 and
// X14.
func foldAVX2(v isa) {
	for j := range 4 {
		x, y := v.r(2*j), v.r(2*j+1)
		low, high := v.x(2*j), v.x(2*j+1)
		VADDPS(y, x, x)
		VEXTRACTF128(Imm(1), x, high)
		VADDPS(high, low, low)
	}
	for j := range 2 {
		x, y := v.x(4*j), v.x(4*j+2)
		VUNPCKHPD(y, x, reg.X14)
		VUNPCKLPD(y, x, x)
		VADDPS(reg.X14, x, x)
	}
	VSHUFPS(Imm(0xdd), reg.X4, reg.X0, reg.X14)
	VSHUFPS(Imm(0x88), reg.X4, reg.X0, reg.X0)
	VADDPS(reg.X14, reg.X0, reg.X0)
}

// x returns the lower part of a register below 8.
func (isa) x(i int) reg.VecPhysical {
	return [...]reg.VecPhysical{reg.X0, reg.X1, reg.X2, reg.X3, reg.X4, reg.X5, reg.X6, reg.X7}[i]
}

// accumulate adds weighted values to several registers of each row at a time, and then to 16
// elements of each row at a time.
func (v isa) accumulate(rows int, half bool) {
	TEXT(fmt.Sprint("accumulate", form(half), "x", rows, v.name), NOSPLIT, "func(acc *float32, d int, w *float32, values *byte, offsets *int, n int)")
	acc, d, values := Load(Param("acc"), GP64()), Load(Param("d"), GP64()), Load(Param("values"), GP64())
	size := elementBytes(half)
	d4 := GP64()
	MOVQ(d, d4)
	SHLQ(Imm(2), d4)
	numbers := map[int][]int{4: {4, 1}, 2: {8, 4, 1}, 1: {8, 4, 1}}[rows] // of registers of a row
	if !v.wide() {
		numbers = map[int][]int{4: {2}, 2: {4, 2}, 1: {8, 2}}[rows]
	}
	for _, vecs := range numbers {
		elements := vecs * v.lanes
		at := func(r, j int) Mem {
			m := Mem{Base: acc, Disp: 4 * v.lanes * j}
			switch r {
			case 1:
				m.Index, m.Scale = d4, 1
			case 2:
				m.Index, m.Scale = d4, 2
			case 3:
				t := GP64()
				LEAQ(Mem{Base: acc, Index: d4, Scale: 2}, t)
				m.Base, m.Index, m.Scale = t, d4, 1
			}
			return m
		}
		a := func(r, j int) reg.VecPhysical { return v.r(r*vecs + j) }
		x := func(j int) reg.VecPhysical { return v.r(rows*vecs + j) }
		loop, rest := fmt.Sprint("columns", vecs), fmt.Sprint("rest", vecs)
		SUBQ(I32(int32(elements)), d)
		JL(LabelRef(rest))
		Label(loop)
		for r := range rows {
			for j := range vecs {
				VMOVUPS(at(r, j), a(r, j))
			}
		}
		w, offsets, n := Load(Param("w"), GP64()), Load(Param("offsets"), GP64()), Load(Param("n"), GP64())
		inner := fmt.Sprint("values", vecs)
		Label(inner)
		p := GP64()
		MOVQ(At(offsets, 0), p)
		ADDQ(values, p)
		few := min(vecs, 4)
		for first := 0; first < vecs; first += few {
			wr := v.r(rows*vecs + few)
			for j := range few {
				v.load(half, At(p, size*v.lanes*(first+j)), x(j))
			}
			for r := range rows {
				VBROADCASTSS(At(w, rowBytes*r), wr)
				for j := range few {
					VFMADD231PS(x(j), wr, a(r, first+j))
				}
			}
		}
		ADDQ(Imm(4), w)
		ADDQ(Imm(8), offsets)
		DECQ(n)
		JNZ(LabelRef(inner))
		for r := range rows {
			for j := range vecs {
				VMOVUPS(a(r, j), at(r, j))
			}
		}
		ADDQ(I32(int32(4*elements)), acc)
		ADDQ(I32(int32(size*elements)), values)
		SUBQ(I32(int32(elements)), d)
		JGE(LabelRef(loop))
		Label(rest)
		ADDQ(I32(int32(elements)), d)
	}
	end()
}

// widen makes rows of f16 f32.
func (v isa) widen() {
	TEXT("widen"+v.name, NOSPLIT, "func(dst *float32, d int, src *byte, offsets *int, n int)")
	dst, src := Load(Param("dst"), GP64()), Load(Param("src"), GP64())
	offsets, n := Load(Param("offsets"), GP64()), Load(Param("n"), GP64())
	Label("row")
	p, left := GP64(), GP64()
	MOVQ(At(offsets, 0), p)
	ADDQ(src, p)
	Load(Param("d"), left)
	Label("elements")
	for i := range v.parts() {
		VCVTPH2PS(At(p, 2*v.lanes*i), v.r(i))
		VMOVUPS(v.r(i), At(dst, 4*v.lanes*i))
	}
	ADDQ(Imm(32), p)
	ADDQ(Imm(64), dst)
	SUBQ(Imm(16), left)
	JNZ(LabelRef("elements"))
	ADDQ(Imm(8), offsets)
	DECQ(n)
	JNZ(LabelRef("row"))
	end()
}

// widenQ80 makes rows of q8_0 f32. A block is a scale in f16 and 32 bytes.
func (v isa) widenQ80() {
	TEXT("widenQ80"+v.name, NOSPLIT, "func(dst *float32, d int, src *byte, offsets *int, n int)")
	dst, src := Load(Param("dst"), GP64()), Load(Param("src"), GP64())
	offsets, n := Load(Param("offsets"), GP64()), Load(Param("n"), GP64())
	scale := v.r(4)
	Label("row")
	p, left, t := GP64(), GP64(), GP32()
	MOVQ(At(offsets, 0), p)
	ADDQ(src, p)
	Load(Param("d"), left)
	Label("blocks")
	MOVWLZX(At(p, 0), t)
	VMOVD(t, reg.X4)
	VCVTPH2PS(reg.X4, reg.X4)
	VBROADCASTSS(reg.X4, scale)
	for i := range 2 * v.parts() {
		x := v.r(i)
		VPMOVSXBD(At(p, 2+v.lanes*i), x)
		VCVTDQ2PS(x, x)
		VMULPS(scale, x, x)
		VMOVUPS(x, At(dst, 4*v.lanes*i))
	}
	ADDQ(Imm(34), p)
	ADDQ(I32(128), dst)
	SUBQ(Imm(32), left)
	JNZ(LabelRef("blocks"))
	ADDQ(Imm(8), offsets)
	DECQ(n)
	JNZ(LabelRef("row"))
	end()
}
