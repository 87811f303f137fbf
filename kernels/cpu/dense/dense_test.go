package dense

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/internal/fma32"
	"github.com/fucina-go/fucina/internal/isa"
	"github.com/fucina-go/fucina/quant"
)

var formats = []dtype.DType{dtype.F32, dtype.F16, dtype.BF16}

// same reports whether a and b have the same bits, or are both NaN.
func same(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}

// floats returns n values that end where memory ends that may be used.
func floats(t testing.TB, n int) []float32 {
	b := guarded(t, 4*n)
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// The definition of the order of a product is that of the package comment.
func TestDotOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 100 {
		x, w := make([]float32, n), make([]byte, 4*n)
		var sum [16]float32
		for i := range x {
			x[i] = float32(r.NormFloat64())
			v := float32(r.NormFloat64())
			binary.LittleEndian.PutUint32(w[4*i:], math.Float32bits(v))
			sum[i%16] = fma32.FMA(x[i], v, sum[i%16])
		}
		for _, half := range []int{8, 4, 2, 1} {
			for i := range half {
				sum[i] += sum[i+half]
			}
		}
		if got := Dot(dtype.F32, w, x); got != sum[0] {
			t.Errorf("%d elements: %v, want %v", n, got, sum[0])
		}
	}
}

// Products are near those in float64.
func TestDotExact(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, d := range formats {
		for _, n := range []int{1, 16, 100, 5000} {
			x, v, w := make([]float32, n), make([]float32, n), make([]byte, n*d.Size())
			for i := range x {
				x[i], v[i] = float32(r.NormFloat64()), float32(r.NormFloat64())
			}
			if err := quant.EncodeRow(w, d, v); err != nil {
				t.Fatal(err)
			}
			if err := quant.DecodeRow(v, d, w); err != nil {
				t.Fatal(err)
			}
			var want, size float64
			for i := range x {
				want += float64(x[i]) * float64(v[i])
				size += math.Abs(float64(x[i]) * float64(v[i]))
			}
			if got := Dot(d, w, x); math.Abs(float64(got)-want) > size*float64(n/16+5)*0x1p-24 {
				t.Errorf("%s, %d elements: %v, want %v", d, n, got, want)
			}
		}
	}
}

// fill sets x to values of all kinds: numbers, or numbers of very different sizes whose products are
// often subnormal, or some that are not finite.
func fill(r *rand.Rand, x []float32, kind int) {
	for i := range x {
		switch v := r.NormFloat64(); {
		case kind == 1:
			x[i] = float32(math.Ldexp(v, r.IntN(60)-80))
		case kind == 2 && r.IntN(len(x)) == 0:
			x[i] = []float32{float32(math.Inf(1)), float32(math.NaN()), math.MaxFloat32, float32(math.Inf(-1))}[r.IntN(4)]
		case r.IntN(8) == 0:
			x[i] = float32(math.Copysign(0, v))
		default:
			x[i] = float32(v)
		}
	}
}

