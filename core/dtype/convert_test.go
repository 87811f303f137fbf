package dtype

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/x448/float16"
)

var (
	inf = math.Inf(1)
	nan = math.NaN()
)

func scalars() []DType {
	var out []DType
	for _, d := range All() {
		if d.IsScalar() {
			out = append(out, d)
		}
	}
	return out
}

// Casts of NaN, infinity and -1.0 to integers have the same results on every machine.
func TestCastToInteger(t *testing.T) {
	for _, c := range []struct {
		in  float64
		u8  uint8
		u16 uint16
		i8  int8
		i16 int16
		i32 int32
		i64 int64
	}{
		{in: 0},
		{in: math.Copysign(0, -1)},
		{nan, 0, 0, 0, 0, 0, 0},
		{-1, 0, 0, -1, -1, -1, -1},
		{-0.99, 0, 0, 0, 0, 0, 0},
		{2.99, 2, 2, 2, 2, 2, 2},
		{-2.99, 0, 0, -2, -2, -2, -2},
		{127.5, 127, 127, 127, 127, 127, 127},
		{128, 128, 128, 127, 128, 128, 128},
		{-129, 0, 0, -128, -129, -129, -129},
		{255.9, 255, 255, 127, 255, 255, 255},
		{256, 255, 256, 127, 256, 256, 256},
		{65536, 255, 65535, 127, 32767, 65536, 65536},
		{2147483648, 255, 65535, 127, 32767, math.MaxInt32, 2147483648},
		{-2147483904, 0, 0, -128, -32768, math.MinInt32, -2147483904},
		{0x1p63, 255, 65535, 127, 32767, math.MaxInt32, math.MaxInt64},
		{-0x1p63, 0, 0, -128, -32768, math.MinInt32, math.MinInt64},
		{1e30, 255, 65535, 127, 32767, math.MaxInt32, math.MaxInt64},
		{-1e30, 0, 0, -128, -32768, math.MinInt32, math.MinInt64},
		{inf, 255, 65535, 127, 32767, math.MaxInt32, math.MaxInt64},
		{-inf, 0, 0, -128, -32768, math.MinInt32, math.MinInt64},
	} {
		check := func(from string, u8 uint8, u16 uint16, i8 int8, i16 int16, i32 int32, i64 int64) {
			if u8 != c.u8 || u16 != c.u16 || i8 != c.i8 || i16 != c.i16 || i32 != c.i32 || i64 != c.i64 {
				t.Errorf("%v from %s = %d %d %d %d %d %d, want %d %d %d %d %d %d", c.in, from,
					u8, u16, i8, i16, i32, i64, c.u8, c.u16, c.i8, c.i16, c.i32, c.i64)
			}
		}
		check("f64", Cast[uint8](c.in), Cast[uint16](c.in), Cast[int8](c.in), Cast[int16](c.in), Cast[int32](c.in), Cast[int64](c.in))
		f := float32(c.in)
		check("f32", Cast[uint8](f), Cast[uint16](f), Cast[int8](f), Cast[int16](f), Cast[int32](f), Cast[int64](f))
	}
}

