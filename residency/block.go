//go:build cuda || metal || accel

package residency

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/core/storage"
)

// Block is the device memory of one buffer.
type Block struct {
	m    *Manager
	mem  provider.Mem
	uses accel.Fences // of the last owner; only read while a buffer has the block

	owner      *storage.Buffer // set while the block is adopted
	prev, next *Block          // in Manager.adopted
}

var _ accel.Memory = (*Block)(nil)

// Mem returns the provider's memory.
func (b *Block) Mem() provider.Mem { return b.mem }

// Upload implements accel.Memory. It first waits until the works of after have ended:
// a copy in the upload queue never stands behind unfinished work of another queue.
// Their failures are not this copy's.
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
	if b.owner != nil {
		m.adopted.remove(b)
		b.owner = nil
		m.stats.Adopted -= size
	}
	m.stats.Used -= size
	m.stats.UsedBlocks--
	b.uses = append(b.uses[:0], uses...)
	// Whether the uses failed is asked when the block is looked at again.
	m.stats.Idle += size
	m.free[b.mem.Len] = append(m.free[b.mem.Len], b)
}

// quarantine keeps a block out of use: the device may still write to it. The
// caller holds mu and has taken the block off every other list.
func (m *Manager) quarantine(b *Block) {
	m.stats.Quarantined += int64(b.mem.Len)
	m.quarantined = append(m.quarantined, b)
}

// blockSize rounds a request so that nearby sizes share blocks: powers of two up
// to 4 KiB, multiples of 4 KiB above. A size too large to be rounded, which no
// device has, stays.
func blockSize(n int) int {
	const quantum = 4 << 10
	switch {
	case n <= 256:
		return 256
	case n <= quantum:
		return 1 << bits.Len(uint(n-1))
	case n > math.MaxInt-quantum:
		return n
	}
	return (n + quantum - 1) &^ (quantum - 1)
}

// Acquire returns a block of at least n bytes for work on the queue with timeline
// t, and the earlier uses that its first writer must follow; the slice is the
// block's and is good until the block is freed.
func (m *Manager) Acquire(ctx context.Context, t *accel.Timeline, n int) (*Block, accel.Fences, error) {
	b, err := m.acquire(ctx, t, blockSize(n))
	if err != nil {
		return nil, nil, err
	}
	return b, b.uses, nil
}

func (m *Manager) acquire(ctx context.Context, t *accel.Timeline, size int) (*Block, error) {
	if b := m.reuse(t, size, false); b != nil {
		return b, nil
	}
	b, err := m.allocate(size)
	if err == nil || !errors.Is(err, accel.ErrOutOfMemory) {
		return b, err
	}
	// One at a time looks for memory: what one gives up, no other takes for held.
	m.scarce.Lock()
	defer m.scarce.Unlock()
	if b, err = m.retry(t, size); err == nil {
		return b, nil
	}
	for given := 0; ; {
		n := m.evict()
		given += n
		if b, err = m.retry(t, size); err == nil {
			return b, nil
		}
		if n == 0 || given >= size {
			// Enough may have been given up that only waits for its fences.
			m.settle()
			given = 0
			if b, err = m.retry(t, size); err == nil {
				return b, nil
			}
		}
		if n == 0 {
			return nil, fmt.Errorf("residency: %d bytes: %w", size, err)
		}
	}
}

// retry looks for a block where idle ones are in the way or need waiting for, on
// the device.
func (m *Manager) retry(t *accel.Timeline, size int) (*Block, error) {
	m.trim(size)
	b, err := m.allocate(size)
	if err == nil {
		return b, nil
	}
	if b := m.reuse(t, size, true); b != nil {
		return b, nil
	}
	return nil, err
}

// reuse takes an idle block of the size: the last freed one that work on t may use
// without waiting, or with anyFence the last freed one.
func (m *Manager) reuse(t *accel.Timeline, size int, anyFence bool) *Block {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.free[size]
	for i := len(list) - 1; i >= 0; i-- {
		b := list[i]
		failed := b.uses.Err() != nil
		if !failed && !anyFence && !free(b.uses, t) {
			continue
		}
		list = append(list[:i], list[i+1:]...)
		m.free[size] = list
		m.stats.Idle -= int64(size)
		if failed {
			m.quarantine(b)
			continue
		}
		m.stats.Used += int64(size)
		m.stats.UsedBlocks++
		return b
	}
	return nil
}

