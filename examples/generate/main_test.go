package main

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/llm"
	"github.com/fucina-go/fucina/llm/tokenizer"
	"github.com/fucina-go/fucina/providers"
	"github.com/fucina-go/fucina/tests/process"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

func TestMain(m *testing.M) { process.Main(m, main) }

// golden writes a model whose text is recorded to a file.
func golden(t *testing.T) (path string, g tinyllama.Golden) {
	t.Helper()
	g = tinyllama.Goldens()[0]
	return tinyllama.New(g.Options).File(t, "tiny.gguf"), g
}

// textOf returns the text of the recorded ids.
func textOf(t *testing.T, path string, g tinyllama.Golden) string {
	t.Helper()
	engine, err := fucina.Open(fucina.WithProvider(providers.CPU))
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	model, err := llm.Open(engine, path, llm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	text := ""
	stream := model.Tokenizer().NewStream(tokenizer.StreamOptions{})
	for _, id := range g.IDs {
		text += stream.Next(id)
	}
	return text
}

// pieces records and counts writes. If full is set, each write fails with it.
type pieces struct {
	text strings.Builder
	n    int
	full error
}

func (p *pieces) Write(b []byte) (int, error) {
	if p.n++; p.full != nil {
		return 0, p.full
	}
	return p.text.Write(b)
}

// generate writes the text in pieces. The text is the same on every provider, and begins with
// the recorded text.
func TestGenerate(t *testing.T) {
	t.Setenv("FUCINA_EXACT", "1")
	path, g := golden(t)
	first := ""
	for _, name := range providers.Names() {
		t.Setenv(providers.Env, name)
		var out pieces
		if err := generate(t.Context(), &out, path, g.Prompt); err != nil {
			t.Fatal(err)
		}
		text := out.text.String()
		if out.n < 32 {
			t.Errorf("%s: text in %d pieces", name, out.n)
		}
		if first == "" {
			first = text
		}
		if text != first {
			t.Errorf("%s: %q, want %q", name, text, first)
		}
		if want := textOf(t, path, g); !strings.HasPrefix(text, want) {
			t.Errorf("%s: %q, want it to start with %q", name, text, want)
		}
	}
}

// The program runs as a process, with the arguments that a user gives.
func TestProgram(t *testing.T) {
	path, g := golden(t)
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{path, g.Prompt}, 0, ""},
		{[]string{path}, 2, "usage"},
		{[]string{path + ".not", g.Prompt}, 1, "tiny.gguf.not"},
	} {
		cmd := process.Command(t, tc.args...)
		cmd.Env = append(cmd.Env, "FUCINA_EXACT=1")
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		process.SkipEmulated(t, err)
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		if code := cmd.ProcessState.ExitCode(); code != tc.code || !strings.Contains(stderr.String(), tc.want) {
			t.Errorf("%q: exit %d, stderr %q, want %d, %q", tc.args, code, stderr.String(), tc.code, tc.want)
		}
		if want := textOf(t, path, g); tc.code == 0 && !strings.HasPrefix(string(out), want) {
			t.Errorf("prints %q, want it to start with %q", out, want)
		}
	}
}

func TestErrors(t *testing.T) {
	path, g := golden(t)
	full := errors.New("disk full")
	if err := generate(t.Context(), &pieces{full: full}, path, g.Prompt); !errors.Is(err, full) {
		t.Errorf("with a writer that fails: %v", err)
	}
	t.Setenv(providers.Env, "nonesuch")
	if err := generate(t.Context(), &pieces{}, path, g.Prompt); err == nil {
		t.Error("an unknown provider gives no error")
	}
}
