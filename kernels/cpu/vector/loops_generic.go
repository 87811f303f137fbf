//go:build !amd64 || noasm

package vector

import "github.com/fucina-go/fucina/internal/isa"

// loopsOf is Of, where no level has assembly.
func loopsOf(isa.Level) *Loops { return &definition }
