package main

import (
	"math/bits"
	"slices"

	. "github.com/fucina-go/fucina/kernels/cpu/_asm/gen/a64"
)

// super is a format with super-blocks.
type super struct {
	name  string
	bytes int   // of a block
	order []int // of groups of 32 activations
	group int   // codes of a scale
	most  int   // of the codes
	bias  int   // what the codes have too much, a power of two
	d     int   // the offset of d
	mins  bool  // dmin follows d
	wide  bool  // d is an f32
	// half sets the first lane of v to the half d, if it is not at an offset.
	half func(p R, v V)
	// factor is the register with what d is multiplied by, if it is not 0.
	factor V
	// constants loads constants.
	constants func()
	// scales sets the halves of s to the scales of the block at p, and those of m to the minima, if
	// there are any. It may change tmp. If it is nil, there is one scale.
	scales func(p R, s, m [2]V, tmp []V)
	// groups says which groups of 16 elements come from a run of codes.
	groups func(run int) []int
	// codes sets out to the codes of these groups, without a sign or exact. It may change tmp.
	codes func(p R, run int, out, tmp []V)
	runs  int
}

var (
	ascending = []int{0, 1, 2, 3, 4, 5, 6, 7}
	halves    = []int{0, 2, 1, 3, 4, 6, 5, 7}
	quarters  = []int{0, 2, 4, 6, 1, 3, 5, 7}
)

