//go:build accel

package discrete

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/tests/leak"
)

func TestRoundTrip(t *testing.T) {
	for _, chaos := range []Chaos{Prompt, Yields, Sleeps} {
		b := open(t, Options{Chaos: chaos, Seed: 7})
		q := b.queue(provider.Compute)
		x, y := b.alloc(100), b.alloc(100)
		b.must(b.Upload(bg, q, x, fill(100, 1.5)))
		if w := b.must(b.Submit(bg, q, op.Add, args(y, x, x))); w.Seq() != 2 {
			t.Errorf("seq %d, want 2", w.Seq())
		}
		if got := b.read(q, y, accel.Work{}); !same(got, 3) {
			t.Errorf("chaos %d: got %v", chaos, got[:4])
		}
		st := b.Stats()
		if st.Submits[op.Add] != 1 || st.Ops() != 1 || st.Uploads != 1 || st.Downloads != 1 ||
			st.UploadBytes != 400 || st.DownloadBytes != 400 || st.Allocs != 2 || st.LiveBytes != 800 ||
			st.LiveBlocks != 2 || st.LiveQueues != 1 || b.PeakBytes() != 800 {
			t.Errorf("stats %+v, peak %d", st, b.PeakBytes())
		}
		if e := b.Events(); e != (Events{Submits: 1, Allocs: 2, Uploads: 1, Downloads: 1}) || e.Transfers() != 2 {
			t.Errorf("events %+v", e)
		}
		if in := b.Info(); in.Name != "discrete" || in.HostMemory || in.FreeBytes != DefaultMemory-800 || in.TotalBytes != DefaultMemory {
			t.Errorf("info %+v", in)
		}
		b.free(x, y)
		b.close(q)
	}
}

// relay runs rounds of the chain upload, copy, download over three queues, without waiting
// between rounds. If ordered is true, WaitFor orders the queues. relay reports whether the right
// bytes arrived.
func relay(b *bench, rounds int, ordered bool) bool {
	up, comp, down := b.queue(provider.UploadQueue), b.queue(provider.Compute), b.queue(provider.DownloadQueue)
	const n = 64
	x, y := b.alloc(n), b.alloc(n)
	var last accel.Work
	got := make([][]byte, rounds)
	for i := range rounds {
		if ordered {
			b.after(up, last)
		}
		w := b.must(b.Upload(bg, up, x, fill(n, float32(i))))
		if ordered {
			b.after(comp, w)
		}
		w = b.must(b.Submit(bg, comp, op.Add, args(y, x, x)))
		if ordered {
			b.after(down, w)
		}
		got[i] = make([]byte, y.Len)
		last = b.must(b.Download(bg, down, got[i], y))
	}
	b.close(up, comp, down)
	b.free(x, y)
	for i, p := range got {
		if !same(floats(p), float32(2*i)) {
			return false
		}
	}
	return true
}

func TestQueuesOrderedByWaitFor(t *testing.T) {
	for seed := range uint64(20) {
		b := open(t, Options{Seed: seed, Chaos: Sleeps, MaxDelay: 20 * time.Microsecond})
		if !relay(b, 20, true) {
			t.Errorf("seed %d: wrong bytes", seed)
		}
	}
}

// marker is the environment variable of a test that runs in a process of its own because it
// ends with a race report.
const marker = "DISCRETE_TEST_RACE"

// wantRace runs the calling test again, with marker set, and expects a race report.
func wantRace(t *testing.T) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), marker+"=1")
	if out, err := cmd.CombinedOutput(); err == nil || !bytes.Contains(out, []byte("DATA RACE")) {
		t.Errorf("no race reported: %v\n%s", err, out)
	}
}

// TestMissingWaitFor shows that the simulator finds a missing dependency: by wrong
// bytes, or by a race report.
func TestMissingWaitFor(t *testing.T) {
	run := func() bool {
		for seed := range uint64(200) {
			b := dirty(t, Options{Seed: seed, Chaos: Sleeps})
			good := relay(b, 5, false)
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			if !good {
				return true
			}
		}
		return false
	}
	switch {
	case os.Getenv(marker) != "":
		run()
	case raceEnabled:
		wantRace(t)
	case !run():
		t.Error("200 seeds without a wrong result")
	}
}

