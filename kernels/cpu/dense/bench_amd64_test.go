//go:build amd64 && !noasm

package dense

import (
	"fmt"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/internal/isa"
)

// level returns the level of the benchmarks.
func level(b *testing.B) isa.Level {
	level, err := isa.Current()
	if err != nil {
		b.Fatal(err)
	}
	return level
}

// report reports the rate of n multiplications and additions an operation.
func report(b *testing.B, n float64) {
	b.ReportMetric(2*n*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GFLOP/s")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkPeak measures what the processor can do: multiplications and additions, and reads from
// memory.
func BenchmarkPeak(b *testing.B) {
	b.Run("fma", func(b *testing.B) {
		probe, n := probeFMA2, 8*12
		switch l := level(b); {
		case l >= isa.AVX512:
			probe, n = probeFMA512, 16*24
		case l < isa.AVX2:
			b.Fatal("no vectors")
		}
		for b.Loop() {
			probe(1000)
		}
		report(b, 1000*float64(n))
	})
	b.Run("read", func(b *testing.B) {
		w := make([]byte, 256<<20)
		for i := range w {
			w[i] = byte(i)
		}
		b.SetBytes(int64(len(w)))
		for b.Loop() {
			for i := 0; i < len(w); i += 1 << 20 {
				probeRead2(&w[i], 1<<20/64)
			}
		}
	})
}

// BenchmarkRow measures products with one row of x: of weights that the second cache holds, and of
// weights that no cache holds.
func BenchmarkRow(b *testing.B) {
	const n = 2048
	for _, d := range formats {
		for _, bytes := range []int{512 << 10, 256 << 20} {
			rowBytes := n * d.Size()
			w, x := make([]byte, bytes), make([]float32, n)
			for i := range w {
				w[i] = byte(i * 7 & 0x3f)
			}
			out := make([]float32, bytes/rowBytes)
			k, _ := KernelOf(d, level(b))
			b.Run(fmt.Sprintf("%s/%dKiB", d, bytes>>10), func(b *testing.B) {
				b.SetBytes(int64(bytes))
				for b.Loop() {
					k.Row(out, w, rowBytes, x)
				}
			})
		}
	}
}

// BenchmarkMultiply measures products of m rows of x by a matrix of n by n weights, divided as the
// caller does.
func BenchmarkMultiply(b *testing.B) {
	for _, d := range formats {
		for _, n := range []int{256, 512, 1024, 2048} {
			for _, m := range []int{1, 2, 3, 4, 8, 16, 64, n} {
				if d != dtype.F32 && (m > 64 || n != 1024) {
					continue
				}
				w, x, out := make([]byte, n*n*d.Size()), make([]float32, m*n), make([]float32, m*n)
				k, _ := KernelOf(d, level(b))
				scratch := make([]byte, ScratchBytes(2*UnitRows, m, n))
				b.Run(fmt.Sprintf("%s/n=%d/m=%d", d, n, m), func(b *testing.B) {
					for b.Loop() {
						multiply(k, out, w, x, m, n, scratch)
					}
					report(b, float64(m)*float64(n)*float64(n))
				})
			}
		}
	}
}

// multiply multiplies m rows of x by n by n weights, in units.
func multiply(k *Kernel, out []float32, w []byte, x []float32, m, n int, scratch []byte) {
	rowBytes, chunk := n*k.size, Chunk(n)
	for lo := 0; lo < m; lo += chunk {
		for r := 0; r < n; r += 2 * UnitRows {
			k.Multiply(out[lo*n+r:], n, w[r*rowBytes:], rowBytes, min(2*UnitRows, n-r), x[lo*n:], n, min(chunk, m-lo), n, scratch)
		}
	}
}

// BenchmarkConvert measures the conversions.
func BenchmarkConvert(b *testing.B) {
	for _, d := range formats[1:] {
		k, _ := KernelOf(d, level(b))
		w, x := make([]byte, 4096*d.Size()), make([]float32, 4096)
		b.Run("widen/"+d.String(), func(b *testing.B) {
			b.SetBytes(4 * 4096)
			for b.Loop() {
				k.Widen(x, w)
			}
		})
		b.Run("narrow/"+d.String(), func(b *testing.B) {
			b.SetBytes(4 * 4096)
			for b.Loop() {
				k.Narrow(w, x)
			}
		})
	}
}
