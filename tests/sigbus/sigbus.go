// Package sigbus tells tests whether the system says where a read behind the end of a
// mapped file faults.
package sigbus

import (
	"errors"
	"os"
	"sync"
	"testing"

	"github.com/fucina-go/fucina/internal/offheap"
)

// Need skips the test where the address of such a read is not known, as under the
// emulator qemu-user 7, which reports address 0. There the fault of a file that was cut
// cannot be told from that of a nil pointer.
func Need(t testing.TB) {
	t.Helper()
	if err := probe(); err != nil {
		t.Skipf("a read of a file that was cut does not say where it faults: %v", err)
	}
}

// probe reads a file that was cut.
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
