package quant

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/internal/offheap"
)

// vectorFormats returns the formats of encodeVector. It skips the test if there is no vector
// code: on other processors, and with the build tag noasm.
func vectorFormats(t testing.TB) []dtype.DType {
	t.Helper()
	if !useAVX2 {
		t.Skip("there is no vector code here")
	}
	all := []dtype.DType{dtype.Q4_0, dtype.Q4_1}
	for _, d := range all {
		if encodeVector(make([]byte, d.Size()), d, make([]float32, d.BlockSize())) == 0 {
			t.Fatalf("%v: the vector code encodes no block of zeros", d)
		}
	}
	return all
}

// encodeScalar is encodeVector in Go.
func encodeScalar(dst []byte, d dtype.DType, src []float32) (blocks int) {
	e, n, size := &encoders[d], d.BlockSize(), d.Size()
	for blocks = range len(src) / n {
		b := block{x: src[blocks*n:][:n]}
		b.amax, b.ext = extreme(b.x)
		if !(b.amax <= e.limit) || e.encode(dst[blocks*size:][:size], b) != nil {
			return blocks
		}
	}
	return len(src) / n
}

// compareVector encodes src with the vector code and with the Go code, and compares the
// results.
func compareVector(t *testing.T, name string, d dtype.DType, src []float32) {
	t.Helper()
	n, size := d.BlockSize(), d.Size()
	got, want := make([]byte, len(src)/n*size), make([]byte, len(src)/n*size)
	g, w := encodeVector(got, d, src), encodeScalar(want, d, src)
	if g != w {
		t.Fatalf("%v, %s: %d blocks, want %d", d, name, g, w)
	}
	for i := range w {
		if g, w := got[i*size:][:size], want[i*size:][:size]; !bytes.Equal(g, w) {
			t.Fatalf("%v, %s: block %d of %v is % x, want % x", d, name, i, src[i*n:][:n], g, w)
		}
	}
}

func TestEncodeVectorValues(t *testing.T) {
	negZero := float32(math.Copysign(0, -1))
	for _, d := range vectorFormats(t) {
		for i, dist := range distributions {
			x, _ := generate(i, 0)
			compareVector(t, dist.name, d, x)
			for e := -149; e < 128; e++ {
				y := slices.Clone(x[:64])
				for i := range y {
					y[i] = float32(math.Ldexp(float64(y[i]), e))
				}
				compareVector(t, fmt.Sprintf("%s near 2^%d", dist.name, e), d, y)
			}
		}

		r := rand.New(rand.NewPCG(1, uint64(d)))
		x := make([]float32, 32)
		for range 20000 {
			bits, exponent := r.Uint32(), r.Uint32N(256)
			for i := range x {
				switch bits & 3 {
				case 0: // any bits, including NaNs
					x[i] = math.Float32frombits(r.Uint32())
				case 1: // one exponent, which may be that of subnormals
					x[i] = math.Float32frombits(r.Uint32()&0x807fffff | exponent<<23)
				case 2: // few different values, so that there are ties
					x[i] = float32(r.IntN(5) - 2)
				case 3: // zeros and their neighbours
					x[i] = math.Float32frombits(r.Uint32() & 0x80000001)
				}
			}
			compareVector(t, "random", d, x)
		}

		// Ties of both signs at every pair of positions, and zeros of both signs.
		for i := range 32 {
			for j := range 32 {
				for _, pair := range [][2]float32{{3, -3}, {-3, 3}, {0, negZero}, {negZero, 0}} {
					for _, rest := range []float32{pair[1], 0, 1} {
						x := slices.Repeat([]float32{rest}, 32)
						x[i], x[j] = pair[0], pair[1]
						compareVector(t, fmt.Sprintf("%v at %d, %d", pair, i, j), d, x)
					}
				}
			}
		}

		// Values at the limits of invertible scales and of representable scales.
		for _, at := range []float32{0x1p-128, 0x1p-126, 0x1p-25 * 8, 0x1p-25 * 15, 65504, 65520, 65520 * 8, 65520 * 15, 0x1p29} {
			for ulp := -40; ulp <= 40; ulp++ {
				v := math.Float32frombits(math.Float32bits(at) + uint32(ulp))
				for _, v := range []float32{v, -v, v * 8, v * 15} {
					compareVector(t, "edge", d, append(slices.Repeat([]float32{v / 3}, 31), v))
					compareVector(t, "edge", d, append(slices.Repeat([]float32{v}, 31), 0))
				}
			}
		}
	}
}

// TestEncodeVectorPlaces encodes rows of several lengths and alignments, and rows with a
// block that is refused. Nothing is written beyond dst.
func TestEncodeVectorPlaces(t *testing.T) {
	x, _ := generate(0, 0)
	for _, d := range vectorFormats(t) {
		n, size := d.BlockSize(), d.Size()
		for blocks := range 9 {
			for at := range 32 {
				src := x[at:][:blocks*n]
				want := bytes.Repeat([]byte{0xa5}, at+blocks*size+32)
				got := slices.Clone(want)
				encodeScalar(want[at:][:blocks*size], d, src)
				if g := encodeVector(got[at:][:blocks*size], d, src); g != blocks || !bytes.Equal(got, want) {
					t.Errorf("%v: %d of %d blocks at %d: % x, want % x", d, g, blocks, at, got, want)
				}
			}
		}
		for i := range 8 * n {
			for _, v := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), 0x1p28} {
				src := slices.Clone(x[:8*n])
				src[i] = v
				compareVector(t, fmt.Sprintf("%v at %d", v, i), d, src)
			}
		}
	}
}

// TestEncodeVectorBounds reads and writes up to the ends of blocks of memory. With the build
// tag invariants, inaccessible pages lie next to them.
func TestEncodeVectorBounds(t *testing.T) {
	in, err := offheap.Alloc(offheap.LargeMin)
	if err != nil {
		t.Fatal(err)
	}
	defer offheap.Free(&in)
	out, err := offheap.Alloc(offheap.LargeMin)
	if err != nil {
		t.Fatal(err)
	}
	defer offheap.Free(&out)
	src := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(in.Bytes()))), offheap.LargeMin/4)
	for i := range src {
		src[i] = float32(i%37) - 18
	}
	for _, d := range vectorFormats(t) {
		n, size := d.BlockSize(), d.Size()
		for blocks := 1; blocks <= len(src)/n; blocks *= 2 {
			for _, x := range [][]float32{src[:blocks*n], src[len(src)-blocks*n:]} {
				want := make([]byte, blocks*size)
				encodeScalar(want, d, x)
				for _, dst := range [][]byte{out.Bytes()[:blocks*size], out.Bytes()[offheap.LargeMin-blocks*size:]} {
					if g := encodeVector(dst, d, x); g != blocks || !bytes.Equal(dst, want) {
						t.Errorf("%v: %d of %d blocks, or wrong bytes", d, g, blocks)
					}
				}
			}
		}
	}
}

// FuzzEncodeVector compares the vector code with the Go code, for any values.
func FuzzEncodeVector(f *testing.F) {
	formats := vectorFormats(f)
	for dist := range distributions {
		x, _ := generate(dist, 0)
		var b []byte
		for _, v := range x[:64] {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, values []byte) {
		x := floats(values)
		for _, d := range formats {
			compareVector(t, "fuzz", d, x[:len(x)/d.BlockSize()*d.BlockSize()])
		}
	})
}
