package cpu

import (
	"fmt"
	"testing"

	"github.com/fucina-go/fucina/core/conformance/reference"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
)

// A sum in chunks, of an exact operation, has the bits of the sums over each chunk alone, added as a balanced tree. The
// first rows of the weight are in place, the others are decoded or not aligned.
func TestChunks(t *testing.T) {
	es := executors(t)
	const m, n = 3, 6
	for _, d := range op.MatMul.Inputs()[1].Formats.List() {
		for _, chunks := range []int{1, 2, 4, 8} {
			rng := newRand()
			part := 2 * d.BlockSize()
			if d == dtype.F32 {
				part = 7 // every second chunk begins at an odd element
			}
			k := 8 * part
			x := reference.Random(reference.New(dtype.F32, reference.Plain, m, k), rng)
			w := reference.Random(reference.New(d, reference.Plain, n, k), rng)
			for _, misalign := range []int{0, 1} {
				if misalign > 0 {
					setMem(&w, misalign, w.Mem.Host)
				}
				sums := make([][]float64, chunks)
				for c := range sums {
					a, b, size := x, w, k/chunks
					a.Shape.Set(1, size)
					a.Offset = c * size
					b.Shape.Set(1, size)
					b.Offset = c * size / d.BlockSize()
					sums[c] = execute(t, es[:1], op.MatMul, exact(reference.Args(op.Params{}, operand(dtype.F32, plain, m, n), a, b)))
				}
				for ; len(sums) > 1; sums = sums[:len(sums)/2] {
					for c := range len(sums) / 2 {
						for i := range sums[c] {
							sums[c][i] = float64(float32(sums[2*c][i]) + float32(sums[2*c+1][i]))
						}
					}
				}
				p := op.Params{Chunks: chunks, Scales: [3]float32{1, 1, 1}}
				for _, id := range []op.ID{op.MatMul, op.Project} {
					t.Run(fmt.Sprint(id, d, chunks, misalign), func(t *testing.T) {
						equal(t, execute(t, es, id, exact(reference.Args(p, operand(dtype.F32, plain, m, n), x, w))), sums[0])
					})
				}
			}
		}
	}
}
