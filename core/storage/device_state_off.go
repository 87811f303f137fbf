//go:build !cuda && !metal && !accel

package storage

import (
	"context"

	"github.com/fucina-go/fucina/internal/offheap"
)

// deviceState is empty in a build without an accelerator.
type deviceState struct{}

func (*deviceState) release(*Buffer) {}
func (*deviceState) destroy()        {}

// host allocates b's host memory if there is none, and bumps the generation for a write;
// see Buffer.Host.
func (*deviceState) host(_ context.Context, b *Buffer, a Access) error {
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

func (s *deviceState) beginHostWrite(ctx context.Context, b *Buffer) error {
	return s.host(ctx, b, Update)
}

func (*deviceState) endHostWrite(b *Buffer) { b.gen.Add(1) }

func (*deviceState) discard(b *Buffer, off, n int) { b.discardHost(off, n) }

func (s *deviceState) readAt(ctx context.Context, b *Buffer, dst []byte, off int) error {
	if err := s.host(ctx, b, Read); err != nil {
		return err
	}
	return offheap.Guard(func() error { copy(dst, b.bytes()[off:]); return nil })
}

// NewestOnDevice reports whether only the device holds the newest bytes.
func (b *Buffer) NewestOnDevice() bool { return false }
