//go:build accel

package device

import (
	"context"
	"testing"

	"github.com/fucina-go/fucina/internal/invariants"
	"github.com/fucina-go/fucina/internal/sim/discrete"
)

// A decode step in steady state does not allocate on the Go heap, on a device or on the CPU.
func TestDecodeAllocatesNothing(t *testing.T) {
	if invariants.RaceEnabled || invariants.Enabled {
		t.Skip("checks allocate")
	}
	r := openRig(t, discrete.Options{})
	s := openSession(t, r.openModel(t, openFile(t, small)))
	ids, err := greedy(s, smallPrompt, 5)
	if err != nil {
		t.Fatal(err)
	}
	next := ids[len(ids)-1:]
	logits := make([]float32, s.Model().Params().Vocabulary)
	ctx := context.Background()
	if n := testing.AllocsPerRun(30, func() {
		if err := s.Decode(ctx, next, logits); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations in a decode step, want 0", n)
	}
}
