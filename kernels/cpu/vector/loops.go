package vector

import "github.com/fucina-go/fucina/internal/isa"

// Loops are the loops for a level. Slices of one call have the length of the first, and an output
// may be the memory of an input. Loops are immutable.
type Loops struct {
	add, sub, mul, swiglu, geglu func(out, x, y *float32, n int)
	scale, softCap               func(out, x *float32, n int, c float32)
	weigh                        func(out, x, w *float32, n int, scale float32)
	squares                      func(sums *float64, x *float32, n int)
	exps                         func(sums *float64, x *float32, n int, top float32)
	most                         func(x *float32, n int) float32
	turn                         func(out, x, table *float32, n int)
	encodeQ80                    func(dst *byte, x *float32, blocks int) int
	turnNeoX                     func(o0, o1, x0, x1, table *float32, n int)
	attention
}

// Of returns the loops of a level that is supported.
func Of(level isa.Level) *Loops { return loopsOf(level) }

// Vectors reports whether the loops are assembly.
func (l *Loops) Vectors() bool { return l != &definition }

// definition has the loops of Go alone.
var definition Loops

// longest is the most elements in a call of assembly. It is a multiple of 16. A call takes less
// than 20 us.
const longest = 8 << 10

// Sums are sixteen sums by index mod 16.
type Sums [16]float64

// Total returns the sum of all.
func (s *Sums) Total() float64 {
	v := *s
	for n := 8; n > 0; n /= 2 {
		for i := range n {
			v[i] += v[i+n]
		}
	}
	return v[0]
}

// Add sets out to x + y.
func (l *Loops) Add(out, x, y []float32) {
	x, y = x[:len(out)], y[:len(out)]
	if l.add != nil {
		calls(l.add, out, x, y)
		return
	}
	for i := range out {
		out[i] = x[i] + y[i]
	}
}

// Sub sets out to x - y.
func (l *Loops) Sub(out, x, y []float32) {
	x, y = x[:len(out)], y[:len(out)]
	if l.sub != nil {
		calls(l.sub, out, x, y)
		return
	}
	for i := range out {
		out[i] = x[i] - y[i]
	}
}

// Mul sets out to x * y.
func (l *Loops) Mul(out, x, y []float32) {
	x, y = x[:len(out)], y[:len(out)]
	if l.mul != nil {
		calls(l.mul, out, x, y)
		return
	}
	for i := range out {
		out[i] = x[i] * y[i]
	}
}

// SwiGLU sets out to x*sigmoid(x)*y.
func (l *Loops) SwiGLU(out, x, y []float32) {
	x, y = x[:len(out)], y[:len(out)]
	if l.swiglu != nil {
		calls(l.swiglu, out, x, y)
		return
	}
	for i := range out {
		out[i] = swiglu(x[i], y[i])
	}
}

// GeGLU sets out to gelu(x)*y, with the tanh approximation of gelu.
func (l *Loops) GeGLU(out, x, y []float32) {
	x, y = x[:len(out)], y[:len(out)]
	if l.geglu != nil {
		calls(l.geglu, out, x, y)
		return
	}
	for i := range out {
		out[i] = geglu(x[i], y[i])
	}
}

func calls(f func(out, x, y *float32, n int), out, x, y []float32) {
	for len(out) > 0 {
		n := min(len(out), longest)
		f(&out[0], &x[0], &y[0], n)
		out, x, y = out[n:], x[n:], y[n:]
	}
}

// Scale sets out to x*c.
func (l *Loops) Scale(out, x []float32, c float32) {
	x = x[:len(out)]
	if l.scale == nil {
		for i, v := range x {
			out[i] = v * c
		}
		return
	}
	for len(out) > 0 {
		n := min(len(out), longest)
		l.scale(&out[0], &x[0], n, c)
		out, x = out[n:], x[n:]
	}
}

// SoftCap sets out to c*tanh(x/c).
func (l *Loops) SoftCap(out, x []float32, c float32) {
	x = x[:len(out)]
	if l.softCap == nil {
		for i, v := range x {
			out[i] = c * tanh(v/c)
		}
		return
	}
	for len(out) > 0 {
		n := min(len(out), longest)
		l.softCap(&out[0], &x[0], n, c)
		out, x = out[n:], x[n:]
	}
}

// Weigh sets out to x*scale*w, where x*scale is rounded.
func (l *Loops) Weigh(out, x, w []float32, scale float32) {
	x, w = x[:len(out)], w[:len(out)]
	if l.weigh == nil {
		for i, v := range x {
			out[i] = float32(v*scale) * w[i]
		}
		return
	}
	for len(out) > 0 {
		n := min(len(out), longest)
		l.weigh(&out[0], &x[0], &w[0], n, scale)
		out, x, w = out[n:], x[n:], w[n:]
	}
}

// Squares adds the squares of x to the sums in float64, where a square is exact. The number of
// elements added before x is a multiple of 16.
func (l *Loops) Squares(sums *Sums, x []float32) {
	if l.squares == nil {
		for i, v := range x {
			sums[i&15] += float64(v) * float64(v)
		}
		return
	}
	for len(x) > 0 {
		n := min(len(x), longest)
		l.squares(&sums[0], &x[0], n)
		x = x[n:]
	}
}

// Exps replaces each element of x by exp(x-top), and adds it to the sums. The number of elements
// added before x is a multiple of 16.
func (l *Loops) Exps(sums *Sums, x []float32, top float32) {
	if l.exps == nil {
		for i, v := range x {
			x[i] = Exp(v - top)
			sums[i&15] += float64(x[i])
		}
		return
	}
	for len(x) > 0 {
		n := min(len(x), longest)
		l.exps(&sums[0], &x[0], n, top)
		x = x[n:]
	}
}

// Max returns the largest element of x, or -Inf if there is none. It is NaN if an element is.
func (l *Loops) Max(x []float32) float32 {
	top := negInf
	for len(x) > 0 {
		n := min(len(x), longest)
		var m float32
		if l.most == nil {
			m = most(x[:n])
		} else {
			m = l.most(&x[0], n)
		}
		// A zero is positive, and a NaN stays.
		if m += 0; m > top || m != m {
			top = m
		}
		if top != top {
			break
		}
		x = x[n:]
	}
	return top
}

func most(x []float32) float32 {
	top := negInf
	for _, v := range x {
		if v > top || v != v {
			top = v
		}
		if v != v {
			break
		}
	}
	return top
}

// EncodeQ80 encodes x as q8_0, with the bits of package quant, up to the first block of 32 elements
// whose scale is not finite in f16. It returns the number of blocks. Without assembly that is 0.
func (l *Loops) EncodeQ80(dst []byte, x []float32) (blocks int) {
	n := len(x) / 32
	dst = dst[:34*n]
	if n == 0 || l.encodeQ80 == nil {
		return 0
	}
	return l.encodeQ80(&dst[0], &x[0], n)
}
