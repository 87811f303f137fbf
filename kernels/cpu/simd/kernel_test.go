package simd

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/internal/isa"
)

// Every kernel of every level has the bits of the definition, for one row of activations and for
// any number of them, for rows of any number of blocks, and for panels that are not full.
func TestKernels(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 18))
	for d := dtype.DType(1); d < dtype.Count; d++ {
		if _, ok := KernelOf(d, isa.Generic); !ok {
			continue
		}
		for _, c := range []struct{ blocks, rows, m int }{{1, 1, 1}, {3, 32, 3}, {9, 31, 7}, {17, 32, 9}} {
			n := c.blocks * d.BlockSize()
			rowBytes := c.blocks * d.Size()
			w := randomRows(t, r, d, c.rows*c.blocks)
			x := row(r, n*c.m)
			generic, _ := KernelOf(d, isa.Generic)
			one := make([]byte, ActSize(n))
			want := make([]float32, c.m*c.rows)
			for i := range c.m {
				generic.Quantize(one, x[i*n:], 1, n)
				for j := range c.rows {
					want[i*c.rows+j] = generic.dot(w[j*rowBytes:][:rowBytes], one, ActBytes)
				}
			}
			for _, level := range isa.Supported() {
				k, _ := KernelOf(d, level)
				act := make([]byte, c.m*ActSize(n))
				k.Quantize(act, x, c.m, n)
				sums := make([]float32, c.m*PanelRows)
				k.Panel(sums, w, rowBytes, c.rows, n, act, c.m, make([]byte, ScratchBytes))
				out := make([]float32, c.rows)
				for i := range c.m {
					k.Quantize(one, x[i*n:], 1, n)
					k.Row(out, w, rowBytes, n, one)
					for j, want := range want[i*c.rows:][:c.rows] {
						if math.Float32bits(out[j]) != math.Float32bits(want) {
							t.Fatalf("%s, %s: %d blocks, row %d: %v, want %v", d, level, c.blocks, j, out[j], want)
						}
						if got := sums[i*PanelRows+j]; math.Float32bits(got) != math.Float32bits(want) {
							t.Fatalf("%s, %s: %d blocks, %d rows, activations %d of %d, row %d: %v, want %v", d, level, c.blocks, c.rows, i, c.m, j, got, want)
						}
					}
				}
			}
		}
	}
}
