//go:build amd64 && !noasm

package simd

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/internal/isa"
)

func TestQ4KRows(t *testing.T) {
	have := isa.Supported()
	if have[len(have)-1] != isa.AVX512VBMI {
		t.Skip("no AVX-512 VBMI")
	}
	r := rand.New(rand.NewPCG(7, 8))
	for _, blocks := range []int{1, 2, 3, 4, 5, 8, 22} {
		const rows = 5
		w := make([]byte, rows*blocks*dtype.Q4_K.Size())
		for i := range w {
			w[i] = byte(r.Uint32())
		}
		for b := 0; b < len(w); b += dtype.Q4_K.Size() {
			w[b+1], w[b+3] = w[b+1]&0x3f, w[b+3]&0x3f
		}
		x := row(r, 256*blocks)
		act := make([]byte, blocks*ActBytes)
		for i := range blocks {
			QuantizeSuper(act[i*ActBytes:], x[256*i:], &Halves)
		}
		got := make([]float32, rows)
		n := blocks * dtype.Q4_K.Size()
		q4kRowsVBMI(&got[0], &w[0], n, rows, blocks, &act[0])
		for i, v := range got {
			if want := DotSuper(dtype.Q4_K, w[i*n:][:n], act, ActBytes, &Halves); math.Float32bits(v) != math.Float32bits(want) {
				t.Errorf("%d blocks, row %d: %v, want %v", blocks, i, v, want)
			}
		}
	}
}
