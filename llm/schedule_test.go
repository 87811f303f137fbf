package llm_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/internal/invariants"
	"github.com/fucina-go/fucina/llm"
	"github.com/fucina-go/fucina/llm/internal/kv/page"
	"github.com/fucina-go/fucina/providers/cpu"
	"github.com/fucina-go/fucina/tests/countdown"
	"github.com/fucina-go/fucina/tests/harness"
	"github.com/fucina-go/fucina/tests/harness/engine"
	"github.com/fucina-go/fucina/tests/inject"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

// scheduleShare divides the work of TestSchedules in checked builds, which are slow.
var scheduleShare = func() int {
	if invariants.RaceEnabled || invariants.Enabled {
		return 12
	}
	return 1
}()

// kvFormats are the formats of a cache.
var kvFormats = []dtype.DType{dtype.F32, dtype.F16, dtype.Q8_0}

// scheduleModel returns a small model of two layers. If window is not 0, every second block sees
// a window of that many tokens.
func scheduleModel(window int) *tinyllama.Model {
	s := tinyllama.Shape{Embedding: 32, FeedForward: 32, Heads: 2, KVHeads: 1, HeadLength: 32}
	if window == 0 {
		return tinyllama.NewShape(s)
	}
	s.Architecture, s.QKNorm, s.PostNorms = "gemma3", true, true
	m := tinyllama.NewShape(s)
	m.Set("gemma3.attention.sliding_window", uint32(window))
	m.Set("gemma3.attention.sliding_window_pattern", uint32(2))
	return m
}

// text is a sequence of tokens with the logits that follow each, by format.
type text struct {
	ids  []int32
	rows map[dtype.DType][][]float32
}

// textLength is the number of tokens of a text, and textCount the number of texts.
const textLength, textCount = 160, 8

// newTexts returns texts that have prefixes in common. Their logits come from sessions of models
// that hold nothing else.
func newTexts(t *testing.T, file *gguf.File, rng *rand.Rand) []*text {
	t.Helper()
	var texts []*text
	for i := range max(3, textCount/scheduleShare) {
		x := &text{rows: make(map[dtype.DType][][]float32)}
		if i > 0 {
			other := texts[rng.IntN(i)].ids
			x.ids = append(x.ids, other[:rng.IntN(textLength)]...)
		}
		for len(x.ids) < textLength {
			x.ids = append(x.ids, rng.Int32N(300))
		}
		texts = append(texts, x)
	}
	eng := openExact(t)
	for _, x := range texts {
		for _, kv := range kvFormats {
			x.rows[kv] = freshRows(t, eng, file, llm.SessionOptions{KV: kv}, x.ids)
		}
	}
	return texts
}

// freshRows returns the logits after each of ids, in a session of a model of its own.
func freshRows(t testing.TB, eng *fucina.Engine, file *gguf.File, opt llm.SessionOptions, ids []int32) [][]float32 {
	t.Helper()
	m, err := llm.New(eng, file, llm.Options{PrefixTokens: -1})
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.NewSession(opt)
	if err != nil {
		t.Fatal(err)
	}
	rows := make([][]float32, 0, len(ids))
	err = s.DecodeAll(context.Background(), ids, func(_ int, logits []float32) error {
		rows = append(rows, slices.Clone(logits))
		return nil
	})
	if err = errors.Join(err, s.Close(), m.Close()); err != nil {
		t.Fatal(err)
	}
	return rows
}

// faulty is an engine whose provider can fail.
type faulty struct {
	eng    *fucina.Engine
	faults *inject.Provider
	// failWork makes the next operation that is submitted to q fail later or, if one goroutine
	// alone uses the engine, now and then everything. disarm drops a failure that has not
	// happened. They are nil if operations fail at once.
	failWork func(q provider.Queue, alone bool)
	disarm   func()
	// useless says that failWork has made everything on the device fail, and that no call has
	// failed for that reason: the first one that needs the device's memory will.
	useless bool
}

// openFaulty opens an engine on the provider of the tests. The accel build adds the device.
var openFaulty = map[string]func(t *testing.T, seed uint64) *faulty{"cpu": openFaultyCPU}

func openFaultyCPU(t *testing.T, _ uint64) *faulty {
	t.Helper()
	c, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	f := &faulty{faults: inject.New(c)}
	f.eng = openExactWith(t, fucina.WithProvider("cpu"), fucina.WithCPU(f.faults))
	return f
}

