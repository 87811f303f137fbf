//go:build arm64 && !noasm

package simd

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
)

// The functions that unpack make the panels of pack.
func TestUnpack(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	for name, tt := range map[string]struct {
		packers *[dtype.Count]packer
		forms   *[dtype.Count]form
	}{"steps of 4": {&packers4, &signed}, "steps of 8": {&packers8, &wide}} {
		n := 0
		for i, unpack := range tt.packers {
			if unpack == nil {
				continue
			}
			n++
			d := dtype.DType(i)
			blocks := 256 / d.BlockSize()
			w := randomRows(t, r, d, 3*blocks*PanelRows)
			rowBytes := 3 * blocks * d.Size()
			src := w[2*blocks*d.Size():]
			want := make([]byte, PanelBytes)
			got := bytes.Clone(want)
			unpack(&got[0], &src[0], rowBytes)
			tt.forms[d].pack(want, d, src, rowBytes, PanelRows, 256)
			for i := range got {
				if got[i] != want[i] {
					t.Errorf("%s, %s: byte %d is %d, want %d", name, d, i, got[i], want[i])
					break
				}
			}
		}
		if n != 28 {
			t.Errorf("%s: %d formats", name, n)
		}
	}
}
