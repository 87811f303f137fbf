package fucina_test

import (
	"errors"
	"fmt"
	"slices"
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
	"github.com/fucina-go/fucina/tagged"
	"github.com/fucina-go/fucina/tests/leak"
)

// inContext returns the results of every operation on x and y, vectors along "d", driven by
// c, by the name of the operation.
func inContext(c *fucina.Context, x, y fucina.Tensor) map[string]fucina.Tensor {
	x, y = x.On(c), y.On(c)
	attention := func(q, k, v fucina.Tensor) fucina.Tensor {
		return fucina.Attention(q, k, v, fucina.AttentionOptions{})
	}
	sum := func(x, y, w fucina.Tensor) fucina.Tensor {
		sum, norm := x.AddRMSNorm(y, w, "d", 1)
		if norm.Err() != sum.Err() {
			return c.Fail(errors.New("add_rms_norm: the results have different errors"))
		}
		return sum
	}
	project := func(x fucina.Tensor, m ...fucina.Projection) fucina.Tensor {
		return x.Project("d", "e", fucina.Tensor{}, m...)
	}
	gated := func(x, gate, up fucina.Tensor) fucina.Tensor {
		return x.GatedProject("d", "e", fucina.Projection{Weight: gate}, fucina.Projection{Weight: up}, fucina.SiLU)
	}
	store := func(q, k, v, table, places, cache, norm fucina.Tensor) fucina.Tensor {
		return fucina.RotateStore(q, k, v, table, places, cache, fucina.RotateStoreOptions{KeyNorm: norm})
	}
	packed := func(all, table, places, cache fucina.Tensor) fucina.Tensor {
		return fucina.RotateStore(all, fucina.Tensor{}, fucina.Tensor{}, table, places, cache, fucina.RotateStoreOptions{Packed: "d"})
	}
	return map[string]fucina.Tensor{
		"add":                        x.Add(y),
		"add, right":                 y.Add(x),
		"sub":                        x.Sub(y),
		"sub, right":                 y.Sub(x),
		"mul":                        x.Mul(y),
		"swiglu":                     x.SwiGLU(y),
		"geglu":                      y.GeGLU(x),
		"scale":                      x.Scale(1),
		"soft_cap":                   x.SoftCap(1),
		"dot":                        x.Dot(y, "d"),
		"dot, right":                 y.Dot(x, "d"),
		"rms_norm":                   y.RMSNorm(x, "d", 1),
		"softmax":                    x.Softmax("d"),
		"argmax":                     x.Argmax("d"),
		"gather":                     y.Gather(x, "d"),
		"rope":                       y.RoPE(x, fucina.RoPENeoX, "d", "e"),
		"attention":                  attention(x, y, y),
		"attention, k":               attention(y, x, y),
		"attention, v":               attention(y, y, x),
		"attention, tables":          fucina.Attention(y, y, y, fucina.AttentionOptions{Tables: x}),
		"attention, places":          fucina.Attention(y, y, y, fucina.AttentionOptions{Positions: x}),
		"add_rms_norm":               sum(x, y, y),
		"add_rms_norm, y":            sum(y, x, y),
		"add_rms_norm, w":            sum(y, y, x),
		"project":                    project(x, fucina.Projection{Weight: y}),
		"project, w":                 project(y, fucina.Projection{Weight: x}),
		"project, b":                 project(y, fucina.Projection{Weight: y}, fucina.Projection{Weight: y, Bias: x}),
		"project, residual":          y.Project("d", "e", x, fucina.Projection{Weight: y}),
		"gated_project":              gated(x, y, y),
		"gated_project, g":           gated(y, x, y),
		"gated_project, up":          gated(y, y, x),
		"rotate_store":               store(x, y, y, y, y, y, y),
		"rotate_store, v":            store(y, y, x, y, y, y, y),
		"rotate_store, to":           store(y, y, y, y, y, x, y),
		"rotate_store, w":            store(y, y, y, y, y, y, x),
		"rotate_store packed":        packed(x, y, y, y),
		"rotate_store packed, table": packed(y, x, y, y),
		"rotate_store packed, cache": packed(y, y, y, x),
		"set_rows":                   x.SetRows(y, y, "d"),
		"set_rows, x":                y.SetRows(x, y, "d"),
		"set_rows, places":           y.SetRows(y, x, "d"),
		"to":                         x.To(fucina.F16),
		"copy":                       x.Copy(),
		"copy from":                  x.CopyFrom(y),
		"copy from, src":             y.CopyFrom(x),
		"narrow":                     x.Narrow("d", 0, 1),
		"rename":                     x.Rename("d", "e"),
		"permute":                    x.Permute("d"),
		"bitcast":                    x.Bitcast(fucina.I32),
		"split":                      x.Split("d", fucina.Ax("d", 3)),
		"merge":                      x.Merge("d", "d"),
		"broadcast":                  x.BroadcastTo(fucina.Ax("d", 3)),
		"ref":                        x.Ref(),
		"contiguous":                 x.Contiguous(),
		"add, moved":                 x.Move().Add(y),
		"add, right, moved":          y.Add(x.Move()),
	}
}

