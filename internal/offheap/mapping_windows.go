package offheap

import (
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
)

func mapFile(f *os.File, n int) (unsafe.Pointer, error) {
	size := uint64(n)
	h, err := windows.CreateFileMapping(windows.Handle(f.Fd()), nil, windows.PAGE_READONLY, uint32(size>>32), uint32(size), nil)
	if err != nil {
		return nil, err
	}
	// The view keeps the mapping object alive.
	defer windows.CloseHandle(h)
	addr, err := windows.MapViewOfFile(h, windows.FILE_MAP_READ, 0, 0, uintptr(n))
	if err != nil {
		return nil, err
	}
	return *(*unsafe.Pointer)(unsafe.Pointer(&addr)), nil
}

func unmapFile(p unsafe.Pointer, _ int) error { return windows.UnmapViewOfFile(uintptr(p)) }

// dropPages does nothing: Windows trims working sets itself and has no such call for views
// of files.
func dropPages([]byte) {}

// stateOf returns the state of f. Unlike f.Stat, it does not allocate.
func stateOf(f *os.File) (fileState, error) {
	var info windows.ByHandleFileInformation
	if err := windows.GetFileInformationByHandle(windows.Handle(f.Fd()), &info); err != nil {
		return fileState{}, err
	}
	size := int64(info.FileSizeHigh)<<32 | int64(info.FileSizeLow)
	return fileState{size, info.LastWriteTime.Nanoseconds()}, nil
}
