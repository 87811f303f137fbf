package vector

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/internal/isa"
	"github.com/fucina-go/fucina/quant"
)

// same checks that got has the bits of want. A NaN is any NaN.
func same(t *testing.T, level isa.Level, what string, got, want []float32) {
	t.Helper()
	for i, w := range want {
		if g := got[i]; math.Float32bits(g) != math.Float32bits(w) && (g == g || w == w) {
			t.Fatalf("%v: %s: element %d of %d is %v, want %v", level, what, i, len(want), g, w)
		}
	}
}

func sameSums(t *testing.T, level isa.Level, what string, got, want *Sums) {
	t.Helper()
	for i, w := range want {
		if g := got[i]; math.Float64bits(g) != math.Float64bits(w) && (g == g || w == w) {
			t.Fatalf("%v: %s: sum %d is %v, want %v", level, what, i, g, w)
		}
	}
}

// fill sets x to random numbers, some of them special.
func fill(r *rand.Rand, x []float32, odd bool) {
	for i := range x {
		x[i] = float32(r.NormFloat64() * 4)
		if odd && r.IntN(8) == 0 {
			x[i] = special[r.IntN(len(special))]
		}
	}
}

// A loop has the bits of the definition at every length around the width of a register, with every
// alignment, and touches nothing after its operands.
func TestLoops(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	const most = 100
	a, b, c, d := guarded(t, most), guarded(t, most), guarded(t, most), make([]float32, most)
	for _, level := range isa.Supported() {
		l := Of(level)
		for n := 1; n < most; n++ {
			// The end of a slice is at the guard page. The bytes before it must not change.
			x, y, out, want := a[most-n:], b[most-n:], c[most-n:], d[:n]
			fill(r, a, n%3 > 0)
			fill(r, b, n%3 > 1)
			check := func(what string, f func(l *Loops, out []float32)) {
				t.Helper()
				fill(r, c, false)
				before := append([]float32(nil), c[:most-n]...)
				f(&definition, want)
				f(l, out)
				same(t, level, what, out, want)
				same(t, level, what+", before the output", c, before)
			}
			check("add", func(l *Loops, out []float32) { l.Add(out, x, y) })
			check("sub", func(l *Loops, out []float32) { l.Sub(out, x, y) })
			check("mul", func(l *Loops, out []float32) { l.Mul(out, x, y) })
			check("swiglu", func(l *Loops, out []float32) { l.SwiGLU(out, x, y) })
			check("geglu", func(l *Loops, out []float32) { l.GeGLU(out, x, y) })
			check("scale", func(l *Loops, out []float32) { l.Scale(out, x, y[0]) })
			check("softcap", func(l *Loops, out []float32) { l.SoftCap(out, x, y[0]) })
			check("weigh", func(l *Loops, out []float32) { l.Weigh(out, x, y, y[0]) })
			table := make([]float32, 2*n)
			fill(r, table, n%3 > 1)
			even := n &^ 1
			check("turn", func(l *Loops, out []float32) { copy(out, x); l.Turn(out[:even], x[:even], table) })
			half := n / 2
			check("turnNeoX", func(l *Loops, out []float32) {
				copy(out, x)
				l.TurnNeoX(out[:half], out[n-half:], x[:half], x[n-half:], table)
			})
			var got, sums Sums
			for i := range got {
				got[i] = r.Float64()
			}
			sums = got
			l.Squares(&got, x)
			definition.Squares(&sums, x)
			sameSums(t, level, "squares", &got, &sums)
			check("exps", func(l *Loops, out []float32) {
				copy(out, x)
				s := &got
				if &out[0] == &d[0] {
					s = &sums
				}
				l.Exps(s, out, y[0])
			})
			sameSums(t, level, "exps", &got, &sums)
			same(t, level, "max", []float32{l.Max(x)}, []float32{definition.Max(x)})
			fill(r, a, false)
			x[n-1] = 50
			same(t, level, "max", []float32{l.Max(x)}, []float32{50})
			x[r.IntN(n)] = float32(math.NaN())
			if got := l.Max(x); got == got {
				t.Fatalf("%v: max of %d with a NaN is %v", level, n, got)
			}
		}
	}
}

