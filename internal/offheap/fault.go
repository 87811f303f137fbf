package offheap

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	runtimedebug "runtime/debug"
	"sync"
	"time"
	"unsafe"
)

// ErrFileChanged reports a mapped file that changed after it was mapped: its size or its
// time of modification is different, or some of its bytes cannot be read.
var ErrFileChanged = errors.New("file changed while it was in use")

// fileState is the state of a file by which a change is detected. A write that does not
// change the size changes only the time.
type fileState struct {
	size     int64
	modified int64 // nanoseconds since 1970
}

// origin is the file behind a mapping, and its state when it was mapped.
type origin struct {
	file  *os.File
	state fileState
}

// check compares the file's state with its state when it was mapped. It allocates only if
// it fails.
func (o *origin) check() error {
	now, err := stateOf(o.file)
	switch {
	case err != nil:
		return fmt.Errorf("%w: the state of %s cannot be read: %w", ErrFileChanged, o.file.Name(), err)
	case now.size != o.state.size:
		return fmt.Errorf("%w: %s has %d bytes, and had %d when it was mapped", ErrFileChanged, o.file.Name(), now.size, o.state.size)
	case now.modified != o.state.modified:
		was, is := time.Unix(0, o.state.modified), time.Unix(0, now.modified)
		return fmt.Errorf("%w: %s has the modification time %s, and had %s when it was mapped", ErrFileChanged, o.file.Name(), is.Format(time.RFC3339Nano), was.Format(time.RFC3339Nano))
	}
	return nil
}

// mappings has the live mappings of files, by the address of their first byte.
var mappings struct {
	sync.Mutex
	origins map[uintptr]mapped
}

type mapped struct {
	n      int
	origin *origin
}

func register(m Mapping) {
	mappings.Lock()
	defer mappings.Unlock()
	if mappings.origins == nil {
		mappings.origins = make(map[uintptr]mapped)
	}
	mappings.origins[uintptr(m.ptr)] = mapped{m.n, m.origin}
}

func unregister(p unsafe.Pointer) {
	mappings.Lock()
	defer mappings.Unlock()
	delete(mappings.origins, uintptr(p))
}

// faultAt reports whether addr lies in a mapped file. If so, it returns the error for a
// fault at addr.
func faultAt(addr uintptr) (err error, ok bool) {
	mappings.Lock()
	defer mappings.Unlock()
	for p, m := range mappings.origins {
		if addr-p >= uintptr(m.n) {
			continue
		}
		if err := m.origin.check(); err != nil {
			return err, true
		}
		return fmt.Errorf("%w: %s cannot be read at byte %d", ErrFileChanged, m.origin.file.Name(), addr-p), true
	}
	return nil, false
}

// Guard calls f and returns its error. If f panics because it reads bytes that were cut
// from a mapped file, Guard returns an error that wraps [ErrFileChanged]. Every other panic
// of f passes through.
//
// Guard covers reads on the calling goroutine. It also covers reads on another goroutine if
// the fault reaches f as a panic that wraps it, as with the workers of a team. After a
// fault, values that f was changing may be half changed.
//
// Bytes behind the new end of a file, but within its last page, read as zeros and
// cause no fault. [Mapping.Check] reports such a file.
func Guard(f func() error) (err error) {
	before := runtimedebug.SetPanicOnFault(true)
	returned := false
	defer func() {
		runtimedebug.SetPanicOnFault(before)
		if !returned {
			err = recoverFault(recover())
		}
	}()
	err = f()
	returned = true
	return err
}

// recoverFault returns the error for the panic value v of a fault in a mapped file. For any
// other v it panics with v.
func recoverFault(v any) error {
	if v == nil {
		return nil // runtime.Goexit, which continues
	}
	if cause, ok := v.(error); ok {
		var fault interface {
			runtime.Error
			Addr() uintptr
		}
		if errors.As(cause, &fault) {
			if err, ok := faultAt(fault.Addr()); ok {
				return err
			}
		}
	}
	panic(v)
}
