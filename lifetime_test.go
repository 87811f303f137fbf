package fucina_test

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/core/storage"
	"github.com/fucina-go/fucina/internal/offheap"
	"github.com/fucina-go/fucina/providers/cpu"
)

// inContext returns every operation that takes a context, and fails for x, which is
// a vector along "d", whatever its operand y is.
func inContext(c *fucina.Context, x, y fucina.Tensor) map[string]func() error {
	one := func(_ fucina.Tensor, err error) error { return err }
	attention := func(q, k, v fucina.Tensor) error {
		return one(fucina.Attention(c, q, k, v, fucina.AttentionOptions{}))
	}
	return map[string]func() error{
		"add":            func() error { return one(x.Add(c, y)) },
		"add, right":     func() error { return one(y.Add(c, x)) },
		"mul":            func() error { return one(x.Mul(c, y)) },
		"swiglu":         func() error { return one(x.SwiGLU(c, y)) },
		"geglu":          func() error { return one(y.GeGLU(c, x)) },
		"scale":          func() error { return one(x.Scale(c, 1)) },
		"soft_cap":       func() error { return one(x.SoftCap(c, 1)) },
		"dot":            func() error { return one(x.Dot(c, y, "d")) },
		"dot, right":     func() error { return one(y.Dot(c, x, "d")) },
		"rms_norm":       func() error { return one(y.RMSNorm(c, x, "d", 1)) },
		"softmax":        func() error { return one(x.Softmax(c, "d", 1)) },
		"argmax":         func() error { return one(x.Argmax(c, "d")) },
		"get_rows":       func() error { return one(y.GetRows(c, x, "d")) },
		"rope":           func() error { return one(y.RoPE(c, x, fucina.RoPENeoX, "d", "e")) },
		"attention":      func() error { return attention(x, y, y) },
		"attention, k":   func() error { return attention(y, x, y) },
		"attention, v":   func() error { return attention(y, y, x) },
		"to":             func() error { return one(x.To(c, dtype.F16)) },
		"copy":           func() error { return one(x.Materialize(c)) },
		"copy from":      func() error { return x.CopyFrom(c, y) },
		"copy from, src": func() error { return y.CopyFrom(c, x) },
		"narrow":         func() error { return one(x.Narrow(c, "d", 0, 1)) },
		"rename":         func() error { return one(x.Rename(c, "d", "e")) },
		"permute":        func() error { return one(x.Permute(c, "d")) },
		"split":          func() error { return one(x.Split(c, "d", fucina.Ax("d", 3))) },
		"merge":          func() error { return one(x.Merge(c, "d", "d")) },
		"broadcast":      func() error { return one(x.BroadcastTo(c, fucina.Ax("d", 3))) },
	}
}

// A released tensor is never someone else's: its header serves another tensor, and
// the stale copy is still refused everywhere.
func TestStaleHandles(t *testing.T) {
	c, end := open(t)
	k := check{t}
	x := numbered(t, c, "d:3")
	drop(t, x)
	y := numbered(t, c, "d:3") // reuses the header
	ops := inContext(c, x, y)
	for name, op := range map[string]func() error{
		"data":      func() error { _, err := fucina.Data[float32](x); return err },
		"update":    func() error { return fucina.Update(x, notCalled[float32](t)) },
		"read":      func() error { return fucina.Read(x, notCalled[float32](t)) },
		"read into": func() error { return fucina.ReadInto(t.Context(), x, make([]float32, 3)) },
		"dim":       func() error { _, err := x.Dim("d"); return err },
		"raw":       func() error { _, err := x.AsRaw(); return err },
		"release":   func() error { return x.Release() },
		"zero":      func() error { return fucina.Tensor{}.Release() },
		"replace":   func() error { stale := x; return fucina.Replace(&stale, y, nil) },
	} {
		ops[name] = op
	}
	for name, op := range ops {
		if err := op(); !errors.Is(err, fucina.ErrReleased) {
			t.Errorf("%s of a released tensor: %v", name, err)
		}
	}
	if x.Valid() || x.DType() != dtype.Invalid || x.Axes() != nil || x.Len() != 0 || x.String() != "released tensor" {
		t.Errorf("released tensor describes itself as %v", x)
	}
	if !y.Valid() || y.Len() != 3 || x == y {
		t.Error("the new tensor suffered")
	}
	want(t, c, y, "f32 {d:3}", []float32{1, 2, 3})
	drop(t, k.of(y.Rename(c, "d", "e")), y)
	end()
}