// openExactWith opens an engine in exact mode with options of its own, and closes it at the end
// of the test.
func openExactWith(t *testing.T, opts ...fucina.Option) *fucina.Engine {
	t.Helper()
	eng, err := fucina.Open(append(opts, fucina.WithExact(true))...)
	if err != nil {
		t.Fatal(err)
	}
	harness.CloseLater(t, eng)
	return eng
}

var errInjected = errors.New("injected failure")

// stage is a model on which players act, one or several at once.
type stage struct {
	*faulty
	model *llm.Model
	texts []*text
	alone bool // whether there is one player

	mu    sync.Mutex
	pools map[*page.Pool]bool // all that the model has had
	full  int                 // the number of calls that found the cache full
	fails int                 // the number of calls that failed for another reason
}

// note remembers the model's pools.
func (g *stage) note() {
	pools := g.model.Pools()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range pools {
		g.pools[p] = true
	}
}

// player drives some sessions.
type player struct {
	*stage
	name     string
	rng      *rand.Rand
	sessions []*actor
	most     int // the largest number of sessions
	log      []string
}

// actor is a session that has the first tokens of a text.
type actor struct {
	s    *llm.Session
	kv   dtype.DType
	text *text
}

// act performs a random action.
func (p *player) act() error {
	if len(p.sessions) == 0 || len(p.sessions) < p.most && p.rng.IntN(12) == 0 {
		return p.open()
	}
	i := p.rng.IntN(len(p.sessions))
	a := p.sessions[i]
	switch n := p.rng.IntN(100); {
	case n < 35:
		return p.guarded(a, func(ctx context.Context) error { return p.prompt(ctx, a) })
	case n < 55:
		return p.guarded(a, func(ctx context.Context) error { return p.generate(ctx, a) })
	case n < 65:
		return p.guarded(a, func(ctx context.Context) error { return p.all(ctx, a) })
	case n < 80:
		return p.rewind(a)
	case n < 92:
		return p.fork(a)
	default:
		return p.close(i)
	}
}

// say keeps the last actions for a failure's report.
func (p *player) say(format string, args ...any) {
	if len(p.log) > 40 {
		p.log = slices.Delete(p.log, 0, 20)
	}
	p.log = append(p.log, fmt.Sprintf(format, args...))
}

func (p *player) open() error {
	a := &actor{kv: kvFormats[p.rng.IntN(len(kvFormats))], text: p.texts[p.rng.IntN(len(p.texts))]}
	opt := llm.SessionOptions{KV: a.kv, Batch: 1 + p.rng.IntN(70), KeepWindows: p.rng.IntN(4) == 0}
	p.say("open %s, batch %d, keep %t", a.kv, opt.Batch, opt.KeepWindows)
	var err error
	if a.s, err = p.model.NewSession(opt); err != nil {
		return err
	}
	p.sessions = append(p.sessions, a)
	return nil
}

func (p *player) close(i int) error {
	a := p.sessions[i]
	p.say("close of %d tokens", a.s.Past())
	p.sessions = slices.Delete(p.sessions, i, i+1)
	return a.s.Close()
}

func (p *player) rewind(a *actor) error {
	n := p.rng.IntN(a.s.Past() + 1)
	if p.rng.IntN(2) == 0 {
		n = max(0, a.s.Past()-p.rng.IntN(10))
	}
	p.say("rewind %d to %d", a.s.Past(), n)
	if err := a.s.Rewind(n); err != nil {
		return err
	}
	a.turn(p.rng, p.texts)
	return nil
}

// turn makes another text that begins with the tokens of the session the text of a.
func (a *actor) turn(rng *rand.Rand, texts []*text) {
	n := a.s.Past()
	var fit []*text
	for _, x := range texts {
		if slices.Equal(x.ids[:n], a.text.ids[:n]) {
			fit = append(fit, x)
		}
	}
	a.text = fit[rng.IntN(len(fit))]
}

func (p *player) fork(a *actor) error {
	if len(p.sessions) >= p.most {
		i := p.rng.IntN(len(p.sessions))
		if p.sessions[i] == a {
			return nil
		}
		if err := p.close(i); err != nil {
			return err
		}
	}
	p.say("fork of %d tokens", a.s.Past())
	s, err := a.s.Fork()
	if err != nil {
		return err
	}
	f := &actor{s, a.kv, a.text}
	f.turn(p.rng, p.texts)
	p.sessions = append(p.sessions, f)
	if s.Past() != a.s.Past() {
		return fmt.Errorf("a fork of %d tokens has %d", a.s.Past(), s.Past())
	}
	return nil
}

