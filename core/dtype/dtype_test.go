package dtype

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/x448/float16"
)

// goType describes a format's Go type.
type goType struct {
	dtype DType
	size  uintptr
	align uintptr
}

func typeOf[T Element]() goType {
	var zero T
	return goType{Of[T](), unsafe.Sizeof(zero), unsafe.Alignof(zero)}
}

// goTypes has one entry per type of [Element], in tag order.
var goTypes = []goType{
	typeOf[bool](), typeOf[uint8](), typeOf[uint16](), typeOf[int8](), typeOf[int16](), typeOf[int32](), typeOf[int64](),
	typeOf[float16.Float16](), typeOf[BFloat16](), typeOf[float32](), typeOf[float64](), typeOf[Float8E4M3](), typeOf[Float8E5M2](),
	typeOf[BlockQ1_0](), typeOf[BlockQ2_0](), typeOf[BlockQ2_0_G64](), typeOf[BlockQ4_0](), typeOf[BlockQ4_1](), typeOf[BlockQ5_0](),
	typeOf[BlockQ5_1](), typeOf[BlockQ8_0](), typeOf[BlockQ8_1](), typeOf[BlockQ2_K](), typeOf[BlockQ3_K](), typeOf[BlockQ4_K](),
	typeOf[BlockQ5_K](), typeOf[BlockQ6_K](), typeOf[BlockQ8_K](), typeOf[BlockIQ1_S](), typeOf[BlockIQ1_M](), typeOf[BlockIQ2_XXS](),
	typeOf[BlockIQ2_XS](), typeOf[BlockIQ2_S](), typeOf[BlockIQ3_XXS](), typeOf[BlockIQ3_S](), typeOf[BlockIQ4_NL](), typeOf[BlockIQ4_XS](),
	typeOf[BlockTQ1_0](), typeOf[BlockTQ2_0](), typeOf[BlockMXFP4](), typeOf[BlockNVFP4](),
}

func TestRegistryMatchesGoTypes(t *testing.T) {
	if len(goTypes) != len(All()) {
		t.Fatalf("%d Go types for %d formats", len(goTypes), len(All()))
	}
	for i, d := range All() {
		g := goTypes[i]
		if g.dtype != d {
			t.Errorf("Of gives %v where the tag is %v", g.dtype, d)
		}
		if int(g.size) != d.Size() {
			t.Errorf("%v: Size %d, the Go type has %d bytes", d, d.Size(), g.size)
		}
		if d.IsBlockQuantized() && g.align > 2 {
			t.Errorf("%v: the block struct is aligned to %d bytes", d, g.align)
		}
	}
}

// geometry lists every format's elements and bytes per block, with ggml's type ids.
var geometry = []struct {
	name               string
	block, bytes, gguf int
}{
	{"bool", 1, 1, NoGGUF}, {"u8", 1, 1, NoGGUF}, {"u16", 1, 2, NoGGUF},
	{"i8", 1, 1, 24}, {"i16", 1, 2, 25}, {"i32", 1, 4, 26}, {"i64", 1, 8, 27},
	{"f16", 1, 2, 1}, {"bf16", 1, 2, 30}, {"f32", 1, 4, 0}, {"f64", 1, 8, 28},
	{"f8_e4m3", 1, 1, NoGGUF}, {"f8_e5m2", 1, 1, NoGGUF},
	{"q1_0", 128, 18, 41}, {"q2_0", 128, 34, 42}, {"q2_0_g64", 64, 18, 42},
	{"q4_0", 32, 18, 2}, {"q4_1", 32, 20, 3}, {"q5_0", 32, 22, 6}, {"q5_1", 32, 24, 7},
	{"q8_0", 32, 34, 8}, {"q8_1", 32, 36, 9},
	{"q2_k", 256, 84, 10}, {"q3_k", 256, 110, 11}, {"q4_k", 256, 144, 12}, {"q5_k", 256, 176, 13},
	{"q6_k", 256, 210, 14}, {"q8_k", 256, 292, 15},
	{"iq1_s", 256, 50, 19}, {"iq1_m", 256, 56, 29}, {"iq2_xxs", 256, 66, 16}, {"iq2_xs", 256, 74, 17},
	{"iq2_s", 256, 82, 22}, {"iq3_xxs", 256, 98, 18}, {"iq3_s", 256, 110, 21}, {"iq4_nl", 32, 18, 20}, {"iq4_xs", 256, 136, 23},
	{"tq1_0", 256, 54, 34}, {"tq2_0", 256, 66, 35}, {"mxfp4", 32, 17, 39}, {"nvfp4", 64, 36, 40},
}

