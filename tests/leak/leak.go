// Package leak compares what a process holds before and after a test: memory off the Go
// heap, and goroutines. It depends on nothing above internal/offheap, so that the tests of
// every package can use it.
package leak

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fucina-go/fucina/internal/offheap"
)

// Counts is what a process holds at one time.
type Counts struct {
	blocks, bytes int64 // off the Go heap
	goroutines    int
}

// Now returns what the process holds.
func Now() Counts {
	s := offheap.Stats()
	return Counts{s.LiveBlocks, s.LiveBytes, goroutines()}
}

// goroutines returns the number of goroutines without that of package os/signal. It starts with
// the first signal that something asks for, as fuzzing does, and never ends.
func goroutines() int {
	n := runtime.NumGoroutine()
	if bytes.Contains(Stacks(), []byte("\nos/signal.loop()")) {
		n--
	}
	return n
}

// Left returns an error if the process holds other host memory than before, or more
// goroutines. It gives goroutines that are about to end time to do so. With the tag
// invariants the error says where each live block was allocated.
func (before Counts) Left() error {
	var errs []error
	if now := Now(); now.blocks != before.blocks || now.bytes != before.bytes {
		errs = append(errs, fmt.Errorf("%d host blocks with %d bytes are live, %d with %d were before\n%s",
			now.blocks, now.bytes, before.blocks, before.bytes, strings.Join(offheap.Leaks(), "\n")))
	}
	// A goroutine that has run its last statement may still be counted.
	for end := time.Now().Add(5 * time.Second); goroutines() > before.goroutines; time.Sleep(100 * time.Microsecond) {
		if time.Now().After(end) {
			errs = append(errs, fmt.Errorf("%d goroutines, %d before:\n%s", goroutines(), before.goroutines, Stacks()))
			break
		}
	}
	return errors.Join(errs...)
}

// Check fails the test if Left reports a difference between now and the end of the test.
func Check(t testing.TB) {
	t.Helper()
	before := Now()
	t.Cleanup(func() {
		if err := before.Left(); err != nil {
			t.Error(err)
		}
	})
}

// Stacks returns the stacks of all goroutines.
func Stacks() []byte {
	buf := make([]byte, 1<<20)
	return buf[:runtime.Stack(buf, true)]
}
