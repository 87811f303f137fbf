package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/internal/invariants"
	"github.com/fucina-go/fucina/llm"
	"github.com/fucina-go/fucina/providers/cpu"
	"github.com/fucina-go/fucina/tests/harness"
	"github.com/fucina-go/fucina/tests/inject"
	"github.com/fucina-go/fucina/tests/leak"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

// patience is the time after which a run counts as deadlocked. A run takes milliseconds.
const patience = time.Minute

// tokens is the number of ids that a session generates.
const tokens = 10

// ample is the number of tokens of a cache that both sessions and their forks fit into. The
// default depends on the memory of the device, which some runs make very small.
const ample = 320

// prompts are the prompts of the two sessions. They have different lengths, and the first page
// of the cache in common.
var prompts = func() [2][]int32 {
	common := []int32{1}
	for i := range int32(32) {
		common = append(common, 258+i*7%40)
	}
	return [2][]int32{append(slices.Clone(common), 260, 270), append(slices.Clone(common), 263, 258, 290, 271, 265, 280)}
}()

// configuration is a kind of provider for the sessions.
type configuration struct {
	name string
	// open returns a provider that chooses delays and limits at random, and describes
	// the choice.
	open func(rng *rand.Rand) (*device, string, error)
	// events returns the possible events. An event that is more likely is listed more
	// often.
	events []func(p *planner) event
}

// device is a provider under test.
type device struct {
	faults *inject.Provider
	// opts make an engine compute on the provider alone.
	opts []fucina.Option
	// disarm drops the armed faults of the provider, and hazards returns the misuses that
	// it has recorded. They are nil if a provider has no faults.
	disarm  func()
	hazards func() []string
}

// event is one of the three events of a run.
type event struct {
	what string
	// shared says that the event may affect either session, because it concerns something
	// that both use.
	shared bool
	// errs are the errors that an error caused by the event may match. A delay has none.
	errs []error
	// arm arms the event.
	arm func(r *run)
}

// plan has the choices and events of a run.
type plan struct {
	number uint64
	device string // the choices of configuration.open
	victim int    // index of the session that the events are meant for
	batch  int
	cache  int  // the tokens of the cache
	fork   bool // whether each session is forked after its prompt
	events [3]event
}

func (p *plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "run %d: %s, victim %d, batch %d, cache of %d tokens, fork %t", p.number, p.device, p.victim, p.batch, p.cache, p.fork)
	for _, e := range p.events {
		fmt.Fprintf(&b, "; %s", e.what)
		if e.shared {
			b.WriteString(" (shared)")
		}
	}
	return b.String()
}

// planner makes the events of a run.
type planner struct {
	rng    *rand.Rand
	victim int
	counts *counts
}

// counts are the numbers of calls of a run without faults, by kind, for each session and in
// total.
type counts struct {
	of  [2][inject.Calls]int
	all [inject.Calls]int
}

// nth returns the number of a random call of the kind, among those of the victim or of all.
func (p *planner) nth(call inject.Call, shared bool) int {
	n := p.counts.of[p.victim][call]
	if shared {
		n = p.counts.all[call]
	}
	return 1 + p.rng.IntN(max(n, 1))
}

// who is the label of a session's calls.
type who int

// run is a run in progress.
type run struct {
	device
	plan   *plan
	model  *llm.Model
	ctx    [2]context.Context
	cancel [2]context.CancelFunc

	mu       sync.Mutex
	sessions [2]*llm.Session // the open sessions, for closeEarly
	helpers  sync.WaitGroup

	failed [2]atomic.Bool // whether each session ended with an error of an event
}

// failCall makes a call fail at once. It is a call of the victim, if calls of the kind have a
// caller.
func failCall(call inject.Call, sentinel error) func(*planner) event {
	return func(p *planner) event {
		shared := call == inject.NewQueue || call == inject.Alloc || call == inject.AllocPinned
		nth := p.nth(call, shared)
		err := fmt.Errorf("injected error of %s %d", call, nth)
		if sentinel != nil {
			err = fmt.Errorf("%w: %w", sentinel, err)
		}
		f := inject.Fault{Call: call, Who: who(p.victim), Nth: nth, Err: err}
		if shared {
			f.Who = nil
		}
		return event{
			what: fmt.Sprintf("%s %d fails", call, nth), shared: shared, errs: []error{err},
			arm: func(r *run) { r.faults.Arm(f) },
		}
	}
}

// delay delays some calls of either session.
func delay(p *planner) event {
	call := []inject.Call{inject.Submit, inject.Submit, inject.WaitFor, inject.Upload, inject.Download}[p.rng.IntN(5)]
	nth, n := p.nth(call, true), 1+p.rng.IntN(5)
	d := time.Duration(p.rng.IntN(1000)) * time.Microsecond
	return event{
		what: fmt.Sprintf("%d calls from %s %d on wait %s", n, call, nth, d),
		arm: func(r *run) {
			for i := range n {
				r.faults.Arm(inject.Fault{Call: call, Nth: nth + i, Do: func(provider.Queue) { time.Sleep(d) }})
			}
		},
	}
}

