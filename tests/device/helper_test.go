//go:build accel

package device

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/internal/invariants"
	"github.com/fucina-go/fucina/internal/sim/discrete"
	"github.com/fucina-go/fucina/llm"
	"github.com/fucina-go/fucina/tests/harness"
	"github.com/fucina-go/fucina/tests/leak"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

// watchdog is the time after which a test counts as hanging. It does not measure speed.
const watchdog = 30 * time.Second

// within runs f on a goroutine of its own and fails the test if it hangs.
func within(t testing.TB, what string, f func() error) {
	t.Helper()
	if err := bounded(f); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

var errHang = harness.ErrHang

func bounded(f func() error) error { return harness.Bounded(watchdog, f) }

func testSeed(t testing.TB) uint64 {
	t.Helper()
	return harness.Seed(t)
}

// share returns the indices of the cases to run, out of n: all with FUCINA_TEST_FULL=1,
// otherwise about limit of them, spread evenly from a start that the seed chooses. Under the
// race detector there are fewer, because it is an order of magnitude slower.
func share(seed uint64, n, limit int) []int {
	step := 1
	if os.Getenv("FUCINA_TEST_FULL") != "1" {
		if invariants.RaceEnabled || invariants.Enabled {
			limit = (limit + 7) / 8
		}
		step = max(1, n/limit)
	}
	var cases []int
	for i := int(seed % uint64(step)); i < n; i += step {
		cases = append(cases, i)
	}
	return cases
}

// small is the model of sweeps, with all kinds of op and few of each.
var small = tinyllama.Options{Layers: 1, Embedding: 16, Heads: 2, KVHeads: 1, FeedForward: 32, Context: 64}

// smallPrompt is a prompt for it, in ids.
var smallPrompt = []int32{1, 260, 270}

// tokens is the number of ids that a run generates.
const tokens = 10

// openFile opens the seeded model's file and closes it when the test ends.
func openFile(t testing.TB, opt tinyllama.Options) *gguf.File {
	t.Helper()
	path := tinyllama.New(opt).File(t, "model.gguf")
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	harness.CloseLater(t, f)
	return f
}

// rig is an engine on a simulated device, with the counts of the process before it.
type rig struct {
	dev    *discrete.Device
	eng    *fucina.Engine
	before leak.Counts
}

func newRig(opt discrete.Options, opts ...fucina.Option) (*rig, error) {
	r := &rig{before: leak.Now()}
	var err error
	if r.dev, err = discrete.New(opt); err != nil {
		return nil, err
	}
	r.eng, err = fucina.Open(append([]fucina.Option{
		fucina.WithDevice(r.dev), fucina.WithThreads(1), fucina.WithExact(true),
	}, opts...)...)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// close closes the engine and returns what it left behind. The goroutine that
// opened the rig calls it.
func (r *rig) close() error {
	errs := []error{bounded(r.eng.Close)}
	if s := r.eng.Stats(); s.Handles != 0 || s.Pool.Outstanding != 0 || s.Pool.Cached != 0 {
		errs = append(errs, fmt.Errorf("after close: %d handles, pool %+v", s.Handles, s.Pool))
	}
	return errors.Join(append(errs, r.left())...)
}

// left returns what a closed engine left behind outside itself.
func (r *rig) left() error {
	errs := []error{harness.LeftOn(r.dev.Stats()), r.before.Left()}
	for _, h := range r.dev.Hazards() {
		errs = append(errs, fmt.Errorf("hazard: %s", h))
	}
	return errors.Join(errs...)
}

// openRig returns a new rig. When the test ends, it closes the rig and checks that nothing
// is left.
func openRig(t testing.TB, opt discrete.Options, opts ...fucina.Option) *rig {
	t.Helper()
	r, err := newRig(opt, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// cacheTokens is the number of tokens in the caches of the tests. The default depends on the memory
// of the device, which some tests make very small.
const cacheTokens = 1024

// openModel returns f's model on the rig, and closes it when the test ends.
func (r *rig) openModel(t testing.TB, f *gguf.File) *llm.Model {
	t.Helper()
	m, err := llm.New(r.eng, f, llm.Options{CacheTokens: cacheTokens})
	if err != nil {
		t.Fatal(err)
	}
	harness.CloseLater(t, m)
	return m
}

// openSession returns a session, and closes it when the test ends.
func openSession(t testing.TB, m *llm.Model) *llm.Session {
	t.Helper()
	s, err := m.NewSession(llm.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	harness.CloseLater(t, s)
	return s
}

// greedy appends ids to the session and returns the n likeliest tokens that follow.
func greedy(s *llm.Session, ids []int32, n int) ([]int32, error) {
	var next []int32
	logits := make([]float32, s.Model().Params().Vocabulary)
	for range n {
		if err := s.Decode(context.Background(), ids, logits); err != nil {
			return next, err
		}
		best := 0
		for i, v := range logits {
			if v > logits[best] {
				best = i
			}
		}
		next = append(next, int32(best))
		ids = next[len(next)-1:]
	}
	return next, nil
}

// generate runs a session of its own on m.
func generate(m *llm.Model, prompt []int32, n int) (ids []int32, err error) {
	s, err := m.NewSession(llm.SessionOptions{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return greedy(s, prompt, n)
}

// smallRun generates tokens from the small model's file on the rig, and closes the
// model.
func (r *rig) smallRun(f *gguf.File) (ids []int32, err error) {
	m, err := llm.New(r.eng, f, llm.Options{CacheTokens: cacheTokens})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	return generate(m, smallPrompt, tokens)
}

// smallIDs returns the ids that the CPU alone generates with the small model.
var smallIDs = sync.OnceValues(func() ([]int32, error) {
	dir, err := os.MkdirTemp("", "device")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "model.gguf")
	if err := tinyllama.WriteFile(path, small); err != nil {
		return nil, err
	}
	eng, err := fucina.Open(fucina.WithProvider("cpu"), fucina.WithThreads(1), fucina.WithExact(true))
	if err != nil {
		return nil, err
	}
	m, err := llm.Open(eng, path, llm.Options{})
	if err != nil {
		return nil, errors.Join(err, eng.Close())
	}
	ids, err := generate(m, smallPrompt, tokens)
	return ids, errors.Join(err, m.Close(), eng.Close())
})

func wantSmall(t testing.TB) []int32 {
	t.Helper()
	ids, err := smallIDs()
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// namesWindow returns nil if err is a device failure that names the operations
// that it may come from.
func namesWindow(err error) error {
	var w *accel.WindowError
	switch {
	case !errors.As(err, &w):
		return fmt.Errorf("no window in %w", err)
	case w.First == 0 || w.Last < w.First || w.Ops == "" || w.Queue == "":
		return fmt.Errorf("incomplete window %+v in %w", *w, err)
	}
	return nil
}
