//go:build amd64 && !noasm

package vector

//go:generate go run -C ../_asm ./vector -out ../vector/vector_amd64.s

// The functions whose names end with AVX2 need AVX2, FMA and F16C; those with AVX512
// AVX-512 F, BW, DQ and VL. n is the number of elements.

// addAVX2 sets out to x + y.
//
//go:noescape
func addAVX2(out, x, y *float32, n int)

// subAVX2 sets out to x - y.
//
//go:noescape
func subAVX2(out, x, y *float32, n int)

// mulAVX2 sets out to x * y.
//
//go:noescape
func mulAVX2(out, x, y *float32, n int)

// swigluAVX2 sets out to swiglu(x, y).
//
//go:noescape
func swigluAVX2(out, x, y *float32, n int)

// gegluAVX2 sets out to geglu(x, y).
//
//go:noescape
func gegluAVX2(out, x, y *float32, n int)

// scaleAVX2 sets out to x * c.
//
//go:noescape
func scaleAVX2(out, x *float32, n int, c float32)

// softCapAVX2 sets out to c * tanh(x/c).
//
//go:noescape
func softCapAVX2(out, x *float32, n int, c float32)

// weighAVX2 sets out to x * scale * w.
//
//go:noescape
func weighAVX2(out, x, w *float32, n int, scale float32)

// squaresAVX2 adds the squares of x to 16 sums.
//
//go:noescape
func squaresAVX2(sums *float64, x *float32, n int)

// expsAVX2 sets x to exp(x-top), and adds that to 16 sums.
//
//go:noescape
func expsAVX2(sums *float64, x *float32, n int, top float32)

// mostAVX2 returns the largest of x; a NaN is larger than any number.
//
//go:noescape
func mostAVX2(x *float32, n int) float32

// addAVX512 is addAVX2.
//
//go:noescape
func addAVX512(out, x, y *float32, n int)

// subAVX512 is subAVX2.
//
//go:noescape
func subAVX512(out, x, y *float32, n int)

// mulAVX512 is mulAVX2.
//
//go:noescape
func mulAVX512(out, x, y *float32, n int)

// swigluAVX512 is swigluAVX2.
//
//go:noescape
func swigluAVX512(out, x, y *float32, n int)

// gegluAVX512 is gegluAVX2.
//
//go:noescape
func gegluAVX512(out, x, y *float32, n int)

// scaleAVX512 is scaleAVX2.
//
//go:noescape
func scaleAVX512(out, x *float32, n int, c float32)

// softCapAVX512 is softCapAVX2.
//
//go:noescape
func softCapAVX512(out, x *float32, n int, c float32)

// weighAVX512 is weighAVX2.
//
//go:noescape
func weighAVX512(out, x, w *float32, n int, scale float32)

// squaresAVX512 is squaresAVX2.
//
//go:noescape
func squaresAVX512(sums *float64, x *float32, n int)

// expsAVX512 is expsAVX2.
//
//go:noescape
func expsAVX512(sums *float64, x *float32, n int, top float32)

// mostAVX512 is mostAVX2.
//
//go:noescape
func mostAVX512(x *float32, n int) float32

// scoresF32x4AVX2 sets out [4][Keys] to scale times the products of q [4][d] and n keys of f32. It
// reads and writes up to 2 at a time. d is a multiple of 16.
//
//go:noescape
func scoresF32x4AVX2(out, q *float32, d int, keys *byte, offsets *int, n int, scale float32)

// accumulateF32x4AVX2 adds n values of f32 times w [4][Keys] to acc [4][d]. d is a multiple of 16.
//
//go:noescape
func accumulateF32x4AVX2(acc *float32, d int, w *float32, values *byte, offsets *int, n int)

// scoresF32x2AVX2 sets out [2][Keys] to scale times the products of q [2][d] and n keys of f32. It
// reads and writes up to 2 at a time. d is a multiple of 16.
//
//go:noescape
func scoresF32x2AVX2(out, q *float32, d int, keys *byte, offsets *int, n int, scale float32)

