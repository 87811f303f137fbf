//go:build accel

package device

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/core/storage"
	"github.com/fucina-go/fucina/core/tensor"
	"github.com/fucina-go/fucina/exec"
	"github.com/fucina-go/fucina/internal/offheap"
	"github.com/fucina-go/fucina/internal/sim/discrete"
	"github.com/fucina-go/fucina/providers/cpu"
	"github.com/fucina-go/fucina/tests/countdown"
	"github.com/fucina-go/fucina/tests/harness"
	"github.com/fucina-go/fucina/tests/leak"
)

// bench is an engine with two queues. Its tensors have no named axes, so that tests can
// access their buffers.
type bench struct {
	t      testing.TB
	dev    *discrete.Device
	eng    *exec.Engine
	a, b   *exec.Queue
	before leak.Counts
}

// deepRing is so long that a test that holds the device does not fill a queue.
const deepRing = 1 << 10

func newBench(t testing.TB, opt discrete.Options) *bench {
	t.Helper()
	b := &bench{t: t, before: leak.Now()}
	host, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	if b.dev, err = discrete.New(opt); err != nil {
		t.Fatal(err)
	}
	if b.eng, err = exec.Open(exec.Options{CPU: host, Device: b.dev, DeviceBudget: 1 << 40}); err != nil {
		t.Fatal(err)
	}
	if b.a, err = b.eng.NewQueue(); err != nil {
		t.Fatal(err)
	}
	if b.b, err = b.eng.NewQueue(); err != nil {
		t.Fatal(err)
	}
	return b
}

// close closes the engine and checks that nothing is left.
func (b *bench) close() {
	b.t.Helper()
	within(b.t, "close", func() error { return errors.Join(b.a.Close(), b.b.Close(), b.eng.Close()) })
	if s := b.eng.Stats(); s.Pool.Outstanding != 0 || s.Pool.Cached != 0 {
		b.t.Errorf("after close: pool %+v", s.Pool)
	}
	if s := b.eng.Residency(); s != (residencyStats{Evictions: s.Evictions}) {
		b.t.Errorf("after close: residency %+v", s)
	}
	if err := harness.LeftOn(b.dev.Stats()); err != nil {
		b.t.Error("after close:", err)
	}
	if h := b.dev.Hazards(); h != nil {
		b.t.Errorf("hazards: %q", h)
	}
	if err := b.before.Left(); err != nil {
		b.t.Error("after close:", err)
	}
}

// must returns the tensor of a call. It fails the test if err is not nil.
func (b *bench) must(t tensor.Tensor, err error) *tensor.Tensor {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
	return &t
}

// vector returns a host tensor of n elements of value v.
func (b *bench) vector(c *exec.Queue, n int, v float32) *tensor.Tensor {
	b.t.Helper()
	return b.must(exec.FromSlice(c, shape.Must(n), slices.Repeat([]float32{v}, n)))
}

// weight returns a stable tensor [n, n] over lent bytes of value v.
func (b *bench) weight(n int, v float32, onRelease func()) *tensor.Tensor {
	b.t.Helper()
	values := slices.Repeat([]float32{v}, n*n)
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(&values[0])), 4*len(values))
	buf := storage.Borrow(bytes, storage.BorrowOptions{ReadOnly: true, OnRelease: onRelease})
	buf.MarkStable()
	return b.must(tensor.FromBuffer(buf, dtype.F32, shape.Must(n, n)))
}

// read checks that every element of x is v.
func (b *bench) read(what string, x *tensor.Tensor, v float32) {
	b.t.Helper()
	p, err := tensor.Data[float32](context.Background(), x, storage.Read)
	if err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
	for i, got := range p {
		if got != v {
			b.t.Errorf("%s: element %d is %v, want %v", what, i, got, v)
			return
		}
	}
}

func release(list ...*tensor.Tensor) {
	for _, x := range list {
		x.Release()
	}
}

// pending reports whether the device has work that has not ended.
func (b *bench) pending() bool {
	return errors.Is(b.dev.Sync(countdown.Cancelled()), context.Canceled)
}

