//go:build accel

package discrete

import (
	"context"
	"errors"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/tests/leak"
)

var errCause = errors.New("the test's cause")

func TestFaultErrors(t *testing.T) {
	cases := []struct {
		kind FaultKind
		want error
		call func(b *bench, q provider.Queue, x op.Mem) error
	}{
		{SubmitError, accel.ErrDeviceFailed, func(b *bench, q provider.Queue, x op.Mem) error {
			_, err := b.Submit(bg, q, op.Copy, args(x, x))
			return err
		}},
		{UploadError, accel.ErrDeviceFailed, func(b *bench, q provider.Queue, x op.Mem) error {
			_, err := b.Upload(bg, q, x, fill(4, 1))
			return err
		}},
		{DownloadError, accel.ErrDeviceFailed, func(b *bench, q provider.Queue, x op.Mem) error {
			_, err := b.Download(bg, q, make([]byte, 16), x)
			return err
		}},
		{AllocError, accel.ErrOutOfMemory, func(b *bench, _ provider.Queue, _ op.Mem) error {
			m, err := b.Alloc(16)
			b.Free(m)
			return err
		}},
	}
	for _, c := range cases {
		t.Run(c.kind.String(), func(t *testing.T) {
			b := open(t, Options{})
			q := b.queue(provider.Compute)
			x := b.alloc(4)
			if err := b.Inject(Fault{Kind: c.kind, Nth: 2, Err: errCause}); err != nil {
				t.Fatal(err)
			}
			if err := c.call(b, q, x); err != nil {
				t.Fatal(err)
			}
			issued := q.Timeline().Issued()
			if err := c.call(b, q, x); !errors.Is(err, c.want) || !errors.Is(err, errCause) {
				t.Errorf("got %v", err)
			}
			if q.Timeline().Issued() != issued {
				t.Error("the failed call was enqueued")
			}
			if err := c.call(b, q, x); err != nil {
				t.Errorf("after the fault: %v", err)
			}
			if err := b.Sync(context.Background()); err != nil {
				t.Error(err)
			}
			b.free(x)
			b.close(q)
		})
	}
}

// A fault on a queue counts only the events of that queue, and ends with the queue.
func TestFaultOnQueue(t *testing.T) {
	b := open(t, Options{})
	hit, other := b.queue(provider.Compute), b.queue(provider.Compute)
	x := b.alloc(4)
	submit := func(q provider.Queue) error {
		_, err := b.Submit(bg, q, op.Copy, args(x, x))
		return err
	}
	if err := b.Inject(Fault{Kind: AllocError, Nth: 1, On: hit}); err == nil {
		t.Error("a fault of allocations on a queue was armed")
	}
	if err := b.Inject(Fault{Kind: SubmitError, Nth: 2, On: hit, Err: errCause}); err != nil {
		t.Fatal(err)
	}
	for i, q := range []provider.Queue{other, other, hit, other, hit, hit, other} {
		if err := submit(q); errors.Is(err, errCause) != (i == 4) {
			t.Errorf("submission %d: %v", i, err)
		}
	}
	if err := b.Inject(Fault{Kind: SubmitError, Nth: 1, On: hit}); err != nil {
		t.Fatal(err)
	}
	if err := b.Sync(bg); err != nil {
		t.Error(err)
	}
	b.close(hit)
	if n := len(b.faults); n != 0 {
		t.Errorf("%d faults are armed on a closed queue", n)
	}
	if err := b.Inject(Fault{Kind: SubmitError, Nth: 1}); err != nil {
		t.Fatal(err)
	}
	b.Disarm()
	if err := submit(other); err != nil {
		t.Error(err)
	}
	if err := b.Sync(bg); err != nil {
		t.Error(err)
	}
	b.free(x)
	b.close(other)
}

