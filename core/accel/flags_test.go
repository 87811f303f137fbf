package accel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// statusError is the error that explain returns.
type statusError struct {
	status uint64
	arg    int64
}

func (e statusError) Error() string { return fmt.Sprintf("status %d of %d", e.status, e.arg) }

func explain(status uint64, of Watched) error { return statusError{status, of[0]} }

// flagged returns a timeline with n status words.
func flagged(n int) *Timeline {
	q := NewTimeline("q", nil)
	q.AddStatus(make([]atomic.Uint64, n))
	return q
}

// submit issues a point whose operation has a status word, and returns both.
func submit(t *testing.T, q *Timeline, arg int64) (Work, *atomic.Uint64) {
	t.Helper()
	word := q.TakeStatus()
	if word == nil {
		t.Fatal("no status word")
	}
	if s := word.Load(); s != 0 {
		t.Fatalf("a word was handed out with the status %d", s)
	}
	w := q.Issue()
	q.Watch(w, word, explain, Watched{arg})
	return w, word
}

func sourcesOf(works ...Work) Sources {
	var s Sources
	for _, w := range works {
		s.Add(w)
	}
	return s
}

// A status word belongs to one operation at a time. It is reused once its operation has
// ended well and look has read it.
func TestStatusWordsAreReused(t *testing.T) {
	q := flagged(2)
	if !q.WatchedFirst().IsZero() {
		t.Error("a fresh timeline watches something")
	}
	first, word1 := submit(t, q, 1)
	second, word2 := submit(t, q, 2)
	if word1 == word2 {
		t.Fatal("two operations have one word")
	}
	if q.TakeStatus() != nil {
		t.Error("a third word of two")
	}
	if got := q.WatchedFirst(); got != first {
		t.Errorf("the first watched is op %d, want 1", got.Seq())
	}
	q.Complete(1)
	if got := q.TakeStatus(); got != word1 {
		t.Fatal("the word of the operation that ended is not handed out again")
	}
	if got := q.WatchedFirst(); got != second {
		t.Errorf("the first watched is op %d, want 2", got.Seq())
	}
	if q.TakeStatus() != nil {
		t.Error("the word of a running operation was handed out")
	}
	q.ReturnStatus(word1)
	if q.TakeStatus() != word1 {
		t.Error("a word that was given back is not handed out")
	}
	q.Complete(2)
	if q.TakeStatus() != word2 || q.TakeStatus() != nil {
		t.Error("want the second word, and no other")
	}
	if q.watching.Load() {
		t.Error("clean words are watched for ever")
	}
}

// The status word of a failed operation is not reused, because the device may still write
// to it.
func TestWordOfFailedOpIsNotReused(t *testing.T) {
	q := flagged(1)
	submit(t, q, 1)
	q.Fail(1, 1, errBroken)
	q.Complete(1)
	if q.TakeStatus() != nil {
		t.Error("the word of a failed operation was handed out")
	}
	if !q.WatchedFirst().IsZero() {
		t.Error("an operation that ended is watched: a goroutine that waits for its word would spin")
	}
}

// Once an operation has ended, the error that it reported is returned on every call for
// the values that come from it, and for no others.
func TestStatusIsTheErrorOfItsValues(t *testing.T) {
	q := flagged(4)
	before := q.Issue()
	bad, word := submit(t, q, 7)
	good, _ := submit(t, q, 8)
	after := q.Issue()
	of := func(w Work) Sources { return sourcesOf(w) }
	innocent, guilty, both := sourcesOf(good), of(bad), sourcesOf(bad, good)
	word.Store(5)
	if err := guilty.Err(); err != nil {
		t.Errorf("while the operation runs: %v", err)
	}
	if got := both.Pending(); got != good {
		t.Errorf("pending is op %d, want the last of two neighbours", got.Seq())
	}
	q.Complete(4)
	for range 2 {
		for name, s := range map[string]Sources{"its own": guilty, "with another": both, "asked for later": of(bad)} {
			if err := s.Err(); err != (statusError{5, 7}) {
				t.Errorf("%s value: %v", name, err)
			}
			if !s.Pending().IsZero() {
				t.Errorf("%s value is pending", name)
			}
		}
		if err := innocent.Err(); err != nil {
			t.Errorf("a value of the next operation: %v", err)
		}
	}
	for name, w := range map[string]Work{"before": before, "good": good, "after": after} {
		if s := of(w); len(s) != 0 {
			t.Errorf("%s: %v has ended well and is a source", name, s)
		}
	}
	if err := errors.Join(bad.Err(), q.Dead()); err != nil {
		t.Errorf("the operation failed its queue: %v", err)
	}
	if got := word.Load(); got != 0 {
		t.Errorf("the word still has the status %d after look has read it", got)
	}
}