// Release does not wait for the device. The test releases the result of an op, an operand, an
// uploaded tensor, a tensor with a cancelled download, a value that two queues use, and lent
// bytes after their upload.
func TestReleaseNeverWaits(t *testing.T) {
	b := newBench(t, discrete.Options{Ring: deepRing})
	const n = 256
	warm := b.vector(b.a, n, 1)
	ended, read := b.must(b.a.Do(op.Add, nil, warm, warm)), b.must(b.a.Do(op.Mul, nil, warm, warm))
	within(t, "warm up", func() error { return b.dev.Sync(context.Background()) })

	b.dev.Hold()
	returned := 0
	w := b.weight(n, 0.5, func() { returned++ })
	x := b.vector(b.a, n, 1)
	y := b.must(b.a.Do(op.Add, nil, x, x))    // on queue a
	z := b.must(b.b.Do(op.Mul, nil, y, x))    // on queue b, after a
	u := b.must(b.a.Do(op.Add, nil, z, y))    // on queue a, after b
	v := b.must(b.a.Do(op.MatMul, nil, u, w)) // with lent bytes
	view := b.must(v.Narrow(0, 3, 7))         // a second owner
	within(t, "cancelled reads", func() error {
		if _, err := y.Bytes(countdown.Cancelled(), storage.Read); !errors.Is(err, context.Canceled) {
			return fmt.Errorf("host access of a pending result: %w", err)
		}
		if _, err := ended.Bytes(countdown.Cancelled(), storage.Read); !errors.Is(err, context.Canceled) {
			return fmt.Errorf("host access that needs a download: %w", err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			for b.dev.Events().Downloads < 2 { // until the copy is enqueued
				runtime.Gosched()
			}
			cancel()
		}()
		if err := read.Buffer().ReadAt(ctx, make([]byte, 8), 4); !errors.Is(err, context.Canceled) {
			return fmt.Errorf("ranged read that needs a copy: %w", err)
		}
		return nil
	})
	within(t, "release", func() error {
		release(w, x, y, z, u, v, view, warm, ended, read)
		return nil
	})
	if !b.pending() {
		t.Error("the device made progress, so that nothing was shown")
	}
	if returned != 1 {
		t.Errorf("the loan ended %d times", returned)
	}
	if s := b.eng.Residency(); s.Retired != 1 || s.UsedBlocks != 0 {
		t.Errorf("after the releases: %+v, want one retired host block and no block in use", s)
	}
	if s := b.eng.Stats(); s.Pool.Outstanding != 0 {
		t.Errorf("after the releases: pool %+v", s.Pool)
	}

	b.dev.Release()
	within(t, "catching up", func() error { return b.dev.Sync(context.Background()) })
	if s := b.eng.Residency(); s.Retired != 0 || s.Quarantined != 0 {
		t.Errorf("after the device caught up: %+v", s)
	}
	b.close()
}

// The last release of lent bytes waits for a download that still fills them, because the
// lender may use the bytes once it returns.
func TestReleaseOfFilledLoanWaits(t *testing.T) {
	b := newBench(t, discrete.Options{Ring: deepRing})
	values := make([]float32, 64)
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(&values[0])), 4*len(values))
	mine := false
	buf := storage.Borrow(bytes, storage.BorrowOptions{OnRelease: func() { mine = true }})
	dst := b.must(tensor.FromBuffer(buf, dtype.F32, shape.Must(len(values))))
	src := b.vector(b.a, len(values), 3)
	twice := b.must(b.a.Do(op.Add, nil, src, src))
	within(t, "copy", func() error {
		return errors.Join(b.a.DoInto(op.Copy, nil, dst, twice), b.dev.Sync(context.Background()))
	})
	b.dev.Hold()
	if _, err := dst.Bytes(countdown.Cancelled(), storage.Read); !errors.Is(err, context.Canceled) {
		t.Fatalf("host access that needs a download: %v", err)
	}
	done := make(chan struct{})
	go func() {
		dst.Release()
		close(done)
	}()
	for range 1000 { // a release that did not wait would return within these yields
		select {
		case <-done:
			t.Fatal("released while a download fills the bytes")
		default:
			runtime.Gosched()
		}
	}
	b.dev.Release()
	within(t, "release", func() error { <-done; return nil })
	if !mine || values[0] != 6 || values[63] != 6 {
		t.Errorf("the loan ended: %v, with %v", mine, values)
	}
	release(src, twice)
	b.close()
}

// A device result has no host memory before the first host access, and a ranged read does
// not allocate it.
func TestNoHostMemoryBeforeRead(t *testing.T) {
	b := newBench(t, discrete.Options{Chaos: discrete.Yields})
	x := b.vector(b.a, 1000, 2)
	before := offheap.Stats()
	y := b.must(b.a.Do(op.Add, nil, x, x))
	z := b.must(b.a.Do(op.Mul, nil, y, y))
	var part [16]byte
	if err := z.Buffer().ReadAt(context.Background(), part[:], 400); err != nil {
		t.Fatal(err)
	}
	if v, err := storage.Elements[float32](part[:]); err != nil || v[0] != 16 || v[3] != 16 {
		t.Errorf("part %v, %v", v, err)
	}
	if y.Buffer().HasHost() || z.Buffer().HasHost() {
		t.Error("a device result has host memory")
	}
	if after := offheap.Stats(); after.Allocs != before.Allocs {
		t.Errorf("%d host allocations for results on the device", after.Allocs-before.Allocs)
	}
	if !z.Buffer().NewestOnDevice() {
		t.Error("a read of a part moved the newest bytes")
	}
	b.read("z", z, 16)
	if !z.Buffer().HasHost() || y.Buffer().HasHost() {
		t.Error("reading z is about z's memory")
	}
	if after := offheap.Stats(); after.Allocs != before.Allocs+1 {
		t.Errorf("%d host allocations for one value read", after.Allocs-before.Allocs)
	}
	release(x, y, z)
	b.close()
}

