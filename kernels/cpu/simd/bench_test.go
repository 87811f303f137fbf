package simd

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/internal/isa"
)

var benchFormats = []dtype.DType{
	dtype.Q4_K, dtype.Q5_K, dtype.Q6_K, dtype.Q2_K, dtype.Q3_K, dtype.IQ4_XS, dtype.TQ2_0,
	dtype.Q4_0, dtype.Q4_1, dtype.Q5_0, dtype.Q5_1, dtype.Q8_0, dtype.IQ4_NL, dtype.MXFP4,
	dtype.IQ2_XXS, dtype.IQ3_XXS, dtype.IQ2_XS, dtype.IQ2_S, dtype.IQ3_S, dtype.IQ1_S, dtype.IQ1_M,
	dtype.TQ1_0, dtype.Q2_0, dtype.Q2_0_G64, dtype.NVFP4, dtype.Q1_0, dtype.Q8_K, dtype.Q8_1,
}

// BenchmarkRow measures products with one row of activations: of weights that the first cache holds,
// and of weights that no cache holds.
func BenchmarkRow(b *testing.B) {
	level, err := isa.Current()
	if err != nil {
		b.Fatal(err)
	}
	const n = 2048
	for _, d := range benchFormats {
		for _, bytes := range []int{16 << 10, 256 << 20} {
			rowBytes := n / d.BlockSize() * d.Size()
			rows := bytes / rowBytes
			w := make([]byte, rows*rowBytes)
			for i := range w {
				w[i] = byte(i * 7)
			}
			k, _ := KernelOf(d, level)
			act := make([]byte, ActSize(n))
			k.Quantize(act, row(rand.New(rand.NewPCG(1, 1)), n), 1, n)
			out := make([]float32, rows)
			b.Run(fmt.Sprintf("%s/%dKiB", d, bytes>>10), func(b *testing.B) {
				b.SetBytes(int64(len(w)))
				for b.Loop() {
					k.Row(out, w, rowBytes, n, act)
				}
			})
		}
	}
}

// BenchmarkPanel measures products with m rows of activations, in multiplications and additions.
func BenchmarkPanel(b *testing.B) {
	level, err := isa.Current()
	if err != nil {
		b.Fatal(err)
	}
	const n = 2048
	for _, d := range benchFormats {
		for _, m := range []int{4, 8, 32, 512} {
			k, _ := KernelOf(d, level)
			rowBytes := n / d.BlockSize() * d.Size()
			w := make([]byte, PanelRows*rowBytes)
			for i := range w {
				w[i] = byte(i * 7)
			}
			act := make([]byte, m*ActSize(n))
			k.Quantize(act, row(rand.New(rand.NewPCG(1, 1)), m*n), m, n)
			sums, scratch := make([]float32, m*PanelRows), make([]byte, ScratchBytes)
			b.Run(fmt.Sprintf("%s/m=%d", d, m), func(b *testing.B) {
				for b.Loop() {
					k.Panel(sums, w, rowBytes, PanelRows, n, act, m, scratch)
				}
				b.ReportMetric(2*float64(m)*PanelRows*n*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GOP/s")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// BenchmarkPeak measures the products that BenchmarkPanel could have at most, where loads, scales and
// unpacking take no time.
func BenchmarkPeak(b *testing.B) {
	level, err := isa.Current()
	if err != nil {
		b.Fatal(err)
	}
	ops := 0
	for b.Loop() {
		ops += Peak(level, 1)
	}
	b.ReportMetric(float64(ops)/float64(b.Elapsed().Nanoseconds()), "GOP/s")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkQuantize measures the quantization of activations.
func BenchmarkQuantize(b *testing.B) {
	level, err := isa.Current()
	if err != nil {
		b.Fatal(err)
	}
	const n = 2048
	x := row(rand.New(rand.NewPCG(1, 1)), n)
	act := make([]byte, ActSize(n))
	for _, d := range []dtype.DType{dtype.Q4_K, dtype.Q8_0} {
		k, _ := KernelOf(d, level)
		b.Run(d.String(), func(b *testing.B) {
			b.SetBytes(4 * n)
			for b.Loop() {
				k.Quantize(act, x, 1, n)
			}
		})
	}
}
