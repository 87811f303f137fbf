package dense

import (
	"math/bits"
	"sync/atomic"
	"unsafe"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/internal/isa"
)

// Kernel multiplies rows of weights in one format by rows of f32. It is immutable. All kernels of a
// format have the same bits.
type Kernel struct {
	d     dtype.DType
	size  int   // bytes of a weight
	rows  rows  // nil means the definition
	tiles tiles // without functions, products have the definition
	conv  converter
	whole bool // rows and tiles need multiples of 16 elements
}

type (
	// rows multiplies rows of k weights by one row x.
	rows func(out *float32, w *byte, rowBytes, rows int, x *float32, k int)
	// tile multiplies up to tiles.w rows of weights in f32 by rows of x, as tile512x3 does.
	tile func(out *float32, outStride int, w *byte, wStride int, x *float32, xStride int, steps, tail int,
		acc *float32, mode, rows, count int, wrap *float32, next *byte, nextStride, nextStep, nextMask int)
	// single multiplies the weights in memory, in another format, by the rows of x of one tile.
	single func(out *float32, outStride int, w *byte, wStride int, x *float32, xStride int, steps, tail int,
		acc *float32, mode, rows int)
	// tiles are the tiles of a level: x[i] has i+1 rows of x.
	tiles struct {
		w      int // rows of weights of a tile
		most   int // rows of x of the largest tile
		pack   int // rows of x for which it pays to make a block of f32 of weights in another format
		x      [3]tile
		single [3]single
	}
	// converter converts count values, a multiple of chains. A nil function means the definition.
	converter struct {
		widen  func(dst *float32, src *byte, count int)
		narrow func(dst *byte, src *float32, count int)
	}
)

// The modes of a tile are bits.
const (
	resume = 1 // the sums begin with what acc has
	keep   = 2 // the sums go to acc and not to out
)

const (
	// blockK is the largest number of elements of the rows of weights that a tile multiplies at a
	// time, so that the rows of a tile remain in the first cache while those of x pass.
	blockK = 1024
	// maxW is the largest number of rows of weights of a tile.
	maxW = 8
	// chunkX is the largest number of rows of x that one tile of weights multiplies in turn. Their
	// sums wait in scratch from one block of elements to the next.
	chunkX = 96
	// chunkBytes is the size of the rows of x that should remain in the second cache.
	chunkBytes = 768 << 10
	// callBytes is the number of bytes that one call of assembly reads from memory, which may take
	// 50 us.
	callBytes = 256 << 10
)

// KernelOf returns the kernel of the format d for the level, and whether there is one. The level is
// supported. Once the kernel exists, it does not allocate.
func KernelOf(d dtype.DType, level isa.Level) (*Kernel, bool) {
	if d != dtype.F32 && d != dtype.F16 && d != dtype.BF16 {
		return nil, false
	}
	memo := &kernels[level][d]
	k := memo.Load()
	if k == nil {
		k = &Kernel{d: d, size: d.Size()}
		k.vectorise(level)
		memo.Store(k)
	}
	return k, true
}

// kernels are those that KernelOf has made.
var kernels [isa.Count][dtype.Count]atomic.Pointer[Kernel]

// Vectorized reports whether the products use assembly.
func (k *Kernel) Vectorized() bool { return k.rows != nil }

// Row sets out to the products of len(out) rows of weights, which are rowBytes apart, with the row x.
// Multiply is faster than a call for each of two rows of x.
func (k *Kernel) Row(out []float32, w []byte, rowBytes int, x []float32) {
	if len(out) == 0 {
		return
	}
	size := len(x) * k.size
	_ = w[(len(out)-1)*rowBytes:][:size]
	if k.rows != nil && size > 0 && k.vector(len(x)) {
		for each := max(1, callBytes/size); len(out) > 0; {
			n := min(each, len(out))
			k.rows(&out[0], &w[0], rowBytes, n, &x[0], len(x))
			if out = out[n:]; len(out) > 0 {
				w = w[n*rowBytes:]
			}
		}
		return
	}
	for i := range out {
		out[i] = Dot(k.d, w[i*rowBytes:][:size], x)
	}
}

// vector reports whether rows and tiles may have n elements.
func (k *Kernel) vector(n int) bool { return !k.whole || n%chains == 0 }

// ScratchBytes returns the number of bytes of scratch that Multiply needs: at most 80 KiB and 64
// bytes, for 96 rows of x or more.
func ScratchBytes(rows, m, n int) int {
	return 64 + 4*maxW*blockK + 4*chains*maxW*min(m, chunkX)
}