// accumulateF32x2AVX2 adds n values of f32 times w [2][Keys] to acc [2][d]. d is a multiple of 16.
//
//go:noescape
func accumulateF32x2AVX2(acc *float32, d int, w *float32, values *byte, offsets *int, n int)

// scoresF32x1AVX2 sets out [1][Keys] to scale times the products of q [1][d] and n keys of f32. It
// reads and writes up to 4 at a time. d is a multiple of 16.
//
//go:noescape
func scoresF32x1AVX2(out, q *float32, d int, keys *byte, offsets *int, n int, scale float32)

// accumulateF32x1AVX2 adds n values of f32 times w [1][Keys] to acc [1][d]. d is a multiple of 16.
//
//go:noescape
func accumulateF32x1AVX2(acc *float32, d int, w *float32, values *byte, offsets *int, n int)

// scoresF16x4AVX2 sets out [4][Keys] to scale times the products of q [4][d] and n keys of f16. It
// reads and writes up to 2 at a time. d is a multiple of 16.
//
//go:noescape
func scoresF16x4AVX2(out, q *float32, d int, keys *byte, offsets *int, n int, scale float32)

// accumulateF16x4AVX2 adds n values of f16 times w [4][Keys] to acc [4][d]. d is a multiple of 16.
//
//go:noescape
func accumulateF16x4AVX2(acc *float32, d int, w *float32, values *byte, offsets *int, n int)

// scoresF16x2AVX2 sets out [2][Keys] to scale times the products of q [2][d] and n keys of f16. It
// reads and writes up to 2 at a time. d is a multiple of 16.
//
//go:noescape
func scoresF16x2AVX2(out, q *float32, d int, keys *byte, offsets *int, n int, scale float32)

// accumulateF16x2AVX2 adds n values of f16 times w [2][Keys] to acc [2][d]. d is a multiple of 16.
//
//go:noescape
func accumulateF16x2AVX2(acc *float32, d int, w *float32, values *byte, offsets *int, n int)

// scoresF16x1AVX2 sets out [1][Keys] to scale times the products of q [1][d] and n keys of f16. It
// reads and writes up to 4 at a time. d is a multiple of 16.
//
//go:noescape
func scoresF16x1AVX2(out, q *float32, d int, keys *byte, offsets *int, n int, scale float32)

// accumulateF16x1AVX2 adds n values of f16 times w [1][Keys] to acc [1][d]. d is a multiple of 16.
//
//go:noescape
func accumulateF16x1AVX2(acc *float32, d int, w *float32, values *byte, offsets *int, n int)

// weightsAVX2 makes weights of rows of Keys scores.
//
//go:noescape
func weightsAVX2(p *float32, rows int, tops, totals, factors *float32)

// widenAVX2 sets dst [n][d] to rows of f16. d is a multiple of 16.
//
//go:noescape
func widenAVX2(dst *float32, d int, src *byte, offsets *int, n int)

// scoresF32x4AVX512 sets out [4][Keys] to scale times the products of q [4][d] and n keys of f32. It
// reads and writes up to 4 at a time. d is a multiple of 16.
//
//go:noescape
func scoresF32x4AVX512(out, q *float32, d int, keys *byte, offsets *int, n int, scale float32)

// accumulateF32x4AVX512 adds n values of f32 times w [4][Keys] to acc [4][d]. d is a multiple of 16.
//
//go:noescape
func accumulateF32x4AVX512(acc *float32, d int, w *float32, values *byte, offsets *int, n int)

// scoresF32x2AVX512 sets out [2][Keys] to scale times the products of q [2][d] and n keys of f32. It
// reads and writes up to 8 at a time. d is a multiple of 16.
//
//go:noescape
func scoresF32x2AVX512(out, q *float32, d int, keys *byte, offsets *int, n int, scale float32)

// accumulateF32x2AVX512 adds n values of f32 times w [2][Keys] to acc [2][d]. d is a multiple of 16.
//
//go:noescape
func accumulateF32x2AVX512(acc *float32, d int, w *float32, values *byte, offsets *int, n int)

