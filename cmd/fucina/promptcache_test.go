package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/tests/tinyllama"
)

// runJSON runs a model and returns its result.
func runJSON(t *testing.T, args ...string) generation {
	t.Helper()
	var g generation
	decodeStrict(t, invoke(t, append([]string{"run", "--temp", "0", "-n", "6", "-o", "json", "-logits"}, args...)...).ok(t), &g)
	return g
}

// stored returns the contents of a file, or nil if it does not exist.
func stored(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return b
}

// windowModel writes a model with blocks that see only a window of tokens.
func windowModel(t *testing.T) string {
	t.Helper()
	for _, f := range tinyllama.Families() {
		if f.Name == "gemma3" {
			return f.Model().File(t, "window.gguf")
		}
	}
	t.Fatal("no model gemma3")
	return ""
}

// A prompt cache changes no token and no logit. It is written after the prompt, and again when a
// prompt goes on or differs. Only the tokens that it does not have are decoded.
func TestPromptCache(t *testing.T) {
	long := strings.Repeat("the and of to ", 12)
	for name, model := range map[string]string{"all tokens": tinyModel(t), "windows": windowModel(t)} {
		t.Run(name, func(t *testing.T) {
			cache := filepath.Join(t.TempDir(), "cache")
			var before []byte
			for _, c := range []struct {
				what    string
				args    []string
				decoded func(all int) bool
				written bool
			}{
				{"first", []string{"-p", long}, func(n int) bool { return n > 40 }, true},
				{"again", []string{"-p", long}, func(n int) bool { return n == 1 }, false},
				{"prompt only", []string{"-p", long, "-n", "0"}, func(n int) bool { return n == 1 }, false},
				{"read only", []string{"-p", long + "on and on", "--prompt-cache-ro"}, func(n int) bool { return n > 1 && n < 20 }, false},
				{"longer", []string{"-p", long + "on and on", "--keep-windows"}, func(n int) bool { return n > 1 && n < 20 }, true},
				{"longer again", []string{"-p", long + "on and on"}, func(n int) bool { return n == 1 }, false},
				{"shorter", []string{"-p", long}, func(n int) bool { return n == 1 }, false},
				{"with the text", []string{"-p", long, "--prompt-cache-all"}, func(n int) bool { return n == 1 }, true},
				{"another", []string{"-p", "other words"}, func(n int) bool { return n > 1 }, true},
			} {
				plain := slices.DeleteFunc(slices.Clone(c.args), func(a string) bool { return strings.HasPrefix(a, "--prompt") })
				want := runJSON(t, append(plain, "-m", model)...)
				got := runJSON(t, append(c.args, "-m", model, "--prompt-cache", cache)...)
				if !slices.Equal(got.IDs, want.IDs) || !slices.Equal(got.FirstLogits, want.FirstLogits) || got.Text != want.Text || !slices.Equal(got.PromptIDs, want.PromptIDs) {
					t.Errorf("%s: ids %v, without a cache %v", c.what, got.IDs, want.IDs)
				}
				if n := got.Timings.PromptTokens; !c.decoded(n) {
					t.Errorf("%s: %d of %d tokens decoded", c.what, n, len(got.PromptIDs))
				}
				after := stored(t, cache)
				if bytes.Equal(after, before) == c.written {
					t.Errorf("%s: the file was written: %t, want %t", c.what, !c.written, c.written)
				}
				before = after
			}
			if names, err := os.ReadDir(filepath.Dir(cache)); err != nil || len(names) != 1 {
				t.Errorf("the directory holds %v, %v", names, err)
			}
		})
	}
}

// With -prompt-cache-all, the file has the generated text: a prompt that goes on after it decodes
// only what is new. An interrupt does not prevent that.
func TestPromptCacheAll(t *testing.T) {
	model, dir := tinyModel(t), t.TempDir()
	for _, interrupted := range []bool{false, true} {
		cache := filepath.Join(dir, map[bool]string{false: "end", true: "interrupt"}[interrupted])
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stdout := &trigger{text: "never"}
		want := exitOK
		if interrupted {
			stdout.text, want = "x", exitInterrupted // the third piece of text that is generated
			stdout.act = cancel
		}
		args := []string{"run", "-m", model, "-p", "Once upon a time", "--temp", "0", "-n", "20", "--prompt-cache", cache, "--prompt-cache-all"}
		var stderr bytes.Buffer
		if code := run(ctx, args, strings.NewReader(""), stdout, &stderr); code != want || stderr.Len() > 0 {
			t.Fatalf("status %d, stderr %q, want status %d", code, stderr.String(), want)
		}
		text := strings.TrimSuffix(stdout.got.String(), "\n")
		if interrupted != (len(text) < 25) {
			t.Errorf("interrupted: %t, but the text is %q", interrupted, text)
		}
		g := runJSON(t, "-m", model, "-p", "Once upon a time", "--prompt-cache", cache)
		if g.Timings.PromptTokens != 1 || len(g.IDs) != 6 {
			t.Errorf("%d tokens decoded and %d generated, want 1 and 6", g.Timings.PromptTokens, len(g.IDs))
		}
	}
	all, prompt := stored(t, filepath.Join(dir, "end")), filepath.Join(dir, "prompt")
	runJSON(t, "-m", model, "-p", "Once upon a time", "--prompt-cache", prompt)
	if short := stored(t, prompt); len(all) <= len(short) {
		t.Errorf("the file of the whole text has %d bytes, that of the prompt %d", len(all), len(short))
	}
}

