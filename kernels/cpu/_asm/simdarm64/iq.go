package main

import (
	"math"
	"math/bits"

	. "github.com/fucina-go/fucina/kernels/cpu/_asm/gen/a64"
)

// The formats of this file give 16 codes at once.

// oneGroup is for runs of 16 codes in ascending order.
func oneGroup(run int) []int { return []int{run} }

// q8k is Q8_K.
func q8k() *super {
	f := &super{name: "q8k", bytes: 292, order: ascending, group: 32, most: 128, wide: true, runs: 16, groups: oneGroup}
	f.codes = func(p R, run int, out, tmp []V) { LoadQ(out[0], p, 4+16*run) }
	return f
}

// tq10 is TQ1_0. Digit n of a byte is the integer part of 3 times the fraction byte*3^n/256.
func tq10() *super {
	f := &super{name: "tq10", bytes: 54, order: ascending, group: 32, most: 1, d: 52, runs: 16}
	const first, second, pick, powers = V(24), V(25), V(26), V(27)
	f.constants = func() {
		constants("tq10Constants", repeat(255/3), repeat(2*256/3), repeat(0, 1, 2, 3),
			[]byte{1, 1, 1, 1, 3, 3, 3, 3, 9, 9, 9, 9, 27, 27, 27, 27})
	}
	f.groups = func(run int) []int {
		switch {
		case run < 10: // two runs of bytes have five groups of 32
			return []int{run%5*2 + run/5}
		case run < 15:
			return []int{run}
		}
		return []int{15}
	}
	f.codes = func(p R, run int, out, tmp []V) {
		q, power := tmp[0], tmp[1]
		switch {
		case run < 15:
			LoadQ(q, p, run/5*16)
			n := 1
			for range run % 5 {
				n *= 3
			}
			MOVI(power, byte(n))
		default:
			LoadS(q, p, 48)
			TBL(q, q, pick)
			power = powers
		}
		MUL(B16, q, q, power)
		CMHI(B16, tmp[2], q, first)
		CMHI(B16, tmp[3], q, second)
		MOVI(out[0], 255)
		SUB(B16, out[0], out[0], tmp[2])
		SUB(B16, out[0], out[0], tmp[3])
	}
	return f
}

// The registers that the codes of grids take.
const (
	rGrid, rEven   = R(10), R(11)
	rA, rB, rC, rD = R(12), R(13), R(14), R(15)
)

// The registers of constants that formats with grids have.
const (
	vSpread, vBits, vFactor = V(24), V(25), V(26) // which byte, which bit, what d is multiplied by
)

// gridConstants loads what formats with grids have in common, and more tables from register 27 on.
func gridConstants(name, grid string, factor float32, more ...[]byte) {
	w := math.Float32bits(factor)
	constants(name, append([][]byte{
		{8: 1, 9: 1, 10: 1, 11: 1, 12: 1, 13: 1, 14: 1, 15: 1},
		repeat(1, 2, 4, 8, 16, 32, 64, 128),
		repeat(byte(w), byte(w>>8), byte(w>>16), byte(w>>24)),
	}, more...)...)
	Go("MOVD ·%s(SB), %v", grid, rGrid)
}

// evenSigns loads the table that makes 7 signs 8, an even number of which are set.
func evenSigns() {
	var b []byte
	for i := range 128 {
		b = append(b, byte(i|bits.OnesCount(uint(i))&1<<7))
	}
	Table(rEven, "evenSigns", b)
}

// entries sets v to two entries of 8 bytes of the grid, whose indices are in registers.
func entries(v V, i, j R, tmp V) {
	Go("FMOVD (%v)(%v<<3), F%d", rGrid, i, v)
	Go("FMOVD (%v)(%v<<3), F%d", rGrid, j, tmp)
	INS(D2, v, 1, tmp, 0)
}

