//go:build unix

package quantize_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/llm/quantize"
	"github.com/fucina-go/fucina/tests/sigbus"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

// If the size of the input changes while it is read, File fails and leaves no output,
// whether the tensors are converted or kept. If another file replaces the input, File
// succeeds.
func TestInputChanges(t *testing.T) {
	sigbus.Need(t)
	image := tinyllama.GGUF(tinyllama.Options{})
	page := os.Getpagesize()
	truncate := func(size int) func(path string) error {
		return func(path string) error { return os.Truncate(path, int64(size)) }
	}
	changes := map[string]func(path string) error{
		"to nothing":       truncate(0),
		"at a page":        truncate(page),
		"in a page":        truncate(len(image)/2/page*page + 100),
		"in the last page": truncate(len(image) - 1),
		"written over":     func(path string) error { return os.WriteFile(path, bytes.Repeat([]byte{0xff}, len(image)+7), 0o600) },
	}
	for _, typ := range []quantize.FileType{quantize.Q8_0, quantize.F32} {
		want, err := quantized(t, parse(t, image), quantize.Options{Type: typ})
		if err != nil {
			t.Fatal(err)
		}
		for _, when := range []int{0, 5} {
			run := func(t *testing.T, change func(path string) error) (dir string, err error) {
				in, dir := filepath.Join(t.TempDir(), "in.gguf"), t.TempDir()
				if err := os.WriteFile(in, image, 0o600); err != nil {
					t.Fatal(err)
				}
				opt := quantize.Options{Type: typ, Threads: 2, Progress: func(i, n int, c quantize.Choice) {
					if i == when {
						if err := change(in); err != nil {
							t.Error(err)
						}
					}
				}}
				_, err = quantize.File(t.Context(), in, filepath.Join(dir, "out.gguf"), opt)
				return dir, err
			}
			for name, change := range changes {
				t.Run(fmt.Sprintf("%s at tensor %d/%s", typ, when, name), func(t *testing.T) {
					dir, err := run(t, change)
					if !errors.Is(err, gguf.ErrFileChanged) || !strings.Contains(err.Error(), "in.gguf") || strings.Contains(err.Error(), "\n") {
						t.Errorf("error %v, want ErrFileChanged in a line that names the file", err)
					}
					if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
						t.Errorf("left %v, %v", left, err)
					}
				})
			}
			t.Run(fmt.Sprintf("%s at tensor %d/replaced", typ, when), func(t *testing.T) {
				dir, err := run(t, func(path string) error {
					if err := os.WriteFile(path+".new", []byte("short"), 0o600); err != nil {
						return err
					}
					return os.Rename(path+".new", path)
				})
				if err != nil {
					t.Fatal(err)
				}
				onlyFile(t, dir, "out.gguf", want)
			})
		}
	}
}

// A truncation of the last bytes of the last tensor is an error, although only the size of the
// file shows it.
func TestInputCutAtTheEnd(t *testing.T) {
	in := filepath.Join(t.TempDir(), "in.gguf")
	image := oneMatrix("blk.0.attn_q.weight", dtype.F32, []int{2, 32}, matrix(2, 32, nil))
	if err := os.WriteFile(in, image, 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out.gguf")
	_, err := quantize.File(t.Context(), in, out, quantize.Options{Type: quantize.F16, Progress: func(int, int, quantize.Choice) {
		if err := os.Truncate(in, int64(len(image)-64)); err != nil {
			t.Error(err)
		}
	}})
	if !errors.Is(err, gguf.ErrFileChanged) {
		t.Errorf("error %v, want ErrFileChanged", err)
	}
	if left, err := os.ReadDir(filepath.Dir(out)); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}
