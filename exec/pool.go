package exec

import (
	"fmt"
	"math"
	"math/bits"
	"sync"

	"github.com/fucina-go/fucina/core/storage"
	"github.com/fucina-go/fucina/internal/invariants"
)

// poolCap is the most idle host memory that an engine's pool keeps, in bytes.
const poolCap = 1 << 30

// pool recycles buffers by size. The last Release of a pooled buffer puts it on the idle
// list of its size, and the next request of that size takes the last released one,
// because the CPU is most likely to have it cached. A pool is safe for concurrent use.
type pool struct {
	cap int64

	mu     sync.Mutex
	host   classes // buffers with host memory
	device classes // buffers without memory; no class is deleted
	clock  int64   // number of requests so far
	cached int64   // bytes of idle host memory
	out    int64   // buffers handed out and not released
	closed bool
}

// classes are the size classes of one kind of buffer, by size.
type classes map[int]*sizeClass

// sizeClass holds the idle buffers of one size.
type sizeClass struct {
	pool  *pool
	idle  []*storage.Buffer
	asked int64 // the clock at the last request
}

// class returns the class of a size of one kind of buffer.
func (p *pool) class(kind classes, size int) *sizeClass {
	class := kind[size]
	if class == nil {
		class = &sizeClass{pool: p}
		kind[size] = class
	}
	return class
}

// newPool returns a pool that keeps at most limit bytes of idle host memory.
func newPool(limit int64) *pool {
	return &pool{cap: limit, host: make(classes), device: make(classes)}
}

// PoolStats are a pool's counters.
type PoolStats struct {
	Outstanding int64 // buffers handed out and not released
	Cached      int64 // bytes of idle host memory
}

// Stats returns the counters.
func (p *pool) Stats() PoolStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return PoolStats{p.out, p.cached}
}

// roundSize rounds a request of n bytes so that nearby sizes share buffers: up to 1024
// f32 elements to a power of two, above that to a multiple of 1024 elements. A size that
// would overflow is returned unchanged; its allocation fails.
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

// Acquire returns a buffer of at least n bytes of host memory with undefined contents. The
// caller releases it.
func (p *pool) Acquire(n int) (*storage.Buffer, error) {
	size := roundSize(n)
	if b, _ := p.take(p.host, size); b != nil {
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

// AcquireLazy returns a buffer of at least n bytes without memory, for a device result.
// The caller releases it.
func (p *pool) AcquireLazy(n int) *storage.Buffer {
	size := roundSize(n)
	b, class := p.take(p.device, size)
	if b == nil {
		b = storage.NewLazy(size)
		b.SetReclaimer((*deviceClass)(class))
	}
	return b
}

// take counts a buffer as handed out. It returns an idle one of that size, or nil, and the class
// of the size.
func (p *pool) take(kind classes, size int) (*storage.Buffer, *sizeClass) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out++
	p.clock++
	class := p.class(kind, size)
	class.asked = p.clock
	n := len(class.idle)
	if n == 0 {
		return nil, class
	}
	b := class.idle[n-1]
	class.idle[n-1] = nil
	class.idle = class.idle[:n-1]
	if b.HasHost() {
		p.cached -= int64(size)
	}
	b.Revive()
	return b, class
}

// makeRoom frees idle host memory until size more bytes fit under the cap, and reports
// whether they fit. It frees the sizes whose last request is the oldest first, and no size
// whose last request is later than that of this size.
func (p *pool) makeRoom(size int) bool {
	if int64(size) > p.cap {
		return false
	}
	for p.cached+int64(size) > p.cap {
		oldest, asked := 0, p.class(p.host, size).asked
		for s, class := range p.host {
			if len(class.idle) > 0 && class.asked < asked {
				oldest, asked = s, class.asked
			}
		}
		if oldest == 0 {
			return false
		}
		class := p.host[oldest]
		n := len(class.idle)
		class.idle[n-1].Destroy()
		class.idle[n-1] = nil
		class.idle = class.idle[:n-1]
		p.cached -= int64(oldest)
		if n == 1 {
			delete(p.host, oldest)
		}
	}
	return true
}

// hostArm and deviceClass implement storage.Reclaimer for the pool's two kinds of buffer.
type (
	hostArm     pool
	deviceClass sizeClass
)

// Reclaim implements storage.Reclaimer.
func (h *hostArm) Reclaim(b *storage.Buffer) {
	if invariants.Enabled {
		b.Poison()
	}
	p := (*pool)(h)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out--
	if p.closed || !b.HasHost() || !p.makeRoom(b.Size()) {
		b.Destroy() // a buffer has no host memory if a transfer still fills it
		return
	}
	p.cached += int64(b.Size())
	class := p.class(p.host, b.Size())
	class.idle = append(class.idle, b)
}

// Reclaim implements storage.Reclaimer.
func (d *deviceClass) Reclaim(b *storage.Buffer) {
	p := d.pool
	b.DropHost()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out--
	if p.closed {
		b.Destroy()
		return
	}
	d.idle = append(d.idle, b)
}

// Close destroys the idle buffers, and returns an error if buffers were not released. A
// buffer that is released after Close is destroyed then.
func (p *pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, kind := range []classes{p.host, p.device} {
		for _, class := range kind {
			for _, b := range class.idle {
				b.Destroy()
			}
		}
		clear(kind)
	}
	p.cached = 0
	if p.out != 0 {
		return fmt.Errorf("exec: %d buffers of the pool were not released", p.out)
	}
	return nil
}