// cancelAtCall cancels the victim before one of its calls.
func cancelAtCall(p *planner) event {
	call := []inject.Call{inject.Submit, inject.Submit, inject.WaitFor, inject.Upload, inject.Download}[p.rng.IntN(5)]
	nth, victim := p.nth(call, false), p.victim
	return event{
		what: fmt.Sprintf("cancelled at %s %d", call, nth), errs: []error{context.Canceled},
		arm: func(r *run) {
			r.faults.Arm(inject.Fault{Call: call, Who: who(victim), Nth: nth, Do: func(provider.Queue) { r.cancel[victim]() }})
		},
	}
}

// cancelAfter cancels the victim some time after its start.
func cancelAfter(p *planner) event {
	d, victim := time.Duration(p.rng.IntN(5000))*time.Microsecond, p.victim
	return event{
		what: fmt.Sprintf("cancelled after %s", d), errs: []error{context.Canceled},
		arm: func(r *run) {
			r.helpers.Go(func() {
				time.Sleep(d)
				r.cancel[victim]()
			})
		},
	}
}

// closeEarly closes the victim's session between two of its steps, as soon as possible after
// one of its calls. The next step finds the session closed or being closed.
func closeEarly(p *planner) event {
	nth, victim := p.nth(inject.Submit, false), p.victim
	return event{
		what: fmt.Sprintf("closed at submit %d", nth), errs: []error{fucina.ErrClosed, fucina.ErrBusy},
		arm: func(r *run) {
			r.faults.Arm(inject.Fault{Call: inject.Submit, Who: who(victim), Nth: nth, Do: func(provider.Queue) {
				r.helpers.Go(func() { r.closeEarly(victim) })
			}})
		},
	}
}

func (r *run) closeEarly(i int) {
	for {
		r.mu.Lock()
		s := r.sessions[i]
		r.mu.Unlock()
		if s == nil || !errors.Is(s.Close(), fucina.ErrBusy) {
			return
		}
		time.Sleep(10 * time.Microsecond)
	}
}

// small is a model with all kinds of op and few of each.
var small = tinyllama.Options{Layers: 1, Embedding: 16, Heads: 2, KVHeads: 1, FeedForward: 32, Context: 64}

func openCPU(*rand.Rand) (*device, string, error) {
	c, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		return nil, "", err
	}
	faults := inject.New(c)
	return &device{faults: faults, opts: []fucina.Option{fucina.WithProvider("cpu"), fucina.WithCPU(faults)}}, "cpu", nil
}

// configurations are the providers of this build. The CPU computes within the calls, so that
// only the calls for queues are shared by the sessions.
func configurations() []configuration {
	list := []configuration{{
		name: "cpu",
		open: openCPU,
		events: []func(*planner) event{
			failCall(inject.Submit, nil), failCall(inject.Submit, accel.ErrDeviceFailed), failCall(inject.NewQueue, nil),
			delay, cancelAtCall, cancelAfter, closeEarly,
		},
	}}
	return append(list, devices()...)
}