// A file in a directory that does not exist is an error before the model is opened, unless it is only
// read.
func TestPromptCacheDirectory(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing", "cache")
	out := invoke(t, "run", "-m", "no such model", "-p", "x", "--prompt-cache", missing)
	if out.code != exitError || !strings.Contains(out.stderr, "-prompt-cache "+missing) || strings.Count(out.stderr, "\n") != 1 {
		t.Errorf("status %d, %q", out.code, out.stderr)
	}
	runJSON(t, "-m", tinyModel(t), "-p", "Once", "--prompt-cache", missing, "--prompt-cache-ro")
}

// A chat leaves its session behind, and the next one decodes only what its start does not have in
// common with it.
func TestPromptCacheChat(t *testing.T) {
	cache := filepath.Join(t.TempDir(), "cache")
	const input = "hello\nand you\n"
	want := chatWith(t, t.Context(), strings.NewReader(input)).ok(t)
	decoded := ""
	for i := range 2 {
		r := chatWith(t, t.Context(), strings.NewReader(input), "--prompt-cache", cache, "-v")
		if r.code != exitOK || r.stdout != want {
			t.Errorf("status %d, answers %q, want %q", r.code, r.stdout, want)
		}
		_, tokens, _ := strings.Cut(r.stderr, "prompt ")
		tokens, _, _ = strings.Cut(tokens, " tokens")
		if i == 1 && (tokens != "1" || tokens == decoded) {
			t.Errorf("%s tokens of the first message decoded, before %s", tokens, decoded)
		}
		decoded = tokens
	}
	if len(stored(t, cache)) == 0 {
		t.Error("no file")
	}
}

// A file that is not the session of this model is refused in one line, and is not overwritten.
func TestPromptCacheRefused(t *testing.T) {
	model, dir := tinyModel(t), t.TempDir()
	good, bad := filepath.Join(dir, "good"), filepath.Join(dir, "bad")
	args := func(path string, more ...string) []string {
		return append([]string{"run", "-m", model, "-p", "the and of", "-n", "1", "--temp", "0", "--prompt-cache", path}, more...)
	}
	invoke(t, args(good)...).ok(t)
	data := stored(t, good)
	other := tinyllama.New(tinyllama.Options{Seed: 5}).File(t, "other.gguf")
	for _, c := range []struct {
		what, says string
		data       []byte
		more       []string
	}{
		{"text", bad + ": llm: load of a session: not a session of this model: want the magic bytes", []byte("some other file"), nil},
		{"cut", "it ends within", data[:len(data)-9], nil},
		{"other model", "the session of another model", data, []string{"-m", other}},
		{"other cache", "its cache is f16, want f32", data, []string{"--cache-type", "f32"}},
		{"exact", "its cache is f16, want f32", data, []string{"--exact"}},
		{"short context", "context is full", data, []string{"-c", "2"}},
		{"short cache", "cache is full", data, []string{"-c", "64", "--cache-tokens", "1", "-p", strings.Repeat("the and of ", 12)}},
	} {
		writeText(t, bad, string(c.data))
		invoke(t, args(bad, c.more...)...).failed(t, exitError, c.says)
		if c.what != "short cache" && !bytes.Equal(stored(t, bad), c.data) {
			t.Errorf("%s: the file was overwritten", c.what)
		}
	}
	writeText(t, bad, "")
	invoke(t, args(bad)...).ok(t)
	if !bytes.Equal(stored(t, bad), data) {
		t.Error("an empty file is not replaced by a session")
	}
	invoke(t, args(dir)...).failed(t, exitError, dir)
	invoke(t, args(filepath.Join(dir, "none", "cache"))...).failed(t, exitError, filepath.Join(dir, "none", "cache"))
	for want, more := range map[string][]string{
		"go with -prompt-cache":                               {"--prompt-cache-all"},
		"-prompt-cache-ro go with":                            {"--prompt-cache-ro"},
		"-prompt-cache-all does not go with -prompt-cache-ro": {"--prompt-cache", good, "--prompt-cache-all", "--prompt-cache-ro"},
	} {
		invoke(t, append([]string{"run", "-m", model, "-p", "a"}, more...)...).failed(t, exitUsage, want)
	}
}

// The flags of the cache are the options of the model and of its session.
func TestCacheFlags(t *testing.T) {
	for _, c := range []struct {
		args           []string
		tokens, prefix int
		keep           bool
	}{
		{nil, 0, 0, false},
		{[]string{"--cache-tokens", "-1", "--cache-prefix", "-1"}, 0, 0, false},
		{[]string{"--cache-tokens", "100", "--cache-prefix", "7", "--keep-windows"}, 100, 7, true},
		{[]string{"--cache-prefix", "0", "--swa-full"}, 0, -1, true},
	} {
		fs := newFlags("test", "")
		m := fs.model()
		if err := fs.parse(newTool(nil, nil, nil, false, false), c.args, 0); err != nil {
			t.Fatal(err)
		}
		opt := m.options(defaultLength, &progress{})
		if opt.CacheTokens != c.tokens || opt.PrefixTokens != c.prefix || m.keepWindows != c.keep {
			t.Errorf("%v: %d tokens, prefix %d, windows kept: %t", c.args, opt.CacheTokens, opt.PrefixTokens, m.keepWindows)
		}
	}
	model := tinyModel(t)
	long := strings.Repeat("the and of to ", 12)
	invoke(t, "run", "-m", model, "-p", long, "-n", "1", "--cache-tokens", "32").failed(t, exitError, "see -cache-tokens")
	invoke(t, "run", "-m", model, "-p", long, "-n", "1", "--cache-tokens", "64", "--cache-prefix", "0", "--swa-full").ok(t)
	invoke(t, "run", "-m", model, "-p", "a", "--cache-tokens", "0").failed(t, exitUsage, "integer from 1 to")
	invoke(t, "run", "-m", model, "-p", "a", "--cache-prefix", "-2").failed(t, exitUsage, "integer from 0 to")
}
