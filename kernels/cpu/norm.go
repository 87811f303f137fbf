package cpu

import (
	"encoding/binary"
	"math"

	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/kernels/cpu/vector"
)

// rmsNorm is the kernel of op.RMSNorm.
type rmsNorm struct {
	norm   norm
	xr, or rows
	x, out []float32
}

func (k *rmsNorm) prepare(a *op.Args, s *scratch) error {
	x, out := &a.In[0], &a.Out[0]
	k.norm.init(&a.In[1], a.Eps, loopsOf(a, s))
	k.xr.init(x, x.Shape.Rank()-1)
	k.or.init(out, x.Shape.Rank()-1)
	k.x, k.out = floatsOf(x), floatsOf(out)
	return nil
}

func (k *rmsNorm) release() { *k = rmsNorm{} }

func (k *rmsNorm) cost() (units, cost int) { return k.xr.n, unitCost + k.norm.cost()*k.norm.d }

func (k *rmsNorm) run(lo, hi int, s *scratch) {
	d := k.norm.d
	for r := lo; r < hi && s.err == nil; r++ {
		k.norm.row(k.out[k.or.at(r):][:d], k.x[k.xr.at(r):][:d], s)
	}
}

// addRMSNorm is the kernel of op.AddRMSNorm.
type addRMSNorm struct {
	norm         norm
	xr, yr       rows
	sr, or       rows
	x, y         []float32
	sum, outputs []float32
}

func (k *addRMSNorm) prepare(a *op.Args, s *scratch) error {
	x, y, sum, out := &a.In[0], &a.In[1], &a.Out[0], &a.Out[1]
	last := x.Shape.Rank() - 1
	k.norm.init(&a.In[2], a.Eps, loopsOf(a, s))
	k.xr.init(x, last)
	k.yr.init(y, last)
	k.sr.init(sum, last)
	k.or.init(out, last)
	k.x, k.y, k.sum, k.outputs = floatsOf(x), floatsOf(y), floatsOf(sum), floatsOf(out)
	return nil
}

func (k *addRMSNorm) release() { *k = addRMSNorm{} }

func (k *addRMSNorm) cost() (units, cost int) {
	return k.xr.n, unitCost + (pointwise[op.Add].cost+k.norm.cost())*k.norm.d
}

func (k *addRMSNorm) run(lo, hi int, s *scratch) {
	d := k.norm.d
	for r := lo; r < hi && s.err == nil; r++ {
		x, y := k.x[k.xr.at(r):][:d], k.y[k.yr.at(r):][:d]
		sum := k.sum[k.sr.at(r):][:d]
		p := s.pieces(d, pointwise[op.Add].cost)
		for p.next() {
			if l := k.norm.loops; l != nil {
				l.Add(sum[p.lo:p.hi], x[p.lo:p.hi], y[p.lo:p.hi])
			} else {
				add(sum[p.lo:p.hi], x[p.lo:p.hi], y[p.lo:p.hi], nil)
			}
		}
		if s.err == nil {
			k.norm.row(k.outputs[k.or.at(r):][:d], sum, s)
		}
	}
}

// norm is the RMSNorm of rows of d elements.
type norm struct {
	d       int
	eps     float64
	stride  int // stride of the weight
	w       []byte
	weights []float32     // w if it is contiguous and aligned, otherwise nil
	loops   *vector.Loops // nil if the operation is exact
}

// normCost is the cost of an element of a norm's row in an exact operation.
const normCost = 4

// cost returns the cost of an element of a row.
func (n *norm) cost() int {
	if n.loops != nil && n.loops.Vectors() && n.weights != nil {
		return normCost / 4
	}
	return normCost
}

// init sets the norm to the weight w. The loops are nil if the operation is exact.
func (n *norm) init(w *op.Operand, eps float32, loops *vector.Loops) {
	*n = norm{d: w.Shape.Dim(0), eps: float64(eps), stride: w.Strides.Dim(0), w: bytesOf(w), loops: loops}
	if (n.stride == 1 || n.d == 1) && aligned(n.w, 4) {
		n.weights = floats(n.w)
	}
}

// row sets out to the norm of the row x. They may be the same memory. The result is valid if
// s.err is nil.
func (n *norm) row(out, x []float32, s *scratch) {
	total := n.squares(x, s)
	scale := float32(1 / math.Sqrt(total/float64(n.d)+n.eps))
	p := s.pieces(n.d, normCost/2)
	for p.next() {
		n.weigh(out[p.lo:p.hi], x[p.lo:p.hi], p.lo, scale)
	}
}

