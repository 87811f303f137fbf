package llm_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/llm"
	"github.com/fucina-go/fucina/llm/internal/kv/page"
	"github.com/fucina-go/fucina/tests/harness"
	"github.com/fucina-go/fucina/tests/harness/engine"
	"github.com/fucina-go/fucina/tests/inject"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

// longIDs returns n ids of the vocabulary of seeded models, which seed determines.
func longIDs(n, seed int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(3 + (i*31+seed*17+i*i%(seed+7))%300)
	}
	return ids
}

// openGGUF opens the file of m, and closes it at the end of the test.
func openGGUF(t testing.TB, m *tinyllama.Model) *gguf.File {
	t.Helper()
	f, err := gguf.Open(writeModel(t, m))
	if err != nil {
		t.Fatal(err)
	}
	harness.CloseLater(t, f)
	return f
}

// newModel returns a model of the file, and closes it at the end of the test.
func newModel(t testing.TB, eng *fucina.Engine, f *gguf.File, opt llm.Options) *llm.Model {
	t.Helper()
	m, err := llm.New(eng, f, opt)
	if err != nil {
		t.Fatal(err)
	}
	harness.CloseLater(t, m)
	return m
}

// same decodes ids in s and checks that the logits are want.
func same(t testing.TB, what string, s *llm.Session, want []float32, ids ...int32) {
	t.Helper()
	if got := decode(t, s, ids...); !slices.Equal(got, want) {
		t.Errorf("%s: other logits than in a session of its own", what)
	}
}

// computedRows returns the number of tokens that sessions of m with batches of one token have
// computed.
func computedRows(m *llm.Model) int {
	s := m.Engine().Stats()
	return int(s.CPU.Submits[op.RotateStore]+s.Device.Submits[op.RotateStore]) / m.Params().Layers
}

// A fork has the logits of a session with the same tokens. What the two decode afterwards does
// not affect the other, also if they have a page in common that is not full, and whichever is
// closed first. The same is true of a fork of a fork.
func TestFork(t *testing.T) {
	f := openGGUF(t, scheduleModel(8))
	eng := openExact(t)
	base := longIDs(70, 1)
	type branch struct {
		s    *llm.Session
		ids  []int32
		want [][]float32
	}
	for _, c := range []struct {
		kv   dtype.DType
		n    int // the tokens in common
		ends int // the session that is closed first
	}{
		{dtype.F32, 0, 0}, {dtype.F16, 1, 1}, {dtype.Q8_0, 31, 2}, {dtype.F16, 32, 0}, {dtype.F32, 33, 1},
		{dtype.F16, 33, 2}, {dtype.Q8_0, 70, 0}, {dtype.F32, 70, 2},
	} {
		t.Run(fmt.Sprintf("%s, %d tokens, close of %d", c.kv, c.n, c.ends), func(t *testing.T) {
			opt := llm.SessionOptions{KV: c.kv}
			m := newModel(t, eng, f, llm.Options{})
			s := openSession(t, m, opt)
			if c.n > 0 {
				decode(t, s, base[:c.n]...)
			}
			var branches []branch
			for i := range 3 {
				if i > 0 {
					var err error
					if s, err = s.Fork(); err != nil {
						t.Fatal(err)
					}
					harness.CloseLater(t, s)
				}
				ids := append(slices.Clone(base[:c.n]), longIDs(40, 2+i)...)
				branches = append(branches, branch{s, ids, freshRows(t, eng, f, opt, ids)})
				if s.Past() != c.n || s.Context() != branches[0].s.Context() || s.Model() != m {
					t.Errorf("session %d has %d tokens of %d, want %d of %d", i, s.Past(), s.Context(), c.n, branches[0].s.Context())
				}
			}
			for at := c.n; at < c.n+40; at += 5 {
				for i, b := range branches {
					same(t, fmt.Sprintf("session %d after %d tokens", i, at), b.s, b.want[at+4], b.ids[at:at+5]...)
				}
				if at == c.n+20 {
					if err := branches[c.ends].s.Close(); err != nil {
						t.Fatal(err)
					}
					branches = slices.Delete(branches, c.ends, c.ends+1)
				}
			}
			if copied := m.PageStats().Copied; c.n%32 != 0 && copied == 0 {
				t.Error("no page was copied")
			}
		})
	}
}

