package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/internal/invariants"
	"github.com/fucina-go/fucina/llm"
	"github.com/fucina-go/fucina/llm/sample"
	"github.com/fucina-go/fucina/llm/tokenizer"
	"github.com/fucina-go/fucina/providers"
	"github.com/fucina-go/fucina/tests/countdown"
	"github.com/fucina-go/fucina/tests/repo"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

// metadataModel writes the default synthetic model with one key of its metadata set.
func metadataModel(t *testing.T, key string, value any) string {
	t.Helper()
	m := tinyllama.New(tinyllama.Options{})
	m.Set(key, value)
	return m.File(t, "tiny.gguf")
}

// If the vocabulary adds a token at the end of a text, tokenize and perplexity add it, and
// run does not add it to the prompt.
func TestTextAndPromptFrames(t *testing.T) {
	path := metadataModel(t, "tokenizer.ggml.add_eos_token", true)
	if out := invoke(t, "tokenize", "-m", path, "-p", "the", "--ids").ok(t); out != "[1, 264, 2]\n" {
		t.Errorf("tokenize gives %s", out)
	}
	var g generation
	decodeStrict(t, invoke(t, "run", "-m", path, "-p", "the", "-n", "1", "--temp", "0", "-o", "json").ok(t), &g)
	if !slices.Equal(g.PromptIDs, []int32{1, 264}) {
		t.Errorf("the prompt's ids are %v", g.PromptIDs)
	}
	tok, err := openTokenizer(path)
	if err != nil {
		t.Fatal(err)
	}
	w, err := newWindows(context.Background(), tok, "the the", 2)
	if err != nil {
		t.Fatal(err)
	}
	if last := w.ids[len(w.ids)-1]; last != tok.EOS() || w.bos != tok.BOS() {
		t.Errorf("perplexity's text ends with %d, its windows begin with %d", last, w.bos)
	}
}

