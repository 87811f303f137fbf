package quant

import (
	"encoding/binary"
	"math"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/x448/float16"
)

func decodeF16(dst []float32, src []byte) {
	for i := range min(len(dst), len(src)/2) {
		dst[i] = dtype.F16ToFloat32(float16.Float16(binary.LittleEndian.Uint16(src[2*i:])))
	}
}

func decodeBF16(dst []float32, src []byte) {
	for i := range min(len(dst), len(src)/2) {
		dst[i] = dtype.BFloat16(binary.LittleEndian.Uint16(src[2*i:])).Float32()
	}
}

func decodeF32(dst []float32, src []byte) {
	for i := range min(len(dst), len(src)/4) {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

func decodeF64(dst []float32, src []byte) {
	for i := range min(len(dst), len(src)/8) {
		dst[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(src[8*i:])))
	}
}

func decodeF8E4M3(dst []float32, src []byte) {
	for i := range min(len(dst), len(src)) {
		dst[i] = dtype.Float8E4M3(src[i]).Float32()
	}
}

func decodeF8E5M2(dst []float32, src []byte) {
	for i := range min(len(dst), len(src)) {
		dst[i] = dtype.Float8E5M2(src[i]).Float32()
	}
}
