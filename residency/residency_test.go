//go:build accel

package residency

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/core/storage"
	"github.com/fucina-go/fucina/internal/sim/discrete"
)

var bg = context.Background()

// bench is a manager on a simulated device with two compute queues.
type bench struct {
	t    *testing.T
	dev  *discrete.Device
	m    *Manager
	a, b provider.Queue
}

func newBench(t *testing.T, dev discrete.Options, opt Options) *bench {
	t.Helper()
	x := &bench{t: t}
	var err error
	if x.dev, err = discrete.New(dev); err != nil {
		t.Fatal(err)
	}
	x.m = New(x.dev, opt)
	for _, q := range []*provider.Queue{&x.a, &x.b} {
		if *q, err = x.dev.NewQueue(provider.Compute); err != nil {
			t.Fatal(err)
		}
	}
	return x
}

// close closes the bench and fails the test if anything is left.
func (x *bench) close() {
	x.t.Helper()
	if err := x.m.Close(context.Background()); err != nil {
		x.t.Error(err)
	}
	if s := x.m.Stats(); s != (Stats{Evictions: s.Evictions}) {
		x.t.Errorf("after close: %+v", s)
	}
	if err := x.dev.Close(); err != nil {
		x.t.Error(err)
	}
	if s := x.dev.Stats(); s.LiveBytes != 0 || s.LiveQueues != 0 || s.PinnedBytes != 0 {
		x.t.Errorf("after close, on the device: %+v", s)
	}
}

func (x *bench) acquire(q provider.Queue, n int) (*Block, accel.Fences) {
	x.t.Helper()
	b, uses, err := x.m.Acquire(bg, q.Timeline(), n)
	if err != nil {
		x.t.Fatal(err)
	}
	return b, uses
}

// use submits an op that writes the block, after the given works.
func (x *bench) use(q provider.Queue, b *Block, after accel.Fences) accel.Work {
	x.t.Helper()
	for _, w := range after {
		if err := x.dev.WaitFor(bg, q, w); err != nil {
			x.t.Fatal(err)
		}
	}
	n := b.mem.Len / 4
	o := op.Operand{DType: dtype.F32, Shape: shape.Must(n), Strides: shape.Must(1), Mem: b.mem}
	a := op.Args{NIn: 2, Out: [op.MaxOut]op.Operand{o}}
	a.In[0], a.In[1] = o, o
	w, err := x.dev.Submit(bg, q, op.Add, &a)
	if err != nil {
		x.t.Fatal(err)
	}
	return w
}

// sync waits for the device and ignores its failures, which the test checks itself.
func (x *bench) sync() { _ = x.dev.Sync(context.Background()) }

// A weight's block is as large as the weight, rounded up to a page. Activations of nearby
// sizes share blocks, which are up to an eighth larger.
func TestBlockSize(t *testing.T) {
	for _, tt := range [][3]int{
		{1, 256, 256}, {256, 256, 256}, {257, 512, 512}, {4095, 4096, 4096}, {4096, 4096, 4096}, {4097, 8192, 8192},
		{12288, 12288, 12288}, {12289, 16384, 16384}, {32768, 32768, 32768}, {32769, 36864, 36864},
		{65537, 69632, 73728}, {73728, 73728, 73728}, {73729, 77824, 81920}, {1 << 20, 1 << 20, 1 << 20}, {1<<20 + 1, 1<<20 + 4096, 9 << 17},
		{math.MaxInt, math.MaxInt, math.MaxInt}, {math.MaxInt - 4096, math.MaxInt - 4095, math.MaxInt - 4096},
	} {
		if got := exactSize(tt[0]); got != tt[1] {
			t.Errorf("exactSize(%d) = %d, want %d", tt[0], got, tt[1])
		}
		if got := classSize(tt[0]); got != tt[2] {
			t.Errorf("classSize(%d) = %d, want %d", tt[0], got, tt[2])
		}
	}
	for n, last := 32<<10, 0; n < 1<<22; n += 1000 {
		size := classSize(n)
		if size < n || size-n > n/8 || size < last {
			t.Fatalf("classSize(%d) = %d, after %d", n, size, last)
		}
		last = size
	}
}

