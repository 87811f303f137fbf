package vector

import (
	"encoding/binary"
	"math"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/internal/fma32"
	"github.com/x448/float16"
)

// Keys is the number of keys in a block.
const Keys = 64

var negInf = float32(math.Inf(-1))

// tiles are the functions of rows in number 4, 2 and 1, for f32 and for f16.
type (
	scorers      [2][3]func(out, q *float32, d int, keys *byte, offsets *int, n int, scale float32)
	accumulators [2][3]func(acc *float32, d int, w *float32, values *byte, offsets *int, n int)
)

// widener makes n rows f32.
type widener func(dst *float32, d int, src *byte, offsets *int, n int)

type attention struct {
	scores     scorers
	accumulate accumulators
	weights    func(p *float32, rows int, tops, totals, factors *float32)
	widen      widener
	widenQ80   widener
}

// Rows are rows of keys or values of D elements, a multiple of 16, in f32 or in f16.
type Rows struct {
	Data []byte
	// Offsets are where the rows begin in Data, which has D elements from there. All of them are
	// read.
	Offsets *[Keys]int
	D       int
	Half    bool
}

func (r *Rows) form() int {
	if r.Half {
		return 1
	}
	return 0
}

// Scores sets out [rows][Keys] to the products of q [rows][D] and the keys lo to hi-1, times scale.
// A product is a folded sum of sixteen chains of fma. Other elements of out are undefined.
func (l *Loops) Scores(out, q []float32, rows int, keys *Rows, lo, hi int, scale float32) {
	d := keys.D
	out, q = out[:rows*Keys], q[:rows*d]
	if lo >= hi {
		return
	}
	f := &l.scores[keys.form()]
	if f[0] != nil {
		lo &^= 15 // the most keys that are multiplied together
		for i, size := range [...]int{4, 2, 1} {
			for ; rows >= size; rows -= size {
				f[i](&out[lo], &q[0], d, &keys.Data[0], &keys.Offsets[lo], hi-lo, scale)
				out, q = out[size*Keys:], q[size*d:]
			}
		}
		return
	}
	for r := range rows {
		for j := lo; j < hi; j++ {
			out[r*Keys+j] = keys.dot(q[r*d:][:d], j) * scale
		}
	}
}

// dot returns the product of q and row j.
func (r *Rows) dot(q []float32, j int) float32 {
	var sums, row [16]float32
	for i := 0; i < len(q); i += 16 {
		r.load(&row, j, i)
		mulAdd(sums[:], q[i:i+16], row[:])
	}
	return fold(&sums)
}

// load sets x to the elements of row j from i on.
func (r *Rows) load(x *[16]float32, j, i int) {
	if r.Half {
		src := r.Data[r.Offsets[j]+2*i:][:32]
		for k := range x {
			x[k] = dtype.F16ToFloat32(float16.Float16(binary.LittleEndian.Uint16(src[2*k:])))
		}
		return
	}
	src := r.Data[r.Offsets[j]+4*i:][:64]
	for k := range x {
		x[k] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*k:]))
	}
}

// mulAdd adds x*y to sums in fma. Most of them are done without a call, as fma32.FMA does them.
func mulAdd(sums, x, y []float32) {
	x, y = x[:len(sums)], y[:len(sums)]
	for i, v := range sums {
		s := float64(x[i])*float64(y[i]) + float64(v)
		if math.Float64bits(s)<<36 != 0 {
			sums[i] = float32(s)
		} else {
			sums[i] = fma32.FMA(x[i], y[i], v)
		}
	}
}

// fold returns the sum of sixteen.
func fold(sums *[16]float32) float32 {
	v := *sums
	for n := 8; n > 0; n /= 2 {
		for i := range n {
			v[i] += v[i+n]
		}
	}
	return v[0]
}

// weightLeast is the least difference of scores whose weight is not 0. Its exponential is a normal
// number: processors take a hundred times as long for smaller ones, and a key that is masked has a
// score of -Inf.
const weightLeast = -87

// weight returns e^d, or 0 if d is below weightLeast.
func weight(d float32) float32 {
	if d < weightLeast {
		return 0
	}
	return Exp(d)
}

// Weights replaces the scores p [rows][Keys] by weights relative to the largest score, exp(p-top),
// or 0 if p-top is below -87, where top is that of a row and of tops. It sets tops to these, totals
// to the sums of the weights, which are folded sums, and factors to the weights of the tops before. A top is NaN if one of its scores is;
// then the other results are NaN, as they are if it is -Inf.
func (l *Loops) Weights(p []float32, rows int, tops, totals, factors []float32) {
	p, tops, totals, factors = p[:rows*Keys], tops[:rows], totals[:rows], factors[:rows]
	if rows == 0 {
		return
	}
	if l.weights != nil {
		l.weights(&p[0], rows, &tops[0], &totals[0], &factors[0])
		return
	}
	for r, before := range tops {
		p := p[r*Keys:][:Keys]
		if m := most(p); m > before || m != m {
			tops[r] = m
		}
		factors[r] = weight(before - tops[r])
		var sums [16]float32
		for i, v := range p {
			p[i] = weight(v - tops[r])
			sums[i&15] += p[i]
		}
		totals[r] = fold(&sums)
	}
}

// Accumulate adds the values lo to hi-1, times the weights w [rows][Keys], to acc [rows][D], each
// element in a chain of fma.
func (l *Loops) Accumulate(acc, w []float32, rows int, values *Rows, lo, hi int) {
	d := values.D
	acc, w = acc[:rows*d], w[:rows*Keys]
	if lo >= hi {
		return
	}
	f := &l.accumulate[values.form()]
	if f[0] != nil {
		for i, size := range [...]int{4, 2, 1} {
			for ; rows >= size; rows -= size {
				f[i](&acc[0], d, &w[lo], &values.Data[0], &values.Offsets[lo], hi-lo)
				acc, w = acc[size*d:], w[size*Keys:]
			}
		}
		return
	}
	for r := range rows {
		acc := acc[r*d:][:d]
		var row, weight [16]float32
		for j := lo; j < hi; j++ {
			for i := range weight {
				weight[i] = w[r*Keys+j]
			}
			for i := 0; i < d; i += 16 {
				values.load(&row, j, i)
				mulAdd(acc[i:i+16], weight[:], row[:])
			}
		}
	}
}

// Widen sets dst [Keys][D] to the first n rows, which are f16.
func (l *Loops) Widen(dst []float32, rows *Rows, n int) {
	dst = dst[:n*rows.D]
	if l.widen != nil {
		l.widen.run(dst, rows, n)
		return
	}
	for i := 0; i < len(dst); i += 16 {
		rows.load((*[16]float32)(dst[i:]), i/rows.D, i%rows.D)
	}
}

// WidenQ80 sets dst [Keys][D] to the first n rows, which are q8_0. D is a multiple of 32.
func (l *Loops) WidenQ80(dst []float32, rows *Rows, n int) {
	dst = dst[:n*rows.D]
	if l.widenQ80 != nil {
		l.widenQ80.run(dst, rows, n)
		return
	}
	for j := range n {
		row := rows.Data[rows.Offsets[j]:][:rows.D/32*34]
		for ; len(row) > 0; row, dst = row[34:], dst[32:] {
			scale := dtype.F16ToFloat32(float16.Float16(binary.LittleEndian.Uint16(row)))
			for i, c := range row[2:34] {
				dst[i] = scale * float32(int8(c))
			}
		}
	}
}

func (f widener) run(dst []float32, rows *Rows, n int) {
	if n > 0 {
		f(&dst[0], rows.D, &rows.Data[0], &rows.Offsets[0], n)
	}
}