// squares returns the sum of the squares of a row.
func (n *norm) squares(x []float32, s *scratch) float64 {
	p := s.pieces(n.d, normCost/2)
	if n.loops != nil {
		s.sums = vector.Sums{}
		for p.next() {
			n.loops.Squares(&s.sums, x[p.lo:p.hi])
		}
		return s.sums.Total()
	}
	var sum squares
	for p.next() {
		sum.add(x[p.lo:p.hi])
	}
	return sum.total()
}

// weigh sets out to x times scale times the weights from index first on.
func (n *norm) weigh(out, x []float32, first int, scale float32) {
	out = out[:len(x)]
	if n.weights != nil {
		w := n.weights[first:][:len(x)]
		if n.loops != nil {
			n.loops.Weigh(out, x, w, scale)
			return
		}
		for i, v := range x {
			out[i] = v * scale * w[i]
		}
		return
	}
	weights := n.w[4*first*n.stride:]
	for i, v := range x {
		w := math.Float32frombits(binary.LittleEndian.Uint32(weights[4*i*n.stride:]))
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
	loops  *vector.Loops // nil if the operation is exact
}

func (k *softmax) prepare(a *op.Args, s *scratch) error {
	x, out := &a.In[0], &a.Out[0]
	k.loops = loopsOf(a, s)
	k.d, k.scale = x.Shape.Dim(-1), a.Scale
	k.xr.init(x, x.Shape.Rank()-1)
	k.or.init(out, x.Shape.Rank()-1)
	k.x, k.out = floatsOf(x), floatsOf(out)
	return nil
}

func (k *softmax) release() { k.x, k.out, k.loops = nil, nil, nil }

func (k *softmax) cost() (units, cost int) {
	return k.xr.n, unitCost + (2+costOf(k.loops, expCost))*k.d
}

func (k *softmax) run(lo, hi int, s *scratch) {
	for r := lo; r < hi && s.err == nil; r++ {
		x := k.x[k.xr.at(r):][:k.d]
		out := k.out[k.or.at(r):][:k.d]
		if k.loops != nil {
			k.row(out, x, s)
			continue
		}
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

// row sets out to the softmax of x with vector loops. If an element is NaN or all are -Inf,
// all differences from the largest are NaN.
func (k *softmax) row(out, x []float32, s *scratch) {
	top := float32(math.Inf(-1))
	p := s.pieces(k.d, 2)
	for p.next() {
		out := out[p.lo:p.hi]
		k.loops.Scale(out, x[p.lo:p.hi], k.scale)
		if m := k.loops.Max(out); m > top || m != m {
			top = m
		}
	}
	s.sums = vector.Sums{}
	p = s.pieces(k.d, max(expCost, costOf(k.loops, expCost)))
	for p.next() {
		k.loops.Exps(&s.sums, out[p.lo:p.hi], top)
	}
	inv := float32(1 / s.sums.Total())
	p = s.pieces(k.d, 1)
	for p.next() {
		k.loops.Scale(out[p.lo:p.hi], out[p.lo:p.hi], inv)
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
	loops  *vector.Loops
}

func (k *argmax) prepare(a *op.Args, s *scratch) error {
	x, out := &a.In[0], &a.Out[0]
	k.loops = vector.Of(s.e.level)
	k.d = x.Shape.Dim(-1)
	k.xr.init(x, x.Shape.Rank()-1)
	k.or.init(out, out.Shape.Rank())
	k.x, k.out = floatsOf(x), bytesOf(out)
	return nil
}

func (k *argmax) release() { k.x, k.out, k.loops = nil, nil, nil }

func (k *argmax) cost() (units, cost int) { return k.xr.n, unitCost + 2*k.d }

func (k *argmax) run(lo, hi int, s *scratch) {
	for r := lo; r < hi && s.err == nil; r++ {
		x := k.x[k.xr.at(r):][:k.d]
		place, top := 0, x[0]
		p := s.pieces(k.d, 2)
		for top == top && p.next() {
			for lo := p.lo; lo < p.hi && top == top; lo += pieceSize {
				place, top = k.first(x, lo, min(lo+pieceSize, p.hi), place, top)
			}
		}
		binary.LittleEndian.PutUint32(k.out[4*k.or.at(r):], uint32(place))
	}
}

// first returns the place and the value of the first element of x[lo:hi] that is the largest of these
// and larger than top, or the first NaN. If there is none, it returns place and top.
func (k *argmax) first(x []float32, lo, hi, place int, top float32) (int, float32) {
	m := k.loops.Max(x[lo:hi])
	if m <= top {
		return place, top
	}
	for i, v := range x[lo:hi] {
		if v == m || v != v {
			return lo + i, v
		}
	}
	return place, top // impossible, unless another goroutine writes to x
}
