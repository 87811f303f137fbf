//go:build arm64 && !noasm

package dense

// tileNEONx2 multiplies 3 rows of weights in f32, wStride bytes apart, by count times 2 rows of x, xStride
// bytes apart. Rows have 16*steps elements, and tail is 0. The sums of products begin as 0 or, with the
// mode resume, as in acc, which is [count][2][3][16]. With the mode keep, acc gets the sums. Otherwise out
// gets the products: the one of row i of x and row r of weights is r elements after out and outStride*i
// bytes, for the first rows of the 3 rows of weights. wrap and next are not used.
//
//go:noescape
func tileNEONx2(out *float32, outStride int, w *byte, wStride int, x *float32, xStride int, steps, tail int,
	acc *float32, mode, rows, count int, wrap *float32, next *byte, nextStride, nextStep, nextMask int)

// tileNEONx1 is tileNEONx2 for 1 row of x.
//
//go:noescape
func tileNEONx1(out *float32, outStride int, w *byte, wStride int, x *float32, xStride int, steps, tail int,
	acc *float32, mode, rows, count int, wrap *float32, next *byte, nextStride, nextStep, nextMask int)

// rowsNEONF32 sets out[i] to the product of row i of weights and x, for the given number of rows, rowBytes
// bytes apart, with k elements, a positive multiple of 16.
//
//go:noescape
func rowsNEONF32(out *float32, w *byte, rowBytes, rows int, x *float32, k int)

// rowsNEONF16 is rowsNEONF32 for weights in f16.
//
//go:noescape
func rowsNEONF16(out *float32, w *byte, rowBytes, rows int, x *float32, k int)

// rowsNEONBF16 is rowsNEONF32 for weights in bf16.
//
//go:noescape
func rowsNEONBF16(out *float32, w *byte, rowBytes, rows int, x *float32, k int)

// widenNEONF16 is widen for f16. count is a positive multiple of 16.
//
//go:noescape
func widenNEONF16(dst *float32, src *byte, count int)

// widenNEONBF16 is widen for bf16. count is a positive multiple of 16.
//
//go:noescape
func widenNEONBF16(dst *float32, src *byte, count int)
