package simd

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/internal/isa"
	"github.com/fucina-go/fucina/quant"
)

// equalBytes returns blocks of which every byte is b, but for those that would make an element
// large.
func equalBytes(t *testing.T, r *rand.Rand, d dtype.DType, blocks int, b byte) []byte {
	t.Helper()
	w, y := randomRows(t, r, d, 1), make([]float32, d.BlockSize())
	for i, old := range w {
		w[i] = b
		if err := quant.DecodeRow(y, d, w); err != nil {
			t.Fatal(err)
		}
		for _, v := range y {
			if !(math.Abs(float64(v)) < 1e30) {
				w[i] = old
			}
		}
	}
	return bytes.Repeat(w, blocks)
}

// The level that FUCINA_CPU demands is one of those that the other tests compare.
func TestLevel(t *testing.T) {
	if level, err := isa.Current(); err != nil || !slices.Contains(isa.Supported(), level) {
		t.Errorf("level %v, %v", level, err)
	}
}

// At every level, codes and activations at both extremes have the products of the definition, for
// every number of rows of activations up to two of the largest tiles.
func TestExtremes(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	for d := dtype.DType(1); d < dtype.Count; d++ {
		if _, ok := KernelOf(d, isa.Generic); !ok {
			continue
		}
		blocks := max(1, 256/d.BlockSize())
		n, rowBytes := blocks*d.BlockSize(), blocks*d.Size()
		for _, b := range []byte{0, 0xff, 0x80, 0x7f, 0x88} {
			w := equalBytes(t, r, d, blocks*PanelRows, b)
			for m := 1; m <= 13; m += 3 {
				x := make([]float32, m*n)
				for i := range x {
					x[i] = [2]float32{1, -1}[i/n%4*i/7%2]
				}
				for _, level := range isa.Supported()[1:] {
					k, _ := KernelOf(d, level)
					act, one := make([]byte, m*ActSize(n)), make([]byte, ActSize(n))
					k.Quantize(act, x, m, n)
					sums := make([]float32, m*PanelRows)
					k.Panel(sums, w, rowBytes, PanelRows, n, act, m, make([]byte, ScratchBytes))
					out := make([]float32, 1)
					for i := range m {
						k.Quantize(one, x[i*n:], 1, n)
						k.Row(out, w, rowBytes, n, one)
						want := k.dot(w[:rowBytes], one, ActBytes)
						if math.Float32bits(out[0]) != math.Float32bits(want) {
							t.Fatalf("%s, %s, bytes %#x: %v, want %v", d, level, b, out[0], want)
						}
						for j := range PanelRows {
							if got := sums[i*PanelRows+j]; math.Float32bits(got) != math.Float32bits(want) {
								t.Fatalf("%s, %s, bytes %#x, activations %d of %d, row %d: %v, want %v", d, level, b, i, m, j, got, want)
							}
						}
					}
				}
			}
		}
	}
}
