//go:build accel

package discrete

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/provider"
)

var (
	_ provider.Device          = (*Device)(nil)
	_ provider.PinnedAllocator = (*Device)(nil)
)

// Device is a simulated device. Its methods are safe for concurrent use, like those of
// every provider.
type Device struct {
	opt     Options
	planner Executor

	gate   atomic.Pointer[gate] // nil while the queues run freely
	lost   chan struct{}        // closed when the device is lost
	ctx    context.Context      // ends waits for works of other devices
	cancel context.CancelFunc
	once   sync.Once
	closed bool // with closeErr, guarded by mu

	// mu guards the fields below. Workers lock it only to record hazards, because the
	// race detector takes a shared lock for an order between them.
	mu       sync.Mutex
	lostErr  error // set before lost is closed
	closeErr error
	blocks   map[uint64]*block
	nextID   uint64
	pinned   []*block
	queues   []*queue
	made     int // number of queues made so far
	faults   []Fault
	events   Events
	stats    provider.Stats
	peak     int64
	hazards  []string
}

// gate holds every queue back until open is closed.
type gate struct{ open chan struct{} }

// New returns a device. It fails if an option is out of range.
func New(opt Options) (*Device, error) {
	if opt.MemoryBytes < 0 || opt.Ring < 0 || opt.MaxDelay < 0 || opt.Chaos > Sleeps {
		return nil, fmt.Errorf("discrete: options with memory %d, ring %d, delay %s, chaos %d: out of range",
			opt.MemoryBytes, opt.Ring, opt.MaxDelay, opt.Chaos)
	}
	opt.MemoryBytes = cmp.Or(opt.MemoryBytes, DefaultMemory)
	opt.Ring = cmp.Or(opt.Ring, DefaultRing)
	opt.MaxDelay = cmp.Or(opt.MaxDelay, DefaultMaxDelay)
	if opt.NewExecutor == nil {
		opt.NewExecutor = reference
	}
	d := &Device{
		opt:     opt,
		planner: opt.NewExecutor(),
		lost:    make(chan struct{}),
		blocks:  make(map[uint64]*block),
		nextID:  firstID,
	}
	for _, f := range opt.Faults {
		if err := d.Inject(f); err != nil {
			return nil, err
		}
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d, nil
}

// Info describes the device.
func (d *Device) Info() provider.Info {
	d.mu.Lock()
	defer d.mu.Unlock()
	return provider.Info{
		Name:       "discrete",
		Device:     "simulated device with separate memory",
		TotalBytes: d.opt.MemoryBytes,
		FreeBytes:  d.opt.MemoryBytes - d.stats.LiveBytes,
		MinCost:    d.opt.MinCost,
	}
}

// Plan declines an operation if Options.Decline or the kernels decline it.
func (d *Device) Plan(id op.ID, a *op.Args) provider.Plan {
	if d.opt.Decline != nil {
		if reason := d.opt.Decline(id, a); reason != "" {
			return provider.Decline(reason)
		}
	}
	return d.planner.Plan(id, a)
}

// Inject arms a fault. Several may be armed; they count their events separately.
func (d *Device) Inject(f Fault) error {
	if err := f.check(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults = append(d.faults, f)
	return nil
}

// Disarm drops the faults that have not occurred. A failure that has occurred but has not
// been reported is still reported.
func (d *Device) Disarm() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults = nil
}

// due counts an event of q for the armed faults of a kind. If it is the event of a fault,
// due disarms and returns that fault. q is nil for an allocation. The caller holds mu.
func (d *Device) due(kind FaultKind, q *queue) *Fault {
	var hit *Fault
	for i := 0; i < len(d.faults); i++ {
		f := &d.faults[i]
		if f.Kind != kind || f.On != nil && f.On != provider.Queue(q) {
			continue
		}
		if f.Nth--; f.Nth == 0 {
			hit = &Fault{Kind: f.Kind, Err: f.Err}
			d.faults = slices.Delete(d.faults, i, i+1)
			i--
		}
	}
	return hit
}

// failure returns the fault's error, which matches sentinel.
func (f *Fault) failure(sentinel error) error {
	if f.Err != nil {
		return fmt.Errorf("injected %s: %w: %w", f.Kind, sentinel, f.Err)
	}
	return fmt.Errorf("injected %s: %w", f.Kind, sentinel)
}

// Events returns the numbers of calls so far at which a fault could have been injected.
func (d *Device) Events() Events {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.events
}

// Hazards returns the misuses recorded so far, one line each.
func (d *Device) Hazards() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.hazards)
}

// hazard records a misuse. The caller holds mu.
func (d *Device) hazard(format string, args ...any) {
	d.hazards = append(d.hazards, fmt.Sprintf(format, args...))
}

// Stats returns the counters.
func (d *Device) Stats() provider.Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stats
}

// PeakBytes returns the peak of the allocated device memory in bytes.
func (d *Device) PeakBytes() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.peak
}

// usable returns the reason why the device refuses calls, or nil. The caller holds mu.
func (d *Device) usable() error {
	if d.closed {
		return provider.ErrClosed
	}
	return d.lostErr
}

// lose makes the device disappear. The caller holds mu.
func (d *Device) lose(err error) {
	if d.lostErr == nil {
		d.lostErr = err
		close(d.lost)
		d.cancel()
	}
}

func (d *Device) isLost() bool {
	select {
	case <-d.lost:
		return true
	default:
		return false
	}
}

