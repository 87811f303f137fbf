//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package offheap

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

func mapFile(f *os.File, n int) (unsafe.Pointer, error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	var p unsafe.Pointer
	var mapErr error
	err = conn.Control(func(fd uintptr) {
		p, mapErr = unix.MmapPtr(int(fd), 0, nil, uintptr(n), unix.PROT_READ, unix.MAP_SHARED)
	})
	if err == nil {
		err = mapErr
	}
	return p, err
}

func unmapFile(p unsafe.Pointer, n int) error { return unix.MunmapPtr(p, uintptr(n)) }

// dropPages ignores the error, because without the advice only memory is lost.
func dropPages(b []byte) { _ = unix.Madvise(b, unix.MADV_DONTNEED) }

// stateOf returns the state of f. Unlike f.Stat, it does not allocate.
func stateOf(f *os.File) (fileState, error) {
	var st unix.Stat_t
	for {
		err := unix.Fstat(int(f.Fd()), &st)
		if err != unix.EINTR {
			return fileState{st.Size, st.Mtim.Nano()}, err
		}
	}
}
