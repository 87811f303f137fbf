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

// Exp returns e^x as the package's comment defines it.
func Exp(x float32) float32 { return exp2(x, 0) }

// exp2 returns e^(x+low), where low is smaller than the last place of x or near it.
func exp2(x, low float32) float32 {
	if x > expMost {
		x = expMost
	} else if x < expLeast {
		x = expLeast
	}
	t := fma32.FMA(x, log2e, round)
	n := t - round
	r := fma32.FMA(n, -ln2Hi, x) + low
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

const signBit = 1 << 31

// glu returns sigmoid(s+low)*x*y, where s has the sign of x.
func glu(x, y, s, low float32) float32 {
	sign := math.Float32bits(x) & signBit
	z := exp2(math.Float32frombits(math.Float32bits(s)|signBit), math.Float32frombits(math.Float32bits(low)^sign^signBit))
	// The result is (t+tLow)*y / (d+dLow).
	t, tLow := x, float32(0)
	if sign != 0 {
		t = float32(x * z)
		tLow = fma32.FMA(x, z, -t)
	}
	d := 1 + z
	dLow := z - (d - 1)
	inv := 1 / d
	q := float32(t * inv)
	r := fma32.FMA(-q, d, t) + tLow
	r = fma32.FMA(-q, dLow, r)
	out := fma32.FMA(q, y, float32(float32(r*inv)*y))
	if out != out {
		return q * y
	}
	return out
}

// swiglu returns x*sigmoid(x)*y.
func swiglu(x, y float32) float32 { return glu(x, y, x, 0) }

// The constants of geglu: 2*sqrt(2/pi), that times 0.044715, and what f32 lacks of them.
const (
	gelu1    = 1.5957691216057308
	gelu3    = 0.07135481282053462
	gelu1Low = gelu1 - float64(float32(gelu1))
	gelu3Low = gelu3 - float64(float32(gelu3))
)

// geglu returns x*sigmoid(u)*y with u = x*(gelu1 + gelu3*x^2), which is gelu(x)*y with the tanh
// approximation of gelu (Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016). An error of u
// grows in its exponential, so u has two parts.
func geglu(x, y float32) float32 {
	s := float32(x * x)
	m := float32(gelu3 * s)
	p := gelu1 + m
	// pLow is what p lacks: of the sum, of the product m, of the constants, and of s.
	b := p - gelu1
	pLow := (gelu1 - (p - b)) + (m - b)
	pLow += fma32.FMA(gelu3, s, -m)
	pLow += fma32.FMA(float32(gelu3Low), s, float32(gelu1Low))
	pLow = fma32.FMA(gelu3, fma32.FMA(x, x, -s), pLow)
	u := float32(x * p)
	low := fma32.FMA(x, pLow, fma32.FMA(x, p, -u))
	if !(low < 1 && low > -1) {
		low = 0 // u is not finite
	}
	return glu(x, y, u, low)
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
	z := Exp(-2 * a)
	y := (1 - z) / (1 + z)
	return math.Float32frombits(math.Float32bits(y) | math.Float32bits(x)&(1<<31))
}