// UnitRows divides numbers of rows of weights that suit the tiles of all levels.
const UnitRows = 24

// Chunk returns the number of rows of x, of n elements, that the second cache should hold. Units
// should have as many rows of x, or fewer, and those with the same rows of x should follow each
// other on a lane, so that weights pass the cache and x remains in it.
func Chunk(n int) int { return min(chunkX, max(24, chunkBytes/(4*max(1, n)))) }

// Multiply multiplies rows of n weights, which are rowBytes apart, by m rows of x, which are xStride
// elements apart. The product of row i of x and row r of weights is out[i*outStride+r]. scratch has
// at least ScratchBytes(rows, m, n) bytes and is aligned to 4.
//
// The longest time without preemption is that of 96 rows of x, 8 rows of weights and 1024 elements:
// about 10 us.
func (k *Kernel) Multiply(out []float32, outStride int, w []byte, rowBytes, rows int, x []float32, xStride, m, n int, scratch []byte) {
	if rows == 0 || m == 0 {
		return
	}
	_ = out[(m-1)*outStride:][:rows]
	_ = w[(rows-1)*rowBytes:][:n*k.size]
	_ = x[(m-1)*xStride:][:n]
	_ = scratch[:ScratchBytes(rows, m, n)]
	if m == 1 {
		k.Row(out[:rows], w, rowBytes, x[:n])
		return
	}
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(scratch))) & 63)
	memory := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(scratch[skip:]))), (len(scratch)-skip)/4)
	p := product{
		k: k, out: out, outStride: outStride, w: w, rowBytes: rowBytes, x: x, xStride: xStride, n: n, step: chains,
		block: memory[:maxW*blockK], acc: memory[maxW*blockK:],
	}
	if n > 0 {
		blocks := (n + blockK - 1) / blockK
		p.step = ((n+blocks-1)/blocks + chains - 1) &^ (chains - 1)
	}
	chunk := Chunk(n)
	chunks := (m + chunk - 1) / chunk
	for c := range chunks {
		lo, hi := m*c/chunks, m*(c+1)/chunks
		if k.tiles.w == 0 || n == 0 || !k.vector(n) {
			p.plain(lo, hi, rows)
			continue
		}
		for r := 0; r < rows; r += k.tiles.w {
			p.stripe(lo, hi, r, rows)
		}
	}
}

// product is one call of Multiply.
type product struct {
	k                            *Kernel
	out                          []float32
	w                            []byte
	x                            []float32
	block                        []float32 // [maxW][blockK] weights
	acc                          []float32 // sums of a chunk of x
	outStride, rowBytes, xStride int
	n                            int // elements of a row
	step                         int // elements of a block
}

// plain is the product of all rows of weights by the rows of x from lo to hi-1.
func (p *product) plain(lo, hi, rows int) {
	for r := range rows {
		acc := p.acc[:chains*(hi-lo)]
		clear(acc)
		for at := 0; at < p.n; at += p.step {
			block := p.block[:min(p.step, p.n-at)]
			widen(block, p.w[r*p.rowBytes+at*p.k.size:], p.k.d)
			for i := range hi - lo {
				add((*[chains]float32)(acc[i*chains:]), p.x[(lo+i)*p.xStride+at:][:len(block)], block)
			}
		}
		for i := range hi - lo {
			p.out[(lo+i)*p.outStride+r] = fold((*[chains]float32)(acc[i*chains:]))
		}
	}
}

// stripe is the product of a tile of weights, from row first on, by the rows of x from lo to hi-1.
func (p *product) stripe(lo, hi, first, rows int) {
	t := &p.k.tiles
	count := min(t.w, rows-first)
	for at := 0; at < p.n; at += p.step {
		n := min(p.step, p.n-at)
		c := call{
			outStride: 4 * p.outStride, xStride: 4 * p.xStride, steps: n / chains, tail: n % chains,
			acc: p.acc, rows: count, w: &p.w[first*p.rowBytes+at*p.k.size], wStride: p.rowBytes,
			next: p.after(first, rows, at),
		}
		if at > 0 {
			c.mode |= resume
		}
		if at+n < p.n {
			c.mode |= keep
		}
		i := lo
		switch {
		case count < t.w || p.k.size < 4 && hi-lo >= t.pack:
			p.pack(first, count, at, n)
			c.w, c.wStride = (*byte)(unsafe.Pointer(&p.block[0])), 4*blockK
		case p.k.size < 4:
			for i < hi {
				i += p.single(&c, i, at, first, hi)
			}
		}
		for i < hi {
			size := t.size(hi - i)
			tiles := 1
			if size == t.most {
				tiles = (hi - i) / size
				if t.size((hi-i)%size+size) != size {
					tiles--
				}
			}
			p.tiles(&c, lo, hi, i, at, first, size, tiles)
			i += size * tiles
		}
	}
}

