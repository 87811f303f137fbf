package accel

import (
	"slices"
	"sync/atomic"
)

// Some operands, such as row numbers that a device computed, are checked only when the
// operation runs. A wrong element does not fail the queue. The kernel clamps the element
// and reports it in a status word: host memory that is zero before. The functions of this
// file keep a queue's status words and turn each report into an error of the operation's
// point. A value computed from the operation's result has the point among its [Sources].

// Watched is what Explain needs to know of an operation. The caller of Watch defines the
// meaning of the numbers.
type Watched [4]int64

// Explain turns a status word that is not zero into the operation's error. of is the argument
// of Watch.
type Explain func(status uint64, of Watched) error

// watch is an operation whose status word look has not read yet. The watches of a timeline are
// in the order of their points.
type watch struct {
	seq     uint64
	word    *atomic.Uint64
	explain Explain
	of      Watched
}

// flag is the error that an operation reported through its status word. A merged flag is
// the error of one of the operations from first to last.
type flag struct {
	first, last uint64
	err         error
}

// maxFlags bounds the flags of a timeline. When a timeline has maxFlags flags, the older
// half is merged into one. A value that depends on an operation of the merged range may
// then get the error of another operation of that range.
const maxFlags = 1024

// AddStatus adds status words, which are zero. They must stay allocated until the queue is
// closed and Settle has returned.
func (t *Timeline) AddStatus(words []atomic.Uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range words {
		t.words = append(t.words, &words[i])
	}
}

// TakeStatus returns a zero status word for an operation, or nil if all are in use; the
// caller can then wait for WatchedFirst. The caller passes the word to Watch or to
// ReturnStatus.
func (t *Timeline) TakeStatus() *atomic.Uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.words) == 0 {
		t.look()
	}
	n := len(t.words)
	if n == 0 {
		return nil
	}
	w := t.words[n-1]
	t.words = t.words[:n-1]
	return w
}

// ReturnStatus takes back a word of TakeStatus that no operation uses.
func (t *Timeline) ReturnStatus(word *atomic.Uint64) {
	t.mu.Lock()
	t.words = append(t.words, word)
	t.mu.Unlock()
}

// Watch records that the operation at w, a point of the timeline, reports through word.
// The queue's submitter calls it, in submission order, before it publishes w.
func (t *Timeline) Watch(w Work, word *atomic.Uint64, explain Explain, of Watched) {
	t.mu.Lock()
	t.watches = append(t.watches, watch{w.seq, word, explain, of})
	t.watching.Store(true)
	t.mu.Unlock()
}

// WatchedFirst returns the first point whose status word look has not read, or the zero
// Work.
func (t *Timeline) WatchedFirst() Work {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.watches) == 0 {
		return Work{}
	}
	return Work{t, t.watches[0].seq}
}

// Settle reads the status words of the operations that have ended, and drops all words.
// The owner of the words calls it after the queue is closed and before it frees them.
func (t *Timeline) Settle() {
	t.mu.Lock()
	t.look()
	t.words = nil
	t.mu.Unlock()
}

// look turns the words of the operations that have ended into flags, and keeps the
// words for reuse. The caller holds mu.
func (t *Timeline) look() {
	n := 0
	for ; n < len(t.watches); n++ {
		w := &t.watches[n]
		ended, err := t.endedOf(w.seq)
		if !ended {
			break // the later ones have not ended either
		}
		if err != nil {
			continue // the device may still write to the word, so it is not used again
		}
		if status := w.word.Swap(0); status != 0 {
			t.flag(w.seq, w.explain(status, w.of))
		}
		t.words = append(t.words, w.word)
	}
	t.watches = slices.Delete(t.watches, 0, n)
	t.watching.Store(len(t.watches)+len(t.flags) > 0)
}

// flag records an operation's error. The caller holds mu.
func (t *Timeline) flag(seq uint64, err error) {
	if len(t.flags) == maxFlags {
		const half = maxFlags / 2
		t.flags[0].last = t.flags[half].last
		t.flags = slices.Delete(t.flags, 1, half+1)
	}
	t.flags = append(t.flags, flag{seq, seq, err})
}

