package dtype

import "github.com/x448/float16"

type (
	// BFloat16 is a bfloat16 value: the upper half of an f32.
	BFloat16 uint16
	// Float8E4M3 is an OCP FP8 E4M3FN value: one NaN code per sign, no infinities.
	Float8E4M3 uint8
	// Float8E5M2 is an OCP FP8 E5M2 value, with infinities and NaNs.
	Float8E5M2 uint8
)

// Element is the set of Go types that a buffer may be viewed as, one per format.
type Element interface {
	bool | uint8 | uint16 | int8 | int16 | int32 | int64 |
		float16.Float16 | BFloat16 | float32 | float64 | Float8E4M3 | Float8E5M2 | Block
}

// Block is the set of block structs.
type Block interface {
	BlockQ1_0 | BlockQ2_0 | BlockQ2_0_G64 | BlockQ4_0 | BlockQ4_1 | BlockQ5_0 | BlockQ5_1 | BlockQ8_0 | BlockQ8_1 |
		BlockQ2_K | BlockQ3_K | BlockQ4_K | BlockQ5_K | BlockQ6_K | BlockQ8_K |
		BlockIQ1_S | BlockIQ1_M | BlockIQ2_XXS | BlockIQ2_XS | BlockIQ2_S | BlockIQ3_XXS | BlockIQ3_S | BlockIQ4_NL | BlockIQ4_XS |
		BlockTQ1_0 | BlockTQ2_0 | BlockMXFP4 | BlockNVFP4
}

// Of returns the format whose elements have Go type T.
func Of[T Element]() DType {
	var zero T
	switch any(zero).(type) {
	case bool:
		return Bool
	case uint8:
		return U8
	case uint16:
		return U16
	case int8:
		return I8
	case int16:
		return I16
	case int32:
		return I32
	case int64:
		return I64
	case float16.Float16:
		return F16
	case BFloat16:
		return BF16
	case float32:
		return F32
	case float64:
		return F64
	case Float8E4M3:
		return F8E4M3
	case Float8E5M2:
		return F8E5M2
	case BlockQ1_0:
		return Q1_0
	case BlockQ2_0:
		return Q2_0
	case BlockQ2_0_G64:
		return Q2_0_G64
	case BlockQ4_0:
		return Q4_0
	case BlockQ4_1:
		return Q4_1
	case BlockQ5_0:
		return Q5_0
	case BlockQ5_1:
		return Q5_1
	case BlockQ8_0:
		return Q8_0
	case BlockQ8_1:
		return Q8_1
	case BlockQ2_K:
		return Q2_K
	case BlockQ3_K:
		return Q3_K
	case BlockQ4_K:
		return Q4_K
	case BlockQ5_K:
		return Q5_K
	case BlockQ6_K:
		return Q6_K
	case BlockQ8_K:
		return Q8_K
	case BlockIQ1_S:
		return IQ1_S
	case BlockIQ1_M:
		return IQ1_M
	case BlockIQ2_XXS:
		return IQ2_XXS
	case BlockIQ2_XS:
		return IQ2_XS
	case BlockIQ2_S:
		return IQ2_S
	case BlockIQ3_XXS:
		return IQ3_XXS
	case BlockIQ3_S:
		return IQ3_S
	case BlockIQ4_NL:
		return IQ4_NL
	case BlockIQ4_XS:
		return IQ4_XS
	case BlockTQ1_0:
		return TQ1_0
	case BlockTQ2_0:
		return TQ2_0
	case BlockMXFP4:
		return MXFP4
	case BlockNVFP4:
		return NVFP4
	}
	return Invalid
}
