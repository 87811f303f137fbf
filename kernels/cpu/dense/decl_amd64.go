//go:build amd64 && !noasm

package dense

//go:generate go run -C ../_asm ./dense -out ../dense/dense_amd64.s

// tile512x3 multiplies 8 rows of weights in f32, wStride bytes apart, by count times 3 rows of x, xStride
// bytes apart. Rows have 16*steps+tail elements, and tail is below 16. The sums of products begin as 0 or,
// with the mode resume, as in acc, which is [count][3][8][16]. With the mode keep, acc gets the sums.
// Otherwise out gets the products: the one of row i of x and row r of weights is r elements after out and
// outStride*i bytes, for the first rows of the 8 rows of weights.
//
// It prefetches the next 3 rows of x, or the rows at wrap at the end, and memory at next. next moves by
// nextStep bytes with each 16 elements, and by nextStride bytes after 3 rows of x if the number of those
// that are left has no bit of nextMask. It needs AVX-512 F, DQ and VL.
//
//go:noescape
func tile512x3(out *float32, outStride int, w *byte, wStride int, x *float32, xStride int, steps, tail int, acc *float32, mode, rows, count int, wrap *float32, next *byte, nextStride, nextStep, nextMask int)

// tile512x2 is tile512x3 for 2 rows of x.
//
//go:noescape
func tile512x2(out *float32, outStride int, w *byte, wStride int, x *float32, xStride int, steps, tail int, acc *float32, mode, rows, count int, wrap *float32, next *byte, nextStride, nextStep, nextMask int)

// tile512x1 is tile512x3 for 1 row of x.
//
//go:noescape
func tile512x1(out *float32, outStride int, w *byte, wStride int, x *float32, xStride int, steps, tail int, acc *float32, mode, rows, count int, wrap *float32, next *byte, nextStride, nextStep, nextMask int)

// single512x3F16 is tile512x3 for weights in f16 and count 1. It prefetches only rows of x.
//
//go:noescape
func single512x3F16(out *float32, outStride int, w *byte, wStride int, x *float32, xStride int, steps, tail int, acc *float32, mode, rows int)

// single512x3BF16 is tile512x3 for weights in bf16 and count 1. It prefetches only rows of x.
//
//go:noescape
func single512x3BF16(out *float32, outStride int, w *byte, wStride int, x *float32, xStride int, steps, tail int, acc *float32, mode, rows int)

// single512x2F16 is tile512x2 for weights in f16 and count 1. It prefetches only rows of x.
//
//go:noescape
func single512x2F16(out *float32, outStride int, w *byte, wStride int, x *float32, xStride int, steps, tail int, acc *float32, mode, rows int)

// single512x2BF16 is tile512x2 for weights in bf16 and count 1. It prefetches only rows of x.
//
//go:noescape
func single512x2BF16(out *float32, outStride int, w *byte, wStride int, x *float32, xStride int, steps, tail int, acc *float32, mode, rows int)

// single512x1F16 is tile512x1 for weights in f16 and count 1. It prefetches only rows of x.
//
//go:noescape
func single512x1F16(out *float32, outStride int, w *byte, wStride int, x *float32, xStride int, steps, tail int, acc *float32, mode, rows int)

// single512x1BF16 is tile512x1 for weights in bf16 and count 1. It prefetches only rows of x.
//
//go:noescape
func single512x1BF16(out *float32, outStride int, w *byte, wStride int, x *float32, xStride int, steps, tail int, acc *float32, mode, rows int)

// tile2x2 is tile512x3 for 3 rows of weights and 2 rows of x: acc is [count][2][3][16]. It needs AVX2 and
// FMA.
//
//go:noescape
func tile2x2(out *float32, outStride int, w *byte, wStride int, x *float32, xStride int, steps, tail int, acc *float32, mode, rows, count int, wrap *float32, next *byte, nextStride, nextStep, nextMask int)

// tile2x1 is tile2x2 for 1 row of x.
//
//go:noescape
func tile2x1(out *float32, outStride int, w *byte, wStride int, x *float32, xStride int, steps, tail int, acc *float32, mode, rows, count int, wrap *float32, next *byte, nextStride, nextStep, nextMask int)

