//go:build accel

package residency

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/core/storage"
	"github.com/fucina-go/fucina/internal/invariants"
	"github.com/fucina-go/fucina/internal/sim/discrete"
)

// busy returns an idle block of n bytes that work on queue a still uses. The device is
// held, so that the work does not end.
func (x *bench) busy(n int) *Block {
	x.t.Helper()
	b, uses := x.acquire(x.a, n)
	w := x.use(x.a, b, uses)
	b.Free(accel.Fences{w})
	return b
}

// A search for memory ends with its context, evicts nothing once its context has ended, and
// does not block other searches while it waits.
func TestCancelledSearch(t *testing.T) {
	x := newBench(t, discrete.Options{}, Options{Budget: 12 << 10})
	w := x.weight(4096, 1)
	x.ensure(w)
	x.sync()
	x.dev.Hold()
	x.busy(8 << 10)

	gone, cancel := context.WithCancel(bg)
	cancel()
	if _, _, err := x.m.Acquire(gone, x.b.Timeline(), 4096); !errors.Is(err, context.Canceled) {
		t.Errorf("search with a context that has ended: %v", err)
	}
	if s := x.m.Stats(); s.Evictions != 0 {
		t.Errorf("%d weights were evicted for a context that has ended", s.Evictions)
	}

	ctx, cancel := context.WithCancel(bg)
	defer cancel()
	before := x.dev.Events().Allocs
	waiting := make(chan error)
	go func() {
		_, _, err := x.m.Acquire(ctx, x.b.Timeline(), 12<<10) // the whole budget
		waiting <- err
	}()
	for range 1000 { // a search that held a lock would take it within these yields
		runtime.Gosched()
	}
	b, _ := x.acquire(x.b, 4096)  // evicts the weight
	c, _ := x.acquire(x.b, 8<<10) // the memory in use, which x.b follows
	if s := x.m.Stats(); s.Evictions != 1 {
		t.Errorf("%+v, want one eviction", s)
	}
	if n := x.dev.Events().Allocs; n != before {
		t.Errorf("the provider was asked for %d blocks beyond the budget", n-before)
	}
	select {
	case err := <-waiting:
		t.Errorf("the search for a block in use returned: %v", err)
	default:
	}
	cancel()
	if err := <-waiting; !errors.Is(err, context.Canceled) {
		t.Errorf("search with a context that ends: %v", err)
	}
	x.dev.Release()
	x.sync()
	b.Free(nil)
	c.Free(nil)
	w.Release()
	x.close()
}

// A request that waits for an allocation of another goroutine returns when its context
// ends.
func TestCancelBehindProvider(t *testing.T) {
	x, s := newSlow(t, 1<<20)
	s.on.Store(true)
	given := make(chan *Block)
	go func() {
		b, _, err := x.m.Acquire(bg, x.a.Timeline(), 4096)
		if err != nil {
			t.Error(err)
		}
		given <- b
	}()
	<-s.entered
	ctx, cancel := context.WithCancel(bg)
	waiting := make(chan error)
	go func() {
		_, _, err := x.m.Acquire(ctx, x.a.Timeline(), 4096)
		waiting <- err
	}()
	cancel()
	if err := <-waiting; !errors.Is(err, context.Canceled) {
		t.Errorf("behind an allocation: %v", err)
	}
	s.on.Store(false)
	s.leave <- struct{}{}
	if b := <-given; b != nil {
		b.Free(nil)
	}
	x.close()
}

// limited is a device with a largest allocation.
type limited struct {
	*discrete.Device
	most int64
}

func (l *limited) Info() provider.Info {
	info := l.Device.Info()
	info.MaxAlloc = l.most
	return info
}

