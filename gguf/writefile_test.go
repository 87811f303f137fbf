package gguf_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/tests/ggufbuild"
)

// WriteFile leaves the old file or the new one, and no temporary file.
func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "model.gguf")
	content := func() string {
		t.Helper()
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) > 1 || len(entries) == 1 && entries[0].Name() != "model.gguf" {
			t.Fatalf("the directory holds %v", entries)
		}
		b, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		return string(b)
	}
	image := func(v string) (string, func(w *gguf.Writer) error) {
		var b ggufbuild.Builder
		b.SetString("k", v)
		image := b.Bytes()
		image = append(image, make([]byte, (32-len(image)%32)%32)...)
		return string(image), func(w *gguf.Writer) error { return w.Set("k", gguf.NewValue(v)) }
	}
	fails := func(w *gguf.Writer) error {
		if err := w.AddTensor(gguf.TensorInfo{Name: "a", DType: dtype.I8, Shape: []int{3}}); err != nil {
			return err
		}
		if err := w.WriteTensor("a", []byte{1, 2, 3}); err != nil {
			return err
		}
		return errFull
	}
	forgets := func(w *gguf.Writer) error {
		return w.AddTensor(gguf.TensorInfo{Name: "a", DType: dtype.I8, Shape: []int{3}})
	}
	panics := func(w *gguf.Writer) error { panic("fill") }
	old := ""
	for _, v := range []string{"old", "new"} {
		if err := gguf.WriteFile(path, fails); err != errFull {
			t.Errorf("error %v, want fill's", err)
		}
		if err := gguf.WriteFile(path, forgets); !errors.Is(err, gguf.ErrWrite) {
			t.Errorf("error %v, want ErrWrite", err)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic of fill was lost")
				}
			}()
			_ = gguf.WriteFile(path, panics)
		}()
		if got := content(); got != old {
			t.Fatalf("after failures the file holds %q, want %q", got, old)
		}
		want, fill := image(v)
		if err := gguf.WriteFile(path, fill); err != nil {
			t.Fatal(err)
		}
		if got := content(); got != want {
			t.Fatalf("the file holds %q, want %q", got, want)
		}
		old = want
	}
	if err := gguf.WriteFile(dir, fails); !errors.Is(err, gguf.ErrWrite) {
		t.Errorf("over a directory: %v, want ErrWrite", err)
	}
	if err := gguf.WriteFile(filepath.Join(dir, "absent", "m.gguf"), fails); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in no directory: %v, want ErrNotExist", err)
	}
}

// setK declares a file whose metadata identifies it.
func setK(v string) func(w *gguf.Writer) error {
	return func(w *gguf.Writer) error { return w.Set("k", gguf.NewValue(v)) }
}

