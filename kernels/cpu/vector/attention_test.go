package vector

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/internal/isa"
)

// randomRows returns rows at random places, the last of which ends at a page that cannot be read.
func randomRows(t testing.TB, r *rand.Rand, d int, half, odd bool) *Rows {
	size := 4
	if half {
		size = 2
	}
	const most = 2 * Keys
	mem := guarded(t, most*d*size/4+3)
	data := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(mem))), 4*len(mem))
	rows := &Rows{Data: data, Offsets: new([Keys]int), D: d, Half: half}
	values := make([]float32, len(data)/size)
	fill(r, values, odd)
	for i, v := range values {
		if half {
			binary.LittleEndian.PutUint16(data[2*i:], uint16(dtype.F16FromFloat32(v)))
		} else {
			binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(v))
		}
	}
	for i := range rows.Offsets {
		rows.Offsets[i] = r.IntN(len(data) - d*size)
		if odd && !half || i == Keys-1 {
			rows.Offsets[i] = len(data) - d*size*(1+r.IntN(most))
		}
	}
	rows.Offsets[r.IntN(Keys)] = len(data) - d*size
	return rows
}

// The loops of attention have the bits of the definition for any number of rows and keys.
func TestAttention(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for _, d := range []int{16, 48, 64, 80, 208} {
		for i := range 8 {
			half, odd := i%2 > 0, i%4 > 1
			keys := randomRows(t, r, d, half, odd)
			rows := 1 + r.IntN(9)
			lo := r.IntN(Keys)
			hi := lo + 1 + r.IntN(Keys-lo)
			if i < 4 {
				lo, hi = 0, Keys
			}
			q := make([]float32, rows*d)
			fill(r, q, odd)
			weights := make([]float32, rows*Keys)
			fill(r, weights, odd)
			scale := float32(r.NormFloat64())
			run := func(l *Loops) (scores, weighted, tops, acc, wide []float32) {
				scores, wide = make([]float32, rows*Keys), make([]float32, Keys*d)
				tops, acc = make([]float32, 3*rows), append([]float32(nil), q...)
				l.Scores(scores, q, rows, keys, lo, hi, scale)
				for i := range scores {
					if i%Keys >= hi || i%Keys < lo {
						scores[i] = negInf
					}
				}
				weighted = append(weighted, scores...)
				tops[0] = scores[lo] + 1
				l.Weights(weighted, rows, tops[:rows], tops[rows:2*rows], tops[2*rows:])
				l.Accumulate(acc, weights, rows, keys, lo, hi)
				if half {
					l.Widen(wide, keys, hi)
				} else if d%32 == 0 { // there is more memory than its rows need
					l.WidenQ80(wide, keys, hi)
				}
				return scores, weighted, tops, acc, wide
			}
			want := [5][]float32{}
			want[0], want[1], want[2], want[3], want[4] = run(&definition)
			for _, level := range isa.Supported()[1:] {
				got := [5][]float32{}
				got[0], got[1], got[2], got[3], got[4] = run(Of(level))
				for i, name := range []string{"scores", "weights", "tops and totals", "accumulated values", "widened rows"} {
					same(t, level, name, got[i], want[i])
				}
			}
		}
	}
}

// Weights have the bits of the definition where they become 0, for any number of rows. They are 0 or
// normal numbers.
func TestWeights(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 16))
	inf := float32(math.Inf(1))
	for rows := 1; rows < 40; rows++ {
		p, before := guarded(t, rows*Keys), make([]float32, rows)
		for i := range p {
			switch r.IntN(4) {
			case 0:
				p[i] = negInf
			case 1:
				p[i] = math.Float32frombits(math.Float32bits(weightLeast) + uint32(r.IntN(5)) - 2)
			case 2:
				p[i] = -110 * r.Float32()
			}
		}
		for i := range before {
			before[i] = []float32{negInf, weightLeast, -87.00001, 0, 86.5, 1e30, inf}[r.IntN(7)]
		}
		run := func(l *Loops) (weights, rest []float32) {
			weights = guarded(t, rows*Keys)
			copy(weights, p)
			tops, totals, factors := guarded(t, rows), guarded(t, rows), guarded(t, rows)
			copy(tops, before)
			l.Weights(weights, rows, tops, totals, factors)
			return weights, slices.Concat(tops, totals, factors)
		}
		want, wantRest := run(&definition)
		for _, v := range want {
			if v != 0 && v < 0x1p-126 {
				t.Fatalf("weight %g is not normal", v)
			}
		}
		for _, level := range isa.Supported()[1:] {
			got, rest := run(Of(level))
			same(t, level, "weights", got, want)
			same(t, level, "tops, totals and factors", rest, wantRest)
		}
	}
}

