//go:build accel

package device

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/storage"
	"github.com/fucina-go/fucina/internal/invariants"
	"github.com/fucina-go/fucina/internal/sim/discrete"
)

// failNext makes the next submitted operation fail when it executes.
func (r *rig) failNext(t testing.TB) {
	t.Helper()
	if err := r.dev.Inject(discrete.Fault{Kind: discrete.SubmitAsync, Nth: 1}); err != nil {
		t.Fatal(err)
	}
}

// If an operation that reads a value fails, the next writer of the value, on another queue,
// does not fail: it only waits for the operation.
func TestFailedReaderFailsNoWriter(t *testing.T) {
	for _, write := range []string{"the whole", "a part"} {
		t.Run(write, func(t *testing.T) {
			r := openRig(t, discrete.Options{Ring: deepRing})
			a, b := r.context(t), r.context(t)
			d := fucina.Ax("d", 4)
			y := fucina.FromSlice(a, []float32{1, 2, 3, 4}, d).Scale(2)
			fresh := fucina.FromSlice(b, []float32{9, 9, 9, 9}, d).Scale(2)
			numbers(t, "y", y)
			numbers(t, "fresh", fresh)
			want := []float32{18, 18, 18, 18}
			dst, src := y.On(b), fresh
			if write == "a part" {
				want = []float32{2, 18, 18, 8}
				dst, src = dst.Narrow("d", 1, 2), src.Narrow("d", 0, 2)
			}
			r.dev.Hold()
			r.failNext(t)
			failed := y.Mul(y)
			if err := dst.CopyFrom(src).Err(); err != nil {
				t.Fatal(err)
			}
			other := fresh.Add(fresh)
			r.dev.Release()
			if _, err := fucina.Data[float32](failed); !errors.Is(err, fucina.ErrDeviceFailed) {
				t.Errorf("the failed reader's result: %v", err)
			}
			if p := numbers(t, "what b wrote", y); !slices.Equal(p, want) {
				t.Errorf("what b wrote is %v, want %v", p, want)
			}
			if p := numbers(t, "b's own value", other); p[0] != 36 {
				t.Errorf("b's own value is %v", p)
			}
			if p := numbers(t, "b's next value", other.Add(y.On(b))); p[1] != 54 {
				t.Errorf("b's next value is %v", p)
			}
			if s := r.eng.Stats(); s.Fallbacks != 0 || s.CPU.Ops() != 0 {
				t.Errorf("%d fallbacks and %d ops on the cpu: %s", s.Fallbacks, s.CPU.Ops(), s.LastFallback)
			}
		})
	}
}

// The memory of a failed operation's released result may be reused by another context, which
// shares nothing else with it. The values and the queue of that context do not fail.
func TestReuseOfFailedMemoryFailsNobody(t *testing.T) {
	const n = 1024 // 4 KiB each
	for _, memory := range []int64{20 << 10, 1 << 20} {
		t.Run(fmt.Sprint(memory), func(t *testing.T) {
			r := openRig(t, discrete.Options{MemoryBytes: memory, Ring: deepRing}, fucina.WithDeviceBudget(memory))
			a, b := r.context(t), r.context(t)
			ones := slices.Repeat([]float32{1}, n)
			x2 := fucina.FromSlice(a, ones, fucina.Ax("k", n)).Scale(2)
			y2 := fucina.FromSlice(b, ones, fucina.Ax("k", n)).Scale(2)
			numbers(t, "x2", x2)
			numbers(t, "y2", y2)
			r.dev.Hold()
			r.failNext(t)
			failed := x2.Add(x2) // the last of the smaller memory
			if err := failed.Err(); err != nil {
				t.Fatal(err)
			}
			failed.Release()
			done := make(chan fucina.Tensor, 1)
			go func() { done <- y2.Add(y2) }() // may wait for memory
			// Wait until b has submitted, or is taken to wait for memory.
			for i := 0; i < 1<<16 && r.dev.Stats().Submits[op.Add] < 2; i++ {
				runtime.Gosched()
			}
			r.dev.Release()
			var got fucina.Tensor
			within(t, "b", func() error { got = <-done; return nil })
			for name, y := range map[string]fucina.Tensor{"value": got, "next value": y2.Mul(y2)} {
				if p := numbers(t, "b's "+name, y); p[0] != 4 || p[n-1] != 4 {
					t.Errorf("b's %s is %v...", name, p[:4])
				}
			}
		})
	}
}

// A weight that many contexts read does not remember those that are closed.
func TestClosedContextsLeaveNoHeap(t *testing.T) {
	if invariants.RaceEnabled || invariants.Enabled {
		t.Skip("checked builds record every use")
	}
	const weights, size = 100, 8
	r := openRig(t, discrete.Options{})
	var shared []fucina.Tensor
	for range weights {
		buf, err := storage.New(4 * size * size)
		if err != nil {
			t.Fatal(err)
		}
		p, err := buf.Host(t.Context(), storage.Overwrite)
		if err != nil {
			t.Fatal(err)
		}
		clear(p)
		w, err := r.eng.Weight(buf, dtype.F32, fucina.Ax("n", size), fucina.Ax("k", size))
		if err != nil {
			t.Fatal(err)
		}
		defer w.Release()
		shared = append(shared, w)
	}
	read := func() error {
		c, err := r.eng.NewContext()
		if err != nil {
			return err
		}
		x := fucina.FromSlice(c, make([]float32, size), fucina.Ax("k", size))
		for _, w := range shared {
			x.Dot(w, "k").Release()
		}
		return c.Close()
	}
	heap := func(contexts int) int64 {
		for range contexts {
			if err := read(); err != nil {
				t.Fatal(err)
			}
		}
		var ms runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&ms)
		return int64(ms.HeapAlloc)
	}
	warm := heap(20)
	const contexts = 200
	if grown := heap(contexts) - warm; grown > contexts*200 {
		t.Errorf("the heap grew by %d bytes for each of %d closed contexts", grown/contexts, contexts)
	}
}
