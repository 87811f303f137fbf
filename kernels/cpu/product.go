package cpu

import (
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/quant"
)

// product has what the kernels of products have in common: rows of x, rows of the output,
// and their division into units. A unit multiplies a stretch of rows of x by a tile of rows
// of a matrix, or by such a tile of each of two matrices. It decodes a tile once and
// multiplies it by each row of the stretch.
type product struct {
	batches, m, kk int // kk is the length of the dot products
	xr, or         rows
	tiles          int // tiles in a batch
	stretch        int // rows of x in a unit
	stretches      int // stretches of x in a batch
	x, out         []float32
}

// stretchRows is the least number of rows in a stretch. With as many rows, decoding a tile
// again is cheap compared to multiplying it.
const stretchRows = 64

// init divides the rows of In[0] into batches of rows that are multiplied by the same tiles.
func (p *product) init(a *op.Args, batches, tiles int, s *scratch) {
	x, out := &a.In[0], &a.Out[0]
	last := x.Shape.Rank() - 1
	p.xr.init(x, last)
	p.or.init(out, last)
	p.batches, p.m, p.kk, p.tiles = batches, p.xr.n/batches, x.Shape.Dim(last), tiles
	p.stretch = p.m
	if tiles*batches < 4*s.e.lanes {
		p.stretch = min(p.m, stretchRows)
	}
	p.stretches = (p.m + p.stretch - 1) / p.stretch
	p.x, p.out = floatsOf(x), floatsOf(out)
}

func (p *product) release() { p.x, p.out = nil, nil }

// units returns the number of units.
func (p *product) units() int { return p.batches * p.tiles * p.stretches }

// unit returns the batch and the tile of unit u, and its rows of x, which are first to end-1.
func (p *product) unit(u int) (b, t, first, end int) {
	part := u % p.stretches
	u /= p.stretches
	b, t = u/p.tiles, u%p.tiles
	return b, t, b*p.m + part*p.stretch, b*p.m + min((part+1)*p.stretch, p.m)
}

// row returns row i of x.
func (p *product) row(i int) []float32 { return p.x[p.xr.at(i):][:p.kk] }

// matrix is a matrix of a product. Its rows are multiplied by rows of x.
type matrix struct {
	dt                dtype.DType
	chunks            int // of the dot products
	batches, n, kk    int // n is the number of rows of a batch, kk their length
	batch, row, inner int // strides in storage elements
	rowBytes          int // bytes of a contiguous row
	decode            quant.Decoder
	bytes             []byte
	inPlace           bool // rows are used in place
	// direct is the memory if rows are used in place and are aligned, otherwise nil.
	direct []float32
}

// init sets the matrix to o. Its dot products are summed in the given number of chunks.
func (w *matrix) init(o *op.Operand, chunks int) (err error) {
	w.chunks = max(1, chunks)
	w.dt, w.n, w.kk = o.DType, o.Shape.Dim(-2), o.Shape.Dim(-1)
	w.batches, w.batch = 1, 0
	if o.Shape.Rank() == 3 {
		w.batches, w.batch = o.Shape.Dim(0), o.Strides.Dim(0)
	}
	w.row, w.inner = o.Strides.Dim(-2), o.Strides.Dim(-1)
	if o.Has(op.Rows) {
		w.inner = 1
	}
	if w.decode, err = quant.DecoderOf(w.dt); err != nil {
		return err
	}
	w.rowBytes = w.kk / w.dt.BlockSize() * w.dt.Size()
	w.bytes = bytesOf(o)
	if w.inPlace = w.dt == dtype.F32 && w.inner == 1; w.inPlace && aligned(w.bytes, 4) {
		w.direct = floats(w.bytes)
	}
	return nil
}

func (w *matrix) release() { w.bytes, w.direct, w.decode = nil, nil, nil }

// tiles returns the number of tiles in a batch. The last tile may have fewer rows than the
// others.
func (w *matrix) tiles() int { return (w.n + tile - 1) / tile }

// cost returns an upper estimate of the multiply-adds in which a tile is loaded and
// multiplied by m rows.
func (w *matrix) cost(m int) int {
	cost := tile * w.kk
	switch {
	case w.direct != nil:
		return cost * m
	case w.inPlace:
		return bytesCost * cost * m
	case w.inner == 1:
		return cost*m + decodeCost*cost
	}
	return cost*m + gatherCost*cost
}

// tileBytes returns the bytes of workspace for a tile of the matrix o. It is 0 if rows are
// used in place.
func tileBytes(o *op.Operand) float64 {
	if o.DType == dtype.F32 && o.Has(op.Rows) {
		return 0
	}
	return 4 * tile * float64(o.Shape.Dim(-1))
}

// tileRows are the rows of a tile: slices of f32 values, or the memory of f32 values that are
// not aligned.
type tileRows struct {
	n      int
	chunks int
	rows   [tile][]float32 // the rows after the first n are the first row
	bytes  []byte          // from the first row on, or nil
	stride int             // bytes from a row to the next one in bytes
}

// load sets t to the tile of the rows of batch b from row n on. It decodes rows that cannot be
// used in place into buf, which must not change while the tile is in use. The result is valid
// if s.err is nil.
func (w *matrix) load(t *tileRows, b, n int, buf []byte, s *scratch) {
	t.n, t.chunks = min(tile, w.n-n), w.chunks
	off := b*w.batch + n*w.row
	if w.inPlace && w.direct == nil {
		t.bytes, t.stride = w.bytes[4*off:], 4*w.row
		return
	}
	for r := range t.n {
		if w.direct != nil {
			t.rows[r] = w.direct[off:][:w.kk]
		} else {
			t.rows[r] = floats(buf)[r*w.kk:][:w.kk]
			src := w.bytes[off*w.dt.Size():]
			if w.inner == 1 {
				s.decode(t.rows[r], src[:w.rowBytes], w.dt, w.decode)
			} else {
				s.gather(t.rows[r], src, w.inner, w.dt, w.decode)
			}
		}
		off += w.row
	}
	for r := t.n; r < tile; r++ {
		t.rows[r] = t.rows[0]
	}
}

// dot returns the dot products of x with the rows of the tile, of which the first t.n are
// meaningful. Every element of a product of rows with a matrix is computed here. The result
// is valid if s.err is nil.
func (t *tileRows) dot(x []float32, s *scratch) [tile]float32 {
	if t.chunks == 1 {
		return t.dotChunk(x, 0, s)
	}
	var sums [op.MaxChunks][tile]float32
	n := len(x) / t.chunks
	for c := range t.chunks {
		sums[c] = t.dotChunk(x[c*n:][:n], c*n, s)
	}
	for left := t.chunks / 2; left > 0; left /= 2 {
		for c := range left {
			for r := range tile {
				sums[c][r] = sums[2*c][r] + sums[2*c+1][r]
			}
		}
	}
	return sums[0]
}

// dotChunk returns the dot products of x with the elements of the rows from element first on.
func (t *tileRows) dotChunk(x []float32, first int, s *scratch) (sums [tile]float32) {
	if t.bytes == nil {
		if first == 0 {
			return s.dot4(x, &t.rows)
		}
		var rows [tile][]float32
		for r := range rows {
			rows[r] = t.rows[r][first:]
		}
		return s.dot4(x, &rows)
	}
	for r := range t.n {
		w := t.bytes[r*t.stride+4*first:]
		var even, odd float32
		p := s.pieces(len(x), bytesCost)
		for p.next() {
			even, odd = dotBytes(even, odd, x[p.lo:p.hi], w[4*p.lo:])
		}
		sums[r] = even + odd
	}
	return sums
}