// slow is a device whose Alloc and Free wait for a signal.
type slow struct {
	*discrete.Device
	entered, leave chan struct{}
	on             atomic.Bool
	most           int // bytes of the largest allocation; 0 is no limit
}

func (s *slow) wait() {
	if s.on.Load() {
		s.entered <- struct{}{}
		<-s.leave
	}
}

func (s *slow) Alloc(n int) (op.Mem, error) {
	s.wait()
	if s.most != 0 && n > s.most {
		return op.Mem{}, accel.ErrOutOfMemory
	}
	return s.Device.Alloc(n)
}

func (s *slow) Free(m op.Mem) {
	s.wait()
	s.Device.Free(m)
}

func newSlow(t *testing.T, budget int64) (*bench, *slow) {
	t.Helper()
	dev, err := discrete.New(discrete.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := &slow{Device: dev, entered: make(chan struct{}), leave: make(chan struct{})}
	x := &bench{t: t, dev: dev}
	x.m = New(s, Options{Budget: budget})
	if x.a, err = dev.NewQueue(provider.Compute); err != nil {
		t.Fatal(err)
	}
	return x, s
}

// A pending allocation that the device then refuses is not counted against the budget of a
// concurrent request.
func TestRefusedAllocIsNotHeld(t *testing.T) {
	x, s := newSlow(t, 12<<10)
	s.most = 8 << 10
	s.on.Store(true)
	refused, given := make(chan error), make(chan *Block)
	go func() {
		_, _, err := x.m.Acquire(bg, x.a.Timeline(), 12<<10)
		refused <- err
	}()
	<-s.entered
	s.on.Store(false)
	go func() {
		b, _, err := x.m.Acquire(bg, x.a.Timeline(), 8<<10)
		if err != nil {
			t.Error(err)
		}
		given <- b
	}()
	time.Sleep(5 * time.Millisecond) // usually enough for the other request to begin
	s.leave <- struct{}{}
	if err := <-refused; !errors.Is(err, accel.ErrOutOfMemory) {
		t.Errorf("%v, want ErrOutOfMemory", err)
	}
	if b := <-given; b != nil {
		b.Free(nil)
	}
	x.close()
}

// Block.Free and Stats do not wait while another goroutine is in Alloc or Free of the
// provider. A block counts against the budget until Free of the provider has returned.
func TestFreeDuringAlloc(t *testing.T) {
	x, s := newSlow(t, 12<<10)
	m := x.m
	idle, _ := x.acquire(x.a, 4096)
	used, _ := x.acquire(x.a, 256)
	idle.Free(nil)
	s.on.Store(true)
	done := make(chan *Block)
	go func() { // does not fit beside the idle block: calls Free, then Alloc
		b, _, err := m.Acquire(bg, x.a.Timeline(), 6<<10)
		if err != nil {
			t.Error(err)
		}
		done <- b
	}()
	<-s.entered // Free of the idle block
	if st := m.Stats(); st.Idle != 4096 || st.Used != 256 {
		t.Errorf("while a block is taken back: %+v", st)
	}
	s.leave <- struct{}{}
	<-s.entered // Alloc
	if st := m.Stats(); st.Idle != 0 || st.Used != 256 {
		t.Errorf("while a block is allocated: %+v", st)
	}
	used.Free(nil)
	s.on.Store(false)
	s.leave <- struct{}{}
	if b := <-done; b != nil {
		b.Free(nil)
	}
	x.close()
}

// A freed block that work still uses is reused by the same queue at once, the last freed
// block first. Another queue reuses it only once the work has ended.
func TestReuse(t *testing.T) {
	x := newBench(t, discrete.Options{}, Options{})
	x.dev.Hold()
	first, _ := x.acquire(x.a, 1000)
	second, _ := x.acquire(x.a, 1000)
	w1, w2 := x.use(x.a, first, nil), x.use(x.a, second, nil)
	first.Free(accel.Fences{w1})
	second.Free(accel.Fences{w2})
	if s := x.m.Stats(); s.Used != 0 || s.UsedBlocks != 0 || s.Idle != 2048 {
		t.Errorf("two idle blocks: %+v", s)
	}
	other, uses := x.acquire(x.b, 1000)
	if other == first || other == second || len(uses) != 0 {
		t.Error("another queue got a block in use")
	}
	again, uses := x.acquire(x.a, 600)
	if again != second || len(uses) != 1 || uses[0] != w2 {
		t.Errorf("the same queue got another block, or lost its uses %v", uses)
	}
	again.Free(uses)
	x.dev.Release()
	x.sync()
	for range 2 {
		b, _ := x.acquire(x.b, 1000)
		if b != first && b != second {
			t.Error("a block whose uses have ended was not reused")
		}
		defer b.Free(nil)
	}
	other.Free(nil)
	t.Cleanup(x.close)
}

// When memory has run out, another queue gets the block that is still in use, with the
// uses that it must wait for on the device.
func TestReuseUnderPressure(t *testing.T) {
	x := newBench(t, discrete.Options{}, Options{Budget: 4096})
	x.dev.Hold()
	b, _ := x.acquire(x.a, 4096)
	w := x.use(x.a, b, nil)
	b.Free(accel.Fences{w})
	again, uses := x.acquire(x.b, 4096)
	if again != b || len(uses) != 1 || uses[0] != w {
		t.Fatalf("block %p with uses %v, want %p with %v", again, uses, b, w)
	}
	w = x.use(x.b, again, uses)
	again.Free(accel.Fences{w})
	x.dev.Release()
	x.close()
}

// The device may still write to a block behind a failed fence. The block is not reused
// before the failed queue has ended, whether the failure is known before the block is freed
// or after.
func TestQuarantine(t *testing.T) {
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprintf("late=%v", late), func(t *testing.T) {
			x := newBench(t, discrete.Options{Faults: []discrete.Fault{{Kind: discrete.SubmitAsync, Nth: 1}}}, Options{Budget: 8192})
			x.dev.Hold()
			b, _ := x.acquire(x.a, 4096)
			w := x.use(x.a, b, nil)
			if late {
				b.Free(accel.Fences{w})
			}
			x.dev.Release()
			x.sync()
			if !late {
				b.Free(accel.Fences{w})
			}
			for _, q := range []provider.Queue{x.a, x.b} {
				other, _ := x.acquire(q, 4096)
				if other == b {
					t.Error("a block behind a failed fence was handed out")
				}
				other.Free(nil)
			}
			if s := x.m.Stats(); s.Quarantined != 4096 || s.Idle != 4096 {
				t.Errorf("%+v, want one block quarantined and one idle", s)
			}
			// The quarantined block counts against the budget: two more do not fit.
			keep, _ := x.acquire(x.b, 4096)
			if _, _, err := x.m.Acquire(bg, x.b.Timeline(), 4096); !errors.Is(err, accel.ErrOutOfMemory) {
				t.Errorf("over the budget: %v", err)
			}
			if s := x.dev.Stats(); s.Frees != 0 {
				t.Errorf("%d blocks were given back", s.Frees)
			}
			if err := x.dev.CloseQueue(x.a); err != nil {
				t.Fatal(err)
			}
			if late {
				if s := x.m.Stats(); s.Quarantined != 0 || s.Idle != 4096 {
					t.Errorf("%+v after the queue's end, want one block idle", s)
				}
			}
			again, uses := x.acquire(x.b, 4096)
			if again != b || len(uses) != 0 {
				t.Errorf("block %p with uses %v after the queue's end, want %p without", again, uses, b)
			}
			again.Free(nil)
			keep.Free(nil)
			x.close()
		})
	}
}

