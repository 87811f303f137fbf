//go:build amd64 && !noasm

package quant

import (
	"golang.org/x/sys/cpu"

	"github.com/fucina-go/fucina/core/dtype"
)

var useAVX2 = cpu.X86.HasAVX2 && cpu.X86.HasF16C && cpu.X86.HasBMI1

// encodeVector encodes blocks at the start of a row in vector code, without an importance
// vector, and returns their number. It may stop before the end of the row.
func encodeVector(dst []byte, d dtype.DType, src []float32) (blocks int) {
	if !useAVX2 {
		return 0
	}
	dst = dst[:len(src)/d.BlockSize()*d.Size()] // the routines check no bounds
	switch d {
	case dtype.Q4_0:
		return encodeQ4_0AVX2(dst, src)
	case dtype.Q4_1:
		return encodeQ4_1AVX2(dst, src)
	}
	return 0
}

// encodeQ4_0AVX2 encodes blocks up to the first that encodeQ4_0 refuses and returns
// their number. dst has 18 bytes for every 32 values of src. It is
//
//	for blocks = range len(src) / 32 {
//		b := block{x: src[32*blocks:][:32]}
//		b.amax, b.ext = extreme(b.x)
//		if encodeQ4_0(dst[18*blocks:][:18], b) != nil {
//			return blocks
//		}
//	}
//	return len(src) / 32
//
//go:noescape
func encodeQ4_0AVX2(dst []byte, src []float32) (blocks int)

// encodeQ4_1AVX2 encodes blocks up to the first that has a NaN or that encodeQ4_1
// refuses, and returns their number. dst has 20 bytes for every 32 values of src. It is
//
//	for blocks = range len(src) / 32 {
//		b := block{x: src[32*blocks:][:32]}
//		b.amax, b.ext = extreme(b.x)
//		if b.amax != b.amax || encodeQ4_1(dst[20*blocks:][:20], b) != nil {
//			return blocks
//		}
//	}
//	return len(src) / 32
//
//go:noescape
func encodeQ4_1AVX2(dst []byte, src []float32) (blocks int)
