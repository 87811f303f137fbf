//go:build cuda || metal || accel

package residency

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fucina-go/fucina/core/accel"
)

// request describes a block that is needed.
type request struct {
	t    *accel.Timeline // timeline of the queue that uses the block first
	size int             // bytes of a new block
	most int             // most bytes of an idle block that serves the request

	weight bool // the block is for a weight
	// either lets a weight reuse an activation's idle block, and the reverse. While there
	// is memory, each reuses only its own kind, because its sizes recur.
	either bool

	// fill says that the first use is an upload. An upload waits on the host for earlier
	// uses of the block, so while there is memory it takes no block that is still in use.
	fill bool
}

// useOrder is how the earlier uses of an idle block are ordered before work on the queue
// of a request.
type useOrder uint8

const (
	endedUses     useOrder = iota // all have ended
	followedUses                  // the queue follows them or they have ended
	unorderedUses                 // the queue must be made to wait for some of them
)

// Acquire returns a block of at least n bytes for work on the queue with timeline t, and
// the earlier uses that its first writer must follow. The slice of uses belongs to the
// block and is valid until the block is freed. Acquire fails with accel.ErrOutOfMemory, or
// with ctx's error if ctx ends while it waits.
func (m *Manager) Acquire(ctx context.Context, t *accel.Timeline, n int) (*Block, accel.Fences, error) {
	return m.acquireActivation(ctx, t, n, false)
}

func (m *Manager) acquireActivation(ctx context.Context, t *accel.Timeline, n int, fill bool) (*Block, accel.Fences, error) {
	size := classSize(n)
	if size > m.limit {
		size = exactSize(n)
	}
	known := min(size, m.limit) // so that loose*known does not overflow
	return m.acquire(ctx, request{t: t, size: size, most: max(loose*known, littleWaste+known), fill: fill})
}

// acquireWeight is Acquire for a weight. A weight keeps its block for long, so the block
// wastes little.
func (m *Manager) acquireWeight(ctx context.Context, t *accel.Timeline, n int) (*Block, accel.Fences, error) {
	size := exactSize(n)
	return m.acquire(ctx, request{t: t, size: size, most: min(size, m.limit) + size/classes, weight: true, fill: true})
}

func (m *Manager) acquire(ctx context.Context, r request) (*Block, accel.Fences, error) {
	b, err := m.find(ctx, r)
	if err != nil {
		return nil, nil, fmt.Errorf("residency: %d bytes: %w", r.size, err)
	}
	return b, b.uses, nil
}

func (m *Manager) find(ctx context.Context, r request) (*Block, error) {
	if r.size > m.limit {
		return nil, fmt.Errorf("%w: the budget is %d bytes, the largest possible block %d", accel.ErrOutOfMemory, m.budget, m.limit)
	}
	// If the first writer is an operation, uses that its queue follows need no wait.
	best := followedUses
	if r.fill {
		best = endedUses
	}
	if b := m.reuse(r, best); b != nil {
		return b, nil
	}
	if m.restore() {
		if b := m.reuse(r, best); b != nil {
			return b, nil
		}
	}
	b, err := m.allocate(ctx, r.size)
	if !errors.Is(err, accel.ErrOutOfMemory) {
		return b, err
	}
	if best < followedUses {
		if b := m.reuse(r, followedUses); b != nil {
			return b, nil
		}
	}
	return m.search(ctx, r)
}

// search looks for a block after memory has run out, in passes that do not wait. It waits
// between the passes, with scarce unlocked, so that others may search.
func (m *Manager) search(ctx context.Context, r request) (*Block, error) {
	r.most = r.size + r.size/classes // a larger block would waste scarce memory
	r.either = true
	for settled := false; ; {
		// A request whose context is done evicts nothing.
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := m.scarce.Lock(ctx); err != nil {
			return nil, err
		}
		b, next, err := m.look(ctx, r)
		var uses accel.Fences
		if next == settleLeft || next == settleAll {
			uses = m.idleUses(next == settleLeft)
		}
		m.scarce.Unlock()
		if next == found || next == settleAll && settled {
			return b, err
		}
		settled = settled || next == settleAll
		if err := uses.Wait(ctx); err != nil && !uses.Done() {
			return nil, err
		}
	}
}

