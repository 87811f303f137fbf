package cpu

import (
	"encoding/binary"
	"math"

	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/kernels/cpu/vector"
)

// pointwise has a row for each operation that computes an element of its output from the
// elements of its inputs at the same place.
var pointwise = [op.Count]struct {
	// loop computes out from the inputs x and y. An input is as long as out, or has one
	// element that repeats. Only one of the two repeats unless out has one element. y is x
	// if the operation has one input. out may be the memory of an input.
	loop func(out, x, y []float32, p *op.Params)
	cost int // cost of an element in multiply-adds
	// fast is loop if the operation is not exact. An input that repeats is as long as out, unless
	// repeats is set.
	fast    func(l *vector.Loops, out, x, y []float32, p *op.Params)
	repeats bool
}{
	op.Add: {add, 1, func(l *vector.Loops, out, x, y []float32, _ *op.Params) {
		if len(x) != len(y) {
			add(out, x, y, nil)
		} else {
			l.Add(out, x, y)
		}
	}, true},
	op.Sub: {sub, 1, func(l *vector.Loops, out, x, y []float32, _ *op.Params) {
		if len(x) != len(y) {
			sub(out, x, y, nil)
		} else {
			l.Sub(out, x, y)
		}
	}, true},
	op.Mul: {mul, 1, func(l *vector.Loops, out, x, y []float32, _ *op.Params) {
		switch {
		case len(y) != len(out):
			l.Scale(out, x, y[0])
		case len(x) != len(out):
			l.Scale(out, y, x[0])
		default:
			l.Mul(out, x, y)
		}
	}, true},
	op.SwiGLU: {func(out, x, y []float32, _ *op.Params) {
		each(out, x, y, func(x, y float32) float32 { return swiglu(y, x) })
	}, expCost, func(l *vector.Loops, out, x, y []float32, _ *op.Params) { l.SwiGLU(out, y, x) }, false},
	op.GeGLU: {func(out, x, y []float32, _ *op.Params) {
		each(out, x, y, func(x, y float32) float32 { return geglu(y, x) })
	}, expCost, func(l *vector.Loops, out, x, y []float32, _ *op.Params) { l.GeGLU(out, y, x) }, false},
	op.Scale: {func(out, x, _ []float32, p *op.Params) {
		mul(out, x, []float32{p.Scale}, p)
	}, 1, func(l *vector.Loops, out, x, _ []float32, p *op.Params) { l.Scale(out, x, p.Scale) }, true},
	op.SoftCap: {func(out, x, y []float32, p *op.Params) {
		each(out, x, y, func(x, _ float32) float32 { return softCap(x, p.SoftCap) })
	}, expCost, func(l *vector.Loops, out, x, _ []float32, p *op.Params) { l.SoftCap(out, x, p.SoftCap) }, true},
}

// loopsOf returns the vector loops for an operation, or nil if it is exact.
func loopsOf(a *op.Args, s *scratch) *vector.Loops {
	if a.Exact {
		return nil
	}
	return vector.Of(s.e.level)
}

// costOf returns the cost of an element whose exact cost is given, for loops that may be nil. It
// decides how units are divided into tasks; pieces of a long row need not be larger than those of
// an exact operation. The definitions of vector loops are slow, because their fused
// multiplications are.
func costOf(l *vector.Loops, exact int) int {
	switch {
	case l == nil:
		return exact
	case l.Vectors():
		return max(1, exact/8)
	}
	return 8 * exact
}

func add(out, x, y []float32, _ *op.Params) {
	f := func(x, y float32) float32 { return x + y }
	switch {
	case len(x) == len(y):
		both(out, x, y, f)
	case len(x) == 1:
		repeatFirst(out, x[0], y, f)
	default:
		repeatSecond(out, x, y[0], f)
	}
}

func sub(out, x, y []float32, _ *op.Params) {
	f := func(x, y float32) float32 { return x - y }
	switch {
	case len(x) == len(y):
		both(out, x, y, f)
	case len(x) == 1:
		repeatFirst(out, x[0], y, f)
	default:
		repeatSecond(out, x, y[0], f)
	}
}

func mul(out, x, y []float32, _ *op.Params) {
	f := func(x, y float32) float32 { return x * y }
	switch {
	case len(x) == len(y):
		both(out, x, y, f)
	case len(x) == 1:
		repeatFirst(out, x[0], y, f)
	default:
		repeatSecond(out, x, y[0], f)
	}
}

// each is the loop of a function that costs more than its call. It is not inlined, so that f
// is not inlined into it. On amd64 the conversion of an f32 to float64 writes half of a
// register and depends on the other half. In an inlined f that is often a result for the
// previous element, and the elements wait for each other. The arguments of a call are in
// registers that were just loaded.
//
//go:noinline
func each(out, x, y []float32, f func(x, y float32) float32) {
	xs, ys := 1, 1
	if len(x) == 1 {
		xs = 0
	}
	if len(y) == 1 {
		ys = 0
	}
	for i := range out {
		out[i] = f(x[i*xs], y[i*ys])
	}
}

