package main

import (
	"fmt"

	. "github.com/fucina-go/fucina/kernels/cpu/_asm/gen/a64"
)

const (
	panelRows  = 32
	panelCodes = 64 * 4 * panelRows
	stepBytes  = 4 * panelRows // of rows in lanes of words
)

// multiplier is how tiles multiply.
type multiplier struct {
	name  string
	sizes []int // rows of activations of its tiles
	mm    bool  // SMMLA, with steps of 8 codes
	dot   bool  // SDOT
}

var multipliers = []multiplier{
	{name: "NEON", sizes: []int{2, 1}},
	{name: "Dot", sizes: []int{6, 4, 2, 1}, dot: true},
	{name: "I8MM", sizes: []int{6, 4, 2, 1}, mm: true},
}

// The registers of tiles.
const (
	tC, tPanel, tAct, tTiles = R(0), R(1), R(2), R(3)
	tGroups                  = R(4)  // groups of eight rows that are left
	tLanes                   = R(5)  // the panel, at the eight rows
	tCodes                   = R(6)  // the codes, at the eight rows
	tStep                    = R(7)  // the codes of a chunk of 32 elements
	tScales                  = R(8)  // the scales of the chunk
	tA                       = R(9)  // the activations of the chunk
	tChunks                  = R(10) // chunks that are left
	tOut                     = R(11) // c, at the eight rows
	tDAct, tSum, tTerm       = R(12), R(13), R(14)
)

// tile multiplies eight rows of weights at a time by n rows of activations. Registers 0 to 7 are for
// what lives shortly.
type tile struct {
	multiplier
	n int
}

// sum returns where products are summed: of activations i and of four rows, the first or the second
// ones. It is the result of finish.
func (t *tile) sum(i, h int) V {
	if t.dot || t.mm {
		return V(8 + 2*i + h)
	}
	return V(8 + 4*i + h)
}

// total returns a register that lives through all chunks.
func (t *tile) total(i, h int) V { return V(31 - 2*i - h) }

// first returns a register that lives through the chunk. There are some for at most 4 rows of
// activations.
func (t *tile) first(i, h int) V { return V(31 - 2*t.n - 2*i - h) }

// pairs is how many pairs of activations SMMLA takes.
func (t *tile) pairs() int { return (t.n + 1) / 2 }

// lanes returns the sums of SMMLA, of two rows and two activations: of the pair of activations p and
// the pair of rows r.
func (t *tile) lanes(p, r int) V { return V(8 + 4*p + r) }

// clear begins sums.
func (t *tile) clear() {
	switch {
	case t.mm:
		for i := range 4 * t.pairs() {
			MOVI(V(8+i), 0)
		}
	case t.dot:
		for i := range t.n {
			MOVI(t.sum(i, 0), 0)
			MOVI(t.sum(i, 1), 0)
		}
	default:
		for i := range 4 * t.n {
			MOVI(V(16+i), 0)
		}
	}
}

// multiply adds the products of 16 codes, half of a chunk.
func (t *tile) multiply(half int) {
	at := func(i int) int { return actBytes*i + 16*half }
	switch {
	case t.mm:
		for p := range t.pairs() {
			second := V(1)
			LoadQ(0, tA, at(2*p))
			if 2*p+1 < t.n {
				LoadQ(second, tA, at(2*p+1))
			} else {
				second = 0
			}
			ZIP1(D2, V(2+2*p), 0, second)
			ZIP2(D2, V(3+2*p), 0, second)
		}
		for s := range 2 {
			for r := range 2 {
				LoadPair(0, 1, tStep, 2*stepBytes*(2*half+s)+32*r)
				for p := range t.pairs() {
					SMMLA(t.lanes(p, 2*r), 0, V(2+2*p+s))
					SMMLA(t.lanes(p, 2*r+1), 1, V(2+2*p+s))
				}
			}
		}
	case t.dot:
		for i := range t.n {
			LoadQ(V(2+i), tA, at(i))
		}
		for s := range 4 {
			LoadPair(0, 1, tStep, stepBytes*(4*half+s))
			for i := range t.n {
				SDOTElement(t.sum(i, 0), 0, V(2+i), s)
				SDOTElement(t.sum(i, 1), 1, V(2+i), s)
			}
		}
	default:
		// Two products of any codes fit into a half.
		for i := range t.n {
			LoadQ(V(4+i), tA, at(i))
		}
		for s := range 4 {
			LoadPair(0, 1, tStep, stepBytes*(4*half+s))
			for i := range t.n {
				a := V(6 + i)
				DUP(S4, a, V(4+i), s)
				for r := range 4 {
					product, f, l := V(8+4*i+r), SMULL, B8
					if s%2 == 1 {
						f = SMLAL
					}
					if r%2 == 1 {
						l = B16
					}
					f(l, product, V(r/2), a)
					if s%2 == 1 {
						SADALP(H8, V(16+4*i+r), product)
					}
				}
			}
		}
	}
}

