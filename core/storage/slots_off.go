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

// host gives b host memory and counts a write; see Buffer.Host.
func (*slots) host(_ context.Context, b *Buffer, a Access) error {
	if b.host.Load() == nil {
		if err := b.allocateHost(); err != nil {
			return err
		}
	}
	if a != Read {
		b.gen.Add(1)
	}
	return nil
}

func (s *slots) beginHostWrite(ctx context.Context, b *Buffer) error { return s.host(ctx, b, Update) }

func (*slots) endHostWrite(b *Buffer) { b.gen.Add(1) }

func (s *slots) readAt(ctx context.Context, b *Buffer, dst []byte, off int) error {
	if err := s.host(ctx, b, Read); err != nil {
		return err
	}
	return offheap.Guard(func() error { copy(dst, b.bytes()[off:]); return nil })
}

// NewestOnDevice reports whether the device holds the newest bytes and the host
// does not.
func (b *Buffer) NewestOnDevice() bool { return false }