func TestRegistry(t *testing.T) {
	seen := map[string]bool{}
	for i, d := range All() {
		want := geometry[i]
		if d.String() != want.name || d.BlockSize() != want.block || d.Size() != want.bytes || d.GGUF() != want.gguf {
			t.Errorf("%v: block %d, %d bytes, GGUF id %d; want %+v", d, d.BlockSize(), d.Size(), d.GGUF(), want)
		}
		if seen[d.String()] {
			t.Errorf("two formats are named %v", d)
		}
		seen[d.String()] = true
		if got, err := Parse(d.String()); err != nil || got != d {
			t.Errorf("Parse(%q) = %v, %v", d.String(), got, err)
		}
		if d.GGUF() != NoGGUF && !slices.Contains(FromGGUF(uint32(d.GGUF())), d) {
			t.Errorf("FromGGUF(%d) = %v lacks %v", d.GGUF(), FromGGUF(uint32(d.GGUF())), d)
		}
		if d.IsScalar() == d.IsBlockQuantized() {
			t.Errorf("%v: IsScalar and IsBlockQuantized agree", d)
		}
		if d.IsScalar() && d.BlockSize() != 1 {
			t.Errorf("%v: a scalar with blocks of %d", d, d.BlockSize())
		}
	}
	if len(geometry) != len(All()) {
		t.Errorf("the registry has %d formats, want %d", len(All()), len(geometry))
	}
	for id := range uint32(64) {
		want := 1
		switch {
		case id == 42:
			want = 2
		// These ids were removed from the format (4, 5, 31 to 33, 36 to 38) or never assigned.
		case id == 4 || id == 5 || id >= 31 && id <= 33 || id >= 36 && id <= 38 || id > 42:
			want = 0
		}
		if got := FromGGUF(id); len(got) != want {
			t.Errorf("FromGGUF(%d) = %v, want %d formats", id, got, want)
		}
	}
}

// TestPredicates checks each predicate against the list of the formats that have it.
func TestPredicates(t *testing.T) {
	floats := "f16 bf16 f32 f64"
	f8 := "f8_e4m3 f8_e5m2"
	signed := "i8 i16 i32 i64"
	unsigned := "u8 u16"
	rhs := "q1_0 q2_0 q2_0_g64 q4_0 q4_1 q5_0 q5_1 q8_0 q2_k q3_k q4_k q5_k q6_k iq1_s iq1_m iq2_xxs iq2_xs iq2_s " +
		"iq3_xxs iq3_s iq4_nl iq4_xs tq1_0 tq2_0 mxfp4 nvfp4"
	blocks := rhs + " q8_1 q8_k"
	for _, c := range []struct {
		name string
		pred func(DType) bool
		want string
	}{
		{"Valid", DType.Valid, "bool " + unsigned + " " + signed + " " + floats + " " + f8 + " " + blocks},
		{"IsScalar", DType.IsScalar, "bool " + unsigned + " " + signed + " " + floats + " " + f8},
		{"IsBlockQuantized", DType.IsBlockQuantized, blocks},
		{"IsF8", DType.IsF8, f8},
		{"IsSignedInteger", DType.IsSignedInteger, signed},
		{"IsUnsignedInteger", DType.IsUnsignedInteger, unsigned},
		{"SupportsForwardFloatMath", DType.SupportsForwardFloatMath, floats},
		{"SupportsGrad", DType.SupportsGrad, "f16 bf16 f32"},
		{"SupportsIntMath", DType.SupportsIntMath, unsigned + " " + signed},
		{"SupportsToFloat", DType.SupportsToFloat, floats + " " + f8 + " " + blocks},
		{"SupportsQuantizedMatMulRHS", DType.SupportsQuantizedMatMulRHS, rhs},
		{"SupportsQuantizedGetRows", DType.SupportsQuantizedGetRows, blocks},
		{"Logical is not itself", func(d DType) bool { return d.Logical() != d }, f8 + " " + blocks},
		{"Logical is f32", func(d DType) bool { return d.Logical() == F32 }, "f32 " + f8 + " " + blocks},
	} {
		want := strings.Fields(c.want)
		for d := range DType(255) {
			if got := c.pred(d); got != (d.Valid() && slices.Contains(want, d.String())) {
				t.Errorf("%s(%v) = %v", c.name, d, got)
			}
		}
	}
}

