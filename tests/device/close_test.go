//go:build accel

package device

import (
	"errors"
	"testing"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/internal/sim/discrete"
)

// A Context.Close that waits for its device work does not hold a lock that NewContext, other
// closes and weights need.
func TestCloseBlocksNobody(t *testing.T) {
	r := openRig(t, discrete.Options{})
	a, err := r.eng.NewContext()
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.eng.NewContext()
	if err != nil {
		t.Fatal(err)
	}
	x := fucina.FromSlice(a, []float32{1, 2}, fucina.Ax("d", 2)).Shared()
	r.dev.Hold()
	if err := x.On(a).Add(x).Err(); err != nil {
		t.Fatal(err)
	}
	closes := make(chan error, 2)
	go func() {
		for {
			err := a.Close()
			if !errors.Is(err, fucina.ErrBusy) { // busy with the check below
				closes <- err
				return
			}
		}
	}()
	within(t, "the context's end", func() error {
		for {
			y := x.On(a).Ref()
			y.Release()
			if err := y.Err(); errors.Is(err, fucina.ErrClosed) {
				return nil
			} else if err != nil {
				return err
			}
		}
	})
	go func() { closes <- a.Close() }()
	within(t, "others meanwhile", func() error {
		c, err := r.eng.NewContext()
		if err != nil {
			return err
		}
		for _, c := range []*fucina.Context{b, c} {
			z := x.On(c).Add(x)
			z.Release()
			if err := z.Err(); err != nil {
				return err
			}
		}
		w, err := r.eng.Empty(dtype.F32, fucina.Ax("d", 2))
		if err != nil {
			return err
		}
		if err := r.eng.Close(); !errors.Is(err, fucina.ErrBusy) {
			return errors.Join(errors.New("the engine closed under a context that closes"), err)
		}
		w.Release()
		return nil
	})
	if len(closes) != 0 {
		t.Error("a Close did not wait for the device")
	}
	r.dev.Release()
	for range 2 {
		within(t, "close", func() error { return <-closes })
	}
	x.Release()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// While an Engine.Close waits for the device, other calls do not wait: they return
// ErrClosed.
func TestEngineCloseBlocksNobody(t *testing.T) {
	r := openRig(t, discrete.Options{})
	a, err := r.eng.NewContext()
	if err != nil {
		t.Fatal(err)
	}
	x := fucina.FromSlice(a, []float32{1, 2}, fucina.Ax("d", 2)).Shared()
	r.dev.Hold()
	y := x.On(a).Add(x).Shared()
	if err := y.Err(); err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	go func() { closed <- r.eng.Close() }()
	within(t, "others meanwhile", func() error {
		for {
			w, err := r.eng.Empty(dtype.F32, fucina.Ax("d", 2))
			if errors.Is(err, fucina.ErrClosed) {
				break
			}
			if err != nil {
				return err
			}
			w.Release()
		}
		_, err := r.eng.NewContext()
		for _, err := range []error{
			err,
			fucina.CopyOut(y, make([]float32, 2)),
			y.On(a).CopyFrom(x).Err(),
		} {
			if !errors.Is(err, fucina.ErrClosed) {
				return errors.Join(errors.New("an engine that closes works"), err)
			}
		}
		x.Release()
		y.Release()
		return nil
	})
	r.dev.Release()
	within(t, "close", func() error { return <-closed })
}

// A read during the engine's Close succeeds or fails with ErrClosed.
func TestReadDuringClose(t *testing.T) {
	for range 10 {
		r, err := newRig(discrete.Options{Chaos: discrete.Yields})
		if err != nil {
			t.Fatal(err)
		}
		c, err := r.eng.NewContext()
		if err != nil {
			t.Fatal(err)
		}
		x := fucina.FromSlice(c, make([]float32, 300), fucina.Ax("k", 300))
		y := x.Add(x).Shared()
		reads := make(chan error, 1)
		started := make(chan struct{})
		go func() {
			var err error
			for n := 0; err == nil; n++ {
				if n == 1 {
					close(started)
				}
				err = fucina.CopyOut(y, make([]float32, 300))
			}
			reads <- err
		}()
		<-started
		within(t, "close", func() error {
			if err := r.eng.Close(); !errors.Is(err, fucina.ErrLeak) {
				return err
			}
			return nil
		})
		within(t, "the read", func() error {
			if err := <-reads; !errors.Is(err, fucina.ErrClosed) {
				return err
			}
			y.Release()
			return nil
		})
		if s := r.eng.Stats(); s.Handles != 0 || s.Pool.Outstanding != 0 || s.Device.LiveBytes != 0 || s.Device.LiveQueues != 0 {
			t.Errorf("after close: %+v", s)
		}
		if h := r.dev.Hazards(); len(h) > 0 {
			t.Errorf("hazards: %q", h)
		}
	}
}