// step is the outcome of a pass of search.
type step uint8

const (
	found      step = iota // the pass returned a block or a final error
	again                  // the pass freed memory
	settleLeft             // the stale idle blocks suffice once their uses have ended
	settleAll              // only idle blocks whose uses have not ended are left
)

// look is one pass of search: it takes a block, or frees the memory that is needed least.
// The caller holds scarce.
func (m *Manager) look(ctx context.Context, r request) (*Block, step, error) {
	if b := m.reuse(r, followedUses); b != nil {
		return b, found, nil
	}
	b, refused := m.allocate(ctx, r.size)
	if !errors.Is(refused, accel.ErrOutOfMemory) {
		return b, found, refused
	}
	missing, room := m.missing(int64(r.size))
	if room < missing {
		return nil, found, refused
	}
	if given := m.trim(missing, false); given > 0 {
		return nil, again, nil
	}
	if b := m.reuse(r, unorderedUses); b != nil {
		return b, found, nil
	}
	left, idle := m.left()
	if missing -= left; missing <= 0 {
		return nil, settleLeft, nil
	}
	list := m.candidates()
	defer clear(list) // so that m.scratch keeps no released buffer reachable
	room = idle - left
	for i := range list {
		room += list[i].size
	}
	if room < missing {
		return nil, found, refused
	}
	if m.evict(list, int64(r.size), missing) || m.trim(missing, true) > 0 {
		return nil, again, nil
	}
	return nil, settleAll, refused
}

// missing returns how many bytes must become free before size bytes can be allocated, and
// how many can become free at most: the bytes of idle blocks and of weights.
func (m *Manager) missing(size int64) (missing, room int64) {
	m.mu.Lock()
	missing = m.held() + size - m.budget
	room = m.stats.Idle + m.stats.Adopted
	m.mu.Unlock()
	if info := m.p.Info(); info.TotalBytes > 0 {
		missing = max(missing, size-info.FreeBytes)
	}
	if missing <= 0 {
		missing = size // the device refused for an unknown reason
	}
	return missing, room
}

// held returns the bytes that count against the budget. The caller holds mu.
func (m *Manager) held() int64 { return m.stats.Used + m.stats.Idle + m.stats.Quarantined }

// reuse takes the smallest idle block that serves r and whose uses are at most worst. Among
// blocks of one size it takes the last freed one, or, if r.fill, the first freed one, whose
// uses have most likely ended. It returns nil if there is none.
func (m *Manager) reuse(r request, worst useOrder) *Block {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := m.idle.from(r.size); i < len(m.idle) && m.idle[i].size <= r.most; i++ {
		if b := m.pick(&m.idle[i], r, worst); b != nil {
			m.stats.Idle -= int64(b.mem.Len)
			m.stats.Used += int64(b.mem.Len)
			m.stats.UsedBlocks++
			return b
		}
	}
	return nil
}

// pick removes a block that serves r from the list and returns it, or nil. The caller
// holds mu.
func (m *Manager) pick(list *sizeList, r request, worst useOrder) *Block {
	k, step := len(list.blocks)-1, -1
	if r.fill {
		k, step = 0, 1
	}
	for k >= 0 && k < len(list.blocks) {
		switch b := list.blocks[k]; {
		case b.weight != r.weight && !r.either:
			k += step
		case m.spoilt(b):
			m.quarantine(list.take(k))
			k += min(step, 0)
		case orderOf(b.uses, r.t) <= worst:
			return list.take(k)
		default:
			k += step
		}
	}
	return nil
}

// orderOf returns how the works are ordered before later work on t.
func orderOf(works accel.Fences, t *accel.Timeline) useOrder {
	worst := endedUses
	for _, w := range works {
		switch {
		case w.Done():
		case t.Follows(w):
			worst = followedUses
		default:
			return unorderedUses
		}
	}
	return worst
}

