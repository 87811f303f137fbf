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

// Tiles of every format have the bits of the definition.
func TestTiles(t *testing.T) {
	if !slices.Contains(isa.Supported(), isa.AVX512) {
		t.Skip("no AVX-512 VNNI")
	}
	sizes := []int{6, 4, 2, 1}
	super := map[form][]tile{
		{group: 16}:             {tileBias16x6, tileBias16x4, tileBias16x2, tileBias16x1},
		{group: 16, mins: true}: {tileMins16x6, tileMins16x4, tileMins16x2, tileMins16x1},
		{group: 32}:             {tileBias32x6, tileBias32x4, tileBias32x2, tileBias32x1},
		{group: 32, mins: true}: {tileMins32x6, tileMins32x4, tileMins32x2, tileMins32x1},
	}
	small := map[form][]tile{
		{bias: 1}:    {tileSmall1x6, tileSmall1x4, tileSmall1x2, tileSmall1x1},
		{bias: 8}:    {tileSmall8x6, tileSmall8x4, tileSmall8x2, tileSmall8x1},
		{bias: 16}:   {tileSmall16x6, tileSmall16x4, tileSmall16x2, tileSmall16x1},
		{bias: 128}:  {tileSmall128x6, tileSmall128x4, tileSmall128x2, tileSmall128x1},
		{mins: true}: {tileSmallTermx6, tileSmallTermx4, tileSmallTermx2, tileSmallTermx1},
	}
	r := rand.New(rand.NewPCG(11, 12))
	for d := dtype.DType(1); d < dtype.Count; d++ {
		f := forms[d]
		if f.order == nil {
			if d.Valid() && (quant.HasSuper(d) || quant.HasSmall(d)) {
				t.Errorf("%s has no form", d)
			}
			continue
		}
		list := super[form{group: f.group, mins: f.mins}]
		if f.group == 0 {
			list = small[form{bias: f.bias, mins: f.mins}]
		}
		if f.two {
			continue
		}
		for k, n := range sizes {
			for _, stretches := range []int{1, 3} {
				elements := 256 * stretches
				rowBytes := elements / d.BlockSize() * d.Size()
				w := randomRows(t, r, d, PanelRows*rowBytes/d.Size())
				m := 2 * n
				act, c := make([]byte, stretches*m*ActBytes), make([]float32, m*PanelRows)
				for i := range m {
					x := row(r, elements)
					for b := range stretches {
						dst := act[(b*m+i)*ActBytes:]
						if f.group > 0 {
							QuantizeSuper(dst, x[256*b:], f.order)
						} else {
							QuantizeSmall(dst, x[256*b:][:256])
						}
					}
				}
				panel := make([]byte, PanelBytes)
				for b := range stretches {
					pack(panel, d, w[b*rowBytes/stretches:], rowBytes, PanelRows, 256)
					list[k](&c[0], &panel[0], &act[b*m*ActBytes], 2)
				}
				for i := range m {
					for j := range PanelRows {
						var want float32
						if one := w[j*rowBytes:][:rowBytes]; f.group > 0 {
							want = DotSuper(d, one, act[i*ActBytes:], m*ActBytes, f.order)
						} else {
							want = DotSmall(d, one, act[i*ActBytes:], m*ActBytes)
						}
						if got := c[i*PanelRows+j]; math.Float32bits(got) != math.Float32bits(want) {
							t.Fatalf("%s, tile of %d, %d stretches, activations %d, row %d: %v, want %v", d, n, stretches, i, j, got, want)
						}
					}
				}
			}
		}
	}
}

// The functions that unpack make the panels of pack.
func TestUnpack(t *testing.T) {
	if !slices.Contains(isa.Supported(), isa.AVX512) {
		t.Skip("no AVX-512 VNNI")
	}
	r := rand.New(rand.NewPCG(13, 14))
	for _, tt := range []struct {
		d      dtype.DType
		unpack func(panel, w *byte, rowBytes int)
	}{
		{dtype.Q2_K, q2kUnpack}, {dtype.Q3_K, q3kUnpack}, {dtype.Q4_K, q4kUnpack}, {dtype.Q5_K, q5kUnpack}, {dtype.Q6_K, q6kUnpack},
		{dtype.TQ2_0, tq20Unpack}, {dtype.IQ4_XS, iq4xsUnpack},
		{dtype.Q4_0, q40Unpack}, {dtype.Q4_1, q41Unpack}, {dtype.Q5_0, q50Unpack}, {dtype.Q5_1, q51Unpack},
		{dtype.Q8_0, q80Unpack}, {dtype.IQ4_NL, iq4nlUnpack}, {dtype.MXFP4, mxfp4Unpack},
	} {
		n := 256 / tt.d.BlockSize()
		w := randomRows(t, r, tt.d, 3*n*PanelRows)
		rowBytes := 3 * n * tt.d.Size()
		got, want := make([]byte, PanelBytes), make([]byte, PanelBytes)
		src := w[2*n*tt.d.Size():]
		tt.unpack(&got[0], &src[0], rowBytes)
		pack(want, tt.d, src, rowBytes, PanelRows, 256)
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("%s: byte %d is %d, want %d", tt.d, i, got[i], want[i])
				break
			}
		}
	}
}
