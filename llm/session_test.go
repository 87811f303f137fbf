package llm_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/internal/invariants"
	"github.com/fucina-go/fucina/internal/offheap"
	"github.com/fucina-go/fucina/llm"
	"github.com/fucina-go/fucina/tests/countdown"
	"github.com/fucina-go/fucina/tests/harness/engine"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

// prompt has ids of the vocabulary of seeded models.
var prompt = []int32{1, 292, 82, 298, 305, 293, 286, 272, 261, 259, 297, 288}

// The division of a prompt into batches and calls does not change the text.
func TestPromptBatches(t *testing.T) {
	m := openTiny(t, tinyllama.Options{})
	var want []int32
	var first []float32
	for _, batch := range []int{512, 1, 3, len(prompt), len(prompt) - 1} {
		ids, logits, err := greedy(openSession(t, m, llm.SessionOptions{Batch: batch}), prompt, 8)
		if err != nil {
			t.Fatal(err)
		}
		if want == nil {
			want, first = ids, logits
		}
		checkLogits(t, fmt.Sprintf("batch of %d", batch), logits, first, 1e-5)
		if !slices.Equal(ids, want) {
			t.Errorf("batch of %d: %v, want %v", batch, ids, want)
		}
	}
	s := openSession(t, m, llm.SessionOptions{})
	if err := s.Decode(context.Background(), prompt[:5], nil); err != nil {
		t.Fatal(err)
	}
	checkLogits(t, "two calls", decode(t, s, prompt[5:]...), first, 1e-5)
	if s.Past() != len(prompt) {
		t.Errorf("past is %d, want %d", s.Past(), len(prompt))
	}
}

// The number of threads does not change the bits of the result.
func TestThreads(t *testing.T) {
	path := writeModel(t, tinyllama.New(tinyllama.Options{DType: dtype.Q8_0}))
	var want []float32
	for _, threads := range []int{1, 2, 3, 8} {
		m := openModel(t, engine.Open(t, fucina.WithExact(true), fucina.WithThreads(threads)), path, llm.Options{})
		got := decode(t, openSession(t, m, llm.SessionOptions{}), prompt...)
		if want == nil {
			want = got
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d threads change the logits", threads)
		}
	}
}

// Two sessions of one model that decode in turn give the same results as each alone.
func TestInterleavedSessions(t *testing.T) {
	m := openTiny(t, tinyllama.Options{})
	other := []int32{1, 295, 296, 297}
	wantA, _, err := greedy(openSession(t, m, llm.SessionOptions{}), prompt, 8)
	if err != nil {
		t.Fatal(err)
	}
	wantB, _, err := greedy(openSession(t, m, llm.SessionOptions{}), other, 8)
	if err != nil {
		t.Fatal(err)
	}
	a, b := openSession(t, m, llm.SessionOptions{}), openSession(t, m, llm.SessionOptions{})
	nextA, nextB := prompt, other
	var gotA, gotB []int32
	for range 8 {
		nextA = []int32{argmax(decode(t, a, nextA...))}
		nextB = []int32{argmax(decode(t, b, nextB...))}
		gotA, gotB = append(gotA, nextA...), append(gotB, nextB...)
	}
	if !slices.Equal(gotA, wantA) || !slices.Equal(gotB, wantB) {
		t.Errorf("interleaved: %v and %v, want %v and %v", gotA, gotB, wantA, wantB)
	}
}

// After Rewind, the removed tokens have no effect, although their keys and values are still in
// the cache.
func TestRewind(t *testing.T) {
	m := openTiny(t, tinyllama.Options{})
	s := openSession(t, m, llm.SessionOptions{})
	want, _, err := greedy(s, prompt, 8)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Rewind(5); err != nil {
		t.Fatal(err)
	}
	if s.Past() != 5 {
		t.Errorf("past is %d, want 5", s.Past())
	}
	got, _, err := greedy(s, prompt[5:], 8)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("after rewind %v, want %v", got, want)
	}
	for _, n := range []int{-1, s.Past() + 1} {
		if err := s.Rewind(n); err == nil {
			t.Errorf("rewind to %d of %d tokens: no error", n, s.Past())
		}
	}
}

