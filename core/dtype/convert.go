package dtype

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/x448/float16"
)

// ScalarElement is the subset of [Element] with one value per element.
type ScalarElement interface {
	bool | uint8 | uint16 | int8 | int16 | int32 | int64 |
		float16.Float16 | BFloat16 | float32 | float64 | Float8E4M3 | Float8E5M2
}

// value is a scalar during a conversion. Every integer format fits an int64 exactly, and
// every float format a float64. The two are separate, so that an int64 is rounded only once
// to f32.
type value struct {
	i       int64
	f       float64
	isFloat bool
}

func valueOf[S ScalarElement](v S) value {
	switch x := any(v).(type) {
	case bool:
		if x {
			return value{i: 1}
		}
		return value{}
	case uint8:
		return value{i: int64(x)}
	case uint16:
		return value{i: int64(x)}
	case int8:
		return value{i: int64(x)}
	case int16:
		return value{i: int64(x)}
	case int32:
		return value{i: int64(x)}
	case int64:
		return value{i: x}
	case float16.Float16:
		return value{f: float64(F16ToFloat32(x)), isFloat: true}
	case BFloat16:
		return value{f: float64(x.Float32()), isFloat: true}
	case float32:
		return value{f: float64(x), isFloat: true}
	case float64:
		return value{f: x, isFloat: true}
	case Float8E4M3:
		return value{f: float64(x.Float32()), isFloat: true}
	case Float8E5M2:
		return value{f: float64(x.Float32()), isFloat: true}
	}
	panic("dtype: scalar element type without a conversion")
}

func (v value) truthy() bool { return v.i != 0 || v.f != 0 }

// float32 rounds once from an integer, and once from an f64.
func (v value) float32() float32 {
	if v.isFloat {
		return float32(v.f)
	}
	return float32(v.i)
}

func (v value) float64() float64 {
	if v.isFloat {
		return v.f
	}
	return float64(v.i)
}

// integer returns v for a target of the given range. An integer is returned unchanged, and
// the caller wraps it. A float is truncated and saturated.
func (v value) integer(lo, hi int64) int64 {
	if !v.isFloat {
		return v.i
	}
	switch {
	case v.f != v.f:
		return 0
	case v.f <= float64(lo):
		return lo
	case v.f >= float64(hi): // float64(MaxInt64) is 2^63, which itself saturates
		return hi
	}
	return int64(v.f)
}

// Cast converts one scalar:
//
//   - integer to integer wraps in two's complement;
//   - float to integer truncates toward zero and saturates, and a NaN becomes 0;
//   - float to float and integer to float round to nearest even: through f64 when
//     the target is f64, through f32 otherwise, with the overflow and NaN rules of
//     the target's FromFloat32 function;
//   - any format to bool is v != 0 (a NaN is true, -0 is false);
//   - bool to a number is 0 or 1.
//
// A cast to the same format returns v unchanged.
func Cast[D, S ScalarElement](v S) D {
	if same, ok := any(v).(D); ok {
		return same
	}
	var d D
	x := valueOf(v)
	switch p := any(&d).(type) {
	case *bool:
		*p = x.truthy()
	case *uint8:
		*p = uint8(x.integer(0, math.MaxUint8))
	case *uint16:
		*p = uint16(x.integer(0, math.MaxUint16))
	case *int8:
		*p = int8(x.integer(math.MinInt8, math.MaxInt8))
	case *int16:
		*p = int16(x.integer(math.MinInt16, math.MaxInt16))
	case *int32:
		*p = int32(x.integer(math.MinInt32, math.MaxInt32))
	case *int64:
		*p = x.integer(math.MinInt64, math.MaxInt64)
	case *float16.Float16:
		*p = F16FromFloat32(x.float32())
	case *BFloat16:
		*p = BF16FromFloat32(x.float32())
	case *float32:
		*p = x.float32()
	case *float64:
		*p = x.float64()
	case *Float8E4M3:
		*p = F8E4M3FromFloat32(x.float32())
	case *Float8E5M2:
		*p = F8E5M2FromFloat32(x.float32())
	}
	return d
}

// IsTruthy reports whether v is true in a mask: v != 0, so that -0 is false and a NaN is
// true.
func IsTruthy[S ScalarElement](v S) bool { return valueOf(v).truthy() }

// One returns the encoding of 1 (true for bool) in the low d.Size() bytes, such as
// 0x3f80 for bf16, or 0 if d is not scalar. The encoding of 0 is all zero bits in
// every scalar format.
func One(d DType) uint64 {
	if !d.IsScalar() {
		return 0
	}
	var b [8]byte
	store(b[:], d, []value{{i: 1}})
	return binary.LittleEndian.Uint64(b[:])
}

// convertChunk is the number of elements that Convert buffers.
const convertChunk = 128

// Convert casts len(src)/sd.Size() contiguous little-endian elements of sd to dd, each as
// [Cast] does. dst must have exactly the size of the result. The slices need no alignment.
// They may be the same if dd and sd are equal, and must not overlap otherwise. For a block
// format the error wraps [ErrUnsupported].
func Convert(dst []byte, dd DType, src []byte, sd DType) error {
	if !dd.IsScalar() || !sd.IsScalar() {
		return fmt.Errorf("%w: cast of %v to %v: only scalar formats convert element by element", ErrUnsupported, sd, dd)
	}
	n := len(src) / sd.Size()
	if n*sd.Size() != len(src) {
		return fmt.Errorf("dtype: cast of %v to %v: %d source bytes are not whole elements of %d bytes", sd, dd, len(src), sd.Size())
	}
	// A slice longer than MaxInt/8 cannot exist, so the product does not wrap.
	if n*dd.Size() != len(dst) {
		return fmt.Errorf("dtype: cast of %v to %v: %d elements need %d destination bytes, got %d", sd, dd, n, n*dd.Size(), len(dst))
	}
	if dd == sd {
		copy(dst, src)
		return nil
	}
	if convertWide(dst, dd, src, sd) {
		return nil
	}
	var values [convertChunk]value
	for n > 0 {
		c := min(n, convertChunk)
		load(values[:c], src, sd)
		store(dst, dd, values[:c])
		src, dst = src[c*sd.Size():], dst[c*dd.Size():]
		n -= c
	}
	return nil
}

