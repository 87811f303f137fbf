package dense

import (
	"encoding/binary"
	"math"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/internal/fma32"
	"github.com/x448/float16"
)

// chains is the number of sums of a product.
const chains = 16

// Dot returns the product of a row of weights in the format d, which is f32, f16 or bf16, and the
// row x. It is the definition of all products of this package.
func Dot(d dtype.DType, w []byte, x []float32) float32 {
	var sums, wide [chains]float32
	for len(x) > 0 {
		n := min(chains, len(x))
		widen(wide[:n], w, d)
		add(&sums, x[:n], wide[:n])
		x, w = x[n:], w[n*d.Size():]
	}
	return fold(&sums)
}

// add adds the products of x and w, which are as long, to the sums. The number of elements before
// them is a multiple of chains.
func add(sums *[chains]float32, x, w []float32) {
	for len(x) >= chains && len(w) >= chains {
		a, b := (*[chains]float32)(x), (*[chains]float32)(w)
		for i := range sums {
			sums[i] = fma32.FMA(a[i], b[i], sums[i])
		}
		x, w = x[chains:], w[chains:]
	}
	for i, v := range x {
		sums[i] = fma32.FMA(v, w[i], sums[i])
	}
}

// fold returns the sum of the sums. It changes them.
func fold(s *[chains]float32) float32 {
	for n := chains / 2; n > 0; n /= 2 {
		for i := range n {
			s[i] += s[i+n]
		}
	}
	return s[0]
}

// widen sets dst to the values of weights of the format d.
func widen(dst []float32, src []byte, d dtype.DType) {
	src = src[:len(dst)*d.Size()]
	switch d {
	case dtype.F16:
		for i := range dst {
			dst[i] = dtype.F16ToFloat32(float16.Float16(binary.LittleEndian.Uint16(src[2*i:])))
		}
	case dtype.BF16:
		for i := range dst {
			dst[i] = dtype.BFloat16(binary.LittleEndian.Uint16(src[2*i:])).Float32()
		}
	default:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	}
}

// narrow sets dst to the values src, rounded to the format d.
func narrow(dst []byte, src []float32, d dtype.DType) {
	dst = dst[:len(src)*d.Size()]
	switch d {
	case dtype.F16:
		for i, v := range src {
			binary.LittleEndian.PutUint16(dst[2*i:], uint16(dtype.F16FromFloat32(v)))
		}
	case dtype.BF16:
		for i, v := range src {
			binary.LittleEndian.PutUint16(dst[2*i:], uint16(dtype.BF16FromFloat32(v)))
		}
	default:
		for i, v := range src {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
		}
	}
}
