// Package null has a device that computes nothing, for benchmarks of the time that the runtime
// needs besides the computation. Work ends when it is submitted, and results are undefined.
package null

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/provider"
)

// Device counts submissions, transfers and memory. It is safe for concurrent use.
type Device struct {
	submits [op.Count]atomic.Uint64
	mu      sync.Mutex
	stats   provider.Stats // without Submits
	sizes   map[uint64]int // bytes of each live allocation
}

var _ provider.Device = (*Device)(nil)

// New returns a device with endless memory.
func New() *Device { return &Device{sizes: make(map[uint64]int)} }

type queue struct{ timeline *accel.Timeline }

func (q queue) Timeline() *accel.Timeline { return q.timeline }

// done issues a point that has ended.
func (q queue) done() accel.Work {
	w := q.timeline.Issue()
	q.timeline.Complete(w.Seq())
	return w
}

// Info describes the device.
func (d *Device) Info() provider.Info {
	return provider.Info{Name: "null", Device: "null", TotalBytes: math.MaxInt64, FreeBytes: math.MaxInt64}
}

// Plan supports every operation.
func (d *Device) Plan(op.ID, *op.Args) provider.Plan { return provider.Plan{Supported: true} }

// count changes the counters.
func (d *Device) count(change func(s *provider.Stats)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(&d.stats)
}

// NewQueue returns a queue.
func (d *Device) NewQueue(kind provider.QueueKind) (provider.Queue, error) {
	d.count(func(s *provider.Stats) { s.LiveQueues++ })
	return queue{accel.NewTimeline(fmt.Sprintf("null/%v", kind), nil)}, nil
}

// CloseQueue closes q.
func (d *Device) CloseQueue(q provider.Queue) error {
	d.count(func(s *provider.Stats) { s.LiveQueues-- })
	q.Timeline().End()
	return nil
}

// Submit ends at once.
func (d *Device) Submit(_ context.Context, q provider.Queue, id op.ID, _ *op.Args) (accel.Work, error) {
	d.submits[id].Add(1)
	return q.(queue).done(), nil
}

// WaitFor does nothing, because all work has ended.
func (d *Device) WaitFor(context.Context, provider.Queue, accel.Work) error { return nil }

// Alloc returns memory that only has a name.
func (d *Device) Alloc(n int) (op.Mem, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stats.Allocs++
	d.stats.LiveBlocks++
	d.stats.LiveBytes += int64(n)
	d.sizes[d.stats.Allocs] = n
	return op.Mem{ID: d.stats.Allocs, Len: n}, nil
}

// Free ends an allocation.
func (d *Device) Free(m op.Mem) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stats.Frees++
	d.stats.LiveBlocks--
	d.stats.LiveBytes -= int64(d.sizes[m.ID])
	delete(d.sizes, m.ID)
}

// Upload ends at once.
func (d *Device) Upload(_ context.Context, q provider.Queue, _ op.Mem, src []byte) (accel.Work, error) {
	d.count(func(s *provider.Stats) { s.Uploads++; s.UploadBytes += uint64(len(src)) })
	return q.(queue).done(), nil
}

// Download ends at once and leaves dst unchanged.
func (d *Device) Download(_ context.Context, q provider.Queue, dst []byte, _ op.Mem) (accel.Work, error) {
	d.count(func(s *provider.Stats) { s.Downloads++; s.DownloadBytes += uint64(len(dst)) })
	return q.(queue).done(), nil
}

// Stats returns the counters.
func (d *Device) Stats() provider.Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.stats
	for id := range s.Submits {
		s.Submits[id] = d.submits[id].Load()
	}
	return s
}

// Sync returns at once.
func (d *Device) Sync(context.Context) error { return nil }

// Close does nothing.
func (d *Device) Close() error { return nil }
