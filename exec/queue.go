package exec

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/core/storage"
	"github.com/fucina-go/fucina/core/tensor"
)

// Queue runs operations on an engine, in order. Its owner uses it from one goroutine at a
// time, which Queue does not check, and closes it before the engine.
type Queue struct {
	e   *Engine
	cpu provider.Queue
	dev deviceQueue
	ctx context.Context

	generated int           // see SetGenerated
	status    atomic.Uint64 // the status word of an operation on the CPU

	// The arguments of the call in progress. They are fields so that an op does not
	// allocate.
	args op.Args
	bufs [op.MaxIn]*storage.Buffer // nil for an operand that is absent
	outs [op.MaxOut]output
	// unchecked has a bit for each place with indices that were not checked, because only
	// the device has them.
	unchecked uint8

	accepted [op.Count]*acceptedCalls // by operation; nil before its first call
	recalled bool                     // the call in progress is like one of these

	good     [8]goodIndices // the last ones, to which nextGood is the next to be replaced
	nextGood int
}

var _ [8 - op.MaxIn]struct{} // a place is a bit of unchecked

// output is where an output of the call in progress is written. The zero value stands for a
// new output that has no buffer yet.
type output struct {
	buf    *storage.Buffer
	access storage.Access // Overwrite of a new buffer, Update of the buffer of an existing tensor
}

// NewQueue returns a queue, which takes a queue of each provider. After Close of the
// engine it fails with provider.ErrClosed.
func (e *Engine) NewQueue() (*Queue, error) {
	c := &Queue{e: e, ctx: context.Background()}
	var err error
	if c.cpu, err = e.cpu.NewQueue(provider.Compute); err != nil {
		return nil, fmt.Errorf("exec: queue: %w", err)
	}
	if err := c.dev.open(&e.dev); err != nil {
		return nil, errors.Join(fmt.Errorf("exec: queue: %w", err), e.cpu.CloseQueue(c.cpu))
	}
	return c, nil
}

// SetCancel makes every wait in an op of the queue return ctx's error once ctx is done.
// nil means context.Background().
func (c *Queue) SetCancel(ctx context.Context) {
	if ctx == nil {
		ctx = context.Background()
	}
	c.ctx = ctx
}

// SetGenerated says how many of the rows of the following operations, first along the first
// axis of their first input, belong to tokens that were generated; see op.Args. An operation
// with fewer rows has only generated ones. The number is 0 at first.
func (c *Queue) SetGenerated(n int) { c.generated = max(0, n) }

// Sync waits until everything submitted so far has ended, and returns the device's failure.
// If the context of SetCancel ends first, Sync returns its error.
func (c *Queue) Sync() error { return c.dev.sync(c.ctx) }

// Close waits for the queue's work and closes the queue. The owner calls it once.
func (c *Queue) Close() error {
	return errors.Join(c.dev.close(), c.e.cpu.CloseQueue(c.cpu))
}

// forget drops the buffers and the memory of the call, so that the queue does not keep
// them reachable. After a panic it releases the new outputs.
func (c *Queue) forget() {
	c.dropOutputs()
	clear(c.bufs[:])
	clear(c.outs[:])
	a := &c.args
	for i := range a.In {
		a.In[i].Mem = op.Mem{}
	}
	for i := range a.Out {
		a.Out[i].Mem = op.Mem{}
	}
	a.Workspace, a.Status = op.Mem{}, nil
}

// operand sets o to the operand t without memory.
func operand(o *op.Operand, t *tensor.Tensor) {
	o.DType, o.Weight = t.DType(), t.Buffer().Stable()
	o.Shape, o.Strides, o.Offset = t.Shape(), t.Strides(), t.Offset()
	o.Mem = op.Mem{}
}

// run executes the operation of k on c.args, and stores the new outputs in r.
func (c *Queue) run(k *call, r *Results) error {
	if err := c.ctx.Err(); err != nil {
		return &OpError{k.as, err}
	}
	onDevice, why := c.onDevice(k.id)
	if onDevice {
		err := c.newOutputs(true)
		if err == nil {
			err = c.runDevice(k)
		}
		if err == nil {
			return c.take(k, r)
		}
		c.dropOutputs()
		if !c.fallBack(err) {
			return describeEnd(k.as, c.ctx.Err(), err)
		}
		why = err
	}
	err := c.newOutputs(false)
	if err == nil {
		err = c.runHost(k)
	}
	if err != nil {
		c.dropOutputs()
		return describe(k.as, err, why)
	}
	c.e.dev.count(k.id, why)
	return c.take(k, r)
}