// Every operation with named axes has a method, whose results inContext has by name.
func TestEveryOperation(t *testing.T) {
	c, end := open(t)
	x := numbered(c, "d:3")
	results := inContext(c, x, x)
	for o := tagged.Op(1); o < tagged.OpCount; o++ {
		if _, ok := results[o.String()]; !ok {
			t.Errorf("operation %d, %q, has no result in inContext", o, o)
		}
	}
	for name, y := range results {
		name, _, _ = strings.Cut(name, ",")
		// What cannot be done with a vector says its name.
		if err := y.Err(); err != nil && !strings.Contains(err.Error(), ": "+name+" ") && !strings.Contains(err.Error(), ": "+name+": ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	end()
}

// A Tensor whose header has been reused for another tensor is stale, and every operation on
// it fails with ErrReleased.
func TestStaleHandles(t *testing.T) {
	c, end := open(t)
	x := numbered(c, "d:3")
	drop(x, x)              // the second does nothing
	y := numbered(c, "d:3") // reuses the header
	drop(x, x.Move(), fucina.Tensor{})
	f := c.Frame()
	results := inContext(c, x, y)
	results["expect"] = x.Expect("d")
	results["shared"] = x.Shared()
	results["keep"] = f.Keep(x)
	results["zero"] = fucina.Tensor{}.On(c).Ref()
	for name, z := range results {
		refused(t, z.Err(), fucina.ErrReleased, "lifetime_test.go:")
		if z.Valid() || !strings.HasPrefix(z.String(), "failed: lifetime_test.go:") {
			t.Errorf("%s describes itself as %v", name, z)
		}
	}
	f.Close()
	_, err := fucina.Data[float32](x)
	_, raw := x.AsRaw()
	_, item := x.Float()
	for name, err := range map[string]error{
		"data": err, "raw": raw, "item": item,
		"update":   fucina.Update(x, notCalled[float32](t)),
		"read":     fucina.Read(x, notCalled[float32](t)),
		"copy out": fucina.CopyOut(x, make([]float32, 3)),
		"discard":  x.Discard(),
		"replace":  fucina.Replace(&y, x),
	} {
		if !errors.Is(err, fucina.ErrReleased) {
			t.Errorf("%s of a released tensor: %v", name, err)
		}
	}
	if n := x.Dim("d"); n != 0 {
		t.Errorf("a released tensor has %d entries", n)
	}
	refused(t, c.Err(), fucina.ErrReleased, "dim: tensor was released")
	if x.Valid() || x.DType() != dtype.Invalid || x.Axes() != nil || x.Len() != 0 || x.String() != "ended tensor" {
		t.Errorf("released tensor describes itself as %v", x)
	}
	if !y.Valid() || y.Len() != 3 || x.Same(y) {
		t.Error("the new tensor changed")
	}
	want(t, y, "f32 {d:3}", []float32{1, 2, 3})
	end()
}

// A tensor has an owner at every moment of a Keep and of a Replace. Otherwise a Release on another
// goroutine, which does nothing while a context is busy, ends it as a Shared tensor, and its memory
// is released a second time when its frame closes.
func TestReleaseWhileTheOwnerChanges(t *testing.T) {
	c, end := open(t)
	d, err := c.Engine().NewContext()
	if err != nil {
		t.Fatal(err)
	}
	names := make(chan fucina.Tensor)
	var wg sync.WaitGroup
	wg.Go(func() {
		for x := range names {
			for range 50 {
				x.Release()
			}
		}
	})
	var frames [10]fucina.Frame
	for range 10000 {
		for i := range frames {
			frames[i] = c.Frame()
		}
		x := numbered(c, "d:2")
		names <- x
		for _, f := range slices.Backward(frames[:]) {
			x = f.Keep(x)
		}
		frames[0].Close()
		y := numbered(d, "d:2")
		_ = fucina.Replace(&y, x)
		drop(x, y)
		_, _ = c.Err(), d.Err() // the other goroutine may have ended x
	}
	close(names)
	wg.Wait()
	end()
}

// If the new value has failed, Replace keeps the old value. Otherwise the new value gets the
// owner and the context of the old value.
func TestReplace(t *testing.T) {
	c, end := open(t)
	far, endFar := open(t)
	defer endFar()
	e := c.Engine()
	x := numbered(c, "d:3")
	old := x
	bad := x.Add(numbered(c, "d:2"))
	if got := fucina.Replace(&x, bad); got != bad.Err() || !errors.Is(got, fucina.ErrShapeMismatch) {
		t.Errorf("got %v, want %v", got, bad.Err())
	}
	refused(t, fucina.Replace(&x, fucina.Tensor{}), fucina.ErrReleased, "replace: the zero Tensor")
	refused(t, fucina.Replace(&x, numbered(far, "d:3")), fucina.ErrEngine, "replace: f32 {d:3} belongs to "+far.Engine().String())
	if x != old || !x.Valid() {
		t.Error("the old value is gone")
	}
	f := c.Frame()
	y := x.Add(x)
	if err := fucina.Replace(&x, y); err != nil {
		t.Error(err)
	}
	f.Close()
	if old.Valid() || !x.Same(y) || !x.Valid() {
		t.Error("the old value stayed, or the new one did not get its owner")
	}
	if err := fucina.Replace(&x, x); err != nil || !x.Valid() {
		t.Errorf("replaced by itself: %v", err)
	}
	if err := fucina.Replace(nil, x); err == nil || !strings.Contains(err.Error(), "replace: no tensor to replace") {
		t.Errorf("nothing is replaced: %v", err)
	}

	// The new value has the header of the old one, which has ended.
	ended := x.Ref()
	ended.Release()
	if y := x.Ref(); fucina.Replace(&ended, y) != nil || !ended.Same(y) {
		t.Errorf("a tensor that has ended is replaced by %v", ended)
	}

	// The old value, or none, in one context, and the new value in the same context, another
	// context or none.
	c2, err := e.NewContext()
	if err != nil {
		t.Fatal(err)
	}
	w := c.Ones(fucina.F32, ax("d:3")...).Shared()
	for _, tt := range []struct {
		name       string
		old, fresh fucina.Tensor
		same       bool            // whether the result is fresh itself
		c          *fucina.Context // the context of the result
		more       int64           // how many tensors Replace adds
	}{
		{"one of another context", x.Ref(), c2.Ones(fucina.F32), true, c, -1},
		{"a shared one", x.Ref(), w, false, c, 0},
		{"an old one that is shared", x.Ref().Shared(), c2.Ones(fucina.F32), true, nil, -1},
		{"none before", fucina.Tensor{}, c2.Ones(fucina.F32), true, c2, 0},
		{"none before a shared one", fucina.Tensor{}, w, true, nil, 0},
		{"none before a shared one that a context drives", fucina.Tensor{}, w.On(c), false, c, 1},
	} {
		before, got := e.Stats().Handles, tt.old
		if err := fucina.Replace(&got, tt.fresh); err != nil || got.Same(tt.fresh) != tt.same || got.Context() != tt.c || tt.old.Valid() || !got.Valid() || !w.Valid() {
			t.Errorf("%s: %v, %v of %v", tt.name, err, got, got.Context())
		}
		if n := e.Stats().Handles - before; n != tt.more {
			t.Errorf("%s: %d more tensors, want %d", tt.name, n, tt.more)
		}
		if tt.c == nil && !got.Same(w) {
			got.Release() // a Shared tensor has no owner that ends it
		}
	}
	if err := c2.Close(); err != nil {
		t.Error(err)
	}
	for name, closed := range map[string]*fucina.Context{"closed": c2, "zero": {}} {
		var none fucina.Tensor
		if err := fucina.Replace(&none, w.On(closed)); !errors.Is(err, fucina.ErrClosed) {
			t.Errorf("on a %s context: %v", name, err)
		}
	}
	w.Release()
	end()
}

// Guards this fault: an operation that had nothing to compute returned its input, and the
// buffer went back to the pool twice. Each result here is released by itself.
func TestResultsAreDistinct(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		x := numbered(c, "d:4")
		for name, op := range map[string]func() fucina.Tensor{
			"to":         func() fucina.Tensor { return x.To(fucina.F32) },
			"copy":       func() fucina.Tensor { return x.Copy() },
			"contiguous": func() fucina.Tensor { return x.Contiguous() },
			"ref":        func() fucina.Tensor { return x.Ref() },
			"narrow":     func() fucina.Tensor { return x.Narrow("d", 0, 4) },
			"rename":     func() fucina.Tensor { return x.Rename("d", "d") },
			"permute":    func() fucina.Tensor { return x.Permute("d") },
			"split":      func() fucina.Tensor { return x.Split("d", fucina.Ax("d", 4)) },
			"merge":      func() fucina.Tensor { return x.Merge("d", "d") },
			"bitcast":    func() fucina.Tensor { return x.Bitcast(fucina.F32) },
			"broadcast":  func() fucina.Tensor { return x.BroadcastTo(fucina.Ax("d", 4)) },
		} {
			before := c.Engine().Stats().Pool.Outstanding
			y := op()
			if y.Same(x) {
				t.Errorf("%s returned its input", name)
			}
			want(t, y, "f32 {d:4}", []float32{1, 2, 3, 4})
			drop(y, y)
			if n := c.Engine().Stats().Pool.Outstanding; n != before {
				t.Errorf("%s: %d buffers outstanding, want %d", name, n, before)
			}
			want(t, x, "f32 {d:4}", []float32{1, 2, 3, 4})
		}
	})
}

