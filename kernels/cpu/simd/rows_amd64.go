//go:build amd64 && !noasm

package simd

import "github.com/fucina-go/fucina/core/dtype"

var rowsAVX2 = [dtype.Count]rows{
	dtype.Q4_K:    q4kRowsAVX2,
	dtype.Q5_K:    q5kRowsAVX2,
	dtype.Q6_K:    q6kRowsAVX2,
	dtype.Q2_K:    q2kRowsAVX2,
	dtype.Q3_K:    q3kRowsAVX2,
	dtype.TQ2_0:   tq20RowsAVX2,
	dtype.IQ4_XS:  iq4xsRowsAVX2,
	dtype.Q4_0:    q40RowsAVX2,
	dtype.Q4_1:    q41RowsAVX2,
	dtype.Q5_0:    q50RowsAVX2,
	dtype.Q5_1:    q51RowsAVX2,
	dtype.Q8_0:    q80RowsAVX2,
	dtype.IQ4_NL:  iq4nlRowsAVX2,
	dtype.MXFP4:   mxfp4RowsAVX2,
	dtype.IQ2_XXS: iq2xxsRowsAVX2, dtype.IQ3_XXS: iq3xxsRowsAVX2, dtype.IQ2_XS: iq2xsRowsAVX2, dtype.IQ2_S: iq2sRowsAVX2, dtype.IQ3_S: iq3sRowsAVX2,
	dtype.IQ1_S: iq1sRowsAVX2, dtype.IQ1_M: iq1mRowsAVX2, dtype.TQ1_0: tq10RowsAVX2,
	dtype.Q8_K: q8kRowsAVX2, dtype.Q2_0: q20RowsAVX2, dtype.Q2_0_G64: q20g64RowsAVX2, dtype.NVFP4: nvfp4RowsAVX2, dtype.Q1_0: q10RowsAVX2, dtype.Q8_1: q81RowsAVX2,
}

var rowsAVXVNNI = [dtype.Count]rows{
	dtype.Q4_K:   q4kRowsAVXVNNI,
	dtype.Q5_K:   q5kRowsAVXVNNI,
	dtype.Q6_K:   q6kRowsAVXVNNI,
	dtype.Q2_K:   q2kRowsAVXVNNI,
	dtype.Q3_K:   q3kRowsAVXVNNI,
	dtype.TQ2_0:  tq20RowsAVXVNNI,
	dtype.IQ4_XS: iq4xsRowsAVXVNNI,
	dtype.Q4_0:   q40RowsAVXVNNI,
	dtype.Q4_1:   q41RowsAVXVNNI,
	dtype.Q5_0:   q50RowsAVXVNNI,
	dtype.Q5_1:   q51RowsAVXVNNI,
	dtype.Q8_0:   q80RowsAVXVNNI,
	dtype.IQ4_NL: iq4nlRowsAVXVNNI,
	dtype.MXFP4:  mxfp4RowsAVXVNNI,
}

// The following functions are those whose names end in VBMI or VNNI, with AVX2, FMA and F16C only.

//go:noescape
func q4kRowsAVX2(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q5kRowsAVX2(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q6kRowsAVX2(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q2kRowsAVX2(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q3kRowsAVX2(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func tq20RowsAVX2(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func iq4xsRowsAVX2(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q40RowsAVX2(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q41RowsAVX2(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q50RowsAVX2(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q51RowsAVX2(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q80RowsAVX2(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func iq4nlRowsAVX2(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func mxfp4RowsAVX2(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// The following functions are those whose names end in VBMI or VNNI, with AVX2, FMA, F16C and AVX-VNNI only.

//go:noescape
func q4kRowsAVXVNNI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q5kRowsAVXVNNI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q6kRowsAVXVNNI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q2kRowsAVXVNNI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q3kRowsAVXVNNI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func tq20RowsAVXVNNI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func iq4xsRowsAVXVNNI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q40RowsAVXVNNI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q41RowsAVXVNNI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q50RowsAVXVNNI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q51RowsAVXVNNI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q80RowsAVXVNNI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func iq4nlRowsAVXVNNI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func mxfp4RowsAVXVNNI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)