func TestAsyncFaults(t *testing.T) {
	for _, sync := range []bool{false, true} {
		for kind, ops := range map[FaultKind]string{
			UploadAsync: "upload, copy, download", SubmitAsync: "copy, download", DownloadAsync: "download",
		} {
			b := open(t, Options{Sync: sync, Faults: []Fault{{Kind: kind, Nth: 1, Err: errCause}}})
			q, other := b.queue(provider.Compute), b.queue(provider.Compute)
			x, y := b.alloc(4), b.alloc(4)
			p := fill(4, 9)
			if !sync {
				b.Hold()
			}
			_, err1 := b.Upload(bg, q, x, fill(4, 1))
			_, err2 := b.Submit(bg, q, op.Copy, args(y, x))
			w, err3 := b.Download(bg, q, p, y)
			dependent := accel.Work{}
			if !sync {
				if err := errors.Join(err1, err2, err3); err != nil {
					t.Fatal(err)
				}
				b.after(other, w)
				dependent = b.must(b.Upload(bg, other, x, fill(4, 3)))
			} else {
				ops = ops[:len(ops)-len(", download")*boolInt(kind != DownloadAsync)]
				if kind == UploadAsync {
					ops = "upload"
				}
			}
			b.Release()

			var window *accel.WindowError
			err := b.Sync(context.Background())
			if !errors.Is(err, accel.ErrDeviceFailed) || !errors.Is(err, errCause) || !errors.As(err, &window) {
				t.Fatalf("%s: %v", kind, err)
			}
			first := map[FaultKind]uint64{UploadAsync: 1, SubmitAsync: 2, DownloadAsync: 3}[kind]
			if window.Queue != "compute#1" || window.First != first || window.Last != q.Timeline().Issued() || window.Ops != ops {
				t.Errorf("%s: window %+v, want from %d with %s", kind, window, first, ops)
			}
			if _, err := b.Submit(bg, q, op.Copy, args(y, x)); !errors.As(err, &window) {
				t.Errorf("submit to a dead queue: %v", err)
			}
			if _, err := b.Download(bg, q, p, y); !errors.Is(err, errCause) {
				t.Errorf("download on a dead queue: %v", err)
			}
			if !sync {
				if err := errors.Join(dependent.Wait(bg), other.Timeline().Dead()); err != nil {
					t.Errorf("%s: work that was only ordered after what failed: %v", kind, err)
				}
			}
			switch {
			case kind == DownloadAsync && !allNaN(floats(p)):
				t.Errorf("the destination of a failed download is %v", floats(p))
			case kind == SubmitAsync:
				fresh := b.queue(provider.Compute)
				if got := b.read(fresh, y, accel.Work{}); !allNaN(got) {
					t.Errorf("the output of a failed operation is %v", got)
				}
				b.close(fresh)
			}
			b.free(x, y)
			b.close(q, other)
		}
	}
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Work that was executed before a failure but not reported fails too, because a device's
// report covers several operations.
func TestWindowIsWiderThanTheFault(t *testing.T) {
	wide := false
	for seed := uint64(0); seed < 50 && !wide; seed++ {
		b := open(t, Options{Seed: seed, Chaos: Yields, Faults: []Fault{{Kind: SubmitAsync, Nth: 6}}})
		q := b.queue(provider.Compute)
		x := b.alloc(4)
		b.Hold()
		for range 8 {
			b.must(b.Submit(bg, q, op.Copy, args(x, x)))
		}
		b.Release()
		err := q.Timeline().Last().Wait(context.Background())
		var window *accel.WindowError
		if !errors.As(err, &window) || window.First > 6 || window.Last != 8 || window.First != q.Timeline().Completed()+1 {
			t.Fatalf("seed %d: %v", seed, err)
		}
		wide = window.First < 6
		b.free(x)
		b.close(q)
	}
	if !wide {
		t.Error("50 seeds without a report of several works")
	}
}

func TestKernelErrorFailsTheQueue(t *testing.T) {
	b := open(t, Options{})
	q := b.queue(provider.Compute)
	x := b.alloc(4)
	w := b.must(b.Submit(bg, q, op.Argmax, args(x, x)))
	if err := w.Wait(context.Background()); !errors.Is(err, errKernel) || !errors.Is(err, accel.ErrDeviceFailed) {
		t.Errorf("got %v", err)
	}
	b.free(x)
	b.close(q)
}

func TestPoisonKeepsToTheView(t *testing.T) {
	b := open(t, Options{Faults: []Fault{{Kind: SubmitAsync, Nth: 1}}})
	q := b.queue(provider.Compute)
	x := b.alloc(6)
	w := b.must(b.Upload(bg, q, x, fill(6, 1)))
	a := args(x.Slice(0, 8), x.Slice(0, 8))
	a.Out[0].Mem, a.Out[0].Offset = x, 1
	a.Out[0].Strides.Set(0, 3) // elements 1 and 4
	b.must(b.Submit(bg, q, op.Copy, a))
	if err := b.Sync(context.Background()); err == nil {
		t.Fatal("no failure")
	}
	fresh := b.queue(provider.Compute)
	for i, v := range b.read(fresh, x, w) {
		if poisoned := v != v; poisoned != (i == 1 || i == 4) {
			t.Errorf("element %d is %v", i, v)
		}
	}
	b.free(x)
	b.close(q, fresh)
}

func TestLoss(t *testing.T) {
	for nth := 1; nth <= 3; nth++ {
		before := leak.Now()
		b := dirty(t, Options{Ring: 2, Chaos: Sleeps, Faults: []Fault{{Kind: Loss, Nth: 2 + nth, Err: errCause}}})
		q, idle, waiting := b.queue(provider.Compute), b.queue(provider.Compute), b.queue(provider.Compute)
		x := b.alloc(4)
		never := accel.NewTimeline("elsewhere", nil).Issue()
		b.after(waiting, never)
		stuck := b.must(b.Upload(bg, waiting, x, fill(4, 1)))
		held := b.must(b.Download(bg, idle, make([]byte, 16), b.alloc(4)))
		b.wait(held)
		b.Hold()
		var pending accel.Work
		var err error
		calls := []func() error{
			func() (err error) { pending, err = b.Upload(bg, q, x, fill(4, 1)); return },
			func() (err error) { pending, err = b.Submit(bg, q, op.Copy, args(x, x)); return },
			func() (err error) { pending, err = b.Download(bg, q, make([]byte, 16), x); return },
		}
		for i, call := range calls {
			w := pending
			if err = call(); (err != nil) != (i+1 >= nth) {
				t.Fatalf("loss at call %d: call %d: %v", nth, i+1, err)
			}
			if err != nil {
				if !errors.Is(err, accel.ErrDeviceLost) || !errors.Is(err, errCause) {
					t.Errorf("call %d: %v", i+1, err)
				}
				pending = w
			}
			time.Sleep(time.Millisecond) // so that the worker waits for Release
		}
		for _, w := range []accel.Work{pending, stuck} {
			if err := w.Wait(context.Background()); !w.IsZero() && !errors.Is(err, accel.ErrDeviceLost) {
				t.Errorf("pending work: %v", err)
			}
		}
		if held.Err() != nil {
			t.Error("completed work failed")
		}
		if _, err := b.Alloc(4); !errors.Is(err, accel.ErrDeviceLost) {
			t.Errorf("alloc: %v", err)
		}
		if _, err := b.AllocPinned(4); !errors.Is(err, accel.ErrDeviceLost) {
			t.Errorf("alloc of pinned memory: %v", err)
		}
		if _, err := b.NewQueue(provider.Compute); !errors.Is(err, accel.ErrDeviceLost) {
			t.Errorf("new queue: %v", err)
		}
		if err := b.WaitFor(bg, idle, stuck); !errors.Is(err, accel.ErrDeviceLost) {
			t.Errorf("wait: %v", err)
		}
		for idle.Timeline().Dead() == nil {
			runtime.Gosched()
		}
		if err := b.Sync(context.Background()); !errors.Is(err, accel.ErrDeviceLost) {
			t.Errorf("sync: %v", err)
		}
		b.close(q, idle)
		b.free(x, op.Mem{ID: x.ID + 1, Len: 16})
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if err := before.Left(); err != nil {
			t.Error(err)
		}
	}
}

func TestDeadQueueDrainsAFullRing(t *testing.T) {
	b := open(t, Options{Ring: 2, Faults: []Fault{{Kind: SubmitAsync, Nth: 1}}})
	q := b.queue(provider.Compute)
	x := b.alloc(4)
	b.Hold()
	done := make(chan error)
	go func() {
		for {
			if _, err := b.Submit(bg, q, op.Copy, args(x, x)); err != nil {
				done <- err
				return
			}
		}
	}()
	for q.Timeline().Issued() < 3 {
		runtime.Gosched()
	}
	b.Release()
	var window *accel.WindowError
	if err := <-done; !errors.As(err, &window) || window.First != 1 || window.Ops != "copy, copy, copy" {
		t.Errorf("got %v", err)
	}
	b.free(x)
	b.close(q)
}

func TestPoisonIsNaN(t *testing.T) {
	p := make([]byte, 101)
	poison(p)
	for i := 0; i+4 <= len(p); i += 4 {
		v := uint32(p[i]) | uint32(p[i+1])<<8 | uint32(p[i+2])<<16 | uint32(p[i+3])<<24
		if !math.IsNaN(float64(math.Float32frombits(v))) || int32(v) >= 0 {
			t.Fatalf("byte %d: %#x", i, v)
		}
		if h := uint16(v); h&0x7C00 != 0x7C00 || h&0x3FF == 0 {
			t.Fatalf("byte %d: %#x is not an f16 NaN", i, h)
		}
	}
}

// Failed work does not fail a queue that waits for it: a queue of any kind continues. A
// reader of results checks the works that they come from.
func TestQueueOutlivesDependency(t *testing.T) {
	for _, kind := range []provider.QueueKind{provider.Compute, provider.UploadQueue, provider.DownloadQueue} {
		b := open(t, Options{Faults: []Fault{{Kind: SubmitAsync, Nth: 1, Err: errCause}}})
		q, other := b.queue(provider.Compute), b.queue(kind)
		x, y := b.alloc(4), b.alloc(4)
		up := b.must(b.Upload(bg, q, x, fill(4, 1)))
		b.Hold()
		failing := b.must(b.Submit(bg, q, op.Copy, args(y, x)))
		b.after(other, failing)
		p := fill(4, 0)
		w := b.must(b.Download(bg, other, p, x))
		b.Release()
		if err := w.Wait(bg); err != nil {
			t.Errorf("%s: work after the wait: %v", kind, err)
		}
		if err := errors.Join(up.Err(), other.Timeline().Dead()); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		if err := failing.Err(); !errors.Is(err, errCause) {
			t.Errorf("%s: the failing work: %v", kind, err)
		}
		if got := floats(p); got[0] != 1 {
			t.Errorf("%s: downloaded %v, want ones", kind, got)
		}
		b.free(x, y)
		b.close(q, other)
	}
}

// A queue that fails while it waits, before any work was submitted behind the wait, still
// fails with a window. That happens if its device is closed while it waits for another
// device.
func TestWindowOfWait(t *testing.T) {
	b := open(t, Options{})
	q := b.queue(provider.Compute)
	b.after(q, accel.NewTimeline("another device", nil).Issue())
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	var window *accel.WindowError
	err := q.Timeline().Dead()
	if !errors.As(err, &window) || window.Queue != "compute#1" || window.First != 1 || window.Last != 1 || window.Ops != "wait" {
		t.Errorf("window %+v", window)
	}
	if !errors.Is(err, provider.ErrClosed) || !errors.Is(err, accel.ErrDeviceFailed) {
		t.Errorf("the queue died of %v", err)
	}
}
