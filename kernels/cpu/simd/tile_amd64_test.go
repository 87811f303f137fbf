//go:build amd64 && !noasm

package simd

import (
	"math"
	"math/rand/v2"
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
	r := rand.New(rand.NewPCG(11, 12))
	for _, level := range isa.Supported() {
		if level == isa.Generic {
			continue
		}
		for d := dtype.DType(1); d < dtype.Count; d++ {
			k, ok := KernelOf(d, level)
			if !ok {
				if d.Valid() && (quant.HasSuper(d) || quant.HasSmall(d)) {
					t.Errorf("%s has no form", d)
				}
				continue
			}
			for _, tile := range k.tiles {
				testTile(t, r, k, level, tile)
			}
		}
	}
}

func testTile(t *testing.T, r *rand.Rand, k *Kernel, level isa.Level, tile tile) {
	t.Helper()
	const stretches = 2
	n := 256 * stretches
	rowBytes := n / k.d.BlockSize() * k.d.Size()
	w := randomRows(t, r, k.d, PanelRows*rowBytes/k.d.Size())
	for i, v := range []byte{0xff, 0, 0x80, 0x7f, 0xf0} {
		extreme(t, k.d, w[i*rowBytes:][:rowBytes], v)
		copy(w[(31-i)*rowBytes:][:rowBytes], w[i*rowBytes:])
	}
	m := 2 * tile.size
	x := row(r, n*m)
	for i := range x[:n] {
		x[i] = 3
		if m > 2 {
			x[n+i] = -3
			x[2*n+i] = float32(1 - i%2*2)
		}
	}
	act := make([]byte, m*ActSize(n))
	k.Quantize(act, x, m, n)
	panel, c := make([]byte, PanelBytes), make([]float32, m*PanelRows)
	for b := range stretches {
		k.form.pack(panel, k.d, w[b*rowBytes/stretches:], rowBytes, PanelRows, 256)
		tile.add(&c[0], &panel[0], &act[b*m*ActBytes], 2)
	}
	for i := range m {
		for j := range PanelRows {
			want := k.dot(w[j*rowBytes:][:rowBytes], act[i*ActBytes:], m*ActBytes)
			if got := c[i*PanelRows+j]; math.Float32bits(got) != math.Float32bits(want) {
				t.Fatalf("%s, %s, tile of %d, activations %d, row %d: %v, want %v", k.d, level, tile.size, i, j, got, want)
			}
		}
	}
}

// The functions that unpack make the panels of pack, and read nothing after the weights.
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
