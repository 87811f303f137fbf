//go:build amd64 && !noasm

package simd

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/internal/isa"
	"github.com/fucina-go/fucina/quant"
)

// extreme sets the bytes of w, blocks of the format d, to v, but for those that would make a weight
// too large.
func extreme(t *testing.T, d dtype.DType, w []byte, v byte) {
	t.Helper()
	y := make([]float32, d.BlockSize())
	for ; len(w) > 0; w = w[d.Size():] {
		for i, old := range w[:d.Size()] {
			w[i] = v
			if err := quant.DecodeRow(y, d, w[:d.Size()]); err != nil {
				t.Fatal(err)
			}
			for _, x := range y {
				if !(math.Abs(float64(x)) < 1e30) {
					w[i] = old
				}
			}
		}
	}
}

// Tiles of every format and every level have the bits of the definition, also where codes and
// activations are as large as they can be.
func TestTiles(t *testing.T) {
	const stretches, n, m = 2, 512, 12
	r := rand.New(rand.NewPCG(11, 12))
	for d := dtype.DType(1); d < dtype.Count; d++ {
		k, ok := KernelOf(d, isa.Generic)
		if !ok {
			if d.Valid() && (quant.HasSuper(d) || quant.HasSmall(d)) {
				t.Errorf("%s has no form", d)
			}
			continue
		}
		rowBytes := n / d.BlockSize() * d.Size()
		w := randomRows(t, r, d, PanelRows*rowBytes/d.Size())
		for i, v := range []byte{0xff, 0, 0x80, 0x7f, 0xf0} {
			extreme(t, d, w[i*rowBytes:][:rowBytes], v)
			copy(w[(31-i)*rowBytes:][:rowBytes], w[i*rowBytes:])
		}
		x := row(r, n*m)
		for i := range n {
			x[i], x[n+i], x[2*n+i] = 3, -3, float32(1-i%2*2)
		}
		act, want := guarded(t, m*ActSize(n)), make([]float32, m*PanelRows)
		k.Quantize(act, x, m, n)
		for i := range want {
			want[i] = k.dot(w[i%PanelRows*rowBytes:][:rowBytes], act[i/PanelRows*ActBytes:], m*ActBytes)
		}
		var panels [stretches][]byte
		for b := range panels {
			panels[b] = guarded(t, PanelBytes)
			forms[d].pack(panels[b], d, w[b*rowBytes/stretches:], rowBytes, PanelRows, 256)
		}
		for _, level := range isa.Supported() {
			k, _ := KernelOf(d, level)
			for _, tile := range k.tiles {
				c := guardedFloats(t, 2*tile.size*PanelRows)
				for b := range panels {
					tile.add(&c[0], &panels[b][0], &act[b*m*ActBytes], 2)
				}
				for i, got := range c {
					if math.Float32bits(got) != math.Float32bits(want[i]) {
						t.Fatalf("%s, %s, tile of %d, activations %d, row %d: %v, want %v", d, level, tile.size, i/PanelRows, i%PanelRows, got, want[i])
					}
				}
			}
		}
	}
}

// The functions that unpack make the panels of pack, and read nothing after the last row.
func TestUnpack(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	for _, level := range isa.Supported() {
		for d := dtype.DType(1); d < dtype.Count; d++ {
			k, ok := KernelOf(d, level)
			if !ok || k.pack == nil {
				continue
			}
			n := 256 / d.BlockSize()
			rowBytes := 3 * n * d.Size()
			w := guarded(t, PanelRows*rowBytes)
			copy(w, randomRows(t, r, d, 3*n*PanelRows))
			extreme(t, d, w[rowBytes:][:rowBytes], 0xff)
			src := w[2*n*d.Size():]
			got, want := make([]byte, PanelBytes), make([]byte, PanelBytes)
			k.pack(&got[0], &src[0], rowBytes)
			forms[d].pack(want, d, src, rowBytes, PanelRows, 256)
			for i := range got {
				if got[i] != want[i] {
					t.Errorf("%s, %s: byte %d is %d, want %d", d, level, i, got[i], want[i])
					break
				}
			}
		}
	}
}

// A tile with a large frame may have to move the stack.
func TestTileMovesStack(t *testing.T) {
	r := rand.New(rand.NewPCG(19, 20))
	const m = 6
	for _, level := range isa.Supported() {
		for _, d := range []dtype.DType{dtype.Q6_K, dtype.NVFP4} {
			k, _ := KernelOf(d, level)
			rowBytes := 256 / d.BlockSize() * d.Size()
			w := randomRows(t, r, d, PanelRows*rowBytes/d.Size())
			act := make([]byte, m*ActSize(256))
			k.Quantize(act, row(r, m*256), m, 256)
			panel := func() []float32 {
				sums := make([]float32, m*PanelRows)
				k.Panel(sums, w, rowBytes, PanelRows, 256, act, m, make([]byte, ScratchBytes))
				return sums
			}
			want := panel()
			for depth := range 64 {
				got := make(chan []float32)
				go func() { got <- deeper(depth, panel) }()
				if !slices.Equal(<-got, want) {
					t.Fatalf("%s, %s: other products at depth %d", d, level, depth)
				}
			}
		}
	}
}

// deeper calls f after depth calls of itself.
//
//go:noinline
func deeper(depth int, f func() []float32) []float32 {
	if depth > 0 {
		return deeper(depth-1, f)
	}
	return f()
}
