// Package sigbus tells tests whether the system reports the address of a fault behind the
// end of a mapped file.
package sigbus

import (
	"errors"
	"os"
	"sync"
	"testing"

	"github.com/fucina-go/fucina/internal/offheap"
)

// Need skips the test if the system does not report that address. The emulator qemu-user 7,
// for example, reports address 0, so that the fault of a truncated file cannot be told from
// that of a nil pointer.
func Need(t testing.TB) {
	t.Helper()
	if err := probe(); err != nil {
		t.Skipf("a read of a file that was cut does not say where it faults: %v", err)
	}
}

// probe reads a truncated file.
var probe = sync.OnceValue(func() (err error) {
	f, err := os.CreateTemp("", "sigbus")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	size := int64(os.Getpagesize())
	if err := f.Truncate(size); err != nil {
		return errors.Join(err, f.Close())
	}
	m, err := offheap.MapFile(f, size)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	defer m.Unmap()
	if err := os.Truncate(f.Name(), 0); err != nil {
		return err
	}
	defer func() {
		if r := recover(); r != nil {
			err, _ = r.(error)
		}
	}()
	var sum byte
	err = offheap.Guard(func() error {
		for _, b := range m.Bytes() {
			sum += b
		}
		return nil
	})
	if errors.Is(err, offheap.ErrFileChanged) {
		return nil
	}
	return errors.Join(errors.New("the read did not fault"), err)
})
