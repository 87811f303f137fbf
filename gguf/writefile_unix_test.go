//go:build unix

package gguf_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/gguf"
)

// A new file has the default permissions. A replaced file keeps its permissions, and the
// temporary file has the same, so that other users can never read a private file.
func TestWriteFileMode(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o027))
	dir := t.TempDir()
	path := filepath.Join(dir, "m.gguf")
	mode := func(path string) fs.FileMode {
		t.Helper()
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode()
	}
	if err := gguf.WriteFile(path, setK("new")); err != nil {
		t.Fatal(err)
	}
	if got := mode(path); got != 0o640 {
		t.Errorf("a new file has mode %v, want 0640", got)
	}
	for _, want := range []fs.FileMode{0o600, 0o666, 0o640, 0o755, 0o200} {
		if err := os.Chmod(path, want); err != nil {
			t.Fatal(err)
		}
		err := gguf.WriteFile(path, func(w *gguf.Writer) error {
			temp, err := filepath.Glob(filepath.Join(dir, ".m.gguf.*.tmp"))
			if err != nil || len(temp) != 1 {
				t.Fatalf("temporary files %q, %v", temp, err)
			}
			if got := mode(temp[0]); got != want {
				t.Errorf("while it is written: mode %v, want %v", got, want)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := mode(path); got != want {
			t.Errorf("replaced: mode %v, want %v", got, want)
		}
	}
}

// If the disk fills up, the old file remains and no temporary file is left. The error names
// the path of WriteFile and not the temporary file, however the tensor is written. A limit
// on the size of files simulates the full disk.
func TestWriteFileDiskFull(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "m.gguf")
	if err := gguf.WriteFile(path, setK("old")); err != nil {
		t.Fatal(err)
	}
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	small := old
	small.Cur = 64 << 10
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &small); err != nil {
		t.Skipf("no limit on files here: %v", err)
	}
	lift := sync.OnceFunc(func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
			t.Error(err)
		}
	})
	defer lift() // also if the test fails
	const size = 1 << 20
	for name, fill := range map[string]func(w *gguf.Writer) error{
		"whole":  func(w *gguf.Writer) error { return w.WriteTensor("a", make([]byte, size)) },
		"copied": func(w *gguf.Writer) error { return w.CopyTensor("a", bytes.NewReader(make([]byte, size))) },
		"copied from a reader without WriteTo": func(w *gguf.Writer) error {
			return w.CopyTensor("a", io.LimitReader(bytes.NewReader(make([]byte, size)), size))
		},
		"twice": func(w *gguf.Writer) error {
			err := w.WriteTensor("a", make([]byte, size))
			return errors.Join(err, w.CopyTensor("a", bytes.NewReader(nil)))
		},
		"not looked at": func(w *gguf.Writer) error {
			if w.WriteTensor("a", make([]byte, size)) == nil {
				t.Error("nothing stopped the write")
			}
			return nil
		},
	} {
		err := gguf.WriteFile(path, func(w *gguf.Writer) error {
			if err := w.AddTensor(gguf.TensorInfo{Name: "a", DType: dtype.I8, Shape: []int{size}}); err != nil {
				return err
			}
			return fill(w)
		})
		var of *fs.PathError
		if !errors.Is(err, syscall.EFBIG) || !errors.As(err, &of) || of.Path != path || strings.Contains(err.Error(), ".tmp") {
			t.Errorf("%s: error %v, want %v of %s", name, err, syscall.EFBIG, path)
		}
	}
	lift()
	wantK(t, path, "old", "m.gguf")
}