// sign negates the bytes of v whose signs, in the two lower bytes of s, are set. It changes s.
func sign(v, s V) {
	TBL(s, s, vSpread)
	CMTST(B16, s, s, vBits)
	EOR(v, v, s)
	SUB(B16, v, v, s)
}

// evenSign is sign for two times 7 signs from bit on, in rC. It changes rA and rB.
func evenSign(v V, bit int, s V) {
	for i, r := range []R{rA, rB} {
		Go("UBFX $%d, %v, $7, %v", bit+7*i, rC, r)
		Go("MOVBU (%v)(%v), %v", rEven, r, r)
	}
	Go("ORR %v<<8, %v", rB, rA)
	FMOVToScalar(s, rA)
	sign(v, s)
}

// odd makes the halves of v twice them plus 1.
func odd(v, tmp V) {
	SHL(H8, v, v, 1)
	MOVI(tmp, 1)
	USHR(H8, tmp, tmp, 8)
	ORR(v, v, tmp)
}

// oddNibbles sets halves to 2q+1 for the nibbles q at an offset: for 16 of them, or for 8.
func oddNibbles(at, n int) func(p R, s, m [2]V, tmp []V) {
	const pick, shift, nibble = V(27), V(28), V(29)
	return func(p R, s, m [2]V, tmp []V) {
		if n == 16 {
			LoadD(tmp[0], p, at)
		} else {
			LoadS(tmp[0], p, at)
		}
		TBL(tmp[0], tmp[0], pick)
		USHL(B16, tmp[0], tmp[0], shift)
		AND(tmp[0], tmp[0], nibble)
		USHLL(B8, s[0], tmp[0], 0)
		odd(s[0], tmp[1])
		if n == 16 {
			USHLL(B16, s[1], tmp[0], 0)
			odd(s[1], tmp[1])
		}
	}
}

var nibbleConstants = [][]byte{
	{0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7}, repeat(0, 0xfc), nibbles,
}

// oddTop sets halves to 2q+1 for the upper four bits q of the words of two registers.
func oddTop(s V, lo, hi, tmp V) {
	USHR(S4, lo, lo, 28)
	USHR(S4, hi, hi, 28)
	UZP1(H8, s, lo, hi)
	odd(s, tmp)
}

// iq2xxs is IQ2_XXS.
func iq2xxs() *super {
	f := &super{name: "iq2xxs", bytes: 66, order: ascending, group: 32, most: 63, factor: vFactor, runs: 16, groups: oneGroup}
	f.constants = func() {
		gridConstants("iqEighthConstants", "gridIQ2XXS", 0.125)
		evenSigns()
	}
	f.scales = func(p R, s, m [2]V, tmp []V) {
		for i := range tmp {
			LoadQ(tmp[i], p, 2+16*i)
		}
		UZP2(S4, tmp[0], tmp[0], tmp[1])
		UZP2(S4, tmp[2], tmp[2], tmp[3])
		oddTop(s[0], tmp[0], tmp[2], tmp[1])
	}
	f.codes = func(p R, run int, out, tmp []V) {
		at := 2 + run/2*8
		Go("MOVBU %d(%v), %v", at+run%2*2, p, rA)
		Go("MOVBU %d(%v), %v", at+run%2*2+1, p, rB)
		Go("MOVWU %d(%v), %v", at+4, p, rC)
		entries(out[0], rA, rB, tmp[0])
		evenSign(out[0], run%2*14, tmp[0])
	}
	return f
}

// iq2xs is IQ2_XS.
func iq2xs() *super {
	f := &super{name: "iq2xs", bytes: 74, order: ascending, group: 16, most: 63, factor: vFactor, runs: 16, groups: oneGroup}
	f.constants = func() {
		gridConstants("iqNibbleConstants", "gridIQ2XS", 0.125, nibbleConstants...)
		evenSigns()
	}
	f.scales = oddNibbles(66, 16)
	f.codes = func(p R, run int, out, tmp []V) {
		for i, r := range []R{rA, rB} {
			q := rC + R(i)
			Go("MOVHU %d(%v), %v", 2+4*run+2*i, p, q)
			Go("AND $511, %v, %v", q, r)
			Go("LSR $9, %v", q)
			Go("MOVBU (%v)(%v), %v", rEven, q, q)
		}
		entries(out[0], rA, rB, tmp[0])
		Go("ORR %v<<8, %v", rD, rC)
		FMOVToScalar(tmp[0], rC)
		sign(out[0], tmp[0])
	}
	return f
}

