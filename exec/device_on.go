//go:build cuda || metal || accel

package exec

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/core/storage"
	"github.com/fucina-go/fucina/internal/offheap"
	"github.com/fucina-go/fucina/residency"
)

// device is an engine's device. Without one, p is nil.
type device struct {
	p    provider.Device
	res  *residency.Manager
	gate gates
	lost atomic.Bool

	mu          sync.Mutex
	fellBack    int64
	fellBackOp  op.ID // of the last one, and why
	fellBackErr error
}

func (d *device) open(opt Options) error {
	if opt.Device == nil {
		return nil
	}
	gate, err := newGates(opt.Device.Info().MinCost)
	if err != nil {
		return err
	}
	res := residency.New(opt.Device, residency.Options{
		Budget: opt.DeviceBudget, Slots: opt.StagingSlots, SlotBytes: opt.StagingBytes,
	})
	if opt.Eager {
		if err := res.Prepare(context.Background()); err != nil {
			return errors.Join(err, res.Close(context.Background()))
		}
	}
	d.p, d.res, d.gate = opt.Device, res, gate
	return nil
}

func (d *device) provider() provider.Device { return d.p }

// Residency returns the counters of the device's memory.
func (e *Engine) Residency() residency.Stats {
	if e.dev.res == nil {
		return residency.Stats{}
	}
	return e.dev.res.Stats()
}

func (d *device) fallbacks() (int64, string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fellBack == 0 {
		return 0, ""
	}
	return d.fellBack, fmt.Sprintf("%s: %v", d.fellBackOp, d.fellBackErr)
}

func (d *device) close(ctx context.Context) error {
	if d.p == nil {
		return nil
	}
	return errors.Join(d.res.Close(ctx), d.p.Close())
}

// deviceQueue is a queue's part on the device, which comes with the first op that runs
// there, and the scratch of the call in progress.
type deviceQueue struct {
	d      *device
	q      provider.Queue // nil until then
	status offheap.Block  // the queue's status words
	needs  storage.Needs
	fence  accel.Fences
	begun  [op.MaxIn + 1]begun
	n      int
}

// begun is a buffer between BeginDevice and EndDevice.
type begun struct {
	buf    *storage.Buffer
	access storage.Access
}

func (q *deviceQueue) open(d *device) error {
	q.d = d
	return nil
}

// ready makes the queue.
func (q *deviceQueue) ready() (err error) {
	if q.q == nil {
		q.q, err = q.d.p.NewQueue(provider.Compute)
	}
	return err
}

// sync waits until the queue's work has ended, and returns its failure.
func (q *deviceQueue) sync(ctx context.Context) error {
	if q.q == nil {
		return nil
	}
	return q.q.Timeline().Last().Wait(ctx)
}

// close ends the queue, after its work has ended.
func (q *deviceQueue) close() error {
	if q.q == nil {
		return nil
	}
	err := q.d.p.CloseQueue(q.q)
	q.q.Timeline().Settle()
	if q.status.Cap() > 0 {
		offheap.Free(&q.status)
	}
	return err
}

// statusWords is the number of status words of a queue. Once as many operations that
// report through one are under way, the next waits for the first.
const statusWords = 64

// takeStatus returns a status word for an operation.
func (q *deviceQueue) takeStatus(ctx context.Context) (*atomic.Uint64, error) {
	t := q.q.Timeline()
	if q.status.Cap() == 0 {
		block, err := offheap.Alloc(8 * statusWords)
		if err != nil {
			return nil, fmt.Errorf("status words: %w", err)
		}
		clear(block.Bytes())
		words, err := storage.Elements[atomic.Uint64](block.Bytes())
		if err != nil {
			offheap.Free(&block)
			return nil, err
		}
		q.status = block
		t.AddStatus(words)
	}
	for {
		if w := t.TakeStatus(); w != nil {
			return w, nil
		}
		first := t.WatchedFirst()
		if first.IsZero() {
			return nil, errors.New("every status word is behind work that failed")
		}
		if err := first.Wait(ctx); err != nil {
			return nil, err
		}
	}
}

// onDevice decides where the op runs. The error says why a device that would take it
// cannot.
func (c *Queue) onDevice(id op.ID) (bool, error) {
	d := &c.e.dev
	if d.p == nil || d.lost.Load() || !d.p.Plan(id, &c.args).Supported {
		return false, nil
	}
	if err := d.res.Err(); err != nil {
		return false, err // the device could compute the result, but nobody could read it
	}
	for i := range c.args.NIn {
		if !c.args.In[i].Weight && c.bufs[i].NewestOnDevice() {
			return true, nil
		}
	}
	return d.gate.pass(id, &c.args), nil
}

