//go:build amd64 && !noasm

package simd

//go:generate go run -C ../_asm ./simd -out ../simd/simd_amd64.s

// quantizeSuper512 quantizes stretches of 256 activations, which follow each other in x, to stretches
// that are stride bytes apart, as QuantizeSuper does. It needs AVX-512 F, BW, DQ and VL.
//
//go:noescape
func quantizeSuper512(dst *byte, stride int, x *float32, stretches int, order *byte)

// quantizeSmall512 is quantizeSuper512 for QuantizeSmall.
//
//go:noescape
func quantizeSmall512(dst *byte, stride int, x *float32, stretches int)

// quantizeSuperAVX2 is quantizeSuper512 with AVX2 only.
//
//go:noescape
func quantizeSuperAVX2(dst *byte, stride int, x *float32, stretches int, order *byte)

// quantizeSmallAVX2 is quantizeSmall512 with AVX2 only.
//
//go:noescape
func quantizeSmallAVX2(dst *byte, stride int, x *float32, stretches int)

// q4kRowsVBMI sets out[i], for each of the rows of Q4_K that are rowBytes apart, to
//
//	DotSuper(dtype.Q4_K, row i, act, ActBytes, &Halves)
//
// A row has the given number of blocks, at least one. It needs AVX-512 VBMI and GFNI.
//
//go:noescape
func q4kRowsVBMI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// q5kRowsVBMI is q4kRowsVBMI for Q5_K.
//
//go:noescape
func q5kRowsVBMI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// q6kRowsVBMI is q4kRowsVBMI for Q6_K and Ascending.
//
//go:noescape
func q6kRowsVBMI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// q4kRowsVNNI is q4kRowsVBMI without the need for VBMI and GFNI.
//
//go:noescape
func q4kRowsVNNI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// q5kRowsVNNI is q5kRowsVBMI without the need for VBMI and GFNI.
//
//go:noescape
func q5kRowsVNNI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// q6kRowsVNNI is q6kRowsVBMI without the need for VBMI and GFNI.
//
//go:noescape
func q6kRowsVNNI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// q2kRowsVNNI is q4kRowsVBMI for Q2_K and Quarters, without the need for VBMI and GFNI.
//
//go:noescape
func q2kRowsVNNI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// q3kRowsVNNI is q4kRowsVBMI for Q3_K and Quarters, without the need for VBMI and GFNI.
//
//go:noescape
func q3kRowsVNNI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// tq20RowsVNNI is q4kRowsVBMI for TQ2_0 and Quarters, without the need for VBMI and GFNI.
//
//go:noescape
func tq20RowsVNNI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// iq4xsRowsVNNI is q4kRowsVBMI for IQ4_XS and Ascending, without the need for VBMI and GFNI.

// q2kRowsVBMI is q2kRowsVNNI with GFNI too.
//
//go:noescape
func q2kRowsVBMI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// q3kRowsVBMI is q3kRowsVNNI with GFNI too.
//
//go:noescape
func q3kRowsVBMI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// tq20RowsVBMI is tq20RowsVNNI with GFNI too.
//
//go:noescape
func tq20RowsVBMI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// iq4xsRowsVBMI is q4kRowsVBMI for IQ4_XS and Ascending.
//
//go:noescape
func iq4xsRowsVNNI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// iq4xsRowsVBMI is iq4xsRowsVNNI with VBMI and GFNI.
//
//go:noescape
func iq4xsRowsVBMI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// q40RowsVNNI sets out[i], for each of the rows of Q4_0 that are rowBytes apart, to
//
//	DotSmall(dtype.Q4_0, row i, act, ActBytes)
//
// A row has the given number of blocks, at least one. It needs AVX-512 F, BW, DQ, VL and VNNI.
//
//go:noescape
func q40RowsVNNI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// q41RowsVNNI is q40RowsVNNI for Q4_1.
//
//go:noescape
func q41RowsVNNI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// q50RowsVNNI is q40RowsVNNI for Q5_0.
//
//go:noescape
func q50RowsVNNI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// q51RowsVNNI is q40RowsVNNI for Q5_1.
//
//go:noescape
func q51RowsVNNI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// q80RowsVNNI is q40RowsVNNI for Q8_0.
//
//go:noescape
func q80RowsVNNI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// iq4nlRowsVNNI is q40RowsVNNI for IQ4_NL.
//
//go:noescape
func iq4nlRowsVNNI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// mxfp4RowsVNNI is q40RowsVNNI for MXFP4.
//
//go:noescape
func mxfp4RowsVNNI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// q40RowsVBMI is q40RowsVNNI with GFNI too.
//
//go:noescape
func q40RowsVBMI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// q41RowsVBMI is q41RowsVNNI with GFNI too.
//
//go:noescape
func q41RowsVBMI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// q50RowsVBMI is q50RowsVNNI with GFNI too.
//
//go:noescape
func q50RowsVBMI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// q51RowsVBMI is q51RowsVNNI with GFNI too.
//
//go:noescape
func q51RowsVBMI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// iq4nlRowsVBMI is iq4nlRowsVNNI with GFNI too.
//
//go:noescape
func iq4nlRowsVBMI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// mxfp4RowsVBMI is mxfp4RowsVNNI with GFNI too.
//
//go:noescape
func mxfp4RowsVBMI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// The tiles add 256 elements of a panel, times those of tiles*n rows of activations, whose stretches
// are ActBytes apart, to c [row of activations][32]. n is the last number of the name. W has codes so
// small that the sum of 16 products is a word, in Bias32W that of 32, and in Bias16H that of 8. They need AVX-512 F, BW, DQ, VL
// and VNNI.

