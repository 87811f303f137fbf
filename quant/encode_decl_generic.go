//go:build !amd64 || noasm

package quant

import "github.com/fucina-go/fucina/core/dtype"

const useAVX2 = false

// encodeVector encodes what it can of the start of a row, without an importance
// vector, in vector code, and returns how many blocks that were. Here there is none.
func encodeVector([]byte, dtype.DType, []float32) (blocks int) { return 0 }
