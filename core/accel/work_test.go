package accel

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/fucina-go/fucina/tests/countdown"
)

var errBroken = errors.New("broken")

// pending reports, without waiting, whether w is still to be waited for.
func pending(w Work) bool { return errors.Is(w.Wait(countdown.Cancelled()), context.Canceled) }

func TestZeroWork(t *testing.T) {
	var w Work
	if !w.IsZero() || !w.Done() || w.Err() != nil || w.Seq() != 0 || w.Timeline() != nil {
		t.Errorf("zero Work = %+v", w)
	}
	if err := w.Wait(countdown.Cancelled()); err != nil {
		t.Errorf("waiting for the zero Work: %v", err)
	}
	if last := NewTimeline("q", nil).Last(); !last.IsZero() {
		t.Errorf("last point of a fresh timeline = %+v", last)
	}
}

func TestTimelineCompletes(t *testing.T) {
	q := NewTimeline("q", nil)
	a, b := q.Issue(), q.Issue()
	if a.Seq() != 1 || b.Seq() != 2 || q.Issued() != 2 || q.Last() != b || q.Name() != "q" {
		t.Fatalf("issued %d, %d of %d", a.Seq(), b.Seq(), q.Issued())
	}
	if a.Done() || !pending(a) {
		t.Error("a point is complete before it completed")
	}
	q.Complete(1)
	if !a.Done() || pending(a) || b.Done() || !pending(b) {
		t.Error("completion of 1 is not completion up to 1")
	}
	q.Complete(2)
	q.Complete(1) // going back
	if q.Completed() != 2 || !b.Done() {
		t.Errorf("completed %d, want 2", q.Completed())
	}
	if err := errors.Join(a.Wait(context.Background()), b.Wait(context.Background()), b.Err()); err != nil {
		t.Error(err)
	}
}

func TestFailureWindow(t *testing.T) {
	tests := []struct {
		name        string
		first, last uint64
		completed   uint64 // reported before the failure
		failed      []uint64
		done        []uint64
		waiting     []uint64
	}{
		{"middle", 3, 4, 2, []uint64{3, 4}, []uint64{1, 2}, []uint64{5, 6}},
		{"one", 3, 3, 2, []uint64{3}, []uint64{1, 2}, []uint64{4, 5, 6}},
		{"all", 1, Forever, 0, []uint64{1, 2, 3, 4, 5, 6}, nil, nil},
		{"from 5 on", 5, Forever, 4, []uint64{5, 6}, []uint64{1, 2, 3, 4}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			q := NewTimeline("q", nil)
			works := make([]Work, 7)
			for i := 1; i <= 6; i++ {
				works[i] = q.Issue()
			}
			q.Complete(tt.completed)
			q.Fail(tt.first, tt.last, errBroken)
			for _, i := range tt.failed {
				w := works[i]
				for range 2 { // again: the failure is not used up
					if err := w.Wait(context.Background()); !errors.Is(err, errBroken) {
						t.Errorf("wait for %d: %v", i, err)
					}
				}
				if !w.Done() || !errors.Is(w.Err(), errBroken) {
					t.Errorf("point %d: done %v, error %v", i, w.Done(), w.Err())
				}
			}
			for _, i := range tt.done {
				if w := works[i]; !w.Done() || w.Wait(context.Background()) != nil {
					t.Errorf("point %d, completed before the failure, has it", i)
				}
			}
			for _, i := range tt.waiting {
				if w := works[i]; w.Done() || w.Err() != nil || !pending(w) {
					t.Errorf("point %d after the window has ended", i)
				}
			}
			if dead := q.Dead() != nil; dead != (tt.last == Forever) {
				t.Errorf("dead = %v", dead)
			}
			if w := q.Issue(); (w.Err() != nil) != (tt.last == Forever) {
				t.Errorf("a point issued later has the error %v", w.Err())
			}
			// The queue continues, and the failed points stay failed.
			q.Complete(6)
			for _, i := range tt.failed {
				if err := works[i].Wait(context.Background()); !errors.Is(err, errBroken) {
					t.Errorf("after completion, wait for %d: %v", i, err)
				}
			}
			for _, i := range tt.waiting {
				if err := works[i].Wait(context.Background()); err != nil {
					t.Errorf("after completion, wait for %d: %v", i, err)
				}
			}
		})
	}
}