// single2x2F16 is tile2x2 for weights in f16 and count 1. It prefetches only rows of x. It needs
// F16C, too.
//
//go:noescape
func single2x2F16(out *float32, outStride int, w *byte, wStride int, x *float32, xStride int, steps, tail int, acc *float32, mode, rows int)

// single2x2BF16 is tile2x2 for weights in bf16 and count 1. It prefetches only rows of x.
//
//go:noescape
func single2x2BF16(out *float32, outStride int, w *byte, wStride int, x *float32, xStride int, steps, tail int, acc *float32, mode, rows int)

// single2x1F16 is tile2x1 for weights in f16 and count 1. It prefetches only rows of x. It needs
// F16C, too.
//
//go:noescape
func single2x1F16(out *float32, outStride int, w *byte, wStride int, x *float32, xStride int, steps, tail int, acc *float32, mode, rows int)

// single2x1BF16 is tile2x1 for weights in bf16 and count 1. It prefetches only rows of x.
//
//go:noescape
func single2x1BF16(out *float32, outStride int, w *byte, wStride int, x *float32, xStride int, steps, tail int, acc *float32, mode, rows int)

// rows512F32 sets out[i] to the product of row i of weights and x, for the given number of rows, rowBytes
// bytes apart, with k elements, at least 1. It needs AVX-512 F, DQ and VL.
//
//go:noescape
func rows512F32(out *float32, w *byte, rowBytes, rows int, x *float32, k int)

// rows512F16 is rows512F32 for weights in f16.
//
//go:noescape
func rows512F16(out *float32, w *byte, rowBytes, rows int, x *float32, k int)

// rows512BF16 is rows512F32 for weights in bf16.
//
//go:noescape
func rows512BF16(out *float32, w *byte, rowBytes, rows int, x *float32, k int)

// rows2F32 is rows512F32 with AVX2 and FMA.
//
//go:noescape
func rows2F32(out *float32, w *byte, rowBytes, rows int, x *float32, k int)

// rows2F16 is rows512F16 with AVX2, FMA and F16C.
//
//go:noescape
func rows2F16(out *float32, w *byte, rowBytes, rows int, x *float32, k int)

// rows2BF16 is rows512BF16 with AVX2 and FMA.
//
//go:noescape
func rows2BF16(out *float32, w *byte, rowBytes, rows int, x *float32, k int)

// widen512F16 is widen for f16. count is a positive multiple of 16. It needs AVX-512 F.
//
//go:noescape
func widen512F16(dst *float32, src *byte, count int)

// widen512BF16 is widen for bf16.
//
//go:noescape
func widen512BF16(dst *float32, src *byte, count int)

// narrow512F16 is narrow for f16. count is a positive multiple of 16. It needs AVX-512 F, DQ and VL.
//
//go:noescape
func narrow512F16(dst *byte, src *float32, count int)

// narrow512BF16 is narrow for bf16.
//
//go:noescape
func narrow512BF16(dst *byte, src *float32, count int)

// widen2F16 is widen512F16 with AVX2 and F16C.
//
//go:noescape
func widen2F16(dst *float32, src *byte, count int)

// widen2BF16 is widen512BF16 with AVX2.
//
//go:noescape
func widen2BF16(dst *float32, src *byte, count int)

// narrow2F16 is narrow512F16 with AVX2 and F16C.
//
//go:noescape
func narrow2F16(dst *byte, src *float32, count int)

// narrow2BF16 is narrow512BF16 with AVX2.
//
//go:noescape
func narrow2BF16(dst *byte, src *float32, count int)

// probeFMA512 runs 24 multiplications and additions of vectors in each step.
func probeFMA512(steps int)

// probeFMA2 runs 12 multiplications and additions of vectors of AVX2 in each step.
func probeFMA2(steps int)

// probeRead2 reads lines of 64 bytes, an even number of them.
//
//go:noescape
func probeRead2(p *byte, lines int)