// iq2s is IQ2_S.
func iq2s() *super {
	f := &super{name: "iq2s", bytes: 82, order: ascending, group: 16, most: 63, factor: vFactor, runs: 16, groups: oneGroup}
	f.constants = func() {
		gridConstants("iqNibbleConstants", "gridIQ2S", 0.125, nibbleConstants...)
	}
	f.scales = oddNibbles(74, 16)
	f.codes = func(p R, run int, out, tmp []V) {
		Go("MOVBU %d(%v), %v", 66+run/2, p, rC)
		for i, r := range []R{rA, rB} {
			Go("MOVBU %d(%v), %v", 2+2*run+i, p, r)
			Go("UBFX $%d, %v, $2, %v", run%2*4+2*i, rC, rD)
			Go("ORR %v<<8, %v", rD, r)
		}
		entries(out[0], rA, rB, tmp[0])
		LoadH(tmp[0], p, 34+2*run)
		sign(out[0], tmp[0])
	}
	return f
}

// quarter puts the entry of 4 bytes of the grid, whose index is in r, into word i of v.
func quarter(v V, i int, r R, tmp V) {
	if i == 0 {
		Go("FMOVS (%v)(%v<<2), F%d", rGrid, r, v)
		return
	}
	Go("FMOVS (%v)(%v<<2), F%d", rGrid, r, tmp)
	INS(S4, v, i, tmp, 0)
}

// iq3xxs is IQ3_XXS.
func iq3xxs() *super {
	f := &super{name: "iq3xxs", bytes: 98, order: ascending, group: 32, most: 63, factor: vFactor, runs: 16, groups: oneGroup}
	f.constants = func() {
		gridConstants("iqQuarterConstants", "gridIQ3XXS", 0.25)
		evenSigns()
	}
	f.scales = func(p R, s, m [2]V, tmp []V) {
		LoadQ(tmp[0], p, 66)
		LoadQ(tmp[1], p, 82)
		oddTop(s[0], tmp[0], tmp[1], tmp[2])
	}
	f.codes = func(p R, run int, out, tmp []V) {
		for i := range 4 {
			Go("MOVBU %d(%v), %v", 2+4*run+i, p, rA)
			quarter(out[0], i, rA, tmp[0])
		}
		Go("MOVWU %d(%v), %v", 66+run/2*4, p, rC)
		evenSign(out[0], run%2*14, tmp[0])
	}
	return f
}

// iq3s is IQ3_S.
func iq3s() *super {
	f := &super{name: "iq3s", bytes: 110, order: ascending, group: 32, most: 63, runs: 16, groups: oneGroup}
	f.constants = func() { gridConstants("iqWholeConstants", "gridIQ3S", 1, nibbleConstants...) }
	f.scales = oddNibbles(106, 8)
	f.codes = func(p R, run int, out, tmp []V) {
		Go("MOVBU %d(%v), %v", 66+run/2, p, rC)
		for i := range 4 {
			Go("MOVBU %d(%v), %v", 2+4*run+i, p, rA)
			Go("UBFX $%d, %v, $1, %v", run%2*4+i, rC, rB)
			Go("ORR %v<<8, %v", rB, rA)
			quarter(out[0], i, rA, tmp[0])
		}
		LoadH(tmp[0], p, 74+2*run)
		sign(out[0], tmp[0])
	}
	return f
}