// fixture has the data that the runs share.
type fixture struct {
	file *gguf.File
	want [2][]int32
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	path := tinyllama.New(small).File(t, "model.gguf")
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	harness.CloseLater(t, f)
	x := &fixture{file: f}
	eng, err := fucina.Open(fucina.WithProvider("cpu"), fucina.WithThreads(1), fucina.WithExact(true))
	if err != nil {
		t.Fatal(err)
	}
	m, err := llm.New(eng, f, llm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range x.want {
		r := generate(t.Context(), m, prompts[i], 512, func(*llm.Session) {})
		if r.err != nil {
			t.Fatal(r.err)
		}
		x.want[i] = r.ids
	}
	if err := errors.Join(m.Close(), eng.Close()); err != nil {
		t.Fatal(err)
	}
	if slices.Equal(x.want[0], x.want[1]) {
		t.Fatalf("both sessions generate %v", x.want[0])
	}
	return x
}

// result is how a session ended: the likeliest tokens up to the end or an error.
type result struct {
	ids []int32
	err error
}

// generate runs a new session on m. It calls opened with the session, and with nil before it
// closes the session.
func generate(ctx context.Context, m *llm.Model, prompt []int32, batch int, opened func(*llm.Session)) result {
	r, _ := generateTwice(ctx, m, prompt, batch, false, opened)
	return r
}

// generateTwice does the same as generate. If fork is set, it forks the session after the first
// token, and runs the fork, without ctx, when the session has ended.
func generateTwice(ctx context.Context, m *llm.Model, prompt []int32, batch int, fork bool, opened func(*llm.Session)) (r, forked result) {
	s, err := m.NewSession(llm.SessionOptions{Batch: batch})
	if err != nil {
		return result{err: err}, result{}
	}
	opened(s)
	var child *llm.Session
	r = greedy(ctx, s, prompt, nil, 1)
	if fork && r.err == nil {
		child, r.err = s.Fork()
	}
	if r.err == nil {
		r = greedy(ctx, s, r.ids, r.ids, tokens)
	}
	opened(nil)
	r.err = errors.Join(r.err, closed(s))
	if child != nil {
		first := r.ids[:1:1]
		forked = greedy(context.Background(), child, first, first, tokens)
		forked.err = errors.Join(forked.err, closed(child))
	}
	return r, forked
}

// greedy decodes next and then the likeliest tokens, which it appends to ids, until there are n.
func greedy(ctx context.Context, s *llm.Session, next, ids []int32, n int) result {
	logits := make([]float32, s.Model().Params().Vocabulary)
	for ; len(ids) < n; next = ids[len(ids)-1:] {
		if err := s.Decode(ctx, next, logits); err != nil {
			return result{ids, err}
		}
		best := 0
		for i, v := range logits {
			if v > logits[best] {
				best = i
			}
		}
		ids = append(ids, int32(best))
	}
	return result{ids, nil}
}

// closed closes s, which closeEarly may be closing too.
func closed(s *llm.Session) error {
	err := s.Close()
	for errors.Is(err, fucina.ErrBusy) {
		time.Sleep(10 * time.Microsecond)
		err = s.Close()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errClose, err)
	}
	return nil
}

// errClose reports a failed close of a session, which no event explains.
var errClose = errors.New("close of a session")

// count returns the calls of a run without events.
func (x *fixture) count(c *configuration, rng *rand.Rand) (*counts, error) {
	dev, _, err := c.open(rng)
	if err != nil {
		return nil, err
	}
	r := &run{device: *dev, plan: &plan{batch: 4, cache: ample}}
	var n counts
	err = r.do(x, func() {
		for call := range inject.Calls {
			for i := range n.of {
				n.of[i][call] = dev.faults.Count(call, who(i))
			}
			n.all[call] = dev.faults.Count(call, nil)
		}
	})
	if err == nil && n.of[1][inject.Submit] < tokens*10 {
		err = fmt.Errorf("unlikely calls %v", n)
	}
	return &n, err
}

// plan returns the plan of the run with the given number. Each run has a device of its own.
func (x *fixture) plan(c *configuration, n *counts, seed, number uint64) (*run, error) {
	rng := rand.New(rand.NewPCG(seed, number))
	dev, described, err := c.open(rng)
	if err != nil {
		return nil, err
	}
	p := &plan{number: number, device: described, victim: rng.IntN(2), batch: 1 + rng.IntN(8), fork: rng.IntN(2) == 0}
	if p.cache = ample; rng.IntN(2) == 0 {
		p.cache = 64 + 32*rng.IntN(3) // a session needs 2 pages of 32 tokens
	}
	for i := range p.events {
		p.events[i] = c.events[rng.IntN(len(c.events))](&planner{rng, p.victim, n})
	}
	return &run{device: *dev, plan: p}, nil
}

// do runs the sessions, and checks how they end and that nothing is left. It calls done when
// they have ended.
func (r *run) do(x *fixture, done func()) error {
	before := leak.Now()
	err := harness.Bounded(patience, func() error { return r.onEngine(x, done) })
	if errors.Is(err, harness.ErrHang) {
		return err
	}
	errs := []error{err, before.Left(), harness.LeftOn(r.faults.Provider.Stats())}
	if r.hazards != nil {
		for _, h := range r.hazards() {
			errs = append(errs, fmt.Errorf("hazard: %s", h))
		}
	}
	return errors.Join(errs...)
}

