//go:build accel

package main

import (
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/tests/tinyllama"
)

// A model of twice the memory that a device may hold runs on it, streaming, with the
// tokens of an unlimited one, in every command that opens a model.
func TestDeviceMemory(t *testing.T) {
	const limit = 1 << 20
	path := tinyllama.New(tinyllama.Options{Layers: 8, Embedding: 64, FeedForward: 256}).File(t, "large.gguf")
	// decode runs some steps and returns the likeliest tokens, with what the device took.
	decode := func(memory string) (ids []int32, uploaded uint64, live int64) {
		t.Helper()
		fs := newFlags("run", "")
		m := fs.model()
		if _, err := fs.read([]string{"-m", path, "--provider", "discrete", "--device-memory", memory, "-t", "1", "--exact"}); err != nil {
			t.Fatal(err)
		}
		l, err := newTool(nil, io.Discard, io.Discard, false, false).load(t.Context(), m, 64)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := l.close(); err != nil {
				t.Error(err)
			}
		}()
		logits := make([]float32, l.model.Params().Vocabulary)
		for id := int32(1); len(ids) < 4; ids = append(ids, id) {
			if err := l.session.Decode(t.Context(), []int32{id}, logits); err != nil {
				t.Fatal(err)
			}
			id = int32(slices.Index(logits, slices.Max(logits)))
		}
		s := l.engine.Stats()
		if s.Fallbacks != 0 || s.CPU.Ops() != 0 {
			t.Errorf("%s: %d operations on the CPU, %d of them fallbacks: %s", memory, s.CPU.Ops(), s.Fallbacks, s.LastFallback)
		}
		return ids, s.Device.UploadBytes, s.Device.LiveBytes
	}
	want, once, all := decode("0")
	got, streamed, live := decode("1M")
	if !slices.Equal(got, want) {
		t.Errorf("generates %v, want %v", got, want)
	}
	if all < 2*limit || live > limit || streamed < 2*once {
		t.Errorf("with %d bytes, %d are held and %d uploaded; without a limit %d and %d", limit, live, streamed, all, once)
	}

	text := filepath.Join(t.TempDir(), "text")
	writeText(t, text, strings.Repeat("a b c ", 20))
	for _, args := range [][]string{
		{"run", "-p", "a b", "-n", "2", "-c", "32", "-temp", "0"},
		{"bench", "-p", "2", "-n", "2", "-r", "1"},
		{"perplexity", "-f", text, "-c", "8"},
	} {
		out := invoke(t, append(args, "-m", path, "--provider", "discrete", "--device-memory", "1M", "-o", "json")...).ok(t)
		if !strings.Contains(out, `"provider":"discrete"`) || !strings.Contains(out, `"device_memory":1048576`) {
			t.Errorf("%s prints %s", args[0], out)
		}
	}
	chat := []string{"run", "-m", path, "--provider", "discrete", "--chat", "--chat-template", "chatml", "-p", "a", "-n", "2", "-temp", "0"}
	free := invoke(t, chat...).ok(t)
	if limited := invoke(t, append(chat, "--device-memory", "1M")...).ok(t); limited != free || free == "" {
		t.Errorf("answers %q, want %q", limited, free)
	}
}