// A fork of a session that another goroutine uses fails with ErrBusy, and one of a closed session
// with ErrClosed.
func TestForkErrors(t *testing.T) {
	m := openTiny(t, tinyllama.Options{})
	s := openSession(t, m, llm.SessionOptions{})
	err := s.DecodeAll(context.Background(), prompt, func(int, []float32) error {
		if _, err := s.Fork(); !errors.Is(err, fucina.ErrBusy) {
			t.Errorf("fork during DecodeAll: %v, want %v", err, fucina.ErrBusy)
		}
		return nil
	})
	if err = errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Fork(); !errors.Is(err, fucina.ErrClosed) {
		t.Errorf("fork of a closed session: %v, want %v", err, fucina.ErrClosed)
	}
	if err := m.Close(); err != nil {
		t.Errorf("close after the failed forks: %v", err)
	}
}

// longRoPEModel returns a model whose sessions of more than 128 tokens have other angles.
func longRoPEModel() *tinyllama.Model {
	m := tinyllama.NewShape(tinyllama.Shape{Architecture: "phi3", Fused: true, Output: true, Embedding: 32, Heads: 2, KVHeads: 1, FeedForward: 32, HeadLength: 32})
	m.Set("phi3.rope.scaling.original_context_length", uint32(128))
	m.Set("phi3.rope.dimension_count", uint32(12))
	m.Set("phi3.rope.scaling.attn_factor", float32(1.1875))
	m.AddFloats("rope_factors_short.weight", 1, 1, 1.125, 1.25, 1.5, 2)
	m.AddFloats("rope_factors_long.weight", 1, 1.5, 2.5, 5, 9, 16)
	return m
}

// A prompt computes only the tokens after the pages that the cache has, whether the session that
// computed them is open or closed. Sessions whose rows differ share nothing. Logits are the same
// in all cases.
func TestPrefixReuse(t *testing.T) {
	const n = 100 // 3 pages and 4 tokens
	ids := longIDs(n, 3)
	window := scheduleModel(16)
	for _, c := range []struct {
		name   string
		model  *tinyllama.Model
		opt    llm.Options
		first  llm.SessionOptions
		second llm.SessionOptions
		close  bool // close the first session before the second one decodes
		taken  int  // tokens that the second session does not compute
	}{
		{name: "open", taken: 96},
		{name: "closed", close: true, taken: 96},
		{name: "with a window, open", model: window, taken: 96},
		{name: "with a window, closed", model: window, close: true, taken: 96},
		{name: "few prefix tokens, open", opt: llm.Options{PrefixTokens: 64}, taken: 96},
		{name: "few prefix tokens, closed", opt: llm.Options{PrefixTokens: 64}, close: true, taken: 64},
		{name: "a page of prefix tokens, closed", opt: llm.Options{PrefixTokens: 63}, close: true, taken: 32},
		{name: "less than a page, open", opt: llm.Options{PrefixTokens: 31}},
		{name: "turned off, open", opt: llm.Options{PrefixTokens: -1}},
		{name: "turned off, closed", opt: llm.Options{PrefixTokens: -1}, close: true},
		{name: "another format", first: llm.SessionOptions{KV: dtype.F32}, second: llm.SessionOptions{KV: dtype.F16}},
		{name: "another length", first: llm.SessionOptions{Context: 110}, second: llm.SessionOptions{Context: 500}, taken: 96},
		{name: "another variant of the angles", model: longRoPEModel(), first: llm.SessionOptions{Context: 110}, second: llm.SessionOptions{Context: 500}},
		{name: "the same variant of the angles", model: longRoPEModel(), first: llm.SessionOptions{Context: 400}, second: llm.SessionOptions{Context: 500}, taken: 96},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.model == nil {
				c.model = scheduleModel(0)
			}
			f := openGGUF(t, c.model)
			eng := openExact(t)
			want := freshRows(t, eng, f, c.second, ids)
			m := newModel(t, eng, f, c.opt)
			c.first.Batch, c.second.Batch = 1, 1
			a, b := openSession(t, m, c.first), openSession(t, m, c.second)
			decode(t, a, ids...)
			if c.close {
				if err := a.Close(); err != nil {
					t.Fatal(err)
				}
			}
			before := computedRows(m)
			same(t, "the second session", b, want[n-1], ids...)
			if got := computedRows(m) - before; got != n-c.taken {
				t.Errorf("the second session computed %d tokens, want %d", got, n-c.taken)
			}
			if !c.close {
				before = computedRows(m)
				if err := a.Rewind(50); err != nil {
					t.Fatal(err)
				}
				decode(t, a, ids[50:]...)
				if got := computedRows(m) - before; c.taken == 96 && got != 4 {
					t.Errorf("after a rewind, the first session computed %d tokens, want 4", got)
				}
			}
		})
	}
}