// A failed point does not end while earlier points run. In Fences it replaces them, so
// that otherwise their memory would be freed while they run.
func TestFailedPointEndsAfterEarlierOnes(t *testing.T) {
	q := NewTimeline("q", nil)
	running, failed := q.Issue(), q.Issue()
	var uses Fences
	uses.Add(running)
	uses.Add(failed)
	q.Fail(2, 2, errBroken)
	if failed.Done() || uses.Done() || !pending(failed) {
		t.Error("the failed point has ended while point 1 runs")
	}
	if err := failed.Err(); !errors.Is(err, errBroken) {
		t.Errorf("the failure is known, but Err is %v", err)
	}
	done := make(chan error)
	go func() { done <- failed.Wait(context.Background()) }()
	q.Complete(1)
	if err := <-done; !errors.Is(err, errBroken) {
		t.Errorf("wait: %v", err)
	}
	if !uses.Done() {
		t.Error("the set has not ended")
	}
}

// Failed work is not quiet until its queue has ended, because the device may still be
// writing. Work that ended well is quiet at once.
func TestQuiet(t *testing.T) {
	if !(Work{}).Quiet() || !(Fences)(nil).Quiet() {
		t.Error("no work touches memory")
	}
	q, other := NewTimeline("q", nil), NewTimeline("other", nil)
	well, failed, beside := q.Issue(), q.Issue(), other.Issue()
	set := Fences{failed, beside}
	if well.Quiet() || set.Quiet() {
		t.Error("running work is quiet")
	}
	q.Complete(1)
	q.Fail(2, Forever, errBroken)
	if !well.Quiet() || failed.Quiet() || q.Ended() {
		t.Errorf("before the queue's end: completed work %v, failed work %v, queue ended %v", well.Quiet(), failed.Quiet(), q.Ended())
	}
	q.End()
	if !failed.Quiet() || !q.Ended() || set.Quiet() {
		t.Errorf("after the queue's end: failed work %v, queue ended %v, with running work %v", failed.Quiet(), q.Ended(), set.Quiet())
	}
	other.Complete(1)
	if !set.Quiet() {
		t.Error("a set of quiet works is not quiet")
	}
	// The failure of earlier work does not end later work that still has to run.
	q = NewTimeline("q", nil)
	_, later := q.Issue(), q.Issue()
	q.Fail(1, 1, errBroken)
	q.End()
	if later.Quiet() {
		t.Error("work that has not ended is quiet")
	}
}

func TestWaitParksUntilCompletion(t *testing.T) {
	q := NewTimeline("q", nil)
	w := q.Issue()
	const waiters = 16
	var ended atomic.Int32
	var started, wg sync.WaitGroup
	started.Add(waiters)
	for range waiters {
		wg.Go(func() {
			started.Done()
			if err := w.Wait(context.Background()); err != nil {
				t.Error(err)
			}
			if !w.Done() {
				t.Error("woken before completion")
			}
			ended.Add(1)
		})
	}
	started.Wait()
	if n := ended.Load(); n != 0 {
		t.Fatalf("%d waiters returned before completion", n)
	}
	q.Complete(1)
	wg.Wait()
}