// free reports whether work on t may follow the uses without a wait.
func free(uses accel.Fences, t *accel.Timeline) bool {
	for _, w := range uses {
		if !t.Follows(w) {
			return false
		}
	}
	return true
}

// allocate asks the provider, one goroutine at a time, so that the budget is compared
// with what is held and not with what another one may be refused. The provider may be
// slow to answer, so it is asked without mu, which Free needs.
func (m *Manager) allocate(size int) (*Block, error) {
	m.growing.Lock()
	defer m.growing.Unlock()
	m.mu.Lock()
	held := m.stats.Used + m.stats.Idle + m.stats.Quarantined
	m.mu.Unlock()
	if int64(size) > m.budget-held {
		return nil, fmt.Errorf("%w: %d bytes over the %d held pass the budget of %d", accel.ErrOutOfMemory, size, held, m.budget)
	}
	mem, err := m.p.Alloc(size)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stats.Used += int64(size)
	m.stats.UsedBlocks++
	return &Block{m: m, mem: mem}, nil
}

// trim gives idle blocks whose fences have ended back to the provider. Blocks of
// the size that is wanted are kept. The provider may take its time, so it is called
// without the lock; the bytes count as idle until then.
func (m *Manager) trim(keep int) {
	var ended []*Block
	m.mu.Lock()
	for size, list := range m.free {
		if size == keep {
			continue
		}
		rest := list[:0]
		for _, b := range list {
			switch {
			case !b.uses.Done():
				rest = append(rest, b)
			case b.uses.Err() != nil:
				m.stats.Idle -= int64(size)
				m.quarantine(b)
			default:
				ended = append(ended, b)
			}
		}
		clear(list[len(rest):])
		m.free[size] = rest
	}
	m.mu.Unlock()
	var given int64
	for _, b := range ended {
		m.p.Free(b.mem)
		given += int64(b.mem.Len)
	}
	m.mu.Lock()
	m.stats.Idle -= given
	m.mu.Unlock()
}

// settle waits for the fences of every idle block.
func (m *Manager) settle() {
	var uses accel.Fences
	m.mu.Lock()
	for _, list := range m.free {
		for _, b := range list {
			for _, w := range b.uses {
				uses.Add(w)
			}
		}
	}
	m.mu.Unlock()
	_ = uses.Wait(context.Background()) // a failure shows when the block is looked at
}

// evict gives up the device copy of the least recently used adopted weight that
// can spare it, and returns its bytes; 0 if there is none.
func (m *Manager) evict() int {
	// DropDevice comes back to the manager, so it is called without the lock; a
	// buffer that ended meanwhile has nothing to drop.
	m.mu.Lock()
	var candidates []*storage.Buffer
	for b := m.adopted.oldest(); b != nil; b = m.adopted.newer(b) {
		candidates = append(candidates, b.owner)
	}
	m.mu.Unlock()
	for _, buf := range candidates {
		if buf.DropDevice() {
			m.mu.Lock()
			m.stats.Evictions++
			m.mu.Unlock()
			return blockSize(buf.Size())
		}
	}
	return 0
}

func (m *Manager) adopt(b *Block, owner *storage.Buffer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b.owner = owner
	m.adopted.add(b)
	m.stats.Adopted += int64(b.mem.Len)
}

func (m *Manager) touch(b *Block) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if b.owner != nil {
		m.adopted.remove(b)
		m.adopted.add(b)
	}
}

// lru is a list of adopted blocks, from the least to the most recently used.
type lru struct{ root Block }

func (l *lru) init() { l.root.prev, l.root.next = &l.root, &l.root }

func (l *lru) add(b *Block) {
	b.prev, b.next = l.root.prev, &l.root
	b.prev.next, l.root.prev = b, b
}

func (l *lru) remove(b *Block) {
	b.prev.next, b.next.prev = b.next, b.prev
	b.prev, b.next = nil, nil
}

func (l *lru) oldest() *Block { return l.newer(&l.root) }

func (l *lru) newer(b *Block) *Block {
	if b.next == &l.root {
		return nil
	}
	return b.next
}