// The manager holds no more than the budget. The error names the held bytes and the budget.
func TestBudget(t *testing.T) {
	x := newBench(t, discrete.Options{}, Options{Budget: 13000})
	b, _ := x.acquire(x.a, 4096)
	c, _ := x.acquire(x.a, 4096)
	_, _, err := x.m.Acquire(bg, x.a.Timeline(), 5000)
	if !errors.Is(err, accel.ErrOutOfMemory) || !strings.Contains(err.Error(), "8192") || !strings.Contains(err.Error(), "13000") {
		t.Errorf("%v: want the held bytes and the budget", err)
	}
	if _, _, err := x.m.Acquire(bg, x.a.Timeline(), math.MaxInt); !errors.Is(err, accel.ErrOutOfMemory) {
		t.Errorf("a block of the whole budget: %v", err)
	}
	// Idle blocks of another size are freed to make room.
	b.Free(nil)
	d, _ := x.acquire(x.a, 5000)
	if s := x.m.Stats(); s.Used != 4096+8192 || s.Idle != 0 {
		t.Errorf("%+v", s)
	}
	c.Free(nil)
	d.Free(nil)
	x.close()
}

// weight returns a stable host buffer of n bytes of value v.
func (x *bench) weight(n int, v byte) *storage.Buffer {
	x.t.Helper()
	b := storage.Borrow(bytes.Repeat([]byte{v}, n), storage.BorrowOptions{ReadOnly: true})
	b.MarkStable()
	return b
}

