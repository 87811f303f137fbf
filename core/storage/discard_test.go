package storage

import (
	"errors"
	"math"
	"runtime"
	"slices"
	"testing"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/internal/invariants"
	"github.com/fucina-go/fucina/tests/leak"
)

// discardSize is the size of the buffers that are discarded, in bytes: several pages.
const discardSize = 256 << 10

// marked sets every byte of p to 1.
func marked(p []byte) {
	for i := range p {
		p[i] = 1
	}
}

// lost reports whether the middle of p was discarded, and fails the test if its ends were. It
// skips the test if Discard does not change the contents on this system.
func lost(t *testing.T, p []byte) bool {
	t.Helper()
	if runtime.GOOS != "linux" && !invariants.Enabled && !invariants.RaceEnabled {
		t.Skip("discarded memory may keep its contents")
	}
	if p[0] != 1 || p[len(p)-1] != 1 {
		t.Errorf("bytes %d and %d outside of the range, want 1", p[0], p[len(p)-1])
	}
	return p[len(p)/2] != 1
}

// Discard changes the given bytes of owned memory, and no others. It counts as a mutation.
func TestDiscard(t *testing.T) {
	leak.Check(t)
	lentBytes := make([]byte, discardSize)
	fresh := mustNew(t, discardSize)
	for name, tt := range map[string]struct {
		b    *Buffer
		lost bool
	}{
		"owned":    {fresh, true},
		"lazy":     {NewLazy(discardSize), true},
		"borrowed": {Borrow(lentBytes, BorrowOptions{}), false},
	} {
		marked(mustHost(t, tt.b, Overwrite))
		gen := tt.b.Generation()
		tt.b.SetShadow(&accel.HostShadow{Generation: gen, Destroy: func(any) { tt.b.NewestOnDevice() }})
		if err := tt.b.Discard(1, discardSize-2); err != nil {
			t.Error(err)
		}
		if tt.lost && (tt.b.Generation() == gen || tt.b.Shadow() != nil) {
			t.Errorf("%s: not a mutation", name)
		}
		if got := lost(t, mustHost(t, tt.b, Read)); got != tt.lost {
			t.Errorf("%s: contents lost: %t, want %t", name, got, tt.lost)
		}
		for _, r := range [][2]int{{-1, 1}, {0, -1}, {0, discardSize + 1}, {discardSize + 1, 0}, {1, math.MaxInt}} {
			if err := tt.b.Discard(r[0], r[1]); !errors.Is(err, ErrRange) {
				t.Errorf("%s: %d bytes at %d: %v, want ErrRange", name, r[1], r[0], err)
			}
		}
		tt.b.Release()
	}
	b := Borrow(lentBytes, BorrowOptions{ReadOnly: true})
	if err := b.Discard(0, discardSize); !errors.Is(err, ErrReadOnly) {
		t.Errorf("read-only: %v", err)
	}
	b.Release()
	b = NewLazy(1 << 30)
	if err := b.Discard(0, 1<<30); err != nil || b.HasHost() {
		t.Errorf("memory that was never written: %v, has host memory: %t", err, b.HasHost())
	}
	b.Release()
	if slices.Max(lentBytes) != 1 {
		t.Error("the lender's bytes changed")
	}
}