// Hold keeps all work that is submitted from now on pending: nothing executes and nothing
// is reported until Release, Close or the loss of the device. A queue that is reporting
// earlier work may finish that report.
func (d *Device) Hold() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gate.Load() == nil && !d.closed {
		d.gate.Store(&gate{make(chan struct{})})
	}
}

// Release ends Hold. Unused steps are dropped.
func (d *Device) Release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.release()
}

func (d *Device) release() {
	g := d.gate.Swap(nil)
	if g == nil {
		return
	}
	for _, q := range d.queues {
		for len(q.steps) > 0 {
			select {
			case <-q.steps:
			default:
			}
		}
	}
	close(g.open)
}

// maxSteps bounds the unused steps of a queue.
const maxSteps = 1024

// Step lets a held queue execute and report n more works, and does not wait for them. It
// does nothing unless the device is held. It panics for a queue of another device, and if
// there are more than 1024 unused steps.
func (d *Device) Step(q provider.Queue, n int) {
	own, err := d.own(q)
	if err != nil {
		panic(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gate.Load() == nil {
		return
	}
	for range n {
		select {
		case own.steps <- 1:
		default:
			panic(fmt.Sprintf("discrete: more than %d unused steps on %s", maxSteps, own.tl.Name()))
		}
	}
}

// NewQueue returns a queue with a worker of its own.
func (d *Device) NewQueue(kind provider.QueueKind) (provider.Queue, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable(); err != nil {
		return nil, fmt.Errorf("discrete: new %s queue: %w", kind, err)
	}
	d.made++
	q := &queue{
		dev:    d,
		kind:   kind,
		tl:     accel.NewTimeline(fmt.Sprintf("%s#%d", kind, d.made), nil),
		exec:   d.opt.NewExecutor(),
		rng:    rand.New(rand.NewPCG(d.opt.Seed, uint64(d.made))),
		ring:   make(chan entry, d.opt.Ring),
		room:   make(chan byte, d.opt.Ring),
		names:  make([]atomic.Uint32, d.opt.Ring+maxBatch+2),
		steps:  make(chan uint8, maxSteps),
		exited: make(chan struct{}),
	}
	d.queues = append(d.queues, q)
	d.stats.LiveQueues++
	go q.run()
	return q, nil
}

// own returns q as a queue of this device.
func (d *Device) own(q provider.Queue) (*queue, error) {
	own, ok := q.(*queue)
	if !ok || own.dev != d {
		return nil, fmt.Errorf("discrete: queue %v of another device", q)
	}
	return own, nil
}

// CloseQueue waits until the queue's work has ended, well or not, and ends its worker.
// While the device is held, CloseQueue waits for Release.
func (d *Device) CloseQueue(q provider.Queue) error {
	own, err := d.own(q)
	if err != nil {
		return err
	}
	d.mu.Lock()
	if own.closed {
		d.mu.Unlock()
		return fmt.Errorf("discrete: close of %s: %w", own.tl.Name(), provider.ErrClosed)
	}
	own.closed = true
	d.mu.Unlock()
	d.end(own)
	return nil
}

// end closes the ring of a queue whose closed is set, and waits for its worker.
func (d *Device) end(q *queue) {
	q.submitting.Lock() // a submitter may be waiting for room in the ring
	close(q.ring)
	q.submitting.Unlock()
	<-q.exited
	q.tl.End()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queues = slices.DeleteFunc(d.queues, func(e *queue) bool { return e == q })
	d.faults = slices.DeleteFunc(d.faults, func(f Fault) bool { return f.On == provider.Queue(q) })
	d.stats.LiveQueues--
}

// Sync waits until everything submitted so far has ended and returns the failure
// of a dead queue, if there is one, or ctx's error.
func (d *Device) Sync(ctx context.Context) error {
	d.mu.Lock()
	queues := slices.Clone(d.queues)
	d.mu.Unlock()
	var first error
	for _, q := range queues {
		err := q.tl.Last().Wait(ctx)
		if err == nil {
			err = q.tl.Dead()
		}
		if first == nil {
			first = err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return first
}

// Close ends Hold, waits for the queues, ends their workers and frees everything. Waits for
// works of other devices fail. Close returns an error for memory that was still allocated
// and for each hazard. A second Close returns the same error.
func (d *Device) Close() error {
	d.once.Do(d.shut)
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closeErr
}

func (d *Device) shut() {
	d.mu.Lock()
	d.closed = true
	d.cancel()
	d.release()
	queues := slices.Clone(d.queues)
	var open []*queue
	for _, q := range queues {
		if !q.closed {
			q.closed = true
			open = append(open, q)
		}
	}
	d.mu.Unlock()
	for _, q := range open {
		d.end(q)
	}
	for _, q := range queues {
		<-q.exited // another goroutine may be closing it
	}

	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	if n := len(d.blocks); n > 0 {
		errs = append(errs, fmt.Errorf("discrete: close: %d allocations with %d bytes were never freed", n, d.stats.LiveBytes))
		for _, b := range d.blocks {
			d.drop(b)
		}
	}
	if n := len(d.pinned); n > 0 {
		errs = append(errs, fmt.Errorf("discrete: close: %d pinned allocations with %d bytes were never freed", n, d.stats.PinnedBytes))
		d.pinned, d.stats.PinnedBytes = nil, 0
	}
	for _, h := range d.hazards {
		errs = append(errs, fmt.Errorf("discrete: hazard: %s", h))
	}
	d.closeErr = errors.Join(errs...)
}
