//go:build accel

package device

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/tensor"
	"github.com/fucina-go/fucina/internal/sim/discrete"
	"github.com/fucina-go/fucina/residency"
	"github.com/fucina-go/fucina/tests/harness"
)

type residencyStats = residency.Stats

// If the memory is smaller than the weights, weights are evicted and uploaded again. If
// there is almost no memory, the CPU computes. The ids are right in both cases.
func TestMemoryPressure(t *testing.T) {
	seed := testSeed(t)
	f := openFile(t, small)
	want := wantSmall(t)
	free := openRig(t, discrete.Options{})
	if _, err := free.smallRun(f); err != nil {
		t.Fatal(err)
	}
	peak := free.dev.PeakBytes()
	uploaded := free.dev.Stats().UploadBytes
	for _, percent := range []int64{100, 95, 85, 70, 50, 30, 10, 1} {
		limit := max(1, peak*percent/100)
		for name, opts := range map[string]struct {
			dev discrete.Options
			eng []fucina.Option
		}{
			"memory": {discrete.Options{MemoryBytes: limit}, nil},
			"budget": {discrete.Options{}, []fucina.Option{fucina.WithDeviceBudget(limit)}},
		} {
			t.Run(fmt.Sprintf("%s %d%%", name, percent), func(t *testing.T) {
				opts.dev.Seed, opts.dev.Chaos = seed, discrete.Yields
				eng := opts.eng
				if eng == nil { // the device itself limits the memory
					eng = []fucina.Option{fucina.WithDeviceBudget(1 << 40)}
				}
				r := openRig(t, opts.dev, eng...)
				m := r.openModel(t, f)
				ids, err := generate(m, smallPrompt, tokens)
				if err == nil {
					err = harness.SameIDs(ids, want)
				}
				if err != nil {
					t.Fatal(err)
				}
				s := r.eng.Stats()
				if r.dev.PeakBytes() > limit {
					t.Errorf("%d bytes held, the limit is %d", r.dev.PeakBytes(), limit)
				}
				switch {
				case percent == 100:
					if s.Fallbacks != 0 || s.Device.UploadBytes != uploaded {
						t.Errorf("with enough memory: %d fallbacks (%s), %d bytes uploaded, %d without a limit", s.Fallbacks, s.LastFallback, s.Device.UploadBytes, uploaded)
					}
				case percent == 1:
					if s.Fallbacks == 0 || !strings.Contains(s.LastFallback, accel.ErrOutOfMemory.Error()) {
						t.Errorf("with no memory: %d fallbacks, the last one: %q", s.Fallbacks, s.LastFallback)
					}
				}
				t.Logf("%d bytes: %d fallbacks, %d bytes uploaded, %d ops on the cpu", limit, s.Fallbacks, s.Device.UploadBytes, s.CPU.Ops())

				// The weights of two sessions evict one another.
				var wg sync.WaitGroup
				for range 2 {
					wg.Go(func() {
						ids, err := generate(m, smallPrompt, tokens)
						if err == nil {
							err = harness.SameIDs(ids, want)
						}
						if err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
			})
		}
	}
}

// Weights that do not fit together are uploaded in turn, in pieces, and no op runs on the
// CPU.
func TestEviction(t *testing.T) {
	const n, weights = 64, 4
	// The memory has room for two of the weights and a few vectors.
	b := newBench(t, discrete.Options{MemoryBytes: 2*4*n*n + 8<<10, Chaos: discrete.Yields})
	x := b.vector(b.a, n, 1)
	var w [weights]*tensor.Tensor
	for i := range w {
		w[i] = b.weight(n, float32(i+1), nil)
	}
	for round := range 3 {
		for i := range w {
			y := b.must(b.a.Do(op.MatMul, nil, x, w[i]))
			if round != 1 {
				b.read(fmt.Sprintf("product %d", i), y, float32(n*(i+1)))
			}
			y.Release()
		}
	}
	if s := b.eng.Stats(); s.Fallbacks != 0 {
		t.Errorf("%d fallbacks: %s", s.Fallbacks, s.LastFallback)
	}
	if s := b.eng.Residency(); s.Evictions == 0 || s.Adopted > 2*4*n*n {
		t.Errorf("%+v, want evictions", s)
	}
	release(w[:]...)
	x.Release()
	b.close()
}

// If memory runs out while another queue still uses an idle block of the right size, the
// block is reused under its fences, without a wait on the host.
func TestOutOfMemoryTakesBusyBlock(t *testing.T) {
	const n = 1 << 12 // 16 KiB
	b := newBench(t, discrete.Options{Ring: deepRing, MemoryBytes: 2 * 4 * n})
	x := b.vector(b.a, n, 1)
	b.dev.Hold()
	y := b.must(b.a.Do(op.Add, nil, x, x)) // x and y fill the memory
	first := mem(y)
	y.Release()
	within(t, "op on the other queue", func() error {
		var err error
		*y, err = b.b.Do(op.Mul, nil, x, x)
		return err
	})
	if mem(y) != first {
		t.Errorf("block %v, want the one that queue a still writes", mem(y))
	}
	if s := b.eng.Stats(); s.Fallbacks != 0 {
		t.Errorf("%d fallbacks: %s", s.Fallbacks, s.LastFallback)
	}
	b.dev.Release()
	b.read("y", y, 1)
	release(x, y)
	b.close()
}

// If memory runs out while idle blocks of other sizes are still in use, the request waits
// for their uses, and only then are they freed and the request is met.
func TestOutOfMemoryWaitsForBusyBlocks(t *testing.T) {
	const n = 1 << 12
	b := newBench(t, discrete.Options{Ring: deepRing, MemoryBytes: 4 * 4 * n})
	x := b.vector(b.a, n, 1)
	large := b.vector(b.b, 3*n, 5)
	b.dev.Hold()
	y := b.must(b.a.Do(op.Add, nil, x, x))
	z := b.must(b.a.Do(op.Add, nil, y, y)) // three of four blocks
	release(y, z, x)
	events := b.dev.Events().Allocs
	result := make(chan error, 1)
	var cube *tensor.Tensor
	go func() {
		// The operand alone fits into the memory of the freed small blocks.
		c, err := b.b.Do(op.Softmax, &op.Params{Scale: 0}, large)
		cube = &c
		result <- err
	}()
	within(t, "refused allocation", func() error {
		for b.dev.Events().Allocs == events {
			runtime.Gosched()
		}
		return nil
	})
	if s := b.dev.Stats(); s.Frees != 0 {
		t.Errorf("%d blocks given back while the device is held", s.Frees)
	}
	b.dev.Release()
	within(t, "op", func() error { return <-result })
	within(t, "sync", func() error { return b.dev.Sync(context.Background()) })
	s := b.eng.Stats()
	// The operand fits and the result does not, so that the CPU runs this op.
	if s.Fallbacks != 1 || b.dev.Stats().Frees == 0 {
		t.Errorf("%d fallbacks (%s), %d blocks given back", s.Fallbacks, s.LastFallback, b.dev.Stats().Frees)
	}
	b.read("softmax", cube, 1/float32(3*n))
	release(large, cube)
	b.close()
}

// The copy of a cancelled read still reads its memory, which is not given back before the
// copy has ended.
func TestGivenUpReadKeepsMemory(t *testing.T) {
	const n = 1 << 12
	b := newBench(t, discrete.Options{Ring: deepRing, MemoryBytes: 3 * 4 * n})
	x := b.vector(b.a, n, 1)
	y := b.must(b.a.Do(op.Add, nil, x, x))
	large := b.vector(b.b, 2*n, 5)
	within(t, "sync", func() error { return b.dev.Sync(context.Background()) })
	b.dev.Hold()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		for b.dev.Events().Downloads == 0 {
			runtime.Gosched()
		}
		cancel()
	}()
	within(t, "read", func() error {
		if err := y.Buffer().ReadAt(ctx, make([]byte, 8), 0); !errors.Is(err, context.Canceled) {
			return fmt.Errorf("read of a held device: %w", err)
		}
		return nil
	})
	release(x, y)
	events := b.dev.Events().Allocs
	result := make(chan error, 1)
	go func() {
		// Neither operand nor result fits beside y.
		z, err := b.b.Do(op.Add, nil, large, large)
		if err == nil {
			z.Release()
		}
		result <- err
	}()
	within(t, "refused allocations", func() error {
		for b.dev.Events().Allocs < events+2 {
			runtime.Gosched()
		}
		return nil
	})
	b.dev.Release()
	within(t, "op", func() error { return <-result })
	large.Release()
	b.close() // reports memory that was freed during a copy
}

// After a single injected refusal of an allocation, the search finds memory and no op runs
// on the CPU.
func TestRefusedOnce(t *testing.T) {
	b := newBench(t, discrete.Options{})
	x := b.vector(b.a, 100, 1)
	if err := b.dev.Inject(discrete.Fault{Kind: discrete.AllocError, Nth: 1, Err: errors.New("transient")}); err != nil {
		t.Fatal(err)
	}
	y := b.must(b.a.Do(op.Add, nil, x, x))
	b.read("y", y, 2)
	if s := b.eng.Stats(); s.Fallbacks != 0 {
		t.Errorf("%d fallbacks: %s", s.Fallbacks, s.LastFallback)
	}
	release(x, y)
	b.close()
}
