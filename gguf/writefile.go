package gguf

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// WriteFile makes or replaces the file at path with what fill declares and writes.
// The file is written aside, in the same directory, forced to the disk and then
// renamed, so that path holds the old file or the whole new one whatever happens;
// files that are open keep the old bytes, except on Windows, where a file that is
// open or mapped cannot be replaced. WriteFile closes the Writer. After an error,
// which may be fill's, or a panic of fill, nothing is left aside.
//
// A path that is there and is not a regular file is refused; a symbolic link to
// one is replaced, not followed.
func WriteFile(path string, fill func(w *Writer) error) (err error) {
	switch info, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("gguf: %w", err)
	case !info.Mode().IsRegular():
		return misuse("%s is not a regular file", path)
	}
	file, err := createAside(path)
	if err != nil {
		return fmt.Errorf("gguf: %w", err)
	}
	open, renamed := true, false
	defer func() {
		if renamed {
			return
		}
		if open {
			_ = file.Close()
		}
		// The error or panic under way says more than one of cleaning up.
		_ = os.Remove(file.Name())
	}()

	w := NewWriter(file)
	if err := fill(w); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return fmt.Errorf("gguf: %w", err)
	}
	open = false
	if err := file.Close(); err != nil {
		return fmt.Errorf("gguf: %w", err)
	}
	if err := os.Rename(file.Name(), path); err != nil {
		return fmt.Errorf("gguf: %w", err)
	}
	renamed = true
	return syncDir(filepath.Dir(path))
}

// createAside creates a file of a new name beside path. Unlike os.CreateTemp it
// leaves the permissions to the umask, as for any output.
func createAside(path string) (*os.File, error) {
	dir, base := filepath.Split(path)
	for range 1000 {
		name := filepath.Join(dir, fmt.Sprintf(".%s.%08x.tmp", base, rand.Uint32()))
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
	}
	return nil, fmt.Errorf("no free name beside %s: %w", path, fs.ErrExist)
}
