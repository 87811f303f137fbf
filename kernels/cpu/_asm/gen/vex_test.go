package gen

import (
	"bytes"
	"testing"
)

// The bytes are those of GNU as for, for example, "{vex} vpdpbusd %ymm2,%ymm1,%ymm0".
func TestEncode(t *testing.T) {
	for _, tt := range []struct {
		opcode      byte
		rm, vvvv, r int
		want        []byte
	}{
		{0x50, 2, 1, 0, []byte{0xc4, 0xe2, 0x75, 0x50, 0xc2}},
		{0x50, 10, 1, 0, []byte{0xc4, 0xc2, 0x75, 0x50, 0xc2}},
		{0x50, 2, 9, 0, []byte{0xc4, 0xe2, 0x35, 0x50, 0xc2}},
		{0x50, 2, 1, 8, []byte{0xc4, 0x62, 0x75, 0x50, 0xc2}},
		{0x50, 15, 14, 13, []byte{0xc4, 0x42, 0x0d, 0x50, 0xef}},
		{0x52, 2, 1, 0, []byte{0xc4, 0xe2, 0x75, 0x52, 0xc2}},
		{0x52, 12, 3, 11, []byte{0xc4, 0x42, 0x65, 0x52, 0xdc}},
	} {
		if got := encode(tt.opcode, tt.rm, tt.vvvv, tt.r); !bytes.Equal(got, tt.want) {
			t.Errorf("encode(%#x, %d, %d, %d) = %x, want %x", tt.opcode, tt.rm, tt.vvvv, tt.r, got, tt.want)
		}
	}
}
