package fucina

import (
	"fmt"

	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/tagged"
)

// begin starts the operation o. It claims the context of the operands ts, adds them to the
// context's call, and returns the context; finish ends the claim. An optional operand that
// denotes no tensor is absent. If an operand cannot be used, begin returns nil and the failed
// result of the operation.
func begin(o tagged.Op, ts ...Tensor) (*Context, Tensor) {
	var c *Context
	for i := len(ts) - 1; i >= 0; i-- {
		if ts[i].c != nil {
			c = ts[i].c
		}
	}
	for _, t := range ts {
		if t.failure() != nil {
			c.endMoved(ts)
			return nil, Tensor{c, t.h, 0}
		}
	}
	if c == nil {
		return nil, c.fail(fmt.Errorf("%s: %w", o, errNoContext))
	}
	if err := c.enter(); err != nil {
		return nil, c.fail(fmt.Errorf("%s: %w", o, err))
	}
	var err error
	if c.cancel != nil {
		err = c.cancel.Err()
	}
	c.call.Reset(o)
	for i := 0; err == nil && i < len(ts); i++ {
		if ts[i].h == nil && o.Optional(i) {
			c.call.Skip()
			continue
		}
		if err = c.operand(ts[i]); err != nil && len(ts) > 1 {
			err = fmt.Errorf("the %s: %w", c.call.Role(i), err)
		}
	}
	if err != nil {
		c.leave()
		c.endMoved(ts)
		return nil, c.fail(fmt.Errorf("%s: %w", o, err))
	}
	return c, Tensor{}
}

// operand adds t to the call in progress. If c owns t, it lends t to the call: nothing else can
// end t before leave. Otherwise another goroutine may end t meanwhile, so the call takes a
// reference of t's memory until leave.
func (c *Context) operand(t Tensor) error {
	if t.h != nil {
		if s := t.h.ownedIn(c); s != nil {
			return c.ownOperand(t, s)
		}
	}
	o := c.call.Next()
	if err := t.useAs(o); err != nil {
		return err
	}
	err := c.foreign(t)
	if err == nil {
		err = c.fits(t, o, nil)
	}
	if err != nil {
		o.Raw.Release()
		return err
	}
	c.call.Take()
	return nil
}

// ownOperand is operand for a tensor whose header the frame s of c owns.
func (c *Context) ownOperand(t Tensor, s *frame) error {
	h := t.h
	if h.epoch != t.mark() {
		return errEnded(t)
	}
	if err := c.fits(t, &h.t, s); err != nil {
		return err
	}
	if t.epoch&moved != 0 {
		c.moving[c.call.NIn] = t
	}
	c.call.Lend(&h.t)
	return nil
}

// fits returns an error if t, whose tensor is o, cannot be an operand of c's call. s is the frame
// of c that owns t, or nil if c does not own t.
func (c *Context) fits(t Tensor, o *tagged.Tensor, s *frame) error {
	switch {
	case t.c != nil && t.c != c:
		return &opError{fmt.Sprintf("%s %s is driven by %s, the operation by %s; choose one with On", o.Raw.DType(), o.Describe(), t.c, c), ErrContext}
	case t.epoch&moved != 0 && s != c.innermost():
		return &opError{o.Raw.DType().String() + " " + o.Describe() + " is moved, and the innermost frame does not own it", ErrNotOwned}
	}
	return nil
}

// foreign returns an error if t does not belong to c's engine.
func (c *Context) foreign(t Tensor) error {
	if t.h.e == c.e {
		return nil
	}
	return &opError{fmt.Sprintf("%s belongs to %s, the context to %s", t, t.h.e, c.e), ErrEngine}
}

// endMoved ends the moved operands of an operation for which begin failed.
func (c *Context) endMoved(ts []Tensor) {
	for _, t := range ts {
		if t.epoch&moved == 0 || c.enter() != nil {
			continue
		}
		if t.live() && t.h.ownedBy(t.mark()) == c.innermost() {
			c.release(t)
		}
		c.exit()
	}
}

// leave ends the operands of the call that are moved, gives back the references that the call
// took, and makes the context idle.
func (c *Context) leave() {
	for i := range c.call.NIn {
		if t := &c.moving[i]; t.h != nil {
			c.release(*t)
			*t = Tensor{}
		}
	}
	c.call.Drop()
	c.exit()
}

// finish runs the call that begin began, and returns its result, which belongs to the
// innermost frame. The result of an operation that writes to its receiver is the receiver.
func (c *Context) finish(receiver ...Tensor) Tensor {
	y, _ := c.finishBoth(receiver...)
	return y
}

// finishBoth is finish for a call with two results. If it fails, both carry the failure.
func (c *Context) finishBoth(receiver ...Tensor) (first, second Tensor) {
	d := c.debug.Load()
	y, seen, err := c.run(d, receiver)
	if err == nil && d != nil {
		err = c.report(d, y, &seen)
	}
	if err != nil {
		failed := c.fail(err)
		return failed, failed
	}
	return y[0], y[1]
}

// refuse ends the call that begin began without running it, and returns the failed result for
// the reason err.
func (c *Context) refuse(err error) Tensor {
	err = c.call.Explain(err)
	c.leave()
	return c.fail(err)
}

// run runs the call, and wraps its results if there is no receiver. A call with one result has
// the zero Tensor as the second. seen is what d needs of the call.
func (c *Context) run(d *DebugOptions, receiver []Tensor) (t [2]Tensor, seen observation, err error) {
	defer c.leave()
	if err := c.call.Run(c.x); err != nil {
		return t, observation{}, err
	}
	y := c.call.Out()
	if d != nil {
		seen = d.observe(&c.call, y)
	}
	if len(receiver) > 0 {
		y.Release()
		t[0] = receiver[0]
		return t, seen, nil
	}
	t[0] = c.wrapIn(c.innermost(), y)
	if second := c.call.Second(); !second.Raw.IsZero() {
		t[1] = c.wrapIn(c.innermost(), second)
	}
	return t, seen, nil
}

// apply runs an operation whose only attributes are parameters and an axis. axis is "" if
// the operation has no axis.
func apply(o tagged.Op, p op.Params, axis string, ts ...Tensor) Tensor {
	c, failed := begin(o, ts...)
	if c == nil {
		return failed
	}
	c.call.Params, c.call.Axis = p, axis
	return c.finish()
}
