//go:build !cuda && !metal && !accel

package storage

import (
	"testing"
	"unsafe"
)

// Without an accelerator the slots cost nothing.
func TestHeaderSize(t *testing.T) {
	if n := unsafe.Sizeof(slots{}); n != 0 {
		t.Errorf("slots take %d bytes, want none", n)
	}
	if n := unsafe.Sizeof(Buffer{}); n != 112 {
		t.Errorf("the header has %d bytes, want 112", n)
	}
	if HasAccelerator {
		t.Error("HasAccelerator in a build without one")
	}
}
