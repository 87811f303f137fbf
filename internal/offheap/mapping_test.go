package offheap_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/fucina-go/fucina/internal/offheap"
)

func tempFile(t testing.TB, content []byte) *os.File {
	t.Helper()
	name := filepath.Join(t.TempDir(), "model")
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return reopen(t, name)
}

func reopen(t testing.TB, name string) *os.File {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestMapFile(t *testing.T) {
	content := make([]byte, 3*offheap.PageSize()+77)
	for i := range content {
		content[i] = byte(i * 7 >> 3)
	}
	f := tempFile(t, content)
	for _, n := range []int{1, 100, offheap.PageSize(), offheap.PageSize() + 1, len(content)} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			m, err := offheap.MapFile(reopen(t, f.Name()), int64(n))
			if err != nil {
				t.Fatal(err)
			}
			if a := uintptr(unsafe.Pointer(unsafe.SliceData(m.Bytes()))); a%uintptr(os.Getpagesize()) != 0 {
				t.Errorf("address %#x is not on a page", a)
			}
			if !bytes.Equal(m.Bytes(), content[:n]) || cap(m.Bytes()) != n {
				t.Error("bytes differ from the file's")
			}
			m.DropPages(0, n)
			m.DropPages(n/2, n-n/2)
			m.DropPages(n, 0)
			if !bytes.Equal(m.Bytes(), content[:n]) {
				t.Error("bytes differ after DropPages")
			}
			if err := m.Unmap(); err != nil {
				t.Error(err)
			}
			if m != (offheap.Mapping{}) || m.Bytes() != nil {
				t.Errorf("after Unmap: %+v, want the empty Mapping", m)
			}
			if err := m.Unmap(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A mapping keeps its file open until Unmap, which closes it.
func TestMappingOwnsFile(t *testing.T) {
	f := tempFile(t, []byte("weights"))
	m, err := offheap.MapFile(f, 7)
	if err != nil {
		t.Fatal(err)
	}
	if string(m.Bytes()) != "weights" {
		t.Errorf("bytes %q", m.Bytes())
	}
	if err := m.Check(); err != nil {
		t.Error(err)
	}
	if err := m.Unmap(); err != nil {
		t.Error(err)
	}
	if err := m.Check(); err != nil {
		t.Errorf("the empty Mapping: %v", err)
	}
	if _, err := f.Stat(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Unmap the file gives %v, want os.ErrClosed", err)
	}
}

func TestMapFileErrors(t *testing.T) {
	f := tempFile(t, []byte("short"))
	if _, err := offheap.MapFile(f, -1); err == nil {
		t.Error("negative length: no error")
	}
	for _, n := range []int64{6, 1 << 40, math.MaxInt64} {
		if _, err := offheap.MapFile(f, n); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d bytes of a 5-byte file: %v, want io.ErrUnexpectedEOF", n, err)
		}
	}
	if m, err := offheap.MapFile(f, 0); err != nil || m != (offheap.Mapping{}) {
		t.Errorf("no bytes: %+v, %v, want the empty Mapping", m, err)
	}
	f.Close()
	if _, err := offheap.MapFile(f, 5); err == nil {
		t.Error("closed file: no error")
	}
	if _, err := offheap.MapFile(nil, 5); err == nil {
		t.Error("nil file: no error")
	}
}

func TestDropPagesRange(t *testing.T) {
	f := tempFile(t, make([]byte, 100))
	m, err := offheap.MapFile(f, 100)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Unmap()
	for _, r := range [][2]int{{-1, 1}, {0, -1}, {0, 101}, {101, 0}, {1, math.MaxInt}} {
		mustPanic(t, func() { m.DropPages(r[0], r[1]) })
	}
}
