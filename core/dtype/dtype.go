package dtype

import "fmt"

// DType is the format tag of a buffer or tensor.
type DType uint8

// The zero DType is invalid, so that a field that was not set is noticed.
const (
	Invalid DType = iota

	Bool
	U8
	U16
	I8
	I16
	I32
	I64
	F16
	BF16
	F32
	F64
	F8E4M3
	F8E5M2

	Q1_0
	Q2_0
	Q2_0_G64
	Q4_0
	Q4_1
	Q5_0
	Q5_1
	Q8_0
	Q8_1
	Q2_K
	Q3_K
	Q4_K
	Q5_K
	Q6_K
	Q8_K
	IQ1_S
	IQ1_M
	IQ2_XXS
	IQ2_XS
	IQ2_S
	IQ3_XXS
	IQ3_S
	IQ4_NL
	IQ4_XS
	TQ1_0
	TQ2_0
	MXFP4
	NVFP4

	// Count is one past the last tag.
	Count
)

// Kind is the way in which a format is stored.
type Kind uint8

const (
	// Scalar formats store one element per logical element.
	Scalar Kind = iota + 1
	// BlockQuantized formats store one packed block per BlockSize logical elements.
	BlockQuantized
)

// class refines Kind for the predicates.
type class uint8

const (
	classBool class = iota + 1
	classUint
	classInt
	classFloat
	classF8
	classBlock
	// classBlockDot marks the block formats that only ever hold activations
	// (the left side of a quantized dot product).
	classBlockDot
)

// NoGGUF is the GGUF id of a format that a GGUF file cannot contain.
const NoGGUF = -1

type info struct {
	name  string
	class class
	block int // logical elements per storage element
	bytes int // bytes per storage element
	gguf  int // ggml_type in a GGUF file, or NoGGUF
}

// registry is the table from which every property of a format is derived. GGUF ids are
// ggml_type of ggml 0.23 (include/ggml.h). Q2_0 and Q2_0_G64 share id 42; the byte extents
// in a file show which format it has.
var registry = [Count]info{
	Bool:     {"bool", classBool, 1, 1, NoGGUF},
	U8:       {"u8", classUint, 1, 1, NoGGUF},
	U16:      {"u16", classUint, 1, 2, NoGGUF},
	I8:       {"i8", classInt, 1, 1, 24},
	I16:      {"i16", classInt, 1, 2, 25},
	I32:      {"i32", classInt, 1, 4, 26},
	I64:      {"i64", classInt, 1, 8, 27},
	F16:      {"f16", classFloat, 1, 2, 1},
	BF16:     {"bf16", classFloat, 1, 2, 30},
	F32:      {"f32", classFloat, 1, 4, 0},
	F64:      {"f64", classFloat, 1, 8, 28},
	F8E4M3:   {"f8_e4m3", classF8, 1, 1, NoGGUF},
	F8E5M2:   {"f8_e5m2", classF8, 1, 1, NoGGUF},
	Q1_0:     {"q1_0", classBlock, 128, 18, 41},
	Q2_0:     {"q2_0", classBlock, 128, 34, 42},
	Q2_0_G64: {"q2_0_g64", classBlock, 64, 18, 42},
	Q4_0:     {"q4_0", classBlock, 32, 18, 2},
	Q4_1:     {"q4_1", classBlock, 32, 20, 3},
	Q5_0:     {"q5_0", classBlock, 32, 22, 6},
	Q5_1:     {"q5_1", classBlock, 32, 24, 7},
	Q8_0:     {"q8_0", classBlock, 32, 34, 8},
	Q8_1:     {"q8_1", classBlockDot, 32, 36, 9},
	Q2_K:     {"q2_k", classBlock, 256, 84, 10},
	Q3_K:     {"q3_k", classBlock, 256, 110, 11},
	Q4_K:     {"q4_k", classBlock, 256, 144, 12},
	Q5_K:     {"q5_k", classBlock, 256, 176, 13},
	Q6_K:     {"q6_k", classBlock, 256, 210, 14},
	Q8_K:     {"q8_k", classBlockDot, 256, 292, 15},
	IQ1_S:    {"iq1_s", classBlock, 256, 50, 19},
	IQ1_M:    {"iq1_m", classBlock, 256, 56, 29},
	IQ2_XXS:  {"iq2_xxs", classBlock, 256, 66, 16},
	IQ2_XS:   {"iq2_xs", classBlock, 256, 74, 17},
	IQ2_S:    {"iq2_s", classBlock, 256, 82, 22},
	IQ3_XXS:  {"iq3_xxs", classBlock, 256, 98, 18},
	IQ3_S:    {"iq3_s", classBlock, 256, 110, 21},
	IQ4_NL:   {"iq4_nl", classBlock, 32, 18, 20},
	IQ4_XS:   {"iq4_xs", classBlock, 256, 136, 23},
	TQ1_0:    {"tq1_0", classBlock, 256, 54, 34},
	TQ2_0:    {"tq2_0", classBlock, 256, 66, 35},
	MXFP4:    {"mxfp4", classBlock, 32, 17, 39},
	NVFP4:    {"nvfp4", classBlock, 64, 36, 40},
}

