package cpu

import (
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/quant"
)

// matMul is the kernel of op.MatMul. A unit multiplies a tile of rows of w by a stretch of
// rows of x: the tile is decoded once and multiplied by each row of the stretch.
type matMul struct {
	batches, m, n, kk int // kk is the length of the dot products
	wdt               dtype.DType
	wBatch, wRow      int // strides of w in storage elements
	wInner            int
	rowBytes          int // bytes of a contiguous row of w
	xr, or            rows
	decode            quant.Decoder
	tiles             int // tiles of w in a batch
	stretch           int // rows of x in a unit
	stretches         int // stretches of x in a batch
	x, out            []float32
	w                 []byte
	inPlace           bool // rows of w are used in place
	// direct is w if its rows are used in place and are aligned, otherwise nil.
	direct []float32
}

// stretchRows is the least number of rows in a stretch. With as many rows, decoding a tile
// again is cheap compared to multiplying it.
const stretchRows = 64

// matMulLane returns the workspace of a lane in bytes: a tile of rows of w, unless rows
// are used in place.
func matMulLane(a *op.Args) float64 {
	w := &a.In[1]
	if w.DType == dtype.F32 && w.Has(op.Rows) {
		return 0
	}
	return 4 * tile * float64(w.Shape.Dim(-1))
}

func (k *matMul) prepare(a *op.Args, s *scratch) (err error) {
	x, w, out := &a.In[0], &a.In[1], &a.Out[0]
	last := x.Shape.Rank() - 1
	k.wdt, k.n, k.kk = w.DType, w.Shape.Dim(-2), x.Shape.Dim(last)
	k.batches, k.m, k.wBatch = 1, 1, 0
	if w.Shape.Rank() == 3 {
		k.batches, k.m, k.wBatch = w.Shape.Dim(0), x.Shape.Dim(1), w.Strides.Dim(0)
	} else {
		for i := range last {
			k.m *= x.Shape.Dim(i)
		}
	}
	k.wRow, k.wInner = w.Strides.Dim(-2), w.Strides.Dim(-1)
	if w.Has(op.Rows) {
		k.wInner = 1
	}
	if k.decode, err = quant.DecoderOf(k.wdt); err != nil {
		return err
	}
	k.rowBytes = k.kk / k.wdt.BlockSize() * k.wdt.Size()
	k.xr.init(x, last)
	k.or.init(out, last)
	k.tiles = (k.n + tile - 1) / tile
	k.stretch = k.m
	if k.tiles*k.batches < 4*s.e.lanes {
		k.stretch = min(k.m, stretchRows)
	}
	k.stretches = (k.m + k.stretch - 1) / k.stretch
	k.x, k.w, k.out = floatsOf(x), bytesOf(w), floatsOf(out)
	if k.inPlace = k.wdt == dtype.F32 && k.wInner == 1; k.inPlace && aligned(k.w, 4) {
		k.direct = floats(k.w)
	}
	return nil
}

func (k *matMul) release() { k.x, k.w, k.direct, k.out, k.decode = nil, nil, nil, nil, nil }

func (k *matMul) cost() (units, cost int) {
	cost = tile * k.kk * k.stretch
	if !k.inPlace {
		cost += decodeCost * tile * k.kk
	}
	return k.batches * k.tiles * k.stretches, cost
}

func (k *matMul) run(lo, hi int, s *scratch) {
	for u := lo; u < hi && s.err == nil; u++ {
		part := u % k.stretches
		t := u / k.stretches
		b, n := t/k.tiles, t%k.tiles*tile
		rows := min(tile, k.n-n)
		first := b*k.m + part*k.stretch
		end := b*k.m + min((part+1)*k.stretch, k.m)
		if k.inPlace && k.direct == nil {
			k.runBytes(first, end, b, n, rows, s)
			continue
		}
		var w [tile][]float32
		for r := range rows {
			w[r] = k.row(b, n+r, r, s)
		}
		for r := rows; r < tile; r++ {
			w[r] = w[0]
		}
		for i := first; i < end && s.err == nil; i++ {
			sums := s.dot4(k.x[k.xr.at(i):][:k.kk], &w)
			copy(k.out[k.or.at(i)+n:], sums[:rows])
		}
	}
}

// row returns row n of batch b of w as f32. If the row cannot be used in place, row decodes
// it into row r of the lane's workspace. The result is valid if s.err is nil.
func (k *matMul) row(b, n, r int, s *scratch) []float32 {
	off := b*k.wBatch + n*k.wRow
	if k.direct != nil {
		return k.direct[off:][:k.kk]
	}
	src := k.w[off*k.wdt.Size():]
	dst := floats(s.workspace)[r*k.kk:][:k.kk]
	if k.wInner == 1 {
		s.decode(dst, src[:k.rowBytes], k.wdt, k.decode)
	} else {
		s.gather(dst, src, k.wInner, k.wdt, k.decode)
	}
	return dst
}

// runBytes computes a unit whose rows of w are f32 and not aligned.
func (k *matMul) runBytes(first, end, b, n, rows int, s *scratch) {
	for i := first; i < end && s.err == nil; i++ {
		x, out := k.x[k.xr.at(i):][:k.kk], k.out[k.or.at(i)+n:][:rows]
		for r := range out {
			w := k.w[4*(b*k.wBatch+(n+r)*k.wRow):]
			var even, odd float32
			p := s.pieces(k.kk, 2)
			for p.next() {
				even, odd = dotBytes(even, odd, x[p.lo:p.hi], w[4*p.lo:])
			}
			out[r] = even + odd
		}
	}
}
