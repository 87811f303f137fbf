package main

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/providers"
	"github.com/fucina-go/fucina/tests/countdown"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

func TestBenchJSON(t *testing.T) {
	model := tinyModel(t)
	for _, provider := range providers.Names() {
		t.Run(provider, func(t *testing.T) {
			args := []string{"bench", "-m", model, "-p", "20", "-n", "6", "-t", "2", "-r", "2", "-o", "json", "--provider", provider}
			out := invoke(t, args...).ok(t)
			var objects []map[string]any
			decodeStrict(t, out, &objects)
			if len(objects) != 2 {
				t.Fatalf("%d tests", len(objects))
			}
			keys(t, objects[0], "test", "median", "min", "max", "threads", "provider")
			var list []measurement
			decodeStrict(t, out, &list)
			for i, name := range []string{"pp20", "tg6"} {
				m := list[i]
				if m.Test != name || m.Threads != 2 || m.Provider != provider {
					t.Errorf("%+v, want %s", m, name)
				}
				if !(0 < m.Min && m.Min <= m.Median && m.Median <= m.Max) {
					t.Errorf("rates %+v out of order", m)
				}
			}
		})
	}
}

func TestBenchSkips(t *testing.T) {
	model := tinyModel(t)
	for flag, want := range map[string]string{"-p": "tg3", "-n": "pp3"} {
		args := []string{"bench", "-m", model, "-p", "3", "-n", "3", "-r", "1", "-o", "json", flag, "0"}
		var list []measurement
		decodeStrict(t, invoke(t, args...).ok(t), &list)
		if len(list) != 1 || list[0].Test != want {
			t.Errorf("%s 0 gives %+v", flag, list)
		}
	}
}

// With -d the session has tokens before each test, and the first token is a test of its own.
func TestBenchDepthAndFirst(t *testing.T) {
	model := tinyModel(t)
	args := []string{"bench", "-m", model, "-p", "3", "-n", "2", "-d", "70", "--first", "-r", "2", "-o", "json"}
	var list []measurement
	decodeStrict(t, invoke(t, args...).ok(t), &list)
	var names []string
	for _, m := range list {
		names = append(names, m.Test)
		if !(0 < m.Min && m.Min <= m.Median && m.Median <= m.Max) {
			t.Errorf("rates %+v out of order", m)
		}
	}
	if !slices.Equal(names, []string{"pp3 @ d70", "tg2 @ d70", "first"}) {
		t.Errorf("tests %q", names)
	}
	decodeStrict(t, invoke(t, "bench", "-m", model, "-p", "0", "-n", "0", "-first", "-r", "1", "-o", "json").ok(t), &list)
	if len(list) != 1 || list[0].Test != "first" {
		t.Errorf("-first alone gives %+v", list)
	}
}

// The prompt may be longer than the context that the model was trained for. A warning says
// so.
func TestBenchText(t *testing.T) {
	model := tinyModel(t)
	invoke(t, "bench", "-m", model, "-p", "256", "-n", "0", "-r", "1").ok(t)
	invoke(t, "bench", "-m", model, "-p", "0", "-n", "257", "-r", "1").noted(t, "warning: a context of 257 tokens, but the model was trained for 256\n")
	out := invoke(t, "bench", "-m", model, "-p", "300", "-n", "2", "-r", "1").noted(t, "warning: a context of 300 tokens, but the model was trained for 256\n")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 3 || !strings.Contains(lines[1], "pp300") || !strings.Contains(lines[2], "tg2") {
		t.Errorf("prints\n%s", out)
	}
}

// bench runs a model without a tokenizer, and run does not.
func TestBenchNoVocabulary(t *testing.T) {
	m := tinyllama.New(tinyllama.Options{})
	for _, key := range []string{"model", "tokens", "scores", "token_type"} {
		m.Delete("tokenizer.ggml." + key)
	}
	m.Set("tokenizer.ggml.model", "no_vocab")
	path := m.File(t, "bare.gguf")
	var list []measurement
	decodeStrict(t, invoke(t, "bench", "-m", path, "-p", "4", "-n", "2", "-r", "1", "-o", "json").ok(t), &list)
	if len(list) != 2 {
		t.Errorf("%+v", list)
	}
	invoke(t, "run", "-m", path, "-p", "a").failed(t, exitError, "vocabulary")
}