// A full cache is an error of the session that needs rows. The other sessions go on, and the
// session itself when there is room: after another session is closed or rewound.
func TestCacheFull(t *testing.T) {
	f := openGGUF(t, scheduleModel(8))
	eng := openExact(t)
	ids := [2][]int32{longIDs(96, 4), longIDs(96, 5)}
	want := [2][][]float32{freshRows(t, eng, f, llm.SessionOptions{}, ids[0]), freshRows(t, eng, f, llm.SessionOptions{}, ids[1])}
	for name, makeRoom := range map[string]func(s *llm.Session) error{
		"close":  (*llm.Session).Close,
		"rewind": func(s *llm.Session) error { return s.Rewind(10) },
	} {
		t.Run(name, func(t *testing.T) {
			m := newModel(t, eng, f, llm.Options{CacheTokens: 128})
			a, b := openSession(t, m, llm.SessionOptions{}), openSession(t, m, llm.SessionOptions{Batch: 32})
			same(t, "a", a, want[0][69], ids[0][:70]...)
			for range 2 {
				err := b.Decode(context.Background(), ids[1][b.Past():], nil)
				if !errors.Is(err, llm.ErrCacheFull) || b.Past() != 32 {
					t.Fatalf("%v with %d tokens, want %v after the first batch", err, b.Past(), llm.ErrCacheFull)
				}
			}
			same(t, "the other session", a, want[0][70], ids[0][70])
			if a.Past() != 71 {
				t.Errorf("the other session has %d tokens, want 71", a.Past())
			}
			if err := makeRoom(a); err != nil {
				t.Fatal(err)
			}
			same(t, "when there is room", b, want[1][95], ids[1][32:]...)
		})
	}
}

// A prompt that the whole cache has no room for is refused before anything is computed.
func TestPromptLargerThanCache(t *testing.T) {
	m := openModel(t, openExact(t), writeModel(t, scheduleModel(8)), llm.Options{CacheTokens: 64})
	s := openSession(t, m, llm.SessionOptions{Batch: 8})
	decode(t, s, longIDs(10, 1)...)
	for _, decode := range []func(ids []int32) error{
		func(ids []int32) error { return s.Decode(context.Background(), ids, nil) },
		func(ids []int32) error {
			return s.DecodeAll(context.Background(), ids, func(int, []float32) error { return nil })
		},
	} {
		err := decode(longIDs(55, 2))
		if !errors.Is(err, llm.ErrCacheFull) || !strings.Contains(err.Error(), "55 tokens after 10, and it has room for 64 in all") || s.Past() != 10 {
			t.Errorf("%v with %d tokens", err, s.Past())
		}
	}
	decode(t, s, longIDs(54, 2)...)
}

// The cache may be full at any point of a prompt. The batches before that point remain, the other
// session goes on, and the prompt goes on when there is room.
func TestCacheFullAnywhere(t *testing.T) {
	f := openGGUF(t, scheduleModel(8))
	eng := openExact(t)
	const n, pages = 130, 5
	ids := [2][]int32{longIDs(32*pages, 6), longIDs(n, 7)}
	want := [2][][]float32{freshRows(t, eng, f, llm.SessionOptions{}, ids[0]), freshRows(t, eng, f, llm.SessionOptions{}, ids[1])}
	for free := range pages {
		for _, batch := range []int{1, 7, 32, 45, n} {
			t.Run(fmt.Sprintf("%d pages, batch %d", free, batch), func(t *testing.T) {
				m := newModel(t, eng, f, llm.Options{CacheTokens: 32 * pages})
				a, b := openSession(t, m, llm.SessionOptions{}), openSession(t, m, llm.SessionOptions{Batch: batch})
				held := 32*(pages-free) - 2
				same(t, "the other session", a, want[0][held-1], ids[0][:held]...)
				left := 32 * free / batch * batch
				err := b.Decode(context.Background(), ids[1], nil)
				if !errors.Is(err, llm.ErrCacheFull) || b.Past() != left {
					t.Fatalf("%v with %d tokens, want %v with %d", err, b.Past(), llm.ErrCacheFull, left)
				}
				same(t, "the other session, afterwards", a, want[0][held], ids[0][held])
				if err := a.Close(); err != nil {
					t.Fatal(err)
				}
				same(t, "when there is room", b, want[1][n-1], ids[1][left:]...)
			})
		}
	}
}

