//go:build !cuda && !metal && !accel

package storage

import (
	"context"

	"github.com/fucina-go/fucina/internal/offheap"
)

// slots is the device state of a buffer; this build has none.
type slots struct{}

func (*slots) release(*Buffer) {}
func (*slots) destroy()        {}

func (*slots) host(_ context.Context, b *Buffer, _ Access) error {
	if b.host.Load() == nil {
		return b.allocateHost()
	}
	return nil
}

func (s *slots) readAt(ctx context.Context, b *Buffer, dst []byte, off int) error {
	if err := s.host(ctx, b, Read); err != nil {
		return err
	}
	return offheap.Guard(func() error { copy(dst, b.bytes()[off:]); return nil })
}

// NewestOnDevice reports whether the device holds the newest bytes and the host
// does not.
func (b *Buffer) NewestOnDevice() bool { return false }
