package cpu

import (
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/quant"
)

// matMul is OpMatMul. A unit is a tile of rows of w against a stretch of rows of
// x: the tile is decoded once and multiplied with each row of the stretch.
type matMul struct {
	batches, m, n, kk int // kk is the length of the dot products
	wdt               dtype.DType
	wBatch, wRow      int // strides of w in storage elements
	wInner            int
	rowBytes          int // of a contiguous row of w
	xr, or            rows
	decode            quant.Decoder
	lane              int // f32 of workspace for each lane; 0 if rows of w are used in place
	need              int // bytes of workspace
	tiles             int // of a batch's rows of w
	stretch           int // rows of x in a unit
	stretches         int
	x, out, scratch   []float32
	w                 []byte
	// direct is w where its rows are used in place and aligned.
	direct []float32
}

// stretchRows is the least number of rows of x for which decoding a tile again
// is cheap beside multiplying it.
const stretchRows = 64

func (k *matMul) prepare(a *op.Args, lanes int) error {
	if err := wantInputs(a, 2); err != nil {
		return err
	}
	x, w, out := &a.In[0], &a.In[1], &a.Out[0]
	if err := checkRows("x", x); err != nil {
		return err
	}
	if err := checkRows("out", out); err != nil {
		return err
	}
	k.wdt = w.DType
	switch {
	case k.wdt == dtype.F32, k.wdt == dtype.F16, k.wdt == dtype.BF16, k.wdt.SupportsQuantizedMatMulRHS():
	default:
		return unsupported("w is %v, want f32, f16, bf16 or a block format of weights", k.wdt)
	}
	if err := check("w", w); err != nil {
		return err
	}
	last := x.Shape.Rank() - 1
	k.kk = x.Shape.Dim(last)
	k.batches, k.m, k.wBatch = 1, 1, 0
	switch w.Shape.Rank() {
	case 2:
		for i := range last {
			k.m *= x.Shape.Dim(i)
		}
	case 3:
		if k.batches = w.Shape.Dim(0); last != 2 || x.Shape.Dim(0) != k.batches {
			return mismatch("x %v and w %v, want x [%d rows elements]", x.Shape, w.Shape, k.batches)
		}
		k.m, k.wBatch = x.Shape.Dim(1), w.Strides.Dim(0)
	default:
		return mismatch("w %v, want rank 2 or 3", w.Shape)
	}
	k.n = w.Shape.Dim(-2)
	if w.Shape.Dim(-1) != k.kk {
		return mismatch("x %v and w %v, want rows of one length", x.Shape, w.Shape)
	}
	want := x.Shape
	want.Set(last, k.n)
	if out.Shape != want {
		return mismatch("out %v, want %v for x %v and w %v", out.Shape, want, x.Shape, w.Shape)
	}
	k.wRow, k.wInner = w.Strides.Dim(-2), w.Strides.Dim(-1)
	if innerContiguous(w) {
		k.wInner = 1
	} else if k.wdt.IsBlockQuantized() {
		return checkInner("w", w)
	}
	if err := checkOut(out); err != nil {
		return err
	}
	var err error
	if k.decode, err = quant.DecoderOf(k.wdt); err != nil {
		return unsupported("w: %v", err)
	}
	k.rowBytes = k.kk / k.wdt.BlockSize() * k.wdt.Size()
	k.lane, k.need = 0, 0
	if k.wdt != dtype.F32 || k.wInner != 1 {
		if k.kk > maxWorkspace/(8*tile*lanes) {
			return unsupported("w has rows of %d elements, too long to decode", k.kk)
		}
		// Lanes start a cache line apart at least.
		k.lane = tile*k.kk + 16
		k.need = 4 * k.lane * lanes
	}
	k.xr.init(x, last)
	k.or.init(out, last)
	k.tiles = (k.n + tile - 1) / tile
	k.stretch = k.m
	if k.tiles*k.batches < 4*lanes {
		k.stretch = min(k.m, stretchRows)
	}
	k.stretches = (k.m + k.stretch - 1) / k.stretch
	return nil
}

func (k *matMul) bind(a *op.Args, _ *scratch) (err error) {
	if k.x, err = bindFloats("x", &a.In[0]); err != nil {
		return err
	}
	if k.w, err = bind("w", &a.In[1]); err != nil {
		return err
	}
	if k.out, err = bindFloats("out", &a.Out[0]); err != nil {
		return err
	}
	scratch, err := workspace(a, k.need)
	if err != nil {
		return err
	}
	k.scratch = floats(scratch)
	if k.lane == 0 && aligned(k.w, 4) {
		k.direct = floats(k.w)
	}
	return nil
}

func (k *matMul) release() {
	k.x, k.w, k.direct, k.out, k.scratch, k.decode = nil, nil, nil, nil, nil, nil
}

func (k *matMul) work() (units, cost int) {
	cost = tile * k.kk * k.stretch
	if k.lane > 0 {
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
		if k.lane == 0 && k.direct == nil {
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

// row returns row n of batch b of w as f32, decoded into place r of the lane's
// workspace if need be. It is good if s.err is nil.
func (k *matMul) row(b, n, r int, s *scratch) []float32 {
	off := b*k.wBatch + n*k.wRow
	if k.direct != nil {
		return k.direct[off:][:k.kk]
	}
	src := k.w[off*k.wdt.Size():]
	dst := k.scratch[s.lane*k.lane+r*k.kk:][:k.kk]
	if k.wInner == 1 {
		s.decode(dst, src[:k.rowBytes], k.wdt, k.decode)
	} else {
		s.gather(dst, src, k.wInner, k.wdt, k.decode)
	}
	return dst
}

// runBytes is a unit with rows of f32 that are not aligned.
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
