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

// Failure is the error that a failed tensor carries: what went wrong, and where in the
// program. Its text begins with the file and the line of the call; the verb %+v adds the
// callers of that line.
//
// A failure stays with its context until somebody looks at it. Tensor.Err and every
// function that returns it as an error are looks; printing it is not. A look covers also
// what failed on the context after it, up to the look, because that is most often its
// consequence.
type Failure struct {
	c    *Context // nil if it concerns no context
	err  error
	pcs  [maxCallers]uintptr
	n    int
	seq  uint64 // its number on the context, from 1
	seen atomic.Bool
}

// maxCallers is the most program counters that a failure keeps.
const maxCallers = 24

// shownCallers is the most places that %+v prints after the first.
const shownCallers = 5

func newFailure(c *Context, err error) *Failure {
	f := &Failure{c: c, err: err}
	f.n = runtime.Callers(2, f.pcs[:])
	return f
}

// Error returns the place and the error.
func (f *Failure) Error() string {
	if at := f.places(1); len(at) > 0 {
		return at[0] + ": " + f.err.Error()
	}
	return f.err.Error()
}

// Unwrap returns the error without the place.
func (f *Failure) Unwrap() error { return f.err }

// Format adds the callers for %+v.
func (f *Failure) Format(s fmt.State, _ rune) {
	_, _ = io.WriteString(s, f.Error())
	if !s.Flag('+') {
		return
	}
	for i, at := range f.places(1 + shownCallers) {
		if i > 0 {
			fmt.Fprintf(s, "\n\tcalled from %s", at)
		}
	}
}

// home is the folder of this package's files.
var home = func() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(file)
}()

// places returns up to most file:line pairs of the callers of this package. A place is
// told by its file's folder and not by the name of its function, because the body of a
// range-over-func loop is named after the function that it is inlined into.
func (f *Failure) places(most int) []string { return places(f.pcs[:f.n], most) }

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

// look marks f, and what failed on its context after it, as seen, and returns it as an
// error. nil is none.
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

// failures are a context's failures that nobody has looked at: for each frame that is
// open, at least the first since it was opened. Any goroutine may look.
type failures struct {
	mu   sync.Mutex
	list []*Failure    // by seq
	n    atomic.Int64  // len(list)
	last atomic.Uint64 // seq of the last failure
}

// add records f. since is the number of the last failure before the innermost frame was
// opened: if one after it is on the list, f can never be the first of any frame.
func (l *failures) add(f *Failure, since uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f.seq = l.last.Add(1)
	if n := len(l.list); n == 0 || l.list[n-1].seq <= since {
		l.list = append(l.list, f)
		l.n.Store(int64(len(l.list)))
	}
}

// first returns the first failure after number since that nobody has looked at, or nil.
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

// lookedAt drops the failures from number seq on.
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