// Scores and weighted values are near those in float64.
func TestAttentionError(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	const d, rows = 128, 3
	levels := isa.Supported()
	l := Of(levels[len(levels)-1])
	keys := randomRows(t, r, d, false, false)
	q, scores := make([]float32, rows*d), make([]float32, rows*Keys)
	fill(r, q, false)
	for i := range keys.Offsets {
		keys.Offsets[i] &^= 3
	}
	acc := make([]float32, rows*d)
	l.Scores(scores, q, rows, keys, 0, Keys, 0.5)
	l.Accumulate(acc, scores, rows, keys, 0, Keys)
	near := func(got float32, want, size float64) {
		t.Helper()
		if math.Abs(float64(got)-want) > 1e-6*size {
			t.Fatalf("got %v, want %v", got, want)
		}
	}
	at := func(j, i int) float64 {
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(keys.Data[keys.Offsets[j]+4*i:])))
	}
	for i := range rows {
		for j := range Keys {
			sum, size := 0.0, 0.0
			for k := range d {
				p := float64(q[i*d+k]) * at(j, k) / 2
				sum, size = sum+p, size+math.Abs(p)
			}
			near(scores[i*Keys+j], sum, size)
		}
		for k := range d {
			sum, size := 0.0, 0.0
			for j := range Keys {
				p := float64(scores[i*Keys+j]) * at(j, k)
				sum, size = sum+p, size+math.Abs(p)
			}
			near(acc[i*d+k], sum, size)
		}
	}
	tops, totals, factors := []float32{negInf, 1e5, negInf}, make([]float32, rows), make([]float32, rows)
	for j := range Keys {
		scores[2*Keys+j] = negInf
	}
	p := append([]float32(nil), scores...)
	l.Weights(p, rows, tops, totals, factors)
	top, sum := float64(l.Max(scores[:Keys])), 0.0
	for j := range Keys {
		w := math.Exp(float64(scores[j]) - top)
		near(p[j], w, 1)
		sum += w
	}
	near(totals[0], sum, sum)
	if factors[0] != 0 || factors[1] != 1 {
		t.Errorf("factors %v", factors)
	}
	tops[0] = float32(top) - 3
	copy(p, scores)
	if l.Weights(p, rows, tops, totals, factors); math.Abs(float64(factors[0])-math.Exp(-3)) > 1e-6 {
		t.Errorf("factors %v", factors)
	}
	if float64(tops[0]) != top || tops[1] != 1e5 || totals[1] != 0 || tops[2] != negInf || totals[2] == totals[2] {
		t.Errorf("tops %v, totals %v", tops, totals)
	}
}

// BenchmarkAttention reports the time for a block of keys and values, by the number of rows.
func BenchmarkAttention(b *testing.B) {
	r := rand.New(rand.NewPCG(13, 14))
	for _, d := range []int{64, 128} {
		for _, rows := range []int{1, 2, 4, 16} {
			for _, half := range []bool{false, true} {
				keys := randomRows(b, r, d, half, false)
				size := 4
				if half {
					size = 2
				}
				for i := range keys.Offsets {
					keys.Offsets[i] = i * d * size
				}
				q, acc, p := make([]float32, rows*d), make([]float32, rows*d), make([]float32, rows*Keys)
				tops, totals, factors := make([]float32, rows), make([]float32, rows), make([]float32, rows)
				fill(r, q, false)
				name := map[bool]string{false: "f32", true: "f16"}[half]
				for what, f := range map[string]func(l *Loops){
					"scores":     func(l *Loops) { l.Scores(p, q, rows, keys, 0, Keys, 1) },
					"accumulate": func(l *Loops) { l.Accumulate(acc, p, rows, keys, 0, Keys) },
					"weights": func(l *Loops) {
						for i := range p {
							p[i] = float32(i&15) * -0.25
						}
						l.Weights(p, rows, tops, totals, factors)
					},
				} {
					if what == "weights" && (half || d == 128) {
						continue
					}
					n := rows * Keys * d
					if what == "weights" {
						n = rows * Keys
					}
					b.Run(fmt.Sprintf("%s/%s/d=%d/rows=%d", what, name, d, rows), func(b *testing.B) { benchmark(b, n, f) })
				}
			}
		}
	}
}