// single runs one tile on the weights in memory, from row i of x on, and returns its number of rows.
func (p *product) single(c *call, i, at, first, hi int) int {
	size := p.k.tiles.size(hi - i)
	p.k.tiles.single[size-1](&p.out[i*p.outStride+first], c.outStride, c.w, c.wStride, &p.x[i*p.xStride+at], c.xStride,
		c.steps, c.tail, &c.acc[0], c.mode, c.rows)
	c.acc = c.acc[size*p.k.tiles.w*chains:]
	return size
}

// call has the arguments of tiles of one block of weights.
type call struct {
	outStride, wStride, xStride, steps, tail, mode, rows int
	w, next                                              *byte
	acc                                                  []float32
}

// tiles runs tiles of size rows of x, from row i of lo to hi-1 on.
func (p *product) tiles(c *call, lo, hi, i, at, first, size, tiles int) {
	t := &p.k.tiles
	next, nextStride, nextStep, nextMask := c.w, 0, 0, 0
	if c.next != nil && c.steps > 0 {
		// The block that follows is prefetched as evenly as possible: a row in a number of tiles
		// that is a power of two.
		next = c.next
		each := 1 << max(0, bits.Len(uint(tiles/t.w))-1)
		nextStep = 16 * p.k.size / each
		nextStride = p.rowBytes - each*c.steps*nextStep
		nextMask = each - 1
		c.next = nil
	}
	wrap := &p.x[lo*p.xStride]
	if i+tiles*size < hi {
		wrap = &p.x[(i+tiles*size)*p.xStride+at]
	} else if at+p.step < p.n {
		wrap = &p.x[lo*p.xStride+at+p.step]
	}
	t.x[size-1](&p.out[i*p.outStride+first], c.outStride, c.w, c.wStride, &p.x[i*p.xStride+at], c.xStride,
		c.steps, c.tail, &c.acc[0], c.mode, c.rows, tiles, wrap, next, nextStride, nextStep, nextMask)
	c.acc = c.acc[tiles*size*t.w*chains:]
}

// after returns where the block of weights begins that follows the one of the row first and the
// element at, or nil.
func (p *product) after(first, rows, at int) *byte {
	if at += p.step; at >= p.n {
		if first, at = first+p.k.tiles.w, 0; first+p.k.tiles.w > rows {
			return nil
		}
	}
	return &p.w[first*p.rowBytes+at*p.k.size]
}

// size returns the number of rows of x of the tile for the first of m rows. A tile of one row is
// slower than half a tile of two.
func (t *tiles) size(m int) int {
	if t.most == 3 && m == 4 {
		return 2
	}
	return min(m, t.most)
}

// pack sets the block to n elements, from element at on, of count rows of weights.
func (p *product) pack(first, count, at, n int) {
	for r := range p.k.tiles.w {
		src := p.w[(first+min(r, count-1))*p.rowBytes+at*p.k.size:][:n*p.k.size]
		p.k.Widen(p.block[r*blockK:][:n], src)
	}
}

// Widen sets dst to the values of weights.
func (k *Kernel) Widen(dst []float32, src []byte) {
	src = src[:len(dst)*k.size]
	if k.size == 4 {
		copy(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(dst))), len(src)), src)
		return
	}
	for k.conv.widen != nil && len(dst) >= chains {
		n := min(len(dst), callBytes/4) &^ (chains - 1)
		k.conv.widen(&dst[0], &src[0], n)
		dst, src = dst[n:], src[n*k.size:]
	}
	widen(dst, src, k.d)
}

// Narrow sets dst to the values src, rounded to the nearest value of the format, ties to even. The
// bits are those of package dtype, also for a NaN.
func (k *Kernel) Narrow(dst []byte, src []float32) {
	dst = dst[:len(src)*k.size]
	for k.conv.narrow != nil && len(src) >= chains {
		n := min(len(src), callBytes/4) &^ (chains - 1)
		k.conv.narrow(&dst[0], &src[0], n)
		dst, src = dst[n*k.size:], src[n:]
	}
	narrow(dst, src, k.d)
}
