// Package atomicfile replaces files so that a path always holds the old file or the whole new one.
package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// TargetError says why no file can be created or replaced at a path.
type TargetError struct {
	Reason string // names the path
	Err    error  // the error of package fs that corresponds to it, or nil
}

func (e *TargetError) Error() string {
	if e.Err != nil {
		return e.Reason + ": " + e.Err.Error()
	}
	return e.Reason
}

// Unwrap returns e.Err.
func (e *TargetError) Unwrap() error { return e.Err }

func refuse(err error, format string, args ...any) error {
	return &TargetError{fmt.Sprintf(format, args...), err}
}

// Write creates or replaces the file at path. fill writes the contents of the new file to w.
// Write writes a temporary file in the same directory, syncs it to the disk and renames it. If
// fill fails or panics, or Write fails, the temporary file is removed. The error of fill is
// returned unchanged, and others name path.
//
// If path is a symbolic link, its target is created or replaced, and the temporary file
// lies beside the target. A new file has the system's default permissions. A replaced file
// keeps its permission bits, but not its owner or its other hard links. If path exists and
// is not a regular file, or is read-only, Write fails with a *TargetError before it calls fill.
func Write(path string, fill func(w io.Writer) error) (err error) {
	asked := path
	path, old, err := followLinks(path)
	if err != nil {
		return err
	}
	file, err := createTemp(path, asked, old)
	if err != nil {
		return err
	}
	renamed := false
	defer func() {
		if !renamed {
			file.remove()
		}
	}()
	if err := fill(file); err != nil {
		return err
	}
	if err := file.rename(path); err != nil {
		return err
	}
	renamed = true
	dir, _ := filepath.Split(path)
	return syncDir(dir)
}

// maxLinks bounds a chain of symbolic links. Systems follow at most 40.
const maxLinks = 40

// maxTemp bounds the bytes of a file's name that the name of its temporary file contains.
// Systems allow 255 bytes in total.
const maxTemp = 200

// followLinks returns the path of the file that path leads to, and its FileInfo, which is
// nil if there is no file. It fails if the file cannot be replaced.
func followLinks(path string) (string, fs.FileInfo, error) {
	// The target of a link in /proc may be a pipe, whose name is in no directory.
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return "", nil, refuse(nil, "%s is not a regular file", path)
	}
	for range maxLinks {
		dir, base := filepath.Split(path)
		if base == "" {
			return "", nil, refuse(nil, "%q is not the name of a file", path)
		}
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return path, nil, nil
		case err != nil:
			return "", nil, err
		case info.Mode()&fs.ModeSymlink == 0:
			if !info.Mode().IsRegular() {
				return "", nil, refuse(nil, "%s is not a regular file", path)
			}
			if info.Mode().Perm()&0o222 == 0 {
				return "", nil, refuse(fs.ErrPermission, "%s is read-only", path)
			}
			return path, info, nil
		}
		link, err := os.Readlink(path)
		if err != nil {
			return "", nil, err
		}
		if !filepath.IsAbs(link) {
			// filepath.Join would remove a ".." together with the name before it, which
			// may be a link to another directory.
			link = dir + link
		}
		path = link
	}
	return "", nil, refuse(nil, "%s is one of more than %d symbolic links in a row", path, maxLinks)
}

// tempFile is written beside the file that it will replace. Its errors name the path
// that Write was given, because the temporary name means nothing to the user. The
// os.File is not embedded: its methods, which io.Copy looks for, name the wrong file.
type tempFile struct {
	file  *os.File
	asked string
}

// createTemp creates a file of a new name beside path. asked is the path that Write was
// given. The permissions are those of old, the file to replace. If old is nil, the umask
// decides, unlike in os.CreateTemp.
func createTemp(path, asked string, old fs.FileInfo) (*tempFile, error) {
	mode := fs.FileMode(0o666)
	if old != nil {
		mode = old.Mode().Perm()
	}
	t := &tempFile{asked: asked}
	dir, base := filepath.Split(path)
	base = base[:min(len(base), maxTemp)]
	for range 1000 {
		name := fmt.Sprintf("%s.%s.%08x.tmp", dir, base, rand.Uint32())
		var err error
		if t.file, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode); err == nil {
			if err = keepMode(t.file, old); err != nil {
				t.remove()
				return nil, t.named(err)
			}
			return t, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, t.named(err)
		}
	}
	return nil, fmt.Errorf("no free name beside %s: %w", asked, fs.ErrExist)
}

// Write implements io.Writer.
func (t *tempFile) Write(p []byte) (int, error) {
	n, err := t.file.Write(p)
	return n, t.named(err)
}

// rename syncs the file to the disk, closes it and renames it to path.
func (t *tempFile) rename(path string) error {
	if err := t.file.Sync(); err != nil {
		return t.named(err)
	}
	if err := t.file.Close(); err != nil {
		return t.named(err)
	}
	return t.named(os.Rename(t.file.Name(), path))
}

// remove closes the file, unless it is closed, and removes it. It ignores errors, because
// its caller already has an error or a panic.
func (t *tempFile) remove() {
	_ = t.file.Close()
	_ = os.Remove(t.file.Name())
}

// named returns err, an error about the temporary file, with the path t.asked.
func (t *tempFile) named(err error) error {
	var file *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &file):
		return &fs.PathError{Op: file.Op, Path: t.asked, Err: file.Err}
	case errors.As(err, &link):
		return &fs.PathError{Op: link.Op, Path: t.asked, Err: link.Err}
	}
	return err
}

// keepMode gives file the permission bits of old, if old is not nil. It calls Chmod only if
// the bits differ, because some file systems have no permission bits.
func keepMode(file *os.File, old fs.FileInfo) error {
	if old == nil {
		return nil
	}
	info, err := file.Stat()
	if err != nil || info.Mode().Perm() == old.Mode().Perm() {
		return err
	}
	return file.Chmod(old.Mode().Perm())
}