// eighths makes the entries in v eighths, and adds 1 to them, or where the bytes of down are set
// takes 1 from them. It changes tmp.
func eighths(v, down, tmp V) {
	SHL(B16, v, v, 3)
	MOVI(tmp, 1)
	ORR(tmp, tmp, down)
	ADD(B16, v, v, tmp)
}

// iq1s is IQ1_S.
func iq1s() *super {
	f := &super{name: "iq1s", bytes: 50, order: ascending, group: 32, most: 9, factor: vFactor, runs: 16, groups: oneGroup}
	f.constants = func() { gridConstants("iqEighthConstants", "gridIQ1", 0.125) }
	f.scales = func(p R, s, m [2]V, tmp []V) {
		LoadQ(tmp[0], p, 34)
		MOVI(tmp[1], 7)
		USHR(H8, tmp[0], tmp[0], 12)
		AND(s[0], tmp[0], tmp[1])
		odd(s[0], tmp[1])
	}
	f.codes = func(p R, run int, out, tmp []V) {
		Go("MOVHU %d(%v), %v", 34+run/2*2, p, rC)
		for i, r := range []R{rA, rB} {
			Go("MOVBU %d(%v), %v", 2+2*run+i, p, r)
			Go("UBFX $%d, %v, $3, %v", run%2*6+3*i, rC, rD)
			Go("ORR %v<<8, %v", rD, r)
		}
		entries(out[0], rA, rB, tmp[0])
		// All bits of the words are those of the sign.
		Go("SBFX $15, %v, $1, %v", rC, rC)
		DUPGeneral(tmp[0], rC)
		eighths(out[0], tmp[0], tmp[1])
	}
	return f
}

// iq1m is IQ1_M.
func iq1m() *super {
	f := &super{name: "iq1m", bytes: 56, order: ascending, group: 16, most: 9, factor: vFactor, runs: 16, groups: oneGroup}
	const first, second, shift = V(27), V(28), V(29)
	f.constants = func() {
		gridConstants("iq1mConstants", "gridIQ1", 0.125,
			[]byte{0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3, 2, 3},
			[]byte{4, 5, 4, 5, 4, 5, 4, 5, 6, 7, 6, 7, 6, 7, 6, 7},
			repeat(0, 0, 0xfd, 0, 0xfa, 0, 0xf7, 0))
	}
	f.scales = func(p R, s, m [2]V, tmp []V) {
		LoadD(tmp[0], p, 48)
		MOVI(tmp[1], 7)
		USHR(H8, tmp[1], tmp[1], 8)
		for i, v := range s {
			TBL(v, tmp[0], first+V(i))
			USHL(H8, v, v, shift)
			AND(v, v, tmp[1])
			odd(v, tmp[2])
		}
	}
	f.half = func(p R, v V) {
		Go("MOVD 48(%v), %v", p, rA)
		Go("UBFX $12, %v, $4, %v", rA, rB)
		for i := 1; i < 4; i++ {
			Go("UBFX $%d, %v, $4, %v", 12+16*i, rA, rC)
			Go("ORR %v<<%d, %v", rC, 4*i, rB)
		}
		FMOVToScalar(v, rB)
	}
	f.codes = func(p R, run int, out, tmp []V) {
		Go("MOVBU %d(%v), %v", 32+run, p, rC)
		for i, r := range []R{rA, rB} {
			Go("MOVBU %d(%v), %v", 2*run+i, p, r)
			Go("UBFX $%d, %v, $3, %v", 4*i, rC, rD)
			Go("ORR %v<<8, %v", rD, r)
		}
		entries(out[0], rA, rB, tmp[0])
		// Bits 3 and 7 come to the halves of the register.
		for i := range 2 {
			Go("SBFX $%d, %v, $1, %v", 3+4*i, rC, rA+R(i))
		}
		DUPGeneral(tmp[0], rA)
		DUPGeneral(tmp[1], rB)
		ZIP1(D2, tmp[0], tmp[0], tmp[1])
		eighths(out[0], tmp[0], tmp[1])
	}
	return f
}