// spoilt reports whether a use of b failed and the device may still be writing to b. The
// caller holds mu.
func (m *Manager) spoilt(b *Block) bool {
	if b.uses.Err() == nil {
		return false
	}
	if !b.uses.Quiet() {
		return true
	}
	b.uses = b.uses[:0] // the failure of an earlier use does not fail the next one
	return false
}

// quarantine keeps a block, which the caller has removed from its idle list, from reuse
// until the device has stopped writing to it. The caller holds mu.
func (m *Manager) quarantine(b *Block) {
	m.stats.Idle -= int64(b.mem.Len)
	m.stats.Quarantined += int64(b.mem.Len)
	m.quarantined = append(m.quarantined, b)
}

// restore makes the quarantined blocks idle that the device no longer writes to, and
// reports whether there were any.
func (m *Manager) restore() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := len(m.quarantined)
	m.quarantined = slices.DeleteFunc(m.quarantined, func(b *Block) bool {
		if !b.uses.Quiet() {
			return false
		}
		b.uses = b.uses[:0]
		m.stats.Quarantined -= int64(b.mem.Len)
		m.stats.Idle += int64(b.mem.Len)
		m.idle.add(b)
		return true
	})
	return len(m.quarantined) < before
}

// allocate returns a new block of the provider. One goroutine at a time allocates, so that
// the budget is not charged with an allocation of another goroutine that may yet fail. The
// provider may be slow, so it is called without mu, which Free needs.
func (m *Manager) allocate(ctx context.Context, size int) (*Block, error) {
	if err := m.growing.Lock(ctx); err != nil {
		return nil, err
	}
	defer m.growing.Unlock()
	m.mu.Lock()
	held := m.held()
	m.mu.Unlock()
	if int64(size) > m.budget-held {
		return nil, fmt.Errorf("%w: %d bytes are held and the budget is %d", accel.ErrOutOfMemory, held, m.budget)
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

// stale reports whether an idle block is unlikely to be reused: it belonged to a weight, or
// it was idle for two rounds. The caller holds mu.
func (m *Manager) stale(b *Block) bool { return b.weight || m.tick-b.freed > 2*m.round }

// trim gives idle blocks whose uses have ended back to the provider, the largest first,
// until it has given back missing bytes, and returns how many it gave back. It takes stale
// blocks, and others only if fresh. The provider may be slow, so it is called without mu;
// the bytes count as idle until it has returned.
func (m *Manager) trim(missing int64, fresh bool) int64 {
	var ended []*Block
	given := int64(0)
	m.mu.Lock()
	for i := len(m.idle) - 1; i >= 0; i-- {
		list := &m.idle[i]
		for k := 0; k < len(list.blocks) && given < missing; {
			b := list.blocks[k]
			switch {
			case !b.uses.Done() || !fresh && !m.stale(b):
				k++
			case m.spoilt(b):
				m.quarantine(list.take(k))
			default:
				ended = append(ended, list.take(k))
				given += int64(b.mem.Len)
			}
		}
	}
	m.idle.compact()
	m.mu.Unlock()
	for _, b := range ended {
		m.p.Free(b.mem)
	}
	m.mu.Lock()
	m.stats.Idle -= given
	m.mu.Unlock()
	return given
}

// left returns the bytes of the stale idle blocks, and of all idle blocks. After a trim,
// the stale ones are those whose uses have not ended.
func (m *Manager) left() (stale, all int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for b := range m.idle.all {
		if m.stale(b) {
			stale += int64(b.mem.Len)
		}
	}
	return stale, m.stats.Idle
}

// idleUses returns the uses of the idle blocks, or only of the stale ones.
func (m *Manager) idleUses(stale bool) accel.Fences {
	m.mu.Lock()
	defer m.mu.Unlock()
	var uses accel.Fences
	for b := range m.idle.all {
		if stale && !m.stale(b) {
			continue
		}
		for _, w := range b.uses {
			uses.Add(w)
		}
	}
	return uses
}
