package dtype

import (
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/x448/float16"
)

// floatTables holds results of ggml 0.23 (edges and hashes) and the OCP tables of the FP8
// formats. Their NaNs are canonical.
//
//go:embed testdata/float_tables.json
var floatTables []byte

type tables struct {
	F16SHA256  string      `json:"fp16_to_f32_all65536"`
	BF16SHA256 string      `json:"bf16_to_f32_all65536"`
	ToF16      [][2]string `json:"f32_to_fp16_edges"`
	ToBF16     [][2]string `json:"f32_to_bf16_edges"`
	E4M3       []uint32    `json:"e4m3fn_to_f32"`
	E5M2       []uint32    `json:"e5m2_to_f32"`
}

func loadTables(t *testing.T) tables {
	t.Helper()
	var tab tables
	if err := json.Unmarshal(floatTables, &tab); err != nil {
		t.Fatal(err)
	}
	return tab
}

const canonicalNaN = 0x7fc00000

// bitsOf returns f's bits with every NaN made the canonical one.
func bitsOf(f float32) uint32 {
	if f != f {
		return canonicalNaN
	}
	return math.Float32bits(f)
}

func hashAll16(decode func(uint16) float32) string {
	h := sha256.New()
	for c := range 1 << 16 {
		h.Write(binary.LittleEndian.AppendUint32(nil, bitsOf(decode(uint16(c)))))
	}
	return hex.EncodeToString(h.Sum(nil))
}

func TestDecode16BitFormats(t *testing.T) {
	tab := loadTables(t)
	if got := hashAll16(func(c uint16) float32 { return F16ToFloat32(float16.Float16(c)) }); got != tab.F16SHA256 {
		t.Errorf("the table of all f16 values has sha256 %s, want %s", got, tab.F16SHA256)
	}
	if got := hashAll16(func(c uint16) float32 { return BFloat16(c).Float32() }); got != tab.BF16SHA256 {
		t.Errorf("the table of all bf16 values has sha256 %s, want %s", got, tab.BF16SHA256)
	}
	for c := range 1 << 16 {
		h := float16.Float16(c)
		if got, want := math.Float32bits(F16ToFloat32(h)), math.Float32bits(h.Float32()); got != want {
			t.Fatalf("F16ToFloat32(%#04x) = %#08x, package float16 has %#08x", c, got, want)
		}
	}
}

func TestDecodeF8(t *testing.T) {
	tab := loadTables(t)
	for c := range 256 {
		for _, f := range []struct {
			name string
			got  float32
			nan  bool
			want uint32
		}{
			{"e4m3", Float8E4M3(c).Float32(), Float8E4M3(c).IsNaN(), tab.E4M3[c]},
			{"e5m2", Float8E5M2(c).Float32(), Float8E5M2(c).IsNaN(), tab.E5M2[c]},
		} {
			if bitsOf(f.got) != f.want {
				t.Errorf("%s %#02x decodes to %#08x, want %#08x", f.name, c, bitsOf(f.got), f.want)
			}
			if f.nan != (f.want == canonicalNaN) {
				t.Errorf("%s %#02x: IsNaN = %v", f.name, c, f.nan)
			}
			if math.Signbit(float64(f.got)) != (c >= 0x80) {
				t.Errorf("%s %#02x lost its sign", f.name, c)
			}
		}
	}
}

// The f32 bits 7f800001, a NaN whose payload is in the dropped bits, stay a NaN as bf16, and
// do not become an infinity. Values just above 2^-25 round up to the smallest f16 subnormal,
// and do not become zero.
func TestEncodeEdges(t *testing.T) {
	tab := loadTables(t)
	parse := func(s string) uint32 {
		v, err := strconv.ParseUint(s, 16, 32)
		if err != nil {
			t.Fatal(err)
		}
		return uint32(v)
	}
	for _, e := range tab.ToF16 {
		in, want := parse(e[0]), parse(e[1])
		if got := F16FromFloat32(math.Float32frombits(in)); uint32(got) != want {
			t.Errorf("f16 of bits %08x = %04x, want %04x", in, uint16(got), want)
		}
	}
	for _, e := range tab.ToBF16 {
		in, want := parse(e[0]), parse(e[1])
		if got := BF16FromFloat32(math.Float32frombits(in)); uint32(got) != want {
			t.Errorf("bf16 of bits %08x = %04x, want %04x", in, uint16(got), want)
		}
	}
}

// Every code of a narrow format that is not a NaN is unchanged by the conversion to f32 and
// back. A NaN stays a NaN of the same sign.
func TestRoundTrip(t *testing.T) {
	check := func(name string, codes, sign int, isNaN func(int) bool, trip func(int) int) {
		for c := range codes {
			got := trip(c)
			if isNaN(c) {
				if !isNaN(got) || got&sign != c&sign {
					t.Errorf("%s: the NaN %#x comes back as %#x", name, c, got)
				}
			} else if got != c {
				t.Errorf("%s: %#x comes back as %#x", name, c, got)
			}
		}
	}
	check("f16", 1<<16, 0x8000, func(c int) bool { return float16.Float16(c).IsNaN() },
		func(c int) int { return int(F16FromFloat32(F16ToFloat32(float16.Float16(c)))) })
	check("bf16", 1<<16, 0x8000, func(c int) bool { return BFloat16(c).IsNaN() },
		func(c int) int { return int(BF16FromFloat32(BFloat16(c).Float32())) })
	check("e4m3", 1<<8, 0x80, func(c int) bool { return Float8E4M3(c).IsNaN() },
		func(c int) int { return int(F8E4M3FromFloat32(Float8E4M3(c).Float32())) })
	check("e5m2", 1<<8, 0x80, func(c int) bool { return Float8E5M2(c).IsNaN() },
		func(c int) int { return int(F8E5M2FromFloat32(Float8E5M2(c).Float32())) })
}