// Replace keeps the old value when there is no new one.
func TestReplace(t *testing.T) {
	c, end := open(t)
	x, bad := numbered(t, c, "d:3"), numbered(t, c, "d:2")
	old := x
	y, err := x.Add(c, bad)
	if got := fucina.Replace(&x, y, err); got != err || !errors.Is(got, fucina.ErrShapeMismatch) {
		t.Errorf("got %v, want %v", got, err)
	}
	if x != old || !x.Valid() {
		t.Error("the old value is gone")
	}
	y, err = x.Add(c, x)
	if err := fucina.Replace(&x, y, err); err != nil {
		t.Error(err)
	}
	if old.Valid() || x != y {
		t.Error("the old value stayed")
	}
	if err := fucina.Replace(&x, x, nil); err != nil || !x.Valid() {
		t.Errorf("replaced by itself: %v", err)
	}
	var first fucina.Tensor
	if err := fucina.Replace(&first, x, nil); err != nil || first != x {
		t.Errorf("replaced the zero tensor: %v", err)
	}
	drop(t, x, bad)
	end()
}

// Guards this fault: an operation that returns its input makes the pool get a buffer
// twice. Every operation that might changes nothing here, and its result is
// released on its own.
func TestResultsAreDistinct(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		x := numbered(t, c, "d:4")
		for name, op := range map[string]func() (fucina.Tensor, error){
			"to":        func() (fucina.Tensor, error) { return x.To(c, dtype.F32) },
			"copy":      func() (fucina.Tensor, error) { return x.Materialize(c) },
			"narrow":    func() (fucina.Tensor, error) { return x.Narrow(c, "d", 0, 4) },
			"rename":    func() (fucina.Tensor, error) { return x.Rename(c, "d", "d") },
			"permute":   func() (fucina.Tensor, error) { return x.Permute(c, "d") },
			"split":     func() (fucina.Tensor, error) { return x.Split(c, "d", fucina.Ax("d", 4)) },
			"merge":     func() (fucina.Tensor, error) { return x.Merge(c, "d", "d") },
			"broadcast": func() (fucina.Tensor, error) { return x.BroadcastTo(c, fucina.Ax("d", 4)) },
		} {
			before := c.Engine().Stats().Pool.Outstanding
			y, err := op()
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if y == x {
				t.Errorf("%s returned its input", name)
			}
			want(t, c, y, "f32 {d:4}", []float32{1, 2, 3, 4})
			drop(t, y)
			if err := y.Release(); !errors.Is(err, fucina.ErrReleased) {
				t.Errorf("%s: second release: %v", name, err)
			}
			if n := c.Engine().Stats().Pool.Outstanding; n != before {
				t.Errorf("%s: %d buffers outstanding, want %d", name, n, before)
			}
			want(t, c, x, "f32 {d:4}", []float32{1, 2, 3, 4})
		}
		drop(t, x)
	})
}

// Guards this fault: memory that no pool owns leaks when it is released into one.
func TestUnpooledMemoryIsFreed(t *testing.T) {
	c, end := open(t)
	e := c.Engine()
	step := func() {
		k := check{t}
		x := k.of(e.Empty(dtype.F32, fucina.Ax("d", 5000)))
		y := k.of(e.RoPETable(fucina.RoPE{Dims: 8, FreqBase: 10}, 1000, "seq"))
		buf, err := storage.New(20000)
		if err != nil {
			t.Fatal(err)
		}
		w := k.of(e.Weight(buf, dtype.F32, fucina.Ax("d", 5000)))
		if err := x.CopyFrom(c, w); err != nil {
			t.Fatal(err)
		}
		drop(t, x, y, w)
	}
	step()
	before := offheap.Stats().LiveBlocks
	for range 10 {
		step()
	}
	if n := offheap.Stats().LiveBlocks; n != before {
		t.Errorf("%d blocks live after ten steps, %d before", n, before)
	}

	// A failed Weight leaves the reference with the caller.
	released := false
	buf := storage.Borrow(make([]byte, 8), storage.BorrowOptions{OnRelease: func() { released = true }})
	if _, err := e.Weight(buf, dtype.F32, fucina.Ax("d", 3)); !errors.Is(err, fucina.ErrInvalidDataLength) {
		t.Errorf("weight larger than its buffer: %v", err)
	}
	if _, err := e.Weight(buf, dtype.F32, fucina.Ax("", 2)); !errors.Is(err, fucina.ErrTag) {
		t.Errorf("weight with an axis without a name: %v", err)
	}
	if released {
		t.Fatal("a failed Weight took the buffer")
	}
	w := check{t}.of(e.Weight(buf, dtype.F32, fucina.Ax("d", 2)))
	drop(t, w)
	if !released {
		t.Error("the loan did not end")
	}
	end()
}

