package cpu

import (
	"encoding/binary"
	"math"

	"github.com/fucina-go/fucina/core/op"
)

// rmsNorm is the kernel of op.RMSNorm.
type rmsNorm struct {
	d       int
	eps     float64
	stride  int // stride of the weight
	xr, or  rows
	x, out  []float32
	w       []byte
	weights []float32 // w if it is contiguous and aligned, otherwise nil
}

func (k *rmsNorm) prepare(a *op.Args, _ *scratch) error {
	x, w, out := &a.In[0], &a.In[1], &a.Out[0]
	k.d = x.Shape.Dim(-1)
	k.eps, k.stride = float64(a.Eps), w.Strides.Dim(0)
	k.xr.init(x, x.Shape.Rank()-1)
	k.or.init(out, x.Shape.Rank()-1)
	k.x, k.w, k.out = floatsOf(x), bytesOf(w), floatsOf(out)
	if (k.stride == 1 || k.d == 1) && aligned(k.w, 4) {
		k.weights = floats(k.w)
	}
	return nil
}

func (k *rmsNorm) release() { k.x, k.w, k.weights, k.out = nil, nil, nil, nil }

func (k *rmsNorm) cost() (units, cost int) { return k.xr.n, unitCost + 4*k.d }

func (k *rmsNorm) run(lo, hi int, s *scratch) {
	for r := lo; r < hi && s.err == nil; r++ {
		x := k.x[k.xr.at(r):][:k.d]
		out := k.out[k.or.at(r):][:k.d]
		var sum squares
		p := s.pieces(k.d, 2)
		for p.next() {
			sum.add(x[p.lo:p.hi])
		}
		scale := float32(1 / math.Sqrt(sum.total()/float64(k.d)+k.eps))
		p = s.pieces(k.d, 2)
		for p.next() {
			k.weigh(out[p.lo:p.hi], x[p.lo:p.hi], p.lo, scale)
		}
	}
}

// weigh sets out to x times scale times the weights from index first on.
func (k *rmsNorm) weigh(out, x []float32, first int, scale float32) {
	out = out[:len(x)]
	if k.weights != nil {
		w := k.weights[first:][:len(x)]
		for i, v := range x {
			out[i] = v * scale * w[i]
		}
		return
	}
	weights := k.w[4*first*k.stride:]
	for i, v := range x {
		w := math.Float32frombits(binary.LittleEndian.Uint32(weights[4*i*k.stride:]))
		out[i] = v * scale * w
	}
}

// squares is a sum of squares in four accumulators. In float64 the sum neither overflows
// nor loses small terms.
type squares [4]float64

func (s *squares) total() float64 { return (s[0] + s[1]) + (s[2] + s[3]) }

// add adds the squares of x. The number of elements added before x is a multiple of 4.
func (s *squares) add(x []float32) {
	s0, s1, s2, s3 := s[0], s[1], s[2], s[3]
	for ; len(x) >= 4; x = x[4:] {
		a, b, c, d := float64(x[0]), float64(x[1]), float64(x[2]), float64(x[3])
		s0 += a * a
		s1 += b * b
		s2 += c * c
		s3 += d * d
	}
	for _, v := range x {
		s0 += float64(v) * float64(v)
	}
	*s = squares{s0, s1, s2, s3}
}

// softmax is the kernel of op.Softmax.
type softmax struct {
	d      int
	scale  float32
	xr, or rows
	x, out []float32
}

func (k *softmax) prepare(a *op.Args, _ *scratch) error {
	x, out := &a.In[0], &a.Out[0]
	k.d, k.scale = x.Shape.Dim(-1), a.Scale
	k.xr.init(x, x.Shape.Rank()-1)
	k.or.init(out, x.Shape.Rank()-1)
	k.x, k.out = floatsOf(x), floatsOf(out)
	return nil
}

func (k *softmax) release() { k.x, k.out = nil, nil }

func (k *softmax) cost() (units, cost int) { return k.xr.n, unitCost + (2+expCost)*k.d }

func (k *softmax) run(lo, hi int, s *scratch) {
	for r := lo; r < hi && s.err == nil; r++ {
		x := k.x[k.xr.at(r):][:k.d]
		out := k.out[k.or.at(r):][:k.d]
		// top ignores a NaN, and is -Inf in a row of only NaN or -Inf. In both cases a
		// difference below is NaN, and so are the sum and the whole row.
		top := math.Inf(-1)
		p := s.pieces(k.d, 1)
		for p.next() {
			out := out[p.lo:p.hi]
			for i, v := range x[p.lo:p.hi] {
				v *= k.scale
				out[i] = v
				if f := float64(v); f > top {
					top = f
				}
			}
		}
		sum := 0.0
		p = s.pieces(k.d, expCost)
		for p.next() {
			sum = exps(out[p.lo:p.hi], top, sum)
		}
		inv := float32(1 / sum)
		p = s.pieces(k.d, 1)
		for p.next() {
			out := out[p.lo:p.hi]
			for i := range out {
				out[i] *= inv
			}
		}
	}
}

// exps replaces each element of x by exp(x-top), adds them to sum in order, and returns the
// sum. It is a separate function so that the additions are the only dependency between
// iterations.
func exps(x []float32, top, sum float64) float64 {
	for i, v := range x {
		p := exp(float64(v) - top)
		x[i] = float32(p)
		sum += p
	}
	return sum
}

// argmax is the kernel of op.Argmax.
type argmax struct {
	d      int
	xr, or rows
	x      []float32
	out    []byte
}

func (k *argmax) prepare(a *op.Args, _ *scratch) error {
	x, out := &a.In[0], &a.Out[0]
	k.d = x.Shape.Dim(-1)
	k.xr.init(x, x.Shape.Rank()-1)
	k.or.init(out, out.Shape.Rank())
	k.x, k.out = floatsOf(x), bytesOf(out)
	return nil
}

func (k *argmax) release() { k.x, k.out = nil, nil }

func (k *argmax) cost() (units, cost int) { return k.xr.n, unitCost + 2*k.d }

func (k *argmax) run(lo, hi int, s *scratch) {
	for r := lo; r < hi && s.err == nil; r++ {
		x := k.x[k.xr.at(r):][:k.d]
		place, top := 0, x[0]
		p := s.pieces(k.d, 2)
		for top == top && p.next() {
			for i, v := range x[p.lo:p.hi] {
				if v > top || v != v {
					place, top = p.lo+i, v
					if v != v {
						break
					}
				}
			}
		}
		binary.LittleEndian.PutUint32(k.out[4*k.or.at(r):], uint32(place))
	}
}
