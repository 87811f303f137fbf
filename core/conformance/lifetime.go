package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/conformance/reference"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/provider"
)

// hold is the time for which a work is kept pending while another work must wait for it.
// Work that does not wait ends in a fraction of it.
const hold = 5 * time.Millisecond

// lifetime has the cases of queues and their order. Each case has a provider of its own.
var lifetime = []struct {
	name string
	run  func(b *bench, rng *rand.Rand) error
}{
	{"submit and count", counted},
	{"closed queue", closedQueue},
	{"closed provider", closedProvider},
	{"queue of another", foreignQueue},
	{"unknown operation", unknownOperation},
	{"short memory", shortMemory},
	{"cancelled before it begins", cancelled},
	{"wait for a work", waits},
	{"wait for a failed work", waitsForFailure},
	{"order between two queues", relay},
	{"store and read", storeAndRead},
	{"outputs that exist", existing},
	{"queues at once", atOnce},
}

func (s *suite) lifetimes() {
	s.t.Helper()
	for _, c := range lifetime {
		name := "lifetime: " + c.name
		if !s.wants(name, name) {
			continue
		}
		err := guarded(func() error {
			b, err := newBench(s.open)
			if err != nil {
				return err
			}
			err = c.run(b, s.rng(name))
			if errors.Is(err, errPanic) {
				return err
			}
			closing := b.close()
			if closing != nil && errors.As(err, new(declineError)) {
				err = nil // the case fails, even if it was declined
			}
			return errors.Join(err, closing)
		})
		s.ended(name, "f32", err)
	}
}

// sum returns the arguments of a sum of two random vectors.
func sum(rng *rand.Rand, n int) *op.Args {
	a := reference.Args(op.Params{}, empty(reference.Plain, n), f32(rng, reference.Plain, n), f32(rng, reference.Plain, n))
	return &a
}

// right returns an error unless the output is the operation's result.
func (c *placed) right() error {
	mem, err := c.outputs()
	if err != nil {
		return err
	}
	return compare(c.id, c.host, &mem, false)
}

// counted submits three operations and checks the counters.
func counted(b *bench, rng *rand.Rand) error {
	c, err := b.prepare(b.q, op.Add, sum(rng, 1000))
	if err != nil {
		return err
	}
	defer c.free()
	for range 3 {
		if err := c.submit(); err != nil {
			return err
		}
	}
	if err := errors.Join(c.right(), b.Sync(context.Background()), b.q.Timeline().Dead()); err != nil {
		return err
	}
	st := b.Stats()
	if st.Submits[op.Add] != 3 || st.Ops() != 3 || st.LiveQueues != 1 {
		return fmt.Errorf("after 3 sums on one queue, the counters are %d sums, %d operations, %d queues", st.Submits[op.Add], st.Ops(), st.LiveQueues)
	}
	return nil
}

// wantClosed returns an error unless err is provider.ErrClosed.
func wantClosed(what string, err error) error {
	if errors.Is(err, provider.ErrClosed) {
		return nil
	}
	return fmt.Errorf("%s: error %w, want %w", what, notNil(err), provider.ErrClosed)
}

// notNil returns err, or an error with the text "none" if err is nil.
func notNil(err error) error {
	if err == nil {
		return errors.New("none")
	}
	return err
}

// closedQueue closes a queue. That ends its timeline, and the queue refuses later work.
func closedQueue(b *bench, rng *rand.Rand) error {
	q, err := b.NewQueue(provider.Compute)
	if err != nil {
		return err
	}
	c, err := b.prepare(b.q, op.Add, sum(rng, 10))
	if err != nil {
		return errors.Join(err, b.CloseQueue(q))
	}
	defer c.free()
	if q.Timeline().Ended() {
		return errors.New("the timeline of an open queue has ended")
	}
	if err := b.CloseQueue(q); err != nil {
		return err
	}
	if !q.Timeline().Ended() {
		return errors.New("the timeline of a closed queue has not ended")
	}
	ctx := context.Background()
	_, err = b.Submit(ctx, q, op.Add, &c.args)
	errs := []error{wantClosed("submit", err), wantClosed("close", b.CloseQueue(q)), c.untouched()}
	if b.dev != nil {
		m := c.args.Out[0].Mem
		_, up := b.dev.Upload(ctx, q, m, make([]byte, m.Len))
		_, down := b.dev.Download(ctx, q, make([]byte, m.Len), m)
		errs = append(errs, wantClosed("upload", up), wantClosed("download", down))
	}
	return errors.Join(append(errs, c.submit(), c.right())...) // the other queue still works
}