// Guards this fault: memory that no pool owns leaked when it was released into a pool.
func TestUnpooledMemoryIsFreed(t *testing.T) {
	c, end := open(t)
	e := c.Engine()
	step := func() {
		k := check{t}
		x := k.of(e.Empty(fucina.F32, fucina.Ax("d", 5000)))
		y := k.of(e.RoPETable(fucina.RoPE{Dims: 8, FreqBase: 10}, 1000, "seq"))
		buf, err := storage.New(20000)
		if err != nil {
			t.Fatal(err)
		}
		w := k.of(e.Weight(buf, fucina.F32, fucina.Ax("d", 5000)))
		if err := x.On(c).CopyFrom(w).Err(); err != nil {
			t.Fatal(err)
		}
		drop(x, y, w)
	}
	step()
	before := leak.Now()
	for range 10 {
		step()
	}
	if err := before.Left(); err != nil {
		t.Error("after ten steps:", err)
	}

	// If Weight fails, the caller keeps the reference.
	released := false
	buf := storage.Borrow(make([]byte, 8), storage.BorrowOptions{OnRelease: func() { released = true }})
	if _, err := e.Weight(buf, fucina.F32, fucina.Ax("d", 3)); !errors.Is(err, fucina.ErrInvalidDataLength) {
		t.Errorf("weight larger than its buffer: %v", err)
	}
	if _, err := e.Weight(buf, fucina.F32, fucina.Ax("", 2)); !errors.Is(err, fucina.ErrTag) {
		t.Errorf("weight with an axis without a name: %v", err)
	}
	if released {
		t.Fatal("a failed Weight took the buffer")
	}
	w := check{t}.of(e.Weight(buf, fucina.F32, fucina.Ax("d", 2)))
	drop(w)
	if !released {
		t.Error("the loan did not end")
	}
	end()
}

