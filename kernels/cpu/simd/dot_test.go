package simd

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/quant"
)

// row returns k activations of magnitudes that differ by stretch, with the special ones that a test
// of codes needs.
func row(r *rand.Rand, k int) []float32 {
	x := make([]float32, k)
	for i := range x {
		x[i] = float32(r.NormFloat64() * math.Pow(10, float64(i/32%5-2)))
	}
	return x
}

// A code and the scale give the activation, but for half a step.
func TestQuantize(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, order := range []Order{Ascending, Halves, Quarters} {
		x := row(r, 256)
		var a [ActBytes]byte
		QuantizeSuper(a[:], x, &order)
		d := f32(a[actScale:])
		for i, v := range x {
			q := int8(a[32*int(order[i/32])+i%32])
			if math.Abs(float64(v)-float64(d)*float64(q)) > 0.5001*float64(d) {
				t.Fatalf("activation %d is %v, code %d of %v", i, v, q, d)
			}
		}
	}
	x := row(r, 224)
	var a [ActBytes]byte
	for i := range a {
		a[i] = 0x55
	}
	QuantizeSmall(a[:], x)
	for i, v := range x {
		d, q := f32(a[actScales+i/32*4:]), int8(a[i])
		if math.Abs(float64(v)-float64(d)*float64(q)) > 0.5001*float64(d) {
			t.Fatalf("activation %d is %v, code %d of %v", i, v, q, d)
		}
	}
	for i, b := range a[224:256] {
		if b != 0 {
			t.Errorf("code %d after the last activation is %d", 224+i, b)
		}
	}
	for _, tt := range []struct {
		x    float32
		good func(d float32) bool
	}{
		{0, func(d float32) bool { return d == 0 }},
		{0x1p-120, func(d float32) bool { return d == 0 }},
		{least, func(d float32) bool { return d > 0 }},
		{math.MaxFloat32, func(d float32) bool { return d > 1e36 && d < math.MaxFloat32 }},
		{float32(math.Inf(-1)), func(d float32) bool { return math.IsInf(float64(d), 1) }},
		{float32(math.NaN()), func(d float32) bool { return d != d }},
	} {
		x := make([]float32, 256)
		x[7], x[100] = tt.x, 1e-38
		QuantizeSuper(a[:], x, &Ascending)
		if d := f32(a[actScale:]); !tt.good(d) {
			t.Errorf("scale %v of %v", d, tt.x)
		}
		if finite := math.Abs(float64(tt.x)) <= math.MaxFloat32 && math.Abs(float64(tt.x)) >= least; (a[7] != 0) != finite {
			t.Errorf("code %d of %v", int8(a[7]), tt.x)
		}
	}
}

// randomRows returns blocks of random bytes, whose elements are below 1e30.
func randomRows(t *testing.T, r *rand.Rand, d dtype.DType, blocks int) []byte {
	t.Helper()
	w, y := make([]byte, blocks*d.Size()), make([]float32, d.BlockSize())
	for b := w; len(b) > 0; b = b[d.Size():] {
		for good := false; !good; {
			for i := range b[:d.Size()] {
				b[i] = byte(r.Uint32())
			}
			if err := quant.DecodeRow(y, d, b[:d.Size()]); err != nil {
				t.Fatal(err)
			}
			good = true
			for _, v := range y {
				good = good && math.Abs(float64(v)) < 1e30
			}
		}
	}
	return w
}

// A product is near that of the decoded weights with the activations that the codes stand for.
func TestDot(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for d := dtype.DType(1); d < dtype.Count; d++ {
		if !d.Valid() || !quant.HasSuper(d) && !quant.HasSmall(d) {
			continue
		}
		for _, blocks := range []int{1, 2, 5} {
			k := blocks * d.BlockSize()
			x, y := row(r, k), make([]float32, k)
			w := randomRows(t, r, d, blocks)
			if err := quant.DecodeRow(y, d, w); err != nil {
				t.Fatal(err)
			}
			act := make([]byte, (k+255)/256*ActBytes)
			var got float32
			if quant.HasSuper(d) {
				for i := range blocks {
					QuantizeSuper(act[i*ActBytes:], x[256*i:], &Halves)
				}
				got = DotSuper(d, w, act, ActBytes, &Halves)
			} else {
				for i := 0; i < k; i += 256 {
					QuantizeSmall(act[i/256*ActBytes:], x[i:min(i+256, k)])
				}
				got = DotSmall(d, w, act, ActBytes)
			}
			var want, most float64
			for i, v := range y {
				a := act[i/256*ActBytes:]
				var q float64
				if quant.HasSuper(d) {
					q = float64(int8(a[32*int(Halves[i%256/32])+i%32])) * float64(f32(a[actScale:]))
				} else {
					q = float64(int8(a[i%256])) * float64(f32(a[actScales+i%256/32*4:]))
				}
				want += float64(v) * q
				most += math.Abs(float64(v) * q)
			}
			if math.Abs(float64(got)-want) > 1e-6*most {
				t.Errorf("%s, %d blocks: %v, want %v (sum of magnitudes %v)", d, blocks, got, want, most)
			}
		}
	}
}
