package simd

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/internal/isa"
)

// Every level quantizes as the definition does, special values included, and reads and writes nothing
// after the activations.
func TestQuantizeLevels(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 16))
	special := []float32{
		0, float32(math.Copysign(0, -1)), 1, -1, 127, 0.5, 1.5, 2.5, -0.5, 63.5, least, least / 2, 1e-40, 1e-45,
		math.MaxFloat32, -math.MaxFloat32, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), -float32(math.NaN()),
	}
	const m, stretches = 2, 3
	const n = 256 * stretches
	x, got := guardedFloats(t, m*n), guarded(t, m*ActSize(n))
	for range 300 {
		copy(x, row(r, m*n))
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
		for _, d := range []dtype.DType{dtype.Q6_K, dtype.Q4_K, dtype.Q2_K, dtype.Q4_0} {
			want := make([]byte, len(got))
			for i := range m {
				for j := range stretches {
					dst, src := want[(j*m+i)*ActBytes:], x[i*n+256*j:][:256]
					if f := forms[d]; f.group > 0 {
						QuantizeSuper(dst, src, f.order)
					} else {
						QuantizeSmall(dst, src)
					}
				}
			}
			for _, level := range isa.Supported() {
				k, _ := KernelOf(d, level)
				for i := range got {
					got[i] = 0x55
				}
				k.Quantize(got, x, m, n)
				same(t, d.String()+", "+level.String(), got, want)
			}
		}
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
