package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/llm"
	"github.com/fucina-go/fucina/llm/tokenizer"
	"github.com/fucina-go/fucina/tests/countdown"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

// The ids are those of llama.cpp, and the lines have the form of llama-tokenize.
func TestTokenize(t *testing.T) {
	model := tinyModel(t)
	golden := tinyllama.Goldens()[0]
	list := strings.ReplaceAll(fmt.Sprint(golden.PromptIDs), " ", ", ") + "\n"
	if out := invoke(t, "tokenize", "-m", model, "-p", golden.Prompt, "--ids").ok(t); out != list {
		t.Errorf("ids %q, want %q", out, list)
	}
	file := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(file, []byte("the é\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	want := "     1 -> '<s>'\n   264 -> ' the'\n   292 -> ' '\n   326 -> 'é'\n    13 -> '\n'\n"
	if out := invoke(t, "tokenize", "-m", model, "-f", file).ok(t); out != want {
		t.Errorf("prints\n%s, want\n%s", out, want)
	}
	for _, tc := range []struct{ flags, text, want string }{
		{"--ids --no-bos", "the", "[264]\n"},
		{"--ids --no-bos", "", "[]\n"},
		{"--ids", "", "[1]\n"},
		{"--ids --no-bos --parse-special", "</s>", "[2]\n"},
		{"-o json", "the☃", `{"model":"tiny.gguf","ids":[1,264,229,155,134],"pieces":["<s>"," the",[226],[152],[131]]}` + "\n"},
	} {
		args := append([]string{"tokenize", "-m", model, "-p", tc.text}, strings.Fields(tc.flags)...)
		if out := invoke(t, args...).ok(t); out != tc.want {
			t.Errorf("%q: %s, want %s", args[4:], out, tc.want)
		}
	}
	if out := invoke(t, "tokenize", "-m", model, "-p", "</s>", "--ids").ok(t); strings.Contains(out, " 2,") || strings.Contains(out, " 2]") {
		t.Errorf("%s has a special token without -parse-special", out)
	}
}

// The pieces in JSON join to the bytes of the text, even if it ends within a character.
func TestTokenizeBytes(t *testing.T) {
	model, file := tinyModel(t), filepath.Join(t.TempDir(), "text")
	const emoji = "👩\u200d🚀"
	for i := range len(emoji) + 1 {
		for _, text := range []string{emoji[:i], emoji[i:], "a" + emoji[:i] + "b" + emoji[i:]} {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			var r tokenization
			decodeStrict(t, invoke(t, "tokenize", "-m", model, "-f", file, "--no-bos", "-o", "json").ok(t), &r)
			var joined []byte
			for _, piece := range r.Pieces {
				joined = append(joined, piece...)
			}
			// The vocabulary adds a space in front of a text.
			if got := strings.TrimPrefix(string(joined), " "); got != text || len(r.Pieces) != len(r.IDs) {
				t.Errorf("the pieces of %q join to %q", text, got)
			}
		}
	}
}

func TestTokenizeErrors(t *testing.T) {
	model := tinyModel(t)
	invoke(t, "tokenize", "-m", model, "-f", filepath.Join(t.TempDir(), "absent")).failed(t, exitError, "absent")
	absent := invoke(t, "tokenize", "-m", filepath.Join(t.TempDir(), "none.gguf"), "-p", "a")
	absent.failed(t, exitError, "none.gguf")
	directory := t.TempDir()
	none := invoke(t, "tokenize", "-m", directory, "-p", "a")
	none.failed(t, exitError, "regular file")
	if strings.Count(absent.stderr, "none.gguf") != 1 || strings.Count(none.stderr, directory) != 1 {
		t.Errorf("the errors name the path twice: %q, %q", absent.stderr, none.stderr)
	}
	m := tinyllama.New(tinyllama.Options{})
	m.Set("tokenizer.ggml.model", "klingon")
	path := m.File(t, "odd.gguf")
	odd := invoke(t, "tokenize", "-m", path, "-p", "a")
	odd.failed(t, exitError, "klingon")
	odd.failed(t, exitError, "odd.gguf")
}

// tokenize needs only a vocabulary, and reads no weights.
func TestTokenizeVocabulary(t *testing.T) {
	m := tinyllama.New(tinyllama.Options{})
	m.Tensors = nil
	path := m.File(t, "vocab.gguf")
	if out := invoke(t, "tokenize", "-m", path, "-p", "the", "--ids").ok(t); out != "[1, 264]\n" {
		t.Errorf("ids %q", out)
	}
}

// After an interrupt, no command waits for the tokens of a text.
func TestEncodeInterrupted(t *testing.T) {
	f, err := gguf.Open(tinyModel(t))
	if err != nil {
		t.Fatal(err)
	}
	tok, err := llm.NewTokenizer(f)
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if ids, err := encode(ctx, tok, "the and", tokenizer.EncodeOptions{}); err != nil || len(ids) == 0 {
		t.Errorf("%v, %v", ids, err)
	}
	cancel()
	if ids, err := encode(ctx, tok, strings.Repeat("the and ", 1<<19), tokenizer.EncodeOptions{}); err != context.Canceled || ids != nil {
		t.Errorf("%d tokens and %v, want %v", len(ids), err, context.Canceled)
	}
	model := tinyModel(t)
	for _, tc := range []struct {
		looks int
		args  string
	}{
		{0, "tokenize -m " + model + " -p a"},
		{loadLooks, "run -m " + model + " -p a"},
		{loadLooks, "run -o json -m " + model + " -p a"},
	} {
		if r := invokeContext(t, countdown.After(tc.looks), strings.Fields(tc.args)...); r != (result{code: exitInterrupted}) {
			t.Errorf("%s: %+v", tc.args, r)
		}
	}
}

// An interrupt ends the command while it tokenizes a long text, and between lines.
func TestTokenizeInterrupted(t *testing.T) {
	model, text := tinyModel(t), filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, bytes.Repeat([]byte("the and "), 1<<17), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, format := range [][]string{nil, {"-ids"}, {"-o", "json"}} {
		r := invokeContext(t, ctx, append([]string{"tokenize", "-m", model, "-f", text}, format...)...)
		if r.code != exitInterrupted || r.stdout != "" || r.stderr != "" {
			t.Errorf("%v: status %d, %d bytes printed, stderr %q", format, r.code, len(r.stdout), r.stderr)
		}
	}
	whole := invoke(t, "tokenize", "-m", model, "-p", "the and the").ok(t)
	r := invokeContext(t, countdown.After(3), "tokenize", "-m", model, "-p", "the and the")
	if r.code != exitInterrupted || strings.Count(r.stdout, "\n") != 2 || !strings.HasPrefix(whole, r.stdout) || r.stderr != "" {
		t.Errorf("after two lines: %+v", r)
	}
}
