package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/providers"
	"github.com/fucina-go/fucina/tests/countdown"
	"github.com/fucina-go/fucina/tests/repo"
)

const story = "testdata/story.txt"

// near fails the test if the relative difference between got and want is too large.
func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance*math.Abs(want)) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// The results are those of llama.cpp (testdata/README.md), on every provider of this build.
func TestPerplexity(t *testing.T) {
	t.Setenv("FUCINA_EXACT", "1")
	for _, tc := range []struct {
		name           string
		path           string // "" for the real model
		window, tokens int
		ppl, deviation float64
		first          float64
	}{
		{"tiny", tinyModel(t), 101, 1117, 42276.161507, 7823.511973, 40597.27190386111},
		{"tiny short", tinyModel(t), 32, 1117, 25214.607127, 4385.041732, 77193.24440390675},
		{"stories260K", "", 64, 705, 2.879215, 0.195519, 2.2324389479644218},
		{"stories260K long", "", 128, 705, 2.419502, 0.168769, 2.3475182679889266},
	} {
		for _, provider := range providers.Names() {
			t.Run(tc.name+"/"+provider, func(t *testing.T) {
				if tc.path == "" {
					tc.path = repo.Shared(t, "the tiny cases do the same with a seeded model", "models", "stories260K.gguf")
				}
				line := invoke(t, "perplexity", "-m", tc.path, "-f", story, "-c", strconv.Itoa(tc.window), "--provider", provider, "-o", "json").ok(t)
				var object map[string]any
				decodeStrict(t, line, &object)
				keys(t, object, "model", "provider", "exact", "context", "tokens", "scored", "estimates", "ppl", "error", "seconds", "tok_s")
				var r perplexityResult
				decodeStrict(t, line, &r)
				windows := tc.tokens / tc.window
				if r.Tokens != tc.tokens || len(r.Estimates) != windows || r.Scored != windows*(tc.window-tc.window/2-1) || !r.Exact || r.Provider != provider {
					t.Errorf("%+v", r)
				}
				near(t, "perplexity", r.Perplexity, tc.ppl, 1e-5)
				near(t, "deviation", r.Error, tc.deviation, 1e-5)
				near(t, "first estimate", r.Estimates[0], tc.first, 1e-5)
				near(t, "last estimate", r.Estimates[windows-1], r.Perplexity, 0)
			})
		}
	}
}

func TestPerplexityText(t *testing.T) {
	model := tinyModel(t)
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("the and ", 10)), 0o600); err != nil {
		t.Fatal(err)
	}
	out := invoke(t, "perplexity", "-m", model, "-f", text, "-c", "8").ok(t)
	var r perplexityResult
	decodeStrict(t, invoke(t, "perplexity", "-m", model, "-f", text, "-c", "8", "-o", "json").ok(t), &r)
	want := ""
	for i, x := range r.Estimates {
		want += fmt.Sprintf("[%d]%.4f,", i+1, x)
	}
	want += fmt.Sprintf("\nFinal estimate: PPL = %.4f +/- %.5f\n", r.Perplexity, r.Error)
	if out != want || len(r.Estimates) < 2 {
		t.Errorf("prints %q, want %q", out, want)
	}
	r2 := invoke(t, "perplexity", "-m", model, "-f", text)
	r2.failed(t, exitError, "two windows of 512 need 1024")
	long := filepath.Join(t.TempDir(), "long")
	if err := os.WriteFile(long, []byte(strings.Repeat("the and ", 300)), 0o600); err != nil {
		t.Fatal(err)
	}
	var whole perplexityResult
	if decodeStrict(t, invoke(t, "perplexity", "-m", model, "-f", long, "-c", "0", "-o", "json").ok(t), &whole); whole.Context != 256 {
		t.Errorf("windows of %d, want the model's 256", whole.Context)
	}
	absent := filepath.Join(t.TempDir(), "absent")
	_, err := os.Open(absent)
	for _, args := range [][]string{{"perplexity"}, {"tokenize"}, {"run"}} {
		if r := invoke(t, append(args, "-m", model, "-f", absent)...); r.code != exitError || r.stderr != "fucina: "+err.Error()+"\n" {
			t.Errorf("%s: exit %d, stderr %q", args, r.code, r.stderr)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r := invokeContext(t, ctx, "perplexity", "-m", model, "-f", text, "-c", "8"); r.code != exitInterrupted || r.stdout != "" {
		t.Errorf("interrupted: %+v", r)
	}
}

// After an interrupt the command prints no final estimate, and the estimates that it printed
// before remain.
func TestPerplexityInterrupted(t *testing.T) {
	model := tinyModel(t)
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("the and ", 10)), 0o600); err != nil {
		t.Fatal(err)
	}
	whole := invoke(t, "perplexity", "-m", model, "-f", text, "-c", "8").ok(t)
	some := false
	for n := 0; ; n += 23 {
		r := invokeContext(t, countdown.After(n), "perplexity", "-m", model, "-f", text, "-c", "8")
		if r.code == exitOK {
			break
		}
		estimates := strings.TrimSuffix(r.stdout, "\n")
		if r.code != exitInterrupted || r.stderr != "" || !strings.HasPrefix(whole, estimates) || strings.Contains(estimates, "Final") {
			t.Fatalf("interrupted at look %d: %+v", n, r)
		}
		some = some || estimates != ""
	}
	if !some {
		t.Error("no run kept its first estimates")
	}
}

// One large logit gives the probability 1, equal logits give equal probabilities, and NaN
// gives no probability.
func TestSurprise(t *testing.T) {
	var s lossSum
	if !s.add([]float32{3, 3, 3, 3}, 2) || !s.add([]float32{0, 1000}, 1) {
		t.Error("a probability was refused")
	}
	near(t, "perplexity", s.perplexity(), 2, 1e-12) // the square root of 4*1
	// The numbers ln 4 and 0 have the mean ln 2 and the variance (ln 2)^2.
	near(t, "deviation", s.deviation(), 2*math.Ln2, 1e-12)
	for _, logits := range [][]float32{{float32(math.NaN()), 0}, {0, float32(math.Inf(1))}, {float32(math.Inf(-1)), 0}} {
		if s.add(logits, 0) {
			t.Errorf("%v gives a probability", logits)
		}
	}
}
