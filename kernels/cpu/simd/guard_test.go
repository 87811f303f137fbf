package simd

import (
	"math/rand/v2"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/internal/isa"
)

// No level reads weights or activations past their end, at any number of blocks up to more than two
// stretches.
func TestReadsEnd(t *testing.T) {
	r := rand.New(rand.NewPCG(25, 26))
	const m = 3
	for d := dtype.DType(1); d < dtype.Count; d++ {
		if _, ok := KernelOf(d, isa.Generic); !ok {
			continue
		}
		most := 3
		if d.BlockSize() < 256 {
			most = 17
		}
		weights, acts := guarded(t, PanelRows*most*d.Size()), guarded(t, m*ActSize(most*d.BlockSize()))
		copy(weights, randomRows(t, r, d, PanelRows*most))
		for blocks := 1; blocks <= most; blocks += max(1, most/8) {
			n, rowBytes := blocks*d.BlockSize(), blocks*d.Size()
			w := weights[len(weights)-PanelRows*rowBytes:]
			for _, level := range isa.Supported()[1:] {
				k, _ := KernelOf(d, level)
				one := acts[len(acts)-ActSize(n):]
				k.Quantize(one, row(r, n), 1, n)
				k.Row(make([]float32, 2), w[len(w)-2*rowBytes:], rowBytes, n, one)
				act := acts[len(acts)-m*ActSize(n):]
				k.Quantize(act, row(r, m*n), m, n)
				k.Panel(make([]float32, m*PanelRows), w, rowBytes, PanelRows, n, act, m, make([]byte, ScratchBytes))
			}
		}
	}
}
