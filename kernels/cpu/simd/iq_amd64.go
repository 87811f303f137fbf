//go:build amd64 && !noasm

package simd

// iq2xxsRowsVNNI is q4kRowsVBMI for IQ2_XXS and Ascending. It needs AVX-512 F, BW, DQ, VL and VNNI, and
// BMI2.
//
//go:noescape
func iq2xxsRowsVNNI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// iq3xxsRowsVNNI is iq2xxsRowsVNNI for IQ3_XXS.
//
//go:noescape
func iq3xxsRowsVNNI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// iq2xsRowsVNNI is iq2xxsRowsVNNI for IQ2_XS.
//
//go:noescape
func iq2xsRowsVNNI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// iq2sRowsVNNI is iq2xxsRowsVNNI for IQ2_S.
//
//go:noescape
func iq2sRowsVNNI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// iq3sRowsVNNI is iq2xxsRowsVNNI for IQ3_S.
//
//go:noescape
func iq3sRowsVNNI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// iq1sRowsVNNI is iq2xxsRowsVNNI for IQ1_S.
//
//go:noescape
func iq1sRowsVNNI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// iq1mRowsVNNI is iq2xxsRowsVNNI for IQ1_M.
//
//go:noescape
func iq1mRowsVNNI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// tq10RowsVNNI is iq2xxsRowsVNNI for TQ1_0.
//
//go:noescape
func tq10RowsVNNI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// q8kRowsVNNI is iq2xxsRowsVNNI for Q8_K.
//
//go:noescape
func q8kRowsVNNI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// q20RowsVNNI is q40RowsVNNI for Q2_0.
//
//go:noescape
func q20RowsVNNI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// q20g64RowsVNNI is q40RowsVNNI for Q2_0_G64.
//
//go:noescape
func q20g64RowsVNNI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// nvfp4RowsVNNI is q40RowsVNNI for NVFP4.
//
//go:noescape
func nvfp4RowsVNNI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// q10RowsVNNI is q40RowsVNNI for Q1_0.
//
//go:noescape
func q10RowsVNNI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// q81RowsVNNI is q40RowsVNNI for Q8_1.
//
//go:noescape
func q81RowsVNNI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// The following functions are those whose names end in VNNI, with AVX2, BMI2, FMA and F16C only.

//go:noescape
func iq2xxsRowsAVX2(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func iq3xxsRowsAVX2(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func iq2xsRowsAVX2(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func iq2sRowsAVX2(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func iq3sRowsAVX2(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func iq1sRowsAVX2(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func iq1mRowsAVX2(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func tq10RowsAVX2(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q8kRowsAVX2(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q20RowsAVX2(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q20g64RowsAVX2(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func nvfp4RowsAVX2(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q10RowsAVX2(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q81RowsAVX2(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// The functions that unpack do what pack does for 32 whole rows of a format.

//go:noescape
func iq2xxsUnpack(panel, w *byte, rowBytes int)

//go:noescape
func iq3xxsUnpack(panel, w *byte, rowBytes int)

//go:noescape
func iq2xsUnpack(panel, w *byte, rowBytes int)

//go:noescape
func iq2sUnpack(panel, w *byte, rowBytes int)

//go:noescape
func iq3sUnpack(panel, w *byte, rowBytes int)

//go:noescape
func iq1sUnpack(panel, w *byte, rowBytes int)

//go:noescape
func iq1mUnpack(panel, w *byte, rowBytes int)

//go:noescape
func tq10Unpack(panel, w *byte, rowBytes int)

//go:noescape
func q8kUnpack(panel, w *byte, rowBytes int)

//go:noescape
func q20Unpack(panel, w *byte, rowBytes int)

//go:noescape
func q20g64Unpack(panel, w *byte, rowBytes int)

//go:noescape
func q10Unpack(panel, w *byte, rowBytes int)

//go:noescape
func q81Unpack(panel, w *byte, rowBytes int)

//go:noescape
func iq2xxsUnpackAVX2(panel, w *byte, rowBytes int)

//go:noescape
func iq3xxsUnpackAVX2(panel, w *byte, rowBytes int)

//go:noescape
func iq2xsUnpackAVX2(panel, w *byte, rowBytes int)

//go:noescape
func iq2sUnpackAVX2(panel, w *byte, rowBytes int)

//go:noescape
func iq3sUnpackAVX2(panel, w *byte, rowBytes int)

//go:noescape
func iq1sUnpackAVX2(panel, w *byte, rowBytes int)

//go:noescape
func iq1mUnpackAVX2(panel, w *byte, rowBytes int)

//go:noescape
func tq10UnpackAVX2(panel, w *byte, rowBytes int)

//go:noescape
func q8kUnpackAVX2(panel, w *byte, rowBytes int)

//go:noescape
func q20UnpackAVX2(panel, w *byte, rowBytes int)

//go:noescape
func q20g64UnpackAVX2(panel, w *byte, rowBytes int)

//go:noescape
func q10UnpackAVX2(panel, w *byte, rowBytes int)

//go:noescape
func q81UnpackAVX2(panel, w *byte, rowBytes int)