//go:noescape
func tileBias16x6(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias16x4(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias16x2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias16x1(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins16Wx6(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins16Wx4(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins16Wx2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins16Wx1(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias32x6(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias32x4(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias32x2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias32x1(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins32Wx6(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins32Wx4(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins32Wx2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins32Wx1(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias16Wx6(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias16Wx4(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias16Wx2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias16Wx1(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias32Wx6(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias32Wx4(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias32Wx2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias32Wx1(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias16Hx6(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias16Hx4(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias16Hx2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias16Hx1(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins32x6(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins32x4(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins32x2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins32x1(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmall1x6(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmall1x4(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmall1x2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmall1x1(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmall8x6(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmall8x4(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmall8x2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmall8x1(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmall16x6(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmall16x4(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmall16x2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmall16x1(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmall128x6(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmall128x4(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmall128x2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmall128x1(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmallTermx6(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmallTermx4(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmallTermx2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmallTermx1(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmallTwox6(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmallTwox4(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmallTwox2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmallTwox1(c *float32, panel, act *byte, tiles int)

// The tiles of AVX2 do the same with AVX2 and FMA only. After D follows the number of products of
// codes of the panel whose sum is a word; S takes
// the bias off the codes.

//go:noescape
func tileMins16D4x3AVX2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins16D4x2AVX2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins16D4x1AVX2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins32D8x3AVX2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins32D8x2AVX2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins32D8x1AVX2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins32D4x3AVX2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins32D4x2AVX2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins32D4x1AVX2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias16D4x3AVX2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias16D4x2AVX2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias16D4x1AVX2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias16D2x3AVX2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias16D2x2AVX2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias16D2x1AVX2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias16D1x3AVX2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias16D1x2AVX2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias16D1x1AVX2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias32D4x3AVX2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias32D4x2AVX2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias32D4x1AVX2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias32D1x3AVX2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias32D1x2AVX2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias32D1x1AVX2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias32Sx3AVX2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias32Sx2AVX2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias32Sx1AVX2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmall1D8x3AVX2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmall1D8x2AVX2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmall1D8x1AVX2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmall8D8x3AVX2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmall8D8x2AVX2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmall8D8x1AVX2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmall16D4x3AVX2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmall16D4x2AVX2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmall16D4x1AVX2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmall128Sx3AVX2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmall128Sx2AVX2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmall128Sx1AVX2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmallTermD4x3AVX2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmallTermD4x2AVX2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmallTermD4x1AVX2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmallTwoSx3AVX2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmallTwoSx2AVX2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmallTwoSx1AVX2(c *float32, panel, act *byte, tiles int)

// The tiles of AVX-VNNI do the same with AVX2, FMA and VPDPBUSD of AVX-VNNI. W has codes so small that
// the sum of 16 products is a word.

//go:noescape
func tileMins16Wx6AVXVNNI(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins16Wx4AVXVNNI(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins16Wx2AVXVNNI(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins16Wx1AVXVNNI(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins32Wx6AVXVNNI(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins32Wx4AVXVNNI(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins32Wx2AVXVNNI(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins32Wx1AVXVNNI(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins32x6AVXVNNI(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins32x4AVXVNNI(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins32x2AVXVNNI(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins32x1AVXVNNI(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias16Wx6AVXVNNI(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias16Wx4AVXVNNI(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias16Wx2AVXVNNI(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias16Wx1AVXVNNI(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias16x6AVXVNNI(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias16x4AVXVNNI(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias16x2AVXVNNI(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias16x1AVXVNNI(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias32x6AVXVNNI(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias32x4AVXVNNI(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias32x2AVXVNNI(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileBias32x1AVXVNNI(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmall1x6AVXVNNI(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmall1x4AVXVNNI(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmall1x2AVXVNNI(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmall1x1AVXVNNI(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmall8x6AVXVNNI(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmall8x4AVXVNNI(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmall8x2AVXVNNI(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmall8x1AVXVNNI(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmall16x6AVXVNNI(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmall16x4AVXVNNI(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmall16x2AVXVNNI(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmall16x1AVXVNNI(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmall128x6AVXVNNI(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmall128x4AVXVNNI(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmall128x2AVXVNNI(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmall128x1AVXVNNI(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmallTermx6AVXVNNI(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmallTermx4AVXVNNI(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmallTermx2AVXVNNI(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmallTermx1AVXVNNI(c *float32, panel, act *byte, tiles int)

// The functions that unpack do what pack does for 32 whole rows of a format. They need AVX-512 F, BW,
// DQ and VL.

//go:noescape
func q4kUnpack(panel, w *byte, rowBytes int)

//go:noescape
func q5kUnpack(panel, w *byte, rowBytes int)

//go:noescape
func q6kUnpack(panel, w *byte, rowBytes int)

//go:noescape
func q2kUnpack(panel, w *byte, rowBytes int)

//go:noescape
func q3kUnpack(panel, w *byte, rowBytes int)

//go:noescape
func tq20Unpack(panel, w *byte, rowBytes int)

//go:noescape
func iq4xsUnpack(panel, w *byte, rowBytes int)

//go:noescape
func q40Unpack(panel, w *byte, rowBytes int)

//go:noescape
func q41Unpack(panel, w *byte, rowBytes int)

//go:noescape
func q50Unpack(panel, w *byte, rowBytes int)

//go:noescape
func q51Unpack(panel, w *byte, rowBytes int)

//go:noescape
func q80Unpack(panel, w *byte, rowBytes int)

//go:noescape
func iq4nlUnpack(panel, w *byte, rowBytes int)

//go:noescape
func mxfp4Unpack(panel, w *byte, rowBytes int)

//go:noescape
func nvfp4Unpack(panel, w *byte, rowBytes int)

// They need AVX2 and F16C only.

//go:noescape
func q4kUnpackAVX2(panel, w *byte, rowBytes int)

//go:noescape
func q5kUnpackAVX2(panel, w *byte, rowBytes int)

//go:noescape
func q6kUnpackAVX2(panel, w *byte, rowBytes int)

//go:noescape
func q2kUnpackAVX2(panel, w *byte, rowBytes int)

//go:noescape
func q3kUnpackAVX2(panel, w *byte, rowBytes int)

//go:noescape
func tq20UnpackAVX2(panel, w *byte, rowBytes int)

//go:noescape
func iq4xsUnpackAVX2(panel, w *byte, rowBytes int)

//go:noescape
func q40UnpackAVX2(panel, w *byte, rowBytes int)

//go:noescape
func q41UnpackAVX2(panel, w *byte, rowBytes int)

//go:noescape
func q50UnpackAVX2(panel, w *byte, rowBytes int)

//go:noescape
func q51UnpackAVX2(panel, w *byte, rowBytes int)

//go:noescape
func q80UnpackAVX2(panel, w *byte, rowBytes int)

//go:noescape
func iq4nlUnpackAVX2(panel, w *byte, rowBytes int)

//go:noescape
func mxfp4UnpackAVX2(panel, w *byte, rowBytes int)

//go:noescape
func nvfp4UnpackAVX2(panel, w *byte, rowBytes int)

// The functions of peak multiply registers in n rounds: see Peak.

//go:noescape
func peakAVX2(n int)

//go:noescape
func peakAVXVNNI(n int)

//go:noescape
func peak512(n int)
