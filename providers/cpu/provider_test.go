package cpu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/tests/countdown"
)

var bg = context.Background()

func open(t testing.TB, threads int) (*Provider, provider.Queue) {
	t.Helper()
	p, err := New(Options{Threads: threads})
	if err != nil {
		t.Fatal(err)
	}
	q, err := p.NewQueue(provider.Compute)
	if err != nil {
		t.Fatal(err)
	}
	return p, q
}

// operand returns an operand over values.
func operand(values []float32, dims ...int) op.Operand {
	s := shape.Must(dims...)
	b := unsafe.Slice((*byte)(unsafe.Pointer(&values[0])), 4*len(values))
	return op.Operand{DType: dtype.F32, Shape: s, Strides: s.Contiguous(), Mem: op.Mem{Host: b, Len: len(b)}}
}

// sum returns the arguments of an addition of the values to themselves.
func sum(values ...float32) op.Args {
	x := operand(values, len(values))
	return op.Args{NIn: 2, In: [op.MaxIn]op.Operand{x, x}, Out: [op.MaxOut]op.Operand{operand(make([]float32, len(values)), len(values))}}
}

// product returns the arguments of a product by q8_0 weights, with workspace.
func product(t *testing.T, p *Provider, q provider.Queue) op.Args {
	t.Helper()
	values := make([]float32, 333*64)
	for i := range values {
		values[i] = float32(i%101)/50 - 1
	}
	w := op.Operand{DType: dtype.Q8_0, Shape: shape.Must(333, 64), Strides: shape.Must(2, 1)}
	w.Mem.Host = make([]byte, 333*2*dtype.Q8_0.Size())
	w.Mem.Len = len(w.Mem.Host)
	if _, err := p.Submit(bg, q, op.Copy, &op.Args{NIn: 1, In: [op.MaxIn]op.Operand{operand(values, 333, 64)}, Out: [op.MaxOut]op.Operand{w}}); err != nil {
		t.Fatal(err)
	}
	a := op.Args{NIn: 2, In: [op.MaxIn]op.Operand{operand(make([]float32, 8*64), 8, 64), w}, Out: [op.MaxOut]op.Operand{operand(make([]float32, 8*333), 8, 333)}}
	plan := p.Plan(op.MatMul, &a)
	if !plan.Supported || plan.Workspace == 0 {
		t.Fatalf("plan %+v, want one with workspace", plan)
	}
	a.Workspace = op.Mem{Host: make([]byte, plan.Workspace), Len: plan.Workspace}
	return a
}

