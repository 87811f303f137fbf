package cpu

import (
	"math"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/quant"
)

// attention is the kernel of op.Attention. It computes the softmax online over blocks of
// keys (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018). A unit
// is a few tokens of the query heads that share a KV head, so that a block of the cache is
// widened once for all of them. Blocks start at multiples of keyBlock, so that the order of
// a row's operations depends only on the row's position.
type attention struct {
	t, heads, kvHeads, d, dv int
	group                    int // query heads of a KV head
	tokens                   int // tokens in a unit
	tiles                    int // units of a KV head
	past, window             int
	scale, softCap           float32
	qr, or                   rows // a row is a head of a token
	k, v                     cache
	q, out                   []float32
}

// keyBlock is the number of keys in a block.
const keyBlock = 64

// queryRows is the approximate number of query rows in a unit.
const queryRows = 16

// cache holds the keys or the values.
type cache struct {
	dt        dtype.DType
	row, head int // strides in storage elements
	d         int
	decode    quant.Decoder
	bytes     []byte
	// direct is the cache if its rows are used in place, otherwise nil.
	direct []float32
}

func (c *cache) prepare(o *op.Operand) (err error) {
	if c.decode, err = quant.DecoderOf(o.DType); err != nil {
		return err
	}
	c.dt, c.d = o.DType, o.Shape.Dim(2)
	c.row, c.head = o.Strides.Dim(0), o.Strides.Dim(1)
	if c.bytes = bytesOf(o); c.dt == dtype.F32 && aligned(c.bytes, 4) {
		c.direct = floats(c.bytes)
	}
	return nil
}

// widen decodes the rows lo to hi-1 of a head into block, which has room for keyBlock rows.
// It does nothing if rows are used in place.
func (c *cache) widen(block []float32, head, lo, hi int, s *scratch) {
	if c.direct != nil {
		return
	}
	size := c.dt.Size()
	row := c.d / c.dt.BlockSize() * size
	for j := lo; j < hi; j++ {
		src := c.bytes[(j*c.row+head*c.head)*size:][:row]
		if !s.decode(block[(j-lo)*c.d:][:c.d], src, c.dt, c.decode) {
			return
		}
	}
}

// at returns row j of a head. block has the widened rows from lo on.
func (c *cache) at(block []float32, head, lo, j int) []float32 {
	if c.direct != nil {
		return c.direct[j*c.row+head*c.head:][:c.d]
	}
	return block[(j-lo)*c.d:][:c.d]
}

// queryTokens returns the number of tokens in a unit, and of query heads per KV head.
func queryTokens(a *op.Args) (tokens, group int) {
	q := &a.In[0].Shape
	group = q.Dim(1) / a.In[1].Shape.Dim(1)
	return min(q.Dim(0), max(1, queryRows/group)), group
}

// attentionLane returns the workspace of a lane in bytes: the sum, the largest score and
// the result of each query row of a unit, and a block of keys and of values.
func attentionLane(a *op.Args) float64 {
	tokens, group := queryTokens(a)
	d, dv := float64(a.In[1].Shape.Dim(2)), float64(a.In[2].Shape.Dim(2))
	return (8+4+4*dv)*float64(tokens)*float64(group) + 4*keyBlock*(d+dv)
}

func (k *attention) prepare(a *op.Args, _ *scratch) error {
	q, out := &a.In[0], &a.Out[0]
	if err := k.k.prepare(&a.In[1]); err != nil {
		return err
	}
	if err := k.v.prepare(&a.In[2]); err != nil {
		return err
	}
	k.t, k.heads, k.kvHeads = q.Shape.Dim(0), q.Shape.Dim(1), a.In[1].Shape.Dim(1)
	k.d, k.dv = k.k.d, k.v.d
	k.past, k.window, k.scale, k.softCap = a.Past, a.Window, a.Scale, a.SoftCap
	k.tokens, k.group = queryTokens(a)
	k.tiles = (k.t + k.tokens - 1) / k.tokens
	k.qr.init(q, 2)
	k.or.init(out, 2)
	k.q, k.out = floatsOf(q), floatsOf(out)
	return nil
}

