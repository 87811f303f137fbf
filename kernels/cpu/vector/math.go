package vector

import (
	"math"

	"github.com/fucina-go/fucina/internal/fma32"
)

// The constants of exp.
const (
	expMost  = 89   // e^89 is +Inf
	expLeast = -104 // e^-104 is 0
	log2e    = 1.44269504
	ln2Hi    = 0.693359375
	ln2Lo    = -2.12194440e-4
	round    = 0x1.8p23 // adding it rounds to an integer, which is then in the low bits of the sum
)

// expTerms are the coefficients of p, the highest power first.
var expTerms = [...]float32{1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1}

// exp returns e^x as the package's comment defines it.
func exp(x float32) float32 {
	if x > expMost {
		x = expMost
	} else if x < expLeast {
		x = expLeast
	}
	t := fma32.FMA(x, log2e, round)
	n := t - round
	r := fma32.FMA(n, -ln2Hi, x)
	r = fma32.FMA(n, -ln2Lo, r)
	p := expTerms[0]
	for _, c := range expTerms[1:] {
		p = fma32.FMA(p, r, c)
	}
	y := fma32.FMA(p, float32(r*r), r) + 1
	if y != y {
		return y
	}
	// n is too large for one factor.
	i := int32(math.Float32bits(t) - math.Float32bits(round))
	return float32(y*power(i>>1)) * power(i-i>>1)
}

// power returns 2^n, which is a normal number.
func power(n int32) float32 { return math.Float32frombits(uint32(n+127) << 23) }

// swish returns sigmoid(s)*x, where s has the sign of x.
func swish(x, s float32) float32 {
	z := exp(math.Float32frombits(math.Float32bits(s) | 1<<31))
	t := x
	if math.Float32bits(x)>>31 != 0 {
		t = float32(x * z)
	}
	return t / (1 + z)
}

// The constants of gelu: 2*sqrt(2/pi), and that times 0.044715.
const (
	gelu1 = 1.5957691216057308
	gelu3 = 0.07135481282053462
)

// gelu returns x*sigmoid(2u) with u = sqrt(2/pi)*(x + 0.044715*x^3), which is gelu with the tanh
// approximation (Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016).
func gelu(x float32) float32 {
	return swish(x, float32(x*fma32.FMA(gelu3, float32(x*x), gelu1)))
}

// tanhTerms are the coefficients of the odd polynomial of tanh, without the first, 1; the highest
// power first.
var tanhTerms = [...]float32{-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1}

// tanhSmall is the magnitude below which tanh is a polynomial.
const tanhSmall = 0.625

func tanh(x float32) float32 {
	a := math.Float32frombits(math.Float32bits(x) &^ (1 << 31))
	if a < tanhSmall {
		s := float32(x * x)
		p := tanhTerms[0]
		for _, c := range tanhTerms[1:] {
			p = fma32.FMA(p, s, c)
		}
		return fma32.FMA(float32(p*s), x, x)
	}
	z := exp(-2 * a)
	y := (1 - z) / (1 + z)
	return math.Float32frombits(math.Float32bits(y) | math.Float32bits(x)&(1<<31))
}