// ensure makes the weights resident for one op on queue a, and reports whether the call adopted
// the last one.
func (x *bench) ensure(list ...*storage.Buffer) (adopted bool) {
	x.t.Helper()
	var needs storage.Needs
	for _, b := range list {
		var err error
		if adopted, err = x.m.Ensure(bg, b, x.a.Timeline(), true); err != nil {
			x.t.Fatal(err)
		}
		if _, err := b.BeginDevice(bg, x.a.Timeline(), storage.Read, &needs); err != nil {
			x.t.Fatal(err)
		}
		defer b.EndDevice(storage.Read, accel.Work{}, true, nil)
	}
	return adopted
}

func resident(list ...*storage.Buffer) string {
	var s strings.Builder
	for _, b := range list {
		if b.DeviceMemory() != nil {
			s.WriteByte('1')
		} else {
			s.WriteByte('0')
		}
	}
	return s.String()
}

// The weight with the latest expected use is evicted first: among weights that were used
// once, the last used one. A weight that an op is being prepared on stays, and so does one
// whose newest bytes only the device has.
func TestEvictionOrder(t *testing.T) {
	x := newBench(t, discrete.Options{}, Options{Budget: 4 * 4096})
	w := make([]*storage.Buffer, 4)
	for i := range w {
		w[i] = x.weight(4096, byte(i+1))
		if !x.ensure(w[i]) {
			t.Fatalf("weight %d was not adopted", i)
		}
	}
	if x.ensure(w[0]) { // the latest use of all
		t.Error("adopted twice")
	}
	if s := x.m.Stats(); s.Adopted != 4*4096 || s.UsedBlocks != 4 {
		t.Errorf("%+v", s)
	}
	a, _ := x.acquire(x.a, 4096)
	if got := resident(w...); got != "1110" {
		t.Errorf("resident after the first eviction: %s, want 1110", got)
	}
	var needs storage.Needs
	if _, err := w[2].BeginDevice(bg, x.a.Timeline(), storage.Read, &needs); err != nil {
		t.Fatal(err)
	}
	b, _ := x.acquire(x.a, 4096)
	if got := resident(w...); got != "1010" {
		t.Errorf("resident after the second: %s, want 1010", got)
	}
	w[2].EndDevice(storage.Read, accel.Work{}, true, nil)
	if s := x.m.Stats(); s.Evictions != 2 || s.Adopted != 2*4096 {
		t.Errorf("%+v", s)
	}
	// A later use uploads the weight again.
	a.Free(nil)
	if !x.ensure(w[1]) {
		t.Error("an evicted weight was not adopted again")
	}
	got := make([]byte, 4096)
	if _, err := w[1].DeviceMemory().Read(context.Background(), got, 0, x.m.up.made.Load().q.Timeline().Last()); err != nil || got[0] != 2 || got[4095] != 2 {
		t.Errorf("bytes %d and %d, %v", got[0], got[4095], err)
	}
	b.Free(nil)
	for _, w := range w {
		w.Release()
	}
	x.close()
}