func (k *attention) release() {
	k.q, k.out = nil, nil
	k.k, k.v = cache{}, cache{}
}

func (k *attention) cost() (units, cost int) {
	keys := k.past + (k.t+1)/2
	if k.window > 0 {
		keys = min(keys, k.window)
	}
	return k.kvHeads * k.tiles, unitCost + k.tokens*k.group*(keys+1)*(k.d+k.dv+expCost)
}

// sees returns the keys that token t sees: lo to hi-1.
func (k *attention) sees(t int) (lo, hi int) {
	hi = k.past + t + 1
	if k.window > 0 {
		lo = max(0, hi-k.window)
	}
	return lo, hi
}

func (k *attention) run(lo, hi int, s *scratch) {
	n := k.tokens * k.group
	b := s.workspace
	sum := doubles(b[:8*n])
	f := floats(b[8*n:])
	top, f := f[:n], f[n:]
	acc, f := f[:n*k.dv], f[n*k.dv:]
	keys, values := f[:keyBlock*k.d], f[keyBlock*k.d:][:keyBlock*k.dv]
	for u := lo; u < hi && s.err == nil; u++ {
		// Neighbouring units read the same cache rows.
		head, t0 := u/k.tiles, u%k.tiles*k.tokens
		t1 := min(t0+k.tokens, k.t)
		clear(sum)
		clear(acc)
		for i := range top {
			top[i] = float32(math.Inf(-1))
		}
		first, _ := k.sees(t0)
		_, end := k.sees(t1 - 1)
		for first < end && s.err == nil {
			next := min(first/keyBlock*keyBlock+keyBlock, end)
			k.k.widen(keys, head, first, next, s)
			k.v.widen(values, head, first, next, s)
			for t := t0; t < t1 && s.err == nil; t++ {
				from, to := k.sees(t)
				from, to = max(from, first), min(to, next)
				if from >= to {
					continue
				}
				for g := 0; g < k.group && s.err == nil; g++ {
					i := (t-t0)*k.group + g
					q := k.q[k.qr.at(t*k.heads+head*k.group+g):][:k.d]
					p := s.floats[:to-from]
					k.scores(p, q, keys, head, first, from, s)
					if weigh(p, &top[i], &sum[i], acc[i*k.dv:][:k.dv]) {
						k.accumulate(acc[i*k.dv:][:k.dv], p, values, head, first, from, s)
					}
				}
			}
			first = next
		}
		for t := t0; t < t1; t++ {
			for g := range k.group {
				i := (t-t0)*k.group + g
				out := k.out[k.or.at(t*k.heads+head*k.group+g):][:k.dv]
				inv := float32(1 / sum[i])
				for j, v := range acc[i*k.dv:][:len(out)] {
					out[j] = v * inv
				}
			}
		}
	}
}

// scores sets p to the scores of q against len(p) keys, the first of which is from.
func (k *attention) scores(p, q, block []float32, head, first, from int, s *scratch) {
	s.spend(expCost * len(p)) // counts the cost of weigh
	for j := 0; j < len(p); j += tile {
		n := min(tile, len(p)-j)
		var w [tile][]float32
		for r := range w {
			w[r] = k.k.at(block, head, first, from+j+min(r, n-1))
		}
		sums := s.dot4(q, &w)
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

// accumulate adds len(weights) values, the first of which is from, times their weights to
// acc.
func (k *attention) accumulate(acc, weights, block []float32, head, first, from int, s *scratch) {
	p := s.pieces(k.dv, len(weights))
	for p.next() {
		acc, w, j := acc[p.lo:p.hi], weights, from
		for ; len(w) >= tile; w, j = w[tile:], j+tile {
			axpy4(acc, w[0], w[1], w[2], w[3],
				k.v.at(block, head, first, j)[p.lo:], k.v.at(block, head, first, j+1)[p.lo:],
				k.v.at(block, head, first, j+2)[p.lo:], k.v.at(block, head, first, j+3)[p.lo:])
		}
		for i, v := range w {
			axpy(acc, v, k.v.at(block, head, first, j+i)[p.lo:])
		}
	}
}
