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

// Options are the limits of a Manager; zero fields take their defaults.
type Options struct {
	// Budget is the most device memory to hold, in bytes. The default is 80% of
	// what is free when the manager is made.
	Budget int64
	// SlotBytes and Slots size the rings of staging memory: by default 4 slots of
	// 1 MiB each way.
	SlotBytes int
	Slots     int
}

const (
	defaultSlotBytes = 1 << 20
	defaultSlots     = 4
	// budgetShare of the free memory is the default budget: the rest is left to
	// the driver and to other programs.
	budgetShare = 0.8
)

// Manager is the device memory of one engine. It is safe for concurrent use.
type Manager struct {
	p       provider.Device
	budget  int64
	limit   int // bytes of the largest block there can be
	up      *ring
	down    *ring
	retired storage.Retired

	// Locks, in the order in which they are taken. Nobody waits for the device while
	// holding one.
	scarce      ctxlock.Lock // held while looking for memory that has run out
	growing     ctxlock.Lock // held while asking the provider for more
	mu          sync.Mutex   // guards the fields below; never held while the provider is called
	idle        idleBlocks
	quarantined []*Block
	adopted     []*Block
	past        map[weak.Pointer[storage.Buffer]]*history
	pastLimit   int   // size of past at which it is swept
	tick        int64 // uses of weights so far
	round       int64 // the longest interval of late
	stats       Stats

	scratch []candidate // guarded by scarce
}

// Stats are a Manager's counters, in bytes unless said otherwise.
type Stats struct {
	Used        int64 // in blocks that a buffer has
	UsedBlocks  int64
	Idle        int64 // in blocks that wait for reuse
	Quarantined int64 // behind a failed fence
	Adopted     int64 // in blocks of adopted weights; part of Used
	Evictions   int64 // adopted weights given up for want of memory, a count
	Retired     int64 // host blocks that outlived their buffer, a count
}

// New returns a manager of p's memory. It takes nothing of the device yet: the queues
// and the staging memory come with the first transfer that needs them. The caller
// closes the manager before p.
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

// Prepare takes the queues and the staging memory at once, which otherwise come with
// the first transfer.
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

// Err returns the failure of a transfer queue. After a failure, bytes cannot be moved in
// that direction.
func (m *Manager) Err() error {
	if err := m.up.dead(); err != nil {
		return err
	}
	return m.down.dead()
}

// Ensure gives b device memory for work on the queue with timeline t, unless it
// has some. A weight is adopted: it stays until its buffer ends or memory runs
// out. It reports whether this call adopted it. The bytes are not moved yet.
func (m *Manager) Ensure(ctx context.Context, b *storage.Buffer, t *accel.Timeline, weight bool) (adopted bool, err error) {
	if mem := b.DeviceMemory(); mem != nil {
		if blk, ok := mem.(*Block); ok && weight {
			m.touch(blk)
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
		blk.Free(uses) // someone else was faster
		return false, nil
	}
	return weight, nil
}

// Close waits for the device, gives everything back and reports blocks that
// buffers still hold. Buffers must not be used afterwards.
func (m *Manager) Close(ctx context.Context) error {
	var errs []error
	// A dead queue's failure has been reported where its results were wanted;
	// here it only matters that the work has ended.
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
