package simd

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/internal/isa"
	"github.com/fucina-go/fucina/quant"
)

var benchFormats = []dtype.DType{
	dtype.Q4_K, dtype.Q5_K, dtype.Q6_K, dtype.Q2_K, dtype.Q3_K, dtype.IQ4_XS, dtype.TQ2_0,
	dtype.Q4_0, dtype.Q4_1, dtype.Q5_0, dtype.Q5_1, dtype.Q8_0, dtype.IQ4_NL, dtype.MXFP4, dtype.NVFP4,
}

// benchRows returns blocks of weights of moderate size: subnormal products would take long.
func benchRows(b *testing.B, d dtype.DType, bytes int) []byte {
	b.Helper()
	r := rand.New(rand.NewPCG(2, 2))
	w, y := make([]byte, d.Size()), make([]float32, d.BlockSize())
	for good := false; !good; {
		for i := range w {
			w[i] = byte(r.Uint32())
		}
		if err := quant.DecodeRow(y, d, w); err != nil {
			b.Fatal(err)
		}
		var most float64
		for _, v := range y {
			most = max(most, math.Abs(float64(v)))
		}
		good = 1e-3 < most && most < 1e3
	}
	return slices.Repeat(w, bytes/len(w))
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
			w := benchRows(b, d, rows*rowBytes)
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
			w := benchRows(b, d, PanelRows*rowBytes)
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