func TestBenchErrors(t *testing.T) {
	model := tinyModel(t)
	invoke(t, "bench", "-m", model+".not").failed(t, exitError, "tiny.gguf.not")
	invoke(t, "bench", "-m", model, "--provider", "nonesuch").failed(t, exitError, "nonesuch")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r := invokeContext(t, ctx, "bench", "-m", model, "-o", "json"); r.code != exitInterrupted || r.stdout != "" || r.stderr != "" {
		t.Errorf("interrupted: %+v", r)
	}
}

// The measurements before an interrupt are printed.
func TestBenchInterrupted(t *testing.T) {
	model := tinyModel(t)
	some := false
	for n := 1; n < 512 && !some; n += 3 {
		r := invokeContext(t, countdown.After(n), "bench", "-m", model, "-p", "2", "-n", "40", "-r", "1", "-o", "json")
		if r.code == exitOK {
			break
		}
		if r.code != exitInterrupted || r.stderr != "" {
			t.Fatalf("exit %d, stderr %q", r.code, r.stderr)
		}
		if r.stdout == "" {
			continue
		}
		var list []measurement
		decodeStrict(t, r.stdout, &list)
		some = len(list) == 1 && list[0].Test == "pp2"
	}
	if !some {
		t.Error("no run kept its first measurement")
	}
}

func TestMedian(t *testing.T) {
	for _, tc := range []struct {
		values []float64
		want   float64
	}{{[]float64{3}, 3}, {[]float64{4, 1}, 2.5}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 3, 2, 1}, 2.5}} {
		if got := median(slices.Clone(tc.values)); got != tc.want {
			t.Errorf("median of %v is %v, want %v", tc.values, got, tc.want)
		}
	}
}

func TestSyntheticIDs(t *testing.T) {
	a, b := syntheticIDs(1000, 7), syntheticIDs(1000, 7)
	if !slices.Equal(a, b) || slices.Min(a) != 0 || slices.Max(a) != 6 {
		t.Errorf("ids from %d to %d, repeated: %v", slices.Min(a), slices.Max(a), slices.Equal(a, b))
	}
}

// Every repetition computes all tokens, although the model has seen most of them before.
func TestBenchRepeats(t *testing.T) {
	threads, batch, tokens, prefix := 1, 32, 0, defaultPrefix
	m := &modelFlags{path: tinyModel(t), threads: &threads, batch: &batch, cacheTokens: &tokens, cachePrefix: &prefix}
	l, err := newTool(nil, io.Discard, io.Discard, false, false).load(t.Context(), m, 256)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.close(); err != nil {
			t.Error(err)
		}
	}()
	vocabulary := l.model.Params().Vocabulary
	for _, depth := range []int{0, 64} {
		testRepeats(t, l, &benchmark{
			s: l.session, ids: syntheticIDs(depth+128, vocabulary), logits: make([]float32, vocabulary), depth: depth,
		})
	}
}

func testRepeats(t *testing.T, l *loaded, b *benchmark) {
	t.Helper()
	var ops []uint64
	if _, err := b.repeat(t.Context(), 3, 128, func(ctx context.Context, n int) error {
		if past := b.s.Past(); past != b.depth {
			t.Errorf("a repetition begins after %d tokens, want %d", past, b.depth)
		}
		before := l.engine.Stats().CPU
		err := b.prompt(ctx, n)
		after := l.engine.Stats().CPU
		ops = append(ops, after.Ops()-before.Ops())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if len(ops) != 4 || slices.Min(ops) != slices.Max(ops) {
		t.Errorf("operations of the repetitions: %d, want 4 equal numbers", ops)
	}
}
