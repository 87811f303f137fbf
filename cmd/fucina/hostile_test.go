package main

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/tests/tinyllama"
)

// write writes a model called in.gguf into a new directory.
func write(t *testing.T, m *tinyllama.Model) (path string) {
	t.Helper()
	return m.File(t, "in.gguf")
}

// Metadata with a wrong type is an error of the commands that use it, and of no others.
func TestUnusedMetadata(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text.txt")
	if err := os.WriteFile(text, []byte(strings.Repeat("the time and the light was up on ", 4)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"tokenizer.chat_template", "general.name", "tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.pre", "llama.rope.scaling.original_context_length"} {
		for _, v := range []any{uint32(7), []string{"a", "b"}} {
			m := tinyllama.New(tinyllama.Options{})
			m.Set(key, v)
			path := write(t, m)
			for _, args := range [][]string{
				{"run", "-m", path, "-p", "a", "-n", "2", "--temp", "0"},
				{"perplexity", "-m", path, "-f", text, "-c", "8"},
				{"bench", "-m", path, "-p", "2", "-n", "1", "-r", "1"},
				{"tokenize", "-m", path, "-p", "a"},
				{"inspect", path},
				{"quantize", path, filepath.Join(t.TempDir(), "out.gguf"), "Q8_0"},
			} {
				if r := invoke(t, args...); r.code != exitOK {
					t.Errorf("%s of %T: %s: status %d, stderr %q", key, v, args[0], r.code, r.stderr)
				}
			}
			if key != "tokenizer.chat_template" {
				continue
			}
			chat := []string{"run", "-m", path, "--chat", "-p", "a", "-n", "2", "--temp", "0"}
			invoke(t, chat...).failed(t, exitError, key)
			if r := invoke(t, append(chat, "--chat-template", "chatml")...); r.code != exitOK {
				t.Errorf("%T: with a template by name: status %d, stderr %q", v, r.code, r.stderr)
			}
		}
	}
}

// The error of quantize names the tensor and the index of a value that is not finite, whether
// the tensor is converted or not, and quantize leaves no file.
func TestQuantizeChecksAllTensors(t *testing.T) {
	for _, tc := range []struct {
		name  string
		at    int
		place string
	}{
		{"output_norm.weight", 5, "element 5:"},
		{"blk.1.ffn_norm.weight", 63, "element 63:"},
		{"token_embd.weight", 64*9 + 3, "row 9, column 3:"},
	} {
		for _, v := range []float64{math.NaN(), math.Inf(1)} {
			m := tinyllama.New(tinyllama.Options{})
			binary.LittleEndian.PutUint32(m.Tensor(tc.name).Data[4*tc.at:], math.Float32bits(float32(v)))
			path := write(t, m)
			for _, typ := range []string{"Q8_0", "F16", "F32"} {
				r := invoke(t, "quantize", path, filepath.Join(filepath.Dir(path), "out.gguf"), typ)
				r.failed(t, exitError, tc.place)
				r.failed(t, exitError, `"`+tc.name+`"`)
				only(t, filepath.Dir(path), "in.gguf")
			}
		}
	}
}