// A chain of 32 operations lives in 2 buffers where intermediates are
// released at once, and in 32 where a scope holds them.
func TestScopeHoldsBuffers(t *testing.T) {
	chain := func(c *fucina.Context) int {
		k := check{t}
		seen := make(map[*byte]bool)
		x := k.of(fucina.FromSlice(c, make([]float32, 1<<18), fucina.Ax("d", 1<<18)))
		first := x
		for range 32 {
			y := k.of(x.Add(c, x))
			seen[fucina.Memory(y)] = true
			if x != first {
				drop(t, x)
			}
			x = y
		}
		drop(t, x, first)
		return len(seen)
	}
	c, end := open(t)
	if n := chain(c); n != 2 {
		t.Errorf("%d buffers without a scope, want 2", n)
	}
	scope, err := c.OpenScope()
	if err != nil {
		t.Fatal(err)
	}
	if n := chain(c); n != 32 {
		t.Errorf("%d buffers in a scope, want 32", n)
	}
	if err := scope.Close(); err != nil {
		t.Error(err)
	}
	if n := c.Engine().Stats().Pool.Outstanding; n != 0 {
		t.Errorf("%d buffers outstanding after the scope", n)
	}
	end()
}

// A scope releases the newest first, so that the oldest comes back first from the
// pool; closing a scope closes those inside it; closing again does nothing.
func TestScopeOrder(t *testing.T) {
	c, end := open(t)
	k := check{t}
	outer, err := c.OpenScope()
	if err != nil {
		t.Fatal(err)
	}
	a := numbered(t, c, "d:5")
	inner, err := c.OpenScope()
	if err != nil {
		t.Fatal(err)
	}
	b, view := numbered(t, c, "d:5"), k.of(a.Rename(c, "d", "e"))
	cache := k.of(c.Engine().Empty(dtype.F32, fucina.Ax("d", 5))) // no scope's
	oldest, newest := fucina.Memory(a), fucina.Memory(b)
	drop(t, a, b, view, a, b, view)
	if !a.Valid() || !b.Valid() || !view.Valid() {
		t.Fatal("Release took a tensor from its scope")
	}
	for range 2 {
		if err := outer.Close(); err != nil {
			t.Error(err)
		}
		if err := inner.Close(); err != nil {
			t.Error(err)
		}
	}
	if a.Valid() || b.Valid() || view.Valid() || !cache.Valid() {
		t.Error("Close left tensors of its scope, or took others")
	}
	x, y := numbered(t, c, "d:5"), numbered(t, c, "d:5")
	if fucina.Memory(x) != oldest || fucina.Memory(y) != newest {
		t.Error("the scope did not release the newest first")
	}
	drop(t, x, y, cache)

	// Those that are still open end with their context.
	left, err := c.OpenScope()
	if err != nil {
		t.Fatal(err)
	}
	numbered(t, c, "d:5")
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := left.Close(); err != nil {
		t.Error(err)
	}
	end()
}