// Settle reads the status words a last time. Afterwards they may be freed.
func TestSettle(t *testing.T) {
	q := flagged(2)
	w, word := submit(t, q, 3)
	s := sourcesOf(w)
	word.Store(9)
	q.Complete(1)
	q.Settle()
	word.Store(1) // freed, and used for something else
	if err := s.Err(); err != (statusError{9, 3}) {
		t.Errorf("after Settle: %v", err)
	}
	if q.TakeStatus() != nil {
		t.Error("a word is handed out after Settle")
	}
}

func TestSourcesAreSets(t *testing.T) {
	p, q := NewTimeline("p", nil), NewTimeline("q", nil)
	p1, p2, p3, q1 := p.Issue(), p.Issue(), p.Issue(), q.Issue()
	p.Issue()
	p5 := p.Issue()
	s := sourcesOf(p1, Work{}, q1, p5, p3, p1)
	if want := (Sources{{p, 1, 1}, {q, 1, 1}, {p, 5, 5}, {p, 3, 3}}); !slices.Equal(s, want) {
		t.Fatalf("set %v, want %v", s, want)
	}
	s.Add(p2)
	if want := (Sources{{q, 1, 1}, {p, 5, 5}, {p, 1, 3}}); !slices.Equal(s, want) {
		t.Fatalf("set %v, want the neighbours in one interval: %v", s, want)
	}
	var joined Sources
	joined.Add(q1)
	joined.Join(s)
	joined.Join(sourcesOf(p2))
	if want := (Sources{{q, 1, 1}, {p, 5, 5}, {p, 1, 3}}); !slices.Equal(joined, want) {
		t.Errorf("joined %v, want %v", joined, want)
	}
	if got := s.Pending(); got != q1 {
		t.Errorf("pending is %s %d, want q 1", got.Timeline().Name(), got.Seq())
	}
	q.Complete(1)
	p.Complete(3)
	if got := s.Pending(); got != p5 {
		t.Errorf("pending is %s %d, want p 5", got.Timeline().Name(), got.Seq())
	}
	var late Sources
	late.Join(joined)
	s.Forget()
	for _, got := range []Sources{s, late} {
		if want := (Sources{{p, 5, 5}}); !slices.Equal(got, want) {
			t.Errorf("after the others have ended well: %v, want %v", got, want)
		}
	}
	p.Complete(5)
	if s.Forget(); len(s) != 0 || !s.Pending().IsZero() || s.Err() != nil {
		t.Errorf("with everything ended: %v", s)
	}
}

// Up to maxSources intervals, a value does not get the error of an operation between two
// of its sources. Beyond maxSources the nearest intervals are merged.
func TestSourcesAreExact(t *testing.T) {
	q := flagged(2*maxSources + 3)
	var exact, coarse Sources
	var good, bad []Work
	for i := range maxSources + 1 {
		w, _ := submit(t, q, 0)
		good = append(good, w)
		w, word := submit(t, q, 1)
		word.Store(uint64(i + 1))
		bad = append(bad, w)
	}
	last, _ := submit(t, q, 0)
	for i, w := range good {
		coarse.Add(w)
		if i < maxSources {
			exact.Add(w)
		}
	}
	if len(coarse) != maxSources {
		t.Errorf("%d intervals, want %d", len(coarse), maxSources)
	}
	guilty := sourcesOf(good[0], bad[1], good[2])
	q.Complete(last.Seq())
	if err := exact.Err(); err != nil {
		t.Errorf("the value of good operations: %v", err)
	}
	if exact.Forget(); len(exact) != 0 {
		t.Errorf("good operations are kept: %v", exact)
	}
	if err := guilty.Err(); err != (statusError{2, 1}) {
		t.Errorf("a value of the second bad operation: %v", err)
	}
	if err := coarse.Err(); err != (statusError{maxSources, 1}) {
		t.Errorf("a value of too many operations: %v, want the error between the two nearest", err)
	}
}

