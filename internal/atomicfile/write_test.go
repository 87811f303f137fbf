package atomicfile_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/internal/atomicfile"
)

// A path has the old or the new contents, and after a failure no temporary file remains. The
// tests of gguf.WriteFile cover permissions, links and disks.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	broken := errors.New("broken")
	write := func(text string, err error) error {
		return atomicfile.Write(path, func(w io.Writer) error {
			if _, err := io.WriteString(w, text); err != nil {
				return err
			}
			if old, err := os.ReadFile(path); err == nil && string(old) == text {
				t.Errorf("the file has %q too early", old)
			}
			return err
		})
	}
	for _, c := range []struct {
		text string
		err  error
		want string
	}{{"a", nil, "a"}, {"b", broken, "a"}, {"c", nil, "c"}} {
		if err := write(c.text, c.err); err != c.err {
			t.Errorf("error %v, want %v", err, c.err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != c.want {
			t.Errorf("the file has %q (%v), want %q", got, err, c.want)
		}
		if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
			t.Errorf("the directory holds %v, %v", names, err)
		}
	}
}

// Write refuses what it cannot replace before it writes, and says why.
func TestTargets(t *testing.T) {
	dir := t.TempDir()
	closed := filepath.Join(dir, "closed")
	if err := os.WriteFile(closed, nil, 0o400); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{dir: "is not a regular file", dir + "/new/": "is not the name of a file", closed: "is read-only: permission denied"} {
		err := atomicfile.Write(path, func(io.Writer) error {
			t.Errorf("%s: fill was called", path)
			return nil
		})
		var target *atomicfile.TargetError
		if !errors.As(err, &target) || !strings.Contains(err.Error(), want) || errors.Is(err, fs.ErrPermission) != (path == closed) {
			t.Errorf("%s: error %v, want one that says %s", path, err, want)
		}
	}
}
