package fucina

import "github.com/fucina-go/fucina/core/dtype"

// DType is the element format of a tensor.
type DType = dtype.DType

// The element formats that Go programs write and read directly. Package core/dtype has the
// formats of weights.
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

// Element is the Go type of a storage element: a number, or a block of weights.
type Element = dtype.Element

// BFloat16 is the element type of BF16. The element type of F16 is Float16 of package
// github.com/x448/float16.
type BFloat16 = dtype.BFloat16

// Scalar is an element type that Go has arithmetic or logic for.
type Scalar interface {
	bool | uint8 | uint16 | int8 | int16 | int32 | int64 | float32 | float64
}