// fallBack says whether the CPU may run an op that the device did not take because of
// err, which it may unless the context was cancelled. Nothing of the op was submitted, so
// the operands are as they were; where one of them was lost with the device, the CPU run
// will say so.
func (c *Queue) fallBack(err error) bool {
	d := &c.e.dev
	if errors.Is(err, accel.ErrDeviceLost) {
		d.lost.Store(true)
	}
	return c.std.Err() == nil
}

// count counts an op that the CPU ran instead of the device because of err, if there is
// one.
func (d *device) count(id op.ID, err error) {
	if err == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fellBack++
	d.fellBackOp, d.fellBackErr = id, err
}

// runDevice submits op. With an error, nothing was submitted.
func (c *Queue) runDevice(id op.ID, out *storage.Buffer, access storage.Access) (err error) {
	q, a := &c.dev, &c.args
	if err := q.ready(); err != nil {
		return err
	}
	p, t := q.d.p, q.q.Timeline()
	if err := t.Dead(); err != nil {
		return err
	}
	q.needs.Reset()
	q.n = 0
	var w accel.Work
	submitted := false
	defer func() {
		for i := range q.n {
			q.begun[i].buf.EndDevice(q.begun[i].access, w, submitted, q.needs.Data)
			q.begun[i].buf = nil
		}
	}()
	for i := range a.NIn {
		if a.In[i].Mem, err = q.beginBuffer(c.std, c.bufs[i], storage.Read, a.In[i].Weight); err != nil {
			return err
		}
	}
	if a.Out[0].Mem, err = q.beginBuffer(c.std, out, access, false); err != nil {
		return err
	}
	a.Workspace = op.Mem{}
	plan := p.Plan(id, a)
	if plan.Workspace > 0 {
		ws, uses, err := q.d.res.Acquire(c.std, t, plan.Workspace)
		if err != nil {
			return err
		}
		for _, use := range uses {
			if !t.Follows(use) {
				q.needs.Order.Add(use)
			}
		}
		a.Workspace = ws.Mem()
		defer func() {
			q.fence = append(q.fence[:0], uses...)
			q.fence.Add(w)
			ws.Free(q.fence)
		}()
	}
	for _, dep := range q.needs.Order {
		if err := p.WaitFor(c.std, q.q, dep); err != nil {
			return err
		}
		t.Follow(dep)
	}
	a.Status = nil
	if id == op.GetRows {
		// Also for ids that the host has checked: they come by an upload, and if it
		// fails, the device has something else in their place.
		if a.Status, err = q.takeStatus(c.std); err != nil {
			return err
		}
	}
	if w, err = p.Submit(c.std, q.q, id, a); err != nil {
		if a.Status != nil {
			t.ReturnStatus(a.Status)
		}
		return err
	}
	submitted = true
	if a.Status != nil {
		t.Watch(w, a.Status, explainRow, int64(c.tableRows()))
		q.needs.Data.Add(w)
	}
	return nil
}

// beginBuffer makes the buffer usable by an op on the queue and returns its device
// memory.
func (q *deviceQueue) beginBuffer(ctx context.Context, buf *storage.Buffer, access storage.Access, weight bool) (op.Mem, error) {
	t := q.q.Timeline()
	for {
		adopted, err := q.d.res.Ensure(ctx, buf, t, weight)
		if err != nil {
			return op.Mem{}, err
		}
		mem, err := buf.BeginDevice(ctx, t, access, &q.needs)
		if errors.Is(err, storage.ErrNoDeviceMemory) && ctx.Err() == nil {
			// Another context evicted the buffer in between, so that context makes progress.
			continue
		}
		if err != nil {
			return op.Mem{}, err
		}
		q.begun[q.n] = begun{buf, access}
		q.n++
		if adopted {
			buf.Cold()
		}
		return mem.(*residency.Block).Mem(), nil
	}
}

// explainRow is the error of a gather of rows that reported status. It is found by whoever
// reads what came of the rows, and has the name that a gather has for them.
func explainRow(status uint64, rows int64) error {
	at, id := op.Reported(status)
	return fmt.Errorf("gather: %w", rowError(at, id, int(rows)))
}
