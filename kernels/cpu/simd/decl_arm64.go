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
func iq4nlRowsNEON(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func mxfp4RowsNEON(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

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
func iq4nlRowsDot(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

//go:noescape
func mxfp4RowsDot(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)
