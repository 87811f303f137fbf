package accel

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
)

var (
	// ErrDeviceFailed reports work that a device did not complete.
	ErrDeviceFailed = errors.New("device work failed")
	// ErrDeviceLost reports a device that no longer works. Work sent to it fails, and
	// so does a read of bytes whose only copy it had.
	ErrDeviceLost = errors.New("device lost")
	// ErrOutOfMemory reports a device allocation that failed.
	ErrOutOfMemory = errors.New("out of device memory")
)

// WindowError is the failure of a range of operations on one queue: one of the operations
// First to Last failed, and none of them is known to have completed.
type WindowError struct {
	Queue       string
	First, Last uint64 // sequence numbers on the queue, inclusive
	Ops         string // the names of the operations that are known
	Err         error  // the cause; matches ErrDeviceFailed or ErrDeviceLost
}

func (e *WindowError) Error() string {
	return fmt.Sprintf("queue %s failed between op %d and op %d (%s): %v", e.Queue, e.First, e.Last, e.Ops, e.Err)
}

func (e *WindowError) Unwrap() error { return e.Err }

// Forever, as the last sequence of a failure, fails everything issued later too.
const Forever = math.MaxUint64

type failure struct {
	first, last uint64
	err         error
}

// Timeline is the completion record of one queue. The queue's owner issues points
// and reports completion and failure; any goroutine may wait. A Timeline must not be
// copied.
type Timeline struct {
	name string
	kick func(seq uint64)

	issued    atomic.Uint64
	completed atomic.Uint64
	failed    atomic.Bool // failures is not empty
	ended     atomic.Bool // the queue is closed

	watching  atomic.Bool // watches or flags is not empty
	mu        sync.Mutex  // guards the fields down to words; no lock of another timeline is taken under it
	failures  []failure
	waiting   []*waiter
	idle      []*waiter // waiters that Wait reuses
	watches   []watch
	flags     []flag
	words     []*atomic.Uint64 // clean status words
	following sync.Mutex       // guards followed
	followed  Fences           // works of other queues that later points run after
}

// waiter is a goroutine parked in Work.Wait.
type waiter struct {
	seq  uint64
	wake chan struct{} // with a buffer of 1
}

// NewTimeline returns the timeline of a queue that error messages call name. kick, which
// may be nil, is called when a wait for seq begins, so that a queue that batches its
// submissions can commit those up to seq. kick must not wait.
func NewTimeline(name string, kick func(seq uint64)) *Timeline {
	return &Timeline{name: name, kick: kick}
}

// Name returns the queue's name.
func (t *Timeline) Name() string { return t.name }

// Issue returns the next point. The queue's owner calls it in submission order.
func (t *Timeline) Issue() Work { return Work{t, t.issued.Add(1)} }

// Follow records that every later point runs after w has ended, because the queue waits
// for w. The queue's submitter calls it.
func (t *Timeline) Follow(w Work) {
	if w.t == nil || w.t == t {
		return
	}
	t.following.Lock()
	t.followed.Add(w)
	t.following.Unlock()
}

// Follows reports whether every later point runs after w has ended. That is so if w has
// ended, if w is a point of t, and if t follows w or a later point of w's queue.
func (t *Timeline) Follows(w Work) bool {
	if w.t == t || w.Done() {
		return true
	}
	t.following.Lock()
	defer t.following.Unlock()
	for _, f := range t.followed {
		if f.t == w.t {
			return f.seq >= w.seq
		}
	}
	return false
}

// Issued returns the sequence number of the last point issued, 0 before the first.
func (t *Timeline) Issued() uint64 { return t.issued.Load() }

// Completed returns the sequence number up to which all points have ended, well or not.
func (t *Timeline) Completed() uint64 { return t.completed.Load() }

// Last returns the last point issued, or the zero Work.
func (t *Timeline) Last() Work {
	if seq := t.issued.Load(); seq > 0 {
		return Work{t, seq}
	}
	return Work{}
}

// Complete marks every point up to seq as ended. A seq below Completed has no effect.
func (t *Timeline) Complete(seq uint64) {
	t.mu.Lock()
	if seq > t.completed.Load() {
		t.completed.Store(seq)
		t.wake()
	}
	t.mu.Unlock()
}

// Fail records that the points first to last failed with err. They count as ended once
// every point before first has ended: first should be the point after Completed, or the
// caller completes the points before it. With last == Forever, everything issued later
// fails too: the queue is dead.
func (t *Timeline) Fail(first, last uint64, err error) {
	t.mu.Lock()
	t.failures = append(t.failures, failure{first, last, err})
	t.failed.Store(true)
	t.wake()
	t.mu.Unlock()
}

// wake wakes the waiters whose points have ended. The caller holds mu.
func (t *Timeline) wake() {
	kept := t.waiting[:0]
	for _, w := range t.waiting {
		if ended, _ := t.endedOf(w.seq); ended {
			w.wake <- struct{}{}
			continue
		}
		kept = append(kept, w)
	}
	clear(t.waiting[len(kept):])
	t.waiting = kept
}

