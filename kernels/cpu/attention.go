package cpu

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/kernels/cpu/vector"
	"github.com/fucina-go/fucina/quant"
)

// attention is the kernel of op.Attention. It computes the softmax online over blocks of
// keys (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018). A unit
// is a few rows of the query heads that share a KV head. The rows of a unit form runs of
// neighbours of one sequence, and a block of the cache is widened once for a run. Blocks
// start at multiples of keyBlock, so that the order of a row's operations depends only on
// the row's position.
type attention struct {
	t, heads, kvHeads, d, dv int
	group                    int // query heads of a KV head
	tokens                   int // rows in a unit
	tiles                    int // units of a KV head
	most                     int // upper estimate of the cost of the largest unit
	window                   int
	scale, softCap           float32
	qr, or                   rows // a row is a head of a token
	k, v                     cache
	q, out                   []float32
	loops                    *vector.Loops // nil if the reference kernel computes

	positions, sequences, table indices
	pages                       int // pages of a sequence; 0 without a table
	pageRows                    int
	status                      *atomic.Uint64
	found                       atomic.Uint64 // status of the check in prepare
}

// keyBlock is the number of keys in a block.
const keyBlock = 64

// keySet is a set of keys of a block. Bit i is key i of the block.
type keySet uint64

var _ [keyBlock]struct{} = [8 * unsafe.Sizeof(keySet(0))]struct{}{} // a bit for every key

// queryRows is the largest number of rows in a unit, and the approximate number of rows
// times query heads.
const queryRows = 16

// cache holds the keys or the values.
type cache struct {
	dt              dtype.DType
	page, row, head int // strides in storage elements
	d               int
	decode          quant.Decoder
	bytes           []byte
	// direct is the cache if its rows are used in place, otherwise nil.
	direct []float32
}

func (c *cache) prepare(o *op.Operand) (err error) {
	if c.decode, err = quant.DecoderOf(o.DType); err != nil {
		return err
	}
	c.dt, c.d = o.DType, o.Shape.Dim(-1)
	c.row, c.head = o.Strides.Dim(-3), o.Strides.Dim(-2)
	if o.Shape.Rank() == 4 {
		c.page = o.Strides.Dim(0)
	}
	if c.bytes = bytesOf(o); c.dt == dtype.F32 && aligned(c.bytes, 4) {
		c.direct = floats(c.bytes)
	}
	return nil
}

// block is a block of the keys or the values of a head.
type block struct {
	c       *cache
	offsets [keyBlock]int // of the rows that were loaded, in storage elements
	wide    []float32     // room for keyBlock widened rows
}

// widen decodes the rows of the set, whose offsets are set. It does nothing if rows are used
// in place.
func (b *block) widen(need keySet, s *scratch) {
	c := b.c
	if c.direct != nil {
		return
	}
	size := c.dt.Size()
	row := c.d / c.dt.BlockSize() * size
	for ; need != 0; need &= need - 1 {
		i := bits.TrailingZeros64(uint64(need))
		src := c.bytes[b.offsets[i]*size:][:row]
		if !s.decode(b.wide[i*c.d:][:c.d], src, c.dt, c.decode) {
			return
		}
	}
}

// at returns row i of the block, which was loaded.
func (b *block) at(i int) []float32 {
	if b.c.direct != nil {
		return b.c.direct[b.offsets[i]:][:b.c.d]
	}
	return b.wide[i*b.c.d:][:b.c.d]
}

// indices is an operand of row numbers.
type indices struct {
	place op.Place
	limit int    // one past the largest
	mem   []byte // nil if the operand is absent
}

func (x *indices) init(id op.ID, a *op.Args, p op.Place) {
	if *x = (indices{}); a.Has(p) {
		*x = indices{place: p, limit: id.Limit(a, p), mem: bytesOf(&a.In[p])}
	}
}

// queryTokens returns the number of rows in a unit, and of query heads per KV head.
func queryTokens(a *op.Args) (tokens, group int) {
	q := &a.In[0].Shape
	group = q.Dim(1) / a.In[1].Shape.Dim(-2)
	return min(q.Dim(0), max(1, queryRows/group)), group
}

// attentionLane returns the workspace of a lane in bytes: the sum, the largest score and
// the result of each query head of each row of a unit, and a block of keys and of values.
func attentionLane(a *op.Args) float64 {
	tokens, group := queryTokens(a)
	d, dv := float64(a.In[1].Shape.Dim(-1)), float64(a.In[2].Shape.Dim(-1))
	if inVectors(a) {
		return vectorLane(tokens*group, a.In[1].Shape.Dim(-1), a.In[2].Shape.Dim(-1))
	}
	return (8+4+4*dv)*float64(tokens)*float64(group) + 4*keyBlock*(d+dv)
}

