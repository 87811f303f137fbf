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

// device is an engine's device with its memory and gates. Without a device, p is nil.
type device struct {
	p    provider.Device
	res  *residency.Manager
	gate gates
	lost atomic.Bool

	mu          sync.Mutex
	fellBack    int64
	fellBackOp  op.ID // the last op that fell back
	fellBackErr error // the reason for it
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

// deviceQueue is a Queue's queue on the device, and the scratch of the call in progress.
type deviceQueue struct {
	d      *device
	q      provider.Queue // nil before the first op that runs on the device
	status offheap.Block  // the queue's status words

	plan    provider.Plan // that of the device for the call in progress, if planned
	planned bool

	needs storage.Needs
	fence accel.Fences
	begun [op.MaxIn + op.MaxOut]begun
	n     int
}

// begun is a buffer between BeginDevice and EndDevice.
type begun struct {
	buf    *storage.Buffer
	access storage.Access
	block  *residency.Block
}

func (q *deviceQueue) open(d *device) error {
	q.d = d
	return nil
}

// reset forgets the plan of the call before.
func (q *deviceQueue) reset() { q.planned = false }

// planned returns the plan of the device for the call in progress, whose operands begin has set.
func (c *Queue) planned(id op.ID) *provider.Plan {
	q := &c.dev
	if !q.planned {
		q.plan, q.planned = q.d.p.Plan(id, &c.args), true
	}
	return &q.plan
}

// ready opens the queue on the device if it is not open.
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

// close waits for the queue's work, reads its last status words, and frees the queue.
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

// statusWords is the number of status words of a queue. When all are in use, the next
// operation that needs one waits for the oldest one that has one. A step of a model has a few
// such operations in each layer.
const statusWords = 256

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
			return nil, errors.New("every status word belongs to an operation that failed")
		}
		if err := first.Wait(ctx); err != nil {
			return nil, err
		}
	}
}

// declines reports whether there is a device that can be used and that declines the operation.
func (c *Queue) declines(id op.ID) bool {
	d := &c.e.dev
	return d.p != nil && !d.lost.Load() && d.res.Err() == nil && !c.planned(id).Supported
}

// onDevice reports whether the op runs on the device. If the device supports the op but
// its transfer queues have failed, the error is that failure.
func (c *Queue) onDevice(id op.ID) (bool, error) {
	d := &c.e.dev
	if d.p == nil || d.lost.Load() || !c.planned(id).Supported {
		return false, nil
	}
	if err := d.res.Err(); err != nil {
		return false, err // the result could not be downloaded
	}
	if d.gate.pass(id, &c.args) {
		return true, nil
	}
	for i := range c.args.NIn {
		if c.bufs[i] != nil && !c.args.In[i].Weight && c.bufs[i].NewestOnDevice() {
			return true, nil
		}
	}
	for i := range c.args.NOut {
		if c.outs[i].buf != nil && c.outs[i].buf.NewestOnDevice() {
			return true, nil // the CPU would move the whole buffer to the host
		}
	}
	return false, nil
}

// fallBack reports whether the CPU may run an op whose submission to the device failed
// with err: it may unless the context has ended. The failed submission has not changed the
// operands. If an operand was lost with the device, the CPU run returns that error.
func (c *Queue) fallBack(err error) bool {
	d := &c.e.dev
	if errors.Is(err, accel.ErrDeviceLost) {
		d.lost.Store(true)
	}
	return c.ctx.Err() == nil
}

// count counts an op that the CPU ran instead of the device because of err. It does
// nothing if err is nil.
func (d *device) count(id op.ID, err error) {
	if err == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fellBack++
	d.fellBackOp, d.fellBackErr = id, err
}

// runDevice submits the operation of k to the device. If it fails, nothing was submitted.
func (c *Queue) runDevice(k *call) (err error) {
	q, a := &c.dev, &c.args
	if err := q.ready(); err != nil {
		return err
	}
	t := q.q.Timeline()
	if err := t.Dead(); err != nil {
		return err
	}
	q.needs.Reset()
	q.n = 0
	var ws *residency.Block
	var w accel.Work
	submitted := false
	// A call of the provider, and the function of a lender, may panic.
	defer func() { c.endDevice(ws, w, submitted) }()
	if err := c.beginBuffers(); err != nil {
		return err
	}
	if ws, err = c.beginWorkspace(k); err != nil {
		return err
	}
	if w, err = c.submit(k); err != nil {
		return err
	}
	submitted = true
	if a.Status != nil {
		t.Watch(w, a.Status, explain, watched(k, a))
		q.needs.Data.Add(w)
	}
	return nil
}