// failure returns a failure that covers a point from first to last, ended or not.
func (t *Timeline) failure(first, last uint64) error {
	if !t.failed.Load() {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failureOf(first, last)
}

// failureOf does the same as failure for a caller that holds mu.
func (t *Timeline) failureOf(first, last uint64) error {
	for i := range t.failures {
		if f := &t.failures[i]; f.first <= last && first <= f.last {
			return f.err
		}
	}
	return nil
}

// endedOf reports whether seq has ended, and returns its failure. A failed point has
// ended only once the points before the failed range have, because in Fences it replaces
// them. The caller holds mu.
func (t *Timeline) endedOf(seq uint64) (bool, error) {
	completed := t.completed.Load()
	for i := range t.failures {
		if f := &t.failures[i]; f.first <= seq && seq <= f.last && (completed >= seq || completed+1 >= f.first) {
			return true, f.err
		}
	}
	return completed >= seq, nil
}

// Dead returns the failure that covers every later point, or nil.
func (t *Timeline) Dead() error { return t.failure(Forever, Forever) }

// End records that the queue is closed, so that its work no longer touches memory. The
// queue's owner calls it once every point has ended. End wakes no waiter.
func (t *Timeline) End() {
	t.ended.Store(true)
	// A Work keeps its timeline reachable. Through followed, a chain of closed queues
	// would stay reachable too.
	t.following.Lock()
	t.followed = nil
	t.following.Unlock()
	t.mu.Lock()
	t.idle = nil
	t.mu.Unlock()
}

// Ended reports whether End was called.
func (t *Timeline) Ended() bool { return t.ended.Load() }

// Work is a fence: a point on a queue's timeline. The zero Work is complete.
type Work struct {
	t   *Timeline
	seq uint64
}

// Timeline returns the queue's timeline, or nil for the zero Work.
func (w Work) Timeline() *Timeline { return w.t }

// Seq returns the point's sequence number, or 0 for the zero Work.
func (w Work) Seq() uint64 { return w.seq }

// IsZero reports whether w is the zero Work.
func (w Work) IsZero() bool { return w.t == nil }

// Err returns the failure of the work, or nil if it completed or is still pending.
// A failure may be known before the work has ended. Err never waits.
func (w Work) Err() error {
	if w.t == nil {
		return nil
	}
	return w.t.failure(w.seq, w.seq)
}

// Done reports whether the work has ended, well or not. It never waits.
func (w Work) Done() bool {
	t := w.t
	if t == nil || t.completed.Load() >= w.seq {
		return true
	}
	if !t.failed.Load() {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	ended, _ := t.endedOf(w.seq)
	return ended
}

// Quiet reports whether the work has stopped touching memory: it ended well, or it
// failed and its queue has ended. After a failure on a queue that is still open, the
// device may still be writing. Quiet never waits.
func (w Work) Quiet() bool {
	return w.t == nil || w.Done() && (w.Err() == nil || w.t.Ended())
}

// Wait parks until the work has ended or ctx is done, and returns the work's
// failure or ctx's error. It may be called concurrently and repeatedly.
func (w Work) Wait(ctx context.Context) error {
	t := w.t
	if t == nil {
		return nil
	}
	if t.completed.Load() >= w.seq {
		return w.Err()
	}
	if t.kick != nil {
		t.kick(w.seq)
	}
	t.mu.Lock()
	ended, err := t.endedOf(w.seq)
	if ended {
		t.mu.Unlock()
		return err
	}
	if err := ctx.Err(); err != nil {
		t.mu.Unlock()
		return err
	}
	own := t.enlist(w.seq)
	t.mu.Unlock()
	select {
	case <-own.wake:
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.discharge(own)
	if ended, err := t.endedOf(w.seq); ended {
		return err
	}
	return ctx.Err()
}

// enlist makes the caller a waiter for seq, until it calls discharge. The caller holds
// mu.
func (t *Timeline) enlist(seq uint64) *waiter {
	var w *waiter
	if n := len(t.idle); n > 0 {
		w = t.idle[n-1]
		t.idle = t.idle[:n-1]
	} else {
		w = &waiter{wake: make(chan struct{}, 1)}
	}
	w.seq = seq
	t.waiting = append(t.waiting, w)
	return w
}

// discharge removes the waiter w of enlist, whether w was woken or not. The caller holds
// mu.
func (t *Timeline) discharge(w *waiter) {
	if i := slices.Index(t.waiting, w); i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
	}
	select {
	case <-w.wake: // w was woken after its context had ended
	default:
	}
	t.idle = append(t.idle, w)
}

// Fences is a small set of works that keeps the latest one of each queue, because the end
// of a point implies the end of every earlier point of its timeline.
type Fences []Work

// Add puts w into the set. It drops the works of closed queues that are Quiet, so that the set
// does not keep the memory of these queues. Before the set grows, Add drops all works that are
// Quiet, so that the number of active queues bounds the size. It does not drop them earlier: a
// look at the work of an open queue would order the queues for the race detector, which could
// then not find a missing WaitFor.
func (f *Fences) Add(w Work) {
	if w.t == nil {
		return
	}
	for i := range *f {
		if e := &(*f)[i]; e.t == w.t {
			if w.seq > e.seq {
				*e = w
			}
			return
		}
	}
	full := len(*f) == cap(*f)
	*f = slices.DeleteFunc(*f, func(w Work) bool { return (full || w.t.ended.Load()) && w.Quiet() })
	*f = append(*f, w)
}

// Done reports whether every work of the set has ended.
func (f Fences) Done() bool {
	for _, w := range f {
		if !w.Done() {
			return false
		}
	}
	return true
}

// Quiet reports whether every work of the set has stopped touching memory.
func (f Fences) Quiet() bool {
	for _, w := range f {
		if !w.Quiet() {
			return false
		}
	}
	return true
}

// Err returns the failure of some work of the set, without waiting.
func (f Fences) Err() error {
	for _, w := range f {
		if err := w.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Wait waits for every work of the set and returns the first failure. After a failure it
// still waits for the others, unless ctx ends.
func (f Fences) Wait(ctx context.Context) error {
	var first error
	for _, w := range f {
		if err := w.Wait(ctx); err != nil && first == nil {
			first = err
		}
	}
	return first
}
