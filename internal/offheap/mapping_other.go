//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows)

package offheap

import (
	"io"
	"os"
	"unsafe"
)

// mapFile reads the file into the Go heap. The pointer keeps the copy reachable.
func mapFile(f *os.File, n int) (unsafe.Pointer, error) {
	b := make([]byte, n+pageSize-1)
	p := unsafe.Pointer(unsafe.SliceData(b))
	p = unsafe.Add(p, int(-uintptr(p)&uintptr(pageSize-1)))
	_, err := io.ReadFull(io.NewSectionReader(f, 0, int64(n)), unsafe.Slice((*byte)(p), n))
	return p, err
}

func unmapFile(unsafe.Pointer, int) error { return nil }

func dropPages([]byte) {}

func stateOf(f *os.File) (fileState, error) {
	info, err := f.Stat()
	if err != nil {
		return fileState{}, err
	}
	return fileState{info.Size(), info.ModTime().UnixNano()}, nil
}