func TestInvalid(t *testing.T) {
	for _, d := range []DType{Invalid, Count, 255} {
		if d.Kind() != 0 || d.Size() != 0 || d.BlockSize() != 0 || d.GGUF() != NoGGUF || One(d) != 0 || Accumulator(d) != Invalid {
			t.Errorf("%v has properties", d)
		}
		if !strings.HasPrefix(d.String(), "dtype(") {
			t.Errorf("String() = %q", d.String())
		}
	}
	for _, name := range []string{"", "F32", "q4", "dtype(0)"} {
		if d, err := Parse(name); err == nil || d != Invalid {
			t.Errorf("Parse(%q) = %v, %v", name, d, err)
		}
	}
}

// TestPolicy walks the table of compute and output formats. Each entry is "compute
// output"; an empty entry is an error.
func TestPolicy(t *testing.T) {
	table := map[string][4]string{ // pointwise, widened, reduction, matmul
		"bool":    {"", "", "i64 i64", ""},
		"f16":     {"f16 f16", "f32 f16", "f32 f32", "f32 f16"},
		"bf16":    {"f32 bf16", "f32 bf16", "f32 f32", "f32 bf16"},
		"f32":     {"f32 f32", "f32 f32", "f32 f32", "f32 f32"},
		"f64":     {"f64 f64", "f64 f64", "f64 f64", "f64 f64"},
		"f8_e4m3": {},
		"f8_e5m2": {},
	}
	for d := range Count + 1 {
		row, listed := table[d.String()]
		switch {
		case listed || !d.Valid():
		case d.IsBlockQuantized():
			same := d.String() + " " + d.String()
			row = [4]string{same, same, same, same}
		default:
			row = [4]string{d.String() + " " + d.String(), "", "i64 i64", ""}
		}
		for i, op := range []FloatOp{Pointwise, Widened, Reduction, MatMul} {
			compute, err := ComputeDType(op, d)
			output, err2 := OutputDType(op, d)
			if row[i] == "" {
				if !errors.Is(err, ErrUnsupported) || !errors.Is(err2, ErrUnsupported) || compute != Invalid || output != Invalid {
					t.Errorf("%v of %v = %v %v, errors %v, %v; want ErrUnsupported", op, d, compute, output, err, err2)
				}
				continue
			}
			if got := compute.String() + " " + output.String(); err != nil || err2 != nil || got != row[i] {
				t.Errorf("%v of %v = %q, %v; want %q", op, d, got, err, row[i])
			}
		}
	}
	for _, op := range []FloatOp{0, MatMul + 1} {
		if _, err := ComputeDType(op, F32); !errors.Is(err, ErrUnsupported) {
			t.Errorf("ComputeDType(%v, f32): %v", op, err)
		}
	}
}

func TestAccumulator(t *testing.T) {
	for d := range Count + 1 {
		want := Invalid
		switch {
		case d == F64:
			want = F64
		case d.SupportsForwardFloatMath() || d.IsF8():
			want = F32
		case d == Bool || d.SupportsIntMath():
			want = I64
		}
		if got := Accumulator(d); got != want {
			t.Errorf("Accumulator(%v) = %v, want %v", d, got, want)
		}
	}
}
