package vector

import (
	"math"
	"slices"
	"testing"

	"github.com/fucina-go/fucina/internal/isa"
)

// sample returns numbers of all signs and exponents, dense and in order.
func sample() (x []float32) {
	for b := uint64(0); b < 1<<32; b += 29989 {
		x = append(x, math.Float32frombits(uint32(b)))
	}
	for v := -110.0; v < 95; v += 0.00173 {
		x = append(x, float32(v))
	}
	return append(x, special...)
}

var special = []float32{
	0, float32(math.Copysign(0, -1)), 1, -1, 0.625, -0.625, 88.72283, 88.72284, 89, 90, -87.33, -103.9, -104, -105, 1e-40, -1e-45,
	math.MaxFloat32, -math.MaxFloat32, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), 20, -20, 5, -5, 1e-5, 3e5,
}

// The functions are as accurate as the package's comment says. The bound of an error is in units
// in the last place of the result, if that is not too small.
func TestAccuracy(t *testing.T) {
	x := sample()
	levels := isa.Supported()
	l := Of(levels[len(levels)-1])
	if !l.Vectors() {
		x = slices.Concat(x[:len(x)/8], x[len(x)-len(x)/8:]) // the definition is slow
	}
	ones := make([]float32, len(x))
	for i := range ones {
		ones[i] = 1
	}
	sigmoid := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	for _, c := range []struct {
		name string
		ulp  float64
		f    func(out []float32)
		want func(x float64) float64
		// small is the exponent of results with which those that are smaller are compared.
		small int
	}{
		{"exp", 1.01, func(out []float32) {
			copy(out, x)
			l.Exps(new(Sums), out, 0)
		}, math.Exp, -125},
		{"swiglu", 1.6, func(out []float32) { l.SwiGLU(out, x, ones) }, func(x float64) float64 { return x * sigmoid(x) }, -118},
		{"geglu", 1.6, func(out []float32) { l.GeGLU(out, x, ones) }, func(x float64) float64 {
			return x * sigmoid(gelu1*x+gelu3*x*x*x)
		}, -118},
		{"tanh", 2, func(out []float32) { l.SoftCap(out, x, 1) }, math.Tanh, -125},
	} {
		out := make([]float32, len(x))
		c.f(out)
		worst, at := 0.0, float32(0)
		for i, v := range x {
			want := c.want(float64(v))
			got := float64(out[i])
			switch {
			case want != want || math.Abs(want) > math.MaxFloat32:
				if got == got && math.Abs(got) < math.MaxFloat32 {
					t.Fatalf("%s(%v) = %v, want %v", c.name, v, got, want)
				}
				continue
			case math.IsInf(float64(v), 0):
				continue
			}
			_, e := math.Frexp(want)
			allowed := math.Ldexp(1, max(e, c.small)-24)
			err := math.Abs(got - want)
			if err /= allowed; !(err <= worst) {
				worst, at = err, v
			}
		}
		t.Logf("%s: error %.3f ulp at %v", c.name, worst, at)
		if !(worst <= c.ulp) {
			t.Errorf("%s: error %.3f ulp at %v, want %v", c.name, worst, at, c.ulp)
		}
	}
}
