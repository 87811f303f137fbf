//go:build !amd64 || noasm

package quant

import "github.com/fucina-go/fucina/core/dtype"

const useAVX2 = false

// encodeVector encodes no blocks, because this build has no vector code.
func encodeVector([]byte, dtype.DType, []float32) (blocks int) { return 0 }
