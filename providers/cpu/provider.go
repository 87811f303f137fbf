package cpu

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/internal/isa"
	"github.com/fucina-go/fucina/internal/team"
	kernels "github.com/fucina-go/fucina/kernels/cpu"
)

// Name is the provider's name.
const Name = "cpu"

// Options configure a Provider.
type Options struct {
	// Threads is the number of lanes that kernels run on, including the submitting
	// goroutine. 0 means one per processor.
	Threads int
	// Level names the instruction set of the kernels, as the variable FUCINA_CPU does, which
	// has no effect then. "" means that of FUCINA_CPU, or the best one.
	Level string
}

// Provider is the CPU provider. Kernels run in Submit, on the submitting goroutine and
// the provider's worker team. Create a Provider with [New] and close it with Close.
type Provider struct {
	team  *team.Team
	info  provider.Info
	lanes int
	level isa.Level

	mu     sync.Mutex
	closed bool
	queues map[*queue]struct{}
	made   int // number of queues made so far; numbers their names

	stats struct {
		submits    [op.Count]atomic.Uint64
		liveQueues atomic.Int64
	}
}

var _ provider.Provider = (*Provider)(nil)

// maxThreads is more than the processors of any machine, and bounds the scratch memory,
// which grows with the number of threads.
const maxThreads = 1 << 12

// levelOf returns the level with the given name, or that of isa.Current if the name is "".
func levelOf(name string) (isa.Level, error) {
	if name == "" {
		return isa.Current()
	}
	return isa.Choose(name)
}

// New returns the CPU provider. It fails if opt.Threads is negative or above 4096, or if
// opt.Level, or without it the variable FUCINA_CPU, names no instruction set that is supported here.
func New(opt Options) (*Provider, error) {
	if opt.Threads < 0 || opt.Threads > maxThreads {
		return nil, fmt.Errorf("cpu: %d threads, want 1 to %d, or 0 for one per processor", opt.Threads, maxThreads)
	}
	level, err := levelOf(opt.Level)
	if err != nil {
		return nil, fmt.Errorf("cpu: %w", err)
	}
	n := opt.Threads
	if n == 0 {
		n = runtime.NumCPU()
	}
	return &Provider{
		team:  team.New(n),
		lanes: n,
		level: level,
		info: provider.Info{
			Name:       Name,
			Device:     fmt.Sprintf("%s %s, %d threads", runtime.GOARCH, level, n),
			HostMemory: true,
			Unified:    true,
			TotalBytes: hostMemory(cgroupLimits),
		},
		queues: make(map[*queue]struct{}),
	}, nil
}

// Info describes the processor. TotalBytes is the memory of the machine or of the container.
func (p *Provider) Info() provider.Info { return p.info }

// Plan returns the plan of the kernels.
func (p *Provider) Plan(id op.ID, a *op.Args) provider.Plan {
	return kernels.Plan(id, a, p.lanes)
}

// queue runs its operations in Submit.
type queue struct {
	p        *Provider
	timeline *accel.Timeline

	// mu is held while an operation runs. Only Submit, WaitFor, CloseQueue and Close
	// lock it.
	mu     sync.Mutex
	exec   *kernels.Executor
	after  accel.Fences // works of other queues that the next Submit waits for
	closed bool
}

// Timeline returns the queue's timeline. No point is ever issued on it.
func (q *queue) Timeline() *accel.Timeline { return q.timeline }

// NewQueue returns a queue with kernel state of its own, so that queues run concurrently.
// The kind makes no difference.
func (p *Provider) NewQueue(kind provider.QueueKind) (provider.Queue, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, fmt.Errorf("cpu: new queue: %w", provider.ErrClosed)
	}
	p.made++
	q := &queue{
		p:        p,
		timeline: accel.NewTimeline(fmt.Sprintf("%s/%v-%d", Name, kind, p.made), nil),
		exec:     kernels.NewExecutorAt(p.team, p.level),
	}
	p.queues[q] = struct{}{}
	p.stats.liveQueues.Add(1)
	return q, nil
}

// CloseQueue waits for a running operation and closes the queue.
func (p *Provider) CloseQueue(pq provider.Queue) error {
	q, err := p.queue(pq)
	if err != nil {
		return err
	}
	if !q.close() {
		return fmt.Errorf("cpu: queue %s: %w", q.timeline.Name(), provider.ErrClosed)
	}
	p.mu.Lock()
	delete(p.queues, q)
	p.mu.Unlock()
	return nil
}

// close closes the queue, and reports whether it was open.
func (q *queue) close() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.closed = true
	q.timeline.End()
	q.p.stats.liveQueues.Add(-1)
	return true
}

// queue returns pq if it is a queue of p.
func (p *Provider) queue(pq provider.Queue) (*queue, error) {
	q, ok := pq.(*queue)
	if !ok || q == nil || q.p != p {
		return nil, fmt.Errorf("cpu: queue of another provider")
	}
	return q, nil
}

// enter waits for the works in after and returns the queue, with its lock held.
func (p *Provider) enter(ctx context.Context, pq provider.Queue) (*queue, error) {
	q, err := p.queue(pq)
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return nil, fmt.Errorf("cpu: queue %s: %w", q.timeline.Name(), provider.ErrClosed)
	}
	if len(q.after) > 0 {
		// The wait only orders: a failure of that work does not fail this queue.
		if err := q.after.Wait(ctx); err != nil && !q.after.Done() {
			q.mu.Unlock()
			return nil, fmt.Errorf("cpu: queue %s: waiting for other work: %w", q.timeline.Name(), err)
		}
		clear(q.after)
		q.after = q.after[:0]
	}
	return q, nil
}

// Submit runs the operation and returns the zero Work. [kernels.Executor.Execute] describes
// the errors and the effect of ctx.
func (p *Provider) Submit(ctx context.Context, pq provider.Queue, id op.ID, a *op.Args) (accel.Work, error) {
	q, err := p.enter(ctx, pq)
	if err != nil {
		return accel.Work{}, err
	}
	defer q.mu.Unlock()
	if err := q.exec.Execute(ctx, id, a); err != nil {
		return accel.Work{}, err
	}
	p.stats.submits[id].Add(1)
	return accel.Work{}, nil
}

// WaitFor makes the next Submit on pq wait until w has ended, well or not.
func (p *Provider) WaitFor(ctx context.Context, pq provider.Queue, w accel.Work) error {
	q, err := p.queue(pq)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return fmt.Errorf("cpu: queue %s: %w", q.timeline.Name(), provider.ErrClosed)
	}
	q.after.Add(w)
	return nil
}

// Stats returns the counters.
func (p *Provider) Stats() provider.Stats {
	s := provider.Stats{LiveQueues: p.stats.liveQueues.Load()}
	for id := range s.Submits {
		s.Submits[id] = p.stats.submits[id].Load()
	}
	return s
}

// Sync returns at once, because no work is ever pending.
func (p *Provider) Sync(ctx context.Context) error { return ctx.Err() }

// Close waits for running operations and closes the queues and the worker team. A second
// Close does nothing.
func (p *Provider) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	queues := p.queues
	p.queues = nil
	p.mu.Unlock()
	for q := range queues {
		q.close()
	}
	p.team.Close()
	return nil
}