// finish makes the lanes of the sums rows. SMMLA's are left as they are.
func (t *tile) finish() {
	if t.dot || t.mm {
		return
	}
	for i := range t.n {
		for h := range 2 {
			ADDP(S4, t.sum(i, h), V(16+4*i+2*h), V(17+4*i+2*h))
		}
	}
}

// each calls f for every sum, after prepare for activations i. It may take register 7.
func (t *tile) each(prepare func(i int), f func(i, h int, sum V)) {
	for i := range t.n {
		if prepare != nil {
			prepare(i)
		}
		for h := range 2 {
			v := t.sum(i, h)
			if t.mm {
				v = 7
				if i%2 == 0 {
					UZP1(S4, v, t.lanes(i/2, 2*h), t.lanes(i/2, 2*h+1))
				} else {
					UZP2(S4, v, t.lanes(i/2, 2*h), t.lanes(i/2, 2*h+1))
				}
			}
			f(i, h, v)
		}
	}
}

// function writes a tile. chunk is written once, for the eight chunks of a panel, begin before and
// end after them.
func (t *tile) function(name string, begin, chunk, end func()) {
	Text(fmt.Sprintf("tile%s%sx%d", name, t.name, t.n), 32)
	Go("MOVD c+0(FP), %v", tC)
	Go("MOVD panel+8(FP), %v", tPanel)
	Go("MOVD act+16(FP), %v", tAct)
	Go("MOVD tiles+24(FP), %v", tTiles)
	Label("tile")
	Go("MOVD %v, %v", tPanel, tLanes)
	Go("MOVD %v, %v", tPanel, tCodes)
	Go("MOVD %v, %v", tC, tOut)
	Go("MOVD $%d, %v", panelRows/8, tGroups)
	Label("rows")
	Go("MOVD %v, %v", tCodes, tStep)
	Go("ADD $%d, %v, %v", panelCodes, tLanes, tScales)
	Go("MOVD %v, %v", tAct, tA)
	Go("MOVD $8, %v", tChunks)
	begin()
	Label("chunk")
	chunk()
	Go("ADD $%d, %v", 8*stepBytes, tStep)
	Go("ADD $32, %v", tA)
	Go("SUB $1, %v", tChunks)
	Go("CBNZ %v, chunk", tChunks)
	end()
	codes := 32
	if t.mm {
		codes = 64
	}
	Go("ADD $32, %v", tLanes)
	Go("ADD $%d, %v", codes, tCodes)
	Go("ADD $32, %v", tOut)
	Go("SUB $1, %v", tGroups)
	Go("CBNZ %v, rows", tGroups)
	Go("ADD $%d, %v", 4*panelRows*t.n, tC)
	Go("ADD $%d, %v", actBytes*t.n, tAct)
	Go("SUB $1, %v", tTiles)
	Go("CBNZ %v, tile", tTiles)
	Go("RET")
}

// clearTotals begins the totals.
func (t *tile) clearTotals() {
	n := 2 * t.n
	if t.mm {
		n = 4 * t.pairs()
	}
	for i := range n {
		MOVI(V(31-i), 0)
	}
}

// super is the tile of a format with super-blocks, with scales for groups of 16 or of 32.
func (t *tile) super(group int, mins bool) {
	name := fmt.Sprint(group)
	if mins {
		name = "Mins" + name
	}
	// SMMLA's totals have its lanes.
	lanes := func(p, r int) V { return V(31 - 4*p - r) }
	t.function(name, t.clearTotals, func() {
		for half := range 2 {
			if group == 16 || half == 0 {
				t.clear()
			}
			t.multiply(half)
			if group == 32 && half == 0 {
				continue
			}
			t.finish()
			LoadPair(0, 1, tScales, 128*(half*16/group))
			if t.mm {
				for r := range 4 {
					zip := ZIP1
					if r%2 == 1 {
						zip = ZIP2
					}
					zip(S4, V(2+r), V(r/2), V(r/2))
				}
				for p := range t.pairs() {
					for r := range 4 {
						MLA(S4, lanes(p, r), t.lanes(p, r), V(2+r))
					}
				}
				continue
			}
			t.each(nil, func(i, h int, sum V) { MLA(S4, t.total(i, h), sum, V(h)) })
		}
		Go("ADD $%d, %v", 128*32/group, tScales)
	}, func() {
		dot, least := t.total, t.sum
		if t.mm {
			for i := range t.n {
				for h := range 2 {
					f := UZP1
					if i%2 == 1 {
						f = UZP2
					}
					f(S4, t.sum(i, h), lanes(i/2, 2*h), lanes(i/2, 2*h+1))
				}
			}
			dot, least = t.sum, t.total
		}
		pairs := 128 / group
		if mins {
			t.least(group, pairs, least)
		}
		Go("ADD $%d, %v", 128*pairs, tScales)
		LoadPair(0, 1, tScales, 0)
		if mins {
			LoadPair(2, 3, tScales, 128)
		}
		for i := range t.n {
			LoadPair(4, 5, tOut, 4*panelRows*i)
			LoadS(6, tAct, actBytes*i+actScale)
			for h := range 2 {
				d := dot(i, h)
				SCVTF(d, d)
				FMUL(d, d, V(h))
				if mins {
					m := least(i, h)
					SCVTF(m, m)
					FMLS(d, V(2+h), m)
				}
				FMLAElement(V(4+h), d, 6, 0)
			}
			StorePair(4, 5, tOut, 4*panelRows*i)
		}
	})
}