// newOutputs gives each new output a buffer, without memory if the device writes it. The
// call owns the buffers until take or dropOutputs.
func (c *Queue) newOutputs(lazy bool) error {
	for i := range c.args.NOut {
		o := &c.args.Out[i]
		if c.outs[i].buf != nil {
			continue
		}
		n, err := o.Shape.Bytes(o.DType)
		if err != nil {
			return err
		}
		var buf *storage.Buffer
		if lazy {
			buf = c.e.pool.AcquireLazy(n)
		} else if buf, err = c.e.pool.Acquire(n); err != nil {
			return err
		}
		c.outs[i] = output{buf, storage.Overwrite}
	}
	return nil
}

// take makes tensors of the new outputs, and stores them in r.
func (c *Queue) take(k *call, r *Results) error {
	for i := range c.args.NOut {
		w := &c.outs[i]
		if w.access != storage.Overwrite {
			continue
		}
		if err := r[i].Open(w.buf, c.args.Out[i].DType, &c.args.Out[i].Shape); err != nil {
			c.dropOutputs()
			r.release()
			return &OpError{k.as, err}
		}
		*w = output{}
	}
	return nil
}

// dropOutputs releases the buffers of the new outputs.
func (c *Queue) dropOutputs() {
	for i := range c.outs {
		if w := &c.outs[i]; w.buf != nil && w.access == storage.Overwrite {
			w.buf.Release()
			*w = output{}
		}
	}
}

// describeEnd wraps ended, the error of the context that ended the op, with the op's name.
// If the device returned another error err, describeEnd adds it.
func describeEnd(id op.ID, ended, err error) error {
	if errors.Is(err, ended) {
		return &OpError{id, err}
	}
	return &OpError{id, fmt.Errorf("%w, after: %w", ended, err)}
}

// describe wraps err with the op's name and, if the device was tried first, with why, the
// error of the device. It leaves why out if both have the same text. They have if an earlier
// part of the op found a wrong index on the device, and the CPU finds it too.
func describe(id op.ID, err, why error) error {
	named := &OpError{id, err}
	if why == nil || errors.Is(err, why) || why.Error() == err.Error() || why.Error() == named.Error() {
		return named
	}
	return &OpError{id, fmt.Errorf("%w (on the cpu, after: %w)", err, why)}
}

// runHost executes the operation of k on the CPU, after the device work that its operands
// come from.
func (c *Queue) runHost(k *call) error {
	a := &c.args
	a.Workspace, a.Status = op.Mem{}, nil
	plan := c.e.cpu.Plan(k.id, a)
	if !plan.Supported {
		return fmt.Errorf("%w: %s", provider.ErrUnsupported, plan.Reason)
	}
	for i := range a.NIn {
		if c.bufs[i] == nil {
			continue
		}
		p, err := c.bufs[i].Host(c.ctx, storage.Read)
		if err != nil {
			return err
		}
		a.In[i].Mem = op.Mem{Host: p, Len: len(p)}
	}
	if err := c.checkRest(k.id); err != nil {
		return err
	}
	writing := 0
	defer func() { c.endHostWrites(writing) }()
	for i := range a.NOut {
		p, err := c.outs[i].beginHost(c.ctx)
		if err != nil {
			return err
		}
		writing++
		a.Out[i].Mem = op.Mem{Host: p, Len: len(p)}
	}
	if plan.Workspace > 0 {
		ws, err := c.e.pool.Acquire(plan.Workspace)
		if err != nil {
			return err
		}
		defer ws.Release()
		p, err := ws.Host(c.ctx, storage.Overwrite)
		if err != nil {
			return err
		}
		a.Workspace = op.Mem{Host: p, Len: len(p)}
	}
	if len(indexPlaces[k.id]) > 0 {
		c.status.Store(0)
		a.Status = &c.status
	}
	w, err := c.e.cpu.Submit(c.ctx, c.cpu, k.id, a)
	if err == nil {
		err = w.Wait(c.ctx)
	}
	if err != nil || a.Status == nil {
		return err
	}
	if status := c.status.Load(); status != 0 {
		return reported(status, watched(k, a))
	}
	return nil
}

// beginHost returns the host memory to write the output to.
func (w *output) beginHost(ctx context.Context) ([]byte, error) {
	if w.access == storage.Overwrite { // the buffer is new, so no other goroutine uses it
		return w.buf.Host(ctx, w.access)
	}
	return w.buf.BeginHostWrite(ctx)
}

// endHostWrites ends the writes of the first n outputs.
func (c *Queue) endHostWrites(n int) {
	for i := range n {
		if w := &c.outs[i]; w.access != storage.Overwrite {
			w.buf.EndHostWrite()
		}
	}
}