// A weight whose newest bytes only the device has is never evicted.
func TestNoEvictionOfNewestBytes(t *testing.T) {
	x := newBench(t, discrete.Options{}, Options{Budget: 4096})
	buf, err := storage.New(4096)
	if err != nil {
		t.Fatal(err)
	}
	buf.MarkStable()
	x.ensure(buf)
	var needs storage.Needs
	if _, err := buf.BeginDevice(bg, x.a.Timeline(), storage.Update, &needs); err != nil {
		t.Fatal(err)
	}
	w := x.use(x.a, buf.DeviceMemory().(*Block), needs.Order)
	buf.EndDevice(storage.Update, w, true, nil)
	if _, _, err := x.m.Acquire(bg, x.a.Timeline(), 4096); !errors.Is(err, accel.ErrOutOfMemory) {
		t.Errorf("acquired the memory of the newest bytes: %v", err)
	}
	if buf.DeviceMemory() == nil {
		t.Error("the newest bytes were dropped")
	}
	buf.Release()
	x.close()
}

// A request evicts only as many weights that are still in use as it needs, and then waits
// for their uses.
func TestEvictionStopsAtEnough(t *testing.T) {
	const n = 8
	x := newBench(t, discrete.Options{Ring: 256}, Options{Budget: n * 4096, Slots: 2 * n})
	x.dev.Hold()
	w := make([]*storage.Buffer, n)
	for i := range w {
		w[i] = x.weight(4096, byte(i+1))
		x.ensure(w[i]) // enqueues its upload
	}
	before := x.dev.Events().Allocs
	done := make(chan *Block)
	go func() {
		b, _, err := x.m.Acquire(bg, x.a.Timeline(), 8192)
		if err != nil {
			t.Error(err)
		}
		done <- b
	}()
	for x.m.Stats().Evictions < 2 {
		runtime.Gosched()
	}
	x.dev.Release()
	b := <-done
	if s := x.m.Stats(); s.Evictions != 2 {
		t.Errorf("%d weights of 4096 bytes evicted for 8192", s.Evictions)
	}
	if x.dev.Events().Allocs != before+1 {
		t.Errorf("%d allocations", x.dev.Events().Allocs-before)
	}
	b.Free(nil)
	for _, w := range w {
		w.Release()
	}
	x.close()
}

// Transfers larger than a slot are split into pieces. The source of an upload may be
// changed as soon as Upload returns.
func TestTransfersInPieces(t *testing.T) {
	for _, chaos := range []discrete.Chaos{discrete.Prompt, discrete.Sleeps} {
		x := newBench(t, discrete.Options{Chaos: chaos}, Options{SlotBytes: 64, Slots: 2})
		b, _ := x.acquire(x.a, 1000)
		src := make([]byte, 1000)
		for i := range src {
			src[i] = byte(i * 7)
		}
		want := bytes.Clone(src)
		w, err := b.Upload(bg, 24, src[:976], nil)
		if err != nil {
			t.Fatal(err)
		}
		clear(src)
		got := make([]byte, 976)
		if _, err := b.Read(context.Background(), got, 24, w); err != nil || !bytes.Equal(got, want[:976]) {
			t.Errorf("read in pieces: %v, bytes right: %v", err, bytes.Equal(got, want[:976]))
		}
		if s := x.dev.Stats(); s.Uploads != 16 || s.Downloads != 16 || s.UploadBytes != 976 {
			t.Errorf("%d uploads, %d downloads of 976 bytes through 64", s.Uploads, s.Downloads)
		}
		direct := make([]byte, 976)
		if w, err = b.Download(bg, direct, 24, w); err == nil {
			err = w.Wait(context.Background())
		}
		if err != nil || !bytes.Equal(direct, want[:976]) {
			t.Errorf("download: %v, bytes right: %v", err, bytes.Equal(direct, want[:976]))
		}
		b.Free(accel.Fences{w})
		x.close()
	}
}