func TestWaitHonoursContext(t *testing.T) {
	q := NewTimeline("q", nil)
	w := q.Issue()
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	done := make(chan error)
	go func() { done <- w.Wait(ctx) }()
	other := make(chan error)
	go func() { other <- w.Wait(context.Background()) }()
	cancel(errBroken)
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled wait: %v", err)
	}
	select {
	case err := <-other:
		t.Errorf("the cancellation ended the other wait: %v", err)
	default:
	}
	q.Complete(1)
	if err := <-other; err != nil {
		t.Error(err)
	}
	if err := w.Wait(ctx); err != nil {
		t.Errorf("a completed work with a cancelled context: %v", err)
	}
	expired, stop := context.WithTimeout(context.Background(), time.Nanosecond)
	defer stop()
	if err := q.Issue().Wait(expired); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("expired wait: %v", err)
	}
}

func TestFailureWakesWaiters(t *testing.T) {
	q := NewTimeline("q", nil)
	w, later := q.Issue(), q.Issue()
	errs := make(chan error)
	for range 8 {
		go func() { errs <- w.Wait(context.Background()) }()
		go func() { errs <- later.Wait(context.Background()) }()
	}
	q.Fail(1, Forever, errBroken)
	for range 16 {
		if err := <-errs; !errors.Is(err, errBroken) {
			t.Errorf("wait: %v", err)
		}
	}
}

// Complete wakes the waiters whose points have ended and leaves the others parked.
func TestCompletionWakesItsWaiters(t *testing.T) {
	q := NewTimeline("q", nil)
	var waiters []*waiter
	for range 4 {
		q.mu.Lock()
		waiters = append(waiters, q.enlist(q.Issue().seq))
		q.mu.Unlock()
	}
	woken := func(w *waiter) bool { return len(w.wake) == 1 }
	q.Complete(2)
	if !woken(waiters[0]) || !woken(waiters[1]) || woken(waiters[2]) || woken(waiters[3]) {
		t.Error("want the waiters for 1 and 2 woken")
	}
	if !slices.Equal(q.waiting, waiters[2:]) {
		t.Errorf("%d waiters are left, want those of 3 and 4", len(q.waiting))
	}
	q.Fail(4, 4, errBroken)
	if woken(waiters[3]) {
		t.Error("woken by its failure with an earlier point running")
	}
	q.Complete(3)
	if !woken(waiters[2]) || !woken(waiters[3]) || len(q.waiting) != 0 {
		t.Error("want everyone awake")
	}
	q.mu.Lock()
	last := q.enlist(q.Issue().seq)
	q.mu.Unlock()
	q.Complete(4)
	q.Fail(5, 5, errBroken)
	if !woken(last) {
		t.Error("not woken by its failure")
	}
}

// A waiter that is cancelled while it is woken leaves the list, and leaves no wake in its
// channel for the next wait that reuses it.
func TestCancelledWaiterIsClean(t *testing.T) {
	q := NewTimeline("q", nil)
	q.mu.Lock()
	woken, parked := q.enlist(q.Issue().seq), q.enlist(q.Issue().seq)
	q.mu.Unlock()
	q.Complete(1)
	q.mu.Lock()
	q.discharge(woken)
	q.discharge(parked)
	if len(q.waiting) != 0 || len(q.idle) != 2 {
		t.Errorf("%d waiting and %d idle, want 0 and 2", len(q.waiting), len(q.idle))
	}
	for range 2 {
		if w := q.enlist(q.Issue().seq); len(w.wake) != 0 || w.seq != q.Issued() {
			t.Errorf("a waiter for op %d begins with %d wakes, for op %d", q.Issued(), len(w.wake), w.seq)
		}
	}
	if len(q.idle) != 0 || len(q.waiting) != 2 {
		t.Errorf("%d idle and %d waiting, want 0 and 2", len(q.idle), len(q.waiting))
	}
	q.mu.Unlock()
}