// endDevice ends the use of the workspace ws, which may be nil, and of the buffers of the
// operation w.
func (c *Queue) endDevice(ws *residency.Block, w accel.Work, submitted bool) {
	q := &c.dev
	if ws != nil {
		q.fence.Add(w)
		ws.Free(q.fence)
	}
	for i := range q.n {
		q.begun[i].buf.EndDevice(q.begun[i].access, w, submitted, q.needs.Data)
		q.begun[i] = begun{}
	}
	for i := range c.args.NOut {
		if o := &c.outs[i]; submitted && o.access == storage.Overwrite {
			o.buf.EndNew(w, q.needs.Data)
		}
	}
}

// beginWorkspace sets the workspace to memory of the size that the plan asks for, and q.fence to
// the earlier uses of that memory. It returns nil if the plan asks for none. The caller frees the
// block.
func (c *Queue) beginWorkspace(k *call) (*residency.Block, error) {
	q := &c.dev
	c.args.Workspace = op.Mem{}
	size := c.planned(k.id).Workspace
	if size == 0 {
		return nil, nil
	}
	t := q.q.Timeline()
	ws, uses, err := q.d.res.Acquire(c.ctx, t, size)
	if err != nil {
		return nil, err
	}
	q.needs.Follow(t, uses)
	q.fence = append(q.fence[:0], uses...)
	c.args.Workspace = ws.Mem()
	return ws, nil
}

// submit submits the operation of k, behind the work that q.needs lists. The memory of the
// operands and of the workspace is set.
func (c *Queue) submit(k *call) (w accel.Work, err error) {
	q, a := &c.dev, &c.args
	p, t := q.d.p, q.q.Timeline()
	for _, dep := range q.needs.Order {
		if err := p.WaitFor(c.ctx, q.q, dep); err != nil {
			return accel.Work{}, err
		}
		t.Follow(dep)
	}
	a.Status = nil
	if len(indexPlaces[k.id]) > 0 {
		// Indices that the host has checked need a status word too: if their upload fails,
		// the device reads other values.
		if a.Status, err = q.takeStatus(c.ctx); err != nil {
			return accel.Work{}, err
		}
	}
	if w, err = p.Submit(c.ctx, q.q, k.id, a); err != nil && a.Status != nil {
		t.ReturnStatus(a.Status)
	}
	return w, err
}

// beginBuffers makes the buffers of the operands usable by an op on the queue, gives device
// memory to those of new outputs, and sets the operands' memory.
func (c *Queue) beginBuffers() error {
	a := &c.args
	for i := range a.NIn {
		if c.bufs[i] == nil {
			continue
		}
		b := c.dev.read(c.bufs[i]) // inputs are often views of one buffer
		if b == nil {
			var err error
			if b, err = c.dev.beginBuffer(c.ctx, c.bufs[i], storage.Read, a.In[i].Weight); err != nil {
				return err
			}
		}
		a.In[i].Mem = b.Mem()
	}
	for i := range a.NOut {
		o := &c.outs[i]
		var b *residency.Block
		var err error
		if o.access == storage.Overwrite {
			b, err = c.dev.d.res.BeginNew(c.ctx, o.buf, c.dev.q.Timeline(), &c.dev.needs)
		} else {
			b, err = c.dev.beginBuffer(c.ctx, o.buf, o.access, false)
		}
		if err != nil {
			return err
		}
		a.Out[i].Mem = b.Mem()
	}
	return nil
}

// read returns the memory of a buffer that an earlier input of the operation has, or nil.
func (q *deviceQueue) read(buf *storage.Buffer) *residency.Block {
	for i := range q.n {
		if q.begun[i].buf == buf {
			return q.begun[i].block
		}
	}
	return nil
}

// beginBuffer makes the buffer usable by an op on the queue and returns its device
// memory.
func (q *deviceQueue) beginBuffer(ctx context.Context, buf *storage.Buffer, access storage.Access, weight bool) (*residency.Block, error) {
	t := q.q.Timeline()
	adopted := false
	for missing := false; ; missing = true {
		if missing {
			var err error
			if adopted, err = q.d.res.Ensure(ctx, buf, t, weight); err != nil {
				return nil, err
			}
		}
		mem, err := buf.BeginDevice(ctx, t, access, &q.needs)
		if err == storage.ErrNoDeviceMemory && ctx.Err() == nil {
			// The buffer had none yet, or another queue has evicted it meanwhile. A retry is
			// safe then, because that queue made progress.
			continue
		}
		if err != nil {
			return nil, err
		}
		if weight && !missing {
			q.d.res.Used(mem)
		}
		block := mem.(*residency.Block)
		q.begun[q.n] = begun{buf, access, block}
		q.n++
		if adopted {
			buf.Cold()
		}
		return block, nil
	}
}
