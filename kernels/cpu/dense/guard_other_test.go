//go:build !unix

package dense

import "testing"

// guarded returns n bytes.
func guarded(_ testing.TB, n int) []byte { return make([]byte, n) }