// nearest finds the code nearest to x by search, ties to the even code. finite is the number
// of finite codes of one sign, and next the value that would follow the last one. A value
// nearer to next overflows.
func nearest(x float32, finite int, next float64, decode func(int) float64) (code int, overflow bool) {
	a := math.Abs(float64(x))
	if a >= next {
		return finite, true
	}
	best := math.Inf(1)
	for c := range finite + 1 {
		v := next
		if c < finite {
			v = decode(c)
		}
		if dist := math.Abs(a - v); dist < best || dist == best && c&1 == 0 {
			best, code = dist, c
		}
	}
	return code, code == finite
}

// TestF8EncodeNearest compares both FP8 encoders with a search over the decode table, for
// every f16 value, which covers every rounding boundary of both, and for its f32 neighbours.
// In particular, e4m3 rounds 464 down and makes 465 and infinity a NaN, and e5m2 keeps
// infinity.
func TestF8EncodeNearest(t *testing.T) {
	e4m3 := func(c int) float64 { return float64(Float8E4M3(c).Float32()) }
	e5m2 := func(c int) float64 { return float64(Float8E5M2(c).Float32()) }
	check := func(x float32) {
		sign := 0
		if math.Signbit(float64(x)) {
			sign = 0x80
		}
		want4, want5 := 0x7f, 0x7e
		switch {
		case x != x:
		case math.IsInf(float64(x), 0):
			want5 = 0x7c
		default:
			if c, over := nearest(x, 0x7f, 480, e4m3); !over {
				want4 = c
			}
			want5, _ = nearest(x, 0x7c, 65536, e5m2) // the code after the last is infinity
		}
		if got := int(F8E4M3FromFloat32(x)); got != sign|want4 {
			t.Errorf("e4m3 of %v (%08x) = %#02x, want %#02x", x, math.Float32bits(x), got, sign|want4)
		}
		if got := int(F8E5M2FromFloat32(x)); got != sign|want5 {
			t.Errorf("e5m2 of %v (%08x) = %#02x, want %#02x", x, math.Float32bits(x), got, sign|want5)
		}
	}
	for c := range 1 << 16 {
		x := F16ToFloat32(float16.Float16(c))
		check(x)
		if c&0x7f == 0 || os.Getenv("FUCINA_TEST_FULL") == "1" {
			check(math.Nextafter32(x, float32(math.Inf(1))))
			check(math.Nextafter32(x, float32(math.Inf(-1))))
		}
	}
	for _, x := range []float32{464, 465, 448, 57344, 61440, 1e30, 0x1p-149, 0x1p-10, 0x1.8p-10, 0x1p-17, 0x1.000002p-17} {
		check(x)
		check(-x)
		check(math.Nextafter32(x, 0))
		check(math.Nextafter32(x, 1e38))
	}
}

// TestF16EncodeNearest checks the midpoint of every pair of neighbouring f16 values, and one
// f32 step to each side of it.
func TestF16EncodeNearest(t *testing.T) {
	for c := range 0x7c00 {
		lo := F16ToFloat32(float16.Float16(c))
		hi := F16ToFloat32(float16.Float16(c + 1))
		if c == 0x7bff {
			hi = 65536
		}
		mid := float32((float64(lo) + float64(hi)) / 2)
		even := c + c&1
		for _, x := range []struct {
			in   float32
			want int
		}{{mid, even}, {math.Nextafter32(mid, 0), c}, {math.Nextafter32(mid, 1e38), c + 1}} {
			if got := int(F16FromFloat32(x.in)); got != x.want {
				t.Fatalf("f16 of %v = %#04x, want %#04x", x.in, got, x.want)
			}
			if got := int(F16FromFloat32(-x.in)); got != x.want|0x8000 {
				t.Fatalf("f16 of %v = %#04x, want %#04x", -x.in, got, x.want|0x8000)
			}
		}
	}
}

// TestF16EncodeAgainstPeer compares random bit patterns with package float16, which differs
// only in the payload of NaNs.
func TestF16EncodeAgainstPeer(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 1 << 18 {
		f := math.Float32frombits(rng.Uint32())
		got, want := F16FromFloat32(f), float16.Fromfloat32(f)
		if f != f {
			want = want&0x8000 | 0x7e00
		}
		if got != want {
			t.Fatalf("f16 of bits %08x = %04x, want %04x", math.Float32bits(f), uint16(got), uint16(want))
		}
	}
}

func ExampleF8E4M3FromFloat32() {
	for _, f := range []float32{0.3, 464, 465} {
		fmt.Println(F8E4M3FromFloat32(f).Float32())
	}
	// Output:
	// 0.3125
	// 448
	// NaN
}

var sink float32

func BenchmarkF16ToFloat32(b *testing.B) {
	for i := 0; b.Loop(); i++ {
		sink = F16ToFloat32(float16.Float16(i))
	}
}

func BenchmarkF16FromFloat32(b *testing.B) {
	for i := 0; b.Loop(); i++ {
		sink = float32(F16FromFloat32(float32(i)))
	}
}
