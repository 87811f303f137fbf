//go:build (!amd64 && !arm64) || noasm

package simd

import "github.com/fucina-go/fucina/internal/isa"

// vectorise sets the functions of the level, of which there are none.
func (*Kernel) vectorise(isa.Level) {}
