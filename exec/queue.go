package exec

import (
	"context"
	"errors"
	"fmt"

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

	// The arguments of the call in progress. They are fields so that an op does not
	// allocate.
	args op.Args
	bufs [op.MaxIn]*storage.Buffer
	// unchecked says that the ids in In[1] were not compared with the rows of the
	// table in In[0], because only the device has the ids.
	unchecked bool
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

// Sync waits until everything submitted so far has ended, and returns the device's failure.
// If the context of SetCancel ends first, Sync returns its error.
func (c *Queue) Sync() error { return c.dev.sync(c.ctx) }

// Close waits for the queue's work and closes the queue. The owner calls it once.
func (c *Queue) Close() error {
	return errors.Join(c.dev.close(), c.e.cpu.CloseQueue(c.cpu))
}

// forget drops the buffers and the memory of the call, so that the queue does not keep
// them reachable.
func (c *Queue) forget() {
	clear(c.bufs[:])
	a := &c.args
	for i := range a.NIn {
		a.In[i].Mem = op.Mem{}
	}
	a.Out[0].Mem, a.Workspace, a.Status = op.Mem{}, op.Mem{}, nil
}

// operand sets o to the operand t without memory.
func operand(o *op.Operand, t *tensor.Tensor) {
	o.DType, o.Weight = t.DType(), t.Buffer().Stable()
	o.Shape, o.Strides, o.Offset = t.Shape(), t.Strides(), t.Offset()
	o.Mem = op.Mem{}
}

// run executes the operation on c.args, into a new tensor.
func (c *Queue) run(id op.ID) (tensor.Tensor, error) {
	if err := c.ctx.Err(); err != nil {
		return tensor.Tensor{}, &OpError{id, err}
	}
	d, s := c.args.Out[0].DType, c.args.Out[0].Shape
	n, err := s.Bytes(d)
	if err != nil {
		return tensor.Tensor{}, &OpError{id, err}
	}
	onDevice, why := c.onDevice(id)
	if onDevice {
		buf := c.e.pool.AcquireLazy(n)
		if err = c.runDevice(id, buf, storage.Overwrite); err == nil {
			return tensor.FromBuffer(buf, d, s)
		}
		buf.Release()
		if !c.fallBack(err) {
			return tensor.Tensor{}, describeEnd(id, c.ctx.Err(), err)
		}
		why = err
	}
	buf, err := c.e.pool.Acquire(n)
	if err != nil {
		return tensor.Tensor{}, describe(id, err, why)
	}
	if err := c.runHost(id, buf, storage.Overwrite); err != nil {
		buf.Release()
		return tensor.Tensor{}, describe(id, err, why)
	}
	c.e.dev.count(id, why)
	return tensor.FromBuffer(buf, d, s)
}

// runInto executes the operation on c.args, into the existing tensor out.
func (c *Queue) runInto(id op.ID, out *tensor.Tensor) error {
	if err := c.ctx.Err(); err != nil {
		return &OpError{id, err}
	}
	onDevice, why := c.onDevice(id)
	if onDevice {
		err := c.runDevice(id, out.Buffer(), storage.Update)
		if err == nil {
			return nil
		}
		if !c.fallBack(err) {
			return describeEnd(id, c.ctx.Err(), err)
		}
		why = err
	}
	if err := c.runHost(id, out.Buffer(), storage.Update); err != nil {
		return describe(id, err, why)
	}
	c.e.dev.count(id, why)
	return nil
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
// error of the device.
func describe(id op.ID, err, why error) error {
	if why != nil && !errors.Is(err, why) && err.Error() != why.Error() {
		return &OpError{id, fmt.Errorf("%w (on the cpu, after: %w)", err, why)}
	}
	return &OpError{id, err}
}

// runHost executes the operation on the CPU, after the device work that its operands come
// from.
func (c *Queue) runHost(id op.ID, out *storage.Buffer, access storage.Access) error {
	a := &c.args
	a.Workspace, a.Status = op.Mem{}, nil
	plan := c.e.cpu.Plan(id, a)
	if !plan.Supported {
		return fmt.Errorf("%w: %s", provider.ErrUnsupported, plan.Reason)
	}
	for i := range a.NIn {
		p, err := c.bufs[i].Host(c.ctx, storage.Read)
		if err != nil {
			return err
		}
		a.In[i].Mem = op.Mem{Host: p, Len: len(p)}
	}
	if c.unchecked {
		if err := checkRows(&a.In[1], a.In[1].Mem.Host, c.tableRows()); err != nil {
			return err
		}
	}
	var p []byte
	var err error
	if access == storage.Overwrite { // out is new, so no other goroutine uses it
		p, err = out.Host(c.ctx, access)
	} else if p, err = out.BeginHostWrite(c.ctx); err == nil {
		defer out.EndHostWrite()
	}
	if err != nil {
		return err
	}
	a.Out[0].Mem = op.Mem{Host: p, Len: len(p)}
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
	w, err := c.e.cpu.Submit(c.ctx, c.cpu, id, a)
	if err != nil {
		return err
	}
	return w.Wait(c.ctx)
}