func TestKick(t *testing.T) {
	var kicked []uint64
	var q *Timeline
	q = NewTimeline("q", func(seq uint64) {
		kicked = append(kicked, seq)
		q.Complete(seq) // a kick may complete at once: no lock is held
	})
	for range 3 {
		q.Issue()
	}
	w := q.Last()
	if w.Done() || w.Err() != nil || len(kicked) != 0 {
		t.Fatalf("kicked %v without a wait", kicked)
	}
	if err := w.Wait(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := w.Wait(context.Background()); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(kicked, []uint64{3}) {
		t.Errorf("kicked %v, want [3]: once, for the point waited for", kicked)
	}
}

func TestFencesKeepLatestPerQueue(t *testing.T) {
	p, q := NewTimeline("p", nil), NewTimeline("q", nil)
	p1, p2, q1 := p.Issue(), p.Issue(), q.Issue()
	var f Fences
	for _, w := range []Work{p1, q1, {}, p2, p1} {
		f.Add(w)
	}
	if !slices.Equal(f, Fences{p2, q1}) {
		t.Fatalf("set = %v, want the latest of each queue", f)
	}
	if f.Done() {
		t.Error("done at once")
	}
	p.Complete(2)
	if f.Done() {
		t.Error("done with q pending")
	}
	q.Complete(1)
	if !f.Done() || f.Err() != nil || f.Wait(context.Background()) != nil {
		t.Error("not done at the end")
	}
	if !(Fences(nil)).Done() || (Fences(nil)).Wait(countdown.Cancelled()) != nil {
		t.Error("the empty set is not done")
	}
}

// The Fences of a buffer that many queues use keep the works that may still touch its
// memory and at most a few others.
func TestFencesStaySmall(t *testing.T) {
	var f Fences
	running, failed := NewTimeline("running", nil), NewTimeline("failed", nil)
	f.Add(running.Issue())
	f.Add(failed.Issue())
	failed.Fail(1, Forever, errBroken)
	for i := range 1000 {
		q := NewTimeline("q", nil)
		f.Add(q.Issue())
		if i%2 == 0 {
			q.Complete(1)
			continue
		}
		q.Fail(1, Forever, errBroken)
		q.End()
	}
	if len(f) > 8 || cap(f) > 8 {
		t.Errorf("%d works of %d, want those that are not quiet and a few", len(f), cap(f))
	}
	for _, q := range []*Timeline{running, failed} {
		if !slices.Contains(f, q.Last()) {
			t.Errorf("the %s work, which may touch the memory, was forgotten", q.Name())
		}
	}
}

// The works of closed queues are forgotten before the set is full, so that idle memory does not
// keep the queues of all that used it.
func TestFencesForgetClosedQueues(t *testing.T) {
	f := make(Fences, 0, 100)
	open := NewTimeline("open", nil)
	f.Add(open.Issue())
	open.Complete(1)
	for range 50 {
		q := NewTimeline("q", nil)
		f.Add(q.Issue())
		q.Complete(1)
		q.End()
	}
	if len(f) != 2 || !slices.Contains(f, open.Last()) {
		t.Errorf("%d works, want that of the open queue and the last", len(f))
	}
}

func TestFencesWaitForAllDespiteFailure(t *testing.T) {
	var q *Timeline
	waited := false
	p := NewTimeline("p", nil)
	q = NewTimeline("q", func(seq uint64) { // someone waits for q
		waited = true
		q.Complete(seq)
	})
	var f Fences
	f.Add(p.Issue())
	f.Add(q.Issue())
	p.Fail(1, 1, errBroken)
	if err := f.Err(); !errors.Is(err, errBroken) {
		t.Errorf("Err = %v", err)
	}
	if f.Done() {
		t.Error("done with q pending")
	}
	if err := f.Wait(context.Background()); !errors.Is(err, errBroken) {
		t.Errorf("wait: %v", err)
	}
	if !waited {
		t.Error("the failure of p ended the wait for q")
	}
	r := NewTimeline("r", nil)
	f.Add(r.Issue())
	if err := f.Wait(countdown.Cancelled()); !errors.Is(err, errBroken) {
		t.Errorf("cancelled wait: %v, want the first failure", err)
	}
}

// A device error is reported later than the call that caused it. The failure names the
// range of operations that may have caused it and fails no later operation.
func TestWindowError(t *testing.T) {
	err := error(&WindowError{Queue: "compute 0", First: 3, Last: 5, Ops: "mul_mat, add, softmax", Err: ErrDeviceLost})
	if !errors.Is(err, ErrDeviceLost) || errors.Is(err, ErrDeviceFailed) {
		t.Errorf("%v does not unwrap to its cause alone", err)
	}
	for _, part := range []string{"compute 0", "3", "5", "mul_mat, add, softmax", "device lost"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q lacks %q", err, part)
		}
	}
}

