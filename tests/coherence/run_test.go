package coherence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/core/storage"
	"github.com/fucina-go/fucina/core/tensor"
	"github.com/fucina-go/fucina/exec"
	"github.com/fucina-go/fucina/providers/cpu"
	"github.com/x448/float16"
)

// rig is an engine under test and functions that control its device. The functions are nil
// if there is no device.
type rig struct {
	engine *exec.Engine
	// waits says that any operation, and any transfer that it submits, may wait for the
	// device, because it runs on the CPU or needs room.
	waits bool

	settle  func() error // waits for the device
	hold    func()
	release func()
	evict   func(*storage.Buffer) bool
	idle    func() error // checks the counters after every tensor is released
	ended   func() error // checks the counters after the engine is closed
}

// configuration is a way to build a rig.
type configuration struct {
	name string
	open func(seed uint64) (*rig, error)
}

func openCPU(uint64) (*rig, error) {
	c, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		return nil, err
	}
	e, err := exec.Open(exec.Options{CPU: c})
	if err != nil {
		return nil, err
	}
	return &rig{engine: e}, nil
}

// runner runs a schedule on a rig.
type runner struct {
	rig
	ctx     [2]*exec.Queue
	tensors []tensor.Tensor
	lent    map[*storage.Buffer]*loan
	loans   []*loan
	reads   []chan error
	at      int // the step in progress

	held    bool
	heldOps int           // operations since the device was held
	resumed chan struct{} // closed when a resume in the background has ended, or nil
}

// loan is memory that the schedule lent to a buffer.
type loan struct {
	bytes []byte
	ends  int
}

// afterLoan fills lent memory after its OnRelease.
const afterLoan = 0x6b

// maxHeldOps bounds the operations on a held device, so that its queues of default length do
// not fill up. An operation has at most three submissions, each after three waits.
const maxHeldOps = 5

var background = context.Background()

func cancelled() context.Context {
	ctx, cancel := context.WithCancel(background)
	cancel()
	return ctx
}