func (k *attention) prepare(a *op.Args, s *scratch) error {
	q, out := &a.In[0], &a.Out[0]
	if err := k.k.prepare(&a.In[1]); err != nil {
		return err
	}
	if err := k.v.prepare(&a.In[2]); err != nil {
		return err
	}
	k.t, k.heads, k.kvHeads = q.Shape.Dim(0), q.Shape.Dim(1), a.In[1].Shape.Dim(-2)
	k.d, k.dv = k.k.d, k.v.d
	k.window, k.scale, k.softCap = a.Window, a.Scale, a.SoftCap
	if k.loops = nil; inVectors(a) {
		k.loops = loopsOf(a, s)
	}
	k.tokens, k.group = queryTokens(a)
	k.tiles = (k.t + k.tokens - 1) / k.tokens
	k.qr.init(q, 2)
	k.or.init(out, 2)
	k.q, k.out = floatsOf(q), floatsOf(out)
	k.positions.init(op.Attention, a, 3)
	k.sequences.init(op.Attention, a, 4)
	k.table.init(op.Attention, a, 5)
	if k.pages, k.pageRows = 0, 0; k.table.mem != nil {
		k.pages, k.pageRows = a.In[5].Shape.Dim(1), a.In[1].Shape.Dim(1)
	}
	if k.status = a.Status; k.status != nil {
		return k.survey(s, false) // run reports the entries of the table
	}
	k.found.Store(0)
	k.status = &k.found
	err := k.survey(s, true)
	k.status = nil
	if report := k.found.Load(); err == nil && report != 0 {
		err = k.refuse(op.Reported(report))
	}
	return err
}

func (k *attention) release() {
	k.q, k.out, k.status, k.loops = nil, nil, nil, nil
	k.k, k.v = cache{}, cache{}
	k.positions, k.sequences, k.table = indices{}, indices{}, indices{}
}

// refuse returns the error of an index that is out of range.
func (k *attention) refuse(p op.Place, i int, value int64) error {
	switch p {
	case k.positions.place:
		return fmt.Errorf("positions[%d] is %d, want a position from 0 to %d, because there are %d keys",
			i, value, k.positions.limit-1, k.positions.limit)
	case k.sequences.place:
		return fmt.Errorf("sequences[%d] is %d, want a sequence from 0 to %d of the table's %d sequences",
			i, value, k.sequences.limit-1, k.sequences.limit)
	}
	return fmt.Errorf("table[%d][%d] is %d, want a page from 0 to %d of the cache's %d pages",
		i/k.pages, i%k.pages, value, k.table.limit-1, k.table.limit)
}

// index returns element i of x. It clamps an element that is out of range and reports it in
// k.status. Without a status, the element has changed since prepare checked it, because
// another goroutine writes to the operand; index then sets s.err.
func (k *attention) index(x *indices, i int, s *scratch) int {
	v := int(int32(binary.LittleEndian.Uint32(x.mem[4*i:])))
	if v >= 0 && v < x.limit {
		return v
	}
	if k.status == nil {
		s.err = k.refuse(x.place, i, int64(v))
	} else {
		op.Report(k.status, x.place, i, int64(v))
	}
	return min(max(v, 0), x.limit-1)
}

// span is a row of a unit: its sequence, and the keys lo to hi-1 of it that the row sees.
type span struct{ seq, lo, hi int }

// spans sets list to the rows of the unit whose first row is t0, and returns their number. If
// an index has changed since prepare checked it, s.err is set.
func (k *attention) spans(list *[queryRows]span, t0 int, s *scratch) int {
	n := min(k.tokens, k.t-t0)
	for i := range list[:n] {
		r := span{hi: k.index(&k.positions, t0+i, s) + 1}
		if k.window > 0 {
			r.lo = max(0, r.hi-k.window)
		}
		if k.sequences.mem != nil {
			r.seq = k.index(&k.sequences, t0+i, s)
		}
		list[i] = r
	}
	return n
}

// runLength returns the number of rows at the start of list that are of one sequence.
func runLength(list []span) int {
	n := 1
	for n < len(list) && list[n].seq == list[0].seq {
		n++
	}
	return n
}

// survey computes the cost of the largest unit. It looks at all positions and sequences, and,
// if pages is set, at the entries of the table that a row needs. It returns the context's
// error.
func (k *attention) survey(s *scratch, pages bool) error {
	var list [queryRows]span
	var seen span // the keys of the last row's sequence whose pages were looked at
	most := 0.0
	for t0 := 0; t0 < k.t; t0 += k.tokens {
		if !s.spend(unitCost * k.tokens) {
			return s.err
		}
		n := k.spans(&list, t0, s)
		most = max(most, k.estimate(list[:n]))
		for _, r := range list[:n] {
			if !pages || k.pages == 0 {
				break
			}
			if r.seq != seen.seq || r.lo > seen.hi || r.hi < seen.lo {
				seen = span{r.seq, r.lo, r.lo}
			}
			if !k.look(r.seq, r.lo, seen.lo, s) || !k.look(r.seq, seen.hi, r.hi, s) {
				return s.err
			}
			seen.lo, seen.hi = min(seen.lo, r.lo), max(seen.hi, r.hi)
		}
	}
	k.most = int(min(most, math.MaxInt32)) // of larger units, a chunk has one
	return nil
}

