package cpu

import (
	"math"
	"math/bits"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/kernels/cpu/vector"
)

var _ [keyBlock]struct{} = [vector.Keys]struct{}{}

// vectorDim is the largest head with which attention uses vector loops. It bounds the time between
// two polls.
const vectorDim = 1024

// inVectors reports whether attention uses vector loops.
func inVectors(a *op.Args) bool {
	return !a.Exact && a.In[1].Shape.Dim(-1) <= vectorDim && a.In[2].Shape.Dim(-1) <= vectorDim
}

// directRows is the most rows of a unit for which f16 is widened as it is used, instead of once for
// all rows.
const directRows = 4

// whole returns d rounded up to whole vectors. Rows are padded with zeros.
func whole(d int) int { return (d + 15) &^ 15 }

// vectorLane returns the workspace of a lane in bytes, for a unit of n rows: the parts of a
// vectorUnit.
func vectorLane(n, d, dv int) float64 {
	rows := float64(8 + 4*(4+keyBlock+whole(d)+whole(dv)))
	return rows*float64(n) + 4*keyBlock*float64(whole(d)+whole(dv))
}

// vectorUnit is the state of a unit in vector loops. A row is a query head of a token.
type vectorUnit struct {
	q      []float32 // [rows][whole(d)]
	scores []float32 // [rows][keyBlock], which become weights
	// The largest score with the block, the sum of the block's weights, and the factor that makes
	// the results of the blocks before relative to that score.
	tops, totals, factors []float32
}

// cacheBlock is a block of the keys or values of a head.
type cacheBlock struct {
	vector.Rows
	at      [keyBlock]int // of the rows that are used, in bytes of the cache
	compact [keyBlock]int // of the widened rows
	wide    []byte        // room for them
}

// init sets the block to room for widened rows of d elements.
func (b *cacheBlock) init(d int, wide []byte) {
	b.wide = wide[:4*keyBlock*whole(d)]
	for i := range b.compact {
		b.compact[i] = 4 * whole(d) * i
	}
}

// runVectors is run with vector loops.
func (k *attention) runVectors(lo, hi int, s *scratch) {
	n := k.tokens * k.group
	d, dv := whole(k.d), whole(k.dv)
	b := s.workspace
	u := unit{scratch: s, sum: doubles(b[:8*n])}
	b = b[8*n:]
	s.keys.init(k.d, b)
	b = b[len(s.keys.wide):]
	s.values.init(k.dv, b)
	f := floats(b[len(s.values.wide):])
	part := func(n int) (part []float32) {
		part, f = f[:n], f[n:]
		return part
	}
	u.top, u.acc = part(n), part(n*dv)
	v := &u.vectors
	v.tops, v.totals, v.factors = part(n), part(n), part(n)
	v.scores, v.q = part(n*keyBlock), part(n*d)
	for i := lo; i < hi && s.err == nil; i++ {
		// Neighbouring units read the same cache rows.
		u.head, u.t0 = i/k.tiles, i%k.tiles*k.tokens
		u.rows = k.spans(&u.list, u.t0, s)
		k.begin(&u)
		for first := 0; first < u.rows && s.err == nil; {
			n := runLength(u.list[first:u.rows])
			k.attend(&u, first, first+n)
			first += n
		}
		if s.err == nil {
			k.end(&u)
		}
	}
	s.keys, s.values = cacheBlock{}, cacheBlock{}
}

// begin sets a unit to no keys.
func (k *attention) begin(u *unit) {
	d := whole(k.d)
	for j := range u.rows * k.group {
		q := u.vectors.q[j*d:][:d]
		clear(q[copy(q, k.q[k.qr.at(k.queryRow(u, j)):][:k.d]):])
		u.top[j] = float32(math.Inf(-1))
	}
	clear(u.sum)
	clear(u.acc)
}

// queryRow returns the row of q and of the output that is row j of the unit.
func (k *attention) queryRow(u *unit, j int) int {
	return (u.t0+j/k.group)*k.heads + u.head*k.group + j%k.group
}