// A request that can never be met is refused at once, every time. It evicts no weight, and
// its error names the requested and the available bytes.
func TestNeverFits(t *testing.T) {
	const budget = 40 << 10
	tests := []struct {
		name    string
		memory  int64 // bytes of the device
		most    int64 // bytes of the largest allocation
		used    int   // bytes of activations
		pinned  bool  // an op is being prepared on one of the two weights
		request int
		asks    int // calls of the provider per request
		says    []int
	}{
		{name: "more than the budget", request: budget + 1, says: []int{44 << 10, budget}},
		{name: "more than an allocation can be", most: 16 << 10, request: 16<<10 + 1, says: []int{20 << 10, 16 << 10, budget}},
		{name: "more than is not in use", used: 16 << 10, request: 28 << 10, says: []int{28 << 10, budget}},
		{name: "more than the weights that can go", used: 16 << 10, pinned: true, request: 24 << 10, says: []int{24 << 10, budget}},
		{name: "more than the device has", memory: 28 << 10, request: 32 << 10, says: []int{32 << 10, 28 << 10}},
		{name: "more than the device has to spare, within the budget", memory: 28 << 10, used: 12 << 10, request: 20 << 10, asks: 2, says: []int{20 << 10, 28 << 10}},
		{name: "more than the device has to spare, beyond the budget", memory: 28 << 10, used: 16 << 10, request: 20 << 10, says: []int{20 << 10, budget}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dev, err := discrete.New(discrete.Options{MemoryBytes: tt.memory})
			if err != nil {
				t.Fatal(err)
			}
			x := &bench{t: t, dev: dev, m: New(&limited{dev, tt.most}, Options{Budget: budget})}
			if x.a, err = dev.NewQueue(provider.Compute); err != nil {
				t.Fatal(err)
			}
			ws := loop{x.weight(4096, 1), x.weight(4096, 2)}
			x.step(ws)
			var used *Block
			if tt.used > 0 {
				used, _ = x.acquire(x.a, tt.used)
			}
			if tt.pinned {
				var needs storage.Needs
				if _, err := ws[0].BeginDevice(bg, x.a.Timeline(), storage.Read, &needs); err != nil {
					t.Fatal(err)
				}
			}
			before := dev.Events().Allocs
			const times = 3
			for range times {
				_, _, err := x.m.Acquire(bg, x.a.Timeline(), tt.request)
				if !errors.Is(err, accel.ErrOutOfMemory) {
					t.Fatalf("error %v, want ErrOutOfMemory", err)
				}
				for _, n := range tt.says {
					if !strings.Contains(err.Error(), strconv.Itoa(n)) {
						t.Errorf("error %q does not name %d bytes", err, n)
					}
				}
			}
			if s := x.m.Stats(); s.Evictions != 0 || resident(ws...) != "11" {
				t.Errorf("%d weights were evicted", s.Evictions)
			}
			if n := dev.Events().Allocs - before; n != tt.asks*times {
				t.Errorf("the provider was asked %d times, want %d", n, tt.asks*times)
			}
			if tt.pinned {
				ws[0].EndDevice(storage.Read, accel.Work{}, true, nil)
			}
			if used != nil {
				used.Free(nil)
			}
			ws.release()
			x.close()
		})
	}
}

// A request that fits the budget succeeds even if its size class does not fit.
func TestExactSizeAtTheLimit(t *testing.T) {
	const budget = 100 << 10 // between two classes
	x := newBench(t, discrete.Options{}, Options{Budget: budget})
	if classSize(budget) <= budget {
		t.Fatalf("%d bytes are a class", budget)
	}
	b, _ := x.acquire(x.a, budget)
	b.Free(nil)
	x.close()
}

// Requests whose queue fails hold no memory once the queue is closed, however many there
// are.
func TestQuarantineDoesNotGrow(t *testing.T) {
	x := newBench(t, discrete.Options{}, Options{Budget: 64 << 10})
	for i := range 50 {
		q, err := x.dev.NewQueue(provider.Compute)
		if err != nil {
			t.Fatal(err)
		}
		if err := x.dev.Inject(discrete.Fault{Kind: discrete.SubmitAsync, Nth: 1}); err != nil {
			t.Fatal(err)
		}
		b, uses := x.acquire(q, 4096)
		w := x.use(q, b, uses)
		if err := w.Wait(bg); !errors.Is(err, accel.ErrDeviceFailed) {
			t.Fatalf("round %d: %v, want a failure", i, err)
		}
		b.Free(accel.Fences{w})
		again, uses := x.acquire(x.b, 4096) // must not be b, which the device may still write to
		if again == b {
			t.Fatalf("round %d: a block behind a failed fence was handed out", i)
		}
		again.Free(uses)
		if err := x.dev.CloseQueue(q); err != nil {
			t.Fatal(err)
		}
	}
	if s := x.dev.Stats(); s.Allocs > 3 {
		t.Errorf("%d blocks for one at a time", s.Allocs)
	}
	if s := x.m.Stats(); s.Quarantined != 0 {
		t.Errorf("%+v, want nothing quarantined", s)
	}
	x.close()
}