var (
	nibbles     = repeat(15)
	iq4nlLevels = levelBytes(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
	fp4Levels   = levelBytes(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
)

func levelBytes(levels ...int8) (b []byte) {
	for _, l := range levels {
		b = append(b, byte(l))
	}
	return b
}

func supers() []*super {
	return []*super{
		q4k(false), q4k(true), q6k(), q2k(), q3k(), tq20(), iq4xs(), q8k(), tq10(),
		iq2xxs(), iq2xs(), iq2s(), iq3xxs(), iq3s(), iq1s(), iq1m(),
	}
}

// position returns where the activations of a group of 16 are in a stretch.
func (f *super) position(group int) int { return 32*f.order[group/2] + group%2*16 }

// rows multiplies rows by one row of activations.
func (f *super) rows(l level) {
	rowsBegin(f.name+"Rows"+l.name, f.constants)
	Label("block")
	f.block(l)
	Go("ADD $%d, %v", f.bytes, rP)
	Go("ADD $%d, %v", actBytes, rAct)
	Go("SUB $1, %v", rBlocks)
	Go("CBNZ %v, block", rBlocks)
	rowsEnd()
}

// block adds the product of a block to vSum.
func (f *super) block(l level) {
	out, tmp, act := []V{0, 1, 2, 3}, []V{4, 5, 6, 7}, V(8)
	slots := []V{10, 11, 12, 13}
	total := []V{16, 17}
	least := V(18)
	scale, m := []V{19, 20, 21, 22}, [2]V{21, 22}
	if f.scales != nil {
		f.scales(rP, [2]V{19, 20}, m, tmp)
	}
	// least is the sum of the minima, or of the scales, times the sums of the activations.
	if factor := m; f.mins || f.bias > 0 {
		if !f.mins {
			factor = [2]V{19, 20}
		}
		a := []V{0, 1}[:32/f.group]
		if f.group == 16 {
			LoadPair(a[0], a[1], rAct, actSums16)
		} else {
			LoadQ(a[0], rAct, actSums32)
		}
		for i, v := range a {
			switch {
			case f.scales == nil:
				SADDLP(H8, least, v)
			case i == 0:
				SMULL(H4, least, factor[i], v)
			default:
				SMLAL(H4, least, factor[i], v)
			}
			if f.scales != nil {
				SMLAL(H8, least, factor[i], v)
			}
		}
		if shift := bits.TrailingZeros(uint(f.bias)); f.bias > 1 {
			SHL(S4, least, least, shift)
		}
	}
	if f.scales != nil {
		n := 256 / f.group / 4
		for i := n - 1; i >= 0; i-- {
			from := V(19 + i/2)
			if i%2 == 1 {
				SSHLL(H8, scale[i], from, 0)
			} else {
				SSHLL(H4, scale[i], from, 0)
			}
		}
	}
	MOVI(total[0], 0)
	MOVI(total[1], 0)
	// The groups of a scale, or the whole block.
	per := f.group / 16
	if f.scales == nil {
		per = 16
	}
	open, ended := make(map[int]*slot), 0
	for run := range f.runs {
		groups := f.groups(run)
		f.codes(rP, run, out, tmp)
		for i, g := range groups {
			LoadQ(act, rAct, f.position(g))
			s := open[g/per]
			if s == nil {
				free := slices.IndexFunc(slots, func(v V) bool {
					for _, o := range open {
						if o.v == v {
							return false
						}
					}
					return true
				})
				s = &slot{v: slots[free], most: f.most}
				open[g/per] = s
			}
			l.mul(s, out[i], act, per)
			if s.n < per {
				continue
			}
			l.end(s, per)
			delete(open, g/per)
			t := total[ended%2]
			ended++
			if f.scales == nil {
				ADD(S4, t, t, s.v)
			} else {
				MLAElement(t, s.v, scale[g/per/4], g/per%4)
			}
		}
	}
	dot, d, t := total[0], V(0), V(1)
	ADD(S4, dot, dot, total[1])
	if f.bias > 0 {
		SUB(S4, dot, dot, least)
	}
	if f.mins {
		ADDP(S4, dot, dot, least)
		ADDP(S4, dot, dot, dot) // dot, least
	} else {
		ADDV(S4, dot, dot)
	}
	SCVTF(dot, dot)
	f.factors(rP, d)
	FMULScalarElement(t, dot, d, 0)
	if f.mins {
		DUPScalar(2, dot, 1)
		FMLSScalarElement(t, 2, d, 1)
	}
	LoadS(3, rAct, actScale)
	FMADD(vSum, 3, t, vSum)
}

// factors sets the lanes of v to d and, if there are minima, dmin.
func (f *super) factors(p R, v V) {
	switch {
	case f.wide:
		LoadS(v, p, f.d)
		return
	case f.half != nil:
		f.half(p, v)
	case f.mins:
		LoadS(v, p, f.d)
	default:
		LoadH(v, p, f.d)
	}
	FCVTL(v, v)
	if f.factor != 0 {
		FMUL(v, v, f.factor)
	}
}

// q4k is Q4_K, or Q5_K, whose codes have a fifth bit.
func q4k(fifth bool) *super {
	f := &super{name: "q4k", bytes: 144, order: halves, group: 32, most: 15, mins: true, runs: 8}
	const (
		first, shift, mask, second, upper, nibble, bit = V(24), V(25), V(26), V(27), V(28), V(29), V(30)
	)
	// The 12 bytes from 4 on have eight scales and eight minima of 6 bits.
	list := [][]byte{
		{4, 5, 6, 7, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15},
		{12: 0xfc, 13: 0xfc, 14: 0xfc, 15: 0xfc},
		repeat(0x3f, 0x3f, 0x3f, 0x3f, 15, 15, 15, 15),
		{255, 255, 255, 255, 4, 5, 6, 7, 255, 255, 255, 255, 8, 9, 10, 11},
		repeat(0x30),
		nibbles,
		repeat(16),
	}
	f.constants = func() { constants("q4kConstants", list...) }
	f.scales = func(p R, s, m [2]V, tmp []V) {
		LoadQ(tmp[0], p, 0)
		TBL(tmp[1], tmp[0], first)
		USHL(B16, tmp[1], tmp[1], shift)
		AND(tmp[1], tmp[1], mask)
		TBL(tmp[0], tmp[0], second)
		USHR(B16, tmp[0], tmp[0], 2)
		AND(tmp[0], tmp[0], upper)
		ORR(tmp[0], tmp[0], tmp[1])
		USHLL(B8, s[0], tmp[0], 0)
		USHLL(B16, m[0], tmp[0], 0)
	}
	f.groups = func(run int) []int {
		g := run/2*4 + run%2
		return []int{g, g + 2}
	}
	codes := 16
	f.codes = func(p R, run int, out, tmp []V) {
		LoadQ(tmp[0], p, codes+16*run)
		AND(out[0], tmp[0], nibble)
		USHR(B16, out[1], tmp[0], 4)
		if !fifth {
			return
		}
		LoadQ(tmp[1], p, 16+run%2*16)
		for i, v := range out[:2] {
			addBit(v, tmp[1], bit, run/2*2+i, 4, tmp[2])
		}
	}
	if fifth {
		f.name, f.bytes, f.most, codes = "q5k", 176, 31, 48
	}
	return f
}

// addBit adds the bits of from, one of each byte, to the codes of v, as bit to. mask has that bit.
func addBit(v, from, mask V, bit, to int, tmp V) {
	turn(tmp, from, to-bit)
	AND(tmp, tmp, mask)
	ORR(v, v, tmp)
}

// turn shifts the bytes of n to the left, or if left is negative to the right.
func turn(d, n V, left int) {
	switch {
	case left > 0:
		SHL(B16, d, n, left)
	case left < 0:
		USHR(B16, d, n, -left)
	default:
		ORR(d, n, n)
	}
}

// q6k is Q6_K.
func q6k() *super {
	f := &super{name: "q6k", bytes: 210, order: ascending, group: 16, most: 63, bias: 32, d: 208, runs: 4}
	const nibble, upper = V(24), V(25)
	f.constants = func() { constants("q6kConstants", nibbles, repeat(0x30)) }
	f.scales = func(p R, s, m [2]V, tmp []V) {
		LoadQ(tmp[0], p, 192)
		SSHLL(B8, s[0], tmp[0], 0)
		SSHLL(B16, s[1], tmp[0], 0)
	}
	f.groups = quarterGroups
	f.codes = func(p R, run int, out, tmp []V) {
		low := run/2*64 + run%2*16
		LoadQ(tmp[0], p, low)
		LoadQ(tmp[1], p, low+32)
		LoadQ(tmp[2], p, 128+16*run)
		for k, v := range out[:4] {
			turn(tmp[3], tmp[2], 4-2*k)
			AND(tmp[3], tmp[3], upper)
			if k < 2 {
				AND(v, tmp[k], nibble)
			} else {
				USHR(B16, v, tmp[k-2], 4)
			}
			ORR(v, v, tmp[3])
		}
	}
	return f
}

// quarterGroups are the groups of a run of which each byte belongs to four groups.
func quarterGroups(run int) []int {
	g := run/2*8 + run%2
	return []int{g, g + 2, g + 4, g + 6}
}

// two sets out to the codes of two bits of v.
func two(out []V, v, mask V) {
	for k, o := range out[:4] {
		switch k {
		case 0:
			AND(o, v, mask)
		case 3:
			USHR(B16, o, v, 6)
		default:
			USHR(B16, o, v, 2*k)
			AND(o, o, mask)
		}
	}
}

// q2k is Q2_K.
func q2k() *super {
	f := &super{name: "q2k", bytes: 84, order: quarters, group: 16, most: 3, d: 80, mins: true, runs: 4}
	const nibble, lower = V(24), V(25)
	f.constants = func() { constants("q2kConstants", nibbles, repeat(3)) }
	f.scales = func(p R, s, m [2]V, tmp []V) {
		LoadQ(tmp[0], p, 0)
		AND(tmp[1], tmp[0], nibble)
		USHR(B16, tmp[0], tmp[0], 4)
		USHLL(B8, s[0], tmp[1], 0)
		USHLL(B16, s[1], tmp[1], 0)
		USHLL(B8, m[0], tmp[0], 0)
		USHLL(B16, m[1], tmp[0], 0)
	}
	f.groups = quarterGroups
	f.codes = func(p R, run int, out, tmp []V) {
		LoadQ(tmp[0], p, 16+16*run)
		two(out, tmp[0], lower)
	}
	return f
}

// q3k is Q3_K.
func q3k() *super {
	f := &super{name: "q3k", bytes: 110, order: quarters, group: 16, most: 7, bias: 4, d: 108, runs: 4}
	const first, second, firstShift, secondShift, nibble, upper, lower = V(24), V(25), V(26), V(27), V(28), V(29), V(30)
	f.constants = func() {
		// From 94 on, two bytes are followed by the lower four bits of the 16 scales, and by the
		// upper two.
		constants("q3kConstants",
			repeat(2, 3, 4, 5, 6, 7, 8, 9),
			repeat(10, 11, 12, 13),
			[]byte{8: 0xfc, 9: 0xfc, 10: 0xfc, 11: 0xfc, 12: 0xfc, 13: 0xfc, 14: 0xfc, 15: 0xfc},
			[]byte{4, 4, 4, 4, 2, 2, 2, 2, 0, 0, 0, 0, 0xfe, 0xfe, 0xfe, 0xfe},
			nibbles, repeat(0x30), repeat(3))
	}
	f.scales = func(p R, s, m [2]V, tmp []V) {
		LoadQ(tmp[0], p, 94)
		TBL(tmp[1], tmp[0], first)
		USHL(B16, tmp[1], tmp[1], firstShift)
		AND(tmp[1], tmp[1], nibble)
		TBL(tmp[0], tmp[0], second)
		USHL(B16, tmp[0], tmp[0], secondShift)
		AND(tmp[0], tmp[0], upper)
		ORR(tmp[0], tmp[0], tmp[1])
		MOVI(tmp[1], 32)
		SUB(B16, tmp[0], tmp[0], tmp[1])
		SSHLL(B8, s[0], tmp[0], 0)
		SSHLL(B16, s[1], tmp[0], 0)
	}
	f.groups = quarterGroups
	f.codes = func(p R, run int, out, tmp []V) {
		LoadQ(tmp[0], p, 32+16*run)
		LoadQ(tmp[1], p, run%2*16)
		two(out, tmp[0], lower)
		MOVI(tmp[3], 4)
		for k, v := range out[:4] {
			addBit(v, tmp[1], tmp[3], run/2*4+k, 2, tmp[2])
		}
	}
	return f
}

// tq20 is TQ2_0.
func tq20() *super {
	f := &super{name: "tq20", bytes: 66, order: quarters, group: 32, most: 3, bias: 1, d: 64, runs: 4}
	f.constants = func() { constants("tq20Constants", repeat(3)) }
	f.groups = quarterGroups
	f.codes = func(p R, run int, out, tmp []V) {
		LoadQ(tmp[0], p, 16*run)
		two(out, tmp[0], firstConstant)
	}
	return f
}

// iq4xs is IQ4_XS.
func iq4xs() *super {
	f := &super{name: "iq4xs", bytes: 136, order: ascending, group: 32, most: 127, runs: 8}
	const first, second, firstShift, secondShift, nibble, upper, table = V(24), V(25), V(26), V(27), V(28), V(29), V(30)
	f.constants = func() {
		// From 2 on are the upper two bits of the eight scales, and their lower four.
		constants("iq4xsConstants",
			repeat(4, 4, 5, 5, 6, 6, 7, 7),
			repeat(2, 2, 2, 2, 3, 3, 3, 3),
			repeat(0, 0xfc),
			repeat(4, 2, 0, 0xfe),
			nibbles, repeat(0x30), iq4nlLevels)
	}
	f.scales = func(p R, s, m [2]V, tmp []V) {
		LoadD(tmp[0], p, 0)
		TBL(tmp[1], tmp[0], first)
		USHL(B16, tmp[1], tmp[1], firstShift)
		AND(tmp[1], tmp[1], nibble)
		TBL(tmp[0], tmp[0], second)
		USHL(B16, tmp[0], tmp[0], secondShift)
		AND(tmp[0], tmp[0], upper)
		ORR(tmp[0], tmp[0], tmp[1])
		MOVI(tmp[1], 32)
		SUB(B16, tmp[0], tmp[0], tmp[1])
		SSHLL(B8, s[0], tmp[0], 0)
	}
	f.groups = func(run int) []int { return []int{2 * run, 2*run + 1} }
	f.codes = func(p R, run int, out, tmp []V) {
		LoadQ(tmp[0], p, 8+16*run)
		AND(out[0], tmp[0], nibble)
		USHR(B16, out[1], tmp[0], 4)
		TBL(out[0], table, out[0])
		TBL(out[1], table, out[1])
	}
	return f
}
