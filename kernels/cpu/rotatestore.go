package cpu

import (
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
)

// rotateStore is the kernel of op.RotateStore. A unit is a head of a token: first come the
// units of the queries, then those of the keys, then those of the values.
type rotateStore struct {
	rotation   rotation
	q, k       norm // d is 0 if the heads are not normalised
	places     placeList
	heads      int // query heads
	kvHeads    int
	d, dv      int
	qr, kr, vr rows // a row is a head of a token
	or         rows
	queries    []float32
	keys       []float32
	values     []byte
	out        []float32

	dt         dtype.DType // of the cache
	page       int         // stride of pages in storage elements
	pageRows   int
	firstValue int // elements of a page before its values
	cache      []byte
}

// rotateStoreLane returns the workspace of a lane in bytes: a key head.
func rotateStoreLane(a *op.Args) float64 { return 4 * float64(a.In[1].Shape.Dim(2)) }

func (k *rotateStore) prepare(a *op.Args, s *scratch) error {
	q, key, v, out, cache := &a.In[0], &a.In[1], &a.In[2], &a.Out[0], &a.Out[1]
	k.heads, k.kvHeads, k.d, k.dv = q.Shape.Dim(1), key.Shape.Dim(1), key.Shape.Dim(2), v.Shape.Dim(2)
	k.rotation.init(&a.In[3], k.d, a.Mode, loopsOf(a, s))
	if a.Has(5) {
		k.q.init(&a.In[5], a.Eps, loopsOf(a, s))
	}
	if a.Has(6) {
		k.k.init(&a.In[6], a.Eps, loopsOf(a, s))
	}
	k.qr.init(q, 2)
	k.kr.init(key, 2)
	k.vr.init(v, 2)
	k.or.init(out, 2)
	k.queries, k.keys, k.values, k.out = floatsOf(q), floatsOf(key), bytesOf(v), floatsOf(out)
	k.dt, k.page, k.pageRows, k.cache = cache.DType, cache.Strides.Dim(0), a.PageRows(), bytesOf(cache)
	k.firstValue = k.pageRows * k.kvHeads * k.d
	return k.places.prepare(op.RotateStore, a, 4, s)
}

func (k *rotateStore) release() { *k = rotateStore{} }

func (k *rotateStore) cost() (units, cost int) {
	cost = max((normCost+turnCost+storeCost(k.dt))*k.d, storeCost(k.dt)*k.dv)
	return k.qr.n + k.kr.n + k.vr.n, unitCost + cost
}

func (k *rotateStore) run(lo, hi int, s *scratch) {
	for u := lo; u < hi && s.err == nil; u++ {
		switch keys := u - k.qr.n; {
		case keys < 0:
			k.rotate(k.out[k.or.at(u):][:k.d], k.queries[k.qr.at(u):][:k.d], &k.q, u/k.heads, s)
		case keys < k.kr.n:
			k.storeKey(keys, s)
		default:
			r := keys - k.kr.n
			if dst, ok := k.at(r, k.firstValue, k.dv, s); ok {
				s.store(dst, k.dt, k.values[4*k.vr.at(r):][:4*k.dv])
			}
		}
	}
}

// storeKey writes key head r, counted over all tokens, to the cache.
func (k *rotateStore) storeKey(r int, s *scratch) {
	dst, ok := k.at(r, 0, k.d, s)
	if !ok {
		return
	}
	head := s.workspace[:4*k.d]
	k.rotate(floats(head), k.keys[k.kr.at(r):][:k.d], &k.k, r/k.kvHeads, s)
	if s.err == nil {
		s.store(dst, k.dt, head)
	}
}

// rotate sets out to the head x of token t, normalised and rotated. The result is valid if
// s.err is nil.
func (k *rotateStore) rotate(out, x []float32, n *norm, t int, s *scratch) {
	if n.d > 0 {
		if n.row(out, x, s); s.err != nil {
			return
		}
		x = out
	}
	k.rotation.row(out, x, t, s)
}

// at returns the cache from head r on. Heads are counted over all tokens. They have d
// elements, and the heads of a page begin at element first. at returns false if the token's
// place is out of range.
func (k *rotateStore) at(r, first, d int, s *scratch) ([]byte, bool) {
	place, ok := k.places.at(r/k.kvHeads, s)
	if !ok {
		return nil, false
	}
	element := first + (place%k.pageRows*k.kvHeads+r%k.kvHeads)*d
	at := place/k.pageRows*k.page + element/k.dt.BlockSize()
	return k.cache[at*k.dt.Size():], true
}
