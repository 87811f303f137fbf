//go:build unix

package fucina_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/storage"
	"github.com/fucina-go/fucina/internal/offheap"
	"github.com/fucina-go/fucina/tests/sigbus"
)

// If the function of a Read accesses bytes of a mapped file that was truncated, Read fails
// with an error that names the operation, the tensor and the file. An error of the function
// itself is returned unchanged.
func TestReadOfCutFile(t *testing.T) {
	sigbus.Need(t)
	own := errors.New("own")
	on(t, func(t *testing.T, c *fucina.Context) {
		size := 2 * os.Getpagesize()
		path := filepath.Join(t.TempDir(), "weights")
		if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		m, err := offheap.MapFile(f, int64(size))
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := m.Unmap(); err != nil {
				t.Error(err)
			}
		}()
		buf := storage.Borrow(m.Bytes(), storage.BorrowOptions{ReadOnly: true})
		w, err := c.Engine().Weight(buf, dtype.F32, fucina.Ax("k", size/4))
		if err != nil {
			t.Fatal(err)
		}
		sum := func(v []float32) error {
			s := float32(0)
			for _, x := range v {
				s += x
			}
			if s != 0 {
				t.Errorf("zeros add up to %v", s)
			}
			return own
		}
		if err := fucina.Read(w, sum); err != own {
			t.Errorf("error %v, want the function's own", err)
		}
		if err := os.Truncate(path, 0); err != nil {
			t.Fatal(err)
		}
		err = fucina.Read(w, sum)
		if !errors.Is(err, fucina.ErrFileChanged) || !strings.Contains(err.Error(), ": read: f32 {k:") || !strings.Contains(err.Error(), path) {
			t.Errorf("error %v, want ErrFileChanged of the read of {k} in %s", err, path)
		}
		w.Release()
	})
}
