package cpu

import (
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/kernels/cpu/dense"
	"github.com/fucina-go/fucina/kernels/cpu/vector"
	"github.com/fucina-go/fucina/quant"
)

// copyKernel is the kernel of op.Copy.
type copyKernel struct {
	from, to dtype.DType
	grid     grid

	// The fields for rows of blocks to f32, or rows of f32 to blocks.
	decode     quant.Decoder
	encode     bool
	xr, or     rows
	blocks     int // blocks of a row
	xInner     int // stride between a row's blocks, when decoding
	outInner   int // stride between a row's f32 elements, when decoding
	blockElems int

	x, out []byte
}

func (k *copyKernel) prepare(a *op.Args, _ *scratch) (err error) {
	x, out := &a.In[0], &a.Out[0]
	*k = copyKernel{from: x.DType, to: out.DType, x: bytesOf(x), out: bytesOf(out)}
	last := x.Shape.Rank() - 1
	switch {
	case k.from.IsScalar() && k.to.IsScalar():
		k.grid.init(&x.Shape, &x.Strides, &out.Strides)
	case k.from == k.to:
		st, err := x.Shape.Storage(k.from)
		if err != nil {
			return err
		}
		k.grid.init(&st, &x.Strides, &out.Strides)
	case k.to == dtype.F32:
		if k.decode, err = quant.DecoderOf(k.from); err != nil {
			return err
		}
		k.initRows(x, out, k.from)
		k.xInner, k.outInner = x.Strides.Dim(last), out.Strides.Dim(last)
		return checkAligned(op.Copy, a, op.FirstOut) // decoders write f32
	default: // f32 to q8_0
		k.encode = true
		k.initRows(x, out, k.to)
		return checkAligned(op.Copy, a, 0)
	}
	return nil
}

// initRows sets the rows of x and out. One of the two has blocks of d.
func (k *copyKernel) initRows(x, out *op.Operand, d dtype.DType) {
	last := x.Shape.Rank() - 1
	k.xr.init(x, last)
	k.or.init(out, last)
	k.blockElems = d.BlockSize()
	k.blocks = x.Shape.Dim(last) / k.blockElems
}

func (k *copyKernel) release() { k.x, k.out, k.decode = nil, nil, nil }

func (k *copyKernel) cost() (units, cost int) {
	switch {
	case k.decode != nil:
		return k.xr.n, unitCost + decodeCost*k.blocks*k.blockElems
	case k.encode:
		return k.xr.n, unitCost + encodeCost*k.blocks*k.blockElems
	}
	cost = min(k.grid.dims[k.grid.rank-1], segment)
	if k.grid.inner(0) > 1 || k.grid.inner(1) > 1 {
		cost *= gatherCost
	} else if k.from != k.to {
		cost *= castCost
	}
	return k.grid.units, unitCost + cost
}

func (k *copyKernel) run(lo, hi int, s *scratch) {
	if k.decode != nil {
		k.runDecode(lo, hi, s)
		return
	}
	if k.encode {
		k.runEncode(lo, hi, s)
		return
	}
	from, to := k.from.Size(), k.to.Size()
	sx, so := k.grid.inner(0), k.grid.inner(1)
	for u := lo; u < hi; u++ {
		off, n := k.grid.at(u)
		x, out := k.x[off[0]*from:], k.out[off[1]*to:]
		switch {
		case sx == 1 && so == 1:
			s.convert(out[:n*to], k.to, x[:n*from], k.from)
		case k.from == k.to:
			moveStrided(out, so, x, sx, from, n)
		default:
			k.convertStrided(out, so, x, sx, n, s)
		}
	}
}

// convert writes the elements of src, of dtype from, to dst as elements of dtype to. Both are
// contiguous, and the dtypes are scalar or equal. It has the bits of dtype.Convert.
func (s *scratch) convert(dst []byte, to dtype.DType, src []byte, from dtype.DType) {
	switch {
	case to == from:
		copy(dst, src)
		return
	case from == dtype.F32 && isHalf(to) && aligned(src, 4):
		k, _ := dense.KernelOf(to, s.e.level)
		k.Narrow(dst, floats(src))
		return
	case to == dtype.F32 && isHalf(from) && aligned(dst, 4):
		k, _ := dense.KernelOf(from, s.e.level)
		k.Widen(floats(dst), src)
		return
	}
	if err := dtype.Convert(dst, to, src, from); err != nil {
		panic("cpu: " + err.Error()) // impossible: the contracts allow only scalar dtypes, and the lengths match
	}
}

// isHalf reports whether package dense converts between d and f32.
func isHalf(d dtype.DType) bool { return d == dtype.F16 || d == dtype.BF16 }