func TestCast(t *testing.T) {
	for _, c := range []struct{ name, got, want string }{
		{"i32 wraps to u8", fmt.Sprint(Cast[uint8](int32(-1))), "255"},
		{"i32 wraps to i8", fmt.Sprint(Cast[int8](int32(384))), "-128"},
		{"u16 wraps to i16", fmt.Sprint(Cast[int16](uint16(65535))), "-1"},
		{"i64 wraps to i32", fmt.Sprint(Cast[int32](int64(1)<<40 + 7)), "7"},
		{"bool is one", fmt.Sprint(Cast[float32](true), Cast[int64](true), Cast[uint8](false)), "1 1 0"},
		{"bool to bf16", fmt.Sprintf("%#04x", uint16(Cast[BFloat16](true))), "0x3f80"},
		{"NaN is true", fmt.Sprint(Cast[bool](nan), Cast[bool](Float8E4M3(0x7f))), "true true"},
		{"-0 is false", fmt.Sprint(Cast[bool](float16.Float16(0x8000)), Cast[bool](BFloat16(0x8000)), Cast[bool](Float8E5M2(0x80))), "false false false"},
		{"subnormals are true", fmt.Sprint(Cast[bool](Float8E5M2(1)), Cast[bool](math.SmallestNonzeroFloat64)), "true true"},
		{"e4m3 to i32", fmt.Sprint(Cast[int32](Float8E4M3(0x7e)), Cast[int32](Float8E4M3(0x7f))), "448 0"},
		{"i32 to e4m3", fmt.Sprintf("%#02x", uint8(Cast[Float8E4M3](int32(1)))), "0x38"},
		{"e4m3 to e5m2", fmt.Sprintf("%#02x", uint8(Cast[Float8E5M2](Float8E4M3(0x38)))), "0x3c"},
		{"u8 is not fp8 bits", fmt.Sprintf("%#02x", uint8(Cast[Float8E4M3](uint8(2)))), "0x40"},
		// There is one rounding. Through f64, the integer would become the even neighbour below.
		{"i64 rounds once to f32", fmt.Sprintf("%.0f", Cast[float32](int64(1)<<60+1<<36+1)), "1152921642045800448"},
		// There are two roundings, as documented: 1 + 2^-11 + 2^-40 is above the tie in f64, and the tie in f32.
		{"f64 reaches f16 through f32", fmt.Sprintf("%#04x", uint16(Cast[float16.Float16](1+0x1p-11+0x1p-40))), "0x3c00"},
		{"i64 to f64", fmt.Sprintf("%.0f", Cast[float64](int64(1)<<53+1)), "9007199254740992"},
		{"a NaN keeps its bits in a move", fmt.Sprintf("%#04x", uint16(Cast[BFloat16](BFloat16(0x7f81)))), "0x7f81"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s, want %s", c.name, c.got, c.want)
		}
	}
}

func TestIsTruthy(t *testing.T) {
	if IsTruthy(BFloat16(0x8000)) || IsTruthy(Float8E4M3(0x80)) || IsTruthy(false) || IsTruthy(math.Copysign(0, -1)) {
		t.Error("a zero is truthy")
	}
	if !IsTruthy(BFloat16(0x7fc0)) || !IsTruthy(Float8E5M2(0x7e)) || !IsTruthy(true) || !IsTruthy(int8(-1)) || !IsTruthy(float32(1e-45)) {
		t.Error("a non-zero value is not truthy")
	}
}

func TestOne(t *testing.T) {
	want := map[DType]uint64{F16: 0x3c00, BF16: 0x3f80, F32: 0x3f800000, F64: 0x3ff0000000000000, F8E4M3: 0x38, F8E5M2: 0x3c, Q4_0: 0}
	for _, d := range scalars() {
		if _, ok := want[d]; !ok {
			want[d] = 1
		}
	}
	for d, bits := range want {
		if got := One(d); got != bits {
			t.Errorf("One(%v) = %#x, want %#x", d, got, bits)
		}
	}
}

// samples returns source bytes of d whose values hit the special cases.
func samples(d DType) []byte {
	le := binary.LittleEndian
	var out []byte
	for c := range 1 << 16 {
		switch d {
		case F32:
			out = le.AppendUint32(out, uint32(c)<<16|uint32(c*40503)&0xffff)
		case F64:
			// The values are spread over the range of f32.
			out = le.AppendUint64(out, math.Float64bits(float64(math.Float32frombits(uint32(c)<<16))*(1+0x1p-30)))
		case I32:
			out = le.AppendUint32(out, uint32(c)*2654435761)
		case I64:
			out = le.AppendUint64(out, uint64(c)*0x9e3779b97f4a7c15>>(c%60))
		default:
			if d.Size() == 2 {
				out = le.AppendUint16(out, uint16(c))
			} else if c < 256 {
				out = append(out, byte(c))
			}
		}
	}
	return out
}