// look looks at the pages of the keys lo to hi-1 of a sequence, if there are any. It returns
// false if the context is done.
func (k *attention) look(seq, lo, hi int, s *scratch) bool {
	if lo >= hi {
		return true
	}
	first := lo / k.pageRows
	p := s.pieces((hi-1)/k.pageRows+1-first, lookupCost)
	for p.next() {
		for i := p.lo; i < p.hi; i++ {
			k.index(&k.table, seq*k.pages+first+i, s)
		}
	}
	return s.err == nil
}

// estimate returns an upper estimate of the cost of a unit.
func (k *attention) estimate(list []span) float64 {
	widen := lookupCost // of a key and its value
	for _, c := range [...]*cache{&k.k, &k.v} {
		if c.direct == nil {
			widen += decodeCost * c.d
		}
	}
	rows, group := float64(k.d+k.dv+expCost), float64(k.group)
	cost := unitCost + 2*group*float64(len(list)*k.dv) // to clear the results and to write them
	for len(list) > 0 {
		n := runLength(list)
		lo, hi, sum := list[0].lo, list[0].hi, 0.0
		for _, r := range list[:n] {
			lo, hi = min(lo, r.lo), max(hi, r.hi)
			sum += float64(r.hi - r.lo)
			blocks := r.hi/keyBlock - r.lo/keyBlock + 1
			cost += group * float64(blocks) * float64(k.dv+tile*k.d) // to rescale the result, and for tiles that are not full
		}
		cost += sum*group*rows + min(sum, float64(hi-lo))*float64(widen)
		list = list[n:]
	}
	return cost
}

func (k *attention) cost() (units, cost int) { return k.kvHeads * k.tiles, k.most }

// unit is the state of a unit of attention.
type unit struct {
	*scratch
	t0, head int
	rows     int // rows of the unit
	list     [queryRows]span

	// The sum of the weights, the largest score and the result of each query head of each
	// row.
	sum      []float64
	top, acc []float32

	base         int // the first key of the block
	keys, values block

	vectors vectorUnit
}

func (k *attention) run(lo, hi int, s *scratch) {
	if k.loops != nil {
		k.runVectors(lo, hi, s)
		return
	}
	n := k.tokens * k.group
	b := s.workspace
	u := unit{scratch: s, sum: doubles(b[:8*n])}
	f := floats(b[8*n:])
	u.top, f = f[:n], f[n:]
	u.acc, f = f[:n*k.dv], f[n*k.dv:]
	u.keys.c, u.keys.wide = &k.k, f[:keyBlock*k.d]
	u.values.c, u.values.wide = &k.v, f[keyBlock*k.d:][:keyBlock*k.dv]
	for i := lo; i < hi; i++ {
		// Neighbouring units read the same cache rows.
		u.head, u.t0 = i/k.tiles, i%k.tiles*k.tokens
		u.rows = k.spans(&u.list, u.t0, s)
		clear(u.sum)
		clear(u.acc)
		for i := range u.top {
			u.top[i] = float32(math.Inf(-1))
		}
		for first := 0; first < u.rows && s.err == nil; {
			n := runLength(u.list[first:u.rows])
			k.attend(&u, first, first+n)
			first += n
		}
		if s.err != nil {
			return
		}
		k.finish(&u)
	}
}

// attend computes the rows from to to-1 of a unit, which are of one sequence.
func (k *attention) attend(u *unit, from, to int) {
	list := u.list[from:to]
	for next := 0; u.err == nil && next >= 0; next = u.base + keyBlock { // below 0 after the last block of a 32-bit int
		// Keys that no row sees may lie before the next block.
		first := math.MaxInt
		for _, r := range list {
			if lo := max(r.lo, next); lo < r.hi {
				first = min(first, lo)
			}
		}
		if first == math.MaxInt {
			return
		}
		u.base = first / keyBlock * keyBlock
		var need keySet
		for i := range list {
			if lo, hi := u.sees(from + i); lo < hi {
				need |= ^keySet(0) >> (keyBlock - (hi - lo)) << lo
			}
		}
		if k.loops != nil {
			if !k.loadVectors(u, list[0].seq, need, to-from) || !k.addBlock(u, from, to) {
				return
			}
			continue
		}
		if !k.load(u, list[0].seq, need) {
			return
		}
		for i := from; i < to; i++ {
			if lo, hi := u.sees(i); lo < hi {
				k.row(u, i, lo, hi)
			}
		}
	}
}

