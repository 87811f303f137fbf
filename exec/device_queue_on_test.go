//go:build accel

package exec

import (
	"context"
	"errors"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/core/storage"
	"github.com/fucina-go/fucina/core/tensor"
	"github.com/fucina-go/fucina/internal/offheap"
	"github.com/fucina-go/fucina/internal/sim/discrete"
	"github.com/fucina-go/fucina/providers/cpu"
	"github.com/fucina-go/fucina/tests/harness"
	"github.com/fucina-go/fucina/tests/leak"
)

// openDiscrete opens an engine on a simulated device, and on one thread of the CPU if opt
// has no provider for it. The caller closes the engine.
func openDiscrete(t *testing.T, device discrete.Options, opt Options) (*Engine, *discrete.Device) {
	t.Helper()
	var err error
	if opt.CPU == nil {
		if opt.CPU, err = cpu.New(cpu.Options{Threads: 1}); err != nil {
			t.Fatal(err)
		}
	}
	dev, err := discrete.New(device)
	if err != nil {
		t.Fatal(err)
	}
	opt.Device = dev
	e, err := Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	return e, dev
}

// newEngine opens an engine as openDiscrete does, and closes it when the test ends.
func newEngine(t *testing.T, device discrete.Options) (*Engine, *discrete.Device) {
	t.Helper()
	e, dev := openDiscrete(t, device, Options{})
	harness.CloseLater(t, e)
	return e, dev
}

// newQueue returns a queue that is closed when the test ends, before its engine.
func newQueue(t *testing.T, e *Engine) *Queue {
	t.Helper()
	c, err := e.NewQueue()
	if err != nil {
		t.Fatal(err)
	}
	harness.CloseLater(t, c)
	return c
}

