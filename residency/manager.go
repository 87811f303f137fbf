//go:build cuda || metal || accel

package residency

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"weak"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/core/storage"
	"github.com/fucina-go/fucina/internal/ctxlock"
)

// Options are the limits of a Manager. A zero field means its default.
type Options struct {
	// Budget is the most device memory to hold, in bytes. The default is 80% of the
	// memory that is free when the manager is made.
	Budget int64
	// SlotBytes and Slots size the rings of staging memory. The default is 4 slots of
	// 1 MiB in each direction.
	SlotBytes int
	Slots     int
}

const (
	defaultSlotBytes = 1 << 20
	defaultSlots     = 4
	// budgetShare is the default budget as a share of the free memory. The rest is left
	// to the driver and to other programs.
	budgetShare = 0.8
)

// Manager is the device memory of one engine. It is safe for concurrent use.
type Manager struct {
	p       provider.Device
	budget  int64
	limit   int // size of the largest possible block, in bytes
	up      *ring
	down    *ring
	retired storage.Retired

	// The locks in the order in which they are taken. No goroutine waits for the device
	// while it holds one.
	scarce      ctxlock.Lock // held by a pass of search
	growing     ctxlock.Lock // held during an allocation by the provider
	mu          sync.Mutex   // guards the fields below; never held while the provider is called
	idle        idleBlocks
	quarantined []*Block
	adopted     []*Block
	past        map[weak.Pointer[storage.Buffer]]*history
	pastLimit   int   // size of past at which forget runs
	tick        int64 // number of uses of weights so far
	round       int64 // the longest recent interval of a weight
	stats       Stats

	scratch []candidate // guarded by scarce
}

// Stats are a Manager's counters.
type Stats struct {
	Used        int64 // bytes of blocks in use
	UsedBlocks  int64 // number of blocks in use
	Idle        int64 // bytes of blocks that wait for reuse
	Quarantined int64 // bytes of blocks behind a failed fence
	Adopted     int64 // bytes of blocks of adopted weights; part of Used
	Evictions   int64 // number of adopted weights evicted
	Retired     int64 // number of host blocks that outlived their buffer
}

// New returns a manager of p's memory. It does not use the device yet: the first transfer
// in each direction opens the queue and the staging memory. The caller closes the manager
// before p.
func New(p provider.Device, opt Options) *Manager {
	info := p.Info()
	if opt.Budget <= 0 {
		opt.Budget = int64(budgetShare * float64(info.FreeBytes))
	}
	if opt.SlotBytes <= 0 {
		opt.SlotBytes = defaultSlotBytes
	}
	if opt.Slots <= 0 {
		opt.Slots = defaultSlots
	}
	limit := min(opt.Budget, math.MaxInt/(2*loose)-littleWaste)
	for _, n := range []int64{info.MaxAlloc, info.TotalBytes} {
		if n > 0 {
			limit = min(limit, n)
		}
	}
	return &Manager{
		p: p, budget: opt.Budget, limit: int(limit),
		up:        newRing(p, provider.UploadQueue, opt.Slots, opt.SlotBytes),
		down:      newRing(p, provider.DownloadQueue, opt.Slots, opt.SlotBytes),
		scarce:    ctxlock.New(),
		growing:   ctxlock.New(),
		past:      make(map[weak.Pointer[storage.Buffer]]*history),
		pastLimit: minPast,
	}
}

// Prepare opens the queues and the staging memory, which the first transfers would
// otherwise open.
func (m *Manager) Prepare(ctx context.Context) error {
	for _, r := range []*ring{m.up, m.down} {
		if _, err := r.open(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Stats returns the counters.
func (m *Manager) Stats() Stats {
	retired := m.retired.Sweep()
	m.restore()
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.stats
	s.Retired = int64(retired)
	return s
}

// Err returns the failure of a transfer queue, or nil. After a failure, transfers in that
// direction fail.
func (m *Manager) Err() error {
	if err := m.up.dead(); err != nil {
		return err
	}
	return m.down.dead()
}

// Ensure gives b device memory for work on the queue with timeline t, unless b has some.
// It adopts a weight: the block stays until the last Release of b, or until memory runs
// out. Ensure reports whether this call adopted b. It does not upload the bytes.
func (m *Manager) Ensure(ctx context.Context, b *storage.Buffer, t *accel.Timeline, weight bool) (adopted bool, err error) {
	if mem := b.DeviceMemory(); mem != nil {
		if weight {
			m.Used(mem)
		}
		return false, nil
	}
	var blk *Block
	var uses accel.Fences
	if weight {
		blk, uses, err = m.acquireWeight(ctx, t, b.Size())
	} else {
		blk, uses, err = m.acquireActivation(ctx, t, b.Size(), b.HasHost())
	}
	if err != nil {
		return false, err
	}
	if weight {
		m.adopt(blk, b)
	}
	if !b.Attach(blk, uses, &m.retired) {
		blk.Free(uses) // another goroutine attached a block meanwhile
		return false, nil
	}
	return weight, nil
}

// BeginNew gives b device memory and begins an operation that overwrites it, on the queue with
// timeline t; see [storage.Buffer.BeginNew].
func (m *Manager) BeginNew(ctx context.Context, b *storage.Buffer, t *accel.Timeline, needs *storage.Needs) (*Block, error) {
	blk, uses, err := m.acquireActivation(ctx, t, b.Size(), false)
	if err != nil {
		return nil, err
	}
	b.BeginNew(t, blk, uses, &m.retired, needs)
	return blk, nil
}

// Close waits for the device, frees its memory and queues, and returns an error if buffers
// still hold blocks. Such buffers must not be used afterwards. If ctx ends first, Close
// returns ctx's error and may be called again.
func (m *Manager) Close(ctx context.Context) error {
	var errs []error
	// The failure of a dead queue is ignored: it is reported where a result is read, and
	// Close only needs the end of the work.
	_ = m.p.Sync(ctx)
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("residency: close: %w", err)
	}
	errs = append(errs, m.up.close(ctx), m.down.close(ctx), m.retired.Drain(ctx))
	m.mu.Lock()
	blocks := slices.AppendSeq(m.quarantined, m.idle.all)
	m.idle, m.quarantined = nil, nil
	m.stats.Idle, m.stats.Quarantined = 0, 0
	m.mu.Unlock()
	for _, b := range blocks {
		m.p.Free(b.mem)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := m.stats.UsedBlocks; n != 0 {
		errs = append(errs, fmt.Errorf("residency: close: buffers still hold %d device blocks, %d bytes", n, m.stats.Used))
	}
	return errors.Join(errs...)
}