// both is the loop of a function that costs less than its call, for two inputs as long as
// out. Like repeatFirst and repeatSecond it is so short that the compiler inlines it, and
// then f into it.
func both(out, x, y []float32, f func(x, y float32) float32) {
	x, y = x[:len(out)], y[:len(out)]
	for i := range out {
		out[i] = f(x[i], y[i])
	}
}

// repeatFirst is both for a first input of one element.
func repeatFirst(out []float32, x float32, y []float32, f func(x, y float32) float32) {
	y = y[:len(out)]
	for i := range out {
		out[i] = f(x, y[i])
	}
}

// repeatSecond is both for a second input of one element.
func repeatSecond(out, x []float32, y float32, f func(x, y float32) float32) {
	x = x[:len(out)]
	for i := range out {
		out[i] = f(x[i], y)
	}
}

// elementwise is the kernel of an operation of the table pointwise.
type elementwise struct {
	op      op.ID
	params  op.Params
	grid    grid
	x, y    strip
	out     strip
	longest int           // most elements in a call of a loop
	loops   *vector.Loops // nil if the operation is exact
}

func (k *elementwise) prepare(a *op.Args, s *scratch) error {
	x, y, out := &a.In[0], &a.In[a.NIn-1], &a.Out[0]
	g := &k.grid
	g.init(&out.Shape, &x.Strides, &y.Strides, &out.Strides)
	k.x.init(x, g.inner(0))
	k.y.init(y, g.inner(1))
	k.out.init(out, g.inner(2))
	k.longest = bufferLen
	if k.out.direct && (k.x.direct || k.x.stride == 0) && (k.y.direct || k.y.stride == 0) {
		k.longest = segment
	}
	k.loops = loopsOf(a, s)
	if repeats := k.x.stride == 0 || k.y.stride == 0; repeats && k.loops != nil && !pointwise[k.op].repeats {
		k.longest = bufferLen
	}
	k.params = a.Params
	return nil
}

func (k *elementwise) release() {
	k.x, k.y, k.out, k.loops = strip{}, strip{}, strip{}, nil
}

func (k *elementwise) cost() (units, cost int) {
	return k.grid.units, unitCost + costOf(k.loops, pointwise[k.op].cost)*min(k.grid.dims[k.grid.rank-1], segment)
}

func (k *elementwise) run(lo, hi int, s *scratch) {
	for u := lo; u < hi; u++ {
		at, n := k.grid.at(u)
		for done := 0; done < n; done += k.longest {
			c := min(n-done, k.longest)
			x := k.x.read(at[0]+done*k.x.stride, c, &s.floats)
			y := k.y.read(at[1]+done*k.y.stride, c, &s.second)
			out := s.result[:]
			if k.out.direct {
				out = floats(k.out.mem[4*(at[2]+done):])
			}
			if out = out[:c]; len(x) == 1 && len(y) == 1 {
				k.loop(out[:1], x, y, s)
				repeat(out, out[0])
			} else {
				k.loop(out, x, y, s)
			}
			if !k.out.direct {
				k.out.write(at[2]+done*k.out.stride, out)
			}
		}
	}
}

// loop computes out from x and y, which may be in the lane's buffers.
func (k *elementwise) loop(out, x, y []float32, s *scratch) {
	row := &pointwise[k.op]
	if k.loops == nil {
		row.loop(out, x, y, &k.params)
		return
	}
	if !row.repeats {
		if len(x) < len(out) {
			x = repeat(s.floats[:len(out)], x[0])
		}
		if len(y) < len(out) {
			y = repeat(s.second[:len(out)], y[0])
		}
	}
	row.fast(k.loops, out, x, y, &k.params)
}

// repeat sets all elements of x to v and returns x.
func repeat(x []float32, v float32) []float32 {
	for i := range x {
		x[i] = v
	}
	return x
}

// strip is the memory of an f32 operand from its first element on.
type strip struct {
	mem    []byte
	stride int  // along the innermost axis
	direct bool // elements along that axis are contiguous and aligned, and are used in place
}

// init sets the strip to the memory of o, whose innermost axis has the stride.
func (r *strip) init(o *op.Operand, stride int) {
	r.mem, r.stride = bytesOf(o), stride
	r.direct = stride == 1 && aligned(r.mem, 4)
}

// read returns n elements along the innermost axis from element at on, or one if it repeats.
// It copies them into buf unless they are used in place.
func (r *strip) read(at, n int, buf *[bufferLen]float32) []float32 {
	mem := r.mem[4*at:]
	if r.direct {
		return floats(mem)[:n]
	}
	if r.stride == 0 {
		n = 1
	}
	for i := range buf[:n] {
		buf[i] = math.Float32frombits(binary.LittleEndian.Uint32(mem[4*i*r.stride:]))
	}
	return buf[:n]
}

// write writes values along the innermost axis from element at on.
func (r *strip) write(at int, values []float32) {
	mem := r.mem[4*at:]
	for i, v := range values {
		binary.LittleEndian.PutUint32(mem[4*i*r.stride:], math.Float32bits(v))
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
