//go:build cuda || metal || accel

package storage

import (
	"testing"
	"unsafe"
)

func TestHeaderSize(t *testing.T) {
	if n := unsafe.Sizeof(Buffer{}); n != 112+unsafe.Sizeof(deviceState{}) || n != 360 {
		t.Errorf("the header has %d bytes, %d of them deviceState; want 360", n, unsafe.Sizeof(deviceState{}))
	}
}