// clean reports whether every point from first to last has ended without a failure and
// without a flag. If not, clean returns the error of one of these points that has one.
func (t *Timeline) clean(first, last uint64) (bool, error) {
	if t.completed.Load() >= last && !t.failed.Load() && !t.watching.Load() {
		return true, nil
	}
	if t.completed.Load() < first && !t.failed.Load() {
		// No point has ended, so none has a flag. This is the common case: an operation has
		// many such intervals as sources.
		return false, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.failureOf(first, last); err != nil {
		return false, err
	}
	t.look()
	for i := range t.flags {
		if f := &t.flags[i]; f.first <= last && first <= f.last {
			return false, f.err
		}
	}
	return t.completed.Load() >= last, nil
}

// Sources is a set of points that the contents of a buffer may come from and that are not
// known to have ended well: operations of other queues, and operations with a status
// word. An error of one of them is an error of the contents. The set is exact up to
// maxSources intervals.
type Sources []source

// source is the interval of the points from first to last of the timeline t.
type source struct {
	t           *Timeline
	first, last uint64
}

// maxSources bounds the intervals of a set. In a full set, a new point is merged with the
// nearest interval of its queue. The contents may then get the error of an operation
// between the two.
const maxSources = 64

// Add puts w into the set, unless w has ended well.
func (s *Sources) Add(w Work) {
	if w.t != nil {
		s.add(source{w.t, w.seq, w.seq})
	}
}

// Join puts the points of o into s, except for intervals that have ended well.
func (s *Sources) Join(o Sources) {
	if len(*s) == 0 {
		*s = append(*s, o...)
		s.Forget()
		return
	}
	// The operands of an operation often come from the same points.
	next := 0
	for _, e := range o {
		if next < len(*s) && (*s)[next].contains(e) {
			next++
			continue
		}
		s.add(e)
	}
}

// contains reports whether e lies within h.
func (h source) contains(e source) bool { return h.t == e.t && h.first <= e.first && e.last <= h.last }

func (s *Sources) add(e source) {
	if ok, _ := e.t.clean(e.first, e.last); ok {
		return
	}
	for i := 0; i < len(*s); {
		h := (*s)[i]
		if h.t != e.t || h.gap(e) > 0 {
			i++
			continue
		}
		if h.contains(e) {
			return
		}
		e = h.union(e)
		*s = slices.Delete(*s, i, i+1)
	}
	if len(*s) == cap(*s) {
		s.Forget()
	}
	if len(*s) >= maxSources {
		if i := s.nearest(e); i >= 0 {
			(*s)[i] = (*s)[i].union(e)
			return
		}
	}
	*s = append(*s, e)
}

// nearest returns the index of the interval of e's queue that is nearest to e, or -1.
func (s Sources) nearest(e source) int {
	best := -1
	for i, h := range s {
		if h.t == e.t && (best < 0 || h.gap(e) < s[best].gap(e)) {
			best = i
		}
	}
	return best
}

// gap returns how many points of the queue lie between two intervals.
func (e source) gap(o source) uint64 {
	switch {
	case e.last < o.first:
		return o.first - e.last - 1
	case o.last < e.first:
		return e.first - o.last - 1
	}
	return 0
}

// union returns the smallest interval that contains both.
func (e source) union(o source) source {
	return source{e.t, min(e.first, o.first), max(e.last, o.last)}
}

// Forget drops the intervals that have ended well.
func (s *Sources) Forget() {
	kept := (*s)[:0]
	for _, e := range *s {
		if ok, _ := e.t.clean(e.first, e.last); !ok {
			kept = append(kept, e)
		}
	}
	*s = kept
}

// Err returns the error of a point of the set, without waiting. A failure takes precedence
// over a reported error, because the report may be a consequence of the failure: row
// numbers whose upload failed are wrong too.
func (s Sources) Err() error {
	var reported error
	for _, e := range s {
		_, err := e.t.clean(e.first, e.last)
		if err != nil && e.t.failure(e.first, e.last) != nil {
			return err
		}
		if reported == nil {
			reported = err
		}
	}
	return reported
}

// Pending returns a point of the set that has not ended, or the zero Work.
func (s Sources) Pending() Work {
	for _, e := range s {
		if w := (Work{e.t, e.last}); !w.Done() {
			return w
		}
	}
	return Work{}
}