// A queue that reads a value of another queue may be known to have ended before the other
// queue has. The source stays in the set until then, so that its error is not missed.
func TestSourceReportedAfterItsReader(t *testing.T) {
	q, reader := flagged(1), NewTimeline("reader", nil)
	w, word := submit(t, q, 1)
	reader.Follow(w)
	result := reader.Issue()
	s := sourcesOf(w)
	word.Store(1)
	reader.Complete(1)
	if !result.Done() {
		t.Fatal("the reader has not ended")
	}
	if s.Forget(); len(s) != 1 || s.Pending() != w || s.Err() != nil {
		t.Fatalf("before the report: sources %v, error %v", s, s.Err())
	}
	q.Complete(1)
	if s.Forget(); !errors.Is(s.Err(), statusError{1, 1}) {
		t.Errorf("after the report: %v", s.Err())
	}
}

// Values that may come from a failed range of a queue have its failure. Values from
// points outside the range do not.
func TestSourcesOfFailedWindow(t *testing.T) {
	q := NewTimeline("q", nil)
	works := make([]Work, 7)
	for i := range works {
		works[i] = q.Issue()
	}
	before, across, inside, after := sourcesOf(works[0]), sourcesOf(works[1], works[5]), sourcesOf(works[3]), sourcesOf(works[5])
	edges := []Sources{sourcesOf(works[0], works[2]), sourcesOf(works[4], works[6])}
	q.Complete(2)
	q.Fail(3, 5, errBroken)
	q.Complete(5)
	for _, s := range append(edges, inside) {
		if s.Forget(); !errors.Is(s.Err(), errBroken) {
			t.Errorf("sources %v: %v", s, s.Err())
		}
	}
	if err := errors.Join(before.Err(), across.Err(), after.Err()); err != nil || after.Pending() != works[5] {
		t.Errorf("outside of the window: %v", err)
	}
	if before.Forget(); len(before) != 0 {
		t.Errorf("a point that ended before the window is kept: %v", before)
	}
	q.Complete(7)
	if after.Forget(); len(after) != 0 {
		t.Errorf("a point that ended after the window is kept: %v", after)
	}
	if s := sourcesOf(works[3]); !errors.Is(s.Err(), errBroken) {
		t.Errorf("a failed operation is not in the set: %v", s)
	}
}

// If a value comes from failed work and from an operation that reported an error, Err
// returns the failure in either order, because the report may be a consequence of it.
func TestFailureComesBeforeReports(t *testing.T) {
	up, q := NewTimeline("up", nil), flagged(1)
	upload := up.Issue()
	w, word := submit(t, q, 1)
	word.Store(1)
	q.Complete(w.Seq())
	up.Fail(1, 1, errBroken)
	up.Complete(1)
	for _, s := range []Sources{sourcesOf(upload, w), sourcesOf(w, upload)} {
		if err := s.Err(); !errors.Is(err, errBroken) {
			t.Errorf("%v: %v", s, err)
		}
	}
}

// A queue on which every operation reports an error keeps a bounded number of flags. The
// newer half stays exact, and every older operation still has an error.
func TestOldFlagsMerge(t *testing.T) {
	const n = 5*maxFlags + 7
	q := flagged(1)
	for i := range n {
		_, word := submit(t, q, int64(2*i+1))
		word.Store(1)
		q.Complete(q.Issue().Seq()) // every other operation is good
	}
	last := Work{q, 2*n - 1}
	if s := sourcesOf(last); s.Err() != (statusError{1, 2*n - 1}) {
		t.Errorf("the last operation: %v", s.Err())
	}
	if len(q.flags) > maxFlags || len(q.watches) != 0 {
		t.Errorf("%d flags and %d watches are kept, want at most %d and none", len(q.flags), len(q.watches), maxFlags)
	}
	for seq := uint64(1); seq <= 2*n; seq++ {
		ok, err := q.clean(seq, seq)
		bad, recent := seq%2 == 1, seq > 2*(n-maxFlags/2)
		switch {
		case bad && err == nil:
			t.Fatalf("op %d of %d lost its error", seq, 2*n)
		case recent && bad && err != (statusError{1, int64(seq)}):
			t.Fatalf("op %d of %d has the error of another: %v", seq, 2*n, err)
		case recent && !bad && !ok:
			t.Fatalf("op %d of %d is good and has the error %v", seq, 2*n, err)
		}
	}
	for i, f := range q.flags {
		if f.first > f.last || i > 0 && f.first <= q.flags[i-1].last {
			t.Fatalf("flag %d covers %d to %d, the one before ends at %d", i, f.first, f.last, q.flags[i-1].last)
		}
	}
}

