package gguf

import (
	"fmt"
	"math"
	"os"

	"github.com/fucina-go/fucina/internal/offheap"
)

// Open maps the file at path and reads its metadata and tensor descriptions.
// The caller closes the File. Errors carry the path and wrap [ErrNotGGUF],
// [ErrVersion], [ErrMalformed] or what the operating system said.
func Open(path string) (*File, error) {
	m, err := mapFile(path)
	if err != nil {
		return nil, err
	}
	f, err := parse(m.Bytes())
	if err != nil {
		_ = m.Unmap() // the file's fault is the error to report
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f.mapping = newMapping(m.Bytes(), m.Unmap, m.DropPages)
	return f, nil
}

func mapFile(path string) (m offheap.Mapping, err error) {
	// Before opening: the open of a named pipe would wait for a writer.
	info, err := os.Stat(path)
	if err != nil {
		return m, fmt.Errorf("gguf: %w", err)
	}
	if !info.Mode().IsRegular() {
		return m, fmt.Errorf("%s: %w: not a regular file", path, ErrNotGGUF)
	}
	file, err := os.Open(path)
	if err != nil {
		return m, fmt.Errorf("gguf: %w", err)
	}
	defer file.Close() // the mapping does not need it
	if info, err = file.Stat(); err != nil {
		return m, fmt.Errorf("gguf: %w", err)
	}
	if info.Size() > math.MaxInt {
		return m, fmt.Errorf("%s: %w: %d bytes exceed the address space", path, ErrMalformed, info.Size())
	}
	if m, err = offheap.MapFile(file, info.Size()); err != nil {
		return m, fmt.Errorf("gguf: map %s: %w", path, err)
	}
	return m, nil
}
