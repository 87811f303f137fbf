package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/core/storage"
	"github.com/fucina-go/fucina/internal/invariants"
	"github.com/fucina-go/fucina/internal/offheap"
	"github.com/fucina-go/fucina/llm"
	"github.com/fucina-go/fucina/providers/cpu"
	"github.com/fucina-go/fucina/tests/harness"
	"github.com/fucina-go/fucina/tests/inject"
	"github.com/fucina-go/fucina/tests/leak"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

const (
	// clients is the number of goroutines that serve sessions.
	clients = 8
	// warm is the number of sessions that fill the pools.
	warm = 100
	// perSession is the number of bytes of any kind that a session may leave behind. In
	// total the limit is at least least and at most growth. The pools grow a little,
	// because the peak demand of eight concurrent sessions still rises, ever more rarely,
	// and each set of fences keeps some ended queues. A leak of 100 bytes per session
	// exceeds the limit after 1,000 sessions.
	perSession = 50
	least      = 100 << 10
	growth     = 1 << 20
	// longest is the length of the longest prompt, and the most tokens that follow it.
	longest = 8
	// patience is the time beyond the planned end of a run after which its sessions count
	// as deadlocked.
	patience = 4 * time.Minute
)

// checked says that the build keeps records of memory, or blocks, on the Go heap, and that it
// is slow. The size of the heap is then not checked.
const checked = invariants.RaceEnabled || invariants.Enabled

var small = tinyllama.Options{Layers: 1, Embedding: 16, Heads: 2, KVHeads: 1, FeedForward: 32, Context: 64}

// errFault is the failure of some sessions.
var errFault = errors.New("injected failure")

// configuration is a kind of provider for the sessions.
type configuration struct {
	name string
	// sessions is the number of sessions of a short test after the first ones: so many
	// that the growth of the pools is far below perSession.
	sessions int64
	open     func() (*device, error)
}

type device struct {
	faults *inject.Provider
	// opts make an engine compute on the provider alone.
	opts []fucina.Option
	// failWork makes the next operation of a queue fail later. It is nil if operations
	// fail at once.
	failWork func(q provider.Queue)
}

func openCPU() (*device, error) {
	c, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		return nil, err
	}
	faults := inject.New(c)
	return &device{faults: faults, opts: []fucina.Option{fucina.WithProvider("cpu"), fucina.WithCPU(faults)}}, nil
}

// server is one engine with one model.
type server struct {
	*device
	eng    *fucina.Engine
	model  *llm.Model
	weight fucina.Tensor // {out k}, used once by every session
	served atomic.Uint64
}

const width = 64 // width of the weight

func newServer(c *configuration, path string) (*server, error) {
	d, err := c.open()
	if err != nil {
		return nil, err
	}
	s := &server{device: d}
	if s.eng, err = fucina.Open(append(d.opts, fucina.WithExact(true))...); err != nil {
		return nil, err
	}
	if s.model, err = llm.Open(s.eng, path, llm.Options{}); err != nil {
		return nil, err
	}
	b, err := storage.New(4 * width * width)
	if err != nil {
		return nil, err
	}
	p, err := b.Host(context.Background(), storage.Overwrite)
	if err != nil {
		return nil, err
	}
	clear(p)
	s.weight, err = s.eng.Weight(b, dtype.F32, fucina.Ax("out", width), fucina.Ax("k", width))
	return s, err
}

func (s *server) close() error {
	s.weight.Release()
	return errors.Join(s.model.Close(), s.eng.Close())
}

// serve serves sessions with all clients as long as next returns true.
func (s *server) serve(limit time.Duration, seed uint64, warming bool, next func() bool) error {
	return harness.Bounded(limit+patience, func() error {
		var wg sync.WaitGroup
		var errs [clients]error
		for i := range errs {
			rng := rand.New(rand.NewPCG(seed, s.served.Load()*clients+uint64(i)))
			wg.Go(func() {
				for errs[i] == nil && next() {
					errs[i] = s.session(rng, warming)
				}
			})
		}
		wg.Wait()
		return errors.Join(errs[:]...)
	})
}