func TestProvider(t *testing.T) {
	p, q := open(t, 2)
	if info := p.Info(); info.Name != "cpu" || !info.HostMemory {
		t.Errorf("info %+v, want cpu in host memory", info)
	}
	a := sum(1, 2, 3)
	if plan := p.Plan(op.Add, &a); !plan.Supported || plan.Workspace != 0 {
		t.Errorf("plan %+v", plan)
	}
	if w, err := p.Submit(bg, q, op.Add, &a); err != nil || !w.IsZero() {
		t.Fatal(w, err)
	}
	if want := operand([]float32{2, 4, 6}, 3); !bytes.Equal(a.Out[0].Mem.Host, want.Mem.Host) {
		t.Errorf("the sum is % x, want % x", a.Out[0].Mem.Host, want.Mem.Host)
	}
	want := provider.Stats{LiveQueues: 1}
	want.Submits[op.Add] = 1
	if s := p.Stats(); s != want {
		t.Errorf("stats %+v, want %+v", s, want)
	}
	if err := p.Sync(bg); err != nil {
		t.Error(err)
	}
	if q.Timeline().Ended() {
		t.Error("the queue has ended before it was closed")
	}
	if err := p.CloseQueue(q); err != nil {
		t.Error(err)
	}
	if !q.Timeline().Ended() {
		t.Error("the queue has not ended after it was closed")
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	want.LiveQueues = 0
	if s := p.Stats(); s != want {
		t.Errorf("stats after Close %+v, want %+v", s, want)
	}
}

func TestProviderRefusals(t *testing.T) {
	if _, err := New(Options{Threads: -1}); err == nil {
		t.Error("New accepts -1 threads")
	}
	p, q := open(t, 1)
	other, otherQueue := open(t, 1)
	defer other.Close()
	var a op.Args
	if _, err := p.Submit(bg, otherQueue, op.Add, &a); err == nil {
		t.Error("Submit accepts the queue of another provider")
	}
	if _, err := p.Submit(bg, nil, op.Add, &a); err == nil {
		t.Error("Submit accepts no queue")
	}
	if err := p.CloseQueue(q); err != nil {
		t.Error(err)
	}
	for what, err := range map[string]error{
		"CloseQueue": p.CloseQueue(q),
		"WaitFor":    p.WaitFor(bg, q, accel.Work{}),
		"Submit":     func() error { _, err := p.Submit(bg, q, op.Add, &a); return err }(),
	} {
		if !errors.Is(err, provider.ErrClosed) {
			t.Errorf("%s on a closed queue: %v, want %v", what, err, provider.ErrClosed)
		}
	}
	if s := p.Stats(); s.Ops() != 0 {
		t.Errorf("refused work is counted: %+v", s)
	}

	_, err := p.NewQueue(provider.Compute) // closed by Close
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if s := p.Stats(); s.LiveQueues != 0 {
		t.Errorf("stats after Close %+v", s)
	}
	if err := p.Close(); err != nil {
		t.Errorf("closing again: %v", err)
	}
	if _, err := p.NewQueue(provider.Compute); !errors.Is(err, provider.ErrClosed) {
		t.Errorf("NewQueue after Close: %v, want %v", err, provider.ErrClosed)
	}
}

// Queues run concurrently on one team, each with kernel state of its own.
func TestQueuesAtOnce(t *testing.T) {
	p, q := open(t, 3)
	a, x := product(t, p, q), make([]float32, 8*64)
	for i := range x {
		x[i] = float32(i%37) - 18
	}
	a.In[0] = operand(x, 8, 64)
	if _, err := p.Submit(bg, q, op.MatMul, &a); err != nil {
		t.Fatal(err)
	}
	want := bytes.Clone(a.Out[0].Mem.Host)
	var wg sync.WaitGroup
	for range 4 {
		q, err := p.NewQueue(provider.Compute)
		if err != nil {
			t.Fatal(err)
		}
		a := a
		a.Out[0] = operand(make([]float32, 8*333), 8, 333)
		a.Workspace.Host = slices.Clone(a.Workspace.Host)
		wg.Go(func() {
			for range 20 {
				clear(a.Out[0].Mem.Host)
				if _, err := p.Submit(bg, q, op.MatMul, &a); err != nil {
					t.Error(err)
					return
				}
				if !bytes.Equal(a.Out[0].Mem.Host, want) {
					t.Error("the product of one queue among others differs from that of one queue alone")
					return
				}
			}
		})
	}
	wg.Wait()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// Plan and Submit do not allocate on the Go heap.
func TestAllocations(t *testing.T) {
	p, q := open(t, 2)
	defer p.Close()
	a := product(t, p, q)
	if n := testing.AllocsPerRun(20, func() {
		if !p.Plan(op.MatMul, &a).Supported {
			t.Fatal("declined")
		}
		if _, err := p.Submit(bg, q, op.MatMul, &a); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations in a run, want 0", n)
	}
}

// Submit passes its context on. An operation that the context ends is not counted, and the
// queue can be used afterwards.
func TestSubmitCancelled(t *testing.T) {
	p, q := open(t, 2)
	defer p.Close()
	a := product(t, p, q)
	if _, err := p.Submit(countdown.After(0), q, op.MatMul, &a); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
	if n := p.Stats().Submits[op.MatMul]; n != 0 {
		t.Errorf("%d submits are counted, want 0", n)
	}
	if _, err := p.Submit(bg, q, op.MatMul, &a); err != nil {
		t.Error(err)
	}
}

// If a context ends while Submit waits for another queue's work, only that call fails: the
// next call waits again.
func TestCancelledWaitKeepsQueue(t *testing.T) {
	p, q := open(t, 1)
	defer p.Close()
	other := accel.NewTimeline("other", nil)
	w := other.Issue()
	if err := p.WaitFor(bg, q, w); err != nil {
		t.Fatal(err)
	}
	done, cancel := context.WithCancel(bg)
	cancel()
	a := sum(1, 2)
	if _, err := p.Submit(done, q, op.Add, &a); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
	if err := p.Sync(bg); err != nil {
		t.Errorf("the queue died: %v", err)
	}
	if err := p.Sync(done); !errors.Is(err, context.Canceled) {
		t.Errorf("Sync with a context that has ended: %v, want %v", err, context.Canceled)
	}
	other.Complete(w.Seq())
	if _, err := p.Submit(bg, q, op.Add, &a); err != nil {
		t.Error(err)
	}
}

func ExampleProvider() {
	p, err := New(Options{Threads: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer p.Close()
	q, err := p.NewQueue(provider.Compute)
	if err != nil {
		fmt.Println(err)
		return
	}
	x := []float32{1, 2, 3}
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), 4*len(x))
	m := op.Mem{Host: bytes, Len: len(bytes)}

	// x + x, in place.
	vector := op.Operand{DType: dtype.F32, Shape: shape.Must(3), Strides: shape.Must(1), Mem: m}
	a := op.Args{NIn: 2, Out: [op.MaxOut]op.Operand{vector}}
	a.In[0], a.In[1] = vector, vector
	if plan := p.Plan(op.Add, &a); !plan.Supported {
		fmt.Println(plan.Reason)
		return
	}
	if _, err := p.Submit(bg, q, op.Add, &a); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(x)
	// Output: [2 4 6]
}