// All returns every valid format, in tag order.
func All() []DType {
	all := make([]DType, 0, Count-1)
	for d := Invalid + 1; d < Count; d++ {
		all = append(all, d)
	}
	return all
}

// Valid reports whether d is one of the formats of this package.
func (d DType) Valid() bool { return d > Invalid && d < Count }

func (d DType) class() class {
	if !d.Valid() {
		return 0
	}
	return registry[d].class
}

// String returns the tag's name, such as "q4_k".
func (d DType) String() string {
	if !d.Valid() {
		return fmt.Sprintf("dtype(%d)", uint8(d))
	}
	return registry[d].name
}

// Parse returns the format called name.
func Parse(name string) (DType, error) {
	for d := Invalid + 1; d < Count; d++ {
		if registry[d].name == name {
			return d, nil
		}
	}
	return Invalid, fmt.Errorf("dtype: %q is not a format name", name)
}

// Kind returns the kind of d, or 0 if d is not valid.
func (d DType) Kind() Kind {
	switch d.class() {
	case 0:
		return 0
	case classBlock, classBlockDot:
		return BlockQuantized
	}
	return Scalar
}

// IsScalar reports whether d stores one element per logical element.
func (d DType) IsScalar() bool { return d.Kind() == Scalar }

// IsBlockQuantized reports whether d stores packed blocks.
func (d DType) IsBlockQuantized() bool { return d.Kind() == BlockQuantized }

// BlockSize returns the number of logical elements per storage element: 1 for a scalar
// format, 0 for an invalid tag.
func (d DType) BlockSize() int {
	if !d.Valid() {
		return 0
	}
	return registry[d].block
}

// Size returns the bytes of a storage element: an element of a scalar format, or a block of
// a block format. It returns 0 for an invalid tag.
func (d DType) Size() int {
	if !d.Valid() {
		return 0
	}
	return registry[d].bytes
}

// GGUF returns the format's ggml_type in a GGUF file, or NoGGUF.
func (d DType) GGUF() int {
	if !d.Valid() {
		return NoGGUF
	}
	return registry[d].gguf
}

// FromGGUF returns the formats with the GGUF id. There are two for id 42 (Q2_0 and
// Q2_0_G64), one for every other known id, and none for an unknown id.
func FromGGUF(id uint32) []DType {
	var out []DType
	for d := Invalid + 1; d < Count; d++ {
		if g := registry[d].gguf; g != NoGGUF && uint32(g) == id {
			out = append(out, d)
		}
	}
	return out
}

// IsF8 reports whether d is one of the OCP FP8 storage floats: convertible to and
// from f32, excluded from forward math and gradients.
func (d DType) IsF8() bool { return d.class() == classF8 }

// IsSignedInteger reports whether d is i8, i16, i32 or i64.
func (d DType) IsSignedInteger() bool { return d.class() == classInt }

// IsUnsignedInteger reports whether d is u8 or u16.
func (d DType) IsUnsignedInteger() bool { return d.class() == classUint }

// SupportsForwardFloatMath reports whether float ops accept d: f16, bf16, f32 and f64.
func (d DType) SupportsForwardFloatMath() bool { return d.class() == classFloat }

// SupportsGrad reports whether tensors of d may have a gradient: f16, bf16 and f32.
func (d DType) SupportsGrad() bool { return d.class() == classFloat && d != F64 }

// SupportsIntMath reports whether integer pointwise ops accept d. Bool supports reductions
// but not pointwise ops.
func (d DType) SupportsIntMath() bool { return d.IsSignedInteger() || d.IsUnsignedInteger() }

// SupportsToFloat reports whether d converts to f32: floats, FP8 and block formats.
func (d DType) SupportsToFloat() bool {
	switch d.class() {
	case classFloat, classF8, classBlock, classBlockDot:
		return true
	}
	return false
}

// SupportsQuantizedMatMulRHS reports whether d may be the format of a matmul's quantized
// weight: every block format except Q8_1 and Q8_K, which only hold activations.
func (d DType) SupportsQuantizedMatMulRHS() bool { return d.class() == classBlock }

// SupportsQuantizedGetRows reports whether rows of d can be gathered and decoded.
func (d DType) SupportsQuantizedGetRows() bool { return d.IsBlockQuantized() }

// Logical returns the format of d's decoded values: f32 for block formats and FP8, d itself
// otherwise.
func (d DType) Logical() DType {
	switch d.class() {
	case classF8, classBlock, classBlockDot:
		return F32
	}
	return d
}
