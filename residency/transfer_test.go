//go:build accel

package residency

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/internal/sim/discrete"
)

// A transfer that follows unfinished work waits for it on the host. Meanwhile other copies
// run through the same queue and the only slot. The wait ends with its context.
func TestTransfersWaitOnTheHost(t *testing.T) {
	src, got := []byte("some"), make([]byte, 4)
	for _, tt := range []struct {
		name     string
		transfer func(ctx context.Context, b *Block, after accel.Work) error
	}{
		{"upload", func(ctx context.Context, b *Block, after accel.Work) error {
			_, err := b.Upload(ctx, 0, src, accel.Fences{after})
			return err
		}},
		{"download", func(ctx context.Context, b *Block, after accel.Work) error {
			_, err := b.Download(ctx, make([]byte, 4), 0, after)
			return err
		}},
		{"read", func(ctx context.Context, b *Block, after accel.Work) error {
			_, err := b.Read(ctx, make([]byte, 4), 0, after)
			return err
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x := newBench(t, discrete.Options{}, Options{SlotBytes: 64, Slots: 1})
			if err := x.m.Prepare(bg); err != nil {
				t.Fatal(err)
			}
			slow, _ := x.acquire(x.a, 256)
			ready, _ := x.acquire(x.b, 256)
			x.dev.Hold()
			w := x.use(x.a, slow, nil)
			ctx, cancel := context.WithCancel(bg)
			waiting := make(chan error)
			go func() { waiting <- tt.transfer(ctx, slow, w) }()
			for range 1000 { // a transfer that did not wait would be submitted within these yields
				runtime.Gosched()
			}
			if n := x.dev.Events().Transfers(); n != 0 {
				t.Fatalf("%d transfers submitted before the work that they follow has ended", n)
			}
			x.dev.Step(x.m.up.made.Load().q, 1)
			x.dev.Step(x.m.down.made.Load().q, 1)
			up, err := ready.Upload(bg, 0, src, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := ready.Read(bg, got, 0, up); err != nil || string(got) != "some" {
				t.Errorf("read %q, %v", got, err)
			}
			select {
			case err := <-waiting:
				t.Errorf("returned before the work that it follows has ended: %v", err)
			default:
			}
			cancel()
			if err := <-waiting; !errors.Is(err, context.Canceled) {
				t.Errorf("error %v, want the context's", err)
			}
			go func() { waiting <- tt.transfer(bg, slow, w) }()
			x.dev.Release()
			if err := <-waiting; err != nil {
				t.Error(err)
			}
			x.sync()
			slow.Free(accel.Fences{w})
			ready.Free(accel.Fences{up})
			x.close()
		})
	}
}

// The failure of the work that a transfer follows does not fail the transfer.
func TestTransfersAfterFailedWork(t *testing.T) {
	x := newBench(t, discrete.Options{Faults: []discrete.Fault{{Kind: discrete.SubmitAsync, Nth: 1}}}, Options{})
	b, _ := x.acquire(x.a, 256)
	failed := x.use(x.a, b, nil)
	up, err := b.Upload(bg, 0, []byte("some"), accel.Fences{failed})
	if err != nil {
		t.Fatal(err)
	}
	// The read follows the failed work only, so the upload must have ended.
	if err := up.Wait(bg); err != nil {
		t.Error(err)
	}
	got, direct := make([]byte, 4), make([]byte, 4)
	if _, err := b.Read(bg, got, 0, failed); err != nil || string(got) != "some" {
		t.Errorf("read %q, %v", got, err)
	}
	down, err := b.Download(bg, direct, 0, up)
	if err == nil {
		err = down.Wait(bg)
	}
	if err != nil || string(direct) != "some" {
		t.Errorf("download %q, %v", direct, err)
	}
	if err := errors.Join(x.m.Err(), up.Err()); err != nil {
		t.Errorf("the transfers failed: %v", err)
	}
	b.Free(accel.Fences{failed, up})
	x.close()
}

// A slot is not filled again before the device has read its contents. A wait for a slot
// ends with its context.
func TestStagingIsNotOverwritten(t *testing.T) {
	x := newBench(t, discrete.Options{}, Options{SlotBytes: 4, Slots: 1})
	first, _ := x.acquire(x.a, 256)
	second, _ := x.acquire(x.a, 256)
	x.dev.Hold()
	up, err := first.Upload(bg, 0, []byte("good"), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(bg)
	waiting := make(chan error)
	go func() {
		_, err := second.Upload(ctx, 0, []byte("evil"), nil)
		waiting <- err
	}()
	cancel()
	if err := <-waiting; !errors.Is(err, context.Canceled) {
		t.Errorf("upload without staging memory: %v", err)
	}
	go func() {
		_, err := second.Upload(bg, 0, []byte("evil"), nil)
		waiting <- err
	}()
	for range 1000 { // an upload that did not wait would overwrite the slot within these yields
		runtime.Gosched()
	}
	x.dev.Release()
	if err := <-waiting; err != nil {
		t.Error(err)
	}
	got := make([]byte, 4)
	if _, err := first.Read(bg, got, 0, up); err != nil || !bytes.Equal(got, []byte("good")) {
		t.Errorf("read %q, %v", got, err)
	}
	x.sync()
	first.Free(nil)
	second.Free(nil)
	x.close()
}