// fate decides how a session of the client me ends. Half of the sessions end well.
func (s *server) fate(rng *rand.Rand, me any, cancel func()) (excuse error) {
	f := inject.Fault{Call: inject.Submit, Who: me, Nth: 1 + rng.IntN(200)}
	switch {
	case rng.IntN(2) == 0:
		return nil
	case rng.IntN(2) == 0:
		f.Do, excuse = func(provider.Queue) { cancel() }, context.Canceled
	case s.failWork != nil:
		f.Do, excuse = s.failWork, errFault
	default:
		f.Err, excuse = errFault, errFault
	}
	s.faults.Arm(f)
	return excuse
}

// session serves one session, with a random prompt and fate. While the pools fill, it
// sometimes sleeps, so that all clients have a session at the same time.
func (s *server) session(rng *rand.Rand, warming bool) error {
	defer s.served.Add(1)
	me := new(int)
	ctx, cancel := context.WithCancel(inject.As(context.Background(), me))
	defer cancel()
	defer s.faults.Forget(me)
	excuse := s.fate(rng, me, cancel)
	for range 8 {
		if warming {
			s.faults.Arm(inject.Fault{Call: inject.Submit, Who: me, Nth: 1 + rng.IntN(200), Do: func(provider.Queue) { time.Sleep(time.Millisecond) }})
		}
	}
	err := s.multiply(ctx)
	if err == nil {
		err = s.generate(ctx, rng)
	}
	if err != nil && (excuse == nil || !errors.Is(err, excuse)) {
		return fmt.Errorf("a session whose excuse is %v: %w", excuse, err)
	}
	return nil
}

func (s *server) generate(ctx context.Context, rng *rand.Rand) error {
	session, err := s.model.NewSession(llm.SessionOptions{})
	if err != nil {
		return err
	}
	prompt := make([]int32, 1+rng.IntN(longest))
	for i := range prompt {
		prompt[i] = int32(259 + rng.IntN(60))
	}
	for _, err = range session.GenerateIDs(ctx, prompt, llm.GenerateOptions{MaxTokens: 1 + rng.IntN(longest)}) {
		if err != nil {
			break
		}
	}
	return errors.Join(err, session.Close())
}

// multiply multiplies by the weight in a context of its own.
func (s *server) multiply(ctx context.Context) error {
	c, err := s.eng.NewContext()
	if err != nil {
		return err
	}
	c.SetCancel(ctx)
	return errors.Join(s.op(c), c.Close())
}

// op multiplies by the weight.
func (s *server) op(c *fucina.Context) error {
	f := c.Frame()
	defer f.Close()
	x := fucina.FromSlice(c, make([]float32, width), fucina.Ax("m", 1), fucina.Ax("k", width))
	return fucina.CopyOut(x.Dot(s.weight, "k"), make([]float32, width))
}

// opTime returns the median time of an op on the weight.
func (s *server) opTime() (time.Duration, error) {
	c, err := s.eng.NewContext()
	if err != nil {
		return 0, err
	}
	var times []time.Duration
	for range 1001 {
		start := time.Now()
		if err := s.op(c); err != nil {
			return 0, errors.Join(err, c.Close())
		}
		times = append(times, time.Since(start))
	}
	return median(times), c.Close()
}

func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}

// quantity is an amount of a resource that is held while no session is served, and the growth
// that n sessions may cause.
type quantity struct {
	name  string
	value int64
	more  func(n int64) int64
}

const heapBytes = "bytes of the Go heap"

func none(int64) int64 { return 0 }

func bytes(n int64) int64 { return min(max(perSession*n, least), growth) }

// some is the limit for numbers of pooled objects: one per thousand bytes.
func some(n int64) int64 { return bytes(n) / 1000 }