// An f16 cache gives nearly the logits of an f32 cache. The default in exact mode is f32.
func TestKVTypes(t *testing.T) {
	m := openTiny(t, tinyllama.Options{})
	want := decode(t, openSession(t, m, llm.SessionOptions{KV: dtype.F32}), prompt...)
	if got := decode(t, openSession(t, m, llm.SessionOptions{}), prompt...); !slices.Equal(got, want) {
		t.Error("the default cache of an exact engine is not f32")
	}
	got := decode(t, openSession(t, m, llm.SessionOptions{KV: dtype.F16}), prompt...)
	checkLogits(t, "f16 cache", got, want, 0.05)
	if slices.Equal(got, want) {
		t.Error("an f16 cache gives the very logits of an f32 cache")
	}
}

// A session accepts exactly as many tokens as its context. A call that exceeds it fails with
// ErrContextFull and changes nothing.
func TestContextFull(t *testing.T) {
	m := openTiny(t, tinyllama.Options{})
	s := openSession(t, m, llm.SessionOptions{Context: len(prompt) + 1})
	decode(t, s, prompt...)
	if err := s.Decode(context.Background(), []int32{5, 6}, nil); !errors.Is(err, llm.ErrContextFull) {
		t.Errorf("two tokens into one place: %v, want ErrContextFull", err)
	}
	decode(t, s, 5)
	if err := s.Decode(context.Background(), []int32{6}, nil); !errors.Is(err, llm.ErrContextFull) {
		t.Errorf("a token into a full context: %v, want ErrContextFull", err)
	}
	if err := s.Rewind(len(prompt)); err != nil {
		t.Fatal(err)
	}
	decode(t, s, 5)
}

// After an error of Decode, the session is unchanged and usable.
func TestDecodeErrors(t *testing.T) {
	m := openTiny(t, tinyllama.Options{})
	vocab := m.Params().Vocabulary
	want := decode(t, openSession(t, m, llm.SessionOptions{}), prompt...)
	ctx := context.Background()
	done, cancel := context.WithCancel(ctx)
	cancel()
	for _, c := range []struct {
		name   string
		ctx    context.Context
		ids    []int32
		logits []float32
		say    string
		is     error
	}{
		{"no ids", ctx, nil, nil, "no tokens", nil},
		{"negative id", ctx, []int32{3, -1}, nil, "token -1 at 1", nil},
		{"large id", ctx, []int32{int32(vocab)}, nil, "the vocabulary has", nil},
		{"short logits", ctx, []int32{3}, make([]float32, vocab-1), "logits", nil},
		{"no logits", ctx, []int32{3}, []float32{}, "logits", nil},
		{"too long", ctx, make([]int32, 257), nil, "256", llm.ErrContextFull},
		{"cancelled", done, []int32{3}, nil, "canceled", context.Canceled},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := openSession(t, m, llm.SessionOptions{})
			decode(t, s, prompt[:4]...)
			err := s.Decode(c.ctx, c.ids, c.logits)
			if err == nil || !strings.Contains(err.Error(), c.say) || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("error %v, want one that says %q and is %v", err, c.say, c.is)
			}
			if s.Past() != 4 {
				t.Errorf("past is %d, want 4", s.Past())
			}
			checkLogits(t, "afterwards", decode(t, s, prompt[4:]...), want, 1e-5)
		})
	}
}

// Decode ends with the context's error at whichever check the context is done: within an
// operation, between operations or in a wait. Whole batches remain, and the logits of the
// missing tokens have the same bits as without the interruption. The test counts checks of the
// context, and measures no time.
func TestCancelAnywhere(t *testing.T) {
	m := openTiny(t, tinyllama.Options{})
	want := decode(t, openSession(t, m, llm.SessionOptions{Batch: 4}), prompt...)
	total := countdown.After(math.MaxInt)
	if err := openSession(t, m, llm.SessionOptions{Batch: 4}).Decode(total, prompt, nil); err != nil {
		t.Fatal(err)
	}
	// With a device, the context is checked only between operations and in waits.
	if n := total.Looks(); engine.Provider() == "cpu" && n < 60 {
		t.Fatalf("%d looks at the context during the ops of six blocks, want one for each op", n)
	}
	s := openSession(t, m, llm.SessionOptions{Batch: 4})
	logits := make([]float32, len(want))
	seen := make(map[int]bool) // the numbers of tokens in the session after a cancellation
	step := 1
	if testing.Short() {
		step = total.Looks()/50 + 1
	}
	for looks := 0; ; looks += step {
		if err := s.Rewind(0); err != nil {
			t.Fatal(err)
		}
		err := s.Decode(countdown.After(looks), prompt, logits)
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		past := s.Past()
		if past%4 != 0 || (err == nil) != (past == len(prompt)) {
			t.Fatalf("cancelled at look %d: %d tokens and error %v", looks, past, err)
		}
		if err != nil {
			seen[past] = true
			if err := s.Decode(context.Background(), prompt[past:], logits); err != nil {
				t.Fatalf("after a cancellation at look %d: %v", looks, err)
			}
		}
		if !slices.Equal(logits, want) {
			t.Fatalf("cancelled at look %d, with %d tokens left: other logits than without", looks, past)
		}
		if err == nil {
			break
		}
	}
	if len(seen) != len(prompt)/4 {
		t.Errorf("cancellations left %v tokens, want every multiple of 4 below %d", seen, len(prompt))
	}
}

