//go:build cuda || metal || accel

package storage

import (
	"testing"

	"github.com/fucina-go/fucina/tests/leak"
)

type nothing struct{}

func (nothing) Destroy() {}

// Discard keeps the memory while a device has the bytes, while a download may still write to
// it, and if provider state is tied to it.
func TestDiscardBesideADevice(t *testing.T) {
	leak.Check(t)
	for _, tt := range []struct {
		name string
		make func() (*Buffer, func())
		lost bool
	}{
		{"device bytes dropped", func() (*Buffer, func()) {
			b, m, _, _ := lazyOnDevice(t, discardSize, 1)
			wouldWait(t, b, Read)
			m.finish()
			mustHost(t, b, Read)
			if !b.DropDevice() {
				t.Fatal("not dropped")
			}
			return b, func() {}
		}, true},
		{"device bytes", func() (*Buffer, func()) {
			b, m, _, _ := lazyOnDevice(t, discardSize, 1)
			wouldWait(t, b, Read)
			m.finish()
			mustHost(t, b, Read)
			return b, func() {}
		}, false},
		{"resource", func() (*Buffer, func()) {
			b := mustNew(t, discardSize)
			marked(mustHost(t, b, Overwrite))
			b.SetResource(nothing{})
			return b, func() {}
		}, false},
		{"download", func() (*Buffer, func()) {
			b := mustNew(t, discardSize)
			marked(mustHost(t, b, Overwrite))
			q := newQueue("download")
			b.device.hostUse.Add(q.enqueue(func() {}))
			return b, q.finish
		}, false},
	} {
		b, finish := tt.make()
		if err := b.Discard(1, discardSize-2); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		finish()
		if got := lost(t, mustHost(t, b, Read)); got != tt.lost {
			t.Errorf("%s: contents lost: %t, want %t", tt.name, got, tt.lost)
		}
		b.Release()
	}
}
