//go:build !unix

package simd

import "testing"

// guarded returns n bytes of zeros.
func guarded(_ testing.TB, n int) []byte { return make([]byte, n) }

// guardedFloats returns n floats of zeros.
func guardedFloats(_ testing.TB, n int) []float32 { return make([]float32, n) }