// measure returns all quantities. No session is served meanwhile.
func (s *server) measure() []quantity {
	// Objects with finalizers, and those that a pool keeps for one more collection,
	// outlive the first collection.
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	o, e, d := offheap.Stats(), s.eng.Stats(), s.faults.Provider.Stats()
	return []quantity{
		// The memory of the simulated device lies on the Go heap.
		{heapBytes, int64(m.HeapAlloc) - d.LiveBytes, bytes},
		// Memory that a transfer still used when its buffer was released is freed a little
		// later.
		{"bytes off the Go heap", o.LiveBytes - e.Pool.Cached, bytes},
		{"bytes of the host pool", e.Pool.Cached, bytes},
		{"blocks off the Go heap", o.LiveBlocks, some},
		{"buffers of the host pool in use", e.Pool.Outstanding, none},
		{"handles", e.Handles, none},
		{"bytes of the device", d.LiveBytes, bytes},
		{"blocks of the device", d.LiveBlocks, some},
		{"queues of the device", d.LiveQueues, none},
		{"pinned bytes", d.PinnedBytes, none},
		{"goroutines", int64(runtime.NumGoroutine()), none},
	}
}

func TestSoak(t *testing.T) {
	path := tinyllama.New(small).File(t, "model.gguf")
	seed := harness.Seed(t)
	var long time.Duration
	if v := os.Getenv("FUCINA_SOAK_TIME"); v != "" {
		var err error
		if long, err = time.ParseDuration(v); err != nil {
			t.Fatalf("FUCINA_SOAK_TIME: %v", err)
		}
	}
	for _, c := range append([]configuration{{"cpu", 1500, openCPU}}, devices()...) {
		t.Run(c.name, func(t *testing.T) {
			before := leak.Now()
			s, err := newServer(&c, path)
			if err != nil {
				t.Fatal(err)
			}
			n := c.sessions
			if testing.Short() {
				n /= 4
			}
			if checked {
				n /= 16
			}
			soak(t, s, seed, n, long)
			if err := s.close(); err != nil {
				t.Error(err)
			}
			if err := errors.Join(before.Left(), harness.LeftOn(s.faults.Provider.Stats())); err != nil {
				t.Error(err)
			}
		})
	}
}

func soak(t *testing.T, s *server, seed uint64, sessions int64, long time.Duration) {
	upTo := func(n int64) func() bool {
		var taken atomic.Int64
		return func() bool { return taken.Add(1) <= n }
	}
	if err := s.serve(0, seed, true, upTo(warm)); err != nil {
		t.Fatal(err)
	}
	first, n := s.measure(), s.served.Load()
	if long == 0 {
		if err := s.serve(0, seed, false, upTo(sessions)); err != nil {
			t.Fatal(err)
		}
	} else {
		s.soakLong(t, seed, long)
	}
	n = s.served.Load() - n
	for i, q := range s.measure() {
		more := q.value - first[i].value
		t.Logf("%s: %d, %+d after %d sessions", q.name, q.value, more, n)
		if limit := q.more(int64(n)); more > limit && !(checked && q.name == heapBytes) {
			t.Errorf("%d sessions left %d %s behind, at most %d are due to new peaks", n, more, q.name, limit)
		}
	}
}

// soakLong serves sessions for a duration, and measures the time of an op in between.
func (s *server) soakLong(t *testing.T, seed uint64, long time.Duration) {
	const rounds = 40
	var times []time.Duration
	for range rounds {
		end := time.Now().Add(long / rounds)
		if err := s.serve(long/rounds, seed, false, func() bool { return time.Now().Before(end) }); err != nil {
			t.Fatal(err)
		}
		d, err := s.opTime()
		if err != nil {
			t.Fatal(err)
		}
		times = append(times, d)
		t.Logf("%d sessions: one op takes %s", s.served.Load(), d)
	}
	// A time that grew with the number of sessions would be many times longer at the end. A
	// change of the processor's clock makes it less than twice as long.
	early, late := median(times[:rounds/4]), median(times[rounds-rounds/4:])
	if late > 2*early {
		t.Errorf("one op takes %s, and %s in the beginning", late, early)
	}
}