// convertWide converts the pairs that are common for weights, caches and activations. It
// returns false for any other pair.
func convertWide(dst []byte, dd DType, src []byte, sd DType) bool {
	le := binary.LittleEndian
	switch {
	case dd == F32 && sd == F16:
		for ; len(src) >= 2 && len(dst) >= 4; src, dst = src[2:], dst[4:] {
			le.PutUint32(dst, math.Float32bits(F16ToFloat32(float16.Float16(le.Uint16(src)))))
		}
	case dd == F32 && sd == BF16:
		for ; len(src) >= 2 && len(dst) >= 4; src, dst = src[2:], dst[4:] {
			le.PutUint32(dst, uint32(le.Uint16(src))<<16)
		}
	case dd == F16 && sd == F32:
		for ; len(src) >= 4 && len(dst) >= 2; src, dst = src[4:], dst[2:] {
			le.PutUint16(dst, uint16(F16FromFloat32(math.Float32frombits(le.Uint32(src)))))
		}
	case dd == BF16 && sd == F32:
		for ; len(src) >= 4 && len(dst) >= 2; src, dst = src[4:], dst[2:] {
			le.PutUint16(dst, uint16(BF16FromFloat32(math.Float32frombits(le.Uint32(src)))))
		}
	default:
		return false
	}
	return true
}

// load reads len(values) elements of d from b.
func load(values []value, b []byte, d DType) {
	le := binary.LittleEndian
	switch d {
	case Bool:
		// Any non-zero byte is true, because b may come from a file or a device.
		for i := range values {
			values[i] = valueOf(b[i] != 0)
		}
	case U8:
		for i := range values {
			values[i] = valueOf(b[i])
		}
	case U16:
		for i := range values {
			values[i] = valueOf(le.Uint16(b[2*i:]))
		}
	case I8:
		for i := range values {
			values[i] = valueOf(int8(b[i]))
		}
	case I16:
		for i := range values {
			values[i] = valueOf(int16(le.Uint16(b[2*i:])))
		}
	case I32:
		for i := range values {
			values[i] = valueOf(int32(le.Uint32(b[4*i:])))
		}
	case I64:
		for i := range values {
			values[i] = valueOf(int64(le.Uint64(b[8*i:])))
		}
	case F16:
		for i := range values {
			values[i] = valueOf(float16.Float16(le.Uint16(b[2*i:])))
		}
	case BF16:
		for i := range values {
			values[i] = valueOf(BFloat16(le.Uint16(b[2*i:])))
		}
	case F32:
		for i := range values {
			values[i] = valueOf(math.Float32frombits(le.Uint32(b[4*i:])))
		}
	case F64:
		for i := range values {
			values[i] = valueOf(math.Float64frombits(le.Uint64(b[8*i:])))
		}
	case F8E4M3:
		for i := range values {
			values[i] = valueOf(Float8E4M3(b[i]))
		}
	case F8E5M2:
		for i := range values {
			values[i] = valueOf(Float8E5M2(b[i]))
		}
	}
}

// store writes values to b as elements of d.
func store(b []byte, d DType, values []value) {
	le := binary.LittleEndian
	switch d {
	case Bool:
		for i, v := range values {
			b[i] = 0
			if v.truthy() {
				b[i] = 1
			}
		}
	case U8:
		for i, v := range values {
			b[i] = uint8(v.integer(0, math.MaxUint8))
		}
	case U16:
		for i, v := range values {
			le.PutUint16(b[2*i:], uint16(v.integer(0, math.MaxUint16)))
		}
	case I8:
		for i, v := range values {
			b[i] = uint8(v.integer(math.MinInt8, math.MaxInt8))
		}
	case I16:
		for i, v := range values {
			le.PutUint16(b[2*i:], uint16(v.integer(math.MinInt16, math.MaxInt16)))
		}
	case I32:
		for i, v := range values {
			le.PutUint32(b[4*i:], uint32(v.integer(math.MinInt32, math.MaxInt32)))
		}
	case I64:
		for i, v := range values {
			le.PutUint64(b[8*i:], uint64(v.integer(math.MinInt64, math.MaxInt64)))
		}
	case F16:
		for i, v := range values {
			le.PutUint16(b[2*i:], uint16(F16FromFloat32(v.float32())))
		}
	case BF16:
		for i, v := range values {
			le.PutUint16(b[2*i:], uint16(BF16FromFloat32(v.float32())))
		}
	case F32:
		for i, v := range values {
			le.PutUint32(b[4*i:], math.Float32bits(v.float32()))
		}
	case F64:
		for i, v := range values {
			le.PutUint64(b[8*i:], math.Float64bits(v.float64()))
		}
	case F8E4M3:
		for i, v := range values {
			b[i] = uint8(F8E4M3FromFloat32(v.float32()))
		}
	case F8E5M2:
		for i, v := range values {
			b[i] = uint8(F8E5M2FromFloat32(v.float32()))
		}
	}
}