// convertStrided converts n strided elements through contiguous scratch.
func (k *copyKernel) convertStrided(out []byte, so int, x []byte, sx, n int, s *scratch) {
	from, to := k.from.Size(), k.to.Size()
	for done := 0; done < n; {
		c := min(n-done, len(s.floats))
		a, b := s.from[:c*from], s.to[:c*to]
		moveStrided(a, 1, x[done*sx*from:], sx, from, c)
		s.convert(b, k.to, a, k.from)
		moveStrided(out[done*so*to:], so, b, 1, to, c)
		done += c
	}
}

// moveStrided copies n elements of size bytes. ds and ss are strides in elements.
func moveStrided(dst []byte, ds int, src []byte, ss, size, n int) {
	ds, ss = ds*size, ss*size
	switch size {
	case 1:
		for i := range n {
			dst[i*ds] = src[i*ss]
		}
	case 2:
		for i := range n {
			*(*[2]byte)(dst[i*ds:]) = *(*[2]byte)(src[i*ss:])
		}
	case 4:
		for i := range n {
			*(*[4]byte)(dst[i*ds:]) = *(*[4]byte)(src[i*ss:])
		}
	default:
		for i := range n {
			copy(dst[i*ds:][:size], src[i*ss:][:size])
		}
	}
}

// runDecode decodes rows lo to hi-1, one block at a time if the input or the output is
// strided.
func (k *copyKernel) runDecode(lo, hi int, s *scratch) {
	size, bs := k.from.Size(), k.blockElems
	for r := lo; r < hi && s.err == nil; r++ {
		x, out := k.x[k.xr.at(r)*size:], floats(k.out[4*k.or.at(r):])
		if k.xInner == 1 && k.outInner == 1 {
			s.decode(out[:k.blocks*bs], x[:k.blocks*size], k.from, k.decode)
			continue
		}
		for b := range k.blocks {
			if !s.spend(gatherCost * bs) {
				return
			}
			src := x[b*k.xInner*size:][:size]
			if k.outInner == 1 {
				k.decode(out[b*bs:][:bs], src)
				continue
			}
			k.decode(s.floats[:bs], src)
			for i, v := range s.floats[:bs] {
				out[(b*bs+i)*k.outInner] = v
			}
		}
	}
}

// runEncode encodes rows lo to hi-1.
func (k *copyKernel) runEncode(lo, hi int, s *scratch) {
	n := k.blocks * k.blockElems
	for r := lo; r < hi && s.err == nil; r++ {
		s.store(k.out[k.or.at(r)*k.to.Size():], k.to, k.x[4*k.xr.at(r):][:4*n])
	}
}

// store writes the contiguous f32 row src to the start of dst as elements of d, which is
// scalar or q8_0. A q8_0 block with a NaN, or with a value that the format cannot represent,
// becomes NaN. src starts on a multiple of 4 bytes. The result is valid if s.err is nil.
func (s *scratch) store(dst []byte, d dtype.DType, src []byte) {
	p := s.pieces(len(src)/4, storeCost(d))
	for p.next() {
		x := src[4*p.lo : 4*p.hi]
		size, bs := d.Size(), d.BlockSize()
		out := dst[p.lo/bs*size : p.hi/bs*size]
		if bs == 1 {
			s.convert(out, d, x, dtype.F32)
		} else {
			s.encode(out, d, floats(x))
		}
	}
}

// storeCost is the cost of an element that store writes as d.
func storeCost(d dtype.DType) int {
	switch {
	case d == dtype.F32:
		return 1
	case d.IsScalar():
		return castCost
	}
	return encodeCost
}

// encode is the part of store for blocks of d.
func (s *scratch) encode(dst []byte, d dtype.DType, x []float32) {
	size, bs := d.Size(), d.BlockSize()
	for ; len(x) > 0; x, dst = x[bs:], dst[size:] {
		if d == dtype.Q8_0 {
			n := vector.Of(s.e.level).EncodeQ80(dst, x)
			if x, dst = x[n*bs:], dst[n*size:]; len(x) == 0 {
				return
			}
		}
		if !encodable(x[:bs]) {
			clear(dst[:size])
			dst[0], dst[1] = 0x00, 0x7e // the scale is a binary16 NaN
			continue
		}
		if err := quant.EncodeRow(dst[:size], d, x[:bs]); err != nil {
			panic("cpu: " + err.Error()) // impossible: the lengths and values were checked
		}
	}
}

// encodable reports whether the q8_0 scale of x, its largest magnitude divided by 127, is a
// finite binary16.
func encodable(x []float32) bool {
	for _, v := range x {
		if !(v < 65504*127 && v > -65504*127) {
			return false
		}
	}
	return true
}