// least sets registers to the sums of the minima times the sums of the activations.
func (t *tile) least(group, pairs int, least func(i, h int) V) {
	for i := range t.n {
		MOVI(least(i, 0), 0)
		MOVI(least(i, 1), 0)
	}
	for p := range pairs {
		LoadPair(0, 1, tScales, 128*p)
		UZP1(H8, 2, 0, 1)
		UZP2(H8, 3, 0, 1)
		for i := range t.n {
			if group == 16 {
				LoadQ(4, tAct, actBytes*i+actSums16+p/4*16)
			} else {
				LoadQ(4, tAct, actBytes*i+actSums32)
			}
			for k := range 2 {
				SMLALElement(H4, least(i, 0), V(2+k), 4, 2*p%8+k)
				SMLALElement(H8, least(i, 1), V(2+k), 4, 2*p%8+k)
			}
		}
	}
}

// smallKind is what the products of small blocks are made of.
type smallKind int

const (
	oneScale  smallKind = iota
	withTerm            // the elements have a term
	twoScales           // the halves have scales
)

// small is the tile of a format with small blocks.
func (t *tile) small(kind smallKind) {
	name := [...]string{"Small", "Term", "Two"}[kind]
	t.function(name, func() {
		t.clearTotals()
		Go("ADD $%d, %v, %v", actScales, tAct, tDAct)
		Go("ADD $%d, %v, %v", actSums, tAct, tSum)
		Go("ADD $%d, %v, %v", 8*128, tScales, tTerm)
	}, func() {
		t.clear()
		t.multiply(0)
		if kind == twoScales {
			t.finish()
			LoadPair(0, 1, tScales, 0)
			t.each(nil, func(i, h int, sum V) {
				SCVTF(sum, sum)
				FMUL(t.first(i, h), sum, V(h))
			})
			t.clear()
		}
		t.multiply(1)
		t.finish()
		LoadPair(0, 1, tScales, 0)
		if kind != oneScale {
			LoadPair(2, 3, tTerm, 0)
		}
		t.each(func(i int) {
			LoadS(4, tDAct, actBytes*i)
			if kind == withTerm {
				LoadH(5, tSum, actBytes*i)
				SSHLL(H4, 5, 5, 0)
				SCVTF(5, 5)
			}
		}, func(i, h int, sum V) {
			SCVTF(sum, sum)
			p := sum
			switch kind {
			case oneScale:
				FMULElement(6, V(h), 4, 0)
				FMUL(p, sum, 6)
			case withTerm:
				FMUL(p, sum, V(h))
				FMLAElement(p, V(2+h), 5, 0)
				FMULElement(p, p, 4, 0)
			case twoScales:
				p = t.first(i, h)
				FMLA(p, V(2+h), sum)
				FMULElement(p, p, 4, 0)
			}
			FADD(t.total(i, h), t.total(i, h), p)
		})
		Go("ADD $128, %v", tScales)
		Go("ADD $128, %v", tTerm)
		Go("ADD $4, %v", tDAct)
		Go("ADD $2, %v", tSum)
	}, func() {
		for i := range t.n {
			LoadPair(0, 1, tOut, 4*panelRows*i)
			FADD(0, 0, t.total(i, 0))
			FADD(1, 1, t.total(i, 1))
			StorePair(0, 1, tOut, 4*panelRows*i)
		}
	})
}

// tiles writes the tiles of all multipliers.
func tiles() {
	for _, m := range multipliers {
		for _, n := range m.sizes {
			t := &tile{m, n}
			for _, group := range []int{16, 32} {
				t.super(group, false)
				t.super(group, true)
			}
			t.small(oneScale)
			t.small(withTerm)
			if n <= 4 {
				t.small(twoScales)
			}
		}
	}
}
