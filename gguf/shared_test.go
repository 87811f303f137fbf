package gguf_test

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

// realFiles returns the images of the real models and vocab-only files in ../shared, by
// path. The map is empty if ../shared does not exist.
func realFiles(t *testing.T) map[string][]byte {
	t.Helper()
	return readAll(t, filepath.Join("..", "..", "shared"), "models/*.gguf", "models/*/*.gguf", "vocab/*.gguf")
}

// seededFiles returns the images of seeded models, one for each block format that is
// encoded without a search, and of the vocab-only files in the repository.
func seededFiles(t *testing.T) map[string][]byte {
	t.Helper()
	images := readAll(t, filepath.Join("..", "llm", "tokenizer", "testdata"), "*.gguf")
	if len(images) == 0 {
		t.Fatal("no vocab-only files in llm/tokenizer/testdata")
	}
	for _, g := range tinyllama.Goldens() {
		images[g.Name] = tinyllama.GGUF(g.Options)
	}
	for _, f := range tinyllama.Formats() {
		if name := f.DType.String(); !strings.HasPrefix(name, "iq") {
			images[name] = f.Model().Bytes()
		}
	}
	return images
}

// allFiles returns the seeded files and the real files that exist.
func allFiles(t *testing.T) map[string][]byte {
	t.Helper()
	images := seededFiles(t)
	maps.Copy(images, realFiles(t))
	return images
}

func readAll(t *testing.T, dir string, patterns ...string) map[string][]byte {
	t.Helper()
	images := make(map[string][]byte)
	for _, pattern := range patterns {
		paths, err := filepath.Glob(filepath.Join(dir, filepath.FromSlash(pattern)))
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
		t.Skip("no model files in ../shared beside the module; TestSeededFiles does the same with seeded files")
	}
	for path, image := range images {
		t.Run(filepath.Base(path), func(t *testing.T) { checkOnDisk(t, path, image) })
	}
}

// Each seeded file opens, and its tensors are read through buffers.
func TestSeededFiles(t *testing.T) {
	for name, image := range seededFiles(t) {
		t.Run(filepath.Base(name), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "model.gguf")
			if err := os.WriteFile(path, image, 0o600); err != nil {
				t.Fatal(err)
			}
			checkOnDisk(t, path, image)
		})
	}
}

// checkOnDisk checks the file at path, whose bytes are image.
func checkOnDisk(t *testing.T, path string, image []byte) {
	t.Helper()
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
}
