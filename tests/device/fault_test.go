//go:build accel

package device

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/internal/sim/discrete"
	"github.com/fucina-go/fucina/llm"
	"github.com/fucina-go/fucina/tests/harness"
)

// countEvents returns the events of a run without faults.
func countEvents(t *testing.T, f *gguf.File) discrete.Events {
	t.Helper()
	r, err := newRig(discrete.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ids, err := r.smallRun(f)
	if err == nil {
		err = harness.SameIDs(ids, wantSmall(t))
	}
	events := r.dev.Events()
	if err := errors.Join(err, r.close()); err != nil {
		t.Fatal(err)
	}
	if events.Submits < tokens*10 || events.Allocs < 10 || events.Uploads < tokens || events.Downloads != tokens {
		t.Fatalf("unlikely events %+v", events)
	}
	return events
}

// faultCase runs the small model on a device with faults, then again on the same engine. The
// first run must give the right ids or an error that passes check, and the second run the
// right ids. Nothing may be left. If check is nil, there are several faults, and errors are
// allowed in both runs.
func faultCase(f *gguf.File, want []int32, opt discrete.Options, check func(error) error) (failed bool, err error) {
	r, err := newRig(opt)
	if err != nil {
		return false, err
	}
	err = bounded(func() error {
		m, err := llm.New(r.eng, f, llm.Options{})
		if err != nil {
			return err
		}
		ids, err := generate(m, smallPrompt, tokens)
		switch {
		case err == nil:
			err = harness.SameIDs(ids, want)
		case check != nil:
			failed = true
			err = check(err)
		default:
			failed, err = true, nil
		}
		// Only values that the device computed fail, because the weights are on the host.
		again, e := generate(m, smallPrompt, tokens)
		if e == nil {
			e = harness.SameIDs(again, want)
		} else if check == nil {
			e = nil // one of several faults may have occurred in this run
		}
		if e != nil {
			e = fmt.Errorf("again on the same engine: %w", e)
		}
		return errors.Join(err, e, m.Close())
	})
	if errors.Is(err, errHang) {
		return failed, err
	}
	return failed, errors.Join(err, r.close())
}

// A run with a failure at any one event gives the right ids, because the CPU runs the
// operation, or an error that names the operations that may have failed. Nothing hangs,
// nothing is left, and the failure does not fail the next engine.
func TestFaultSweep(t *testing.T) {
	seed := testSeed(t)
	f := openFile(t, small)
	want := wantSmall(t)
	events := countEvents(t, f)
	cases := []struct {
		kind  discrete.FaultKind
		n     int
		check func(error) error
	}{
		{discrete.SubmitError, events.Submits, isDeviceFailure},
		{discrete.SubmitAsync, events.Submits, namesWindow},
		{discrete.AllocError, events.Allocs, notAllowed},
		{discrete.UploadError, events.Uploads, isDeviceFailure},
		{discrete.UploadAsync, events.Uploads, namesWindow},
		{discrete.DownloadError, events.Downloads, isDeviceFailure},
		{discrete.DownloadAsync, events.Downloads, namesWindow},
	}
	for _, c := range cases {
		t.Run(c.kind.String(), func(t *testing.T) {
			failures, runs := 0, 0
			for _, i := range share(seed, c.n, 40) {
				opt := discrete.Options{
					Seed: seed + uint64(i), Chaos: discrete.Yields,
					Faults: []discrete.Fault{{Kind: c.kind, Nth: i + 1}},
				}
				failed, err := faultCase(f, want, opt, c.check)
				if err != nil {
					t.Fatalf("%s at event %d of %d: %v", c.kind, i+1, c.n, err)
				}
				runs++
				if failed {
					failures++
					if _, err := faultCase(f, want, discrete.Options{}, notAllowed); err != nil {
						t.Fatalf("after %s at event %d: the next engine: %v", c.kind, i+1, err)
					}
				}
			}
			t.Logf("%d of %d events, %d runs failed", runs, c.n, failures)
		})
	}
}

func isDeviceFailure(err error) error {
	if !errors.Is(err, fucina.ErrDeviceFailed) {
		return fmt.Errorf("no device failure: %w", err)
	}
	return nil
}

func notAllowed(err error) error { return err }

// randomFaults returns a source of faults at the events of a run.
func randomFaults(rng *rand.Rand, events discrete.Events) func() discrete.Fault {
	counts := map[discrete.FaultKind]int{
		discrete.SubmitError: events.Submits, discrete.SubmitAsync: events.Submits,
		discrete.AllocError:  events.Allocs,
		discrete.UploadError: events.Uploads, discrete.UploadAsync: events.Uploads,
		discrete.DownloadError: events.Downloads, discrete.DownloadAsync: events.Downloads,
		discrete.Loss: events.Submits + events.Transfers(),
	}
	return func() discrete.Fault {
		kind := discrete.FaultKind(1 + rng.IntN(len(counts)))
		return discrete.Fault{Kind: kind, Nth: 1 + rng.IntN(counts[kind])}
	}
}

// Two faults happen in one run, on a device that may be short of memory. One of them may
// happen while the other is being handled.
func TestFaultPairs(t *testing.T) {
	seed := testSeed(t)
	f := openFile(t, small)
	want := wantSmall(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	random := randomFaults(rng, countEvents(t, f))
	for range share(0, 80, 80) {
		opt := discrete.Options{
			Seed: rng.Uint64(), Chaos: discrete.Chaos(1 + rng.IntN(2)),
			Faults: []discrete.Fault{random(), random()},
		}
		if rng.IntN(2) == 0 {
			opt.MemoryBytes = 30<<10 + rng.Int64N(60<<10)
		}
		if _, err := faultCase(f, want, opt, nil); err != nil {
			t.Fatalf("seed %d, %d bytes, faults %v: %v", opt.Seed, opt.MemoryBytes, opt.Faults, err)
		}
	}
}

// A fault happens in one of two sessions, or in something that they share. Each session ends
// with the right ids or with an error.
func TestFaultUnderTwoSessions(t *testing.T) {
	seed := testSeed(t)
	f := openFile(t, small)
	want := wantSmall(t)
	rng := rand.New(rand.NewPCG(seed, 1))
	random := randomFaults(rng, countEvents(t, f))
	for range share(0, 60, 60) {
		opt := discrete.Options{Seed: rng.Uint64(), Chaos: discrete.Yields, Faults: []discrete.Fault{random()}}
		opt.Faults[0].Nth += rng.IntN(opt.Faults[0].Nth) // two sessions have more events
		if rng.IntN(2) == 0 {
			opt.MemoryBytes = 30<<10 + rng.Int64N(100<<10)
		}
		r, err := newRig(opt)
		if err != nil {
			t.Fatal(err)
		}
		m, err := llm.New(r.eng, f, llm.Options{})
		if err != nil {
			t.Fatal(err)
		}
		results := make(chan error, 2)
		for range cap(results) {
			go func() {
				ids, err := generate(m, smallPrompt, tokens)
				if err == nil {
					err = harness.SameIDs(ids, want)
				} else if errors.Is(err, fucina.ErrDeviceFailed) || errors.Is(err, fucina.ErrDeviceLost) {
					err = nil
				}
				results <- err
			}()
		}
		err = bounded(func() error { return errors.Join(<-results, <-results, m.Close()) })
		if !errors.Is(err, errHang) {
			err = errors.Join(err, r.close())
		}
		if err != nil {
			t.Fatalf("seed %d, %d bytes, faults %v: %v", opt.Seed, opt.MemoryBytes, opt.Faults, err)
		}
	}
}

// When a device disappears, only the values are lost that it alone had. The weights are on
// the host too, so that the CPU continues with the same model.
func TestLossSweep(t *testing.T) {
	seed := testSeed(t)
	f := openFile(t, small)
	want := wantSmall(t)
	events := countEvents(t, f)
	n := events.Submits + events.Transfers()
	for _, i := range share(seed, n, 60) {
		opt := discrete.Options{
			Seed: seed + uint64(i), Chaos: discrete.Yields,
			Faults: []discrete.Fault{{Kind: discrete.Loss, Nth: i + 1}},
		}
		_, err := faultCase(f, want, opt, func(err error) error {
			if !errors.Is(err, fucina.ErrDeviceLost) {
				return fmt.Errorf("not a lost device: %w", err)
			}
			return nil
		})
		if err != nil {
			t.Fatalf("loss at event %d of %d: %v", i+1, n, err)
		}
	}
}

// Every read of bytes that only a lost device had is an error. Bytes that the host has can
// be read.
func TestLossOfValues(t *testing.T) {
	r := openRig(t, discrete.Options{})
	c, err := r.eng.NewContext()
	if err != nil {
		t.Fatal(err)
	}
	d := fucina.Ax("d", 4)
	x := fucina.FromSlice(c, []float32{1, 2, 3, 4}, d)
	read := x.Add(x)
	if err := fucina.Read(read, func([]float32) error { return nil }); err != nil {
		t.Fatal(err) // Data would leave the only copy on the device
	}
	unread := x.Mul(x)
	if err := unread.Err(); err != nil {
		t.Fatal(err)
	}
	if err := r.dev.Inject(discrete.Fault{Kind: discrete.Loss, Nth: 1}); err != nil {
		t.Fatal(err)
	}
	within(t, "after the loss", func() error {
		for range 3 {
			if _, err := fucina.Data[float32](unread); !errors.Is(err, fucina.ErrDeviceLost) {
				return fmt.Errorf("data of a lost tensor: %w", err)
			}
			if err := fucina.CopyOut(unread, make([]float32, 4)); !errors.Is(err, fucina.ErrDeviceLost) {
				return fmt.Errorf("read of a lost tensor: %w", err)
			}
			if err := unread.Add(x).Err(); !errors.Is(err, fucina.ErrDeviceLost) {
				return fmt.Errorf("op on a lost tensor: %w", err)
			}
			if v, err := fucina.Data[float32](read); err != nil || v[3] != 8 {
				return fmt.Errorf("a tensor that was read: %v, %w", v, err)
			}
		}
		// The CPU continues, in this context and in new ones.
		other, err := r.eng.NewContext()
		if err != nil {
			return err
		}
		for _, c := range []*fucina.Context{c, other} {
			y := read.On(c).Mul(x.On(c))
			if v, err := fucina.Data[float32](y); err != nil || v[3] != 32 {
				return fmt.Errorf("an op on host values: %v, %w", v, err)
			}
		}
		return errors.Join(other.Close(), c.Close())
	})
}

// If every submission waits for its work, a failure names one operation.
func TestSyncNamesOneOp(t *testing.T) {
	f := openFile(t, small)
	want := wantSmall(t)
	for _, nth := range []int{1, 7, 20, 41} {
		failed, err := faultCase(f, want, discrete.Options{
			Sync: true, Faults: []discrete.Fault{{Kind: discrete.SubmitAsync, Nth: nth}},
		}, func(err error) error {
			var w *accel.WindowError
			if !errors.As(err, &w) || w.First != w.Last || w.First != uint64(nth) || strings.Contains(w.Ops, ",") {
				return fmt.Errorf("want a window of op %d alone: %w", nth, err)
			}
			return nil
		})
		if err != nil || !failed {
			t.Errorf("failure of op %d: run failed %v, %v", nth, failed, err)
		}
	}
}