// A stop text that spells a control token ends the text at that token, although the token
// prints nothing.
func TestStopToken(t *testing.T) {
	const marker = "<|sep|>"
	first := func(out string) generation {
		t.Helper()
		var g generation
		decodeStrict(t, out, &g)
		return g
	}
	run := func(path string, args ...string) string {
		t.Helper()
		return invoke(t, append([]string{"run", "-m", path, "-p", "the", "-n", "12", "--temp", "0"}, args...)...).ok(t)
	}
	model := tinyllama.New(tinyllama.Options{})
	path := filepath.Join(t.TempDir(), "stop.gguf")
	write := func() {
		t.Helper()
		if err := os.WriteFile(path, model.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write()
	free := first(run(path, "-o", "json"))
	id := free.IDs[6]
	model.SetToken(id, marker, tokenizer.Control)
	write()
	want := free.IDs[:slices.Index(free.IDs, id)+1]
	if g := first(run(path, "-o", "json", "-r", marker)); !slices.Equal(g.IDs, want) || g.End != llm.EndStop.String() {
		t.Errorf("ends by %q with %v, want %v", g.End, g.IDs, want)
	}
	if g := first(run(path, "-o", "json", "-r", "<|never|>")); !slices.Equal(g.IDs, free.IDs) {
		t.Errorf("without the stop %v, want %v", g.IDs, free.IDs)
	}
}

// If a text spells a token of its frame, both tokens remain, and there is a warning.
func TestDoubledFrame(t *testing.T) {
	path := metadataModel(t, "tokenizer.ggml.add_eos_token", true)
	for _, tc := range []struct {
		args     string
		stdout   string
		warnings []string
	}{
		{"run -n 0 -o json --special -p <s>the", `"prompt_ids":[1,1,264]`, []string{"begins with <s> twice"}},
		{"run -n 0 -o json --special -p the</s></s>", `"prompt_ids":[1,264,2,2]`, nil},
		{"run -n 0 -o json -p <s>the", `"prompt_ids":[1,`, nil},
		{"run -n 0 -o json --special -p the", `"prompt_ids":[1,264]`, nil},
		{"tokenize --ids --parse-special -p <s>the</s>", "[1, 1, 264, 2, 2]", []string{"begins with <s> twice", "ends with </s> twice"}},
		{"tokenize --ids --parse-special --no-bos -p <s><s>the", "[1, 1, 264]", nil},
	} {
		r := invoke(t, append(strings.Fields(tc.args), "-m", path)...)
		if r.code != exitOK || !strings.Contains(r.stdout, tc.stdout) {
			t.Errorf("%s: exit %d, %.80q", tc.args, r.code, r.stdout)
		}
		lines := strings.Split(strings.TrimSuffix(r.stderr, "\n"), "\n")
		if r.stderr == "" {
			lines = nil
		}
		if len(lines) != len(tc.warnings) {
			t.Errorf("%s: stderr %q, want %d lines", tc.args, r.stderr, len(tc.warnings))
			continue
		}
		for i, want := range tc.warnings {
			if !strings.HasPrefix(lines[i], "fucina: warning: ") || !strings.Contains(lines[i], want) {
				t.Errorf("%s: %q does not warn %q", tc.args, lines[i], want)
			}
		}
	}
}

// checkGolden runs a model in exact mode, greedily, on a provider. It fails the test unless
// the ids are the given ones and the first logits are within a tolerance.
func checkGolden(t *testing.T, path, provider, prompt string, ids []int32, first []float32, tolerance float64) generation {
	t.Helper()
	if invariants.RaceEnabled {
		ids = ids[:min(len(ids), 8)] // the kernels are slow with these checks
	}
	var g generation
	decodeStrict(t, invoke(t, "run", "-m", path, "-p", prompt, "-n", strconv.Itoa(len(ids)), "--temp", "0", "-o", "json", "--logits", "--provider", provider).ok(t), &g)
	if !slices.Equal(g.IDs, ids) {
		t.Errorf("ids\n%v, want\n%v", g.IDs, ids)
	}
	if len(g.FirstLogits) != len(first) {
		t.Fatalf("%d logits, want %d", len(g.FirstLogits), len(first))
	}
	for i, want := range first {
		if d := math.Abs(float64(g.FirstLogits[i] - want)); !(d <= tolerance) {
			t.Fatalf("first logit %d is %v, want %v within %v", i, g.FirstLogits[i], want, tolerance)
		}
	}
	if g.Provider != provider || !g.Exact || string(g.Model) != filepath.Base(path) {
		t.Errorf("model %q on %q, exact %v", g.Model, g.Provider, g.Exact)
	}
	return g
}

// The synthetic models give the ids and logits of llama.cpp, on every provider of this build.
func TestTinyGoldens(t *testing.T) {
	t.Setenv("FUCINA_EXACT", "1")
	for _, golden := range tinyllama.Goldens() {
		path := tinyllama.New(golden.Options).File(t, golden.Name+".gguf")
		for _, provider := range providers.Names() {
			t.Run(golden.Name+"/"+provider, func(t *testing.T) {
				g := checkGolden(t, path, provider, golden.Prompt, golden.IDs, golden.FirstLogits, 1e-4)
				if !slices.Equal(g.PromptIDs, golden.PromptIDs) {
					t.Errorf("prompt ids %v, want %v", g.PromptIDs, golden.PromptIDs)
				}
			})
		}
	}
}

// Real models give the ids and logits of llama.cpp, if they are in ../shared.
func TestRealGoldens(t *testing.T) {
	t.Setenv("FUCINA_EXACT", "1")
	data, err := os.ReadFile("testdata/stories260K.json")
	if err != nil {
		t.Fatal(err)
	}
	var goldens map[string]struct {
		Tolerance   float64   `json:"tolerance"`
		IDs         []int32   `json:"ids"`
		FirstLogits []float32 `json:"first_logits"`
	}
	if err := json.Unmarshal(data, &goldens); err != nil {
		t.Fatal(err)
	}
	for name, golden := range goldens {
		for _, provider := range providers.Names() {
			t.Run(name+"/"+provider, func(t *testing.T) {
				path := repo.Shared(t, "TestTinyGoldens does the same with seeded models", "models", filepath.FromSlash(name))
				g := checkGolden(t, path, provider, "Once upon a time", golden.IDs, golden.FirstLogits, golden.Tolerance)
				if want := []int32{1, 403, 407, 261, 378}; !slices.Equal(g.PromptIDs, want) {
					t.Errorf("prompt ids %v, want %v", g.PromptIDs, want)
				}
			})
		}
	}
}

func TestRunJSON(t *testing.T) {
	model := tinyModel(t)
	args := []string{"run", "-m", model, "-p", "a b", "-n", "5", "-t", "2", "-c", "32", "--seed", "7", "-o", "json"}
	out := invoke(t, args...).ok(t)
	var object map[string]any
	decodeStrict(t, out, &object)
	keys(t, object, "model", "provider", "prompt", "prompt_ids", "ids", "pieces", "text", "end", "seed", "exact", "interrupted", "timings")
	keys(t, object["timings"].(map[string]any), "load_s", "prompt_tokens", "prompt_s", "prompt_tok_s", "gen_tokens", "gen_s", "gen_tok_s")

	var g generation
	decodeStrict(t, out, &g)
	if g.Model != "tiny.gguf" || g.Prompt != "a b" || !strings.HasPrefix(string(g.Text), "a b") || g.Seed != 7 || g.Interrupted {
		t.Errorf("%+v", g)
	}
	if tm := g.Timings; len(g.IDs) != 5 || tm.GenTokens != 5 || tm.PromptTokens != len(g.PromptIDs) || tm.Load <= 0 || tm.Prompt <= 0 || tm.Gen <= 0 {
		t.Errorf("%d ids, timings %+v", len(g.IDs), tm)
	}
	var again generation
	decodeStrict(t, invoke(t, args...).ok(t), &again)
	if !slices.Equal(g.IDs, again.IDs) {
		t.Errorf("seed 7 gives %v, then %v", g.IDs, again.IDs)
	}
}

// Without --seed every run draws a new seed, which the result contains.
func TestRandomSeed(t *testing.T) {
	model := tinyModel(t)
	var a, b generation
	decodeStrict(t, invoke(t, "run", "-m", model, "-p", "a", "-n", "1", "-o", "json").ok(t), &a)
	decodeStrict(t, invoke(t, "run", "-m", model, "-p", "a", "-n", "1", "-o", "json", "--seed", "-1").ok(t), &b)
	if a.Seed == b.Seed {
		t.Errorf("two runs drew the seed %d", a.Seed)
	}
}

// Logits are printed only with --logits.
func TestRunLogits(t *testing.T) {
	model := tinyModel(t)
	for _, n := range []string{"0", "1"} {
		args := []string{"run", "-m", model, "-p", "a b", "-n", n, "-o", "json"}
		if out := invoke(t, args...).ok(t); strings.Contains(out, "logits") {
			t.Errorf("-n %s prints logits without --logits", n)
		}
		var object map[string]any
		decodeStrict(t, invoke(t, append(args, "--logits")...).ok(t), &object)
		if list, _ := object["first_logits"].([]any); len(list) != 327 {
			t.Errorf("-n %s --logits prints %d logits, want 327", n, len(list))
		}
	}
}

// JSON preserves the bytes of a prompt and of pieces that are not valid UTF-8.
func TestRunBytes(t *testing.T) {
	model, file := tinyModel(t), filepath.Join(t.TempDir(), "prompt")
	const prompt = "a\xf0\x9f"
	if err := os.WriteFile(file, []byte(prompt), 0o600); err != nil {
		t.Fatal(err)
	}
	// Token 3+0xe2 is the first byte of a character, over and over.
	var g generation
	decodeStrict(t, invoke(t, "run", "-m", model, "-f", file, "-n", "2", "--temp", "0", "--logit-bias", "229+1000", "-o", "json").ok(t), &g)
	if g.Prompt != prompt || !strings.HasPrefix(string(g.Text), prompt) {
		t.Errorf("prompt %q, text %q", g.Prompt, g.Text)
	}
	if want := []jsonText{"\xe2", "\xe2"}; !slices.Equal(g.Pieces, want) {
		t.Errorf("pieces %q, want %q", g.Pieces, want)
	}
}

// A bias of a token that the model does not have is an error before anything is computed or
// printed.
func TestRunBias(t *testing.T) {
	model := tinyModel(t)
	for _, more := range [][]string{nil, {"-o", "json"}, {"-n", "0"}, {"--chat", "--chat-template", "chatml"}} {
		r := invoke(t, append([]string{"run", "-m", model, "-p", "a b", "--logit-bias", "327+1"}, more...)...)
		r.failed(t, exitError, "bias of token 327, want a token of 0..326")
		if r.stdout != "" {
			t.Errorf("%q prints %q", more, r.stdout)
		}
	}
	invoke(t, "run", "-m", model, "-p", "a", "-n", "1", "--logit-bias", "326+1").ok(t)
}

// With -ignore-eos a token that ends the text is not chosen, even if it has a large bias.
func TestRunIgnoreEOS(t *testing.T) {
	args := []string{"run", "-m", tinyModel(t), "-p", "a b", "-n", "5", "--temp", "0", "-o", "json", "--logit-bias", "2+1000"}
	var ended, ignored generation
	decodeStrict(t, invoke(t, args...).ok(t), &ended)
	decodeStrict(t, invoke(t, append(args, "--ignore-eos")...).ok(t), &ignored)
	if !slices.Equal(ended.IDs, []int32{2}) || ended.End != "end token" {
		t.Errorf("ids %v, end %q", ended.IDs, ended.End)
	}
	if len(ignored.IDs) != 5 || slices.Contains(ignored.IDs, 2) || ignored.End != "token limit" {
		t.Errorf("with -ignore-eos: ids %v, end %q", ignored.IDs, ignored.End)
	}
}

// -1 means the default of a length, and -n -2 fills the context as -n -1 does.
func TestRunSizes(t *testing.T) {
	args := []string{"run", "-m", tinyModel(t), "-p", "a b", "--temp", "0", "-c", "24"}
	want := invoke(t, args...).ok(t)
	for _, more := range [][]string{{"-n", "-1"}, {"-n", "-2"}, {"-t", "-1"}, {"-t", "0"}, {"-b", "-1"}, {"-b", "0"}} {
		if got := invoke(t, append(args, more...)...).ok(t); got != want {
			t.Errorf("%q gives %q, want %q", more, got, want)
		}
	}
	short := args[:len(args)-2]
	if got, want := invoke(t, append(short, "-n", "3", "-c", "-1")...).ok(t), invoke(t, append(short, "-n", "3")...).ok(t); got != want {
		t.Errorf("-c -1 gives %q, want %q", got, want)
	}
}

// If a value of the file is not used unchanged, there is a note.
func TestRunNotes(t *testing.T) {
	m := tinyllama.New(tinyllama.Options{})
	m.Set("llama.rope.freq_base", float32(0))
	path := m.File(t, "zero.gguf")
	invoke(t, "run", "-m", path, "-p", "a", "-n", "1").noted(t, "note: llama.rope.freq_base is 0")
}

// -n 0 evaluates only the prompt, and gives the same logits.
func TestRunNoTokens(t *testing.T) {
	model := tinyModel(t)
	var none, one generation
	decodeStrict(t, invoke(t, "run", "-m", model, "-p", "a b", "-n", "0", "-o", "json", "--logits").ok(t), &none)
	decodeStrict(t, invoke(t, "run", "-m", model, "-p", "a b", "-n", "1", "-o", "json", "--logits").ok(t), &one)
	if none.End != "none" || one.End != "token limit" {
		t.Errorf("ends %q and %q", none.End, one.End)
	}
	if len(none.IDs) != 0 || none.Text != "a b" || !slices.Equal(none.PromptIDs, one.PromptIDs) || len(none.FirstLogits) == 0 || !slices.Equal(none.FirstLogits, one.FirstLogits) {
		t.Errorf("-n 0 gives %+v, -n 1 %+v", none, one)
	}
	if out := invoke(t, "run", "-m", model, "-p", "a b", "-n", "0").ok(t); out != "a b\n" {
		t.Errorf("prints %q", out)
	}
}

// Without -n the text goes on until the context is full or the model ends it.
func TestRunFillsContext(t *testing.T) {
	var g generation
	decodeStrict(t, invoke(t, "run", "-m", tinyModel(t), "-p", "a", "-c", "12", "--temp", "0", "-o", "json").ok(t), &g)
	if n := len(g.PromptIDs) + len(g.IDs); n != 12+1 { // the last token needs no room
		t.Errorf("%d prompt tokens and %d more in a context of 12", len(g.PromptIDs), len(g.IDs))
	}
	if g.End != "context full" {
		t.Errorf("ends %q", g.End)
	}
}

// -c 0 means the context that the model was trained for, and the default is at most 4096. A
// longer context works, with a warning.
func TestRunContext(t *testing.T) {
	path := tinyllama.New(tinyllama.Options{Context: 5000}).File(t, "long.gguf")
	threads, batch := 1, 0
	for _, tc := range []struct{ length, want int }{{defaultLength, 4096}, {ownLength, 5000}, {12, 12}, {6000, 6000}} {
		l, err := newTool(nil, io.Discard, io.Discard, false, false).load(t.Context(), &modelFlags{path: path, threads: &threads, batch: &batch, cacheTokens: &batch, cachePrefix: &batch}, tc.length)
		if err != nil {
			t.Fatal(err)
		}
		if got := l.session.Context(); got != tc.want {
			t.Errorf("-c %d gives a context of %d, want %d", tc.length, got, tc.want)
		}
		if err := l.close(); err != nil {
			t.Error(err)
		}
	}
	for length, want := range map[string]string{
		"0":    "",
		"5000": "",
		"5001": "fucina: warning: a context of 5001 tokens, but the model was trained for 5000\n",
	} {
		if r := invoke(t, "run", "-m", path, "-p", "a", "-n", "1", "-c", length); r.code != exitOK || r.stderr != want {
			t.Errorf("-c %s: exit %d, stderr %q", length, r.code, r.stderr)
		}
	}
}

// The error of a context that does not fit into memory names -c.
func TestRunMemory(t *testing.T) {
	err := shorter(fmt.Errorf("cache: %w", fucina.ErrNoMemory))
	if !errors.Is(err, fucina.ErrNoMemory) || !strings.Contains(err.Error(), "-c") {
		t.Error(err)
	}
	if err := shorter(io.EOF); err != io.EOF {
		t.Error(err)
	}
}

// The error of a provider that this build does not have names build tags, and these exist.
func TestProviderTags(t *testing.T) {
	model := tinyModel(t)
	for _, args := range [][]string{{"run", "-p", "a", "-m", model}, {"inspect", model}} {
		r := invoke(t, append(args, "--provider", "nonesuch")...)
		r.failed(t, exitError, "this build has cpu")
		if !slices.Contains(providers.Names(), "discrete") {
			r.failed(t, exitError, "a build with -tags accel has discrete")
		}
	}
	invoke(t, "run", "-p", "a", "-m", model, "--provider", "cup").failed(t, exitError, `did you mean "cpu"?`)
	t.Run("by the variable", func(t *testing.T) {
		t.Setenv(providers.Env, "cpi")
		invoke(t, "inspect", model).failed(t, exitError, `did you mean "cpu"?`)
	})
	for name, tag := range tagged {
		source, err := os.ReadFile(filepath.Join("..", "..", "providers", name+".go"))
		if err != nil || !strings.HasPrefix(string(source), "//go:build "+tag+"\n") || !strings.Contains(string(source), strconv.Quote(name)) {
			t.Errorf("package providers has no %s under the tag %s: %v", name, tag, err)
		}
		if slices.Contains(providers.Names(), name) {
			continue
		}
		r := invoke(t, "run", "-p", "a", "-m", model, "--provider", name)
		r.failed(t, exitError, "a build with -tags "+tag+" has "+name)
		t.Setenv(providers.Env, name)
		if got := invoke(t, "run", "-p", "a", "-m", model); got.stderr != r.stderr {
			t.Errorf("by the variable: %q", got.stderr)
		}
	}
}

// recorder records each write separately, and calls hook after it.
type recorder struct {
	writes []string
	hook   func(n int) error
}

func (r *recorder) Write(p []byte) (int, error) {
	r.writes = append(r.writes, string(p))
	if r.hook != nil {
		if err := r.hook(len(r.writes)); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

func (r *recorder) text() string { return strings.Join(r.writes, "") }

// The prompt is printed first, then each piece in a write of its own, and then a newline if
// the last line lacks one.
func TestRunStreams(t *testing.T) {
	model := tinyModel(t)
	var g generation
	args := []string{"run", "-m", model, "-p", "a b", "-n", "12", "--temp", "0"}
	decodeStrict(t, invoke(t, append(args, "-o", "json")...).ok(t), &g)

	var out recorder
	if code := run(t.Context(), args, nil, &out, io.Discard); code != exitOK {
		t.Fatalf("exit %d", code)
	}
	if len(out.writes) < 6 || out.writes[0] != "a b" {
		t.Errorf("writes %q, want the prompt and then pieces", out.writes)
	}
	if want := strings.TrimSuffix(string(g.Text), "\n") + "\n"; out.text() != want {
		t.Errorf("prints %q, want %q", out.text(), want)
	}
}

// -e replaces the known escapes and leaves others unchanged.
func TestRunEscapes(t *testing.T) {
	model := tinyModel(t)
	args := []string{"run", "-m", model, "-n", "0", "-p", `a\n\tb\\n\'\"\q\`}
	if out := invoke(t, append(args, "-e")...).ok(t); out != "a\n\tb\\n'\"\\q\\\n" {
		t.Errorf("with -e: %q", out)
	}
	if out := invoke(t, args...).ok(t); out != args[len(args)-1]+"\n" {
		t.Errorf("without: %q", out)
	}
	// Line feeds alone, and one that ends the text.
	args = []string{"run", "-m", model, "-p", "a", "-n", "3", "--temp", "0", "--logit-bias", "13+1000", "--stop", `\n\n`}
	if out := invoke(t, args...).ok(t); out != "a\n\n\n" {
		t.Errorf("a text without an end: %q", out)
	}
	if out := invoke(t, append(args, "-e")...).ok(t); out != "a\n" {
		t.Errorf("a text to its end: %q", out)
	}
}

func TestRunPromptFile(t *testing.T) {
	model := tinyModel(t)
	file := filepath.Join(t.TempDir(), "prompt.txt")
	if err := os.WriteFile(file, []byte("a\nb\n\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := invoke(t, "run", "-m", model, "-f", file, "-n", "0").ok(t); out != "a\nb\n" {
		t.Errorf("prints %q", out)
	}
	var stdout bytes.Buffer
	code := run(t.Context(), []string{"run", "-m", model, "-f", "-", "-n", "0"}, strings.NewReader("from stdin\n"), &stdout, io.Discard)
	if code != exitOK || stdout.String() != "from stdin\n" {
		t.Errorf("exit %d, prints %q", code, stdout.String())
	}
	invoke(t, "run", "-m", model, "-f", file+".not").failed(t, exitError, "prompt")
}

func TestRunErrors(t *testing.T) {
	model := tinyModel(t)
	broken := filepath.Join(t.TempDir(), "broken\x1b\n.gguf")
	if err := os.WriteFile(broken, tinyllama.GGUF(tinyllama.Options{})[:5000], 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"no file":                  {[]string{"-m", model + ".not"}, "tiny.gguf.not"},
		"not a file":               {[]string{"-m", filepath.Dir(model)}, "regular file"},
		"broken":                   {[]string{"-m", broken}, "gguf"},
		"no provider":              {[]string{"-m", model, "--provider", "nonesuch"}, "nonesuch"},
		"small context":            {[]string{"-m", model, "-c", "1"}, "context"},
		"small context, no tokens": {[]string{"-m", model, "-c", "1", "-n", "0"}, "context"},
	} {
		t.Run(name, func(t *testing.T) {
			r := invoke(t, append([]string{"run", "-p", "a b c"}, tc.args...)...)
			r.failed(t, exitError, tc.want)
			if r.stdout != "" {
				t.Errorf("stdout %q", r.stdout)
			}
		})
	}
}

// run fails if any of its writes fails.
func TestRunWriteError(t *testing.T) {
	model := tinyModel(t)
	full := errors.New("disk full")
	for _, tc := range []struct {
		n      int
		format string
	}{{1, "text"}, {4, "text"}, {1, "json"}} {
		var stderr bytes.Buffer
		out := &recorder{hook: func(n int) error {
			if n >= tc.n {
				return full
			}
			return nil
		}}
		code := run(t.Context(), []string{"run", "-m", model, "-p", "a b", "-n", "12", "--temp", "0", "-o", tc.format}, nil, out, &stderr)
		result{code, "", stderr.String()}.failed(t, exitError, "disk full")
		if len(out.writes) != tc.n {
			t.Errorf("%d writes after an error at the %dth", len(out.writes), tc.n)
		}
	}
}

// Timings and progress are shown on a terminal, and timings also with -v.
func TestRunTimings(t *testing.T) {
	model := tinyModel(t)
	args := []string{"run", "-m", model, "-p", "a", "-n", "8"}
	r := invoke(t, append(args, "-v")...)
	if r.code != exitOK || !strings.HasPrefix(r.stderr, "load ") || strings.Count(r.stderr, "\n") != 1 {
		t.Errorf("exit %d, stderr %q", r.code, r.stderr)
	}
	// The seed of the timings gives the same text.
	_, seed, ok := strings.Cut(strings.TrimSuffix(r.stderr, "\n"), "; seed ")
	if again := invoke(t, append(args, "--seed", seed)...).ok(t); !ok || again != r.stdout {
		t.Errorf("seed %q gives %q, want %q", seed, again, r.stdout)
	}
	var stderr bytes.Buffer
	terminal := newTool(nil, io.Discard, &stderr, false, true)
	if code := terminal.main(t.Context(), args); code != exitOK {
		t.Fatalf("exit %d, stderr %q", code, stderr.String())
	}
	if s := stderr.String(); !strings.HasPrefix(s, "\rloading tiny.gguf ") || !strings.Contains(s, "100%\r ") || !strings.Contains(s, "\rload ") {
		t.Errorf("terminal shows %q", s)
	}
}

func TestRunInterrupted(t *testing.T) {
	model := tinyModel(t)
	args := []string{"run", "-m", model, "-p", "a b", "-n", "40", "--temp", "0"}
	whole := invoke(t, args...).ok(t)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var stderr bytes.Buffer
	out := &recorder{hook: func(n int) error {
		if n == 5 {
			cancel()
		}
		return nil
	}}
	code := run(ctx, args, nil, out, &stderr)
	if code != exitInterrupted || stderr.Len() != 0 {
		t.Errorf("exit %d, stderr %q", code, stderr.String())
	}
	kept, ended := strings.CutSuffix(out.text(), "\n")
	if !ended || !strings.HasPrefix(whole, kept) || len(out.writes) > 6 || len(kept) < len("a b") {
		t.Errorf("printed %q of %q", out.writes, whole)
	}
}

// loadLooks is the number of times that loading checks its context.
const loadLooks = 3

// After an interrupt during loading, the command ends and prints nothing.
func TestLoadInterrupted(t *testing.T) {
	model, number := tinyModel(t), 0
	for n := range loadLooks {
		_, err := newTool(nil, io.Discard, io.Discard, false, false).load(countdown.After(n), &modelFlags{path: model, threads: &number, batch: &number, cacheTokens: &number, cachePrefix: &number}, defaultLength)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("interrupted at look %d: %v", n, err)
		}
		for _, format := range []string{"text", "json"} {
			if r := invokeContext(t, countdown.After(n), "run", "-m", model, "-p", "a", "-o", format); r != (result{code: exitInterrupted}) {
				t.Errorf("interrupted at look %d: %+v", n, r)
			}
		}
	}
}

// The flag overrides the variable, with true and with false.
func TestExact(t *testing.T) {
	model := tinyModel(t)
	for _, tc := range []struct {
		env  string
		args []string
		want bool
	}{
		{"", nil, false},
		{"1", nil, true},
		{"", []string{"--exact"}, true},
		{"0", []string{"--exact"}, true},
		{"1", []string{"--exact=false"}, false},
	} {
		t.Setenv(fucina.ExactEnv, tc.env)
		var g generation
		decodeStrict(t, invoke(t, append([]string{"run", "-m", model, "-p", "a", "-n", "0", "-o", "json"}, tc.args...)...).ok(t), &g)
		if g.Exact != tc.want {
			t.Errorf("FUCINA_EXACT=%q %q: exact %v", tc.env, tc.args, g.Exact)
		}
	}
}

// With -o json, an interrupted run prints the object with the tokens so far.
func TestRunInterruptedJSON(t *testing.T) {
	model := tinyModel(t)
	args := []string{"run", "-m", model, "-p", "a b", "-n", "40", "--temp", "0", "-o", "json"}
	var whole generation
	decodeStrict(t, invoke(t, args...).ok(t), &whole)
	if len(whole.IDs) != 40 {
		t.Fatalf("%d ids", len(whole.IDs))
	}
	some := false
	for n := loadLooks + 1; ; n += n / 2 { // 1 for the encoding of the prompt
		r := invokeContext(t, countdown.After(n), args...)
		if r.code == 0 {
			break // the run ended before the interrupt
		}
		if r.code != exitInterrupted || r.stderr != "" {
			t.Fatalf("exit %d, stderr %q", r.code, r.stderr)
		}
		var g generation
		decodeStrict(t, r.stdout, &g)
		if !g.Interrupted || g.End != "none" || !slices.Equal(g.IDs, whole.IDs[:len(g.IDs)]) || !strings.HasPrefix(string(whole.Text), string(g.Text)) || g.IDs == nil {
			t.Errorf("after %d looks: %+v", n, g)
		}
		if g.Timings.GenTokens != len(g.IDs) {
			t.Errorf("%d tokens in the timings of %d", g.Timings.GenTokens, len(g.IDs))
		}
		some = some || len(g.IDs) > 0 && len(g.IDs) < 40
	}
	if !some {
		t.Error("no run was interrupted midway")
	}
}

// run gives the ids and the text of the library.
func TestRunMatchesLibrary(t *testing.T) {
	model := tinyModel(t)
	var g generation
	decodeStrict(t, invoke(t, "run", "-m", model, "-p", "a b", "-n", "8", "--temp", "1.5", "--seed", "3", "-o", "json", "--provider", "cpu").ok(t), &g)

	eng, err := fucina.Open(fucina.WithProvider("cpu"))
	if err != nil {
		t.Fatal(err)
	}
	defer eng.Close()
	m, err := llm.Open(eng, model, llm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	s, err := m.NewSession(llm.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var ids []int32
	text := "a b"
	for token, err := range s.Generate(t.Context(), "a b", llm.GenerateOptions{MaxTokens: 8, Sampling: sample.Params{TopK: 40, TopP: 0.95, MinP: 0.05, Temperature: 1.5, Seed: 3}}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, token.ID)
		text += token.Text
	}
	if !slices.Equal(g.IDs, ids) || string(g.Text) != text {
		t.Errorf("%v %q, want %v %q", g.IDs, g.Text, ids, text)
	}
}

func TestLogitsJSON(t *testing.T) {
	l := logits{0, -1.5, 1e-30, 3.4e38, float32(math.Inf(-1)), float32(math.NaN()), 0.1}
	b, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	if want := "[0,-1.5,1e-30,3.4e+38,null,null,0.1]"; string(b) != want {
		t.Errorf("%s, want %s", b, want)
	}
}

// Input that does not end is an error at a limit, before memory is full.
func TestTextSize(t *testing.T) {
	in := strings.NewReader(strings.Repeat("a", 1<<20))
	if _, err := readText(in, 1000); !errors.Is(err, errTextSize) || !strings.Contains(err.Error(), "1000 bytes") || in.Len() < 1<<19 {
		t.Errorf("%v, and %d bytes are left", err, in.Len())
	}
	if text, err := readText(strings.NewReader("abc"), 3); err != nil || string(text) != "abc" {
		t.Errorf("%q, %v", text, err)
	}
	for l := range readLines(strings.NewReader(strings.Repeat("a", 1000)+"\nb\n"), 1000) {
		if !errors.Is(l.err, errTextSize) {
			t.Errorf("%+v", l)
		}
	}
	var got []string
	for l := range readLines(strings.NewReader("abc\r\n\nde"), 5) {
		if l.err != nil {
			t.Error(l.err)
		}
		got = append(got, l.text)
	}
	if !slices.Equal(got, []string{"abc", "", "de"}) {
		t.Errorf("%q", got)
	}
}

// An interrupt ends the command while it tokenizes a long prompt or a long message.
func TestRunInterruptedInTokenizer(t *testing.T) {
	model, text := tinyModel(t), filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, bytes.Repeat([]byte("the and "), 1<<17), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, format := range [][]string{nil, {"-o", "json"}, {"-chat", "-chat-template", "chatml"}} {
		ctx, cancel := context.WithCancel(t.Context())
		var stdout bytes.Buffer
		// The warning that is printed after the model is loaded.
		stderr := &trigger{text: "warning: a context of", act: cancel}
		args := append([]string{"run", "-m", model, "-c", "512", "-f", text}, format...)
		if code := run(ctx, args, strings.NewReader(""), &stdout, stderr); code != exitInterrupted || stdout.Len() != 0 {
			t.Errorf("%v: status %d, printed %q, stderr %q", format, code, stdout.String(), stderr.got.String())
		}
		cancel()
	}
}