// A set of sources does not grow with the number of operations that have ended well.
func TestSourcesStaySmall(t *testing.T) {
	var s Sources
	bad := NewTimeline("bad", nil)
	s.Add(bad.Issue())
	bad.Fail(1, Forever, errBroken)
	for range 1000 {
		q := NewTimeline("q", nil)
		s.Add(q.Issue())
		q.Complete(1)
	}
	if len(s) > 8 || cap(s) > 8 {
		t.Errorf("%d sources of %d, want those that have not ended well and a few", len(s), cap(s))
	}
	if !errors.Is(s.Err(), errBroken) {
		t.Errorf("the failed one was forgotten: %v", s.Err())
	}
}

func TestStatusDoesNotAllocate(t *testing.T) {
	q, other := flagged(8), NewTimeline("other", nil)
	var s, results Sources
	step := func() {
		word := q.TakeStatus()
		if word == nil {
			t.Fatal("no status word")
		}
		w, x := q.Issue(), other.Issue()
		q.Watch(w, word, explain, Watched{1})
		s.Add(w)
		s.Add(x)
		results = results[:0]
		results.Join(s)
		if results.Err() != nil || results.Pending().IsZero() {
			t.Error("the operations have ended")
		}
		q.Complete(w.Seq())
		other.Complete(x.Seq())
		s.Forget()
	}
	step()
	if n := testing.AllocsPerRun(100, step); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// One goroutine submits, one completes, and others read the errors. Every value of an
// operation that reported an error has that error, and no other value has one.
func TestConcurrentStatus(t *testing.T) {
	const ops, words = 2000, 16
	q := flagged(words)
	type job struct {
		w    Work
		word *atomic.Uint64
		bad  bool
	}
	device, values := make(chan job, words), make(chan job, words)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(device)
		defer close(values)
		for i := range ops {
			var word *atomic.Uint64
			for word = q.TakeStatus(); word == nil; word = q.TakeStatus() {
				if err := q.WatchedFirst().Wait(context.Background()); err != nil {
					t.Error(err)
					return
				}
			}
			j := job{q.Issue(), word, i%5 == 0}
			q.Watch(j.w, word, explain, Watched{int64(j.w.Seq())})
			device <- j
			values <- j
		}
	})
	wg.Go(func() {
		for j := range device {
			if j.bad {
				j.word.Store(1)
			}
			q.Complete(j.w.Seq())
		}
	})
	for range 3 {
		wg.Go(func() {
			for j := range values {
				s := sourcesOf(j.w)
				for w := s.Pending(); !w.IsZero(); w = s.Pending() {
					if err := w.Wait(context.Background()); err != nil {
						t.Error(err)
					}
				}
				err := s.Err()
				if j.bad && err != (statusError{1, int64(j.w.Seq())}) || !j.bad && err != nil {
					t.Errorf("op %d, bad %v: %v", j.w.Seq(), j.bad, err)
				}
				s.Forget()
			}
		})
	}
	wg.Wait()
}

// BenchmarkPendingSources joins the sources of three operands that come from all pending
// operations of a queue with status words, as each operation of a forward pass does.
func BenchmarkPendingSources(b *testing.B) {
	q := flagged(maxSources)
	var s, results Sources
	for range maxSources {
		word := q.TakeStatus()
		q.Issue() // an operation without a status word lies between
		w := q.Issue()
		q.Watch(w, word, explain, Watched{})
		s.Add(w)
	}
	for b.Loop() {
		results = results[:0]
		for range 3 {
			if err := s.Err(); err != nil {
				b.Fatal(err)
			}
			results.Join(s)
		}
	}
}
