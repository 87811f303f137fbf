//go:build amd64 && !noasm

package simd

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/internal/isa"
)

// Rows of every format and every level have the bits of the definition, also where codes and
// activations are as large as they can be.
func TestRows(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, level := range isa.Supported() {
		for d := dtype.DType(1); d < dtype.Count; d++ {
			k, ok := KernelOf(d, level)
			if !ok || k.rows == nil {
				continue
			}
			for _, blocks := range []int{1, 2, 3, 4, 5, 7, 8, 9, 22} {
				testRow(t, r, k, level, blocks)
			}
		}
	}
}

func testRow(t *testing.T, r *rand.Rand, k *Kernel, level isa.Level, blocks int) {
	t.Helper()
	const rows = 7
	n, rowBytes := blocks*k.d.BlockSize(), blocks*k.d.Size()
	w := randomRows(t, r, k.d, rows*blocks)
	for i, v := range []byte{0xff, 0, 0x80, 0x7f, 0xf0} {
		extreme(t, k.d, w[i*rowBytes:][:rowBytes], v)
	}
	for i := range 3 {
		x := row(r, n)
		for j := range x {
			switch i {
			case 1:
				x[j] = -3
			case 2:
				x[j] = float32(1 - j%2*2)
			}
		}
		act := make([]byte, ActSize(n))
		k.Quantize(act, x, 1, n)
		got := make([]float32, rows)
		k.rows(&got[0], &w[0], rowBytes, rows, blocks, &act[0])
		for j, v := range got {
			if want := k.dot(w[j*rowBytes:][:rowBytes], act, ActBytes); math.Float32bits(v) != math.Float32bits(want) {
				t.Fatalf("%s, %s: %d blocks, activations %d, row %d: %v, want %v", k.d, level, blocks, i, j, v, want)
			}
		}
	}
}