// A chain of 32 operations uses 2 buffers if its intermediate results are released at once,
// and 32 buffers if a scope holds them.
func TestScopeHoldsBuffers(t *testing.T) {
	chain := func(c *fucina.Context) int {
		seen := make(map[*byte]bool)
		f := c.Frame()
		defer f.Close()
		x := numbered(c, "d:262144")
		for i := range 32 {
			if i == 0 {
				x = x.Scale(2)
			} else if err := fucina.Replace(&x, x.Scale(2)); err != nil {
				t.Fatal(err)
			}
			seen[fucina.Memory(x)] = true
		}
		return len(seen)
	}
	c, end := open(t)
	if n := chain(c); n != 2 {
		t.Errorf("%d buffers without a scope, want 2", n)
	}
	scope := c.Scope()
	if n := chain(c); n != 32 {
		t.Errorf("%d buffers in a scope, want 32", n)
	}
	scope.Close()
	if n := c.Engine().Stats().Pool.Outstanding; n != 0 {
		t.Errorf("%d buffers outstanding after the scope", n)
	}
	end()
}

// A scope releases its newest tensor first, so that the pool reuses the oldest buffer first.
// Closing a scope closes the scopes inside it, and closing it again does nothing. A tensor
// that is released in a scope ends, and the scope holds its memory.
func TestScopeOrder(t *testing.T) {
	c, end := open(t)
	e := c.Engine()
	outer := c.Scope()
	a := numbered(c, "d:5")
	inner := c.Scope()
	b, view := numbered(c, "d:5"), a.Rename("d", "e")
	cache := check{t}.of(e.Empty(fucina.F32, fucina.Ax("d", 5))) // has no owner
	oldest, newest := fucina.Memory(a), fucina.Memory(b)
	before := e.Stats().Pool.Outstanding
	drop(b, view, b, view)
	if s := e.Stats(); !a.Valid() || b.Valid() || view.Valid() || s.Pool.Outstanding != before {
		t.Errorf("Release in a scope: %v, %v, %v, %d buffers of %d", a, b, view, s.Pool.Outstanding, before)
	}
	for range 2 {
		outer.Close()
		inner.Close()
	}
	if a.Valid() || !cache.Valid() {
		t.Error("Close left tensors of its scope, or took others")
	}
	x, y := numbered(c, "d:5"), numbered(c, "d:5")
	if fucina.Memory(x) != oldest || fucina.Memory(y) != newest {
		t.Error("the scope did not release the newest first")
	}
	cache.Release()

	// Scopes that are still open end with their context.
	left := c.Scope()
	z := numbered(c, "d:5")
	if err := c.Close(); err != nil || z.Valid() {
		t.Error(err, z)
	}
	left.Close()
	end()
}