// guarded runs an action that computes. Now and then it is cancelled, or the provider fails. It
// may fail for these reasons, or because the cache is full.
func (p *player) guarded(a *actor, do func(ctx context.Context) error) error {
	ctx := context.Background()
	var allowed []error
	switch n := p.rng.IntN(20); {
	case n == 0:
		ctx = countdown.After(p.rng.IntN(60))
		allowed = append(allowed, context.Canceled)
		p.say("with a cancellation")
	case n == 1:
		p.faults.Arm(inject.Fault{Call: inject.Submit, Who: p.name, Nth: 1 + p.rng.IntN(40), Err: errInjected})
		allowed = append(allowed, errInjected)
		p.say("with a failing call")
	case n == 2 && p.failWork != nil:
		p.faults.Arm(inject.Fault{Call: inject.Submit, Who: p.name, Nth: 1 + p.rng.IntN(40), Do: func(q provider.Queue) { p.failWork(q, p.alone) }})
		allowed = append(allowed, fucina.ErrDeviceFailed, fucina.ErrDeviceLost)
		if p.rng.IntN(3) == 0 {
			ctx = countdown.After(p.rng.IntN(60))
			allowed = append(allowed, context.Canceled)
		}
		p.say("with failing work")
	}
	before := a.s.Past()
	err := do(inject.As(ctx, p.name))
	p.faults.Forget(p.name)
	if p.alone && p.disarm != nil {
		p.disarm()
	}
	if past := a.s.Past(); past < before && err != nil {
		return fmt.Errorf("%d tokens of %d remain after %w", past, before, err)
	}
	if err == nil {
		return nil
	}
	p.say("%d tokens and %v", a.s.Past(), err)
	if errors.Is(err, llm.ErrCacheFull) {
		p.mu.Lock()
		p.full++
		p.mu.Unlock()
		if p.rng.IntN(2) == 0 {
			return p.close(p.rng.IntN(len(p.sessions)))
		}
		return nil
	}
	if p.useless && (errors.Is(err, fucina.ErrDeviceLost) || errors.Is(err, fucina.ErrDeviceFailed)) {
		p.useless = false
		allowed = append(allowed, fucina.ErrDeviceLost, fucina.ErrDeviceFailed)
	}
	for _, e := range allowed {
		if errors.Is(err, e) {
			p.mu.Lock()
			p.fails++
			p.mu.Unlock()
			return nil
		}
	}
	return err
}

// prompt decodes some of the next tokens.
func (p *player) prompt(ctx context.Context, a *actor) error {
	past := a.s.Past()
	end := min(len(a.text.ids), past+1+p.rng.IntN(80))
	if p.rng.IntN(5) == 0 {
		end = min(len(a.text.ids), past+1)
	}
	if end == past {
		return nil
	}
	p.say("decode from %d to %d", past, end)
	var logits []float32
	if p.rng.IntN(3) > 0 {
		logits = make([]float32, len(a.text.rows[a.kv][0]))
	}
	if err := a.s.Decode(ctx, a.text.ids[past:end], logits); err != nil {
		return err
	}
	return a.check(end, logits)
}

// check compares logits, if there are any, with those after n tokens of the text.
func (a *actor) check(n int, logits []float32) error {
	if logits != nil && !slices.Equal(logits, a.text.rows[a.kv][n-1]) {
		return fmt.Errorf("other logits after token %d with a cache in %s", n-1, a.kv)
	}
	if a.s.Past() < n {
		return fmt.Errorf("%d tokens, want at least %d", a.s.Past(), n)
	}
	return nil
}

// generate decodes tokens one by one.
func (p *player) generate(ctx context.Context, a *actor) error {
	logits := make([]float32, len(a.text.rows[a.kv][0]))
	n := 1 + p.rng.IntN(8)
	p.say("generate %d after %d", n, a.s.Past())
	for range min(n, len(a.text.ids)-a.s.Past()) {
		past := a.s.Past()
		if err := a.s.Next(ctx, a.text.ids[past], logits); err != nil {
			return err
		}
		if err := a.check(past+1, logits); err != nil {
			return err
		}
	}
	return nil
}

