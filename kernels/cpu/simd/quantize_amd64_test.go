//go:build amd64 && !noasm

package simd

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fucina-go/fucina/internal/isa"
)

// The vector code quantizes as the definition does, special values included.
func TestQuantizeVector(t *testing.T) {
	if !slices.Contains(isa.Supported(), isa.AVX512) {
		t.Skip("no AVX-512")
	}
	r := rand.New(rand.NewPCG(15, 16))
	special := []float32{
		0, float32(math.Copysign(0, -1)), 1, -1, 127, 0.5, 1.5, 2.5, -0.5, 63.5, least, least / 2, 1e-40, 1e-45,
		math.MaxFloat32, -math.MaxFloat32, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), -float32(math.NaN()),
	}
	const stretches, stride = 3, 2 * ActBytes
	for range 500 {
		x := row(r, 256*stretches)
		for range r.IntN(4) {
			v := special[r.IntN(len(special))]
			for i := range x { // everywhere, or in one place
				if r.IntN(300) == 0 {
					x[i] = v
				}
			}
		}
		if r.IntN(4) == 0 {
			for i := range x {
				x[i] *= 1e-37
			}
		}
		for _, order := range []Order{Ascending, Halves, Quarters} {
			got, want := make([]byte, stride*stretches), make([]byte, stride*stretches)
			quantizeSuper512(&got[0], stride, &x[0], stretches, &order[0])
			for i := range stretches {
				QuantizeSuper(want[i*stride:], x[256*i:], &order)
			}
			same(t, "super", got, want)
		}
		got, want := make([]byte, stride*stretches), make([]byte, stride*stretches)
		quantizeSmall512(&got[0], stride, &x[0], stretches)
		for i := range stretches {
			QuantizeSmall(want[i*stride:], x[256*i:][:256])
		}
		same(t, "small", got, want)
	}
}

func same(t *testing.T, what string, got, want []byte) {
	t.Helper()
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("%s: byte %d is %d, want %d", what, i, got[i], want[i])
		}
	}
}
