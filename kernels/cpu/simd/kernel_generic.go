//go:build (!amd64 && !arm64) || noasm

package simd

import "github.com/fucina-go/fucina/internal/isa"

// vectorise does nothing: without assembly, all levels use the Go code.
func (*Kernel) vectorise(isa.Level) {}
