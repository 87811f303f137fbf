//go:build amd64 && !noasm

package simd

//go:generate go run -C _asm . -out ../simd_amd64.s

// q4kRowsVBMI sets out[i], for each of the rows of Q4_K that are rowBytes apart, to
//
//	DotSuper(dtype.Q4_K, row i, act, ActBytes, &Halves)
//
// A row has the given number of blocks, at least one. It needs AVX-512 VBMI and GFNI.
//
//go:noescape
func q4kRowsVBMI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)

// q6kRowsVBMI is q4kRowsVBMI for Q6_K and Ascending.
//
//go:noescape
func q6kRowsVBMI(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)