// scoresF32x1AVX512 sets out [1][Keys] to scale times the products of q [1][d] and n keys of f32. It
// reads and writes up to 16 at a time. d is a multiple of 16.
//
//go:noescape
func scoresF32x1AVX512(out, q *float32, d int, keys *byte, offsets *int, n int, scale float32)

// accumulateF32x1AVX512 adds n values of f32 times w [1][Keys] to acc [1][d]. d is a multiple of 16.
//
//go:noescape
func accumulateF32x1AVX512(acc *float32, d int, w *float32, values *byte, offsets *int, n int)

// scoresF16x4AVX512 sets out [4][Keys] to scale times the products of q [4][d] and n keys of f16. It
// reads and writes up to 4 at a time. d is a multiple of 16.
//
//go:noescape
func scoresF16x4AVX512(out, q *float32, d int, keys *byte, offsets *int, n int, scale float32)

// accumulateF16x4AVX512 adds n values of f16 times w [4][Keys] to acc [4][d]. d is a multiple of 16.
//
//go:noescape
func accumulateF16x4AVX512(acc *float32, d int, w *float32, values *byte, offsets *int, n int)

// scoresF16x2AVX512 sets out [2][Keys] to scale times the products of q [2][d] and n keys of f16. It
// reads and writes up to 8 at a time. d is a multiple of 16.
//
//go:noescape
func scoresF16x2AVX512(out, q *float32, d int, keys *byte, offsets *int, n int, scale float32)

// accumulateF16x2AVX512 adds n values of f16 times w [2][Keys] to acc [2][d]. d is a multiple of 16.
//
//go:noescape
func accumulateF16x2AVX512(acc *float32, d int, w *float32, values *byte, offsets *int, n int)

// scoresF16x1AVX512 sets out [1][Keys] to scale times the products of q [1][d] and n keys of f16. It
// reads and writes up to 16 at a time. d is a multiple of 16.
//
//go:noescape
func scoresF16x1AVX512(out, q *float32, d int, keys *byte, offsets *int, n int, scale float32)

// accumulateF16x1AVX512 adds n values of f16 times w [1][Keys] to acc [1][d]. d is a multiple of 16.
//
//go:noescape
func accumulateF16x1AVX512(acc *float32, d int, w *float32, values *byte, offsets *int, n int)

// weightsAVX512 makes weights of rows of Keys scores.
//
//go:noescape
func weightsAVX512(p *float32, rows int, tops, totals, factors *float32)

// widenAVX512 sets dst [n][d] to rows of f16. d is a multiple of 16.
//
//go:noescape
func widenAVX512(dst *float32, d int, src *byte, offsets *int, n int)

// widenQ80AVX2 sets dst [n][d] to rows of q8_0. d is a multiple of 32.
//
//go:noescape
func widenQ80AVX2(dst *float32, d int, src *byte, offsets *int, n int)

// widenQ80AVX512 sets dst [n][d] to rows of q8_0. d is a multiple of 32.
//
//go:noescape
func widenQ80AVX512(dst *float32, d int, src *byte, offsets *int, n int)

// turnAVX2 is Turn for n elements of x, a positive multiple of 16.
//
//go:noescape
func turnAVX2(out, x, table *float32, n int)

// turnNeoXAVX2 is TurnNeoX for n pairs, a positive multiple of 16.
//
//go:noescape
func turnNeoXAVX2(o0, o1, x0, x1, table *float32, n int)

// turnAVX512 is Turn for n elements of x, a positive multiple of 16.
//
//go:noescape
func turnAVX512(out, x, table *float32, n int)

// turnNeoXAVX512 is TurnNeoX for n pairs, a positive multiple of 16.
//
//go:noescape
func turnNeoXAVX512(o0, o1, x0, x1, table *float32, n int)

// encodeQ80AVX2 encodes a positive number of blocks, up to the first whose scale is not finite, and
// returns their number.
//
//go:noescape
func encodeQ80AVX2(dst *byte, x *float32, blocks int) int