// Generate and DecodeAll end like Decode when the context is done.
func TestCancelGenerate(t *testing.T) {
	m := openTiny(t, tinyllama.Options{})
	s := openSession(t, m, llm.SessionOptions{})
	for looks := 0; looks < 600; looks += 37 {
		if err := s.Rewind(0); err != nil {
			t.Fatal(err)
		}
		var last error
		for _, err := range s.GenerateIDs(countdown.After(looks), prompt, llm.GenerateOptions{MaxTokens: 200}) {
			last = err
		}
		if !errors.Is(last, context.Canceled) {
			t.Fatalf("Generate, cancelled at look %d: %v, want %v", looks, last, context.Canceled)
		}
		if err := s.Rewind(0); err != nil {
			t.Fatal(err)
		}
		rows := 0
		err := s.DecodeAll(countdown.After(looks/37), prompt, func(int, []float32) error { rows++; return nil })
		if err != nil && !errors.Is(err, context.Canceled) || (err == nil) != (s.Past() == len(prompt)) || err == nil && rows != len(prompt) {
			t.Fatalf("DecodeAll, cancelled at look %d: %v with %d tokens and %d rows, want all of them or %v and no tokens", looks/37, err, s.Past(), rows, context.Canceled)
		}
		if err == nil && looks == 0 {
			t.Error("DecodeAll did not look at its context")
		}
	}
}

// BenchmarkCancelDecode reports the time from the end of the context to the end of Decode of 512
// tokens, on a seeded model whose blocks have the width of real models.
func BenchmarkCancelDecode(b *testing.B) {
	wide := tinyllama.Options{Layers: 2, Embedding: 2048, FeedForward: 5632, Heads: 32, KVHeads: 8, Context: 1024, DType: dtype.Q4_0}
	m := openModel(b, openExact(b), writeModel(b, tinyllama.New(wide)), llm.Options{PrefixTokens: -1})
	s := openSession(b, m, llm.SessionOptions{})
	ids := slices.Repeat(prompt, 512/len(prompt)+1)[:512]
	rng := rand.New(rand.NewPCG(1, 2))
	var worst, sum time.Duration
	for b.Loop() {
		if err := s.Rewind(0); err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		var at time.Time
		time.AfterFunc(time.Duration(rng.IntN(int(500*time.Millisecond))), func() {
			at = time.Now()
			cancel()
		})
		if err := s.Decode(ctx, ids, nil); !errors.Is(err, context.Canceled) {
			b.Fatalf("%v, want %v: a machine as fast as this needs more tokens", err, context.Canceled)
		}
		d := time.Since(at)
		worst, sum = max(worst, d), sum+d
	}
	b.ReportMetric(float64(worst.Microseconds())/1000, "worst-ms")
	b.ReportMetric(float64(sum.Microseconds())/1000/float64(b.N), "mean-ms")
}

func TestSessionOptions(t *testing.T) {
	m := openTiny(t, tinyllama.Options{})
	for name, opt := range map[string]llm.SessionOptions{
		"context beyond the model": {Context: 257},
		"negative context":         {Context: -1},
		"negative batch":           {Batch: -1},
		"KV":                       {KV: dtype.BF16},
	} {
		if s, err := m.NewSession(opt); err == nil {
			t.Errorf("%s: no error", name)
			s.Close()
		}
	}
}