// A cancelled read returns the fence of its copy, so that the block is not given back
// before the copy has ended. The copy's slot is not reused before then either.
func TestCancelledRead(t *testing.T) {
	x := newBench(t, discrete.Options{}, Options{SlotBytes: 64, Slots: 1, Budget: 4096})
	b, _ := x.acquire(x.a, 4096)
	up, err := b.Upload(bg, 0, []byte("some"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := up.Wait(context.Background()); err != nil {
		t.Fatal(err)
	}
	x.dev.Hold()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		for x.dev.Events().Downloads == 0 {
			runtime.Gosched()
		}
		cancel()
	}()
	w, err := b.Read(ctx, make([]byte, 4), 0, up)
	if !errors.Is(err, context.Canceled) || w.IsZero() || w.Done() {
		t.Fatalf("read of a held device: fence %v, %v", w, err)
	}
	// The only slot is in use, so that the next read is cancelled while it waits for the slot.
	if w, err := b.Read(ctx, make([]byte, 4), 0, up); !errors.Is(err, context.Canceled) || !w.IsZero() {
		t.Errorf("second read: fence %v, %v", w, err)
	}
	b.Free(accel.Fences{up, w})
	x.m.trim(1<<20, true)
	if s := x.dev.Stats(); s.Frees != 0 {
		t.Error("the block was given back under the copy")
	}
	x.dev.Release()
	again, _ := x.acquire(x.a, 4096)
	got := make([]byte, 4)
	if _, err := again.Read(context.Background(), got, 0, accel.Work{}); err != nil || string(got) != "some" {
		t.Errorf("read %q, %v", got, err)
	}
	again.Free(nil)
	x.close()
}

// After a transfer queue has failed, Manager.Err and every later transfer return the
// failure.
func TestDeadTransfers(t *testing.T) {
	for _, kind := range []discrete.FaultKind{discrete.UploadAsync, discrete.DownloadAsync} {
		t.Run(kind.String(), func(t *testing.T) {
			x := newBench(t, discrete.Options{Faults: []discrete.Fault{{Kind: kind, Nth: 1}}}, Options{})
			b, _ := x.acquire(x.a, 256)
			if err := x.m.Err(); err != nil {
				t.Error(err)
			}
			w, err := b.Upload(bg, 0, []byte("some"), nil)
			if err != nil {
				t.Fatal(err)
			}
			r, err := b.Read(context.Background(), make([]byte, 4), 0, w)
			if !errors.Is(errors.Join(err, w.Err()), accel.ErrDeviceFailed) {
				t.Errorf("%v, %v: want a failure", err, w.Err())
			}
			var window *accel.WindowError
			if err := x.m.Err(); !errors.As(err, &window) {
				t.Errorf("the manager says %v", err)
			}
			b.Free(accel.Fences{w, r})
			x.close()
		})
	}
}

// Close frees everything but the blocks that buffers still hold, and reports those.
func TestCloseReportsHeldBlocks(t *testing.T) {
	x := newBench(t, discrete.Options{}, Options{})
	b, _ := x.acquire(x.a, 5000)
	c, _ := x.acquire(x.a, 300)
	c.Free(nil)
	err := x.m.Close(context.Background())
	if err == nil || !strings.Contains(err.Error(), "1 device blocks, 8192 bytes") {
		t.Errorf("close with a held block: %v", err)
	}
	if s := x.dev.Stats(); s.LiveBlocks != 1 {
		t.Errorf("%d blocks are left, want the held one", s.LiveBlocks)
	}
	x.dev.Free(b.mem)
	if err := x.dev.Close(); err != nil {
		t.Error(err)
	}
}

// Staging memory is not freed before a concurrent read has copied from it. A read of a
// tensor needs no queue of the caller, so it may run while the engine closes.
func TestCloseUnderReads(t *testing.T) {
	for round := range 30 {
		x := newBench(t, discrete.Options{Chaos: discrete.Yields, Seed: uint64(round)}, Options{SlotBytes: 64, Slots: 2})
		b, _ := x.acquire(x.a, 1024)
		want := bytes.Repeat([]byte("residency"), 1024/9)
		w, err := b.Upload(bg, 0, want, nil)
		if err == nil {
			err = w.Wait(context.Background())
		}
		if err != nil {
			t.Fatal(err)
		}
		var readers sync.WaitGroup
		for range 4 {
			readers.Go(func() {
				got := make([]byte, len(want))
				for {
					if _, err := b.Read(context.Background(), got, 0, w); err != nil {
						if !errors.Is(err, provider.ErrClosed) {
							t.Errorf("read during close: %v", err)
						}
						return
					}
					if !bytes.Equal(got, want) {
						t.Error("read during close: wrong bytes")
						return
					}
				}
			})
		}
		for x.dev.Events().Downloads < 20 {
			runtime.Gosched()
		}
		_ = x.m.Close(context.Background()) // the block is still held
		readers.Wait()
		x.dev.Free(b.mem)
		if err := x.dev.Close(); err != nil {
			t.Error(err)
		}
	}
}

// plain is a device without pinned memory.
type plain struct{ provider.Device }

// If the provider has no pinned memory, the manager allocates the staging memory itself.
func TestPlainStaging(t *testing.T) {
	dev, err := discrete.New(discrete.Options{Chaos: discrete.Yields})
	if err != nil {
		t.Fatal(err)
	}
	m := New(plain{dev}, Options{SlotBytes: 128, Slots: 2})
	b, _, err := m.Acquire(bg, nil, 512)
	if err != nil {
		t.Fatal(err)
	}
	src, got := bytes.Repeat([]byte("abcd"), 128), make([]byte, 512)
	w, err := b.Upload(bg, 0, src, nil)
	if err == nil {
		_, err = b.Read(context.Background(), got, 0, w)
	}
	if err != nil || !bytes.Equal(got, src) {
		t.Errorf("%v, bytes right: %v", err, bytes.Equal(got, src))
	}
	if s := dev.Stats(); s.PinnedBytes != 0 {
		t.Errorf("%d pinned bytes", s.PinnedBytes)
	}
	b.Free(accel.Fences{w})
	if err := errors.Join(m.Close(context.Background()), dev.Close()); err != nil {
		t.Error(err)
	}
}

// Goroutines that use, evict and read the same weights agree on their bytes.
func TestConcurrentPressure(t *testing.T) {
	x := newBench(t, discrete.Options{Chaos: discrete.Yields, Seed: 7}, Options{Budget: 3 * 4096, SlotBytes: 1024})
	w := make([]*storage.Buffer, 5)
	for i := range w {
		w[i] = x.weight(4096, byte(i+1))
	}
	var wg sync.WaitGroup
	for g := range 3 {
		wg.Go(func() {
			q, err := x.dev.NewQueue(provider.Compute)
			if err != nil {
				t.Error(err)
				return
			}
			for i := range 60 {
				k := (i*(g+2) + g) % len(w)
				if _, err := x.m.Ensure(bg, w[k], q.Timeline(), true); err != nil {
					if !errors.Is(err, accel.ErrOutOfMemory) {
						t.Error(err)
					}
					continue
				}
				var needs storage.Needs
				mem, err := w[k].BeginDevice(bg, q.Timeline(), storage.Read, &needs)
				if errors.Is(err, storage.ErrNoDeviceMemory) {
					continue // another goroutine has evicted it meanwhile
				}
				if err != nil {
					t.Error(err)
					return
				}
				var got [8]byte
				for _, d := range needs.Order {
					if err := d.Wait(context.Background()); err != nil {
						t.Error(err)
					}
				}
				if _, err := mem.Read(context.Background(), got[:], 100, accel.Work{}); err != nil || got != [8]byte(bytes.Repeat([]byte{byte(k + 1)}, 8)) {
					t.Errorf("weight %d: %v, %v", k, got, err)
				}
				w[k].EndDevice(storage.Read, accel.Work{}, true, nil)
			}
		})
	}
	wg.Wait()
	for _, w := range w {
		w.Release()
	}
	x.close()
}
