package fucina

import (
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Failure is the error that a failed tensor carries. Its text begins with the file and the
// line of the call that failed; the verb %+v adds the callers of that line.
//
// A failure remains on its context until the program looks at it. Tensor.Err looks at a
// failure, and so does every function that returns it as an error; printing does not. A look
// also covers the later failures of the context up to that moment, because they are usually
// consequences of this one.
//
// nil and the zero Failure stand for no failure.
type Failure struct {
	c    *Context // nil if the failure has no context
	err  error
	pcs  [maxCallers]uintptr
	n    int
	seq  uint64 // counts the failures of the context, from 1
	seen atomic.Bool
}

// maxCallers is the largest number of program counters that a failure keeps.
const maxCallers = 24

// shownCallers is the largest number of callers that %+v prints after the first place.
const shownCallers = 5

func newFailure(c *Context, err error) *Failure {
	f := &Failure{c: c, err: err}
	f.n = runtime.Callers(2, f.pcs[:])
	return f
}

// Error returns the place of the call, a colon and the error.
func (f *Failure) Error() string {
	text := "no failure"
	if err := f.Unwrap(); err != nil {
		text = err.Error()
	}
	if at := f.places(1); len(at) > 0 {
		return at[0] + ": " + text
	}
	return text
}

// Unwrap returns the error without the place.
func (f *Failure) Unwrap() error {
	if f == nil {
		return nil
	}
	return f.err
}

// Format prints Error, and with %+v the callers too.
func (f *Failure) Format(s fmt.State, _ rune) {
	_, _ = io.WriteString(s, f.Error())
	if s.Flag('+') {
		f.writeCallers(s)
	}
}

// writeCallers writes a line for each caller of the place in Error.
func (f *Failure) writeCallers(w io.Writer) {
	for i, at := range f.places(1 + shownCallers) {
		if i > 0 {
			fmt.Fprintf(w, "\n\tcalled from %s", at)
		}
	}
}

// home is the directory of this package's files.
var home = func() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(file)
}()

// places returns up to most file:line pairs of the callers of this package. It finds the
// package's own functions by the directory of their files, because the body of a
// range-over-func loop has the name of the function that it is inlined into.
func (f *Failure) places(most int) []string {
	if f == nil {
		return nil
	}
	return places(f.pcs[:f.n], most)
}

func places(pcs []uintptr, most int) []string {
	var at []string
	frames := runtime.CallersFrames(pcs)
	for len(at) < most {
		frame, more := frames.Next()
		own := filepath.Dir(frame.File) == home && !strings.HasSuffix(frame.File, "_test.go")
		if frame.File != "" && !own && !strings.HasPrefix(frame.Function, "runtime.") && !strings.HasPrefix(frame.Function, "testing.") {
			at = append(at, fmt.Sprintf("%s:%d", filepath.Base(frame.File), frame.Line))
		}
		if !more {
			break
		}
	}
	return at
}

// look marks f and the later failures of its context as seen, and returns f as an error. It
// returns nil if f is nil.
func (f *Failure) look() error {
	if f == nil {
		return nil
	}
	f.seen.Store(true)
	if f.c != nil {
		f.c.failures.lookedAt(f.seq)
	}
	return f
}

// failures holds failures of a context that have not been looked at: for each open frame,
// the first failure since the frame was opened. Any goroutine may add failures and look at
// them.
type failures struct {
	mu    sync.Mutex
	list  []*Failure    // by seq
	n     atomic.Int64  // len(list)
	last  atomic.Uint64 // seq of the last failure
	since atomic.Uint64 // last when the innermost frame was opened
}

// add records f. If the list has a failure since the innermost frame was opened, f is not
// the first failure of any open frame, and add drops it.
func (l *failures) add(f *Failure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f.seq = l.last.Add(1)
	if n := len(l.list); n == 0 || l.list[n-1].seq <= l.since.Load() {
		l.list = append(l.list, f)
		l.n.Store(int64(len(l.list)))
	}
}

// open notes that a frame is opened, and returns the seq of the last failure before it.
func (l *failures) open() uint64 {
	since := l.last.Load()
	l.since.Store(since)
	return since
}

// close notes that the frame that was opened after failure since is the innermost again. Of
// the failures after since, only the first is still the first of an open frame, and close
// drops the others.
func (l *failures) close(since uint64) {
	l.since.Store(since)
	if l.n.Load() < 2 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, f := range l.list {
		if f.seq > since {
			clear(l.list[i+1:])
			l.list = l.list[:i+1]
			break
		}
	}
	l.n.Store(int64(len(l.list)))
}

// first returns the first failure after number since that has not been looked at, or nil.
func (l *failures) first(since uint64) *Failure {
	if l.n.Load() == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.list {
		if f.seq > since {
			return f
		}
	}
	return nil
}

// lookedAt drops the failures from number seq on, and marks them as seen.
func (l *failures) lookedAt(seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = slices.DeleteFunc(l.list, func(f *Failure) bool {
		if f.seq < seq {
			return false
		}
		f.seen.Store(true)
		return true
	})
	l.n.Store(int64(len(l.list)))
}
