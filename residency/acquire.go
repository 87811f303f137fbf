//go:build cuda || metal || accel

package residency

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fucina-go/fucina/core/accel"
)

// request is a wish for a block.
type request struct {
	t    *accel.Timeline // of the queue that will use it first
	size int             // of a new block
	most int             // size of an idle block that will do

	weight bool // the block is for a weight
	// either lets a weight take an activation's idle block and the reverse. While there is
	// memory each keeps to blocks of its own kind, because its sizes come again.
	either bool

	// fill says that an upload is the first use. It waits on the host for earlier uses of
	// the block, so while there is memory it takes no block that is still in use.
	fill bool
}

// useOrder says what the earlier uses of an idle block are to a request's queue.
type useOrder uint8

const (
	endedUses     useOrder = iota // ones that have ended
	followedUses                  // ones that work on the request's queue follows anyway
	unorderedUses                 // any
)

// Acquire returns a block of at least n bytes for work on the queue with timeline
// t, and the earlier uses that its first writer must follow; the slice is the
// block's and is good until the block is freed. It fails with accel.ErrOutOfMemory, or
// with ctx's error where it has to wait.
func (m *Manager) Acquire(ctx context.Context, t *accel.Timeline, n int) (*Block, accel.Fences, error) {
	return m.acquireActivation(ctx, t, n, false)
}

func (m *Manager) acquireActivation(ctx context.Context, t *accel.Timeline, n int, fill bool) (*Block, accel.Fences, error) {
	size := classSize(n)
	if size > m.limit {
		size = exactSize(n)
	}
	known := min(size, m.limit) // the product of a larger size may not be a number
	return m.acquire(ctx, request{t: t, size: size, most: max(loose*known, littleWaste+known), fill: fill})
}

// acquireWeight is Acquire for a weight, which keeps its block for long and wastes
// little of it.
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
	// The first writer of other blocks is an operation, which need not wait for what its
	// queue orders before it.
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

// search looks for memory that has run out, in passes that wait for nothing. It waits
// between them, when others may search.
func (m *Manager) search(ctx context.Context, r request) (*Block, error) {
	r.most = r.size + r.size/classes // what is larger is worth more than the new block
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
			uses = m.unended(next == settleLeft)
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

// step is what a pass of a search ends with.
type step uint8

const (
	found      step = iota // a block, or an error that says why there is none
	again                  // memory became free, or will
	settleLeft             // the stale idle blocks suffice once their uses have ended
	settleAll              // only idle blocks whose uses have not ended are left
)

// look is one pass: it takes a block, or gives up what others need least until enough
// is free. The caller holds scarce.
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
	defer clear(list) // a buffer that has ended is not kept reachable
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

// missing returns how many bytes have to become free before size bytes can be
// allocated, and how many could at most: those of idle blocks and of weights.
func (m *Manager) missing(size int64) (missing, room int64) {
	m.mu.Lock()
	missing = m.held() + size - m.budget
	room = m.stats.Idle + m.stats.Adopted
	m.mu.Unlock()
	if info := m.p.Info(); info.TotalBytes > 0 {
		missing = max(missing, size-info.FreeBytes)
	}
	if missing <= 0 {
		missing = size // the device refused and does not say why
	}
	return missing, room
}

// held returns the bytes that count against the budget. The caller holds mu.
func (m *Manager) held() int64 { return m.stats.Used + m.stats.Idle + m.stats.Quarantined }

// reuse takes an idle block that will do and whose uses are no worse than worst: the
// smallest, among equals the last freed one, or the first freed one to be filled, since
// the device has likely done with it.
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

// pick takes a block of the list that will do off it. The caller holds mu.
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

// orderOf says what the works are to work on t.
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

// spoilt reports whether a use of b failed and the device may still be at work on b.
// The caller holds mu.
func (m *Manager) spoilt(b *Block) bool {
	if b.uses.Err() == nil {
		return false
	}
	if !b.uses.Quiet() {
		return true
	}
	b.uses = b.uses[:0] // an earlier user's failure does not concern the next user
	return false
}

// quarantine keeps an idle block, which the caller has taken off its list, out of use
// until the device has stopped writing to it. The caller holds mu.
func (m *Manager) quarantine(b *Block) {
	m.stats.Idle -= int64(b.mem.Len)
	m.stats.Quarantined += int64(b.mem.Len)
	m.quarantined = append(m.quarantined, b)
}

// restore makes quarantined blocks idle whose failed users' queues have ended, and
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

// allocate asks the provider, one goroutine at a time, so that the budget is compared
// with what is held and not with what another one may be refused. The provider may be
// slow to answer, so it is asked without mu, which Free needs.
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

// stale reports whether an idle block is likely not to be wanted again: its weight is
// gone, or nobody took it for two rounds. The caller holds mu.
func (m *Manager) stale(b *Block) bool { return b.weight || m.tick-b.freed > 2*m.round }

// trim gives idle blocks whose uses have ended back to the provider, the largest
// first, until it has given the bytes that are missing, and returns what it gave. It
// takes stale blocks only, or fresh ones too. The provider may take its time, so it is
// called without the lock; the bytes count as idle until then.
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

// left returns the bytes of stale blocks, whose uses have not ended after a trim, and
// of all idle blocks.
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

// unended returns the uses of idle blocks, or of the stale ones only.
func (m *Manager) unended(stale bool) accel.Fences {
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
