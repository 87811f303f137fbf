package cpu

import (
	"encoding/binary"
	"math"

	"github.com/fucina-go/fucina/core/op"
)

// elementwise is an operation on one or two elements: OpAdd, OpMul, OpSwiGLU,
// OpGeGLU, OpScale or OpSoftCap. One with a single input reads it twice.
type elementwise struct {
	op    op.ID
	grid  grid
	param float32 // of OpScale and OpSoftCap
	in    [2][]byte
	out   []byte
	// fast says that the output's runs are contiguous and each input's are, or
	// repeat one element, and that all are aligned.
	fast bool
}

// pointwise returns what makes the kernel of an elementwise operation.
func pointwise(id op.ID) func() kernel {
	return func() kernel { return &elementwise{op: id} }
}

func (k *elementwise) prepare(a *op.Args, _ *scratch) error {
	x, y, out := &a.In[0], k.second(a), &a.Out[0]
	k.param = a.Scale
	if k.op == op.SoftCap {
		k.param = a.SoftCap
	}
	g := &k.grid
	g.init(&out.Shape, &x.Strides, &y.Strides, &out.Strides)
	k.in, k.out = [2][]byte{bytesOf(x), bytesOf(y)}, bytesOf(out)
	k.fast = g.inner(2) == 1 && g.inner(0) <= 1 && g.inner(1) <= 1 &&
		aligned(k.in[0], 4) && aligned(k.in[1], 4) && aligned(k.out, 4)
	return nil
}

// second returns the second input, which is the first for an operation on one.
func (k *elementwise) second(a *op.Args) *op.Operand {
	if k.op == op.Scale || k.op == op.SoftCap {
		return &a.In[0]
	}
	return &a.In[1]
}

func (k *elementwise) release() { k.in, k.out = [2][]byte{}, nil }

func (k *elementwise) work() (units, cost int) {
	cost = min(k.grid.dims[k.grid.rank-1], segment)
	switch k.op {
	case op.Add, op.Mul, op.Scale:
	default:
		cost *= expCost
	}
	return k.grid.units, unitCost + cost
}

func (k *elementwise) run(lo, hi int, s *scratch) {
	for u := lo; u < hi; u++ {
		off, n := k.grid.at(u)
		if k.fast {
			k.runFast(off, n)
			continue
		}
		sx, sy, so := 4*k.grid.inner(0), 4*k.grid.inner(1), 4*k.grid.inner(2)
		x, y, out := k.in[0][4*off[0]:], k.in[1][4*off[1]:], k.out[4*off[2]:]
		for i := range n {
			v := math.Float32frombits(binary.LittleEndian.Uint32(x[i*sx:]))
			w := math.Float32frombits(binary.LittleEndian.Uint32(y[i*sy:]))
			v = k.apply(v, w)
			binary.LittleEndian.PutUint32(out[i*so:], math.Float32bits(v))
		}
	}
}

func (k *elementwise) apply(v, w float32) float32 {
	switch k.op {
	case op.Add:
		return v + w
	case op.Mul:
		return v * w
	case op.SwiGLU:
		return swiglu(w, v)
	case op.GeGLU:
		return geglu(w, v)
	case op.Scale:
		return v * k.param
	default:
		return softCap(v, k.param)
	}
}

func (k *elementwise) runFast(off [3]int, n int) {
	x, y := floats(k.in[0][4*off[0]:]), floats(k.in[1][4*off[1]:])
	out := floats(k.out[4*off[2]:])[:n]
	xs, ys := k.grid.inner(0), k.grid.inner(1)
	switch k.op {
	case op.Add, op.Mul:
	default:
		for i := range out {
			out[i] = k.apply(x[i*xs], y[i*ys])
		}
		return
	}
	if xs == 0 {
		// Both operations commute.
		x, y, xs, ys = y, x, ys, xs
	}
	switch {
	case xs == 0:
		v := x[0] + y[0]
		if k.op == op.Mul {
			v = x[0] * y[0]
		}
		for i := range out {
			out[i] = v
		}
	case ys == 0:
		x, v := x[:n], y[0]
		if k.op == op.Mul {
			for i := range out {
				out[i] = x[i] * v
			}
			return
		}
		for i := range out {
			out[i] = x[i] + v
		}
	default:
		x, y := x[:n], y[:n]
		if k.op == op.Mul {
			for i := range out {
				out[i] = x[i] * y[i]
			}
			return
		}
		for i := range out {
			out[i] = x[i] + y[i]
		}
	}
}

// swiglu returns x*sigmoid(x)*y.
func swiglu(x, y float32) float32 {
	v := float64(x)
	return float32(v/(1+exp(-v))) * y
}

// geglu returns gelu(x)*y, with the tanh approximation of gelu (Hendrycks and
// Gimpel, "Gaussian Error Linear Units", 2016).
func geglu(x, y float32) float32 {
	v := float64(x)
	u := math.Sqrt(2/math.Pi) * (v + 0.044715*v*v*v)
	// x/2 * (1 + tanh(u)) is x*sigmoid(2u).
	return float32(v/(1+exp(-2*u))) * y
}

// softCap returns c*tanh(x/c).
func softCap(x, c float32) float32 {
	return c * float32(math.Tanh(float64(x/c)))
}