// After a Close, every error says whether the context or its engine is closed, and no call
// leaks anything. Shared tensors live until their Release.
func TestClosed(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		e := c.Engine()
		x, mine := numbered(c, "d:2").Shared(), numbered(c, "d:2")
		other, err := e.NewContext()
		if err != nil {
			t.Fatal(err)
		}
		frame := c.Frame()
		for range 2 {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
		if mine.Valid() {
			t.Error("the context's tensor outlives it")
		}
		closed := func(c *fucina.Context, what string, more map[string]error) {
			t.Helper()
			for name, y := range inContext(c, x, x) {
				name, _, _ = strings.Cut(name, ",")
				refused(t, y.Err(), fucina.ErrClosed, name+": "+what)
			}
			f := c.Frame()
			more["frame"] = f.Return(x).Err()
			more["keep"] = frame.Keep(x).Err()
			more["from slice"] = fucina.FromSlice(c, []float32{1}).Err()
			more["sync"] = c.Sync()
			for name, err := range more {
				refused(t, err, fucina.ErrClosed, name)
			}
			for range c.Frames(2) {
				frame.Close()
			}
		}
		closed(c, "context is closed", map[string]error{})
		y := x.On(other).Add(x).Shared() // a Shared tensor has no context
		owned := x.On(other).Ref()

		refused(t, e.Close(), fucina.ErrLeak, "2 of them")
		_, err = fucina.Data[float32](owned)
		refused(t, err, fucina.ErrClosed, "data", e.String()+" is closed")
		for _, z := range []fucina.Tensor{x, y} {
			if !z.Valid() || z.String() != "f32 {d:2}" {
				t.Errorf("after the engine's Close: %v", z)
			}
			_, err := fucina.Data[float32](z)
			for what, err := range map[string]error{
				"data":     err,
				"read":     fucina.Read(z, notCalled[float32](t)),
				"update":   fucina.Update(z, notCalled[float32](t)),
				"copy out": fucina.CopyOut(z, make([]float32, 2)),
			} {
				refused(t, err, fucina.ErrClosed, what, e.String()+" is closed")
			}
			if s := fmt.Sprintf("%+v", z); !strings.Contains(s, "is closed") {
				t.Errorf("printed as %q", s)
			}
		}
		_, err = e.NewContext()
		_, empty := e.Empty(fucina.F32, fucina.Ax("d", 2))
		_, rope := e.RoPETable(fucina.RoPE{Dims: 2, FreqBase: 10000}, 2, "pos")
		buf := storage.Borrow(make([]byte, 8), storage.BorrowOptions{})
		_, weight := e.Weight(buf, fucina.F32, fucina.Ax("d", 2))
		buf.Release() // the failed Weight did not take it
		closed(other, e.String()+" is closed", map[string]error{
			"new context: " + e.String(): err, "empty {d:2}": empty, "rope table": rope, "weight {d:2}": weight,
		})
		drop(x, y)
		if err := errors.Join(other.Close(), e.Close()); err != nil {
			t.Error(err)
		}
	})
}