// closedProvider closes a provider that has two queues, which ends the queues. A second close
// does nothing.
func closedProvider(b *bench, _ *rand.Rand) error {
	q, err := b.NewQueue(provider.DownloadQueue)
	if err != nil {
		return err
	}
	if err := b.Provider.Close(); err != nil {
		return err
	}
	if !q.Timeline().Ended() || !b.q.Timeline().Ended() {
		return errors.New("a queue of a closed provider has not ended")
	}
	_, err = b.NewQueue(provider.Compute)
	return errors.Join(wantClosed("new queue", err), b.Provider.Close())
}

// foreignQueue submits to queues that are not the provider's.
func foreignQueue(b *bench, rng *rand.Rand) error {
	c, err := b.prepare(b.q, op.Add, sum(rng, 10))
	if err != nil {
		return err
	}
	defer c.free()
	for name, q := range map[string]provider.Queue{"no queue": nil, "a queue of another": strange{accel.NewTimeline("strange", nil)}} {
		if _, err := b.Submit(context.Background(), q, op.Add, &c.args); err == nil {
			return fmt.Errorf("%s is accepted", name)
		}
	}
	return c.untouched()
}

// strange is a queue that no provider has made.
type strange struct{ t *accel.Timeline }

func (q strange) Timeline() *accel.Timeline { return q.t }

// unknownOperation submits operations that Plan declines.
func unknownOperation(b *bench, rng *rand.Rand) error {
	c, err := b.prepare(b.q, op.Add, sum(rng, 10))
	if err != nil {
		return err
	}
	defer c.free()
	for _, id := range []op.ID{0, op.Count, 255} {
		if b.Plan(id, &c.args).Supported {
			return fmt.Errorf("operation %d, which does not exist, is accepted by Plan", id)
		}
		if _, err := b.Submit(context.Background(), b.q, id, &c.args); !errors.Is(err, provider.ErrUnsupported) {
			return fmt.Errorf("operation %d: error %w, want %w", id, notNil(err), provider.ErrUnsupported)
		}
	}
	return errors.Join(c.untouched(), c.submit(), c.right())
}

// shortMemory submits operands that reach outside their memory. The queue refuses them and
// can be used afterwards.
func shortMemory(b *bench, rng *rand.Rand) error {
	c, err := b.prepare(b.q, op.Add, sum(rng, 10))
	if err != nil {
		return err
	}
	defer c.free()
	good := c.args
	for _, fault := range []func(o *op.Operand){
		func(o *op.Operand) { o.Mem = o.Mem.Slice(0, o.Mem.Len-1) },
		func(o *op.Operand) { o.Offset = 1 },
		func(o *op.Operand) { o.Offset = -1 },
		func(o *op.Operand) { o.Strides.Set(0, 2) },
	} {
		for i := range 3 {
			c.args = good
			fault([]*op.Operand{&c.args.In[0], &c.args.In[1], &c.args.Out[0]}[i])
			if c.submit() == nil {
				return fmt.Errorf("operand %d reaches outside its memory and is accepted", i)
			}
		}
	}
	c.args = good
	return errors.Join(c.untouched(), c.submit(), c.right())
}

// cancelled submits with a context that has ended. The operation either is refused with the
// context's error, or runs.
func cancelled(b *bench, rng *rand.Rand) error {
	c, err := b.prepare(b.q, op.Add, sum(rng, 1000))
	if err != nil {
		return err
	}
	defer c.free()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	w, err := b.Submit(ctx, b.q, op.Add, &c.args)
	if err == nil {
		return errors.Join(wait(w), c.right())
	}
	if !errors.Is(err, context.Canceled) {
		return fmt.Errorf("error %w, want %w", err, context.Canceled)
	}
	return errors.Join(c.untouched(), c.submit(), c.right())
}

// gated submits c after a work that ends with end, and returns an error if c does not wait
// for it.
func gated(c *placed, end func(t *accel.Timeline, w accel.Work)) error {
	gate := accel.NewTimeline("gate", nil)
	w := gate.Issue()
	done := make(chan error, 1)
	go func() {
		done <- guarded(func() error {
			if err := c.b.WaitFor(context.Background(), c.q, w); err != nil {
				return err
			}
			return c.submit()
		})
	}()
	select {
	case err := <-done:
		end(gate, w)
		if err != nil {
			return err
		}
		return errors.New("the operation ended before the work that it waits for")
	case <-time.After(hold):
	}
	end(gate, w)
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		return errors.New("the operation still waits after the work has ended")
	}
}

