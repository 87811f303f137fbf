package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/providers"
	"github.com/fucina-go/fucina/tests/process"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

func TestMain(m *testing.M) { process.Main(m, main) }

// result is the exit status and the output of one invocation.
type result struct {
	code           int
	stdout, stderr string
}

// trigger records what is written, and calls act after each write that contains text.
type trigger struct {
	got  bytes.Buffer // not embedded, so that all writes use Write
	text string
	act  func()
}

func (w *trigger) Write(p []byte) (int, error) {
	n, err := w.got.Write(p)
	if bytes.Contains(p, []byte(w.text)) {
		w.act()
	}
	return n, err
}

// run executes args. No output is a terminal.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return newTool(stdin, stdout, stderr, false, false).main(ctx, args)
}

func invoke(t *testing.T, args ...string) result {
	t.Helper()
	return invokeContext(t, t.Context(), args...)
}

func invokeContext(t *testing.T, ctx context.Context, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(ctx, args, strings.NewReader(""), &stdout, &stderr)
	return result{code, stdout.String(), stderr.String()}
}

// ok fails the test unless the status is 0 and stderr is empty. It returns stdout.
func (r result) ok(t *testing.T) string {
	t.Helper()
	if r.code != exitOK || r.stderr != "" {
		t.Fatalf("exit %d, stderr %q", r.code, r.stderr)
	}
	return r.stdout
}

// failed fails the test unless the status is code and stderr has one line, which contains
// want.
func (r result) failed(t *testing.T, code int, want string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit %d, want %d", r.code, code)
	}
	if !strings.HasPrefix(r.stderr, "fucina: ") || strings.Count(r.stderr, "\n") != 1 || !strings.HasSuffix(r.stderr, "\n") {
		t.Errorf("stderr %q, want one line of fucina's", r.stderr)
	}
	if !strings.Contains(r.stderr, want) {
		t.Errorf("stderr %q does not say %q", r.stderr, want)
	}
}

// noted fails the test unless the status is 0 and stderr has one line, which begins with
// want. It returns stdout.
func (r result) noted(t *testing.T, want string) string {
	t.Helper()
	if r.code != exitOK || !strings.HasPrefix(r.stderr, "fucina: "+want) || strings.Count(r.stderr, "\n") != 1 {
		t.Fatalf("exit %d, stderr %q, want the line %q", r.code, r.stderr, want)
	}
	return r.stdout
}

// UnmarshalJSON decodes the output of MarshalJSON.
func (s *jsonText) UnmarshalJSON(data []byte) error {
	if len(data) == 0 || data[0] != '[' {
		return json.Unmarshal(data, (*string)(s))
	}
	var list []uint16
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	var b []byte
	for _, v := range list {
		if v > 255 {
			return fmt.Errorf("%d is not a byte", v)
		}
		b = append(b, byte(v))
	}
	*s = jsonText(b)
	return nil
}

// decodeStrict decodes one line of JSON. Fields that v does not have fail the test.
func decodeStrict(t *testing.T, line string, v any) {
	t.Helper()
	if strings.Count(line, "\n") != 1 || !strings.HasSuffix(line, "\n") {
		t.Errorf("JSON on %d lines, want 1", strings.Count(line, "\n"))
	}
	d := json.NewDecoder(strings.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		t.Fatal(err)
	}
	if d.More() {
		t.Error("more than one JSON value")
	}
}

// keys fails the test unless a JSON object has exactly these keys.
func keys(t *testing.T, object map[string]any, want ...string) {
	t.Helper()
	for _, k := range want {
		if _, ok := object[k]; !ok {
			t.Errorf("no key %q", k)
		}
	}
	if len(object) != len(want) {
		t.Errorf("%d keys, want %d: %v", len(object), len(want), object)
	}
}

// tinyModel writes the default synthetic model.
func tinyModel(t *testing.T) string {
	t.Helper()
	return tinyllama.New(tinyllama.Options{}).File(t, "tiny.gguf")
}