// run runs the schedule on the configuration and returns the first difference and its step.
func run(s *schedule, c *configuration) (at int, err error) {
	r := &runner{
		tensors: make([]tensor.Tensor, s.tensors),
		reads:   make([]chan error, s.readers),
		lent:    make(map[*storage.Buffer]*loan),
	}
	defer func() {
		if p := recover(); p != nil {
			at, err = r.at, fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	opened, err := c.open(s.seed)
	if err != nil {
		return -1, err
	}
	r.rig = *opened
	for i := range r.ctx {
		if r.ctx[i], err = r.engine.NewQueue(); err != nil {
			return -1, err
		}
	}
	for i := range s.steps {
		r.at = i
		if err := r.step(&s.steps[i]); err != nil {
			return i, err
		}
	}
	return len(s.steps), r.end()
}

// end closes the engine and checks the counters.
func (r *runner) end() error {
	r.resume()
	if err := r.joinAll(); err != nil {
		return err
	}
	if st := r.engine.Stats(); st.Pool.Outstanding != 0 {
		return fmt.Errorf("after the last release: %+v", st)
	}
	if r.idle != nil {
		if err := r.idle(); err != nil {
			return fmt.Errorf("after the last release: %w", err)
		}
	}
	if err := errors.Join(r.ctx[0].Close(), r.ctx[1].Close(), r.engine.Close()); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	if r.ended != nil {
		if err := r.ended(); err != nil {
			return fmt.Errorf("after close: %w", err)
		}
	}
	for _, l := range r.loans {
		if l.ends != 1 {
			return fmt.Errorf("a loan of %d bytes ended %d times", len(l.bytes), l.ends)
		}
		if i := bytes.IndexFunc(l.bytes, func(c rune) bool { return c != afterLoan }); i >= 0 {
			return fmt.Errorf("byte %d of a loan of %d bytes was written after its end", i, len(l.bytes))
		}
	}
	return nil
}

// makeRoom resumes a held device before a step that may wait for it. Another goroutine
// resumes it, so that the wait usually begins first.
func (r *runner) makeRoom(s *step) {
	if !r.held {
		return
	}
	wait := false
	switch s.kind {
	case read, write, derive, join, fork:
		wait = true
	case release:
		// The end of a loan waits for an abandoned read.
		wait = r.tensors[s.in[0]].Buffer().Borrowed()
	case abandonRead, spawn, evict:
		wait = r.waits // to submit a transfer, or behind another read that submits one
	case compute, copyTo:
		r.heldOps++
		wait = r.waits || r.heldOps > maxHeldOps
		for _, i := range s.in {
			// An upload waits for earlier uses of its device memory.
			wait = wait || !r.tensors[i].Buffer().NewestOnDevice()
		}
	}
	if wait {
		r.held = false
		done := make(chan struct{})
		r.resumed = done
		go func() {
			defer close(done)
			r.rig.release()
		}()
	}
}

func (r *runner) resume() {
	if r.held {
		r.held = false
		r.rig.release()
	}
	if r.resumed != nil {
		<-r.resumed
		r.resumed = nil
	}
}

func (r *runner) step(s *step) error {
	r.makeRoom(s)
	var t *tensor.Tensor
	if len(s.in) > 0 {
		t = &r.tensors[s.in[0]]
	}
	switch s.kind {
	case makeTensor:
		return r.make(s)
	case compute:
		return r.compute(s)
	case copyTo:
		return r.copyTo(s)
	case makeView:
		return r.view(s)
	case read:
		return r.check(background, t, s)
	case abandonRead:
		if err := r.check(cancelled(), t, s); err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	case write:
		return r.write(t, s)
	case release:
		t.Release()
	case evict:
		if r.rig.evict != nil {
			r.rig.evict(t.Buffer())
		}
	case hold:
		if r.rig.hold == nil {
			return nil
		}
		r.resume()
		if r.waits {
			// A read that waits to submit would keep its buffer locked.
			if err := r.joinAll(); err != nil {
				return err
			}
		}
		if err := r.settle(); err != nil {
			return err
		}
		r.rig.hold()
		r.held, r.heldOps = true, 0
	case resume:
		r.resume()
	case spawn:
		own := t.Retained()
		done := make(chan error, 1)
		r.reads[s.out] = done
		go func() {
			err := r.check(background, &own, s)
			own.Release()
			done <- err
		}()
	case join:
		return r.join(s.out)
	case derive:
		return r.derive(t)
	case fork:
		other := make(chan error, 1)
		go func() { other <- r.branch(s.branches[1]) }()
		return errors.Join(r.branch(s.branches[0]), <-other)
	}
	return nil
}

// branch runs one side of a fork.
func (r *runner) branch(steps []step) (err error) {
	var s *step
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: panic: %v\n%s", s, p, debug.Stack())
		}
	}()
	for i := range steps {
		s = &steps[i]
		if err := r.step(s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

func (r *runner) join(i int) error {
	done := r.reads[i]
	if done == nil {
		return nil
	}
	r.reads[i] = nil
	if err := <-done; err != nil {
		return fmt.Errorf("background read %d: %w", i, err)
	}
	return nil
}

func (r *runner) joinAll() error {
	for i := range r.reads {
		if err := r.join(i); err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) make(s *step) error {
	t, err := r.newTensor(s)
	r.tensors[s.out] = t
	return err
}

func (r *runner) newTensor(s *step) (tensor.Tensor, error) {
	switch s.home {
	case pooled:
		switch c := r.ctx[s.ctx]; s.dt {
		case dtype.F32:
			return exec.FromSlice(c, s.shape, elements[float32](s.data))
		case dtype.F16:
			return exec.FromSlice(c, s.shape, elements[float16.Float16](s.data))
		default:
			return exec.FromSlice(c, s.shape, elements[int32](s.data))
		}
	case empty:
		return r.engine.Empty(s.dt, s.shape)
	case lent, weight:
		p := alignedBytes(len(s.data))
		copy(p, s.data)
		l := &loan{bytes: p}
		r.loans = append(r.loans, l)
		b := storage.Borrow(p, storage.BorrowOptions{ReadOnly: s.home == weight, OnRelease: func() {
			l.ends++
			for i := range p {
				p[i] = afterLoan
			}
		}})
		if s.home == weight {
			b.MarkStable()
		}
		return tensor.FromBuffer(b, s.dt, s.shape)
	}
	b, err := storage.New(len(s.data))
	if err != nil {
		return tensor.Tensor{}, err
	}
	if s.home == stable {
		b.MarkStable()
	}
	p, err := b.Host(background, storage.Overwrite)
	if err != nil {
		return tensor.Tensor{}, err
	}
	copy(p, s.data)
	return tensor.FromBuffer(b, s.dt, s.shape)
}

// attempt runs f. If the step says so, it first runs f once with a cancelled context.
func (r *runner) attempt(s *step, f func(c *exec.Queue) error) error {
	c := r.ctx[s.ctx]
	if s.cancelled {
		c.SetCancel(cancelled())
		err := f(c)
		c.SetCancel(background)
		if err == nil || !errors.Is(err, context.Canceled) {
			return err
		}
	}
	return f(c)
}

func (r *runner) compute(s *step) error {
	in := make([]*tensor.Tensor, len(s.in))
	before := make([]uint64, len(in))
	for i, id := range s.in {
		in[i] = &r.tensors[id]
		before[i] = in[i].Buffer().Generation()
	}
	var out tensor.Tensor
	err := r.attempt(s, func(c *exec.Queue) (err error) {
		switch s.op {
		case op.Add, op.Mul:
			out, err = pointwise(c, s.op, in[0], in[1])
		case op.Softmax:
			out, err = c.Do(op.Softmax, &op.Params{Scale: s.scale}, in[0])
		case op.Argmax:
			out, err = c.Do(op.Argmax, nil, in[0])
		case op.MatMul:
			out, err = c.Do(op.MatMul, nil, in[0], in[1])
		case op.GetRows:
			out, err = c.Do(op.GetRows, nil, in[0], in[1])
		default:
			out, err = c.Do(op.Copy, &op.Params{To: s.dt}, in[0])
		}
		return err
	})
	r.tensors[s.out] = out
	for i, t := range in {
		if g := t.Buffer().Generation(); err == nil && g != before[i] {
			return fmt.Errorf("reading an operand moved its generation from %d to %d", before[i], g)
		}
	}
	return err
}

// together returns the shape that a and b broadcast to together, right-aligned.
func together(a, b *shape.Shape) (shape.Shape, error) {
	if a.Rank() < b.Rank() {
		a, b = b, a
	}
	out := *a
	for i := range b.Rank() {
		at := a.Rank() - b.Rank() + i
		switch d := b.Dim(i); {
		case d == out.Dim(at) || d == 1:
		case out.Dim(at) == 1:
			out.Set(at, d)
		default:
			return shape.Shape{}, fmt.Errorf("%w: %s and %s do not broadcast", shape.ErrShapeMismatch, *a, *b)
		}
	}
	return out, nil
}

// pointwise runs an operation on two operands, which it broadcasts to a common shape.
func pointwise(c *exec.Queue, id op.ID, a, b *tensor.Tensor) (out tensor.Tensor, err error) {
	as, bs := a.Shape(), b.Shape()
	s, err := together(&as, &bs)
	if err != nil {
		return out, err
	}
	x, err := a.BroadcastTo(s)
	if err != nil {
		return out, err
	}
	defer x.Release()
	y, err := b.BroadcastTo(s)
	if err != nil {
		return out, err
	}
	defer y.Release()
	return c.Do(id, nil, &x, &y)
}

// mutation runs f, which must bump b's generation.
func mutation(b *storage.Buffer, f func() error) error {
	before := b.Generation()
	if err := f(); err != nil {
		return err
	}
	if g := b.Generation(); g <= before {
		return fmt.Errorf("a write left the generation at %d", g)
	}
	return nil
}

func (r *runner) copyTo(s *step) error {
	dst, src := &r.tensors[s.in[0]], &r.tensors[s.in[1]]
	return mutation(dst.Buffer(), func() error {
		return r.attempt(s, func(c *exec.Queue) error { return c.DoInto(op.Copy, nil, dst, src) })
	})
}

func (r *runner) view(s *step) (err error) {
	t, out := &r.tensors[s.in[0]], &r.tensors[s.out]
	switch s.view {
	case retain:
		*out = t.Retained()
	case narrow:
		*out, err = t.Narrow(s.axis, s.start, s.shape.Dim(s.axis))
	case permute:
		*out, err = t.Permute(s.order...)
	case reshape:
		*out, err = t.Reshape(s.shape)
	case broadcast:
		*out, err = t.BroadcastTo(s.shape)
	case window:
		*out, err = t.View(s.shape, s.strides, s.start)
	}
	return err
}

// check reads t as the step says and compares.
func (r *runner) check(ctx context.Context, t *tensor.Tensor, s *step) error {
	var got []byte
	var err error
	switch s.mode {
	case ranged:
		got = make([]byte, len(s.want))
		err = t.Buffer().ReadAt(ctx, got, s.at)
	case gathers:
		var c tensor.Tensor
		if c, err = r.ctx[s.ctx].Do(op.Copy, &op.Params{To: t.DType()}, t); err != nil {
			return err
		}
		defer c.Release()
		got, err = c.Bytes(ctx, storage.Read)
	default:
		got, err = t.Bytes(ctx, storage.Read)
	}
	if err != nil {
		return err
	}
	return differ(t, got, s.want)
}

func differ(t *tensor.Tensor, got, want []byte) error {
	if bytes.Equal(got, want) {
		return nil
	}
	if len(got) != len(want) {
		return fmt.Errorf("%d bytes, want %d", len(got), len(want))
	}
	n, first := 0, -1
	for i := range got {
		if got[i] != want[i] {
			if n++; first < 0 {
				first = i
			}
		}
	}
	size := t.DType().Size()
	first -= first % size
	last := min(first+size, len(got))
	return fmt.Errorf("%d of %d bytes differ, first in the %s at byte %d: % x, want % x",
		n, len(got), t.DType(), first, got[first:last], want[first:last])
}

func (r *runner) write(t *tensor.Tensor, s *step) error {
	access := storage.Update
	if s.overwrite {
		access = storage.Overwrite
	}
	return mutation(t.Buffer(), func() error {
		var p []byte
		err := context.Canceled
		if s.cancelled {
			p, err = t.Bytes(cancelled(), access)
		}
		if errors.Is(err, context.Canceled) {
			p, err = t.Bytes(background, access)
		}
		if err != nil {
			return err
		}
		for _, w := range s.patches {
			copy(p[w.at:], w.data)
		}
		return nil
	})
}

// derive compares the buffer's shadow, if it is current, and attaches a new one.
func (r *runner) derive(t *tensor.Tensor) error {
	b := t.Buffer()
	p, err := b.Host(background, storage.Read)
	if err != nil {
		return err
	}
	if s := b.Shadow(); s != nil {
		data := s.Data.([]byte)
		if err := differ(t, data, p[:len(data)]); err != nil {
			return fmt.Errorf("a stale shadow is offered: %w", err)
		}
	}
	n := t.Len() * t.DType().Size()
	b.SetShadow(&accel.HostShadow{Generation: b.Generation(), Data: bytes.Clone(p[:n])})
	return nil
}