// all decodes tokens with the logits after each. yield may end it early.
func (p *player) all(ctx context.Context, a *actor) error {
	past := a.s.Past()
	end := min(len(a.text.ids), past+1+p.rng.IntN(50))
	if end == past {
		return nil
	}
	stop, enough := -1, errors.New("enough")
	if p.rng.IntN(4) == 0 {
		stop = p.rng.IntN(end - past)
	}
	p.say("decode all from %d to %d, stop at %d", past, end, stop)
	err := a.s.DecodeAll(ctx, a.text.ids[past:end], func(i int, logits []float32) error {
		if i == stop {
			return enough
		}
		return a.check(past+i+1, logits)
	})
	if stop >= 0 && errors.Is(err, enough) {
		return nil
	}
	return err
}

// TestSchedules runs random schedules of prompts, generations, rewinds, forks, failures,
// cancellations and closes over several sessions of one model, whose prompts have prefixes in
// common and whose cache is small. All logits must be the very bits that a session of a model of
// its own gives for the same tokens. FUCINA_TEST_SEED repeats a run.
func TestSchedules(t *testing.T) {
	seed := harness.Seed(t)
	actions := 1200 / scheduleShare
	if testing.Short() {
		actions /= 4
	}
	var sum page.Stats
	for i, c := range []struct {
		name         string
		window       int
		players      int
		cache        int // Options.CacheTokens
		prefixTokens int
	}{
		{"no window", 0, 1, 224, 0},
		{"window of 8", 8, 1, 224, 0},
		{"random window", -1, 1, 256, 160},
		{"window of 64, several goroutines", 64, 3, 288, 0},
		{"no window, several goroutines", 0, 3, 288, 0},
		{"no prefixes", 24, 2, 320, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			if c.window < 0 {
				c.window = 8 + rng.IntN(57)
			}
			path := scheduleModel(c.window).File(t, "model.gguf")
			file, err := gguf.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			harness.CloseLater(t, file)
			g := &stage{texts: newTexts(t, file, rng), pools: make(map[*page.Pool]bool), alone: c.players == 1}
			g.faulty = openFaulty[engine.Provider()](t, rng.Uint64())
			if g.model, err = llm.New(g.eng, file, llm.Options{CacheTokens: c.cache, PrefixTokens: c.prefixTokens}); err != nil {
				t.Fatal(err)
			}
			harness.CloseLater(t, g.model)
			var wg sync.WaitGroup
			for i := range c.players {
				p := &player{stage: g, name: fmt.Sprint("player ", i), rng: rand.New(rand.NewPCG(rng.Uint64(), 0)), most: 2 + 4/c.players}
				wg.Go(func() { p.play(t, actions/c.players) })
			}
			wg.Wait()
			g.check(t)
			for p := range g.pools {
				sum.Add(p.Stats())
			}
		})
	}
	t.Logf("in all, %+v", sum)
	if least := min(sum.Forked, sum.Matched, sum.Copied, sum.GivenBack, sum.Dropped, sum.Redone); !t.Failed() && actions >= 1200 && least < 100 {
		t.Errorf("something happened only %d times, want 100 of each", least)
	}
}

// play performs n actions and closes the player's sessions.
func (p *player) play(t *testing.T, n int) {
	for i := range n {
		err := p.act()
		p.note()
		if err != nil {
			t.Errorf("%s, action %d: %v\n%q", p.name, i, err, p.log)
			break
		}
	}
	for len(p.sessions) > 0 {
		if err := p.close(0); err != nil {
			t.Error(err)
		}
	}
}

// check checks that no session is left, and that the schedule did what it is for.
func (g *stage) check(t *testing.T) {
	t.Helper()
	for _, p := range g.model.Pools() {
		for i := range 2 {
			if i > 0 && g.model.Params().Window == 0 {
				continue
			}
			if s := p.Group(i); s.Free+s.Tree != s.Pages {
				t.Errorf("without sessions, group %d has %d free pages and %d of prefixes, of %d", i, s.Free, s.Tree, s.Pages)
			}
		}
	}
	t.Logf("%d calls found the cache full, %d failed for another reason", g.full, g.fails)
	if !testing.Short() && scheduleShare == 1 && (g.full == 0 || g.fails == 0) {
		t.Error("the cache was never full, or nothing failed")
	}
}