// wantK checks that the file at path is the one of setK, and that its directory holds only
// the named files.
func wantK(t *testing.T, path, v string, names ...string) {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := f.String("k"); err != nil || got != v {
		t.Errorf("%s holds %q, %v, want %q", path, got, err, v)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if !slices.Equal(got, names) {
		t.Errorf("the directory holds %q, want %q", got, names)
	}
}

func symlink(t *testing.T, target, link string) {
	t.Helper()
	if err := os.Symlink(target, link); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
}

// A symbolic link stays a link, and its target is created or replaced. The link may lead to
// another link or out of a linked directory.
func TestWriteFileFollowsLinks(t *testing.T) {
	top := t.TempDir()
	for _, dir := range []string{"disk", "disk/deep", "models"} {
		if err := os.Mkdir(filepath.Join(top, dir), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	symlink(t, filepath.Join("..", "disk", "m.gguf"), filepath.Join(top, "models", "first.gguf"))
	symlink(t, "first.gguf", filepath.Join(top, "models", "second.gguf"))
	symlink(t, filepath.Join(top, "models", "second.gguf"), filepath.Join(top, "models", "third.gguf"))
	// models/door is a link to disk/deep, so the system takes models/door/.. as disk.
	symlink(t, filepath.Join("..", "disk", "deep"), filepath.Join(top, "models", "door"))
	symlink(t, "door"+string(filepath.Separator)+".."+string(filepath.Separator)+"m.gguf", filepath.Join(top, "models", "fourth.gguf"))
	links := []string{"door", "first.gguf", "fourth.gguf", "second.gguf", "third.gguf"}
	for _, name := range []string{"first.gguf", "second.gguf", "third.gguf", "fourth.gguf"} {
		for _, v := range []string{"made by " + name, "replaced by " + name} {
			link := filepath.Join(top, "models", name)
			if err := gguf.WriteFile(link, setK(v)); err != nil {
				t.Fatal(err)
			}
			if info, err := os.Lstat(link); err != nil || info.Mode()&fs.ModeSymlink == 0 {
				t.Errorf("%s is not a link any more: %v", name, err)
			}
			wantK(t, link, v, links...)
			wantK(t, filepath.Join(top, "disk", "m.gguf"), v, "deep", "m.gguf")
		}
		if err := os.Remove(filepath.Join(top, "disk", "m.gguf")); err != nil {
			t.Fatal(err)
		}
	}
}

// A file that cannot be replaced is refused before fill is called.
func TestWriteFileRefusals(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	readOnly := filepath.Join(dir, "read-only.gguf")
	if err := os.WriteFile(readOnly, []byte("mine"), 0o444); err != nil {
		t.Fatal(err)
	}
	fill := func(w *gguf.Writer) error {
		t.Error("fill was called")
		return nil
	}
	refused := func(path string, want error) {
		t.Helper()
		if err := gguf.WriteFile(path, fill); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", path, err, want)
		}
	}
	for _, path := range []string{"", ".", "..", dir, dir + string(filepath.Separator), "absent" + string(filepath.Separator), os.DevNull} {
		refused(path, gguf.ErrWrite)
	}
	refused(readOnly, fs.ErrPermission)
	refused(filepath.Join("absent", "m.gguf"), fs.ErrNotExist)
	refused("nul\x00.gguf", syscall.EINVAL)
	if data, err := os.ReadFile(readOnly); err != nil || string(data) != "mine" {
		t.Errorf("the read-only file holds %q, %v", data, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("the directory holds %v, %v", entries, err)
	}

	symlink(t, dir, filepath.Join(dir, "to-dir"))
	symlink(t, readOnly, filepath.Join(dir, "to-read-only"))
	symlink(t, "loop", filepath.Join(dir, "loop"))
	refused("to-dir", gguf.ErrWrite)
	refused("to-read-only", fs.ErrPermission)
	refused("loop", gguf.ErrWrite)
}

// If the sync or the rename fails, no temporary file is left.
func TestWriteFileLateErrors(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "m.gguf")
	err := gguf.WriteFile(path, func(w *gguf.Writer) error {
		return os.Mkdir(path, 0o777) // so that the rename fails
	})
	if err == nil {
		t.Error("a directory was replaced")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || !entries[0].IsDir() {
		t.Errorf("the directory holds %v, %v", entries, err)
	}
}

// A path without a directory is in the current directory.
func TestWriteFileHere(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, v := range []string{"one", "two"} {
		if err := gguf.WriteFile("m.gguf", setK(v)); err != nil {
			t.Fatal(err)
		}
		wantK(t, "m.gguf", v, "m.gguf")
	}
}

// A file whose name is as long as systems allow can be written, although the temporary name
// is derived from it.
func TestWriteFileLongName(t *testing.T) {
	path := filepath.Join(t.TempDir(), strings.Repeat("n", 255))
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Skipf("no such names here: %v", err)
	}
	if err := gguf.WriteFile(path, func(*gguf.Writer) error { return nil }); err != nil {
		t.Error(err)
	}
}
