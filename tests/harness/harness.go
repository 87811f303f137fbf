// Package harness has the common parts of tests of the whole path: a watchdog, a seed, and
// counts of the resources that a run leaves behind.
package harness

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/tests/leak"
)

// ErrHang reports that a function did not return in time.
var ErrHang = errors.New("hangs")

// Bounded runs f on a new goroutine and returns its error. If f does not return within limit,
// Bounded returns ErrHang with the stacks of all goroutines.
func Bounded(limit time.Duration, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return fmt.Errorf("%w:\n%s", ErrHang, leak.Stacks())
	}
}

// Seed returns FUCINA_TEST_SEED, or a seed that is new each time, and prints it.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed, ok := Number(t, "FUCINA_TEST_SEED")
	if !ok {
		seed = rand.Uint64N(1 << 31)
	}
	t.Logf("FUCINA_TEST_SEED=%d", seed)
	return seed
}

// Number returns the number in an environment variable, and whether the variable is
// set.
func Number(t testing.TB, name string) (n uint64, set bool) {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("%s is %q, want a number", name, s)
	}
	return n, true
}

// CloseLater closes c when the test ends, and reports its error.
func CloseLater(t testing.TB, c io.Closer) {
	t.Helper()
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
}

// SameIDs returns an error unless a model generated the tokens want.
func SameIDs(got, want []int32) error {
	if !slices.Equal(got, want) {
		return fmt.Errorf("ids %v, want %v", got, want)
	}
	return nil
}

// LeftOn describes the resources that are left on a closed provider.
func LeftOn(s provider.Stats) error {
	if s.LiveBlocks != 0 || s.LiveBytes != 0 || s.LiveQueues != 0 || s.PinnedBytes != 0 || s.Allocs != s.Frees {
		return fmt.Errorf("left on the provider: %+v", s)
	}
	return nil
}
