//go:build unix

package offheap_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/fucina-go/fucina/internal/offheap"
	"github.com/fucina-go/fucina/internal/team"
	"github.com/fucina-go/fucina/tests/sigbus"
)

// mapPages maps a file of n pages of ones, with the file's name.
func mapPages(t testing.TB, n int) (offheap.Mapping, string) {
	t.Helper()
	content := make([]byte, n*os.Getpagesize())
	for i := range content {
		content[i] = 1
	}
	f := tempFile(t, content)
	m, err := offheap.MapFile(f, int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Unmap(); err != nil {
			t.Error(err)
		}
	})
	return m, f.Name()
}

func cut(t testing.TB, name string, size int) {
	t.Helper()
	if err := os.Truncate(name, int64(size)); err != nil {
		t.Fatal(err)
	}
}

// sum returns the sum of p. A read may fault. If sum were inlined, the compiler would remove
// a call whose result is not used.
//
//go:noinline
func sum(p []byte) (n int) {
	for _, b := range p {
		n += int(b)
	}
	return n
}

// wantChanged checks that the error names the changed file and the change.
func wantChanged(t testing.TB, err error, name string) {
	t.Helper()
	if !errors.Is(err, offheap.ErrFileChanged) {
		t.Errorf("error %v, want ErrFileChanged", err)
	} else if !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %q, want one line with %s", err, name)
	}
}

// A read behind the end of a truncated file is an error, whether a load or a copy reads, on
// the calling goroutine or on a worker of a team.
func TestGuard(t *testing.T) {
	sigbus.Need(t)
	page := os.Getpagesize()
	readers := map[string]func(p []byte){
		"load":   func(p []byte) { sum(p) },
		"copy":   func(p []byte) { copy(make([]byte, len(p)), p) },
		"string": func(p []byte) { _ = string(p[len(p)-100:]) },
		"team": func(p []byte) {
			tm := team.New(3)
			defer tm.Close()
			tm.Run(len(p)/page, func(task, _ int) bool { sum(p[task*page:][:page]); return true })
		},
		"worker": func(p []byte) {
			tm := team.New(2)
			defer tm.Close()
			begun := make(chan struct{})
			begin := sync.OnceFunc(func() { close(begun) }) // the worker may get both tasks
			tm.Run(2, func(_, lane int) bool {
				if lane == 0 {
					<-begun // closed when the worker has its task
					return true
				}
				begin()
				sum(p)
				return true
			})
		},
	}
	for name, read := range readers {
		for _, size := range []int{0, page, 2*page + 100} {
			t.Run(fmt.Sprintf("%s/%d", name, size), func(t *testing.T) {
				m, file := mapPages(t, 6)
				use := func() error { read(m.Bytes()); return nil }
				if err := offheap.Guard(use); err != nil {
					t.Fatalf("before the cut: %v", err)
				}
				if err := m.Check(); err != nil {
					t.Fatalf("before the cut: %v", err)
				}
				cut(t, file, size)
				wantChanged(t, offheap.Guard(use), file)
				wantChanged(t, m.Check(), file)
			})
		}
	}
}

// The bytes behind the new end but in the last page read as zeros. Only the size shows the
// change.
func TestCheckFindsZeros(t *testing.T) {
	m, file := mapPages(t, 2)
	cut(t, file, len(m.Bytes())-1)
	err := offheap.Guard(func() error {
		if n := sum(m.Bytes()); n != len(m.Bytes())-1 {
			t.Errorf("sum %d of %d ones, want all but the last", n, len(m.Bytes()))
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	wantChanged(t, m.Check(), file)
	// A file that grew has changed too.
	cut(t, file, len(m.Bytes())+1)
	wantChanged(t, m.Check(), file)
}

// A write that does not change the size is a change, and so is a change of the time only.
func TestCheckFindsWrites(t *testing.T) {
	m, file := mapPages(t, 2)
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(file, time.Time{}, info.ModTime()); err != nil {
		t.Fatal(err)
	}
	if err := m.Check(); err != nil {
		t.Errorf("with the same time: %v", err)
	}
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	// Systems distinguish times that are milliseconds apart.
	time.Sleep(50 * time.Millisecond)
	_, err = f.WriteAt([]byte{2}, 7)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	wantChanged(t, m.Check(), file)
}

// If another file is renamed over a mapped one, the mapping keeps the old bytes.
func TestReplacedFileStays(t *testing.T) {
	m, file := mapPages(t, 2)
	other := filepath.Join(filepath.Dir(file), "other")
	if err := os.WriteFile(other, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(other, file); err != nil {
		t.Fatal(err)
	}
	err := offheap.Guard(func() error {
		if n := sum(m.Bytes()); n != len(m.Bytes()) {
			t.Errorf("sum %d of %d ones", n, len(m.Bytes()))
		}
		return m.Check()
	})
	if err != nil {
		t.Error(err)
	}
}

// Guard handles only faults in mapped files.
func TestGuardPassesPanics(t *testing.T) {
	m, err := offheap.MapFile(tempFile(t, make([]byte, 100)), 100)
	if err != nil {
		t.Fatal(err)
	}
	unmapped := m.Bytes()
	if err := m.Unmap(); err != nil {
		t.Fatal(err)
	}
	boom := errors.New("boom")
	wrapped := &team.Panic{Value: boom}
	var none *int
	for name, test := range map[string]struct {
		f    func()
		want func(v any) bool
	}{
		"error":    {func() { panic(boom) }, func(v any) bool { return v == any(boom) }},
		"value":    {func() { panic(7) }, func(v any) bool { return v == any(7) }},
		"worker's": {func() { panic(wrapped) }, func(v any) bool { return v == any(wrapped) }},
		"nil dereference": {func() { *none = 1 }, func(v any) bool {
			_, ok := v.(runtime.Error)
			return ok
		}},
		"fault elsewhere": {func() { sum(unmapped) }, func(v any) bool {
			fault, ok := v.(interface{ Addr() uintptr })
			return ok && fault.Addr() == uintptr(unsafe.Pointer(unsafe.SliceData(unmapped)))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if v := recover(); !test.want(v) {
					t.Errorf("panic with %v (%T)", v, v)
				}
			}()
			err := offheap.Guard(func() error { test.f(); return nil })
			t.Errorf("returned %v", err)
		})
	}
	if err := offheap.Guard(func() error { return boom }); err != boom {
		t.Errorf("returned %v, want f's error", err)
	}
	// runtime.Goexit passes through too.
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = offheap.Guard(func() error { runtime.Goexit(); return nil })
		t.Error("Guard returned after Goexit")
	}()
	<-ended
}

// Guard and Check do not allocate.
func TestGuardAllocatesNothing(t *testing.T) {
	m, _ := mapPages(t, 2)
	p := m.Bytes()
	total := 0
	n := testing.AllocsPerRun(100, func() {
		err := offheap.Guard(func() error { total += sum(p[:100]); return nil })
		if err == nil {
			err = m.Check()
		}
		if err != nil {
			t.Error(err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
