//go:build cuda || metal || accel

package residency

import (
	"context"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/storage"
)

// Block is the device memory of one buffer.
type Block struct {
	m    *Manager
	mem  op.Mem
	uses accel.Fences // of the last owner; only read while a buffer has the block

	owner *storage.Buffer // set while the block is adopted
	past  *history        // of the owner
	place int             // in Manager.adopted

	freed  int64 // the tick at which the block became idle
	weight bool  // idle, and was a weight's
}

var _ accel.Memory = (*Block)(nil)

// Mem returns the provider's memory.
func (b *Block) Mem() op.Mem { return b.mem }

// Upload implements accel.Memory. It first waits until the works of after have ended,
// because a copy that waited on the device would hold up the copies of other contexts
// behind it. A failure of these works does not fail the copy.
func (b *Block) Upload(ctx context.Context, off int, src []byte, after accel.Fences) (accel.Work, error) {
	r, err := b.m.up.open(ctx)
	if err != nil {
		return accel.Work{}, err
	}
	return r.upload(ctx, b.mem.Slice(off, len(src)), src, after)
}

// Download implements accel.Memory. It first waits until after has ended; whether
// after failed is for the caller to look at.
func (b *Block) Download(ctx context.Context, dst []byte, off int, after accel.Work) (accel.Work, error) {
	r, err := b.m.down.open(ctx)
	if err != nil {
		return accel.Work{}, err
	}
	return r.download(ctx, dst, b.mem.Slice(off, len(dst)), after)
}

// Read implements accel.Memory. Whether after failed is for the caller to look at.
func (b *Block) Read(ctx context.Context, dst []byte, off int, after accel.Work) (accel.Work, error) {
	r, err := b.m.down.open(ctx)
	if err != nil {
		return accel.Work{}, err
	}
	return r.read(ctx, dst, b.mem.Slice(off, len(dst)), after)
}

// Free implements accel.Memory: the block becomes idle under the given fences.
func (b *Block) Free(uses accel.Fences) {
	m := b.m
	m.mu.Lock()
	defer m.mu.Unlock()
	size := int64(b.mem.Len)
	b.weight = b.owner != nil
	if b.owner != nil {
		m.disown(b)
	}
	m.stats.Used -= size
	m.stats.UsedBlocks--
	b.uses = append(b.uses[:0], uses...)
	b.freed = m.tick
	// Whether the uses failed is asked when the block is looked at again.
	m.stats.Idle += size
	m.idle.add(b)
}
