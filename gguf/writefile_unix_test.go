//go:build unix

package gguf_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/gguf"
)

// A new file has the permissions of any, a replaced one keeps its own, also while it
// is written: what others may not read is never there for them.
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
			aside, err := filepath.Glob(filepath.Join(dir, ".m.gguf.*.tmp"))
			if err != nil || len(aside) != 1 {
				t.Fatalf("aside are %q, %v", aside, err)
			}
			if got := mode(aside[0]); got != want {
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

// A disk that fills up leaves the old file, and nothing aside. A limit on the size of
// files stands for the disk.
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
	defer lift() // for whatever runs next, also if this fails
	const size = 1 << 20
	for _, hidden := range []bool{false, true} {
		err := gguf.WriteFile(path, func(w *gguf.Writer) error {
			err := w.AddTensor(gguf.TensorInfo{Name: "a", DType: dtype.I8, Shape: []int{size}})
			if err != nil {
				return err
			}
			if err = w.WriteTensor("a", make([]byte, size)); err == nil {
				t.Error("nothing stopped the write")
			}
			if !hidden {
				err = errors.Join(err, w.CopyTensor("a", bytes.NewReader(nil)))
			} else {
				err = nil // a fill that does not look
			}
			return err
		})
		if !errors.Is(err, syscall.EFBIG) {
			t.Errorf("error %v, want %v", err, syscall.EFBIG)
		}
	}
	lift()
	wantK(t, path, "old", "m.gguf")
}