func castBytes[D, S ScalarElement](get func([]byte) S, put func([]byte, D) []byte) func([]byte) []byte {
	return func(b []byte) []byte { return put(nil, Cast[D](get(b))) }
}

// castersFrom returns, per destination, a cast of one element by Cast.
func castersFrom[S ScalarElement](get func([]byte) S) map[DType]func([]byte) []byte {
	le := binary.LittleEndian
	return map[DType]func([]byte) []byte{
		Bool: castBytes(get, func(b []byte, v bool) []byte {
			if v {
				return append(b, 1)
			}
			return append(b, 0)
		}),
		U8:     castBytes(get, func(b []byte, v uint8) []byte { return append(b, v) }),
		U16:    castBytes(get, func(b []byte, v uint16) []byte { return le.AppendUint16(b, v) }),
		I8:     castBytes(get, func(b []byte, v int8) []byte { return append(b, uint8(v)) }),
		I16:    castBytes(get, func(b []byte, v int16) []byte { return le.AppendUint16(b, uint16(v)) }),
		I32:    castBytes(get, func(b []byte, v int32) []byte { return le.AppendUint32(b, uint32(v)) }),
		I64:    castBytes(get, func(b []byte, v int64) []byte { return le.AppendUint64(b, uint64(v)) }),
		F16:    castBytes(get, func(b []byte, v float16.Float16) []byte { return le.AppendUint16(b, uint16(v)) }),
		BF16:   castBytes(get, func(b []byte, v BFloat16) []byte { return le.AppendUint16(b, uint16(v)) }),
		F32:    castBytes(get, func(b []byte, v float32) []byte { return le.AppendUint32(b, math.Float32bits(v)) }),
		F64:    castBytes(get, func(b []byte, v float64) []byte { return le.AppendUint64(b, math.Float64bits(v)) }),
		F8E4M3: castBytes(get, func(b []byte, v Float8E4M3) []byte { return append(b, uint8(v)) }),
		F8E5M2: castBytes(get, func(b []byte, v Float8E5M2) []byte { return append(b, uint8(v)) }),
	}
}

// TestConvertAgreesWithCast converts samples of every format to every other, from
// and to odd addresses, and compares element by element with Cast.
func TestConvertAgreesWithCast(t *testing.T) {
	le := binary.LittleEndian
	casters := map[DType]map[DType]func([]byte) []byte{
		Bool:   castersFrom(func(b []byte) bool { return b[0] != 0 }),
		U8:     castersFrom(func(b []byte) uint8 { return b[0] }),
		U16:    castersFrom(le.Uint16),
		I8:     castersFrom(func(b []byte) int8 { return int8(b[0]) }),
		I16:    castersFrom(func(b []byte) int16 { return int16(le.Uint16(b)) }),
		I32:    castersFrom(func(b []byte) int32 { return int32(le.Uint32(b)) }),
		I64:    castersFrom(func(b []byte) int64 { return int64(le.Uint64(b)) }),
		F16:    castersFrom(func(b []byte) float16.Float16 { return float16.Float16(le.Uint16(b)) }),
		BF16:   castersFrom(func(b []byte) BFloat16 { return BFloat16(le.Uint16(b)) }),
		F32:    castersFrom(func(b []byte) float32 { return math.Float32frombits(le.Uint32(b)) }),
		F64:    castersFrom(func(b []byte) float64 { return math.Float64frombits(le.Uint64(b)) }),
		F8E4M3: castersFrom(func(b []byte) Float8E4M3 { return Float8E4M3(b[0]) }),
		F8E5M2: castersFrom(func(b []byte) Float8E5M2 { return Float8E5M2(b[0]) }),
	}
	for _, sd := range scalars() {
		src := samples(sd)
		odd := append([]byte{0xaa}, src...)[1:]
		n := len(src) / sd.Size()
		step := 1
		if n > 1<<10 {
			step = 7 // converts all samples but compares only some
		}
		for _, dd := range scalars() {
			if dd == Bool && sd == Bool {
				continue // a move, which does not change the bytes of true
			}
			dst := make([]byte, 1+n*dd.Size())[1:]
			if err := Convert(dst, dd, odd, sd); err != nil {
				t.Fatal(err)
			}
			for i := 0; i < n; i += step {
				got := dst[i*dd.Size() : (i+1)*dd.Size()]
				if want := casters[sd][dd](src[i*sd.Size():]); !bytes.Equal(got, want) && !bothNaN(dd, got, want) {
					t.Fatalf("%v to %v: % x gives % x, Cast % x", sd, dd, src[i*sd.Size():(i+1)*sd.Size()], got, want)
				}
			}
		}
	}
}