func TestHelp(t *testing.T) {
	for _, arg := range []string{"help", "-h", "--help"} {
		out := invoke(t, arg).ok(t)
		for _, c := range commands {
			if !strings.Contains(out, "  "+c.name+" ") {
				t.Errorf("%s: no command %q in:\n%s", arg, c.name, out)
			}
		}
	}
	for _, c := range commands {
		out := invoke(t, c.name, "-h").ok(t)
		if !strings.HasPrefix(out, "usage: fucina "+c.name) || !strings.Contains(out, "\n"+c.summary+"\n") {
			t.Errorf("%s -h prints %q", c.name, out)
		}
		if got := invoke(t, "help", c.name).ok(t); got != out {
			t.Errorf("help %s prints %q", c.name, got)
		}
	}
	if out := invoke(t, "help", "quantize").ok(t); !strings.Contains(out, " Q4_K_M") {
		t.Errorf("help quantize names no types: %q", out)
	}
	invoke(t, "help", "walk").failed(t, exitUsage, `unknown command "walk"; see fucina help`)
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left") }

// A command fails if it cannot write its output, even if the output is help.
func TestHelpNotWritten(t *testing.T) {
	for _, args := range [][]string{{"help"}, {"run", "-h"}, {"version"}, {"devices"}} {
		var stderr strings.Builder
		code := run(t.Context(), args, strings.NewReader(""), fullDisk{}, &stderr)
		if code != exitError || stderr.String() != "fucina: no space left\n" {
			t.Errorf("%q: status %d, stderr %q", args, code, stderr.String())
		}
	}
}

func TestVersion(t *testing.T) {
	for _, arg := range []string{"version", "--version"} {
		if out := invoke(t, arg).ok(t); !strings.HasPrefix(out, "fucina ") || !strings.Contains(out, "cpu") {
			t.Errorf("%s prints %q", arg, out)
		}
	}
}

func TestVersionJSON(t *testing.T) {
	out := invoke(t, "version", "-o", "json").ok(t)
	var object map[string]any
	decodeStrict(t, out, &object)
	keys(t, object, "version", "go", "os", "arch", "providers")
	var v versionInfo
	decodeStrict(t, out, &v)
	if want := (versionInfo{v.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH, providers.Names()}); v.Version == "" || !reflect.DeepEqual(v, want) {
		t.Errorf("%+v, want %+v", v, want)
	}
}

// A wrong command line ends with status 2 before any file is opened.
func TestUsageErrors(t *testing.T) {
	for _, tc := range []struct {
		args string
		want string
	}{
		{"", "no command"},
		{"walk", `unknown command "walk"; see fucina help`},
		{"rnu", `unknown command "rnu"; did you mean "run"?`},
		{"quantise", `did you mean "quantize"?`},
		{"hlep", `did you mean "help"?`},
		{"help bnech", `did you mean "bench"?`},
		{"run --tepm 1", `run: unknown flag --tepm; did you mean --temp?`},
		{"run -tepm=1", `did you mean -temp?`},
		{"perplexity --ctx-szie 5", `did you mean --ctx-size?`},
		{"bench --n-promt 5", `did you mean --n-prompt?`},
		{"tokenize --id", `did you mean --ids?`},
		{"quantize --pur", `did you mean --pure?`},
		{"inspect --modle x", `did you mean --model?`},
		{"devices -O json", `did you mean -o?`},
		{"version --o=jsn", `fucina: version: invalid value "jsn" for flag -o: want text or json; did you mean "json"?` + "\n"},
		{"run -m x --chat=maybe", "invalid value \"maybe\" for flag -chat: want true or false\n"},
		{"run -m x --no-escape=maybe", "invalid value \"maybe\" for flag -no-escape: want true or false\n"},
		{"run -m x -p a --cache-type q80", `want f16, f32 or q8_0; did you mean "q8_0"?`},
		{"run -m x --chat --chat-template chatlm", `did you mean "chatml"?`},
		{"run -m x -p a --samplers top_k;temprature", `no stage is named "temprature", want names from penalties;`},
		{"run -m x -p a --samplers top_k;temprature", `did you mean "temperature"?`},
		{"run -m x -p a --sampler-seq kz", `letter 'z'`},
		{"quantize a b Q4_KM", `fucina: quantize: unknown type: "Q4_KM"`},
		{"quantize a b Q4_KM", `did you mean "Q4_K_M"?`},
		{"completion bsh", `did you mean "bash"?`},
		{"completion", "want bash|zsh|fish"},
		{"run -m x -p a --logits", "-logits goes with -o json"},
		{"run -m x -p a --single-turn", "go with -chat"},
		{"run -m x -p a --dry-multiplier 0.8", "want 0, which turns it off"},
		{"run -m x -p a --xtc-probability 0.5", "want 0, which turns it off"},
		{"run -m x -p a --top-n-sigma 1", "want 0 or less, which turns it off"},
		{"run -m x -p a --mirostat 2", "want 0, which turns it off"},
		{"run -m x -p a -ngl", "flag needs an argument: -ngl"},
		{"run -ngl 1 -p a", "no model"},
		{"run ---m x", "unknown flag ---m"},
		{"help run walk", `unexpected operand "walk"`},
		{"run", "-m"},
		{"run -m x", "-p"},
		{"run -m x -p a -f b", "two prompts"},
		{"run -m x -p a b", `unexpected operand "b"; see fucina run -h`},
		{"run -p a", "-m"},
		{"run -m x -p a -o xml", "text or json"},
		{"run -m x -p a -n -3", "want an integer from -2 to 1073741824"},
		{"run -m x -p a -n 1.5", "integer"},
		{"run -m x -p a -n 99999999999999999999", "integer"},
		{"run -m x -p a -c -2", "want an integer from 0 to 1073741824, or -1 for the default"},
		{"perplexity -m x -f a -c 1", "from 3"},
		{"run -m x -p a -t -2", "want an integer from 0 to 1024, or -1 for the default"},
		{"run -m x -p a --device-memory 8", "flag -device-memory: want at least 1M, in bytes or in K, M, G or T such as 8G, or 0 or -1 for the default\n"},
		{"run -m x -p a --device-memory 1023K", "want at least 1M"},
		{"run -m x -p a --device-memory -2", "want at least"},
		{"run -m x -p a --device-memory -1G", "want at least"},
		{"run -m x -p a --device-memory G", "want at least"},
		{"run -m x -p a --device-memory 8GG", "want at least"},
		{"run -m x -p a --device-memory 1.5G", "want at least"},
		{"run -m x -p a --device-memory much", "want at least"},
		{"run -m x -p a --device-memory 8388608T", "want at least"},
		{"perplexity -m x -f a --device-memory 1", "perplexity: invalid value \"1\" for flag -device-memory: want at least"},
		{"bench -m x --device-memory", "flag needs an argument: --device-memory"},
		{"run -m x -p a --temp nan", "finite"},
		{"run -m x -p a --temp inf", "finite"},
		{"run -m x -p a --temp 1e39", "finite"},
		{"run -m x -p a --seed -2", "integer"},
		{"run -m x -p a --seed x", "integer"},
		{"run -m x -p a --exact=perhaps", "exact"},
		{"run -m x -p a -b -2", "want an integer from 0 to 1073741824, or -1 for the default"},
		{"run -m x -p a -ctk q8_0", "keys and values of the KV cache have one type"},
		{"run -m x -p a -ctv q8_0", "have one type"},
		{"run -m x -p a -ctk q8_0 -ctv f16", "have one type"},
		{"run -m x -p a -ctk q8_0 -ctv q8_0 --cache-type f16", "have one type"},
		{"run -m x --prompt a --file b", "two prompts"},
		{"run -m x -p a --predict -3", "flag -predict: want an integer from -2"},
		{"run -m x -p a --frobnicate", "unknown flag --frobnicate; see fucina run -h"},
		{"run -m", "argument"},
		{"bench", "-m"},
		{"bench -m x -p 0 -n 0", "nothing to measure"},
		{"bench -m x -p -2", "want an integer from 0 to 1073741824, or -1 for the default"},
		{"bench -m x -n -2", "want an integer from 0 to 1073741824, or -1 for the default"},
		{"bench -m x -r 0", "want an integer from 1 to 1048576, or -1 for the default"},
		{"perplexity -m x -f a -c -2", "want an integer from 0 to 1073741824, or -1 for the default"},
		{"inspect", "want FILE"},
		{"inspect -m a b", "two files"},
		{"inspect a b", `operand "b"`},
		{"inspect a -o yaml", "text or json"},
		{"devices x", `operand "x"`},
		{"quantize a b", "want IN.gguf OUT.gguf TYPE"},
		{"quantize a b Q9_9", `"Q9_9", want one of F32`},
		{"quantize a b Q4_0 -t -2", "want an integer from 0 to 1024, or -1 for the default"},
		{"tokenize -p a", "-m"},
		{"tokenize -m x", "-p"},
		{"tokenize -m x -p a -f b", "two prompts"},
		{"perplexity -f a", "-m"},
		{"perplexity -m x", "-f"},
		{"perplexity -m x -f a -c 2", "from 3"},
		{"devices -o yaml", "text or json"},
		{"version x", `operand "x"`},
	} {
		t.Run(tc.args, func(t *testing.T) {
			r := invoke(t, strings.Fields(tc.args)...)
			r.failed(t, exitUsage, tc.want)
			if r.stdout != "" {
				t.Errorf("stdout %q", r.stdout)
			}
		})
	}
}

// All names of a flag have the same effect, and the help shows them together.
func TestAliases(t *testing.T) {
	model, file := tinyModel(t), filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(file, []byte(strings.Repeat("a b c ", 20)), 0o600); err != nil {
		t.Fatal(err)
	}
	// The output of a command in JSON, without the times.
	result := func(args []string) map[string]any {
		t.Helper()
		var object map[string]any
		decodeStrict(t, invoke(t, append(args, "-o", "json")...).ok(t), &object)
		for _, key := range []string{"timings", "seconds", "tok_s"} {
			delete(object, key)
		}
		return object
	}
	for _, tc := range []struct{ main, others []string }{
		{
			[]string{"run", "-m", model, "-p", "a b", "-n", "6", "-c", "32", "-t", "2", "-b", "2", "-seed", "3", "-temp", "1.5", "-typical", "0.9"},
			[]string{"run", "--model", model, "--prompt", "a b", "--predict", "6", "--ctx-size", "32", "--threads", "2", "--batch-size", "2", "-s", "3", "--temperature", "1.5", "--typical-p", "0.9"},
		},
		{
			[]string{"run", "-m", model, "-f", file, "-n", "6", "-temp", "0", "-seed", "5", "-cache-type", "f32", "-special"},
			[]string{"run", "-m", model, "--file", file, "--n-predict", "6", "-temp", "0", "-seed", "5", "-ctk", "f32", "-ctv", "f32", "-sp"},
		},
		{
			[]string{"run", "-m", model, "-p", `a\nb`, "-n", "6", "-temp", "0", "-seed", "5", "-e", "-cache-type", "f16"},
			[]string{"run", "-m", model, "-p", `a\nb`, "-n", "6", "-temp", "0", "-seed", "5", "--escape", "--cache-type-k", "f16", "--cache-type-v", "f16"},
		},
		{
			[]string{"perplexity", "-m", model, "-f", file, "-c", "16", "-t", "1", "-b", "4"},
			[]string{"perplexity", "--model", model, "--file", file, "--ctx-size", "16", "--threads", "1", "--batch-size", "4"},
		},
		{[]string{"tokenize", "-m", model, "-p", "a b"}, []string{"tokenize", "--model", model, "--prompt", "a b"}},
		{[]string{"tokenize", "-m", model, "-f", file}, []string{"tokenize", "-m", model, "--file", file}},
		{[]string{"inspect", "-m", model}, []string{"inspect", "--model", model}},
	} {
		if got, want := result(tc.others), result(tc.main); !reflect.DeepEqual(got, want) {
			t.Errorf("%q differs from %q", tc.others, tc.main)
		}
	}
	var list []measurement
	decodeStrict(t, invoke(t, "bench", "--model", model, "--n-prompt", "3", "--n-gen", "0", "--repetitions", "1", "-o", "json").ok(t), &list)
	if len(list) != 1 || list[0].Test != "pp3" {
		t.Errorf("bench by long names: %+v", list)
	}

	for command, flags := range map[string][]string{
		"run":      {"n, -n-predict, -predict tokens", "stop, -r, -reverse-prompt text", "sys, -system-prompt message", "chat, -cnv, -conversation"},
		"quantize": {"t, -threads threads"},
	} {
		out := invoke(t, "help", command).ok(t)
		for _, names := range flags {
			if strings.Count(out, "\n  -"+names+"\n") != 1 {
				t.Errorf("help %s does not show -%s once", command, names)
			}
		}
		for _, line := range strings.Split(out, "\n") {
			if strings.HasPrefix(line, "  -threads ") || strings.HasPrefix(line, "  -predict ") {
				t.Errorf("help %s shows twice %q", command, line)
			}
		}
	}
}

// Flags may follow operands, and -- ends the flags.
func TestOperands(t *testing.T) {
	model := tinyModel(t)
	want := invoke(t, "inspect", "-o", "json", model).ok(t)
	for _, args := range [][]string{
		{"inspect", model, "-o", "json"},
		{"inspect", model, "--o=json"},
		{"inspect", "--o", "json", "--", model},
	} {
		if invoke(t, args...).ok(t) != want {
			t.Errorf("%q differs from the flag in front", args)
		}
	}
	invoke(t, "inspect", "--", "-o").failed(t, exitError, "-o")
}

func TestOneLine(t *testing.T) {
	for in, want := range map[string]string{
		"plain è":         "plain è",
		"a\nb\n":          "a; b",
		"\x1b[31mred\x07": `\x1b[31mred\a`,
		"bad \xff end":    `bad \xff end`,
	} {
		if got := oneLine(in); got != want {
			t.Errorf("oneLine(%q) = %q, want %q", in, got, want)
		}
	}
}