// Blocks of q8_0 have the bits of package quant: ties, codes at the ends of their range, tiny and
// large scales, up to the first block that cannot be encoded.
func TestEncodeQ80(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 16))
	const blocks = 9
	x := guarded(t, 32*blocks)
	for _, level := range isa.Supported()[1:] {
		l := Of(level)
		if !l.Vectors() {
			continue
		}
		for i := range 400 {
			fill(r, x, false)
			scale := float32(math.Ldexp(1, r.IntN(60)-40))
			for j := range x {
				switch x[j] *= scale; i % 4 {
				case 1: // ties, if the scale is a power of two
					x[j] = scale * (float32(r.IntN(255)-127) / 2)
					if j%32 == 0 {
						x[j] = 127 * scale
					}
				case 2:
					x[j] *= 1e-38
				case 3:
					if r.IntN(200) == 0 {
						x[j] = special[r.IntN(len(special))]
					}
				}
			}
			want, got := make([]byte, 34*blocks), make([]byte, 34*blocks)
			n := 0
			for n < blocks && quant.EncodeRow(want[34*n:][:34], dtype.Q8_0, x[32*n:][:32]) == nil {
				n++
			}
			most := 0
			for most < blocks && l.Max(x[32*most:][:32]) < 65504*127 && -slices.Min(x[32*most:][:32]) < 65504*127 {
				most++
			}
			if done := l.EncodeQ80(got, x); done != most || done > n || !slices.Equal(got[:34*done], want[:34*done]) {
				t.Fatalf("%v: %d blocks, want %d; got %v, want %v", level, done, most, got[:34*done], want[:34*done])
			}
		}
	}
}

// Nothing is an input like any other.
func TestEmpty(t *testing.T) {
	for _, level := range isa.Supported() {
		l := Of(level)
		var sums Sums
		l.Add(nil, nil, nil)
		l.Scale(nil, nil, 1)
		l.SoftCap(nil, nil, 1)
		l.Weigh(nil, nil, nil, 1)
		l.Squares(&sums, nil)
		l.Exps(&sums, nil, 1)
		if got := l.Max(nil); sums != (Sums{}) || !math.IsInf(float64(got), -1) {
			t.Errorf("%v: sums %v, max %v", level, sums, got)
		}
	}
}

// A loop that takes several calls has the bits of the definition, and an output may be an input.
func TestLongLoops(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	n := 2*longest + 5
	x, y := make([]float32, n), make([]float32, n)
	fill(r, x, true)
	fill(r, y, true)
	for _, level := range isa.Supported()[1:] {
		l := Of(level)
		run := func(l *Loops) (out []float32, sums Sums) {
			out = append(out, x...)
			l.Add(out, out, y)
			l.SwiGLU(out, y, out)
			l.Weigh(out, out, out, 0.5)
			l.Scale(out, out, 3)
			l.SoftCap(out, out, 5)
			l.Squares(&sums, out)
			l.Exps(&sums, out, 5)
			return append(out, l.Max(y[:n-3]), float32(sums.Total())), sums
		}
		got, _ := run(l)
		want, _ := run(&definition)
		same(t, level, "all", got, want)
	}
}

// The functions have the same bits over numbers of all exponents, on all processors.
func TestSample(t *testing.T) {
	x := sample()
	var few []float32
	for i := 0; i < len(x); i += 16 {
		few = append(few, x[i])
	}
	if testing.Short() {
		x = x[:len(x)/8]
	}
	got, want, ones := make([]float32, len(x)), make([]float32, len(x)), make([]float32, len(x))
	for i := range ones {
		ones[i] = 1
	}
	for _, c := range []struct {
		name string
		f    func(l *Loops, out, x []float32)
		bits uint64
	}{
		{"swiglu", func(l *Loops, out, x []float32) { l.SwiGLU(out, x, ones) }, 0x8247df97a3fb211a},
		{"geglu", func(l *Loops, out, x []float32) { l.GeGLU(out, x, ones) }, 0x1140961b75cd9624},
		{"tanh", func(l *Loops, out, x []float32) { l.SoftCap(out, x, 1) }, 0x75af0806d8e8fb2b},
		{"exp", func(l *Loops, out, x []float32) { copy(out, x); l.Exps(new(Sums), out, 0) }, 0xb7c7ac76739e2dcb},
	} {
		c.f(&definition, want[:len(few)], few)
		h := fnv.New64a()
		for _, v := range want[:len(few)] {
			if v != v {
				v = 0
			}
			h.Write(binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)))
		}
		if bits := h.Sum64(); bits != c.bits {
			t.Errorf("%s: the bits have the hash %#x, want %#x", c.name, bits, c.bits)
		}
		checked := false
		for _, level := range isa.Supported() {
			if l := Of(level); l.Vectors() {
				if !checked {
					c.f(&definition, want, x)
					checked = true
				}
				c.f(l, got, x)
				same(t, level, c.name, got, want)
			}
		}
	}
}