// waits makes an operation wait for a work of another timeline.
func waits(b *bench, rng *rand.Rand) error {
	for range 4 {
		c, err := b.prepare(b.q, op.Add, sum(rng, 100))
		if err != nil {
			return err
		}
		err = gated(c, func(t *accel.Timeline, w accel.Work) { t.Complete(w.Seq()) })
		if err = errors.Join(err, c.right()); err != nil {
			return err // without freeing c, whose memory may be in use
		}
		c.free()
	}
	return nil
}

// waitsForFailure makes an operation wait for a work that fails. The operation succeeds,
// because WaitFor only orders.
func waitsForFailure(b *bench, rng *rand.Rand) error {
	c, err := b.prepare(b.q, op.Add, sum(rng, 100))
	if err != nil {
		return err
	}
	err = gated(c, func(t *accel.Timeline, w accel.Work) {
		t.Fail(w.Seq(), w.Seq(), errors.New("failure of the other work"))
	})
	if err = errors.Join(err, c.right()); err != nil {
		return err
	}
	err = errors.Join(c.submit(), c.right(), b.Sync(context.Background()))
	c.free()
	return err
}

// relay runs rounds in which a queue reads the result of a long chain on another queue.
func relay(b *bench, _ *rand.Rand) error {
	second, err := b.NewQueue(provider.Compute)
	if err != nil {
		return err
	}
	for round := range 8 {
		if err = relayOnce(b, second, float32(1000*round)); err != nil {
			break
		}
	}
	return errors.Join(err, b.CloseQueue(second))
}

const (
	relaySteps = 32
	relaySize  = 4096
)

func relayOnce(b *bench, second provider.Queue, first float32) error {
	constant := func(v float32) op.Operand {
		values := make([]float32, relaySize)
		for i := range values {
			values[i] = v
		}
		return reference.Of(values, relaySize)
	}
	// The steps of the chain read one memory and write another, alternately. The last step
	// and the second queue write to the memory that the first step reads.
	a := reference.Args(op.Params{}, empty(reference.Plain, relaySize), constant(first), constant(1))
	chain, err := b.prepare(b.q, op.Add, &a)
	if err != nil {
		return err
	}
	defer chain.free()
	last, err := b.prepare(second, op.Add, &a)
	if err != nil {
		return err
	}
	defer last.free()
	last.args.In[0].Mem = chain.args.In[0].Mem
	ctx := context.Background()
	var w accel.Work
	step := chain.args
	for range relaySteps {
		if w, err = b.Submit(ctx, b.q, op.Add, &step); err != nil {
			return errors.Join(err, b.Sync(ctx))
		}
		step.In[0].Mem, step.Out[0].Mem = step.Out[0].Mem, step.In[0].Mem
	}
	if err := b.WaitFor(ctx, second, w); err != nil {
		return errors.Join(err, b.Sync(ctx))
	}
	if err := errors.Join(last.submit(), wait(w)); err != nil {
		return err
	}
	out, err := last.areas[outArea].read(second)
	if err != nil {
		return err
	}
	result := a.Out[0]
	result.Mem = op.Mem{Host: out[guard : len(out)-guard], Len: len(out) - 2*guard}
	for i, v := range reference.Read(&result) {
		if want := float64(first) + relaySteps + 1; v != want {
			return fmt.Errorf("element %d is %v, want %v: the second queue did not wait for the first", i, v, want)
		}
	}
	return nil
}

// stored returns arguments of RotateStore with a cache of f16.
func stored(rng *rand.Rand) *op.Args {
	c := storeCase{tokens: 5, heads: 4, kvHeads: 2, d: 32, dv: 64, pairs: 16, rows: 8, pages: 3, kNorm: true}
	a := c.args(rng, dtype.F16, reference.Plain, reference.Plain, reference.Plain)
	return &a
}

// storeAndRead stores the keys and values of one token after another, each with an operation of
// its own on one queue, and reads them on another queue that waits for the first.
func storeAndRead(b *bench, rng *rand.Rand) error {
	second, err := b.NewQueue(provider.Compute)
	if err != nil {
		return err
	}
	return errors.Join(storeAndReadOn(b, second, rng), b.CloseQueue(second))
}

