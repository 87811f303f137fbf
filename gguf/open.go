package gguf

import (
	"fmt"
	"math"
	"os"

	"github.com/fucina-go/fucina/internal/offheap"
)

// Open maps the file at path and reads its metadata and tensor descriptions.
// The caller closes the File. Errors name the path and wrap [ErrNotGGUF], [ErrVersion],
// [ErrMalformed] or the error of the operating system.
//
// If the file is split, path may be any part, and its name must be one of [SplitPath], so
// that Open finds the other parts. The File has the metadata of the first part and the
// tensors of all parts.
func Open(path string) (*File, error) {
	f, err := openPart(path)
	if err != nil {
		return nil, err
	}
	count, err := f.splitCount()
	if err == nil && count > 1 {
		return openSplit(f, path, count)
	}
	if err != nil {
		_ = f.Close() // the file's fault is the error to report
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// openSplit opens the other parts of f, which was opened from path, and joins all parts.
// It closes f if it fails.
func openSplit(f *File, path string, count int) (_ *File, err error) {
	given := f
	var first *File
	defer func() {
		if err != nil {
			_ = given.Close()
			if first != nil {
				_ = first.Close()
			}
		}
	}()
	no, err := f.splitNumber(splitNoKey, 0, math.MaxUint16)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	prefix, err := splitPrefix(path, int(no), count)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for i := range count {
		p, path := given, SplitPath(prefix, i, count)
		if i != int(no) {
			if p, err = openPart(path); err != nil {
				return nil, fmt.Errorf("part %d of %d: %w", i+1, count, err)
			}
		}
		if i == 0 {
			first = p
		}
		err = first.checkPart(p, i, count)
		if err == nil && i > 0 {
			err = first.join(p)
		}
		if err != nil {
			if p != given && p != first {
				_ = p.Close()
			}
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if i > 0 && p == given {
			given = first // first owns the mapping of f from here on
		}
	}
	if err := first.checkJoined(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return first, nil
}

func openPart(path string) (*File, error) {
	image, err := mapFile(path)
	if err != nil {
		return nil, err
	}
	f, err := parseImage(image)
	if err != nil {
		_ = image.release() // the file's fault is the error to report
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// parseImage parses the image m. If it succeeds, the File owns the caller's reference to
// m.
func parseImage(m *mapping) (f *File, err error) {
	err = m.read(func() (err error) {
		f, err = parse(m.data)
		return err
	})
	if err != nil {
		return nil, err
	}
	f.parts = []*mapping{m}
	return f, nil
}

// mapFile returns the image of the file at path, with one reference.
func mapFile(path string) (_ *mapping, err error) {
	// The type is checked before the open, because opening a named pipe would wait for a
	// writer.
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("gguf: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w: not a regular file", path, ErrNotGGUF)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("gguf: %w", err)
	}
	var m offheap.Mapping
	defer func() {
		if len(m.Bytes()) == 0 {
			_ = file.Close() // nothing was written to it
		}
	}()
	if info, err = file.Stat(); err != nil {
		return nil, fmt.Errorf("gguf: %w", err)
	}
	if info.Size() > math.MaxInt {
		return nil, fmt.Errorf("%s: %w: %d bytes exceed the address space", path, ErrMalformed, info.Size())
	}
	if m, err = offheap.MapFile(file, info.Size()); err != nil {
		return nil, fmt.Errorf("gguf: map %s: %w", path, err)
	}
	image := newMapping(m.Bytes(), m.Unmap, m.DropPages)
	image.info, image.check = info, m.Check
	return image, nil
}
