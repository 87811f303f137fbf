package quant

import (
	"math"
	"sync"
)

// A lattice is the set of points of an IQ format, in the form that the encoders search. A
// point, on the grid or not, is a word: the levels of its 8 or 4 values, with 2 or 3 bits
// each and the first value in the lowest bits.
type lattice struct {
	values int // per point: 8 or 4
	points []uint16
	// index has, for each word, its index in points. For a word that is not on the grid it
	// has -1-n, where n is the index of its neighbours in near.
	index []int32
	// near has lists of neighbours. A list is a count, followed by as many words on the
	// grid.
	near []uint16
}

// levels returns the number of levels of a value. Points of 8 values use three of the four
// levels that their bits allow.
func (l *lattice) levels() int {
	if l.values == 8 {
		return 3
	}
	return 8
}

// bits returns the number of bits of a word that hold the level of one value.
func (l *lattice) bits() int {
	if l.values == 8 {
		return 2
	}
	return 3
}

// newLattice returns the lattice of the given points. The neighbours of a word are the
// points at the few smallest distances, the nearest first, and equally near ones in the
// order of the grid.
func newLattice(values int, points []uint16, distances int) *lattice {
	l := &lattice{values: values, points: points, index: make([]int32, 1<<wordBits(values))}
	const unset = math.MinInt32
	for i := range l.index {
		l.index[i] = unset
	}
	for i, p := range points {
		l.index[p] = int32(i)
	}
	// The distance of two words is the sum over their halves, and there are few different
	// halves.
	half := wordBits(values) / 2
	var table [256][256]uint8
	for a := range 1 << half {
		for b := range 1 << half {
			table[a][b] = l.distance(a, b)
		}
	}
	low := uint16(1)<<half - 1
	const far = 255
	distance := make([]uint8, len(points))
	for word := range l.words() {
		if l.index[word] != unset {
			continue
		}
		lower, upper := &table[word&low], &table[word>>half]
		var count [far + 1]int
		for i, p := range points {
			distance[i] = lower[p&low] + upper[p>>half]
			count[distance[i]]++
		}
		start := len(l.near)
		l.index[word] = int32(-1 - start)
		l.near = append(l.near, 0)
		left := distances
		for d, n := range count {
			if n == 0 {
				continue
			}
			for i, p := range points {
				if int(distance[i]) == d {
					l.near = append(l.near, p)
				}
			}
			l.near[start] += uint16(n)
			if left--; left == 0 {
				break
			}
		}
	}
	return l
}

// wordBits returns the number of bits of a word.
func wordBits(values int) int {
	if values == 8 {
		return 16
	}
	return 12
}

// words yields the words that have only levels in use.
func (l *lattice) words() func(yield func(uint16) bool) {
	return func(yield func(uint16) bool) {
		for word := range len(l.index) {
			if l.values == 8 && word>>1&word&0x5555 != 0 {
				continue
			}
			if !yield(uint16(word)) {
				return
			}
		}
	}
}

// distance returns the squared distance of two half words.
func (l *lattice) distance(a, b int) (sum uint8) {
	mask := 1<<l.bits() - 1
	for ; a|b != 0; a, b = a>>l.bits(), b>>l.bits() {
		diff := a&mask - b&mask
		sum += uint8(diff * diff)
	}
	return sum
}

// The lattices are built on first use, from the decoders' grids. A level is the rank of a
// magnitude.
var (
	iq2xxsLattice = sync.OnceValue(func() *lattice { return newLattice(8, gridWords8(iq2xxsGrid[:]), 2) })
	iq2xsLattice  = sync.OnceValue(func() *lattice { return newLattice(8, gridWords8(iq2xsGrid[:]), 2) })
	iq2sLattice   = sync.OnceValue(func() *lattice { return newLattice(8, gridWords8(iq2sGrid[:]), 1) })
	iq1Lattice    = sync.OnceValue(func() *lattice { return newLattice(8, gridWords8(iq1sGrid[:]), 3) })
	iq3xxsLattice = sync.OnceValue(func() *lattice { return newLattice(4, gridWords4(iq3xxsGrid[:], 3), 2) })
	iq3sLattice   = sync.OnceValue(func() *lattice { return newLattice(4, gridWords4(iq3sGrid[:], 1), 3) })
)

// gridWords8 turns grid entries of 8 values into words. The IQ2 grids have the magnitudes 8,
// 25 and 43, and the IQ1 grid has the values -1, 0 and 1.
func gridWords8(grid []uint64) []uint16 {
	words := make([]uint16, len(grid))
	for i, g := range grid {
		for j := range 8 {
			var level uint16
			switch uint8(g >> (8 * j)) {
			case 0, 25:
				level = 1
			case 1, 43:
				level = 2
			}
			words[i] |= level << (2 * j)
		}
	}
	return words
}

// gridWords4 turns grid entries of 4 values into words. The level is in the bits of a
// magnitude from shift on. The magnitudes are 4, 12, 20, ..., 52, 62 in IQ3_XXS and 1, 3,
// ..., 15 in IQ3_S.
func gridWords4(grid []uint32, shift int) []uint16 {
	words := make([]uint16, len(grid))
	for i, g := range grid {
		for j := range 4 {
			words[i] |= uint16(g>>(8*j+shift)) & 7 << (3 * j)
		}
	}
	return words
}

// costs has the weighted square error for each value of a point and each level: for eight
// values of four levels, or four values of eight levels.
type costs [32]float32

// fill computes the costs for a scale, given the value of each level.
func (c *costs) fill(levels []float32, scale float32, x, w []float32) {
	stride := len(c) / len(x)
	w = w[:len(x)]
	for i, v := range x {
		row := c[i*stride:][:stride]
		for l, q := range levels {
			diff := float32(scale*q) - v
			row[l] = float32(w[i]*diff) * diff
		}
	}
}

// nearest returns the first neighbour of an off-grid word with the least cost.
func (l *lattice) nearest(word uint16, c *costs) uint16 {
	start := -1 - l.index[word]
	near := l.near[start+1:][:l.near[start]]
	best, least := near[0], float32(math.MaxFloat32)
	if l.values == 8 {
		for _, p := range near {
			d := c[p&3] + c[4+p>>2&3] + c[8+p>>4&3] + c[12+p>>6&3] +
				c[16+p>>8&3] + c[20+p>>10&3] + c[24+p>>12&3] + c[28+p>>14]
			if d < least {
				best, least = p, d
			}
		}
		return best
	}
	for _, p := range near {
		d := c[p&7] + c[8+p>>3&7] + c[16+p>>6&7] + c[24+p>>9&7]
		if d < least {
			best, least = p, d
		}
	}
	return best
}
