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
	uses accel.Fences // the last owner's; only read while a buffer has the block

	owner *storage.Buffer // the weight whose memory the block is, or nil
	past  *history        // the owner's history
	place int             // index in Manager.adopted

	freed  int64 // tick at which the block became idle
	weight bool  // the block is idle and belonged to a weight
}

var _ accel.Memory = (*Block)(nil)

// Mem returns the provider's memory.
func (b *Block) Mem() op.Mem { return b.mem }

// Upload implements accel.Memory. It first waits until the works of after have ended,
// because a copy that waited on the device would delay the copies of other queues behind
// it. A failure of these works does not fail the copy.
func (b *Block) Upload(ctx context.Context, off int, src []byte, after accel.Fences) (accel.Work, error) {
	r, err := b.m.up.open(ctx)
	if err != nil {
		return accel.Work{}, err
	}
	return r.upload(ctx, b.mem.Slice(off, len(src)), src, after)
}

// Download implements accel.Memory. It first waits until after has ended. The caller checks
// whether after failed.
func (b *Block) Download(ctx context.Context, dst []byte, off int, after accel.Work) (accel.Work, error) {
	r, err := b.m.down.open(ctx)
	if err != nil {
		return accel.Work{}, err
	}
	return r.download(ctx, dst, b.mem.Slice(off, len(dst)), after)
}

// Read implements accel.Memory. The caller checks whether after failed.
func (b *Block) Read(ctx context.Context, dst []byte, off int, after accel.Work) (accel.Work, error) {
	r, err := b.m.down.open(ctx)
	if err != nil {
		return accel.Work{}, err
	}
	return r.read(ctx, dst, b.mem.Slice(off, len(dst)), after)
}

// Free implements accel.Memory. The block becomes idle under the fences uses.
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
	// spoilt checks for failed uses when the block is considered for reuse.
	m.stats.Idle += size
	m.idle.add(b)
}
