//go:build arm64 && !noasm

package simd

//go:generate go run -C ../_asm ./simdarm64 -out ../simd/simd_arm64.s

// The functions for rows set out[i], for each of the rows that are rowBytes apart, to DotSuper, with
// the order of the format, or to DotSmall, of row i and act, whose stretches follow each other. A row
// has the given number of blocks, at least one. The level is the end of the name.

//go:noescape
func q4kRowsNEON(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q5kRowsNEON(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q6kRowsNEON(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q2kRowsNEON(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q3kRowsNEON(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func tq20RowsNEON(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func iq4xsRowsNEON(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q8kRowsNEON(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func tq10RowsNEON(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func iq2xxsRowsNEON(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func iq2xsRowsNEON(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func iq2sRowsNEON(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func iq3xxsRowsNEON(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func iq3sRowsNEON(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func iq1sRowsNEON(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func iq1mRowsNEON(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q40RowsNEON(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q41RowsNEON(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q50RowsNEON(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q51RowsNEON(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q80RowsNEON(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q81RowsNEON(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func iq4nlRowsNEON(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func mxfp4RowsNEON(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func nvfp4RowsNEON(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q10RowsNEON(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q20RowsNEON(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q20g64RowsNEON(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q4kRowsDot(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q5kRowsDot(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q6kRowsDot(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q2kRowsDot(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q3kRowsDot(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func tq20RowsDot(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func iq4xsRowsDot(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q8kRowsDot(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func tq10RowsDot(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func iq2xxsRowsDot(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func iq2xsRowsDot(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func iq2sRowsDot(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func iq3xxsRowsDot(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func iq3sRowsDot(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func iq1sRowsDot(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func iq1mRowsDot(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q40RowsDot(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q41RowsDot(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q50RowsDot(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q51RowsDot(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q80RowsDot(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q81RowsDot(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func iq4nlRowsDot(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func mxfp4RowsDot(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func nvfp4RowsDot(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q10RowsDot(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q20RowsDot(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func q20g64RowsDot(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// quantizeSuperNEON quantizes stretches of 256 activations, which follow each other in x, to stretches
// that are stride bytes apart, as QuantizeSuper does.
//
//go:noescape
func quantizeSuperNEON(dst *byte, stride int, x *float32, stretches int, order *byte)

// quantizeSmallNEON is quantizeSuperNEON for QuantizeSmall.
//
//go:noescape
func quantizeSmallNEON(dst *byte, stride int, x *float32, stretches int)

// The tiles add 256 elements of a panel, of 32 rows, times those of tiles*n rows of activations, whose
// stretches are ActBytes apart, to c [row of activations][32]. The codes of the panel have their
// signs. n is the last number of the name. Before it is the level; the panels of I8MM are wide.

//go:noescape
func tile16NEONx2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tile16NEONx1(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins16NEONx2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins16NEONx1(c *float32, panel, act *byte, tiles int)

//go:noescape
func tile32NEONx2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tile32NEONx1(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins32NEONx2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins32NEONx1(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmallNEONx2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmallNEONx1(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileTermNEONx2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileTermNEONx1(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileTwoNEONx2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileTwoNEONx1(c *float32, panel, act *byte, tiles int)

//go:noescape
func tile16Dotx6(c *float32, panel, act *byte, tiles int)

//go:noescape
func tile16Dotx4(c *float32, panel, act *byte, tiles int)

//go:noescape
func tile16Dotx2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tile16Dotx1(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins16Dotx6(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins16Dotx4(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins16Dotx2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins16Dotx1(c *float32, panel, act *byte, tiles int)

//go:noescape
func tile32Dotx6(c *float32, panel, act *byte, tiles int)

//go:noescape
func tile32Dotx4(c *float32, panel, act *byte, tiles int)

//go:noescape
func tile32Dotx2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tile32Dotx1(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins32Dotx6(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins32Dotx4(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins32Dotx2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins32Dotx1(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmallDotx6(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmallDotx4(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmallDotx2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmallDotx1(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileTermDotx6(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileTermDotx4(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileTermDotx2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileTermDotx1(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileTwoDotx4(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileTwoDotx2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileTwoDotx1(c *float32, panel, act *byte, tiles int)

//go:noescape
func tile16I8MMx6(c *float32, panel, act *byte, tiles int)

//go:noescape
func tile16I8MMx4(c *float32, panel, act *byte, tiles int)

//go:noescape
func tile16I8MMx2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tile16I8MMx1(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins16I8MMx6(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins16I8MMx4(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins16I8MMx2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins16I8MMx1(c *float32, panel, act *byte, tiles int)

//go:noescape
func tile32I8MMx6(c *float32, panel, act *byte, tiles int)

//go:noescape
func tile32I8MMx4(c *float32, panel, act *byte, tiles int)

//go:noescape
func tile32I8MMx2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tile32I8MMx1(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins32I8MMx6(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins32I8MMx4(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins32I8MMx2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileMins32I8MMx1(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmallI8MMx6(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmallI8MMx4(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmallI8MMx2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileSmallI8MMx1(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileTermI8MMx6(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileTermI8MMx4(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileTermI8MMx2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileTermI8MMx1(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileTwoI8MMx4(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileTwoI8MMx2(c *float32, panel, act *byte, tiles int)

//go:noescape
func tileTwoI8MMx1(c *float32, panel, act *byte, tiles int)

// The functions that unpack do what pack of a form does for 32 whole rows, if the codes have their
// signs: those of Step4 for panels with steps of 4 elements, those of Step8 for wide ones.

//go:noescape
func q4kUnpackStep4(panel, w *byte, rowBytes int)

//go:noescape
func q5kUnpackStep4(panel, w *byte, rowBytes int)

//go:noescape
func q6kUnpackStep4(panel, w *byte, rowBytes int)

//go:noescape
func q2kUnpackStep4(panel, w *byte, rowBytes int)

//go:noescape
func q3kUnpackStep4(panel, w *byte, rowBytes int)

//go:noescape
func tq20UnpackStep4(panel, w *byte, rowBytes int)

//go:noescape
func iq4xsUnpackStep4(panel, w *byte, rowBytes int)

//go:noescape
func q8kUnpackStep4(panel, w *byte, rowBytes int)

//go:noescape
func tq10UnpackStep4(panel, w *byte, rowBytes int)

//go:noescape
func iq2xxsUnpackStep4(panel, w *byte, rowBytes int)

//go:noescape
func iq2xsUnpackStep4(panel, w *byte, rowBytes int)

//go:noescape
func iq2sUnpackStep4(panel, w *byte, rowBytes int)

//go:noescape
func iq3xxsUnpackStep4(panel, w *byte, rowBytes int)

//go:noescape
func iq3sUnpackStep4(panel, w *byte, rowBytes int)

//go:noescape
func iq1sUnpackStep4(panel, w *byte, rowBytes int)

//go:noescape
func iq1mUnpackStep4(panel, w *byte, rowBytes int)

//go:noescape
func q40UnpackStep4(panel, w *byte, rowBytes int)

//go:noescape
func q41UnpackStep4(panel, w *byte, rowBytes int)

//go:noescape
func q50UnpackStep4(panel, w *byte, rowBytes int)

//go:noescape
func q51UnpackStep4(panel, w *byte, rowBytes int)

//go:noescape
func q80UnpackStep4(panel, w *byte, rowBytes int)

//go:noescape
func q81UnpackStep4(panel, w *byte, rowBytes int)

//go:noescape
func iq4nlUnpackStep4(panel, w *byte, rowBytes int)

//go:noescape
func mxfp4UnpackStep4(panel, w *byte, rowBytes int)

//go:noescape
func nvfp4UnpackStep4(panel, w *byte, rowBytes int)

//go:noescape
func q10UnpackStep4(panel, w *byte, rowBytes int)

//go:noescape
func q20UnpackStep4(panel, w *byte, rowBytes int)

//go:noescape
func q20g64UnpackStep4(panel, w *byte, rowBytes int)

//go:noescape
func q4kUnpackStep8(panel, w *byte, rowBytes int)

//go:noescape
func q5kUnpackStep8(panel, w *byte, rowBytes int)

//go:noescape
func q6kUnpackStep8(panel, w *byte, rowBytes int)

//go:noescape
func q2kUnpackStep8(panel, w *byte, rowBytes int)

//go:noescape
func q3kUnpackStep8(panel, w *byte, rowBytes int)

//go:noescape
func tq20UnpackStep8(panel, w *byte, rowBytes int)

//go:noescape
func iq4xsUnpackStep8(panel, w *byte, rowBytes int)

//go:noescape
func q8kUnpackStep8(panel, w *byte, rowBytes int)

//go:noescape
func tq10UnpackStep8(panel, w *byte, rowBytes int)

//go:noescape
func iq2xxsUnpackStep8(panel, w *byte, rowBytes int)

//go:noescape
func iq2xsUnpackStep8(panel, w *byte, rowBytes int)

//go:noescape
func iq2sUnpackStep8(panel, w *byte, rowBytes int)

//go:noescape
func iq3xxsUnpackStep8(panel, w *byte, rowBytes int)

//go:noescape
func iq3sUnpackStep8(panel, w *byte, rowBytes int)

//go:noescape
func iq1sUnpackStep8(panel, w *byte, rowBytes int)

//go:noescape
func iq1mUnpackStep8(panel, w *byte, rowBytes int)

//go:noescape
func q40UnpackStep8(panel, w *byte, rowBytes int)

//go:noescape
func q41UnpackStep8(panel, w *byte, rowBytes int)

//go:noescape
func q50UnpackStep8(panel, w *byte, rowBytes int)

//go:noescape
func q51UnpackStep8(panel, w *byte, rowBytes int)

//go:noescape
func q80UnpackStep8(panel, w *byte, rowBytes int)

//go:noescape
func q81UnpackStep8(panel, w *byte, rowBytes int)

//go:noescape
func iq4nlUnpackStep8(panel, w *byte, rowBytes int)

//go:noescape
func mxfp4UnpackStep8(panel, w *byte, rowBytes int)

//go:noescape
func nvfp4UnpackStep8(panel, w *byte, rowBytes int)

//go:noescape
func q10UnpackStep8(panel, w *byte, rowBytes int)

//go:noescape
func q20UnpackStep8(panel, w *byte, rowBytes int)

//go:noescape
func q20g64UnpackStep8(panel, w *byte, rowBytes int)
