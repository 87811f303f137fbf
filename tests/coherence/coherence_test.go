package coherence

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fucina-go/fucina/internal/invariants"
	"github.com/fucina-go/fucina/internal/offheap"
	"github.com/fucina-go/fucina/tests/harness"
)

// patience is the time after which a schedule counts as deadlocked. A schedule takes
// milliseconds.
const patience = time.Minute

func configurations() []configuration {
	return append([]configuration{{"cpu", openCPU}}, devices()...)
}

// try runs a schedule on a configuration and describes a failure.
func try(s *schedule, c *configuration) error {
	watchdog := time.AfterFunc(patience, func() {
		panic(fmt.Sprintf("schedule %d on %q hangs; see the goroutines below\n%s", s.seed, c.name, s.trace(-1)))
	})
	defer watchdog.Stop()
	at, err := run(s, c)
	if err == nil {
		return nil
	}
	return fmt.Errorf("schedule %d on %q, step %d: %w\n%srepeat with FUCINA_COHERENCE_SEED=%d",
		s.seed, c.name, at, err, s.trace(at), s.seed)
}

// Random schedules see the program order on every configuration, leak nothing, and cause no
// hazard of a device.
func TestSchedules(t *testing.T) {
	list := configurations()
	before := offheap.Stats()
	if seed, ok := harness.Number(t, "FUCINA_COHERENCE_SEED"); ok {
		replay(t, seed, list)
		return
	}
	base, ok := harness.Number(t, "FUCINA_TEST_SEED")
	if !ok {
		base = 1
	}
	count := 20000
	switch {
	case os.Getenv("FUCINA_TEST_FULL") == "1":
		count *= 10
	case testing.Short():
		count /= 10
	}
	if invariants.RaceEnabled || invariants.Enabled {
		count /= 10
	}
	// Schedules make much garbage and keep little memory.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	var next, schedules, runs atomic.Uint64
	var failed atomic.Bool
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			k := newKernels()
			for !failed.Load() {
				i := next.Add(1) - 1
				if i >= uint64(count) {
					return
				}
				s := generate(k, base<<20+i)
				schedules.Add(1)
				for j := range list {
					// Each schedule runs on one configuration, and some on all.
					if i%32 != 0 && int(i)%len(list) != j {
						continue
					}
					if failed.Load() {
						return
					}
					runs.Add(1)
					if err := try(s, &list[j]); err != nil {
						failed.Store(true)
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	t.Logf("FUCINA_TEST_SEED=%d: %d schedules, %d runs on %d configurations", base, schedules.Load(), runs.Load(), len(list))
	if after := offheap.Stats(); !failed.Load() && after.LiveBytes != before.LiveBytes {
		t.Errorf("%d bytes of host memory are live, %d before", after.LiveBytes, before.LiveBytes)
	}
}

// replay runs one schedule many times and prints it.
func replay(t *testing.T, seed uint64, list []configuration) {
	s := generate(newKernels(), seed)
	t.Logf("schedule %d\n%s", seed, s.trace(-1))
	for i := range list {
		t.Run(list[i].name, func(t *testing.T) {
			for range 500 {
				before := offheap.Stats().LiveBytes
				if err := try(s, &list[i]); err != nil {
					t.Fatal(err)
				}
				if after := offheap.Stats().LiveBytes; after != before {
					t.Fatalf("schedule %d: %d bytes of host memory are live, %d before", seed, after, before)
				}
			}
		})
	}
}
