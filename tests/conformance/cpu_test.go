package conformance

import (
	"fmt"
	"os"
	"testing"

	"github.com/fucina-go/fucina/core/conformance"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/internal/invariants"
	"github.com/fucina-go/fucina/internal/isa"
	"github.com/fucina-go/fucina/providers/cpu"
)

// run runs the suite on providers with the CPU's kernels. It runs the whole suite if long is
// set or with FUCINA_TEST_FULL=1, and the short one otherwise. digests has the digests of
// earlier runs of each length. The test fails if this run's digest differs.
func run(t *testing.T, open conformance.Open, long bool, digests map[bool]string) {
	t.Helper()
	// The race detector makes the long suite slow.
	runSuite(t, open, testing.Short() || invariants.RaceEnabled || !long && os.Getenv("FUCINA_TEST_FULL") == "", digests)
}

// runSuite is run for the short suite or the whole one.
func runSuite(t *testing.T, open conformance.Open, short bool, digests map[bool]string) {
	t.Helper()
	r := conformance.Run(t, open, conformance.Options{Reference: true, Short: short})
	t.Logf("%d cases", r.Cases)
	if digests[short] == "" {
		digests[short] = r.Digest
	}
	if r.Digest != digests[short] {
		t.Error("the bits are not those of other runs")
	}
}

// The CPU provider passes the suite on any number of threads, declines nothing, and gives
// the same bits on all of them.
func TestCPU(t *testing.T) {
	digests := make(map[bool]string)
	for _, tt := range []struct {
		threads int
		long    bool
	}{{1, false}, {2, false}, {3, false}, {3, true}} {
		t.Run(fmt.Sprint(tt.threads, " threads, all ", tt.long), func(t *testing.T) {
			open := func() (provider.Provider, error) { return cpu.New(cpu.Options{Threads: tt.threads}) }
			run(t, open, tt.long, digests)
		})
	}
}

// The CPU provider gives the same bits with every instruction set, in exact mode and otherwise.
func TestLevels(t *testing.T) {
	digests := make(map[bool]string)
	for _, level := range isa.Supported() {
		t.Run(level.String(), func(t *testing.T) {
			open := func() (provider.Provider, error) { return cpu.New(cpu.Options{Threads: 2, Level: level.String()}) }
			runSuite(t, open, true, digests)
		})
	}
}