// After a rewind to any position, a session has the logits of one that never had more tokens,
// also in models with windows, which give the memory of old tokens back. With KeepWindows or
// without a window, only the new tokens are computed.
func TestRewindWindows(t *testing.T) {
	const n = 130
	for _, c := range []struct {
		family string
		window int
		opt    llm.SessionOptions
		again  bool // whether tokens are computed again
	}{
		{"gemma2", 8, llm.SessionOptions{Batch: 70}, true},
		{"gemma2", 64, llm.SessionOptions{Batch: 70, KV: dtype.F16}, true},
		{"gemma2", 20, llm.SessionOptions{Batch: 70, KeepWindows: true}, false},
		{"gemma3", 33, llm.SessionOptions{Batch: 70, KV: dtype.Q8_0}, true},
		{"gemma3", 8, llm.SessionOptions{Batch: 1}, true},
		{"gemma3", 33, llm.SessionOptions{Batch: 70, KeepWindows: true, KV: dtype.Q8_0}, false},
		{"phi3", 8, llm.SessionOptions{Batch: 70}, false}, // the family's window is ignored
	} {
		t.Run(fmt.Sprintf("%s/%d/%t", c.family, c.window, c.opt.KeepWindows), func(t *testing.T) {
			model := tinyllama.NewShape(tinyllama.Shape{
				Architecture: c.family, Layers: 3, Embedding: 32, FeedForward: 32, Heads: 2, KVHeads: 1, HeadLength: 32,
				PostNorms: c.family != "phi3", QKNorm: c.family == "gemma3", Fused: c.family == "phi3",
			})
			model.Set(c.family+".attention.sliding_window", uint32(c.window))
			model.Set(c.family+".attention.sliding_window_pattern", uint32(3))
			f := openGGUF(t, model)
			eng := openExact(t)
			ids := longIDs(n, c.window)
			want := freshRows(t, eng, f, c.opt, ids)
			m := newModel(t, eng, f, llm.Options{PrefixTokens: -1})
			parent := openSession(t, m, c.opt)
			decode(t, parent, ids...)
			step := 1
			if testing.Short() || scheduleShare > 1 {
				step = 13
			}
			for to := 0; to < n; to += step {
				s, err := parent.Fork()
				if err != nil {
					t.Fatal(err)
				}
				if err := s.Rewind(to); err != nil {
					t.Fatal(err)
				}
				if s.Past() != to {
					t.Errorf("%d tokens after a rewind to %d", s.Past(), to)
				}
				same(t, fmt.Sprint("after a rewind to ", to), s, want[to], ids[to])
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if again := m.PageStats().Redone; (again > 0) != c.again {
				t.Errorf("%d tokens were computed again, want some: %t", again, c.again)
			}
		})
	}
}

// The ways to decode give the same bits: all tokens at once, one by one, as generated tokens, and
// with all logits. So they do in sessions of different formats that decode in turn.
func TestWaysToDecode(t *testing.T) {
	const n = 70
	f := openGGUF(t, scheduleModel(24))
	eng := openExact(t)
	ids := longIDs(n, 6)
	m := newModel(t, eng, f, llm.Options{PrefixTokens: -1})
	type way struct {
		name string
		s    *llm.Session
		next func(s *llm.Session, at int) []float32
	}
	want := make(map[dtype.DType][][]float32)
	var ways []way
	kvs := make(map[*llm.Session]dtype.DType)
	for _, kv := range kvFormats {
		want[kv] = freshRows(t, eng, f, llm.SessionOptions{KV: kv, Batch: 64}, ids)
		for name, next := range map[string]func(s *llm.Session, at int) []float32{
			"one by one": func(s *llm.Session, at int) []float32 { return decode(t, s, ids[at]) },
			"generated": func(s *llm.Session, at int) []float32 {
				logits := make([]float32, m.Params().Vocabulary)
				if err := s.Next(context.Background(), ids[at], logits); err != nil {
					t.Fatal(err)
				}
				return logits
			},
			"all logits": func(s *llm.Session, at int) (row []float32) {
				err := s.DecodeAll(context.Background(), ids[at:at+1], func(_ int, logits []float32) error {
					row = slices.Clone(logits)
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				return row
			},
			"at once": func(s *llm.Session, at int) []float32 {
				if err := s.Rewind(0); err != nil {
					t.Fatal(err)
				}
				return decode(t, s, ids[:at+1]...)
			},
		} {
			s := openSession(t, m, llm.SessionOptions{KV: kv})
			kvs[s] = kv
			ways = append(ways, way{fmt.Sprint(name, " in ", kv), s, next})
		}
	}
	for at := range n {
		for _, w := range ways {
			if got := w.next(w.s, at); !slices.Equal(got, want[kvs[w.s]][at]) {
				t.Fatalf("%s: other logits after token %d", w.name, at)
			}
		}
	}
}

// If yield or a step fails, DecodeAll leaves the batches before it, and the session goes on from
// there, also behind a window and after a rewind.
func TestDecodeAllGoesOn(t *testing.T) {
	f := openGGUF(t, scheduleModel(8))
	eng := openExact(t)
	ids := longIDs(120, 7)
	want := freshRows(t, eng, f, llm.SessionOptions{}, ids)
	stop := errors.New("stop")
	s := openSession(t, newModel(t, eng, f, llm.Options{CacheTokens: 128}), llm.SessionOptions{Batch: 50})
	other := openSession(t, s.Model(), llm.SessionOptions{})
	decode(t, other, longIDs(33, 8)...) // two of four pages
	all := func(part []int32, stopAt int) error {
		past := s.Past()
		return s.DecodeAll(context.Background(), part, func(i int, logits []float32) error {
			if !slices.Equal(logits, want[past+i]) {
				t.Errorf("other logits after token %d", past+i)
			}
			if i == stopAt {
				return stop
			}
			return nil
		})
	}
	if err := all(ids[:60], 55); err != stop || s.Past() != 50 {
		t.Fatalf("%v after %d tokens, want stop after 50", err, s.Past())
	}
	if err := all(ids[50:], -1); !errors.Is(err, llm.ErrCacheFull) || s.Past() != 50 {
		t.Fatalf("%v after %d tokens, want %v after 50", err, s.Past(), llm.ErrCacheFull)
	}
	if err := errors.Join(s.Rewind(20), all(ids[20:60], -1), other.Close(), all(ids[60:], -1)); err != nil {
		t.Fatal(err)
	}
}

// watched is a context that says when somebody begins to wait for its end.
type watched struct {
	context.Context
	once  sync.Once
	waits chan struct{}
}

func (w *watched) Done() <-chan struct{} {
	w.once.Do(func() { close(w.waits) })
	return w.Context.Done()
}

// While a step of another session runs, a session waits for its turn. If its context is done, it
// ends at once with the context's error.
func TestCancelWhileWaiting(t *testing.T) {
	g := openFaulty[engine.Provider()](t, 1)
	f := openGGUF(t, scheduleModel(0))
	m := newModel(t, g.eng, f, llm.Options{})
	a, b := openSession(t, m, llm.SessionOptions{}), openSession(t, m, llm.SessionOptions{})
	inside, leave := make(chan struct{}), make(chan struct{})
	g.faults.Arm(inject.Fault{Call: inject.Submit, Who: "a", Nth: 3, Do: func(provider.Queue) {
		close(inside)
		<-leave
	}})
	var wg sync.WaitGroup
	var failed error
	wg.Go(func() { failed = a.Decode(inject.As(context.Background(), "a"), prompt, nil) })
	<-inside
	for name, call := range map[string]func(ctx context.Context) error{
		"Decode": func(ctx context.Context) error { return b.Decode(ctx, prompt, nil) },
		"Next":   func(ctx context.Context) error { return b.Next(ctx, prompt[0], nil) },
		"DecodeAll": func(ctx context.Context) error {
			return b.DecodeAll(ctx, prompt, func(int, []float32) error { return nil })
		},
	} {
		parent, cancel := context.WithCancel(context.Background())
		ctx := &watched{Context: parent, waits: make(chan struct{})}
		done := make(chan error, 1)
		go func() { done <- call(ctx) }()
		<-ctx.waits
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) || b.Past() != 0 {
			t.Errorf("%s: %v with %d tokens, want %v", name, err, b.Past(), context.Canceled)
		}
	}
	// Calls that compute nothing do not wait.
	fork, err := b.Fork()
	if err = errors.Join(err, b.Rewind(0)); err != nil {
		t.Error(err)
	} else if err := fork.Close(); err != nil {
		t.Error(err)
	}
	close(leave)
	wg.Wait()
	if failed != nil {
		t.Error(failed)
	}
	if !slices.Equal(decode(t, b, prompt...), decode(t, openSession(t, m, llm.SessionOptions{Context: 99}), prompt...)) {
		t.Error("other logits after the cancellations")
	}
}

// While a step examines the cache after a failure, and waits for a device, calls that compute
// nothing go on. The memory of the pages that they free is given back later, because the step may
// read it.
func TestBookkeepingDuringCheck(t *testing.T) {
	g := openFaulty[engine.Provider()](t, 1)
	f := openGGUF(t, scheduleModel(0))
	m := newModel(t, g.eng, f, llm.Options{PrefixTokens: -1})
	a, b := openSession(t, m, llm.SessionOptions{KV: dtype.F16}), openSession(t, m, llm.SessionOptions{KV: dtype.F16})
	decode(t, a, prompt...)
	decode(t, b, longIDs(90, 1)...)
	ctx := inject.As(context.Background(), "a")
	canceled, cancel := context.WithCancel(ctx)
	g.faults.Arm(inject.Fault{Call: inject.Submit, Who: "a", Nth: 1, Do: func(provider.Queue) { cancel() }})
	if err := a.Next(canceled, 5, nil); !errors.Is(err, context.Canceled) {
		t.Fatalf("a step: %v, want %v", err, context.Canceled)
	}
	freed := func() []page.Run { return m.Pools()[0].AppendFreed(nil, 1) }
	freed()
	inside, leave := make(chan struct{}), make(chan struct{})
	g.faults.Arm(inject.Fault{Call: inject.Submit, Who: "a", Nth: 1, Do: func(provider.Queue) {
		close(inside)
		<-leave
	}})
	done := make(chan error)
	go func() { done <- a.Next(ctx, 5, nil) }()
	<-inside
	fork, err := b.Fork()
	if err = errors.Join(err, b.Rewind(10)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(fork.Close(), b.Close()); err != nil {
		t.Error(err)
	}
	openSession(t, m, llm.SessionOptions{KV: dtype.F16})
	if runs := freed(); len(runs) == 0 {
		t.Error("the pages of a session were given back during the check")
	}
	close(leave)
	if err := <-done; err != nil || a.Past() != len(prompt)+1 {
		t.Errorf("the step: %v, with %d tokens", err, a.Past())
	}
	if !slices.Equal(decode(t, a, 7), decode(t, openSession(t, m, llm.SessionOptions{KV: dtype.F16}), append(slices.Clone(prompt), 5, 7)...)) {
		t.Error("other logits after the check")
	}
}

// Failures of the provider's calls are errors of the session whose call it was. New sessions can
// be opened, and the model closes, even if the last step has failed.
func TestSessionsAfterFailures(t *testing.T) {
	for _, call := range []inject.Call{inject.NewQueue, inject.Submit, inject.Upload, inject.Download, inject.Alloc} {
		t.Run(call.String(), func(t *testing.T) {
			g := openFaulty[engine.Provider()](t, 1)
			f := openGGUF(t, scheduleModel(8))
			want := freshRows(t, g.eng, f, llm.SessionOptions{}, prompt)
			m, err := llm.New(g.eng, f, llm.Options{})
			if err != nil {
				t.Fatal(err)
			}
			for nth := 1; nth <= 40; nth += 3 {
				g.faults.Arm(inject.Fault{Call: call, Nth: nth, Err: errInjected})
				s, err := m.NewSession(llm.SessionOptions{})
				if err == nil {
					err = s.Decode(context.Background(), prompt, nil)
				}
				if err != nil && !errors.Is(err, errInjected) {
					t.Fatalf("call %d: %v", nth, err)
				}
				g.faults.Disarm()
				again := openSession(t, m, llm.SessionOptions{})
				same(t, fmt.Sprint("after the failure of call ", nth), again, want[len(prompt)-1], prompt...)
				if s != nil {
					err = s.Close()
				}
				if err = errors.Join(err, again.Close()); err != nil && !errors.Is(err, errInjected) {
					t.Fatal(err)
				}
			}
			s := openSession(t, m, llm.SessionOptions{})
			g.faults.Arm(inject.Fault{Call: call, Nth: 1, Err: errInjected})
			_ = s.Decode(context.Background(), prompt, nil) // some calls do not happen in a step
			if err := errors.Join(s.Close(), m.Close()); err != nil {
				t.Errorf("close after a failed step: %v", err)
			}
			g.faults.Disarm()
		})
	}
}

// If the engine is closed before its sessions, they fail with ErrClosed, and they and the model
// can still be closed.
func TestEngineClosedFirst(t *testing.T) {
	for _, used := range []bool{false, true} {
		t.Run(fmt.Sprint("decoded before: ", used), func(t *testing.T) {
			eng, err := fucina.Open(fucina.WithProvider(engine.Provider()), fucina.WithThreads(1), fucina.WithExact(true))
			if err != nil {
				t.Fatal(err)
			}
			m, err := llm.New(eng, openGGUF(t, scheduleModel(8)), llm.Options{})
			if err != nil {
				t.Fatal(err)
			}
			s, err := m.NewSession(llm.SessionOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if used {
				decode(t, s, longIDs(50, 1)...)
			}
			if err := eng.Close(); !errors.Is(err, fucina.ErrLeak) {
				t.Errorf("close of an engine with a model: %v, want %v", err, fucina.ErrLeak)
			}
			for range 2 {
				if err := s.Decode(context.Background(), prompt, nil); !errors.Is(err, fucina.ErrClosed) {
					t.Errorf("decode: %v, want %v", err, fucina.ErrClosed)
				}
			}
			if _, err := m.NewSession(llm.SessionOptions{KV: dtype.F16}); !errors.Is(err, fucina.ErrClosed) {
				t.Errorf("new session: %v, want %v", err, fucina.ErrClosed)
			}
			if err := errors.Join(s.Close(), m.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

// Continue generates after the tokens that the session holds, also in a fork. If it fails, the
// session holds the same tokens as before.
func TestContinue(t *testing.T) {
	m := openModel(t, openExact(t), writeModel(t, scheduleModel(8)), llm.Options{})
	ids := longIDs(70, 1)
	texts := func(s *llm.Session, prompt []int32) (got []int32) {
		t.Helper()
		opt := llm.GenerateOptions{MaxTokens: 6}
		tokens := s.Continue(context.Background(), opt)
		if prompt != nil {
			tokens = s.GenerateIDs(context.Background(), prompt, opt)
		}
		for token, err := range tokens {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, token.ID)
		}
		return got
	}
	want := texts(openSession(t, m, llm.SessionOptions{}), ids)
	s := openSession(t, m, llm.SessionOptions{})
	for _, err := range s.Continue(context.Background(), llm.GenerateOptions{}) {
		if err == nil || !strings.Contains(err.Error(), "the session has no tokens") {
			t.Errorf("an empty session: %v", err)
		}
	}
	decode(t, s, ids...)
	f, err := s.Fork()
	if err != nil {
		t.Fatal(err)
	}
	harness.CloseLater(t, f)
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	for _, err := range s.Continue(cancelled, llm.GenerateOptions{}) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want canceled", err)
		}
	}
	if held, err := s.IDs(); err != nil || !slices.Equal(held, ids) || s.Past() != len(ids) {
		t.Errorf("after a failure, %d tokens %v, %v, want %v", s.Past(), held, err, ids)
	}
	for name, s := range map[string]*llm.Session{"session": s, "fork": f} {
		if got := texts(s, nil); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	// The last token of the first generation is not in the session.
	if got := texts(s, want[5:]); !slices.Equal(got, texts(openSession(t, m, llm.SessionOptions{}), append(slices.Clone(ids), want...))) {
		t.Errorf("a generation that continues another: %v", got)
	}
}
