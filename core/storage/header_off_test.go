//go:build !cuda && !metal && !accel

package storage

import (
	"testing"
	"unsafe"
)

// Without an accelerator, deviceState has no size.
func TestHeaderSize(t *testing.T) {
	if n := unsafe.Sizeof(deviceState{}); n != 0 {
		t.Errorf("deviceState has %d bytes, want 0", n)
	}
	if n := unsafe.Sizeof(Buffer{}); n != 112 {
		t.Errorf("the header has %d bytes, want 112", n)
	}
}