// end writes the results of a unit.
func (k *attention) end(u *unit) {
	dv := whole(k.dv)
	for j := range u.rows * k.group {
		out := k.out[k.or.at(k.queryRow(u, j)):][:k.dv]
		k.loops.Scale(out, u.acc[j*dv:][:k.dv], float32(1/u.sum[j]))
	}
}

// loadVectors finds the keys and values of the block that are in the set, and widens them if they
// cannot be used in place by the given number of tokens. It returns false if they are not valid, and
// then u.err is set.
func (k *attention) loadVectors(u *unit, seq int, need keySet, tokens int) bool {
	if !u.spend(lookupCost * bits.OnesCount64(uint64(need))) {
		return false
	}
	keys, values := &u.scratch.keys, &u.scratch.values
	first := bits.TrailingZeros64(uint64(need))
	for set := need; set != 0; {
		lo := bits.TrailingZeros64(uint64(set))
		hi := lo + bits.TrailingZeros64(^uint64(set>>lo))
		if !k.findVectors(u, seq, lo, hi) {
			return false
		}
		set &= set + 1<<lo // without this run of keys
	}
	for set := ^need; set != 0; set &= set - 1 {
		i := bits.TrailingZeros64(uint64(set))
		keys.at[i], values.at[i] = keys.at[first], values.at[first]
	}
	rows := tokens * k.group
	return k.widen(keys, &k.k, need, rows, u.scratch) && k.widen(values, &k.v, need, rows, u.scratch)
}

// findVectors finds the keys lo to hi-1 of the block. It returns false if u.err is set.
func (k *attention) findVectors(u *unit, seq, lo, hi int) bool {
	for lo < hi {
		page, row, n := 0, u.base+lo, hi-lo
		if k.pages > 0 {
			entry := row / k.pageRows
			page = k.index(&k.table, seq*k.pages+entry, u.scratch)
			if u.err != nil {
				return false // spend would replace u.err
			}
			row -= entry * k.pageRows
			n = min(n, k.pageRows-row)
		}
		k.k.place(u.scratch.keys.at[lo:lo+n], page, row, u.head)
		k.v.place(u.scratch.values.at[lo:lo+n], page, row, u.head)
		lo += n
	}
	return true
}

// place sets at to where rows of a head begin in c.bytes.
func (c *cache) place(at []int, page, row, head int) {
	size := c.dt.Size()
	first, step := (page*c.page+row*c.row+head*c.head)*size, c.row*size
	for i := range at {
		at[i] = first + i*step
	}
	_ = c.bytes[at[0]:][:c.rowBytes()]
	_ = c.bytes[at[len(at)-1]:][:c.rowBytes()]
}

// rowBytes returns the size of a row.
func (c *cache) rowBytes() int { return c.d / c.dt.BlockSize() * c.dt.Size() }

// widen sets b.Rows to the rows of the set, which rows of queries are going to use. loadVectors has found
// their places.
func (k *attention) widen(b *cacheBlock, c *cache, need keySet, rows int, s *scratch) bool {
	b.D = whole(c.d)
	inPlace := c.d == b.D && (c.dt == dtype.F32 || c.dt == dtype.F16 && rows <= directRows && k.loops.Vectors())
	if inPlace {
		b.Data, b.Offsets, b.Half = c.bytes, &b.at, c.dt == dtype.F16
		return !b.Half || s.spendParts(decodeCost*c.d*bits.OnesCount64(uint64(need)))
	}
	b.Data, b.Offsets, b.Half = b.wide, &b.compact, false
	if c.dt == dtype.Q8_0 || c.dt == dtype.F16 && c.d == b.D {
		from := vector.Rows{Data: c.bytes, Offsets: &b.at, D: c.d, Half: c.dt == dtype.F16}
		if !s.spendParts(decodeCost * c.d * bits.OnesCount64(uint64(need))) {
			return false
		}
		if n := bits.Len64(uint64(need)); from.Half {
			k.loops.Widen(floats(b.wide), &from, n)
		} else {
			k.loops.WidenQ80(floats(b.wide), &from, n)
		}
		return true
	}
	for ; need != 0; need &= need - 1 {
		i := bits.TrailingZeros64(uint64(need))
		dst := floats(b.wide[b.compact[i]:][:4*b.D])
		src := c.bytes[b.at[i]:][:c.rowBytes()]
		if c.direct != nil {
			copy(dst, floats(src))
		} else if !s.decode(dst[:c.d], src, c.dt, c.decode) {
			return false
		}
		clear(dst[c.d:])
	}
	return true
}