// BorrowOptions.Cold of a weight runs each time that the device has taken a copy of the
// bytes, and at no other time, so that the lender can drop the cached pages.
func TestAdoptionMakesWeightsCold(t *testing.T) {
	const n = 16
	e, _ := newEngine(t, discrete.Options{})
	c := newQueue(t, e)
	told := map[string]int{}
	lend := func(name string, stable bool) tensor.Tensor {
		buf := storage.Borrow(make([]byte, 4*n*n), storage.BorrowOptions{ReadOnly: true, Cold: func() { told[name]++ }})
		if stable {
			buf.MarkStable()
		}
		w, err := tensor.FromBuffer(buf, dtype.F32, shape.Must(n, n))
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	w, other := lend("weight", true), lend("operand", false)
	x := vector(t, c, make([]float32, n)...)
	use := func(w *tensor.Tensor) {
		t.Helper()
		y, err := c.Do(op.MatMul, nil, &x, w)
		if err != nil {
			t.Fatal(err)
		}
		y.Release()
	}
	for want := 1; want <= 3; want++ {
		for range 3 {
			use(&w)
			use(&other)
		}
		if told["weight"] != want || told["operand"] != 0 {
			t.Errorf("Cold ran for %v, want %d times for the weight and for nothing else", told, want)
		}
		if !w.Buffer().DropDevice() {
			t.Fatal("not evicted")
		}
	}
	if s := e.Stats(); s.Fallbacks != 0 {
		t.Errorf("%d fallbacks: %s", s.Fallbacks, s.LastFallback)
	}
	x.Release()
	w.Release()
	other.Release()
}

// A Queue opens a queue of the device with its first op there, and Close closes it.
func TestQueueComesWithFirstOp(t *testing.T) {
	e, dev := newEngine(t, discrete.Options{Decline: func(id op.ID, _ *op.Args) string {
		if id == op.Mul {
			return "the test wants it on the cpu"
		}
		return ""
	}})
	c, err := e.NewQueue()
	if err != nil {
		t.Fatal(err)
	}
	idle := dev.Stats().LiveQueues
	x := vector(t, c, 1, 2)
	run := func(id op.ID) {
		t.Helper()
		y, err := c.Do(id, nil, &x, &x)
		if err != nil {
			t.Fatal(err)
		}
		y.Release()
	}
	if run(op.Mul); c.dev.q != nil || dev.Stats().LiveQueues != idle {
		t.Error("a context has a queue before its first op on the device")
	}
	run(op.Add)
	q := c.dev.q
	if q == nil {
		t.Fatal("no queue after an op on the device")
	}
	if run(op.Add); c.dev.q != q {
		t.Error("a second op took another queue")
	}
	x.Release()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if s := dev.Stats(); !q.Timeline().Ended() || s.Ops() != 2 {
		t.Errorf("after close: the queue ended: %v, %d ops", q.Timeline().Ended(), s.Ops())
	}
}

// gather returns row id of table. Only the device has the tensor of ids.
func gather(t *testing.T, c *Queue, table *tensor.Tensor, id float32) (tensor.Tensor, error) {
	t.Helper()
	f := vector(t, c, id)
	defer f.Release()
	ids, err := c.Do(op.Copy, &op.Params{To: dtype.I32}, &f)
	if err != nil {
		t.Fatal(err)
	}
	defer ids.Release()
	if !ids.Buffer().NewestOnDevice() {
		t.Fatal("the ids are not on the device")
	}
	return c.Do(op.GetRows, nil, table, &ids)
}

// Close of a queue reads its status words and frees them. A value of a wrong row number
// still has its error afterwards.
func TestStatusOutlivesItsQueue(t *testing.T) {
	e, _ := newEngine(t, discrete.Options{})
	c, err := e.NewQueue()
	if err != nil {
		t.Fatal(err)
	}
	table, err := FromSlice(c, shape.Must(2, 1), []float32{5, 6})
	if err != nil {
		t.Fatal(err)
	}
	before := offheap.Stats().LiveBlocks
	bad, err := gather(t, c, &table, 3)
	if err != nil {
		t.Fatal(err)
	}
	good, err := gather(t, c, &table, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if n := int64(offheap.Stats().LiveBlocks) - int64(before); n > 1 { // the pool keeps the block of the ids
		t.Errorf("%d host blocks more after close", n)
	}
	for range 8 { // reuses and overwrites the freed memory of the words
		block, err := offheap.Alloc(8 * statusWords)
		if err != nil {
			t.Fatal(err)
		}
		defer offheap.Free(&block)
		for i := range block.Bytes() {
			block.Bytes()[i] = 0x7f
		}
	}
	for range 2 {
		if _, err := tensor.Data[float32](context.Background(), &bad, storage.Read); !errors.Is(err, tensor.ErrIndexOutOfBounds) {
			t.Errorf("the bad row: %v", err)
		}
		if p, err := tensor.Data[float32](context.Background(), &good, storage.Read); err != nil || p[0] != 6 {
			t.Errorf("the good row: %v, %v", p, err)
		}
	}
	bad.Release()
	good.Release()
	table.Release()
}

// If the device refuses a gather, the gather's status word is returned, and the CPU runs
// the gather and checks the ids.
func TestRefusedGatherKeepsNoWord(t *testing.T) {
	e, dev := newEngine(t, discrete.Options{})
	c := newQueue(t, e)
	table, err := FromSlice(c, shape.Must(2, 1), []float32{5, 6})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 * statusWords {
		// The cast is submitted first, then the gather.
		if err := dev.Inject(discrete.Fault{Kind: discrete.SubmitError, Nth: 2}); err != nil {
			t.Fatal(err)
		}
		y, err := gather(t, c, &table, float32(i%3))
		if i%3 == 2 {
			if !errors.Is(err, tensor.ErrIndexOutOfBounds) {
				t.Fatalf("gather %d of a wrong id: %v", i, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("gather %d: %v", i, err)
		}
		if p, err := tensor.Data[float32](context.Background(), &y, storage.Read); err != nil || p[0] != float32(5+i%3) {
			t.Fatalf("gather %d: %v, %v", i, p, err)
		}
		y.Release()
	}
	if !c.dev.q.Timeline().WatchedFirst().IsZero() {
		t.Error("a refused gather is watched")
	}
	free := 0
	for c.dev.q.Timeline().TakeStatus() != nil {
		free++
	}
	if free != statusWords {
		t.Errorf("%d status words are free, want all %d", free, statusWords)
	}
	table.Release()
}

// A queue that waits for a value of another queue follows that value from then on, and does
// not wait for it again.
func TestQueueFollowsWhatItWaitedFor(t *testing.T) {
	e, dev := newEngine(t, discrete.Options{})
	c := [2]*Queue{newQueue(t, e), newQueue(t, e)}
	x := vector(t, c[0], 1, 2)
	add := func(c *Queue, a *tensor.Tensor) tensor.Tensor {
		t.Helper()
		y, err := c.Do(op.Add, nil, a, a)
		if err != nil {
			t.Fatal(err)
		}
		return y
	}
	warm := [2]tensor.Tensor{add(c[0], &x), add(c[1], &x)}
	dev.Hold()
	y := add(c[0], &x)
	w := c[0].dev.q.Timeline().Last()
	if c[1].dev.q.Timeline().Follows(w) {
		t.Fatal("a queue follows what it has nothing to do with")
	}
	z := add(c[1], &y)
	if w.Done() || !c[1].dev.q.Timeline().Follows(w) {
		t.Error("a queue does not follow what it read")
	}
	last := c[1].dev.q.Timeline().Last()
	again := add(c[1], &y)
	if len(c[1].dev.needs.Order) != 0 || c[1].dev.q.Timeline().Last().Seq() <= last.Seq() {
		t.Errorf("the second reading op waits for %v", c[1].dev.needs.Order)
	}
	dev.Release()
	for _, y := range []*tensor.Tensor{&warm[0], &warm[1], &x, &y, &z, &again} {
		y.Release()
	}
}

// A function of a lender that panics, in the middle of the submission of an operation, leaves the
// operands as they were: the operation can be repeated, and the engine closes.
func TestPanicDuringSubmission(t *testing.T) {
	const n = 16
	leak.Check(t)
	e, dev := newEngine(t, discrete.Options{})
	c := newQueue(t, e)
	panics := true
	buf := storage.Borrow(make([]byte, 4*n*n), storage.BorrowOptions{ReadOnly: true, Cold: func() {
		if panics {
			panic("the test's panic")
		}
	}})
	buf.MarkStable()
	w, err := tensor.FromBuffer(buf, dtype.F32, shape.Must(n, n))
	if err != nil {
		t.Fatal(err)
	}
	x := vector(t, c, make([]float32, n)...)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_, _ = c.Do(op.MatMul, nil, &x, &w)
	}()
	if s := e.Stats(); s.Pool.Outstanding != 1 {
		t.Errorf("%d buffers are in use after the panic, want that of x", s.Pool.Outstanding)
	}
	if !w.Buffer().DropDevice() {
		t.Error("the weight is in use after the panic")
	}
	panics = false
	y, err := c.Do(op.MatMul, nil, &x, &w)
	if err != nil {
		t.Fatal(err)
	}
	if s := dev.Stats(); s.Submits[op.MatMul] != 1 {
		t.Errorf("%d products on the device, want 1", s.Submits[op.MatMul])
	}
	y.Release()
	x.Release()
	w.Release()
}