// bothNaN reports whether both are NaN. The payloads of wide NaNs may differ, because the
// contract does not say which one a hardware conversion keeps.
func bothNaN(d DType, a, b []byte) bool {
	le := binary.LittleEndian
	switch d {
	case F32:
		x, y := math.Float32frombits(le.Uint32(a)), math.Float32frombits(le.Uint32(b))
		return x != x && y != y
	case F64:
		x, y := math.Float64frombits(le.Uint64(a)), math.Float64frombits(le.Uint64(b))
		return x != x && y != y
	}
	return false
}

func TestConvertErrors(t *testing.T) {
	b := make([]byte, 64)
	for _, c := range []struct {
		name        string
		dst         int
		dd          DType
		src         int
		sd          DType
		unsupported bool
	}{
		{"short destination", 4, F32, 4, F16, false},
		{"long destination", 12, F32, 4, F16, false},
		{"half an element", 8, F32, 5, F16, false},
		{"from blocks", 64, F32, 9, Q4_0, true},
		{"to blocks", 18, Q4_0, 64, F32, true},
		{"invalid", 4, Invalid, 4, F32, true},
	} {
		err := Convert(b[:c.dst], c.dd, b[:c.src], c.sd)
		if err == nil || errors.Is(err, ErrUnsupported) != c.unsupported {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if err := Convert(nil, F32, nil, I64); err != nil {
		t.Errorf("no elements: %v", err)
	}
}

func TestConvertAllocates(t *testing.T) {
	src, dst := make([]byte, 4096), make([]byte, 4096)
	if n := testing.AllocsPerRun(10, func() {
		if err := Convert(dst[:2048], BF16, src, I32); err != nil {
			panic(err)
		}
	}); n != 0 {
		t.Errorf("Convert allocates %v times", n)
	}
}

func FuzzConvert(f *testing.F) {
	f.Add([]byte{0x7f, 0x80, 0, 1}, uint8(F32), uint8(I8), uint8(0))
	f.Fuzz(func(t *testing.T, src []byte, sd, dd, extra uint8) {
		s, d := DType(sd%uint8(Count+1)), DType(dd%uint8(Count+1))
		n := int(extra)
		if s.IsScalar() && d.IsScalar() {
			n += len(src) / s.Size() * d.Size()
		}
		_ = Convert(make([]byte, n), d, src, s)
	})
}

func ExampleConvert() {
	src := []byte{0, 0, 0xc0, 0x3f, 0, 0, 0x20, 0xc1} // 1.5, -10
	dst := make([]byte, 2)
	if err := Convert(dst, I8, src, F32); err != nil {
		fmt.Println(err)
	}
	fmt.Println(int8(dst[0]), int8(dst[1]))
	// Output: 1 -10
}

func BenchmarkConvert(b *testing.B) {
	for _, p := range [][2]DType{{F32, F16}, {F16, F32}, {F32, BF16}, {BF16, F32}, {F32, F8E4M3}, {I32, F32}, {F64, F32}} {
		b.Run(p[0].String()+" from "+p[1].String(), func(b *testing.B) {
			const n = 4096
			src, dst := make([]byte, n*p[1].Size()), make([]byte, n*p[0].Size())
			b.SetBytes(int64(len(src) + len(dst)))
			for b.Loop() {
				if err := Convert(dst, p[0], src, p[1]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