func TestConcurrentTimeline(t *testing.T) {
	q := NewTimeline("q", nil)
	const points = 1000
	works := make(chan Work, points)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for w := range works {
				err := w.Wait(context.Background())
				if failed := w.Seq()%10 == 0; failed != errors.Is(err, errBroken) {
					t.Errorf("point %d: %v", w.Seq(), err)
				}
				if !w.Done() {
					t.Errorf("point %d has not ended", w.Seq())
				}
			}
		})
	}
	for range points {
		works <- q.Issue()
	}
	close(works)
	for seq := uint64(1); seq <= points; seq++ {
		if seq%10 == 0 {
			q.Fail(seq, seq, errBroken)
		}
		q.Complete(seq)
	}
	wg.Wait()
}

func TestWaitDoesNotAllocate(t *testing.T) {
	var q *Timeline
	q = NewTimeline("q", func(seq uint64) { q.Complete(seq) })
	ctx := context.Background()
	var f Fences
	if n := testing.AllocsPerRun(100, func() {
		w := q.Issue()
		f.Add(w)
		if w.Done() || w.Wait(ctx) != nil || f.Wait(ctx) != nil {
			t.Error("wait failed")
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func BenchmarkWaitEnded(b *testing.B) {
	q := NewTimeline("q", nil)
	w := q.Issue()
	q.Complete(1)
	ctx := context.Background()
	for b.Loop() {
		if err := w.Wait(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

// A queue follows a point that it was made to wait for, and every earlier point of that
// queue.
func TestFollow(t *testing.T) {
	a, b := NewTimeline("a", nil), NewTimeline("b", nil)
	first, second, third := b.Issue(), b.Issue(), b.Issue()
	own := a.Issue()
	a.Follow(second)
	a.Follow(Work{})
	a.Follow(own)
	for _, tt := range []struct {
		w    Work
		want bool
	}{{first, true}, {second, true}, {third, false}, {own, true}, {Work{}, true}} {
		if got := a.Follows(tt.w); got != tt.want {
			t.Errorf("follows op %d: %v, want %v", tt.w.Seq(), got, tt.want)
		}
	}
	if b.Follows(own) {
		t.Error("b follows a without having waited for it")
	}
	a.Follow(first) // nothing is taken back
	if !a.Follows(second) {
		t.Error("an earlier point took back a later one")
	}
	b.Complete(third.Seq())
	if !a.Follows(third) {
		t.Error("work that has ended is not followed")
	}
}

// A Work keeps its own timeline reachable and no other one. In a chain of closed queues
// that followed one another, only the timelines with a Work remain.
func TestEndedTimelinesAreForgotten(t *testing.T) {
	var all []weak.Pointer[Timeline]
	last := NewTimeline("q1", nil).Issue()
	for range 10 {
		all = append(all, weak.Make(last.Timeline()))
		next := NewTimeline("q", nil)
		next.Follow(last)
		last.Timeline().Complete(last.Seq())
		last.Timeline().End()
		last = next.Issue()
	}
	last.Timeline().Complete(last.Seq())
	last.Timeline().End()
	runtime.GC()
	for i, p := range all {
		if p.Value() != nil {
			t.Errorf("timeline %d of %d is kept by the last one", i+1, len(all)+1)
		}
	}
	runtime.KeepAlive(last)
}