// A block behind a failed fence is not given back to the provider while its queue is
// open: the device may still write to it.
func TestTrimKeepsFailedBlocks(t *testing.T) {
	x := newBench(t, discrete.Options{Faults: []discrete.Fault{{Kind: discrete.SubmitAsync, Nth: 1}}}, Options{Budget: 12 << 10})
	b, _ := x.acquire(x.a, 4096)
	w := x.use(x.a, b, nil)
	_ = w.Wait(bg)
	b.Free(accel.Fences{w})
	if _, _, err := x.m.Acquire(bg, x.b.Timeline(), 12<<10); !errors.Is(err, accel.ErrOutOfMemory) {
		t.Errorf("a block that needs the quarantined memory: %v", err)
	}
	if s := x.dev.Stats(); s.Frees != 0 {
		t.Errorf("%d blocks were given back", s.Frees)
	}
	if s := x.m.Stats(); s.Quarantined != 4096 || s.Idle != 0 {
		t.Errorf("%+v, want the block quarantined", s)
	}
	if err := x.dev.CloseQueue(x.a); err != nil {
		t.Fatal(err)
	}
	large, _ := x.acquire(x.b, 12<<10)
	large.Free(nil)
	x.close()
}

// An idle block serves smaller requests if that wastes little. Weights and activations
// reuse each other's blocks only when memory has run out.
func TestReuseOfLargerBlocks(t *testing.T) {
	const mb = 1 << 20
	x := newBench(t, discrete.Options{}, Options{Budget: 32 * mb})
	idle, _ := x.acquire(x.a, 8*mb)
	for _, tt := range []struct {
		n    int
		want bool
	}{{8 * mb, true}, {7 * mb, true}, {2 * mb, true}, {2*mb - 1<<18, false}, {4096, false}} {
		idle.Free(nil)
		b, _ := x.acquire(x.a, tt.n)
		if (b == idle) != tt.want {
			t.Errorf("%d bytes in the idle block of %d: %v", tt.n, 8*mb, b == idle)
		}
		if b != idle {
			x.dev.Free(b.mem) // so that it does not serve the next request
			x.m.stats.Used -= int64(b.mem.Len)
			x.m.stats.UsedBlocks--
			idle, _ = x.acquire(x.a, 8*mb)
		}
	}
	small, _ := x.acquire(x.a, mb/2)
	small.Free(nil)
	if b, _ := x.acquire(x.a, 1000); b != small {
		t.Error("a small request did not take the small idle block")
	}
	small.Free(nil)

	w := x.weight(mb/2, 1)
	x.ensure(w)
	if b := w.DeviceMemory().(*Block); b == small {
		t.Error("a weight took the block of an activation")
	} else {
		w.Release()
		if other, _ := x.acquire(x.a, mb/2); other != small {
			t.Error("an activation took the block of a weight, although an idle one of an activation serves it")
		} else if third, _ := x.acquire(x.a, mb/2); third == b {
			t.Error("an activation took the block of a weight while there was memory")
		} else {
			third.Free(nil)
			other.Free(nil)
		}
	}
	idle.Free(nil)
	x.close()
}

// An upload gets the block that was freed first, because it waits for the block's uses. A
// result that the device computes gets the block that was freed last.
func TestFirstFreedIsFilled(t *testing.T) {
	x := newBench(t, discrete.Options{}, Options{})
	first, _ := x.acquire(x.a, 4096)
	second, _ := x.acquire(x.a, 4096)
	for _, host := range []bool{true, false} {
		first.Free(nil)
		second.Free(nil)
		buf := storage.NewLazy(4096)
		want := second
		if host {
			buf.Release()
			var err error
			if buf, err = storage.New(4096); err != nil {
				t.Fatal(err)
			}
			want = first
		}
		if _, err := x.m.Ensure(bg, buf, x.a.Timeline(), false); err != nil {
			t.Fatal(err)
		}
		if buf.DeviceMemory() != accel.Memory(want) {
			t.Errorf("buffer with host bytes %v: the other block", host)
		}
		buf.Release()
		x.acquire(x.a, 4096)
		x.acquire(x.a, 4096)
	}
	first.Free(nil)
	second.Free(nil)
	x.close()
}

// In steady state, acquiring and freeing blocks does not allocate.
func TestReuseAllocatesNothing(t *testing.T) {
	if invariants.RaceEnabled || invariants.Enabled {
		t.Skip("checks allocate")
	}
	x := newBench(t, discrete.Options{}, Options{})
	b, _ := x.acquire(x.a, 4096)
	uses := accel.Fences{x.use(x.a, b, nil)}
	x.sync()
	b.Free(uses)
	if n := testing.AllocsPerRun(100, func() {
		b, _, err := x.m.Acquire(bg, x.a.Timeline(), 4096)
		if err != nil {
			t.Fatal(err)
		}
		b.Free(uses)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	w := x.weight(4096, 1)
	x.ensure(w)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := x.m.Ensure(bg, w, x.a.Timeline(), true); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations for a use of a weight", n)
	}
	w.Release()
	x.close()
}
