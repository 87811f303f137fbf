package dtype

import (
	"errors"
	"fmt"
)

// ErrUnsupported is wrapped by errors about an operation that a format does not support.
var ErrUnsupported = errors.New("dtype: unsupported")

// FloatOp is a family of ops that share one compute and output policy.
type FloatOp uint8

const (
	// Pointwise ops have a kernel for every float and integer format.
	Pointwise FloatOp = iota + 1
	// Widened ops have only an f32 kernel: 16-bit floats are widened on load and narrowed
	// once on store.
	Widened
	// Reduction ops keep the wide accumulator as their result.
	Reduction
	// MatMul ops accumulate wide and return the input format.
	MatMul
)

// String returns the family's name.
func (op FloatOp) String() string {
	switch op {
	case Pointwise:
		return "pointwise"
	case Widened:
		return "widened"
	case Reduction:
		return "reduction"
	case MatMul:
		return "matmul"
	}
	return fmt.Sprintf("floatop(%d)", uint8(op))
}

// ComputeDType returns the format that op computes or accumulates in for inputs
// of d:
//
//	           f16   bf16  f32   f64   integers   bool   block
//	pointwise  f16   f32   f32   f64   the input  -      the input
//	widened    f32   f32   f32   f64   -          -      the input
//	reduction  f32   f32   f32   f64   i64        i64    the input
//	matmul     f32   f32   f32   f64   -          -      the input
//
// Integer arithmetic wraps. For a dash, the FP8 formats and invalid tags the error wraps
// [ErrUnsupported].
func ComputeDType(op FloatOp, d DType) (DType, error) {
	compute, _, err := policy(op, d)
	return compute, err
}

// OutputDType returns the format of op's result for inputs of d:
//
//	           f16   bf16  f32   f64   integers   bool   block
//	pointwise  f16   bf16  f32   f64   the input  -      the input
//	widened    f16   bf16  f32   f64   -          -      the input
//	reduction  f32   f32   f32   f64   i64        i64    the input
//	matmul     f16   bf16  f32   f64   -          -      the input
//
// It returns the same errors as [ComputeDType].
func OutputDType(op FloatOp, d DType) (DType, error) {
	_, output, err := policy(op, d)
	return output, err
}

func policy(op FloatOp, d DType) (compute, output DType, err error) {
	if op < Pointwise || op > MatMul {
		return Invalid, Invalid, fmt.Errorf("%w: %v is not an op family", ErrUnsupported, op)
	}
	switch d.class() {
	case classBlock, classBlockDot:
		return d, d, nil
	case classFloat:
		compute = F32
		if d == F64 || d == F16 && op == Pointwise {
			compute = d
		}
		output = d
		if op == Reduction {
			output = compute
		}
		return compute, output, nil
	case classInt, classUint:
		switch op {
		case Pointwise:
			return d, d, nil
		case Reduction:
			return I64, I64, nil
		}
	case classBool:
		if op == Reduction {
			return I64, I64, nil
		}
	}
	return Invalid, Invalid, fmt.Errorf("%w: %v has no %v math; cast it explicitly", ErrUnsupported, d, op)
}

// Accumulator returns the format in which a sum of elements of d is accumulated: f32 for
// f16, bf16, f32 and the FP8 formats, f64 for f64, and i64 for integers and bool. A sum of
// bool, u8 or u16 elements that fit in memory does not overflow i64. For block and invalid
// formats Accumulator returns Invalid.
func Accumulator(d DType) DType {
	switch d.class() {
	case classFloat, classF8:
		if d == F64 {
			return F64
		}
		return F32
	case classBool, classUint, classInt:
		return I64
	}
	return Invalid
}