// Every kernel of every level has the bits of the definition, for one row of x and for many, for
// rows of any length, and reads and writes nothing else.
func TestKernels(t *testing.T) {
	const most, mostX = 11, 100
	for _, d := range formats {
		r := rand.New(rand.NewPCG(5, uint64(d)))
		for _, c := range []struct{ n, m int }{
			{0, 5}, {1, 4}, {2, 1}, {7, 3}, {8, 7}, {9, 2}, {15, 5}, {16, 4}, {17, 9}, {24, 6}, {31, 3}, {32, 8}, {33, 26},
			{47, 4}, {48, 7}, {511, 5}, {513, 30}, {1023, 4}, {1024, 13}, {1025, 25}, {2064, 6}, {2070, 12}, {208, mostX},
		} {
			rowBytes, xStride := c.n*d.Size()+c.n%3, c.n+c.m%4
			w := guarded(t, (most-1)*rowBytes+c.n*d.Size())
			x := floats(t, (c.m-1)*xStride+c.n)
			row := make([]float32, c.n)
			for i := range most {
				fill(r, row, i%3)
				narrow(w[i*rowBytes:], row, d)
			}
			for i := range c.m {
				fill(r, x[i*xStride:][:c.n], i%3)
			}
			want := make([]float32, most*c.m)
			for i := range want {
				want[i] = Dot(d, w[i%most*rowBytes:][:c.n*d.Size()], x[i/most*xStride:][:c.n])
			}
			for _, level := range isa.Supported() {
				k, _ := KernelOf(d, level)
				for rows := most; rows > 0; rows-- {
					if (k.tiles.w == 0 || !k.vector(c.n)) && rows < most {
						break // only the definition
					}
					name := fmt.Sprintf("%s, %s, %d elements, %d rows", d, level, c.n, rows)
					w := w[(most-rows)*rowBytes:]
					want := want[most-rows:]
					check(t, name+", one row of x", want, func(out []float32, i int) {
						k.Row(out, w, rowBytes, x[i*xStride:][:c.n])
					}, rows, min(c.m, 4))
					outStride := rows + rows%3
					out := floats(t, (c.m-1)*outStride+rows)
					for i := range out {
						out[i] = 12345
					}
					k.Multiply(out, outStride, w, rowBytes, rows, x, xStride, c.m, c.n, make([]byte, ScratchBytes(rows, c.m, c.n)))
					check(t, fmt.Sprintf("%s, %d rows of x", name, c.m), want, func(dst []float32, i int) {
						copy(dst, out[i*outStride:])
						for _, v := range out[i*outStride+rows : min(len(out), (i+1)*outStride)] {
							if v != 12345 {
								t.Fatalf("%s: wrote behind the products", name)
							}
						}
					}, rows, c.m)
				}
			}
		}
	}
}

// Weights of any bits have the bits of the definition at all levels.
func FuzzWeights(f *testing.F) {
	f.Add([]byte("a row of weights that is longer than a vector of sixteen values of f32"), uint8(0))
	f.Add([]byte{0, 0, 0x80, 0x7f, 0, 0xfc, 0xff, 0xff, 1, 0, 0, 0x80}, uint8(1))
	f.Fuzz(func(t *testing.T, w []byte, seed uint8) {
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		for _, d := range formats {
			n := min(len(w)/d.Size(), 1<<11)
			x := make([]float32, n)
			fill(r, x, int(seed)%3)
			want := Dot(d, w[:n*d.Size()], x)
			for _, level := range isa.Supported() {
				k, _ := KernelOf(d, level)
				out := make([]float32, 2)
				k.Row(out[:1], w[:n*d.Size()], n*d.Size(), x)
				if !same(out[0], want) {
					t.Errorf("%s, %s: the product is %v, want %v", d, level, out[0], want)
				}
				k.Multiply(out, 1, w[:n*d.Size()], n*d.Size(), 1, x, 0, 2, n, make([]byte, ScratchBytes(1, 2, n)))
				if !same(out[0], want) || !same(out[1], want) {
					t.Errorf("%s, %s: the products with two rows of x are %v, want %v", d, level, out, want)
				}
			}
		}
	})
}

// Products that are -0 remain it if a row ends within a vector: what is not there is not added as 0.
func TestNegativeZero(t *testing.T) {
	const rows, m = 9, 5
	for _, d := range formats {
		for _, n := range []int{16, 17, 24, 31, 32, 41} {
			x, v := make([]float32, m*n), make([]float32, rows*n)
			for i := range x {
				x[i] = 0x1p-140
			}
			for i := range v {
				v[i] = -0x1p-24
			}
			w := make([]byte, len(v)*d.Size())
			narrow(w, v, d)
			for _, level := range isa.Supported() {
				k, _ := KernelOf(d, level)
				out := make([]float32, m*rows)
				k.Multiply(out, rows, w, n*d.Size(), rows, x, n, m, n, make([]byte, ScratchBytes(rows, m, n)))
				row := make([]float32, rows)
				k.Row(row, w, n*d.Size(), x[:n])
				for i, v := range append(out, row...) {
					if math.Float32bits(v) != 1<<31 {
						t.Fatalf("%s, %s, %d elements: product %d is %v, want -0", d, level, n, i, v)
					}
				}
			}
		}
	}
}

