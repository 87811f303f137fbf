package conformance

import (
	"fmt"
	"testing"

	"github.com/fucina-go/fucina/core/conformance"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/internal/invariants"
	"github.com/fucina-go/fucina/providers/cpu"
)

// short reports whether to run the short suite, also where the race detector makes the
// long one slow.
func short() bool { return testing.Short() || invariants.RaceEnabled }

// The CPU's provider passes the suite on any number of threads, declines nothing, and has
// the same bits on all of them.
func TestCPU(t *testing.T) {
	var first string
	for _, threads := range []int{1, 2, 3} {
		t.Run(fmt.Sprint(threads, " threads"), func(t *testing.T) {
			open := func() (provider.Provider, error) { return cpu.New(cpu.Options{Threads: threads}) }
			r := conformance.Run(t, open, conformance.Options{Reference: true, Short: short()})
			t.Logf("%d cases", r.Cases)
			if first == "" {
				first = r.Digest
			}
			if r.Digest != first {
				t.Error("the bits depend on the number of threads")
			}
		})
	}
}
