package dtype

import (
	"math"

	"github.com/x448/float16"
)

// The narrowing conversions below share one scheme. Below the smallest normal value of the
// narrow format, the result is a multiple of that format's smallest subnormal. Adding the
// f32 whose last bit has that value makes the hardware round to nearest even. From the
// smallest normal value on, adding half a unit of the last kept bit, less one if that bit is
// even, rounds the f32 encoding. A carry into the exponent rounds up to the next power of
// two. The same addition subtracts the difference of the exponent biases.

const (
	f32Abs = 0x7fffffff
	f32Inf = 0x7f800000
)

// F16ToFloat32 returns the exact value of h. NaNs become quiet and keep their
// sign and payload.
func F16ToFloat32(h float16.Float16) float32 {
	b := uint32(h&0x7fff) << 13
	// The exponent has the bias 15 instead of the bias 127 of f32. Scaling corrects that
	// exactly, for normal and subnormal values.
	f := math.Float32frombits(b) * 0x1p112
	if b >= 0x7c00<<13 {
		// h is an infinity or a NaN. The sum is the same value, with a NaN made quiet.
		f = math.Float32frombits(b|f32Inf) + math.Float32frombits(b|f32Inf)
	}
	return math.Float32frombits(uint32(h&0x8000)<<16 | math.Float32bits(f))
}

// F16FromFloat32 rounds f to the nearest binary16, ties to even. Magnitudes from 65520 on
// become infinite, subnormals are kept, and a NaN becomes 0x7e00 with f's sign. It is
// bit-exact with ggml. Package float16 differs, because it keeps the payload of a NaN.
func F16FromFloat32(f float32) float16.Float16 {
	b := math.Float32bits(f)
	sign := uint16(b>>16) & 0x8000
	b &= f32Abs
	switch {
	case b < 0x38800000: // 2^-14
		return float16.Float16(sign | uint16(math.Float32bits(math.Float32frombits(b)+0.5)-0x3f000000))
	case b < 0x47800000: // 65536
		return float16.Float16(sign | uint16((b-(0x38000000-0xfff)+b>>13&1)>>13))
	case b > f32Inf:
		return float16.Float16(sign | 0x7e00)
	}
	return float16.Float16(sign | 0x7c00)
}

// Float32 returns the exact value of x.
func (x BFloat16) Float32() float32 { return math.Float32frombits(uint32(x) << 16) }

// BF16FromFloat32 rounds f to the nearest bfloat16, ties to even. A NaN keeps its
// sign and the upper bits of its payload and becomes quiet, so that a payload in
// the dropped bits alone does not turn it into an infinity. It is bit-exact with ggml.
func BF16FromFloat32(f float32) BFloat16 {
	b := math.Float32bits(f)
	if b&f32Abs > f32Inf {
		return BFloat16(b>>16 | 0x40)
	}
	return BFloat16((b + 0x7fff + b>>16&1) >> 16)
}

// IsNaN reports whether x is a NaN.
func (x BFloat16) IsNaN() bool { return x&0x7fff > 0x7f80 }

var (
	e4m3Values = f8Values(e4m3Value)
	e5m2Values = f8Values(e5m2Value)
)

func f8Values(value func(uint8) float32) (t [256]float32) {
	for c := range t {
		t[c] = value(uint8(c))
	}
	return t
}

func e4m3Value(c uint8) float32 {
	sign := uint32(c&0x80) << 24
	if c&0x7f == 0x7f {
		return math.Float32frombits(sign | 0x7fc00000)
	}
	f := math.Float32frombits(uint32(c&0x7f)<<20) * 0x1p120
	return math.Float32frombits(sign | math.Float32bits(f))
}

// e5m2Value decodes c as the upper half of a binary16, which E5M2 is.
func e5m2Value(c uint8) float32 {
	if c&0x7f > 0x7c {
		return math.Float32frombits(uint32(c&0x80)<<24 | 0x7fc00000)
	}
	return F16ToFloat32(float16.Float16(c) << 8)
}

// Float32 returns the exact value of x. The two NaN codes keep their sign.
func (x Float8E4M3) Float32() float32 { return e4m3Values[x] }

// IsNaN reports whether x is one of the two NaN codes.
func (x Float8E4M3) IsNaN() bool { return x&0x7f == 0x7f }

// F8E4M3FromFloat32 rounds f to the nearest E4M3FN value, ties to even. The format has no
// infinities: a NaN, and a value that rounds above 448 (a magnitude above 464), becomes the
// NaN code 0x7f with f's sign.
func F8E4M3FromFloat32(f float32) Float8E4M3 {
	b := math.Float32bits(f)
	sign := uint8(b>>24) & 0x80
	b &= f32Abs
	switch {
	case b < 0x3c800000: // 2^-6
		return Float8E4M3(sign | uint8(math.Float32bits(math.Float32frombits(b)+0x1p14)-0x46800000))
	case b <= 0x43e80000: // 464, the tie that rounds to 448
		return Float8E4M3(sign | uint8((b-(0x3c000000-0x7ffff)+b>>20&1)>>20))
	}
	return Float8E4M3(sign | 0x7f)
}

// Float32 returns the exact value of x. NaN codes keep their sign.
func (x Float8E5M2) Float32() float32 { return e5m2Values[x] }

// IsNaN reports whether x is one of the six NaN codes.
func (x Float8E5M2) IsNaN() bool { return x&0x7f > 0x7c }

// F8E5M2FromFloat32 rounds f to the nearest E5M2 value, ties to even. Magnitudes from 61440
// on become infinite (code 0x7c), and a NaN becomes the quiet NaN code 0x7e. Both keep f's
// sign.
func F8E5M2FromFloat32(f float32) Float8E5M2 {
	b := math.Float32bits(f)
	sign := uint8(b>>24) & 0x80
	b &= f32Abs
	switch {
	case b < 0x38800000: // 2^-14
		return Float8E5M2(sign | uint8(math.Float32bits(math.Float32frombits(b)+0x1p7)-0x43000000))
	case b < 0x47800000: // 65536
		return Float8E5M2(sign | uint8((b-(0x38000000-0xfffff)+b>>21&1)>>21))
	case b > f32Inf:
		return Float8E5M2(sign | 0x7e)
	}
	return Float8E5M2(sign | 0x7c)
}