func (r *run) onEngine(x *fixture, done func()) error {
	for i := range r.ctx {
		r.ctx[i], r.cancel[i] = context.WithCancel(inject.As(context.Background(), who(i)))
		defer r.cancel[i]()
	}
	for _, e := range r.plan.events {
		if e.arm != nil {
			e.arm(r)
		}
	}
	defer r.helpers.Wait()
	eng, err := fucina.Open(append(r.opts, fucina.WithExact(true))...)
	if err != nil {
		return r.judge(-1, err)
	}
	if r.model, err = llm.New(eng, x.file, llm.Options{CacheTokens: r.plan.cache}); err != nil {
		return errors.Join(r.judge(-1, err), eng.Close())
	}
	var wg sync.WaitGroup
	var errs [3]error
	for i := range r.ctx {
		wg.Go(func() { errs[i] = r.session(x, i) })
	}
	wg.Wait()
	r.helpers.Wait()
	done()
	// Only values that the device computed or that it alone had can fail. The weights are
	// on the host. Pending work of a cancelled session may still fail.
	r.faults.Disarm()
	if r.disarm != nil {
		r.disarm()
	}
	_ = r.faults.Sync(context.Background()) // a failure was reported to the reader of its results
	next := generate(context.Background(), r.model, prompts[0], r.plan.batch, func(*llm.Session) {})
	if next.err == nil {
		next.err = harness.SameIDs(next.ids, x.want[0])
	}
	if next.err != nil {
		errs[2] = fmt.Errorf("the next session: %w", next.err)
	}
	err = errors.Join(append(errs[:], r.model.Close(), eng.Close())...)
	if s := eng.Stats(); s.Handles != 0 || s.Pool.Outstanding != 0 || s.Pool.Cached != 0 {
		err = errors.Join(err, fmt.Errorf("after close: %d handles, pool %+v", s.Handles, s.Pool))
	}
	return err
}

// session runs session i and its fork, and checks their ends.
func (r *run) session(x *fixture, i int) error {
	own, fork := generateTwice(r.ctx[i], r.model, prompts[i], r.plan.batch, r.plan.fork, func(s *llm.Session) {
		r.mu.Lock()
		r.sessions[i] = s
		r.mu.Unlock()
	})
	r.failed[i].Store(own.err != nil && !errors.Is(own.err, llm.ErrCacheFull))
	if err := r.checkEnd(i, own, x.want[i]); err != nil {
		return fmt.Errorf("session %d: %w", i, err)
	}
	if fork.ids != nil {
		// The events of the session are not those of its fork.
		if err := r.checkEnd(-1, fork, x.want[i]); err != nil {
			return fmt.Errorf("the fork of session %d: %w", i, err)
		}
	}
	return nil
}

// checkEnd checks the end of session i, or of one that no event is meant for if i is negative.
func (r *run) checkEnd(i int, end result, want []int32) error {
	if end.err == nil {
		return harness.SameIDs(end.ids, want)
	}
	return errors.Join(r.judge(i, end.err), harness.SameIDs(end.ids, want[:min(len(end.ids), len(want))]))
}

// judge returns nil if an event or a small cache explains the error of session i, or of what
// belongs to no session if i is negative.
func (r *run) judge(i int, err error) error {
	if errors.Is(err, errClose) {
		return err
	}
	if r.plan.cache < ample && errors.Is(err, llm.ErrCacheFull) {
		return nil
	}
	for _, e := range r.plan.events {
		if !e.shared && i != r.plan.victim {
			continue
		}
		for _, sentinel := range e.errs {
			if errors.Is(err, sentinel) {
				return nil
			}
		}
	}
	return fmt.Errorf("no event explains: %w", err)
}

// Three random events happen in two sessions, one of which is the victim.
func TestFaults(t *testing.T) {
	seed := harness.Seed(t)
	runs, ok := harness.Number(t, "FUCINA_FAULT_RUNS")
	if !ok {
		runs = 100
		if testing.Short() || invariants.RaceEnabled || invariants.Enabled {
			runs = 25
		}
	}
	shards, ok := harness.Number(t, "FUCINA_FAULT_SHARDS")
	if !ok || shards == 0 {
		shards = 1
	}
	only, replay := harness.Number(t, "FUCINA_FAULT_RUN")
	x := newFixture(t)
	for _, c := range configurations() {
		t.Run(c.name, func(t *testing.T) {
			n, err := x.count(&c, rand.New(rand.NewPCG(0, 0)))
			if err != nil {
				t.Fatalf("without events: %v", err)
			}
			var tried, victims, others int
			try := func(number uint64) {
				r, err := x.plan(&c, n, seed, number)
				if err != nil {
					t.Fatal(err)
				}
				if replay {
					t.Log(r.plan)
				}
				if err := r.do(x, func() {}); err != nil {
					t.Fatalf("%s\n%v\nrepeat with FUCINA_TEST_SEED=%d FUCINA_FAULT_RUN=%d", r.plan, err, seed, number)
				}
				tried++
				if r.failed[r.plan.victim].Load() {
					victims++
				}
				if r.failed[1-r.plan.victim].Load() {
					others++
				}
			}
			if replay {
				for range 200 {
					try(only)
				}
				return
			}
			for number := seed % shards; number < runs; number += shards {
				try(number)
			}
			t.Logf("of %d runs, the victim failed in %d and the other session in %d", tried, victims, others)
			if tried >= 20 && (victims < tried/5 || others > victims) {
				t.Error("the events do not strike whom they are meant for")
			}
		})
	}
}
