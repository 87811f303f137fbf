package vector

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/fucina-go/fucina/internal/isa"
)

// Every loop has the bits of the definition, whatever the numbers are.
func FuzzLoops(f *testing.F) {
	var seed []byte
	for _, v := range special {
		seed = binary.LittleEndian.AppendUint32(seed, math.Float32bits(v))
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, b []byte) {
		x := make([]float32, min(len(b)/4, 200))
		for i := range x {
			x[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		}
		if len(x) < 2 {
			return
		}
		c, y := x[0], x[1:]
		x = x[:len(y)]
		even, half := len(x)&^1, len(x)/2
		run := func(l *Loops) (all []float32, sums Sums) {
			out := make([]float32, len(x))
			keep := func() { all = append(all, out...) }
			l.Add(out, x, y)
			keep()
			l.Mul(out, x, y)
			keep()
			l.SwiGLU(out, x, y)
			keep()
			l.GeGLU(out, x, y)
			keep()
			l.Scale(out, x, c)
			keep()
			l.SoftCap(out, x, c)
			keep()
			l.Weigh(out, x, y, c)
			keep()
			l.Turn(out[:even], x, y[:even])
			keep()
			l.TurnNeoX(out[:half], out[half:], x, y, x[:2*half])
			keep()
			l.Squares(&sums, x)
			copy(out, x)
			l.Exps(&sums, out, c)
			keep()
			return append(all, l.Max(x)), sums
		}
		want, wantSums := run(&definition)
		for _, level := range isa.Supported()[1:] {
			got, sums := run(Of(level))
			same(t, level, "loops", got, want)
			sameSums(t, level, "loops", &sums, &wantSums)
		}
	})
}
