package exec

import (
	"fmt"
	"math"
	"math/bits"
	"sync"

	"github.com/fucina-go/fucina/core/storage"
	"github.com/fucina-go/fucina/internal/invariants"
)

// PoolCap is the default cap on idle host memory in a pool, in bytes.
const PoolCap = 1 << 30

// Pool recycles buffers by size: releasing a pooled buffer puts it on the idle
// list of its size, and the next request of that size takes it back, the last
// released first, since its lines are the likeliest to be cached. It is safe for
// concurrent use.
type Pool struct {
	cap int64

	mu     sync.Mutex
	host   map[int][]*storage.Buffer // idle, with host memory
	device map[int][]*storage.Buffer // idle headers without memory
	cached int64
	out    int64
	closed bool
}

// NewPool returns a pool that keeps at most limit bytes of idle host memory;
// PoolCap if limit is 0.
func NewPool(limit int64) *Pool {
	if limit == 0 {
		limit = PoolCap
	}
	return &Pool{cap: limit, host: make(map[int][]*storage.Buffer), device: make(map[int][]*storage.Buffer)}
}

// PoolStats are a pool's counters.
type PoolStats struct {
	Outstanding int64 // buffers handed out and not released
	Cached      int64 // bytes of idle host memory
}

// Stats returns the counters.
func (p *Pool) Stats() PoolStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return PoolStats{p.out, p.cached}
}

// roundSize rounds a request so that nearby sizes share buffers: to a power of two
// up to 1024 f32 elements, to a multiple of 1024 elements above. A size too large to
// be rounded, which no memory has, stays.
func roundSize(n int) int {
	const quantum = 1024 * 4
	switch {
	case n <= 64:
		return 64
	case n <= quantum:
		return 1 << bits.Len(uint(n-1))
	case n > math.MaxInt-quantum:
		return n
	}
	return (n + quantum - 1) &^ (quantum - 1)
}

// Acquire returns a buffer of at least n bytes with host memory, contents
// undefined, and one reference for the caller.
func (p *Pool) Acquire(n int) (*storage.Buffer, error) {
	size := roundSize(n)
	if b := p.take(p.host, size); b != nil {
		return b, nil
	}
	b, err := storage.New(size)
	if err != nil {
		p.mu.Lock()
		p.out--
		p.mu.Unlock()
		return nil, err
	}
	b.SetReclaimer((*hostArm)(p))
	return b, nil
}

// AcquireLazy returns a buffer of at least n bytes without memory, for a device
// result, and one reference for the caller.
func (p *Pool) AcquireLazy(n int) *storage.Buffer {
	size := roundSize(n)
	if b := p.take(p.device, size); b != nil {
		return b
	}
	b := storage.NewLazy(size)
	b.SetReclaimer((*deviceArm)(p))
	return b
}

// take counts a buffer as handed out and returns an idle one of that size, if any.
func (p *Pool) take(idle map[int][]*storage.Buffer, size int) *storage.Buffer {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out++
	list := idle[size]
	if len(list) == 0 {
		return nil
	}
	b := list[len(list)-1]
	list[len(list)-1] = nil
	idle[size] = list[:len(list)-1]
	if b.HasHost() {
		p.cached -= int64(size)
	}
	b.Revive()
	return b
}

// hostArm and deviceArm are the pool as the Reclaimer of its two kinds of buffer.
type (
	hostArm   Pool
	deviceArm Pool
)

// Reclaim implements storage.Reclaimer.
func (h *hostArm) Reclaim(b *storage.Buffer) {
	if invariants.Enabled {
		b.Poison()
	}
	p := (*Pool)(h)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out--
	size := int64(b.Size())
	if p.closed || p.cached+size > p.cap || !b.HasHost() {
		b.Destroy() // without host memory, a transfer took it along
		return
	}
	p.cached += size
	p.host[b.Size()] = append(p.host[b.Size()], b)
}

// Reclaim implements storage.Reclaimer.
func (d *deviceArm) Reclaim(b *storage.Buffer) {
	p := (*Pool)(d)
	b.DropHost()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out--
	if p.closed {
		b.Destroy()
		return
	}
	p.device[b.Size()] = append(p.device[b.Size()], b)
}

// Close destroys the idle buffers and reports those that were never released;
// they are destroyed when they are.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, arm := range []map[int][]*storage.Buffer{p.host, p.device} {
		for _, list := range arm {
			for _, b := range list {
				b.Destroy()
			}
		}
		clear(arm)
	}
	p.cached = 0
	if p.out != 0 {
		return fmt.Errorf("exec: %d buffers of the pool were never released", p.out)
	}
	return nil
}
