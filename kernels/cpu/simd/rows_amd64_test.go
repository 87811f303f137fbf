//go:build amd64 && !noasm

package simd

import (
	"math"
	"math/rand/v2"
	"slices"
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
		{dtype.Q5_K, &Halves, q5kRowsVBMI},
		{dtype.Q6_K, &Ascending, q6kRowsVBMI},
		{dtype.Q2_K, &Quarters, q2kRowsVNNI},
		{dtype.Q3_K, &Quarters, q3kRowsVNNI},
		{dtype.TQ2_0, &Quarters, tq20RowsVNNI},
		{dtype.IQ4_XS, &Ascending, iq4xsRowsVBMI},
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

// Rows of the formats with small blocks have the bits of the definition.
func TestSmallRows(t *testing.T) {
	if !slices.Contains(isa.Supported(), isa.AVX512) {
		t.Skip("no AVX-512 VNNI")
	}
	for _, tt := range []struct {
		d    dtype.DType
		rows func(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)
	}{
		{dtype.Q4_0, q40RowsVNNI}, {dtype.Q4_1, q41RowsVNNI}, {dtype.Q5_0, q50RowsVNNI}, {dtype.Q5_1, q51RowsVNNI},
		{dtype.Q8_0, q80RowsVNNI}, {dtype.IQ4_NL, iq4nlRowsVNNI}, {dtype.MXFP4, mxfp4RowsVNNI},
	} {
		r := rand.New(rand.NewPCG(9, 10))
		for _, blocks := range []int{1, 2, 7, 8, 9, 16, 22, 64} {
			const rows = 5
			n := blocks * tt.d.Size()
			w := randomRows(t, r, tt.d, rows*blocks)
			x := row(r, 32*blocks)
			act := make([]byte, (blocks+7)/8*ActBytes)
			for i := 0; i < len(x); i += 256 {
				QuantizeSmall(act[i/256*ActBytes:], x[i:min(i+256, len(x))])
			}
			got := make([]float32, rows)
			tt.rows(&got[0], &w[0], n, rows, blocks, &act[0])
			for i, v := range got {
				if want := DotSmall(tt.d, w[i*n:][:n], act, ActBytes); math.Float32bits(v) != math.Float32bits(want) {
					t.Errorf("%s, %d blocks, row %d: %v, want %v", tt.d, blocks, i, v, want)
				}
			}
		}
	}
}
