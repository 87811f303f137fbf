//go:build accel

package device

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/core/storage"
	"github.com/fucina-go/fucina/core/tensor"
	"github.com/fucina-go/fucina/exec"
	"github.com/fucina-go/fucina/internal/sim/discrete"
	"github.com/fucina-go/fucina/providers/cpu"
	"github.com/fucina-go/fucina/tests/harness"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

// A model larger than the budget keeps a fixed part resident: a step uploads little more than
// the part over the budget, whatever the sizes of the matrices.
func TestOversizedModel(t *testing.T) {
	for _, opt := range []tinyllama.Options{{Layers: 8}, {Layers: 8, Tied: true}} {
		f := openFile(t, opt)
		weights := int64(0)
		for _, w := range f.Tensors() {
			weights += int64(w.Size)
		}
		decode := func(budget int64, steps int) (*rig, []float64, []int32) {
			r := openRig(t, discrete.Options{}, fucina.WithDeviceBudget(budget))
			s := openSession(t, r.openModel(t, f))
			var uploads []float64
			ids := smallPrompt
			for range steps {
				before := r.dev.Stats().UploadBytes
				next, err := greedy(s, ids[max(0, len(ids)-len(smallPrompt)):], 1)
				if err != nil {
					t.Fatal(err)
				}
				ids = next
				uploads = append(uploads, float64(r.dev.Stats().UploadBytes-before)/float64(weights))
			}
			return r, uploads, ids
		}
		const steps = 8
		r, _, want := decode(1<<40, steps)
		other := r.dev.PeakBytes() - weights
		for _, tt := range []struct{ budget, most float64 }{{0.9, 0.15}, {0.75, 0.32}, {0.5, 0.58}} {
			t.Run(fmt.Sprintf("tied %v, budget %v", opt.Tied, tt.budget), func(t *testing.T) {
				r, uploads, got := decode(int64(tt.budget*float64(weights))+other, steps)
				for i, part := range uploads {
					if i >= 3 && part > tt.most {
						t.Errorf("step %d uploads %.3f of the weights, want at most %v", i, part, tt.most)
					}
				}
				if s := r.eng.Stats(); s.Fallbacks != 0 {
					t.Errorf("%d fallbacks: %s", s.Fallbacks, s.LastFallback)
				}
				if err := harness.SameIDs(got, want); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// Once prompts of a few lengths have run, prompts of other lengths allocate no device
// memory.
func TestPromptLengths(t *testing.T) {
	seed := testSeed(t)
	f := openFile(t, tinyllama.Options{Layers: 1, Embedding: 16, Heads: 2, KVHeads: 1, FeedForward: 48, Context: 512})
	for i := range uint64(3) {
		rng := rand.New(rand.NewPCG(seed, i))
		r := openRig(t, discrete.Options{})
		m := r.openModel(t, f)
		run := func(n int) {
			t.Helper()
			prompt := make([]int32, n)
			for i := range prompt {
				prompt[i] = int32(260 + i%9)
			}
			if _, err := generate(m, prompt, 2); err != nil {
				t.Fatal(err)
			}
		}
		longest := 100 + rng.IntN(50)
		warm := []int{1 + rng.IntN(10), 10 + rng.IntN(20), 30 + rng.IntN(40), longest}
		rng.Shuffle(len(warm), func(i, j int) { warm[i], warm[j] = warm[j], warm[i] })
		for _, n := range warm {
			run(n)
		}
		before := r.dev.Stats()
		var lengths []int
		for range 12 {
			lengths = append(lengths, 1+rng.IntN(longest-1))
			run(lengths[len(lengths)-1])
		}
		if s := r.dev.Stats(); s.Allocs != before.Allocs || s.Frees != before.Frees {
			t.Errorf("after prompts of %d tokens, those of %d need %d allocations", warm, lengths, s.Allocs-before.Allocs)
		}
	}
}

// An engine and its contexts use no queues or memory of the device before the first op that
// runs there.
func TestDeviceIsTouchedLate(t *testing.T) {
	b := newBench(t, discrete.Options{})
	want := func(what string, queues, pinned int64) {
		t.Helper()
		if s := b.dev.Stats(); s.LiveQueues != queues || (s.PinnedBytes != 0) != (pinned != 0) || s.Allocs != 0 && queues == 0 {
			t.Errorf("%s: %+v, want %d queues", what, s, queues)
		}
	}
	want("contexts", 0, 0)
	x := b.vector(b.a, 16, 1)
	want("a tensor", 0, 0)
	y := b.must(b.a.Do(op.Add, nil, x, x))
	want("an op", 2, 1) // compute and upload
	pinned := b.dev.Stats().PinnedBytes
	if err := y.Buffer().ReadAt(context.Background(), make([]byte, 4), 0); err != nil {
		t.Fatal(err)
	}
	want("a read", 3, 1)
	if s := b.dev.Stats(); s.PinnedBytes != 2*pinned {
		t.Errorf("%d pinned bytes with both directions, %d with one", s.PinnedBytes, pinned)
	}
	release(x, y)
	b.close()
}

// An engine that is opened eagerly has its transfer queues and staging memory. If they cannot
// be allocated, the opening fails and leaves nothing open.
func TestEagerEngine(t *testing.T) {
	for _, closed := range []bool{false, true} {
		host, err := cpu.New(cpu.Options{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		dev, err := discrete.New(discrete.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if closed {
			if err := dev.Close(); err != nil {
				t.Fatal(err)
			}
		}
		eng, err := exec.Open(exec.Options{CPU: host, Device: dev, Eager: true})
		if closed {
			if !errors.Is(err, provider.ErrClosed) {
				t.Errorf("eager engine on a closed device: %v", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if s := dev.Stats(); s.LiveQueues != 2 || s.PinnedBytes == 0 {
			t.Errorf("eager engine: %+v, want two queues and pinned memory", s)
		}
		if err := eng.Close(); err != nil {
			t.Error(err)
		}
		if s := dev.Stats(); s.LiveQueues != 0 || s.PinnedBytes != 0 {
			t.Errorf("after close: %+v", s)
		}
	}
}

// BorrowOptions.Cold of a weight runs each time that a device has taken a copy of the bytes,
// and not for other operands.
func TestColdAfterAdoption(t *testing.T) {
	const n = 16
	b := newBench(t, discrete.Options{})
	cold := 0
	lend := func(stable bool) *tensor.Tensor {
		values := slices.Repeat([]float32{1}, n*n)
		buf := storage.Borrow(unsafe.Slice((*byte)(unsafe.Pointer(&values[0])), 4*len(values)),
			storage.BorrowOptions{ReadOnly: true, Cold: func() { cold++ }})
		if stable {
			buf.MarkStable()
		}
		return b.must(tensor.FromBuffer(buf, dtype.F32, shape.Must(n, n)))
	}
	x, w := lend(false), lend(true)
	for range 2 {
		release(b.must(b.a.Do(op.MatMul, nil, x, w)))
	}
	if cold != 1 {
		t.Errorf("told %d times of one adopted weight", cold)
	}
	within(t, "sync", func() error { return b.dev.Sync(context.Background()) })
	if !w.Buffer().DropDevice() {
		t.Fatal("the weight was not dropped")
	}
	release(b.must(b.a.Do(op.MatMul, nil, x, w)))
	if cold != 2 {
		t.Errorf("told %d times of a weight that was adopted twice", cold)
	}
	release(x, w)
	b.close()
}

// An op whose context ends does not wait for memory that a busy device holds.
func TestCancelUnderPressure(t *testing.T) {
	const n = 1024 // 4 KiB
	b := newBench(t, discrete.Options{Ring: deepRing, MemoryBytes: 16 << 10})
	x := b.vector(b.a, n, 1)
	y := b.must(b.a.Do(op.Add, nil, x, x))
	z := b.must(b.a.Do(op.Add, nil, y, x))
	half := b.must(z.Narrow(0, 0, n/2))
	b.read("z", z, 3)
	b.dev.Hold()
	release(b.must(b.a.Do(op.Add, nil, half, half))) // keeps half of the last 4 KiB in use
	ctx, cancel := context.WithCancel(context.Background())
	b.a.SetCancel(ctx)
	result := make(chan error, 1)
	go func() {
		r, err := b.a.Do(op.Add, nil, z, y)
		if err == nil {
			r.Release()
		}
		result <- err
	}()
	cancel()
	within(t, "op with a context that ends", func() error {
		if err := <-result; !errors.Is(err, context.Canceled) {
			return fmt.Errorf("error %w, want the context's", err)
		}
		return nil
	})
	within(t, "op with a context that has ended", func() error {
		if _, err := b.a.Do(op.Add, nil, z, y); !errors.Is(err, context.Canceled) {
			return fmt.Errorf("error %w, want the context's", err)
		}
		return nil
	})
	b.a.SetCancel(context.Background())
	b.dev.Release()
	release(x, y, z, half)
	b.close()
}

// An op that needs more memory than there can be evicts no weight, however often it is tried.
func TestTooLargeEvictsNothing(t *testing.T) {
	const n = 64
	b := newBench(t, discrete.Options{MemoryBytes: 64 << 10})
	x := b.vector(b.a, n, 1)
	w := b.weight(n, 1, nil) // 16 KiB
	release(b.must(b.a.Do(op.MatMul, nil, x, w)))
	one := b.vector(b.a, 1, 1)
	uploads := b.dev.Stats().Uploads
	for _, size := range []int{math.MaxInt >> 13, math.MaxInt / 4, 1 << 14} { // the last one is the whole memory
		v := b.must(one.BroadcastTo(shape.Must(size)))
		for range 3 {
			y, err := b.a.Do(op.Copy, &op.Params{To: v.DType()}, v)
			if err == nil {
				y.Release()
			} else if !errors.Is(err, accel.ErrOutOfMemory) {
				t.Errorf("%d elements: %v", size, err)
			}
		}
		v.Release()
	}
	release(b.must(b.a.Do(op.MatMul, nil, x, w)))
	if s := b.eng.Residency(); s.Evictions != 0 {
		t.Errorf("%d weights were evicted", s.Evictions)
	}
	if s := b.dev.Stats(); s.Uploads > uploads+1 { // one upload is allowed
		t.Errorf("%d uploads, want that of one value", s.Uploads-uploads)
	}
	release(x, w, one)
	b.close()
}

// spy is a device that records its queues.
type spy struct {
	*discrete.Device
	queues map[provider.QueueKind][]provider.Queue
}

func newSpy(t testing.TB) *spy {
	t.Helper()
	dev, err := discrete.New(discrete.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &spy{dev, make(map[provider.QueueKind][]provider.Queue)}
}

func (s *spy) NewQueue(kind provider.QueueKind) (provider.Queue, error) {
	q, err := s.Device.NewQueue(kind)
	s.queues[kind] = append(s.queues[kind], q)
	return q, err
}

// A read of a value that is ready does not wait for the work of another context, even if a
// value of that context is being read too.
func TestReadsDoNotQueueUp(t *testing.T) {
	d := newSpy(t)
	host, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	eng, err := exec.Open(exec.Options{CPU: host, Device: d})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, dev: d.Device, eng: eng}
	var x, y [2]*tensor.Tensor
	contexts := []**exec.Queue{&b.a, &b.b}
	for i, c := range contexts {
		if *c, err = eng.NewQueue(); err != nil {
			t.Fatal(err)
		}
		one := b.vector(*c, 4, 1)
		x[i] = b.must((*c).Do(op.Add, nil, one, one))
		b.read("x", x[i], 2)
		one.Release()
	}
	d.Hold()
	for i, c := range contexts {
		y[i] = b.must((*c).Do(op.Mul, nil, x[i], x[i]))
	}
	fast := d.queues[provider.Compute][1]
	d.Step(fast, 1)
	within(t, "the fast context", func() error { return fast.Timeline().Last().Wait(context.Background()) })
	slow := make(chan error, 1)
	go func() { slow <- y[0].Buffer().ReadAt(context.Background(), make([]byte, 4), 0) }()
	for range 1000 { // a read that did not wait would be submitted within these yields
		runtime.Gosched()
	}
	d.Step(d.queues[provider.DownloadQueue][0], 1)
	within(t, "read of what is ready", func() error {
		return y[1].Buffer().ReadAt(context.Background(), make([]byte, 4), 0)
	})
	select {
	case err := <-slow:
		t.Errorf("read of what is not ready returned: %v", err)
	default:
	}
	d.Release()
	within(t, "read of the slow context", func() error { return <-slow })
	release(x[:]...)
	release(y[:]...)
	within(t, "close", func() error { return errors.Join(b.a.Close(), b.b.Close(), eng.Close()) })
}
