package vector

import (
	"math/rand/v2"
	"testing"

	"github.com/fucina-go/fucina/internal/isa"
)

// Benchmarks report nanoseconds an element, or a product of two elements, in memory that stays in
// the first or the second cache. "copy" is the floor of memory.

func benchmark(b *testing.B, elements int, f func(l *Loops)) {
	for _, level := range isa.Supported() {
		if l := Of(level); level == isa.Generic || l != Of(level-1) {
			b.Run(level.String(), func(b *testing.B) {
				for b.Loop() {
					f(l)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(elements), "ns/element")
			})
		}
	}
}

func BenchmarkLoops(b *testing.B) {
	const n = 4096
	r := rand.New(rand.NewPCG(7, 8))
	x, y, out := make([]float32, n), make([]float32, n), make([]float32, n)
	fill(r, x, false)
	fill(r, y, false)
	var sums Sums
	b.Run("copy", func(b *testing.B) {
		for b.Loop() {
			copy(out, x)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/element")
	})
	for _, c := range []struct {
		name string
		f    func(l *Loops)
	}{
		{"add", func(l *Loops) { l.Add(out, x, y) }},
		{"swiglu", func(l *Loops) { l.SwiGLU(out, x, y) }},
		{"geglu", func(l *Loops) { l.GeGLU(out, x, y) }},
		{"softcap", func(l *Loops) { l.SoftCap(out, x, 5) }},
		{"weigh", func(l *Loops) { l.Weigh(out, x, y, 5) }},
		{"squares", func(l *Loops) { l.Squares(&sums, x) }},
		{"exps", func(l *Loops) { copy(out, x); l.Exps(&sums, out, 5) }},
		{"turn", func(l *Loops) { l.Turn(out, x, y) }},
		{"turnNeoX", func(l *Loops) { l.TurnNeoX(out[:n/2], out[n/2:], x[:n/2], x[n/2:], y) }},
		{"max", func(l *Loops) { l.Max(x) }},
	} {
		b.Run(c.name, func(b *testing.B) { benchmark(b, n, c.f) })
	}
}