// check compares the products of rows with m rows of x, which products sets, with want.
func check(t *testing.T, name string, want []float32, products func(out []float32, i int), rows, m int) {
	t.Helper()
	stride := 11
	got := floats(t, rows)
	for i := range m {
		products(got, i)
		for r, v := range got {
			if !same(v, want[i*stride+r]) {
				t.Fatalf("%s: product of row %d and row %d of x is %v, want %v", name, r, i, v, want[i*stride+r])
			}
		}
	}
}

// The conversions have the bits of package quant, for all values of 16 bits, and the values of f32
// around them.
func TestConversions(t *testing.T) {
	for _, d := range formats {
		codes := guarded(t, d.Size()<<16)
		for i := range 1 << 16 {
			if d == dtype.F32 {
				binary.LittleEndian.PutUint32(codes[4*i:], uint32(i)*0x10101)
			} else {
				binary.LittleEndian.PutUint16(codes[2*i:], uint16(i))
			}
		}
		wide := make([]float32, 1<<16)
		if err := quant.DecodeRow(wide, d, codes); err != nil {
			t.Fatal(err)
		}
		var values []float32
		for _, v := range wide {
			b := math.Float32bits(v)
			for _, diff := range []uint32{0, 1, 1<<32 - 1, 0x8000, 0x7fff, 0x8001, 0x1000, 0xfff, 0x1001} {
				values = append(values, math.Float32frombits(b+diff))
			}
		}
		narrowed := make([]byte, len(values)*d.Size())
		if err := quant.EncodeRow(narrowed, d, values); err != nil {
			t.Fatal(err)
		}
		for _, level := range isa.Supported() {
			k, _ := KernelOf(d, level)
			got := floats(t, len(wide))
			for _, n := range []int{0, 1, 15, 16, 17, 33, len(wide)} {
				at := len(wide) - n
				k.Widen(got[at:], codes[at*d.Size():])
				for i := range n {
					if g, w := math.Float32bits(got[at+i]), math.Float32bits(wide[at+i]); g != w {
						t.Fatalf("%s, %s: value %d of %d is %#x, want %#x", d, level, i, n, g, w)
					}
				}
			}
			bytes := guarded(t, len(narrowed))
			src := floats(t, len(values))
			copy(src, values)
			for _, n := range []int{0, 1, 15, 16, 17, 33, len(values)} {
				at := len(values) - n
				k.Narrow(bytes[at*d.Size():], src[at:])
				for i := at * d.Size(); i < len(bytes); i++ {
					if bytes[i] != narrowed[i] {
						t.Fatalf("%s, %s: %#x became %x, want %x", d, level, math.Float32bits(values[i/d.Size()]), bytes[i/d.Size()*d.Size():][:d.Size()], narrowed[i/d.Size()*d.Size():][:d.Size()])
					}
				}
			}
		}
	}
}

// Other formats have no kernel.
func TestKernelOf(t *testing.T) {
	for d := dtype.DType(0); d < dtype.Count; d++ {
		want := d == dtype.F32 || d == dtype.F16 || d == dtype.BF16
		if _, ok := KernelOf(d, isa.Generic); ok != want {
			t.Errorf("%d: kernel %v, want %v", d, ok, want)
		}
	}
}

// Products allocate nothing.
func TestAllocs(t *testing.T) {
	for _, d := range formats {
		for _, level := range isa.Supported() {
			k, _ := KernelOf(d, level)
			w, x, out := make([]byte, 9*100*d.Size()), make([]float32, 500), make([]float32, 45)
			scratch := make([]byte, ScratchBytes(9, 5, 100))
			if n := testing.AllocsPerRun(10, func() {
				k.Row(out[:9], w, 100*d.Size(), x[:100])
				k.Multiply(out, 9, w, 100*d.Size(), 9, x, 100, 5, 100, scratch)
				k.Widen(x[:100], w)
				k.Narrow(w, x[:100])
			}); n != 0 {
				t.Errorf("%s, %s: %v allocations", d, level, n)
			}
		}
	}
}