func storeAndReadOn(b *bench, second provider.Queue, rng *rand.Rand) error {
	a := stored(rng)
	store, err := b.prepare(b.q, op.RotateStore, a)
	if err != nil {
		return err
	}
	defer store.free()
	// The reader gathers the pages, which are rows of a table.
	table := a.Out[1]
	gather := reference.Args(op.Params{}, empty(reference.Plain, 3, table.Shape.Dim(1)), table, reference.Ints(dtype.I32, 2, 0, 1))
	read, err := b.prepare(second, op.GetRows, &gather)
	if err != nil {
		return err
	}
	defer read.free()
	read.args.In[0].Mem = store.args.Out[1].Mem
	ctx := context.Background()
	var w accel.Work
	for t := range a.In[0].Shape.Dim(0) {
		one := store.args
		for p := range op.Place(5) {
			o := one.At(p)
			o.Shape.Set(0, 1)
			o.Offset += t * o.Strides.Dim(0)
		}
		one.Out[0].Shape.Set(0, 1)
		one.Out[0].Offset += t * one.Out[0].Strides.Dim(0)
		if w, err = b.Submit(ctx, b.q, op.RotateStore, &one); err != nil {
			return errors.Join(err, b.Sync(ctx))
		}
	}
	if err := b.WaitFor(ctx, second, w); err != nil {
		return errors.Join(err, b.Sync(ctx))
	}
	if err := errors.Join(read.submit(), wait(w)); err != nil {
		return err
	}
	out, err := read.output(0)
	if err != nil {
		return err
	}
	gather.In[0].Mem = op.Mem{Host: make([]byte, table.Mem.Len), Len: table.Mem.Len}
	mem, err := store.outputs()
	if err != nil {
		return err
	}
	copy(gather.In[0].Mem.Host, mem[1])
	if err := compare(op.GetRows, &gather, &memories{out}, false); err != nil {
		return fmt.Errorf("the second queue did not wait for the first: %w", err)
	}
	return store.right()
}

// existing submits an operation with two outputs, one of them existing, whose operands reach
// outside their memory, or with a context that has ended. What is refused leaves both outputs
// alone, and the queue can be used afterwards, several times with the same result.
func existing(b *bench, rng *rand.Rand) error {
	c, err := b.prepare(b.q, op.RotateStore, stored(rng))
	if err != nil {
		return err
	}
	defer c.free()
	good := c.args
	for _, p := range []op.Place{4, 6, op.FirstOut, op.FirstOut + 1} {
		c.args = good
		c.args.At(p).Mem = good.At(p).Mem.Slice(0, good.At(p).Mem.Len-1)
		if c.submit() == nil {
			return fmt.Errorf("the %s reaches outside its memory and is accepted", c.id.Role(p))
		}
	}
	c.args = good
	if err := c.untouched(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	w, err := b.Submit(ctx, b.q, op.RotateStore, &c.args)
	switch {
	case err == nil:
		err = wait(w)
	case !errors.Is(err, context.Canceled):
		return fmt.Errorf("error %w, want %w", err, context.Canceled)
	default:
		err = c.untouched()
	}
	return errors.Join(err, c.submit(), c.submit(), c.right())
}

// atOnce runs the same operation on several queues concurrently, each with its goroutine.
func atOnce(b *bench, rng *rand.Rand) error {
	a := reference.Args(op.Params{Scale: 1}, empty(reference.Plain, 40, 300), f32(rng, reference.Plain, 40, 300))
	want, err := b.run(op.Softmax, &a)
	if err != nil {
		return err
	}
	errs := make([]error, 4)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			errs[i] = guarded(func() error {
				q, err := b.NewQueue(provider.Compute)
				if err != nil {
					return err
				}
				return errors.Join(repeat(b, q, &a, &want), b.CloseQueue(q))
			})
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// repeat runs a softmax on a queue several times, and returns an error if the bits differ
// from want.
func repeat(b *bench, q provider.Queue, a *op.Args, want *memories) error {
	for range 5 {
		c, err := b.prepare(q, op.Softmax, a)
		if err != nil {
			return err
		}
		err = c.submit()
		var got memories
		if err == nil {
			got, err = c.outputs()
		}
		c.free()
		if err == nil && !got.equal(want) {
			err = errors.New("the bits of concurrent queues differ from those of one queue alone")
		}
		if err != nil {
			return err
		}
	}
	return nil
}
