package simd

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/internal/isa"
	"github.com/fucina-go/fucina/quant"
)

// extremeRows returns blocks whose bytes are mostly equal, and whose elements are below 1e30.
func extremeRows(t *testing.T, r *rand.Rand, d dtype.DType, blocks int) []byte {
	t.Helper()
	w, y := make([]byte, blocks*d.Size()), make([]float32, d.BlockSize())
	for b := w; len(b) > 0; b = b[d.Size():] {
		c := []byte{0, 0xff, 0x80, 0x7f, 0xf0, 0x0f}[r.IntN(6)]
		for good := false; !good; {
			for i := range b[:d.Size()] {
				if b[i] = c; r.IntN(8) == 0 {
					b[i] = byte(r.Uint32())
				}
			}
			if err := quant.DecodeRow(y, d, b[:d.Size()]); err != nil {
				t.Fatal(err)
			}
			good = true
			for _, v := range y {
				good = good && math.Abs(float64(v)) < 1e30
			}
		}
	}
	return w
}

// Rows have the bits of the definition at every level, for any number of blocks, with codes of
// activations that are all extreme too. Nothing after the rows or the activations is read.
func TestRows(t *testing.T) {
	for d := dtype.DType(1); d < dtype.Count; d++ {
		if _, ok := KernelOf(d, isa.Generic); !ok {
			continue
		}
		r := rand.New(rand.NewPCG(7, uint64(d)))
		list := []int{1, 3, 4, 6, 9}
		if d.BlockSize() < 256 {
			list = []int{1, 2, 7, 8, 9, 16, 17, 25, 33, 57, 64}
		}
		for _, blocks := range list {
			const rows = 3
			n := blocks * d.BlockSize()
			rowBytes := blocks * d.Size()
			w := guarded(t, rows*rowBytes)
			act := guarded(t, ActSize(n))
			out := guardedFloats(t, rows)
			for _, extreme := range []bool{false, true} {
				x := row(r, n)
				copy(w, randomRows(t, r, d, rows*blocks))
				if extreme {
					copy(w, extremeRows(t, r, d, rows*blocks))
					for i := range x {
						x[i] = []float32{1, -1, -1, -1}[r.IntN(1+i/32%4)]
					}
				}
				var want [rows]float32
				for _, level := range isa.Supported() {
					k, _ := KernelOf(d, level)
					k.Quantize(act, x, 1, n)
					if level == isa.Generic {
						for i := range want {
							want[i] = k.dot(w[i*rowBytes:][:rowBytes], act, ActBytes)
						}
					}
					clear(out)
					k.Row(out, w, rowBytes, n, act)
					for i, v := range out {
						if math.Float32bits(v) != math.Float32bits(want[i]) {
							t.Fatalf("%s, %s, %d blocks, row %d: %v, want %v", d, level, blocks, i, v, want[i])
						}
					}
				}
			}
		}
	}
}

// Rows of any bytes and activations of any codes and scales have the bits of the definition, or are
// NaN where it is.
func FuzzRows(f *testing.F) {
	f.Add(byte(dtype.Q4_0), byte(17), []byte{1, 2, 3}, []byte{4, 5})
	f.Add(byte(dtype.Q8_0), byte(9), []byte{0x80}, []byte{0x81})
	f.Add(byte(dtype.Q3_K), byte(3), []byte{0xff, 0x55, 0x3c}, []byte{0x7f, 0x81, 0x3f})
	f.Add(byte(dtype.MXFP4), byte(20), []byte{0xff, 0, 1, 2, 127}, []byte{0x7f})
	f.Fuzz(func(t *testing.T, format, count byte, weights, activations []byte) {
		d := dtype.DType(format)
		if _, ok := KernelOf(d, isa.Generic); !ok || count == 0 || len(weights) == 0 || len(activations) == 0 {
			return
		}
		blocks := int(count)
		n := blocks * d.BlockSize() / 32 * 32
		if n == 0 || n%d.BlockSize() != 0 {
			return
		}
		w, act := guarded(t, blocks*d.Size()), guarded(t, ActSize(n))
		for i := range w {
			w[i] = weights[i%len(weights)]
		}
		generic, _ := KernelOf(d, isa.Generic)
		x := make([]float32, n)
		for i := range x {
			a := activations[i%len(activations)]
			x[i] = float32(int8(a)) * float32(math.Ldexp(1, int(activations[i/32%len(activations)])-128))
		}
		generic.Quantize(act, x, 1, n)
		want := generic.dot(w, act, ActBytes)
		for _, level := range isa.Supported() {
			k, _ := KernelOf(d, level)
			var out [1]float32
			k.Row(out[:], w, len(w), n, act)
			if got := out[0]; math.Float32bits(got) != math.Float32bits(want) && (got == got || want == want) {
				t.Errorf("%s, %s, %d blocks: %v, want %v", d, level, blocks, got, want)
			}
		}
	})
}