// sees returns the keys of the block that row i of the unit sees: lo to hi-1, counted from
// the block's first. If there are none, lo is at least hi.
func (u *unit) sees(i int) (lo, hi int) {
	r := u.list[i]
	return max(r.lo-u.base, 0), min(r.hi-u.base, keyBlock)
}

// load finds and widens the keys and values of the block that are in the set. It returns
// false if they are not valid, and then u.err is set.
func (k *attention) load(u *unit, seq int, need keySet) bool {
	if !u.spend(lookupCost * bits.OnesCount64(uint64(need))) {
		return false
	}
	for set := need; set != 0; set &= set - 1 {
		i := bits.TrailingZeros64(uint64(set))
		page, row := 0, u.base+i
		if k.pages > 0 {
			entry := seq*k.pages + row/k.pageRows
			page, row = k.index(&k.table, entry, u.scratch), row%k.pageRows
			if u.err != nil {
				return false // spend would replace u.err
			}
		}
		u.keys.offsets[i] = page*k.k.page + row*k.k.row + u.head*k.k.head
		u.values.offsets[i] = page*k.v.page + row*k.v.row + u.head*k.v.head
	}
	u.keys.widen(need, u.scratch)
	if u.err == nil {
		u.values.widen(need, u.scratch)
	}
	return u.err == nil
}

// row adds the keys lo to hi-1 of the block to the results of row i of the unit.
func (k *attention) row(u *unit, i, lo, hi int) {
	first := (u.t0+i)*k.heads + u.head*k.group
	for g := 0; g < k.group && u.err == nil; g++ {
		j := i*k.group + g
		q := k.q[k.qr.at(first+g):][:k.d]
		acc := u.acc[j*k.dv:][:k.dv]
		p := u.floats[:hi-lo]
		k.scores(p, q, u, lo)
		if weigh(p, &u.top[j], &u.sum[j], acc) {
			k.accumulate(acc, p, u, lo)
		}
	}
}

// finish writes the results of a unit.
func (k *attention) finish(u *unit) {
	for i := range u.rows {
		first := (u.t0+i)*k.heads + u.head*k.group
		for g := range k.group {
			j := i*k.group + g
			out := k.out[k.or.at(first+g):][:k.dv]
			inv := float32(1 / u.sum[j])
			for i, v := range u.acc[j*k.dv:][:len(out)] {
				out[i] = v * inv
			}
		}
	}
}

// scores sets p to the scores of q against len(p) keys of the block, the first of which is
// from.
func (k *attention) scores(p, q []float32, u *unit, from int) {
	u.spend(expCost * len(p)) // counts the cost of weigh
	for j := 0; j < len(p); j += tile {
		n := min(tile, len(p)-j)
		var w [tile][]float32
		for r := range w {
			w[r] = u.keys.at(from + j + min(r, n-1))
		}
		sums := u.dot4(q, &w)
		copy(p[j:], sums[:])
	}
	for j, s := range p {
		s *= k.scale
		if k.softCap > 0 {
			s = softCap(s, k.softCap)
		}
		p[j] = s
	}
}

// weigh turns the scores p into weights relative to the largest score so far, and adds them
// to sum. If p has a new largest score, weigh first rescales sum and acc. It returns false
// if all scores so far are -Inf, so that p has no weight.
func weigh(p []float32, top *float32, sum *float64, acc []float32) bool {
	m, nan := *top, false
	for _, s := range p {
		if s > m {
			m = s
		}
		nan = nan || s != s
	}
	if nan {
		*sum = math.NaN()
		return true
	}
	if math.IsInf(float64(m), -1) {
		return false
	}
	if m > *top {
		c := exp(float64(*top) - float64(m))
		*sum *= c
		for i := range acc {
			acc[i] *= float32(c)
		}
		*top = m
	}
	for i, s := range p {
		w := exp(float64(s) - float64(m))
		p[i] = float32(w)
		*sum += w
	}
	return true
}

// accumulate adds len(weights) values of the block, the first of which is from, times their
// weights to acc.
func (k *attention) accumulate(acc, weights []float32, u *unit, from int) {
	p := u.pieces(k.dv, len(weights))
	for p.next() {
		acc, w, j := acc[p.lo:p.hi], weights, from
		for ; len(w) >= tile; w, j = w[tile:], j+tile {
			axpy4(acc, w[0], w[1], w[2], w[3],
				u.values.at(j)[p.lo:], u.values.at(j + 1)[p.lo:],
				u.values.at(j + 2)[p.lo:], u.values.at(j + 3)[p.lo:])
		}
		for i, v := range w {
			axpy(acc, v, u.values.at(j + i)[p.lo:])
		}
	}
}