// If a provider is closed during a call, its own error is ErrClosed too.
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

// Close reports Shared tensors that were not released, and their Release still frees them.
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
	x, y := numbered(c, "d:2").Shared(), check{t}.of(e.Empty(fucina.F32, fucina.Ax("d", 2)))
	if err := y.On(c).CopyFrom(x).Err(); err != nil {
		t.Fatal(err)
	}
	refused(t, e.Close(), fucina.ErrLeak, "2 of them", "1 buffers of the pool")
	if err := e.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	drop(x, y)
	if n := offheap.Stats().LiveBlocks; n > before {
		t.Errorf("%d blocks live, %d before", n, before)
	}
}

// Goroutines that have their own contexts share an engine. Goroutines that share a context get
// ErrBusy and no other error.
func TestGoroutines(t *testing.T) {
	c, end := open(t)
	e := c.Engine()
	x := numbered(c, "d:64").Shared()
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
				y := x.On(own).Add(x)
				y.Release()
				switch err := y.Err(); {
				case err == nil:
					worked.Add(1)
				case own != c || !errors.Is(err, fucina.ErrBusy):
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if n := worked.Load(); n < 400 {
		t.Errorf("%d operations succeeded, want at least those of the goroutines with their own contexts", n)
	}
	x.Release()
	end()
}
