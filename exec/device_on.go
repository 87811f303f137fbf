//go:build cuda || metal || accel

package exec

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/core/storage"
	"github.com/fucina-go/fucina/residency"
)

// device is an engine's device. Without one, p is nil.
type device struct {
	p    provider.Provider
	res  *residency.Manager
	gate gates
	lost atomic.Bool

	mu          sync.Mutex
	fellBack    int64
	fellBackOp  provider.Op // of the last one, and why
	fellBackErr error
}

func (d *device) open(opt Options) error {
	if opt.Device == nil {
		return nil
	}
	gate, err := newGates(opt.Device.Info().MinWork)
	if err != nil {
		return err
	}
	res, err := residency.New(opt.Device, residency.Options{
		Budget: opt.DeviceBudget, Slots: opt.StagingSlots, SlotBytes: opt.StagingBytes,
	})
	if err != nil {
		return err
	}
	d.p, d.res, d.gate = opt.Device, res, gate
	return nil
}

func (d *device) provider() provider.Provider { return d.p }

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

// deviceQueue is a context's compute queue on the device and the scratch of the
// call in progress.
type deviceQueue struct {
	d     *device
	q     provider.Queue // nil without a usable device
	deps  accel.Fences
	fence accel.Fences
	begun [provider.MaxIn + 1]begun
	n     int
}

// begun is a buffer between BeginDevice and EndDevice.
type begun struct {
	buf    *storage.Buffer
	access storage.Access
}

func (q *deviceQueue) open(d *device) error {
	q.d = d
	if d.p == nil || d.lost.Load() {
		return nil
	}
	var err error
	q.q, err = d.p.NewQueue(provider.Compute)
	if errors.Is(err, accel.ErrDeviceLost) {
		d.lost.Store(true) // what the host has can still be worked with
		return nil
	}
	return err
}

func (q *deviceQueue) close() error {
	if q.q == nil {
		return nil
	}
	return q.d.p.CloseQueue(q.q)
}

// onDevice decides where the op runs.
func (c *Context) onDevice(op provider.Op) bool {
	d := &c.e.dev
	if c.dev.q == nil || d.lost.Load() || !d.p.Plan(op, &c.args).Supported {
		return false
	}
	if err := d.res.Err(); err != nil {
		// A result could be had, but not be read.
		d.count(op, err)
		return false
	}
	for i := range c.args.NIn {
		if !c.args.In[i].Weight && c.bufs[i].NewestOnDevice() {
			return true
		}
	}
	return d.gate.pass(op, &c.args)
}

// fallBack says whether the CPU may run an op that the device did not take, which
// it may unless the context was cancelled, and counts it. Nothing of the op was
// submitted, so the operands are as they were; where one of them was lost with the
// device, the CPU run will say so.
func (c *Context) fallBack(op provider.Op, err error) bool {
	d := &c.e.dev
	if errors.Is(err, accel.ErrDeviceLost) {
		d.lost.Store(true)
	}
	if c.std.Err() != nil {
		return false
	}
	d.count(op, err)
	return true
}

// count counts an op that the CPU runs in the device's place.
func (d *device) count(op provider.Op, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fellBack++
	d.fellBackOp, d.fellBackErr = op, err
}

// runDevice submits op. With an error, nothing was submitted.
func (c *Context) runDevice(op provider.Op, out *storage.Buffer, access storage.Access) (err error) {
	q, a := &c.dev, &c.args
	p, t := q.d.p, q.q.Timeline()
	if err := t.Dead(); err != nil {
		return err
	}
	q.deps, q.n = q.deps[:0], 0
	var w accel.Work
	submitted := false
	defer func() {
		for i := range q.n {
			q.begun[i].buf.EndDevice(q.begun[i].access, w, submitted)
			q.begun[i].buf = nil
		}
	}()
	for i := range a.NIn {
		if a.In[i].Mem, err = q.beginBuffer(c.std, c.bufs[i], storage.Read, a.In[i].Weight); err != nil {
			return err
		}
	}
	if a.Out.Mem, err = q.beginBuffer(c.std, out, access, false); err != nil {
		return err
	}
	a.Workspace = provider.Mem{}
	plan := p.Plan(op, a)
	if plan.Workspace > 0 {
		ws, uses, err := q.d.res.Acquire(c.std, t, plan.Workspace)
		if err != nil {
			return err
		}
		for _, use := range uses {
			if !t.Follows(use) {
				q.deps.Add(use)
			}
		}
		a.Workspace = ws.Mem()
		defer func() {
			q.fence = append(q.fence[:0], uses...)
			q.fence.Add(w)
			ws.Free(q.fence)
		}()
	}
	for _, dep := range q.deps {
		if err := p.WaitFor(c.std, q.q, dep); err != nil {
			return err
		}
		t.Follow(dep)
	}
	if w, err = p.Submit(c.std, q.q, op, a); err != nil {
		return err
	}
	submitted = true
	return nil
}

// beginBuffer makes the buffer usable by an op on the queue and returns its device
// memory.
func (q *deviceQueue) beginBuffer(ctx context.Context, buf *storage.Buffer, access storage.Access, weight bool) (provider.Mem, error) {
	t := q.q.Timeline()
	for {
		adopted, err := q.d.res.Ensure(ctx, buf, t, weight)
		if err != nil {
			return provider.Mem{}, err
		}
		mem, err := buf.BeginDevice(ctx, t, access, &q.deps)
		if errors.Is(err, storage.ErrNoDeviceMemory) {
			// Another context took the memory in between, and gets on with it.
			continue
		}
		if err != nil {
			return provider.Mem{}, err
		}
		q.begun[q.n] = begun{buf, access}
		q.n++
		if adopted {
			buf.Cold()
		}
		return mem.(*residency.Block).Mem(), nil
	}
}
