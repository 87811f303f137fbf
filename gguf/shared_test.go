package gguf_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fucina-go/fucina/gguf"
)

// realFiles returns the images of real models and vocab-only files, by path, of those
// that lie beside the module: none in a clone of its own.
func realFiles(t *testing.T) map[string][]byte {
	t.Helper()
	images := make(map[string][]byte)
	for _, pattern := range []string{"models/*.gguf", "models/*/*.gguf", "vocab/*.gguf"} {
		paths, err := filepath.Glob(filepath.Join("..", "..", "shared", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if images[path], err = os.ReadFile(path); err != nil {
				t.Fatal(err)
			}
		}
	}
	return images
}

// Each real file opens, and its tensors are read through buffers.
func TestRealFiles(t *testing.T) {
	images := realFiles(t)
	if len(images) == 0 {
		t.Skip("no model files in ../shared beside the module")
	}
	for path, image := range images {
		t.Run(filepath.Base(path), func(t *testing.T) {
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
