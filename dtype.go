package fucina

import "github.com/fucina-go/fucina/core/dtype"

// DType is the format of a tensor's elements.
type DType = dtype.DType

// The formats of elements that Go programs make and read. Package core/dtype has those of
// weights.
const (
	Bool = dtype.Bool
	U8   = dtype.U8
	U16  = dtype.U16
	I8   = dtype.I8
	I16  = dtype.I16
	I32  = dtype.I32
	I64  = dtype.I64
	F16  = dtype.F16
	BF16 = dtype.BF16
	F32  = dtype.F32
	F64  = dtype.F64
	Q8_0 = dtype.Q8_0
)

// Element is a storage element: a number of any format, or a block of weights.
type Element = dtype.Element

// BFloat16 is the element of BF16. That of F16 is Float16 of package
// github.com/x448/float16.
type BFloat16 = dtype.BFloat16

// Scalar is an element that Go computes with.
type Scalar interface {
	bool | uint8 | uint16 | int8 | int16 | int32 | int64 | float32 | float64
}
