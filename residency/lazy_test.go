//go:build accel

package residency

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/internal/sim/discrete"
)

// A manager uses no queue and no pinned memory of the device before the first transfer,
// and then only those of that direction.
func TestLazyTransfers(t *testing.T) {
	x := newBench(t, discrete.Options{}, Options{SlotBytes: 64, Slots: 2})
	queues := x.dev.Stats().LiveQueues // queues of the bench
	want := func(what string, more, pinned int64) {
		t.Helper()
		if s := x.dev.Stats(); s.LiveQueues != queues+more || s.PinnedBytes != pinned {
			t.Errorf("%s: %d queues and %d pinned bytes, want %d and %d", what, s.LiveQueues-queues, s.PinnedBytes, more, pinned)
		}
	}
	want("new", 0, 0)
	if err := x.m.Err(); err != nil {
		t.Error(err)
	}
	b, _ := x.acquire(x.a, 256)
	want("a block", 0, 0)
	w, err := b.Upload(bg, 0, []byte("some"), nil)
	if err != nil {
		t.Fatal(err)
	}
	want("an upload", 1, 128)
	got := make([]byte, 4)
	if _, err := b.Read(bg, got, 0, w); err != nil || string(got) != "some" {
		t.Errorf("read %q, %v", got, err)
	}
	want("a read", 2, 256)
	b.Free(nil)
	x.close()
}

func TestPrepare(t *testing.T) {
	x := newBench(t, discrete.Options{}, Options{SlotBytes: 64, Slots: 2})
	if err := errors.Join(x.m.Prepare(bg), x.m.Prepare(bg)); err != nil {
		t.Error(err)
	}
	if s := x.dev.Stats(); s.LiveQueues != 2+2 || s.PinnedBytes != 256 {
		t.Errorf("prepared: %+v", s)
	}
	x.close()
}

// Concurrent first transfers open one queue and one ring in each direction.
func TestConcurrentFirstTransfers(t *testing.T) {
	for seed := range uint64(10) {
		x := newBench(t, discrete.Options{Chaos: discrete.Yields, Seed: seed}, Options{SlotBytes: 64, Slots: 2})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				b, _, err := x.m.Acquire(bg, nil, 256)
				if err != nil {
					t.Error(err)
					return
				}
				got := make([]byte, 4)
				w, err := b.Upload(bg, 0, []byte("some"), nil)
				if err == nil {
					_, err = b.Read(bg, got, 0, w)
				}
				if err != nil || string(got) != "some" {
					t.Errorf("read %q, %v", got, err)
				}
				b.Free(accel.Fences{w})
			})
		}
		wg.Wait()
		if s := x.dev.Stats(); s.LiveQueues != 2+2 || s.PinnedBytes != 256 {
			t.Errorf("after first transfers at once: %+v", s)
		}
		x.close()
	}
}

// scarce is a device that runs out of pinned memory.
type scarce struct {
	*discrete.Device
	left int
}

var errScarce = errors.New("no pinned memory")

func (s *scarce) AllocPinned(n int) ([]byte, error) {
	if s.left--; s.left < 0 {
		return nil, errScarce
	}
	return s.Device.AllocPinned(n)
}

// If the queue or the staging memory cannot be allocated, the transfer fails and keeps
// nothing allocated. The next transfer tries again.
func TestNoStaging(t *testing.T) {
	for _, left := range []int{0, 1, 3} {
		dev, err := discrete.New(discrete.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s := &scarce{dev, left}
		m := New(s, Options{SlotBytes: 64, Slots: 4})
		b, _, err := m.Acquire(bg, nil, 256)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Upload(bg, 0, []byte("some"), nil); !errors.Is(err, errScarce) {
			t.Errorf("upload with only %d slots of pinned memory: %v", left, err)
		}
		if _, err := b.Read(bg, make([]byte, 4), 0, accel.Work{}); !errors.Is(err, errScarce) {
			t.Errorf("read without pinned memory: %v", err)
		}
		if err := m.Prepare(bg); !errors.Is(err, errScarce) {
			t.Errorf("prepare without pinned memory: %v", err)
		}
		if s := dev.Stats(); s.LiveQueues != 0 || s.PinnedBytes != 0 {
			t.Errorf("left: %+v", s)
		}
		if err := m.Err(); err != nil {
			t.Errorf("the manager is dead: %v", err)
		}
		s.left = 8
		got := make([]byte, 4)
		w, err := b.Upload(bg, 0, []byte("some"), nil)
		if err == nil {
			_, err = b.Read(bg, got, 0, w)
		}
		if err != nil || string(got) != "some" {
			t.Errorf("once there is pinned memory: %q, %v", got, err)
		}
		b.Free(accel.Fences{w})
		if err := errors.Join(m.Close(bg), dev.Close()); err != nil {
			t.Error(err)
		}
	}
}

// A transfer after Close fails and allocates nothing.
func TestFirstTransferAfterClose(t *testing.T) {
	x := newBench(t, discrete.Options{}, Options{})
	b, _ := x.acquire(x.a, 256)
	_ = x.m.Close(bg) // the block is still held
	if _, err := b.Upload(bg, 0, []byte("some"), nil); !errors.Is(err, provider.ErrClosed) {
		t.Errorf("upload after close: %v", err)
	}
	if _, err := b.Read(bg, make([]byte, 4), 0, accel.Work{}); !errors.Is(err, provider.ErrClosed) {
		t.Errorf("read after close: %v", err)
	}
	x.dev.Free(b.mem)
	if err := x.dev.Close(); err != nil {
		t.Error(err)
	}
	if s := x.dev.Stats(); s.LiveQueues != 0 || s.PinnedBytes != 0 {
		t.Errorf("left: %+v", s)
	}
}

// A second Close frees nothing twice, whether the first one succeeded or was cancelled.
func TestCloseAgain(t *testing.T) {
	x := newBench(t, discrete.Options{}, Options{})
	if err := x.m.Prepare(bg); err != nil {
		t.Fatal(err)
	}
	b, _ := x.acquire(x.a, 256)
	x.dev.Hold()
	w, err := b.Upload(bg, 0, []byte("some"), nil)
	if err != nil {
		t.Fatal(err)
	}
	b.Free(accel.Fences{w})
	ctx, cancel := context.WithCancel(bg)
	cancel()
	if err := x.m.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("close of a busy device with a context that has ended: %v", err)
	}
	x.dev.Release()
	if err := x.m.Close(bg); err != nil {
		t.Error(err)
	}
	x.close()
}