func TestClosed(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		e := c.Engine()
		x := numbered(t, c, "d:2")
		other, err := e.NewContext()
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
		_, err = x.Add(c, x)
		refused(t, err, fucina.ErrClosed, "add: context is closed")
		_, err = fucina.FromSlice(c, []float32{1})
		refused(t, err, fucina.ErrClosed, "from slice: context is closed")
		_, err = c.OpenScope()
		refused(t, err, fucina.ErrClosed, "open scope: context is closed")
		y := check{t}.of(x.Add(other, x)) // tensors belong to no context

		refused(t, e.Close(), fucina.ErrLeak, "2 of them")
		for _, z := range []fucina.Tensor{x, y} {
			if !z.Valid() || z.String() != "f32 {d:2}" {
				t.Errorf("after the engine's Close: %v", z)
			}
			for name, op := range inContext(other, z, z) {
				name, _, _ = strings.Cut(name, ",")
				refused(t, op(), fucina.ErrClosed, name+": "+e.String()+" is closed")
			}
			_, err := fucina.Data[float32](z)
			for what, err := range map[string]error{
				"data":         err,
				"read":         fucina.Read(z, notCalled[float32](t)),
				"update":       fucina.Update(z, notCalled[float32](t)),
				"read: engine": fucina.ReadInto(t.Context(), z, make([]float32, 2)),
			} {
				refused(t, err, fucina.ErrClosed, what, e.String()+" is closed")
			}
		}
		_, err = e.NewContext()
		refused(t, err, fucina.ErrClosed, "new context: "+e.String())
		_, err = other.OpenScope()
		refused(t, err, fucina.ErrClosed, "open scope: "+e.String())
		_, err = fucina.FromSlice(other, []float32{1})
		refused(t, err, fucina.ErrClosed, "from slice: "+e.String())
		_, err = e.Empty(dtype.F32, fucina.Ax("d", 2))
		refused(t, err, fucina.ErrClosed, "empty {d:2}")
		_, err = e.RoPETable(fucina.RoPE{Dims: 2, FreqBase: 10000}, 2, "pos")
		refused(t, err, fucina.ErrClosed, "rope table")
		buf := storage.Borrow(make([]byte, 8), storage.BorrowOptions{})
		_, err = e.Weight(buf, dtype.F32, fucina.Ax("d", 2))
		refused(t, err, fucina.ErrClosed, "weight {d:2}")
		buf.Release() // still ours
		drop(t, x, y)
		if err := errors.Join(other.Close(), e.Close()); err != nil {
			t.Error(err)
		}
	})
}

// A provider that is closed under a call answers with its own error, which is ErrClosed
// too.
func TestProviderClosed(t *testing.T) {
	p, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = p.NewQueue(provider.Compute)
	refused(t, err, fucina.ErrClosed)
}

// Close reports what was not released, and its release still frees it.
func TestLeakReport(t *testing.T) {
	e, err := fucina.Open(fucina.WithProvider("cpu"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := e.NewContext()
	if err != nil {
		t.Fatal(err)
	}
	before := offheap.Stats().LiveBlocks
	x, y := numbered(t, c, "d:2"), check{t}.of(e.Empty(dtype.F32, fucina.Ax("d", 2)))
	if err := y.CopyFrom(c, x); err != nil {
		t.Fatal(err)
	}
	refused(t, e.Close(), fucina.ErrLeak, "2 of them", "1 buffers of the pool")
	if err := e.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	drop(t, x, y)
	if n := offheap.Stats().LiveBlocks; n > before {
		t.Errorf("%d blocks live, %d before", n, before)
	}
}

// Goroutines with contexts of their own share an engine; those that share a context
// are refused, and nothing else happens.
func TestGoroutines(t *testing.T) {
	c, end := open(t)
	e := c.Engine()
	x := numbered(t, c, "d:64")
	var wg sync.WaitGroup
	var worked atomic.Int64
	for i := range 4 {
		own := c
		if i >= 2 {
			var err error
			if own, err = e.NewContext(); err != nil {
				t.Fatal(err)
			}
		}
		wg.Go(func() {
			for range 200 {
				y, err := x.Add(own, x)
				if err == nil {
					worked.Add(1)
					err = y.Release()
				} else if own == c && errors.Is(err, fucina.ErrBusy) {
					err = nil
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if n := worked.Load(); n < 400 {
		t.Errorf("%d operations worked, want those of the contexts of their own at least", n)
	}
	drop(t, x)
	end()
}
