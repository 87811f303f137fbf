//go:build unix

package gguf

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/tests/ggufbuild"
	"github.com/fucina-go/fucina/tests/sigbus"
)

// writeTensors writes a file of three tensors of 4 pages, one of which is not aligned
// for its elements, and returns its path and size.
func writeTensors(t *testing.T) (path string, size int) {
	t.Helper()
	page := os.Getpagesize()
	b := ggufbuild.Builder{Alignment: 1}
	b.AddTensor("bytes", dtype.I8, []int{4*page + 1}, bytes.Repeat([]byte{1}, 4*page+1))
	b.AddTensor("halves", dtype.F16, []int{2 * page}, bytes.Repeat([]byte{1}, 4*page))
	b.AddTensor("byte", dtype.I8, []int{1}, []byte{1})
	b.AddTensor("other halves", dtype.F16, []int{2 * page}, bytes.Repeat([]byte{1}, 4*page))
	path = filepath.Join(t.TempDir(), "m.gguf")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, len(b.Bytes())
}

// uses are the ways to read the bytes of a file.
var uses = map[string]func(f *File) error{
	"view": func(f *File) error {
		for _, ti := range f.Tensors() {
			if err := f.View(ti, func(data []byte) error { _ = slices.Clone(data); return nil }); err != nil {
				return err
			}
		}
		return nil
	},
	"view that fails": func(f *File) error {
		t, _ := f.Tensor("other halves")
		return f.View(t, func(data []byte) error {
			if bytes.IndexByte(data, 0) >= 0 {
				return errors.New("a zero that the file never held")
			}
			return nil
		})
	},
	"copy for alignment": func(f *File) error {
		for _, ti := range f.Tensors() {
			b, err := f.Buffer(ti)
			if err != nil {
				return err
			}
			b.Release()
		}
		return nil
	},
	"write to memory": func(f *File) error { return Write(io.Discard, f) },
	"write to a file": func(f *File) error {
		out, err := os.CreateTemp("", "")
		if err != nil {
			return err
		}
		defer os.Remove(out.Name())
		defer out.Close()
		return Write(out, f)
	},
	"check": func(f *File) error { return f.Source().Check() },
	"fingerprint": func(f *File) error {
		_, err := f.Source().Fingerprint()
		return err
	},
	"parse again": func(f *File) error {
		m := f.parts[0]
		if !m.retain() {
			return ErrClosed
		}
		g, err := parseImage(m)
		if err != nil {
			return errors.Join(err, m.release())
		}
		return g.Close()
	},
}

// If the size of an open file changes, every read of the file fails and nothing crashes,
// wherever the file is truncated.
func TestFileChanges(t *testing.T) {
	sigbus.Need(t)
	page := os.Getpagesize()
	for name, use := range uses {
		_, size := writeTensors(t)
		for cut, to := range map[string]int{
			"to nothing": 0, "at a page": page, "in a page": 5*page + 100, "in the last page": size - 1, "to more": size + 1,
		} {
			t.Run(name+" "+cut, func(t *testing.T) {
				path, _ := writeTensors(t)
				f, err := Open(path)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				if err := use(f); err != nil {
					t.Fatalf("before: %v", err)
				}
				if err := os.Truncate(path, int64(to)); err != nil {
					t.Fatal(err)
				}
				err = use(f)
				if !errors.Is(err, ErrFileChanged) {
					t.Fatalf("error %v, want ErrFileChanged", err)
				}
				if s := err.Error(); !strings.Contains(s, path) || !strings.Contains(s, fmt.Sprintf("%d bytes", to)) || strings.Contains(s, "\n") || strings.Count(s, "gguf: ") > 1 {
					t.Errorf("error %q, want one line with the file and its size, and the package once", s)
				}
			})
		}
	}
}

// An open file stays readable when another file is renamed over it, or when it is removed.
func TestFileIsReplaced(t *testing.T) {
	for name, use := range uses {
		t.Run(name, func(t *testing.T) {
			path, _ := writeTensors(t)
			f, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			other := path + ".new"
			if err := os.WriteFile(other, []byte("short"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(other, path); err != nil {
				t.Fatal(err)
			}
			if err := use(f); err != nil {
				t.Error(err)
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if err := use(f); err != nil {
				t.Error(err)
			}
		})
	}
}

// If any part of a split file changes, the error names that part.
func TestPartChanges(t *testing.T) {
	for changed := range 3 {
		prefix := filepath.Join(t.TempDir(), "m")
		var paths []string
		for i := range 3 {
			var b ggufbuild.Builder
			b.SetUint16("split.no", uint16(i))
			b.SetUint16("split.count", 3)
			b.SetInt32("split.tensors.count", 3)
			b.AddTensor(fmt.Sprint(i), dtype.I8, []int{100}, make([]byte, 100))
			paths = append(paths, SplitPath(prefix, i, 3))
			if err := os.WriteFile(paths[i], b.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		f, err := Open(paths[1])
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		s := f.Source()
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(paths[changed], 50); err != nil {
			t.Fatal(err)
		}
		if err := s.Check(); !errors.Is(err, ErrFileChanged) || !strings.Contains(err.Error(), paths[changed]) {
			t.Errorf("error %v, want ErrFileChanged of %s", err, paths[changed])
		}
		for i, ti := range f.Tensors() {
			err := f.View(ti, func([]byte) error { return nil })
			if (i == changed) != errors.Is(err, ErrFileChanged) || i != changed && err != nil {
				t.Errorf("tensor of part %d: error %v, and part %d changed", i, err, changed)
			}
		}
	}
}

// Source.Check checks the files as long as the File or a buffer is in use, and no closed
// files.
func TestSource(t *testing.T) {
	path, size := writeTensors(t)
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	s := f.Source()
	first, _ := f.Tensor("bytes")
	b, err := f.Buffer(first)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() { err = errors.Join(err, s.Check()) }); n != 0 || err != nil {
		t.Errorf("%v allocations, want none; %v", n, err)
	}
	if err := os.Truncate(path, int64(size-1)); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(); !errors.Is(err, ErrFileChanged) {
		t.Errorf("with a buffer open: %v, want ErrFileChanged", err)
	}
	b.Release()
	if err := s.Check(); err != nil {
		t.Errorf("with nothing open: %v", err)
	}
	if err := f.View(first, func([]byte) error { return nil }); !errors.Is(err, ErrClosed) {
		t.Errorf("view of a closed file: %v, want ErrClosed", err)
	}
	if err := (Source{}).Check(); err != nil {
		t.Error(err)
	}

	image, err := Parse(oneTensor(t))
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	if err := image.Source().Check(); err != nil {
		t.Errorf("an image in memory: %v", err)
	}
	if err := image.View(first, func([]byte) error { return nil }); !errors.Is(err, ErrNoTensor) {
		t.Errorf("view of another file's tensor: %v, want ErrNoTensor", err)
	}
}

func oneTensor(t *testing.T) []byte {
	t.Helper()
	var b ggufbuild.Builder
	b.AddTensor("x", dtype.I8, []int{1}, []byte{1})
	return b.Bytes()
}
