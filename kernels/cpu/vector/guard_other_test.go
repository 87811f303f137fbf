//go:build !unix

package vector

import "testing"

// guarded returns n floats.
func guarded(_ testing.TB, n int) []float32 { return make([]float32, n) }
