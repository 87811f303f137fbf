package fma32

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// FMA rounds once. The numbers have few bits, so that ties are frequent, and exponents that meet,
// also where results are subnormal or overflow.
func TestFMA(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	bits := func() float64 { return float64(r.IntN(1<<uint(1+r.IntN(24))) - 1<<r.IntN(24)) }
	for i := range 100000 {
		around := [...]int{0, -130, 112}[i%3] // exponent of the product
		first := around/2 + r.IntN(40) - 20
		x := float32(math.Ldexp(bits(), first-20))
		y := float32(math.Ldexp(bits(), around-first-20+r.IntN(20)-10))
		z := float32(math.Ldexp(bits(), around-24+r.IntN(50)-40))
		p := new(big.Float).SetPrec(1000).Mul(big.NewFloat(float64(x)), big.NewFloat(float64(y)))
		want, _ := p.Add(p, big.NewFloat(float64(z))).Float32()
		if got := FMA(x, y, z); math.Float32bits(got) != math.Float32bits(want) {
			t.Fatalf("FMA(%g, %g, %g) = %g, want %g", x, y, z, got, want)
		}
	}
}

func TestSpecial(t *testing.T) {
	inf, zero := float32(math.Inf(1)), float32(0)
	for _, c := range [][3]float32{{inf, 0, 1}, {inf, 1, -inf}, {1, 1, float32(math.NaN())}} {
		if got := FMA(c[0], c[1], c[2]); got == got {
			t.Errorf("FMA%v = %v, want NaN", c, got)
		}
	}
	tiny := float32(math.SmallestNonzeroFloat32)
	for _, c := range [][4]float32{
		{inf, 2, 1, inf}, {inf, -2, 1, -inf}, {1, 1, -inf, -inf}, {0, 1, 2, 2},
		{-zero, 1, 0, 0}, {tiny, tiny, 0, 0}, {tiny, tiny, 1, 1}, {math.MaxFloat32, 2, -inf, -inf},
	} {
		if got := FMA(c[0], c[1], c[2]); math.Float32bits(got) != math.Float32bits(c[3]) {
			t.Errorf("FMA%v = %v, want %v", c[:3], got, c[3])
		}
	}
	if got := FMA(tiny, -tiny, 0); math.Float32bits(got) != 1<<31 {
		t.Errorf("the product of a small and a small negative number is %v, want -0", got)
	}
}

func BenchmarkFMA(b *testing.B) {
	x, y, z := float32(1.1), float32(0.9), float32(0)
	for b.Loop() {
		z = FMA(x, y, z)
	}
}
