package cpu

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"unsafe"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/core/shape"
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

func TestProvider(t *testing.T) {
	p, q := open(t, 2)
	if info := p.Info(); info.Name != "cpu" || !info.HostMemory {
		t.Errorf("info %+v, want cpu in host memory", info)
	}
	x := of([]float32{1, 2, 3}, 3)
	a := op.Args{NIn: 2, Out: [op.MaxOut]op.Operand{operand(dtype.F32, plain, 3)}}
	a.In[0], a.In[1] = x, x
	if plan := p.Plan(op.Add, &a); !plan.Supported || plan.Workspace != 0 {
		t.Errorf("plan %+v", plan)
	}
	if w, err := p.Submit(bg, q, op.Add, &a); err != nil || !w.IsZero() {
		t.Fatal(w, err)
	}
	equal(t, read(a.Out[0]), []float64{2, 4, 6})
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

	_, err := p.NewQueue(provider.Compute) // that Close ends
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

func TestWaitFor(t *testing.T) {
	p, q := open(t, 1)
	defer p.Close()
	x := of([]float32{1}, 1)
	a := op.Args{NIn: 2, Out: [op.MaxOut]op.Operand{operand(dtype.F32, plain, 1)}}
	a.In[0], a.In[1] = x, x

	device := accel.NewTimeline("device", nil)
	w := device.Issue()
	if err := p.WaitFor(bg, q, w); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		_, err := p.Submit(bg, q, op.Add, &a)
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("Submit returned before the work it waits for: %v", err)
	default:
	}
	device.Complete(w.Seq())
	if err := <-done; err != nil {
		t.Fatal(err)
	}

	// A failure of that work is not the queue's.
	w = device.Issue()
	device.Fail(w.Seq(), w.Seq(), errors.New("no more"))
	if err := p.WaitFor(bg, q, w); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := p.Submit(bg, q, op.Add, &a); err != nil {
			t.Errorf("Submit after failed work: %v", err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := p.Sync(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Sync with a dead context: %v", err)
	}

	// The end of a context ends the wait, and the queue goes on waiting.
	w = device.Issue()
	if err := p.WaitFor(bg, q, w); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Submit(ctx, q, op.Add, &a); !errors.Is(err, context.Canceled) {
		t.Errorf("Submit with a dead context: %v", err)
	}
	device.Complete(w.Seq())
	if _, err := p.Submit(bg, q, op.Add, &a); err != nil {
		t.Error(err)
	}
}

// Queues run at the same time over one team, with kernel state of their own.
func TestQueuesAtOnce(t *testing.T) {
	p, err := New(Options{Threads: 3})
	if err != nil {
		t.Fatal(err)
	}
	rng := newRand()
	a := op.Args{NIn: 2}
	a.In[0] = random(operand(dtype.F32, plain, 8, 64), rng)
	a.In[1] = random(operand(dtype.Q4_0, plain, 333, 64), rng)
	want := matMulRef(read(a.In[0]), read(a.In[1]), 1, 1, 8, 333, 64)
	var wg sync.WaitGroup
	for range 4 {
		q, err := p.NewQueue(provider.Compute)
		if err != nil {
			t.Fatal(err)
		}
		a := a
		a.Out[0] = operand(dtype.F32, plain, 8, 333)
		a = withWorkspace(t, q.(*queue).exec, op.MatMul, a)
		wg.Go(func() {
			for range 20 {
				clear(a.Out[0].Mem.Host)
				if _, err := p.Submit(bg, q, op.MatMul, &a); err != nil {
					t.Error(err)
					return
				}
				closeTo(t, read(a.Out[0]), want, tolMatMul)
			}
		})
	}
	wg.Wait()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// A plan and a submission allocate nothing on the Go heap.
func TestAllocations(t *testing.T) {
	p, q := open(t, 2)
	defer p.Close()
	e := q.(*queue).exec
	e.grain = 1
	for id := op.ID(1); id < op.Count; id++ {
		a := sample(t, e, id)
		if n := testing.AllocsPerRun(20, func() {
			if !p.Plan(id, &a).Supported {
				t.Fatal("declined")
			}
			if _, err := p.Submit(bg, q, id, &a); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%v: %v allocations in a run, want 0", id, n)
		}
	}
	// The paths that samples do not take.
	rng := newRand()
	for _, from := range []dtype.DType{dtype.I64, dtype.F64, dtype.Q6_K} {
		for _, l := range []layout{plain, spread} {
			a := op.Args{NIn: 1, Out: [op.MaxOut]op.Operand{operand(dtype.F32, l, 3, 512)}}
			a.In[0] = random(operand(from, l, 3, 512), rng)
			if n := testing.AllocsPerRun(20, func() {
				if _, err := p.Submit(bg, q, op.Copy, &a); err != nil {
					t.Fatal(err)
				}
			}); n != 0 {
				t.Errorf("copy of %v %v: %v allocations in a run, want 0", from, l, n)
			}
		}
	}
}

// The executor keeps no operand alive once it is done.
func TestNoReference(t *testing.T) {
	e := NewExecutor(nil)
	for id := op.ID(1); id < op.Count; id++ {
		a := sample(t, e, id)
		if err := e.Execute(context.Background(), id, &a); err != nil {
			t.Fatal(err)
		}
	}
	m, at, r := &e.matMul, &e.attention, &e.rmsNorm
	for what, held := range map[string]bool{
		"matmul":    m.x != nil || m.w != nil || m.direct != nil || m.out != nil || m.scratch != nil,
		"attention": at.q != nil || at.out != nil || at.scratch != nil || at.k.bytes != nil || at.v.bytes != nil || at.k.direct != nil || at.v.direct != nil,
		"rms_norm":  r.x != nil || r.w != nil || r.weights != nil || r.out != nil,
		"copy":      e.copy.x != nil || e.copy.out != nil,
		"get_rows":  e.getRows.table != nil || e.getRows.ids != nil || e.getRows.out != nil,
		"rope":      e.rope.x != nil || e.rope.table != nil || e.rope.out != nil,
		"softmax":   e.softmax.x != nil || e.softmax.out != nil,
		"argmax":    e.argmax.x != nil || e.argmax.out != nil,
		"add":       e.pointwise[0].in[0] != nil || e.pointwise[0].in[1] != nil || e.pointwise[0].out != nil,
	} {
		if held {
			t.Errorf("%s holds on to its operands", what)
		}
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

func ExampleExecutor() {
	e := NewExecutor(nil)
	of := func(d dtype.DType, mem []byte, dims ...int) op.Operand {
		s := shape.Must(dims...)
		return op.Operand{DType: d, Shape: s, Strides: s.Contiguous(), Mem: op.Mem{Host: mem, Len: len(mem)}}
	}
	// 1 and -2 as bf16, to be read as i8.
	a := op.Args{NIn: 1, Out: [op.MaxOut]op.Operand{of(dtype.I8, make([]byte, 2), 2)}}
	a.In[0] = of(dtype.BF16, []byte{0x80, 0x3f, 0x00, 0xc0}, 2)
	if err := e.Execute(context.Background(), op.Copy, &a); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(int8(a.Out[0].Mem.Host[0]), int8(a.Out[0].Mem.Host[1]))

	// Row 2 of a table of two rows.
	a = op.Args{NIn: 2, Out: [op.MaxOut]op.Operand{of(dtype.F32, make([]byte, 8), 1, 2)}}
	a.In[0] = of(dtype.F32, make([]byte, 16), 2, 2)
	a.In[1] = of(dtype.I32, []byte{2, 0, 0, 0}, 1)
	fmt.Println(e.Execute(context.Background(), op.GetRows, &a))
	// Output:
	// 1 -2
	// cpu: get_rows: ids[0] is 2, want a row from 0 to 1 of the table's 2 rows
}
