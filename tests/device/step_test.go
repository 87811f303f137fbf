//go:build accel

package device

import (
	"errors"
	"sync"
	"testing"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/internal/sim/discrete"
	"github.com/fucina-go/fucina/llm"
	"github.com/fucina-go/fucina/tests/harness"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

// After the first steps, a decode step is one upload of ids, one download of logits, and ops
// on the device. Transfers or allocations per op would make a device slower than the CPU.
func TestDecodeStepCounters(t *testing.T) {
	for name, chaos := range map[string]discrete.Chaos{"prompt": discrete.Prompt, "yields": discrete.Yields, "sleeps": discrete.Sleeps} {
		t.Run(name, func(t *testing.T) {
			r := openRig(t, discrete.Options{Seed: testSeed(t), Chaos: chaos})
			s := openSession(t, r.openModel(t, openFile(t, small)))
			ids, err := greedy(s, smallPrompt, 5)
			if err != nil {
				t.Fatal(err)
			}
			const steps = 50
			before := r.eng.Stats()
			last := before
			for i := range steps {
				if ids, err = greedy(s, ids[len(ids)-1:], 1); err != nil {
					t.Fatal(err)
				}
				now := r.eng.Stats()
				if up, down := now.Device.Uploads-last.Device.Uploads, now.Device.Downloads-last.Device.Downloads; up > 1 || down > 1 {
					t.Errorf("step %d: %d uploads and %d downloads, want at most one of each", i, up, down)
				}
				last = now
			}
			if last.CPU.Submits != before.CPU.Submits {
				t.Errorf("ops ran on the cpu: %v, before %v", last.CPU.Submits, before.CPU.Submits)
			}
			if last.Device.Allocs != before.Device.Allocs || last.Device.LiveBytes != before.Device.LiveBytes || last.Device.Frees != before.Device.Frees {
				t.Errorf("device memory moved in steady state:\nbefore %+v\nafter  %+v", before.Device, last.Device)
			}
			if last.Pool != before.Pool || last.Handles != before.Handles {
				t.Errorf("host memory grew: pool %+v, %d handles; was %+v, %d", last.Pool, last.Handles, before.Pool, before.Handles)
			}
			if last.Fallbacks != 0 {
				t.Errorf("%d fallbacks: %s", last.Fallbacks, last.LastFallback)
			}
		})
	}
}

// Every seeded model generates the same ids on the device as in llama.cpp.
func TestGoldens(t *testing.T) {
	for _, g := range tinyllama.Goldens() {
		t.Run(g.Name, func(t *testing.T) {
			r := openRig(t, discrete.Options{Seed: testSeed(t), Chaos: discrete.Yields})
			got, err := generate(r.openModel(t, openFile(t, g.Options)), g.PromptIDs, len(g.IDs))
			if err != nil {
				t.Fatal(err)
			}
			if err := harness.SameIDs(got, g.IDs); err != nil {
				t.Error(err)
			}
			if s := r.eng.Stats(); s.CPU.Ops() != 0 {
				t.Errorf("%d ops ran on the cpu: %s", s.CPU.Ops(), s.LastFallback)
			}
		})
	}
}

// The device holds weights once per engine, for any number of sessions. Contexts on one
// device do not affect one another.
func TestSessionsShareWeights(t *testing.T) {
	g := tinyllama.Goldens()[0]
	f := openFile(t, g.Options)
	alone := func() provider.Stats {
		r, err := newRig(discrete.Options{})
		if err != nil {
			t.Fatal(err)
		}
		m, err := llm.New(r.eng, f, llm.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := generate(m, g.PromptIDs, len(g.IDs)); err != nil {
			t.Fatal(err)
		}
		s := r.eng.Stats().Device
		if err := errors.Join(m.Close(), r.close()); err != nil {
			t.Fatal(err)
		}
		return s
	}()
	weights := uint64(0)
	for _, w := range f.Tensors() {
		weights += uint64(w.Size)
	}

	r := openRig(t, discrete.Options{Seed: testSeed(t), Chaos: discrete.Yields})
	m := r.openModel(t, f)
	const sessions = 3
	var wg sync.WaitGroup
	for range sessions {
		wg.Go(func() {
			ids, err := generate(m, g.PromptIDs, len(g.IDs))
			if err == nil {
				err = harness.SameIDs(ids, g.IDs)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	got := r.eng.Stats()
	if want := weights + sessions*(alone.UploadBytes-weights); got.Device.UploadBytes != want {
		t.Errorf("%d bytes uploaded, want %d: the weights' %d once and %d for each session",
			got.Device.UploadBytes, want, weights, alone.UploadBytes-weights)
	}
	if n := got.CPU.Ops(); n != 0 {
		t.Errorf("%d ops ran on the cpu: %s", n, got.LastFallback)
	}
}

// Contexts that are opened and closed, each with a queue on the device, leave nothing
// behind.
func TestManySessions(t *testing.T) {
	want := wantSmall(t)
	r := openRig(t, discrete.Options{Seed: testSeed(t), Chaos: discrete.Yields})
	m := r.openModel(t, openFile(t, small))
	if _, err := generate(m, smallPrompt, tokens); err != nil {
		t.Fatal(err)
	}
	before := r.eng.Stats()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 6 {
				ids, err := generate(m, smallPrompt, tokens)
				if err == nil {
					err = harness.SameIDs(ids, want)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	after := r.eng.Stats()
	if after.Device.LiveQueues != before.Device.LiveQueues || after.Handles != before.Handles || after.Pool.Outstanding != before.Pool.Outstanding {
		t.Errorf("sessions left something:\nbefore %+v\nafter  %+v", before, after)
	}
	// Four concurrent sessions use at most four times the memory of one.
	if after.Device.LiveBytes > 4*before.Device.LiveBytes {
		t.Errorf("%d bytes on the device, %d after one session", after.Device.LiveBytes, before.Device.LiveBytes)
	}
}

// A second goroutine that uses a context at the same time gets an error, not a race.
func TestContextBusy(t *testing.T) {
	r := openRig(t, discrete.Options{Decline: func(id op.ID, _ *op.Args) string {
		if id == op.Mul {
			return "the test wants it on the cpu"
		}
		return ""
	}})
	c, err := r.eng.NewContext()
	if err != nil {
		t.Fatal(err)
	}
	r.dev.Hold()
	x := fucina.FromSlice(c, []float32{1, 2}, fucina.Ax("d", 2))
	y := x.Add(x)
	// An op on the CPU waits inside the context for work that the held device has not done.
	first := make(chan error, 1)
	go func() {
		for {
			err := y.Mul(y).Err()
			if errors.Is(err, fucina.ErrBusy) {
				continue // the other goroutine used the context
			}
			first <- err
			return
		}
	}()
	within(t, "second goroutine", func() error {
		for {
			err := x.Narrow("d", 0, 1).Err()
			if errors.Is(err, fucina.ErrBusy) {
				return nil
			}
			if err != nil {
				return err
			}
		}
	})
	if err := c.Close(); !errors.Is(err, fucina.ErrBusy) {
		t.Errorf("close with a goroutine inside: %v", err)
	}
	if err := r.eng.Close(); !errors.Is(err, fucina.ErrBusy) {
		t.Errorf("close of the engine with a goroutine inside: %v", err)
	}
	r.dev.Release()
	within(t, "first goroutine", func() error { return <-first })
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
