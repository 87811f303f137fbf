package gguf_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fucina-go/fucina/gguf"
)

// Real models and vocab-only files, where they lie beside the module: each
// opens, and its tensors are read through buffers.
func TestRealFiles(t *testing.T) {
	shared := filepath.Join("..", "..", "shared")
	var paths []string
	for _, pattern := range []string{"models/*.gguf", "models/*/*.gguf", "vocab/*.gguf"} {
		found, err := filepath.Glob(filepath.Join(shared, pattern))
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, found...)
	}
	if len(paths) == 0 {
		t.Skip("no model files in ../shared beside the module")
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			image, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			parsed, err := gguf.Parse(image)
			if err != nil {
				t.Fatal(err)
			}
			checkFile(t, parsed, image)

			f, err := gguf.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			if arch, err := f.String("general.architecture"); err != nil || arch == "" {
				t.Errorf("architecture %q, %v", arch, err)
			}
			if tokens, err := f.Strings("tokenizer.ggml.tokens"); err != nil || len(tokens) == 0 {
				t.Errorf("%d tokens, %v", len(tokens), err)
			}
			for _, ti := range f.Tensors() {
				b, err := f.Buffer(ti)
				if err != nil {
					t.Fatal(err)
				}
				if string(host(t, b)) != string(parsed.Data(ti)) {
					t.Errorf("tensor %s differs from the file's bytes", ti.Name)
				}
				b.Release()
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
