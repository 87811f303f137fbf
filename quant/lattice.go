package quant

import (
	"math"
	"sync"
)

// A lattice is the set of points that the codes of an IQ format stand for, as the
// encoders search it. A point, on the grid or not, is a word: the levels of its 8 or
// 4 values, of 2 or 3 bits each, the first value's lowest.
type lattice struct {
	values int // per point: 8 or 4
	points []uint16
	// index has, for each word that an encoder may ask for, the place in points, or,
	// for one that is not on the grid, -1-n where n is the place of its neighbours.
	index []int32
	// near has runs of a count and that many words on the grid.
	near []uint16
}

// levels returns how many levels each value of a point has. Points of 8 use three of
// the four that their bits allow.
func (l *lattice) levels() int {
	if l.values == 8 {
		return 3
	}
	return 8
}

// bits returns how many bits of a word hold the level of one value.
func (l *lattice) bits() int {
	if l.values == 8 {
		return 2
	}
	return 3
}

// newLattice makes the lattice of the given points, which has as the neighbours of a
// word the points at the nearest few distances: the nearest first, equally near ones
// in the order of the grid.
func newLattice(values int, points []uint16, distances int) *lattice {
	l := &lattice{values: values, points: points, index: make([]int32, 1<<wordBits(values))}
	const unset = math.MinInt32
	for i := range l.index {
		l.index[i] = unset
	}
	for i, p := range points {
		l.index[p] = int32(i)
	}
	// Distances add up over the halves of a word, of which there are few.
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

// wordBits returns how many bits a word has.
func wordBits(values int) int {
	if values == 8 {
		return 16
	}
	return 12
}

// words yields the words whose levels are all in use.
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

// distance returns the square of the distance of two half words.
func (l *lattice) distance(a, b int) (sum uint8) {
	mask := 1<<l.bits() - 1
	for ; a|b != 0; a, b = a>>l.bits(), b>>l.bits() {
		diff := a&mask - b&mask
		sum += uint8(diff * diff)
	}
	return sum
}

// The lattices, built on first use. Their points follow from the decoders' grids: the
// magnitudes of a byte are levels in ascending order.
var (
	iq2xxsLattice = sync.OnceValue(func() *lattice { return newLattice(8, gridWords8(iq2xxsGrid[:]), 2) })
	iq2xsLattice  = sync.OnceValue(func() *lattice { return newLattice(8, gridWords8(iq2xsGrid[:]), 2) })
	iq2sLattice   = sync.OnceValue(func() *lattice { return newLattice(8, gridWords8(iq2sGrid[:]), 1) })
	iq1Lattice    = sync.OnceValue(func() *lattice { return newLattice(8, gridWords8(iq1sGrid[:]), 3) })
	iq3xxsLattice = sync.OnceValue(func() *lattice { return newLattice(4, gridWords4(iq3xxsGrid[:], 3), 2) })
	iq3sLattice   = sync.OnceValue(func() *lattice { return newLattice(4, gridWords4(iq3sGrid[:], 1), 3) })
)

// gridWords8 turns grid entries of 8 into words. The magnitudes of the IQ2 grids are
// 8, 25 and 43, those of the IQ1 grid -1, 0 and 1.
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

// gridWords4 turns grid entries of 4 into words. The level is in the bits of a
// magnitude from shift on: they are 4, 12, 20, ..., 52, 62 in IQ3_XXS and 1, 3, ..., 15
// in IQ3_S.
func gridWords4(grid []uint32, shift int) []uint16 {
	words := make([]uint16, len(grid))
	for i, g := range grid {
		for j := range 4 {
			words[i] |= uint16(g>>(8*j+shift)) & 7 << (3 * j)
		}
	}
	return words
}

// costs has, for each value of a point and each level of it, the weighted square
// error that the level makes: four levels of eight values, or eight of four.
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

// nearest returns the neighbour of an off-grid word that costs least, the first of
// equals.
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