// A second Close does nothing, a model with sessions does not close, and calls after Close fail
// with ErrClosed.
func TestClose(t *testing.T) {
	eng := openExact(t)
	m := openModel(t, eng, writeModel(t, tinyllama.New(tinyllama.Options{})), llm.Options{})
	s := openSession(t, m, llm.SessionOptions{})
	decode(t, s, prompt...)
	if err := m.Close(); err == nil {
		t.Error("a model with a session closes")
	}
	decode(t, s, 5)
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Decode(context.Background(), prompt, nil); !errors.Is(err, fucina.ErrClosed) {
		t.Errorf("decode after close: %v, want ErrClosed", err)
	}
	if err := s.Rewind(0); !errors.Is(err, fucina.ErrClosed) {
		t.Errorf("rewind after close: %v, want ErrClosed", err)
	}
	for range 2 {
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.NewSession(llm.SessionOptions{}); !errors.Is(err, fucina.ErrClosed) {
		t.Errorf("session of a closed model: %v, want ErrClosed", err)
	}
	if n := eng.Stats().Handles; n != 0 {
		t.Errorf("%d tensors left", n)
	}
}

// A step releases every tensor that it makes. Between steps only the weights, the cache and the
// angles exist.
func TestNothingAliveBetweenSteps(t *testing.T) {
	m := openTiny(t, tinyllama.Options{})
	s := openSession(t, m, llm.SessionOptions{})
	decode(t, s, prompt...)
	before := m.Engine().Stats()
	for range 4 {
		decode(t, s, 5)
	}
	after := m.Engine().Stats()
	if after.Handles != before.Handles || after.Pool.Outstanding != before.Pool.Outstanding {
		t.Errorf("after four steps %d handles and %d buffers, before %d and %d",
			after.Handles, after.Pool.Outstanding, before.Handles, before.Pool.Outstanding)
	}
	if before.Pool.Outstanding != 0 {
		t.Errorf("%d pooled buffers outstanding between steps", before.Pool.Outstanding)
	}
}

// A decode step allocates nothing on the Go heap, also with a context that can be canceled.
func TestDecodeAllocations(t *testing.T) {
	if invariants.Enabled || invariants.RaceEnabled {
		t.Skip("checked builds record every use")
	}
	m := openTiny(t, tinyllama.Options{Context: 1024})
	logits := make([]float32, m.Params().Vocabulary)
	ids := []int32{5}
	cancelable, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, c := range []struct {
		name string
		ctx  context.Context
		next bool
	}{
		{"decode", context.Background(), false}, {"decode with cancel", cancelable, false},
		{"next", context.Background(), true}, {"next with cancel", cancelable, true},
	} {
		s := openSession(t, m, llm.SessionOptions{})
		step := func() error { return s.Decode(c.ctx, ids, logits) }
		if c.next {
			step = func() error { return s.Next(c.ctx, ids[0], logits) }
		}
		run := func() {
			if err := step(); err != nil {
				t.Fatal(err)
			}
		}
		for range 8 {
			run()
		}
		if n := testing.AllocsPerRun(100, run); n != 0 {
			t.Errorf("%s: %v allocations in a step, want 0", c.name, n)
		}
	}
}

// Sessions on two goroutines share the weights of the model and give the recorded ids.
func TestParallelSessions(t *testing.T) {
	for _, g := range tinyllama.Goldens() {
		t.Run(g.Name, func(t *testing.T) {
			m := openModel(t, openExact(t), writeModel(t, tinyllama.New(g.Options)), llm.Options{CacheTokens: 2 * 64})
			before := offheap.Stats().LiveBytes
			var wg sync.WaitGroup
			for range 2 {
				s := openSession(t, m, llm.SessionOptions{Context: 64})
				wg.Go(func() {
					ids, _, err := greedy(s, g.PromptIDs, len(g.IDs))
					if err != nil {
						t.Error(err)
					}
					if !slices.Equal(ids, g.IDs) {
						t.Errorf("ids %v\nwant %v", ids, g.IDs)
					}
				})
			}
			wg.Wait()
			var file int64
			for _, ten := range tinyllama.New(g.Options).Tensors {
				file += int64(len(ten.Data))
			}
			stats := m.Engine().Stats()
			if engine.Provider() == "cpu" {
				// The weights remain in the mapping of the file, so only the cache and the
				// activations were allocated.
				p := m.Params()
				cache := int64(2 * 64 * 4 * p.Layers * p.KVHeads * (p.KeyLength + p.ValueLength))
				if grown := offheap.Stats().LiveBytes - before; grown > cache+256<<10 {
					t.Errorf("two sessions took %d bytes, and the cache has %d", grown, cache)
				}
			} else if up := int64(stats.Device.UploadBytes); up < file || up > file+file/2 {
				t.Errorf("%d bytes went to the device for weights of %d", up, file)
			}
		})
	}
}

// After a step, the model refers neither to the tokens that the caller passed nor to the session.
func TestStepKeepsNothing(t *testing.T) {
	m := openTiny(t, tinyllama.Options{})
	step := func(last func(s *llm.Session) error) (ids weak.Pointer[int32], session weak.Pointer[llm.Session]) {
		s, err := m.NewSession(llm.SessionOptions{})
		if err != nil {
			t.Fatal(err)
		}
		p := slices.Repeat([]int32{5}, 100)
		if err := errors.Join(s.Decode(context.Background(), p, nil), last(s), s.Close()); err != nil {
			t.Fatal(err)
		}
		return weak.Make(&p[0]), weak.Make(s)
	}
	for what, last := range map[string]func(s *llm.Session) error{
		"Decode": func(*llm.Session) error { return nil },
		"Next":   func(s *llm.Session) error { return s.Next(context.Background(), 5, nil) },
	} {
		ids, session := step(last)
		runtime.GC()
		if ids.Value() != nil || session.Value() != nil {
			t.Errorf("after %s, the model keeps the tokens: %t, the session: %t", what, ids.Value() != nil, session.Value() != nil)
		}
	}
}

// If two goroutines use a session at once, one call fails with ErrBusy and the other succeeds.
func TestBusySession(t *testing.T) {
	m := openTiny(t, tinyllama.Options{})
	s := openSession(t, m, llm.SessionOptions{Context: 64, Batch: 1})
	want := decode(t, openSession(t, m, llm.SessionOptions{}), prompt...)
	inside, leave := make(chan struct{}), make(chan struct{})
	ctx := &gate{Context: context.Background(), reached: inside, open: leave}
	var got []float32
	var wg sync.WaitGroup
	wg.Go(func() {
		logits := make([]float32, m.Params().Vocabulary)
		if err := s.Decode(ctx, prompt, logits); err != nil {
			t.Error(err)
		}
		got = logits
	})
	<-inside
	err := s.Decode(context.Background(), prompt, nil)
	if !errors.Is(err, fucina.ErrBusy) {
		t.Errorf("decode beside decode: %v, want ErrBusy", err)
	} else if text := err.Error(); !strings.HasPrefix(text, "llm: session in use: ") || !strings.Contains(text, "wait") || strings.Contains(text, "context") {
		t.Errorf("%q does not say that the session is in use, and what to do", text)
	}
	if err := s.Rewind(0); !errors.Is(err, fucina.ErrBusy) {
		t.Errorf("rewind beside decode: %v, want ErrBusy", err)
	}
	if err := s.Close(); !errors.Is(err, fucina.ErrBusy) {
		t.Errorf("close beside decode: %v, want ErrBusy", err)
	}
	for _, err := range s.Generate(context.Background(), "a", llm.GenerateOptions{MaxTokens: 1}) {
		if !errors.Is(err, fucina.ErrBusy) {
			t.Errorf("generate beside decode: %v, want ErrBusy", err)
		}
	}
	close(leave)
	wg.Wait()
	checkLogits(t, "the one inside", got, want, 1e-5)
}

// gate is a context whose first call of Err waits until the test opens it.
type gate struct {
	context.Context
	once    sync.Once
	reached chan<- struct{}
	open    <-chan struct{}
}

func (g *gate) Err() error {
	g.once.Do(func() {
		close(g.reached)
		<-g.open
	})
	return nil
}

func BenchmarkDecode(b *testing.B) {
	m := openTiny(b, tinyllama.Options{})
	s := openSession(b, m, llm.SessionOptions{})
	logits := make([]float32, m.Params().Vocabulary)
	ids := []int32{5}
	b.ReportAllocs()
	for b.Loop() {
		if s.Past() == s.Context() {
			if err := s.Rewind(0); err != nil {
				b.Fatal(err)
			}
		}
		if err := s.Decode(context.Background(), ids, logits); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkNewSession measures a session that can become long. It needs no table of angles, and no
// memory for tokens that it does not have yet.
func BenchmarkNewSession(b *testing.B) {
	m := openModel(b, openExact(b), writeModel(b, tinyllama.New(tinyllama.Options{Context: 131072})), llm.Options{CacheTokens: 131072})
	openSession(b, m, llm.SessionOptions{})
	for b.Loop() {
		s, err := m.NewSession(llm.SessionOptions{Context: 131072})
		if err == nil {
			err = s.Close()
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