// TestMissingWaitForInTime shows that the race detector finds a missing dependency even if
// the works happen to run in the right order, because nothing in the simulator orders two
// workers.
func TestMissingWaitForInTime(t *testing.T) {
	if !raceEnabled {
		t.Skip("needs the race detector")
	}
	// Room that later work finds in the ring of the first queue does not order them either.
	for _, tt := range []struct {
		name           string
		rounds, others int
	}{{"alone", 3, 0}, {"among others", 1, 3}} {
		t.Run(tt.name, func(t *testing.T) {
			if os.Getenv(marker) == "" {
				wantRace(t)
				return
			}
			b := dirty(t, Options{})
			q1, q2 := b.queue(provider.UploadQueue), b.queue(provider.Compute)
			x, y, z := b.alloc(4), b.alloc(4), b.alloc(4)
			for range tt.rounds {
				b.must(b.Upload(bg, q1, x, fill(4, 1)))
				for range tt.others {
					b.must(b.Upload(bg, q1, z, fill(4, 1)))
					time.Sleep(10 * time.Millisecond)
				}
				time.Sleep(10 * time.Millisecond)
				b.must(b.Submit(bg, q2, op.Copy, args(y, x)))
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
}

// An asynchronous upload reads its source when it executes: if the source is reused before,
// the device gets the newer bytes. The race detector would report the fence that the test
// leaves out, so the test holds the device to order the write.
func TestUploadReadsItsSourceLate(t *testing.T) {
	b := open(t, Options{})
	q := b.queue(provider.Compute)
	x := b.alloc(8)
	b.Hold()
	src := fill(8, 1)
	b.must(b.Upload(bg, q, x, src))
	copy(src, fill(8, 2))
	b.Release()
	if got := b.read(q, x, accel.Work{}); !same(got, 2) {
		t.Errorf("got %v, want the bytes at execution", got)
	}
	b.free(x)
	b.close(q)
}

func TestFreshMemoryIsPoisoned(t *testing.T) {
	b := open(t, Options{})
	q := b.queue(provider.Compute)
	x := b.alloc(33)
	if got := b.read(q, x, accel.Work{}); !allNaN(got) {
		t.Errorf("got %v, want NaN", got)
	}
	b.free(x)
	b.close(q)
}

func TestHoldAndStep(t *testing.T) {
	for _, chaos := range []Chaos{Prompt, Yields, Sleeps} {
		b := open(t, Options{Chaos: chaos})
		q, other := b.queue(provider.Compute), b.queue(provider.Compute)
		x, y := b.alloc(4), b.alloc(4)
		b.Hold()
		b.Hold()
		w1 := b.must(b.Upload(bg, q, x, fill(4, 1)))
		w2 := b.must(b.Submit(bg, q, op.Add, args(x, x, x)))
		w3 := b.must(b.Upload(bg, other, y, fill(4, 1)))
		time.Sleep(2 * time.Millisecond)
		if w1.Done() || w2.Done() || w3.Done() {
			t.Fatal("a fence ended while held")
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		if err := b.Sync(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("sync while held: %v", err)
		}
		cancel()
		b.Step(q, 1)
		b.wait(w1)
		if w2.Done() || w3.Done() {
			t.Fatal("one step ended more than one work")
		}
		b.Step(other, 1)
		b.wait(w3)
		if w2.Done() {
			t.Fatal("a step of another queue ended the work")
		}
		b.Step(q, 3)
		b.wait(w2)
		b.Release()
		b.Release()
		if got := b.read(q, x, accel.Work{}); !same(got, 2) {
			t.Errorf("got %v", got)
		}
		b.Hold()
		w := b.must(b.Upload(bg, q, x, fill(4, 1)))
		time.Sleep(time.Millisecond)
		if w.Done() {
			t.Error("a step from before Release let work through")
		}
		b.Release()
		if err := b.Sync(context.Background()); err != nil {
			t.Error(err)
		}
		b.free(x, y)
		b.close(q, other)
	}
}

// slow is a kernel that ends when the test says so.
type slow struct {
	kernels
	began, end chan struct{}
}

func (s slow) Execute(ctx context.Context, id op.ID, a *op.Args) error {
	s.began <- struct{}{}
	<-s.end
	return s.kernels.Execute(ctx, id, a)
}

// Work that executes when the device is held is not reported before Release, whether it
// succeeds or fails.
func TestHoldDuringExecution(t *testing.T) {
	for _, id := range []op.ID{op.Copy, op.Argmax} {
		k := slow{began: make(chan struct{}), end: make(chan struct{})}
		d, err := New(Options{NewExecutor: func() Executor { return k }})
		if err != nil {
			t.Fatal(err)
		}
		b := &bench{t, d}
		q := b.queue(provider.Compute)
		x := b.alloc(4)
		w := b.must(b.Submit(bg, q, id, args(x, x)))
		<-k.began
		b.Hold()
		k.end <- struct{}{}
		time.Sleep(2 * time.Millisecond)
		if w.Done() {
			t.Errorf("%s was reported while held", id)
		}
		b.Release()
		if err := w.Wait(context.Background()); (err != nil) != (id == op.Argmax) {
			t.Error(err)
		}
		b.close(q)
		b.free(x)
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// With Step, a test chooses the order of two queues.
func TestStepsChooseTheInterleaving(t *testing.T) {
	b := open(t, Options{})
	q1, q2 := b.queue(provider.UploadQueue), b.queue(provider.Compute)
	x, y := b.alloc(4), b.alloc(4)
	b.Hold()
	w1 := b.must(b.Upload(bg, q1, x, fill(4, 1)))
	w2 := b.must(b.Submit(bg, q2, op.Copy, args(y, x)))
	b.Step(q2, 1)
	b.wait(w2)
	b.Release()
	b.wait(w1)
	if got := b.read(q2, y, w1); !allNaN(got) {
		t.Errorf("got %v, want what was there before the upload", got)
	}
	b.free(x, y)
	b.close(q1, q2)
}

func TestCompletionIsReorderedAndBatched(t *testing.T) {
	b := open(t, Options{Seed: 3, Chaos: Sleeps})
	q1, q2 := b.queue(provider.Compute), b.queue(provider.Compute)
	x, y := b.alloc(1), b.alloc(1)
	reordered, batched := false, false
	for range 400 {
		w1 := b.must(b.Upload(bg, q1, x, fill(1, 1)))
		b.must(b.Upload(bg, q1, x, fill(1, 1)))
		w2 := b.must(b.Upload(bg, q2, y, fill(1, 1)))
		was := q1.Timeline().Completed()
		b.wait(w2)
		reordered = reordered || !w1.Done()
		b.wait(w1)
		batched = batched || q1.Timeline().Completed() > was+1
	}
	if !reordered || !batched {
		t.Errorf("reordered %t, batched %t in 400 rounds", reordered, batched)
	}
	b.wait(q1.Timeline().Last())
	b.free(x, y)
	b.close(q1, q2)
}

func TestFullRingBlocks(t *testing.T) {
	b := open(t, Options{Ring: 4})
	q := b.queue(provider.Compute)
	x := b.alloc(4)
	b.Hold()
	w := b.must(b.Upload(bg, q, x, fill(4, 0)))
	through := make(chan int, 16)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 8 {
			if _, err := b.Submit(bg, q, op.Copy, args(x, x)); err != nil {
				t.Error(err)
			}
			through <- i
		}
	}()
	for i := range 4 { // the worker holds the upload, the ring four more
		if got := <-through; got != i {
			t.Fatal(got)
		}
	}
	select {
	case <-through:
		t.Error("a fifth submission passed a ring of four")
	case <-time.After(5 * time.Millisecond):
	}
	if w.Done() {
		t.Error("work ended while held")
	}
	b.Release()
	<-done
	b.wait(q.Timeline().Last())

	// The end of a context ends the wait for room, and no point is issued.
	b.Hold()
	for range 5 {
		w = b.must(b.Submit(bg, q, op.Copy, args(x, x)))
	}
	ctx, cancel := context.WithCancel(bg)
	refused := make(chan error)
	go func() {
		_, err := b.Submit(ctx, q, op.Copy, args(x, x))
		refused <- err
	}()
	cancel()
	if err := <-refused; !errors.Is(err, context.Canceled) {
		t.Errorf("submission to a full ring after the end of its context: %v", err)
	}
	if last := q.Timeline().Last(); last != w {
		t.Errorf("op %d was issued for a submission that was refused", last.Seq())
	}
	b.Release()
	b.close(q)
	b.free(x)
}

func TestSubmitAllocatesNothing(t *testing.T) {
	b := open(t, Options{})
	q, up := b.queue(provider.Compute), b.queue(provider.UploadQueue)
	x, y := b.alloc(16), b.alloc(16)
	src, err := b.AllocPinned(64)
	if err != nil {
		t.Fatal(err)
	}
	dst := make([]byte, 64)
	copy(src, fill(16, 1))
	a := args(y, x, x)
	step := func() {
		w, _ := b.Upload(bg, up, x, src)
		_ = b.WaitFor(bg, q, w)
		_, _ = b.Submit(bg, q, op.Add, a)
		w, _ = b.Download(bg, q, dst, y)
		if err := w.Wait(context.Background()); err != nil {
			t.Error(err)
		}
	}
	for range 10 {
		step()
	}
	if n := testing.AllocsPerRun(100, step); n != 0 && !raceEnabled {
		t.Errorf("%v allocations per step", n)
	}
	if !same(floats(dst), 2) {
		t.Errorf("got %v", floats(dst))
	}
	b.FreePinned(src)
	b.free(x, y)
	b.close(q, up)
}

func TestOutOfMemory(t *testing.T) {
	b := open(t, Options{MemoryBytes: 100})
	x := b.alloc(20)
	if _, err := b.Alloc(21); !errors.Is(err, accel.ErrOutOfMemory) {
		t.Errorf("got %v", err)
	}
	y, err := b.Alloc(20)
	if err != nil {
		t.Error(err)
	}
	b.free(x, y)
	z, err := b.Alloc(100)
	if err != nil {
		t.Error(err)
	}
	if st := b.Stats(); st.Allocs != 3 || st.Frees != 2 || b.PeakBytes() != 100 {
		t.Errorf("%+v, peak %d", st, b.PeakBytes())
	}
	b.free(z)
}

// An operation writes each of its outputs, and if it fails, the contents of each are lost. The
// memory of each output is checked. An operand that is absent has no memory.
func TestOutputsAndAbsentOperands(t *testing.T) {
	b := open(t, Options{})
	q := b.queue(provider.Compute)
	x, sum, second := b.alloc(4), b.alloc(4), b.alloc(4)
	b.wait(b.must(b.Upload(bg, q, x, fill(4, 3))))
	both := func() *op.Args {
		a := args(sum, x, x, x)
		a.Out[1] = vector(second)
		return a
	}
	w := b.must(b.Submit(bg, q, op.AddRMSNorm, both()))
	if got := b.read(q, sum, w); !same(got, 6) {
		t.Errorf("the first output is %v, want 6", got)
	}
	if got := b.read(q, second, w); !same(got, 3) {
		t.Errorf("the second output is %v, want 3", got)
	}
	a := args(sum, x, x)
	a.In[2], a.In[3], a.NIn = op.Operand{}, vector(x), 4
	if got := b.read(q, sum, b.must(b.Submit(bg, q, op.Project, a))); !same(got, 3) {
		t.Errorf("the output is %v, want 3", got)
	}
	a = both()
	a.Out[1].Offset = 1
	if _, err := b.Submit(bg, q, op.AddRMSNorm, a); err == nil || !strings.Contains(err.Error(), "the output, f32 [4]") {
		t.Errorf("a second output outside of its memory: %v", err)
	}
	if err := b.Inject(Fault{Kind: SubmitAsync, Nth: 1}); err != nil {
		t.Fatal(err)
	}
	w = b.must(b.Submit(bg, q, op.AddRMSNorm, both()))
	if err := w.Wait(bg); !errors.Is(err, accel.ErrDeviceFailed) {
		t.Errorf("an injected failure: %v", err)
	}
	fresh := b.queue(provider.Compute)
	for i, m := range []op.Mem{sum, second} {
		if got := b.read(fresh, m, accel.Work{}); !allNaN(got) {
			t.Errorf("output %d of an operation that failed is %v", i, got)
		}
	}
	b.free(x, sum, second)
	b.close(q, fresh)
}

func TestBadCalls(t *testing.T) {
	b := open(t, Options{Decline: func(id op.ID, _ *op.Args) string {
		if id == op.Add {
			return "no sums today"
		}
		return ""
	}})
	q := b.queue(provider.Compute)
	x := b.alloc(4)
	if p := b.Plan(op.Add, args(x, x, x)); p.Supported || p.Reason != "no sums today" {
		t.Errorf("plan %+v", p)
	}
	if p := b.Plan(op.Copy, args(x, x)); !p.Supported {
		t.Errorf("plan %+v", p)
	}
	for name, id := range map[string]op.ID{"declined": op.Add, "unknown": 99, "kernel": op.Mul} {
		if w, err := b.Submit(bg, q, id, args(x, x, x)); !errors.Is(err, provider.ErrUnsupported) || !w.IsZero() {
			t.Errorf("%s: %v", name, err)
		}
	}
	for i := range 2 {
		a := args(x, x)
		o := [...]*op.Operand{&a.In[0], &a.Out[0]}[i]
		o.Strides = shape.Must(2)
		if _, err := b.Submit(bg, q, op.Copy, a); err == nil || !strings.Contains(err.Error(), "reaches outside its memory of 16 bytes") {
			t.Errorf("a view outside of its memory: %v", err)
		}
	}
	if _, err := b.Upload(bg, q, x, make([]byte, 3)); err == nil {
		t.Error("upload of another length")
	}
	if _, err := b.Download(bg, q, make([]byte, 3), x); err == nil {
		t.Error("download of another length")
	}
	if _, err := b.Alloc(0); err == nil {
		t.Error("alloc of nothing")
	}
	if err := b.WaitFor(bg, q, accel.Work{}); err != nil {
		t.Error(err)
	}
	other := open(t, Options{})
	foreign := other.queue(provider.Compute)
	if _, err := b.Submit(bg, foreign, op.Copy, args(x, x)); err == nil {
		t.Error("submit to a queue of another device")
	}
	other.close(foreign)
	if err := other.CloseQueue(foreign); !errors.Is(err, provider.ErrClosed) {
		t.Errorf("second close: %v", err)
	}
	if _, err := other.Submit(bg, foreign, op.Copy, args(x, x)); !errors.Is(err, provider.ErrClosed) {
		t.Errorf("submit to a closed queue: %v", err)
	}
	if q.Timeline().Issued() != 0 {
		t.Error("a refused call issued a point")
	}
	for _, opt := range []Options{{Ring: -1}, {MemoryBytes: -1}, {Chaos: 9}, {Faults: []Fault{{}}}, {Faults: []Fault{{Kind: Loss}}}} {
		opt.NewExecutor = newKernels
		if _, err := New(opt); err == nil {
			t.Errorf("options %+v were accepted", opt)
		}
	}
	b.free(x)
	b.close(q)
}

func TestHazards(t *testing.T) {
	failed := func(b *bench, w accel.Work, text string) {
		b.Helper()
		err := w.Wait(context.Background())
		if !errors.Is(err, accel.ErrDeviceFailed) || !strings.Contains(err.Error(), text) {
			b.Errorf("work: %v, want a failure with %q", err, text)
		}
	}
	cases := []struct {
		name string
		want []string
		do   func(b *bench, q provider.Queue, x, y op.Mem)
	}{
		{"freed under work", []string{"op 2 of compute#1 still uses", "freed before the work executed"}, func(b *bench, q provider.Queue, x, y op.Mem) {
			b.Hold()
			w := b.must(b.Submit(bg, q, op.Copy, args(y, x)))
			b.Free(x)
			b.Release()
			failed(b, w, "freed before the work executed")
			b.Free(y)
		}},
		{"use after free", []string{"freed or never allocated"}, func(b *bench, q provider.Queue, x, y op.Mem) {
			b.Free(x)
			failed(b, b.must(b.Submit(bg, q, op.Copy, args(y, x))), "input 0 of copy")
			b.Free(y)
		}},
		{"use of a second output after free", []string{"freed or never allocated"}, func(b *bench, q provider.Queue, x, y op.Mem) {
			a := args(x, x, x, x)
			a.Out[1] = vector(y)
			b.Free(y)
			failed(b, b.must(b.Submit(bg, q, op.AddRMSNorm, a)), "output 1 of add_rms_norm")
			b.Free(x)
		}},
		{"out of range", []string{"which has 16"}, func(b *bench, q provider.Queue, x, y op.Mem) {
			long := x
			long.Off = 8
			failed(b, b.must(b.Download(bg, q, make([]byte, 16), long)), "download")
			b.free(x, y)
		}},
		{"double free", []string{"freed or never allocated"}, func(b *bench, _ provider.Queue, x, y op.Mem) {
			b.free(x, y, x)
		}},
		{"free of a part", []string{"want all 16"}, func(b *bench, _ provider.Queue, x, y op.Mem) {
			b.free(x, y.Slice(0, 8), y)
		}},
		{"host memory", []string{"host memory"}, func(b *bench, q provider.Queue, x, y op.Mem) {
			host := op.Mem{Host: make([]byte, 16), Len: 16}
			if _, err := b.Submit(bg, q, op.Copy, args(host, x)); err == nil {
				b.Error("host memory was accepted")
			}
			b.free(x, y)
		}},
		// Pinned memory is freed while a copy from it is pending.
		{"pinned memory freed under a transfer", []string{"pinned bytes, which op 2 of compute#1 still uses"}, func(b *bench, q provider.Queue, x, y op.Mem) {
			p, err := b.AllocPinned(64)
			if err != nil {
				b.Fatal(err)
			}
			b.Hold()
			w := b.must(b.Upload(bg, q, x, p[16:32]))
			b.FreePinned(p)
			b.Release()
			b.wait(w)
			if got := b.read(q, x, w); !allNaN(got) {
				b.Errorf("got %v, want poison", got)
			}
			b.free(x, y)
		}},
		{"pinned memory freed twice", []string{"pinned bytes"}, func(b *bench, _ provider.Queue, x, y op.Mem) {
			p, err := b.AllocPinned(8)
			if err != nil {
				b.Fatal(err)
			}
			b.FreePinned(p)
			b.FreePinned(p)
			b.free(x, y)
		}},
		{"two submitters", []string{"two goroutines"}, func(b *bench, q provider.Queue, x, y op.Mem) {
			b.Hold()
			var wg sync.WaitGroup
			wg.Go(func() { // blocks in the full ring
				for range 3 {
					b.must(b.Submit(bg, q, op.Copy, args(y, x)))
				}
			})
			for q.Timeline().Issued() < 3 {
				runtime.Gosched()
			}
			wg.Go(func() { b.must(b.Submit(bg, q, op.Copy, args(y, x))) })
			time.Sleep(5 * time.Millisecond)
			b.Release()
			wg.Wait()
			b.wait(q.Timeline().Last())
			b.free(x, y)
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			leak.Check(t)
			b := dirty(t, Options{Ring: 1})
			q := b.queue(provider.Compute)
			x, y := b.alloc(4), b.alloc(4)
			b.wait(b.must(b.Upload(bg, q, x, fill(4, 1))))
			c.do(b, q, x, y)
			b.hazardous(c.want)
		})
	}
}

func TestCloseReportsLeaks(t *testing.T) {
	leak.Check(t)
	b := dirty(t, Options{Chaos: Sleeps})
	q := b.queue(provider.Compute)
	x, y := b.alloc(4), b.alloc(4)
	if _, err := b.AllocPinned(10); err != nil {
		t.Fatal(err)
	}
	b.Hold()
	b.must(b.Upload(bg, q, x, fill(4, 1)))
	w := b.must(b.Submit(bg, q, op.Copy, args(y, x)))
	b.Free(op.Mem{})
	err := b.Close()
	if !w.Done() || w.Err() != nil {
		t.Error("close did not wait for the work")
	}
	for _, want := range []string{"2 allocations with 32 bytes", "1 pinned allocations with 10 bytes"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("close: %v, want %q", err, want)
		}
	}
	if again := b.Close(); !errors.Is(again, err) && again.Error() != err.Error() {
		t.Errorf("second close: %v", again)
	}
	b.Free(x)
	if st := b.Stats(); st.LiveBlocks != 0 || st.LiveBytes != 0 || st.LiveQueues != 0 || st.PinnedBytes != 0 {
		t.Errorf("%+v", st)
	}
	if _, err := b.Alloc(4); !errors.Is(err, provider.ErrClosed) {
		t.Errorf("alloc: %v", err)
	}
	if _, err := b.NewQueue(provider.Compute); !errors.Is(err, provider.ErrClosed) {
		t.Errorf("new queue: %v", err)
	}
	if _, err := b.Upload(bg, q, x, fill(4, 1)); !errors.Is(err, provider.ErrClosed) {
		t.Errorf("upload: %v", err)
	}
}

// If Close runs while a submitter waits for room, the work is refused or executed, and Close
// ends.
func TestCloseWithABlockedSubmitter(t *testing.T) {
	leak.Check(t)
	b := dirty(t, Options{Ring: 1})
	q := b.queue(provider.Compute)
	x := b.alloc(4)
	b.Hold()
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 2 {
			b.must(b.Submit(bg, q, op.Copy, args(x, x)))
		}
		if _, err := b.Submit(bg, q, op.Copy, args(x, x)); err != nil && !errors.Is(err, provider.ErrClosed) {
			t.Error(err)
		}
	})
	for q.Timeline().Issued() < 2 {
		runtime.Gosched()
	}
	closed := make(chan error)
	go func() { closed <- b.CloseQueue(q) }()
	time.Sleep(2 * time.Millisecond)
	b.Free(x)
	if b.Close() == nil {
		t.Error("memory freed under work was not reported")
	}
	wg.Wait()
	// On a slow machine Close may have run first.
	if err := <-closed; err != nil && !errors.Is(err, provider.ErrClosed) {
		t.Error(err)
	}
	if last := q.Timeline().Last(); !last.Done() {
		t.Error("work is left")
	}
}

// A wait for a work of another device that never ends does not hang Close.
func TestWaitForForeignWork(t *testing.T) {
	b := dirty(t, Options{})
	q := b.queue(provider.Compute)
	x := b.alloc(4)
	line := accel.NewTimeline("elsewhere", nil)
	first, second := line.Issue(), line.Issue()
	b.after(q, first)
	w := b.must(b.Upload(bg, q, x, fill(4, 1)))
	time.Sleep(2 * time.Millisecond)
	if w.Done() {
		t.Error("work overtook what it waits for")
	}
	line.Complete(1)
	b.wait(w)
	b.after(q, second)
	w = b.must(b.Upload(bg, q, x, fill(4, 1)))
	b.Close()
	if err := w.Err(); !errors.Is(err, accel.ErrDeviceFailed) || !errors.Is(err, provider.ErrClosed) {
		t.Errorf("got %v", err)
	}
}