// leastPart is the least cost that spendParts counts at a time.
const leastPart = 1 << 12

// spendParts is spend for a cost that may be more than a poll is due after.
func (s *scratch) spendParts(n int) bool {
	part := max(s.e.every, leastPart)
	for ; n > part; n -= part {
		if !s.spend(part) {
			return false
		}
	}
	return s.spend(n)
}

// addBlock adds the block to the results of the rows of tokens from to to-1. It returns false if
// the context is done.
func (k *attention) addBlock(u *unit, from, to int) bool {
	v := &u.vectors
	d, first, last := whole(k.d), from*k.group, to*k.group
	for j := first; j < last; j += directRows {
		rows := min(directRows, last-j)
		lo, hi, n := keyBlock, 0, 0
		for r := range rows {
			if l, h := u.sees((j + r) / k.group); l < h {
				lo, hi, n = min(lo, l), max(hi, h), n+h-l
			}
		}
		if !u.spendParts(n * (k.d + expCost)) {
			return false
		}
		k.loops.Scores(v.scores[j*keyBlock:], v.q[j*d:], rows, &u.scratch.keys.Rows, lo, hi, k.scale)
	}
	scores := v.scores[first*keyBlock : last*keyBlock]
	if k.softCap > 0 {
		k.loops.SoftCap(scores, scores, k.softCap)
	}
	for j := first; j < last; j++ {
		lo, hi := u.sees(j / k.group)
		row := v.scores[j*keyBlock:][:keyBlock]
		if hi = max(hi, 0); lo >= hi {
			lo, hi = 0, 0
		}
		repeat(row[:lo], float32(math.Inf(-1)))
		repeat(row[hi:], float32(math.Inf(-1)))
	}
	tops := v.tops[first:last]
	copy(tops, u.top[first:last])
	k.loops.Weights(scores, last-first, tops, v.totals[first:last], v.factors[first:last])
	for j := first; j < last; {
		rows := k.weighed(u, j, last)
		if rows == 0 {
			j++
			continue
		}
		lo, hi := u.sees(j / k.group)
		if !u.spendParts(rows * (hi - lo) * k.dv) {
			return false
		}
		dv := whole(k.dv)
		k.loops.Accumulate(u.acc[j*dv:], v.scores[j*keyBlock:], rows, &u.scratch.values.Rows, lo, hi)
		j += rows
	}
	return true
}

// weighed adds the weights of rows to their sums, and rescales the results that have a new largest
// score. It returns the number of rows from row j on that see the same keys, whose values are to be
// added; it is 0 if row j sees nothing, has no weight so far, or is NaN.
func (k *attention) weighed(u *unit, j, last int) (rows int) {
	lo, hi := u.sees(j / k.group)
	if lo >= hi {
		return 0
	}
	for last = min(last, j+directRows); j < last; j++ {
		if l, h := u.sees(j / k.group); l != lo || h != hi {
			break
		}
		if m := u.vectors.tops[j]; m != m {
			u.sum[j] = math.NaN()
			break
		} else if math.IsInf(float64(m), -1) {
			break
		}
		k.rescale(u, j)
		u.sum[j] += float64(u.vectors.totals[j])
		rows++
	}
	return rows
}

// rescale makes the results of row j relative to its largest score.
func (k *attention) rescale(u *unit, j int) {
	top, m := u.top[j], u.vectors.tops[j]
	if u.top[j] = m; m == top || math.IsInf(float64(top), -1) { // or there are no results
		return
	}
	c := u.vectors.factors[j]
	u.sum[j] = float64(u.sum[j] * float64(c)) // rounded before the next sum
	acc := u.acc[j*whole(k.dv):][:whole(k.dv)]
	k.loops.Scale(acc, acc, c)
}