// The source of an upload may be released, and its memory reused, right after the call,
// because the copy does not read it later.
func TestUploadSourceReused(t *testing.T) {
	b := newBench(t, discrete.Options{Ring: deepRing})
	b.dev.Hold()
	x := b.vector(b.a, 512, 1)
	p, err := x.Bytes(context.Background(), storage.Read)
	if err != nil {
		t.Fatal(err)
	}
	y := b.must(b.a.Do(op.Add, nil, x, x))
	x.Release()
	other := b.vector(b.a, 512, 99)
	q, err := other.Bytes(context.Background(), storage.Read)
	if err != nil {
		t.Fatal(err)
	}
	if &p[0] != &q[0] {
		t.Error("the pool did not reuse the memory, so that nothing was shown")
	}
	b.dev.Release()
	b.read("sum", y, 2)
	release(y, other)
	b.close()
}

// The operands of a submitted copy may be released before it executes.
func TestReleaseAfterSubmit(t *testing.T) {
	b := newBench(t, discrete.Options{Ring: deepRing})
	x := b.vector(b.a, 300, 1)
	cache := b.must(b.eng.Empty(dtype.F32, shape.Must(2, 300)))
	b.dev.Hold()
	for row := range 2 {
		y := b.must(b.a.Do(op.Add, nil, x, x))
		if row == 1 {
			y2 := b.must(b.a.Do(op.Add, nil, y, x))
			y.Release()
			y = y2
		}
		dst := b.must(cache.Narrow(0, row, 1))
		flat := b.must(dst.Reshape(shape.Must(300)))
		if err := b.a.DoInto(op.Copy, nil, flat, y); err != nil {
			t.Fatal(err)
		}
		release(y, dst, flat)
		// A value that reuses the memory of y on the same queue is written after the copy.
		release(b.must(b.a.Do(op.Mul, nil, x, x)))
	}
	b.dev.Release()
	for row, want := range []float32{2, 3} {
		r := b.must(cache.Narrow(0, row, 1))
		b.read(fmt.Sprintf("row %d", row), r, want)
		r.Release()
	}
	release(x, cache)
	b.close()
}

// Released memory that a queue still uses is reused at once by that queue. Another queue
// does not reuse it while there is other memory.
func TestReuseAcrossQueues(t *testing.T) {
	b := newBench(t, discrete.Options{Ring: deepRing})
	const n = 2048
	x := b.vector(b.a, n, 1)
	release(b.must(b.a.Do(op.Add, nil, x, x)), b.must(b.b.Do(op.Add, nil, x, x)))
	within(t, "warm up", func() error { return b.dev.Sync(context.Background()) })
	b.dev.Hold()
	before := b.dev.Stats().Allocs
	y := b.must(b.a.Do(op.Add, nil, x, x))
	first := mem(y)
	y.Release()
	y = b.must(b.a.Do(op.Mul, nil, x, x))
	if mem(y) != first || b.dev.Stats().Allocs != before {
		t.Errorf("the same queue did not reuse the block: %v then %v", first, mem(y))
	}
	y.Release()
	z := b.must(b.b.Do(op.Add, nil, x, x))
	if mem(z) == first {
		t.Error("another queue took a block that is in use")
	}
	b.dev.Release()
	b.read("z", z, 2)
	release(x, z)
	b.close()
}

func mem(t *tensor.Tensor) accel.Memory { return t.Buffer().DeviceMemory() }

// An operand that is uploaded gets unused memory, and not that of released results that the
// device has not computed yet, so that the caller does not wait for the device.
func TestUploadsDoNotWaitForResults(t *testing.T) {
	b := newBench(t, discrete.Options{Ring: deepRing})
	warm := b.vector(b.a, 100, 1)
	release(b.must(b.a.Do(op.Add, nil, warm, warm)), warm)
	within(t, "warm up", func() error { return b.dev.Sync(context.Background()) })

	b.dev.Hold()
	var last *tensor.Tensor
	within(t, "operations on new operands", func() error {
		for i := range 4 {
			x := b.vector(b.a, 100, float32(i))
			y := b.must(b.a.Do(op.Add, nil, x, x))
			z := b.must(b.b.Do(op.Mul, nil, y, y))
			if last != nil {
				release(last)
			}
			last = b.must(b.a.Do(op.Add, nil, z, y))
			release(x, y, z)
		}
		return nil
	})
	if !b.pending() {
		t.Error("the device made progress, so that nothing was shown")
	}
	b.dev.Release()
	b.read("the last result", last, 42)
	release(last)
	b.close()
}
