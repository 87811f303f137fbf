//go:build amd64 && !noasm

package simd

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/internal/isa"
)

// Rows of every format have the bits of the definition.
func TestRows(t *testing.T) {
	have := isa.Supported()
	if have[len(have)-1] != isa.AVX512VBMI {
		t.Skip("no AVX-512 VBMI")
	}
	for _, tt := range []struct {
		d     dtype.DType
		order *Order
		rows  func(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)
	}{
		{dtype.Q4_K, &Halves, q4kRowsVBMI},
		{dtype.Q6_K, &Ascending, q6kRowsVBMI},
	} {
		r := rand.New(rand.NewPCG(7, 8))
		for _, blocks := range []int{1, 2, 3, 4, 5, 8, 22} {
			const rows = 5
			n := blocks * tt.d.Size()
			w := randomRows(t, r, tt.d, rows*blocks)
			x := row(r, 256*blocks)
			act := make([]byte, blocks*ActBytes)
			for i := range blocks {
				QuantizeSuper(act[i*ActBytes:], x[256*i:], tt.order)
			}
			got := make([]float32, rows)
			tt.rows(&got[0], &w[0], n, rows, blocks, &act[0])
			for i, v := range got {
				if want := DotSuper(tt.d, w[i*n:][:n], act, ActBytes, tt.order); math.Float32bits(v) != math.Float32bits(want) {
					t.Errorf("%s, %d blocks, row %d: %v, want %v", tt.d, blocks, i, v, want)
				}
			}
		}
	}
}
