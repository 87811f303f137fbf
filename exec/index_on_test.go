//go:build accel

package exec

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/core/storage"
	"github.com/fucina-go/fucina/core/tensor"
	"github.com/fucina-go/fucina/internal/sim/discrete"
	"github.com/fucina-go/fucina/tests/harness"
	"github.com/fucina-go/fucina/tests/leak"
)

// toDevice moves the inputs of o to the device, so that only the device has them.
func (o *operands) toDevice(t *testing.T, c *Queue) {
	t.Helper()
	for _, x := range o.in {
		if x == nil {
			continue
		}
		y, err := c.Do(op.Copy, &op.Params{To: x.DType()}, x)
		if err != nil {
			t.Fatal(err)
		}
		if !y.Buffer().NewestOnDevice() {
			t.Fatal("the copy is not on the device")
		}
		x.Release()
		*x = y
	}
}

// A wrong index has the same error wherever its operation runs and wherever the index is.
// Where it is found on the device, the error is that of every result, and of nothing else.
func TestWrongIndicesOfADevice(t *testing.T) {
	for _, w := range wrongIndices() {
		for _, tt := range []struct {
			name     string
			decline  func(id op.ID) bool
			onDevice bool // the operands are
			sync     bool // each operation ends before the next one is submitted
		}{
			{"on the device", func(op.ID) bool { return false }, true, false},
			{"on the device, from the host", func(op.ID) bool { return false }, false, false},
			{"on the CPU, from the device", func(id op.ID) bool { return id == w.id || id == op.SetRows }, true, false},
			{"in parts", isComposite, true, false},
			{"in parts, from the host", isComposite, false, false},
			{"in parts, one by one", isComposite, true, true},
		} {
			t.Run(w.id.String()+" "+tt.name, func(t *testing.T) {
				leak.Check(t)
				e, _ := openDiscrete(t, discrete.Options{Sync: tt.sync, Decline: func(id op.ID, _ *op.Args) string {
					if tt.decline(id) {
						return "as the test says"
					}
					return ""
				}}, littleStaging)
				harness.CloseLater(t, e)
				c := newQueue(t, e)
				o := w.make(t)
				defer o.release()
				if tt.onDevice {
					o.toDevice(t, c)
				}
				out, err := w.run(c, o)
				defer releaseAll(out[:])
				name := w.id.String()
				if err != nil {
					w.check(t, "the operation", name, err)
					return
				}
				if w.id == op.GetRows {
					name = "gather" // as programs know it, at a read that does not know the operation
				}
				for range 2 {
					if o.into != nil {
						_, err = o.into.Bytes(context.Background(), storage.Read)
						w.check(t, "the cache", name, err)
					}
					if out[0].IsZero() || w.id == op.RotateStore && tt.decline(w.id) {
						continue // the parts that rotate the queries know no places
					}
					_, err = out[0].Bytes(context.Background(), storage.Read)
					w.check(t, "the output", name, err)
				}
				if err := c.Sync(); err != nil {
					t.Errorf("the queue fails: %v", err)
				}
				for i, x := range o.in {
					if x == nil {
						continue
					}
					if _, err := x.Buffer().Host(context.Background(), storage.Read); err != nil {
						t.Errorf("input %d: %v", i, err)
					}
				}
			})
		}
	}
}

// A place that the device finds wrong is an error of the cache from then on: a later read of
// it, a later operation that reads it and a later write into it fail. The other rows are
// written, and the bytes of a cache that the CPU writes stay whole.
func TestWrongPlaceFailsTheCache(t *testing.T) {
	leak.Check(t)
	e, dev := openDiscrete(t, discrete.Options{}, littleStaging)
	harness.CloseLater(t, e)
	c := newQueue(t, e)
	s := sample{id: op.SetRows, in: []operandOf{f32s(2, 4), ints(1, 0)}, into: f32s(3, 4)}
	good := s.make(t)
	defer good.release()
	s.in[1] = ints(2, 3)
	bad := s.make(t)
	defer bad.release()
	good.toDevice(t, c)
	bad.toDevice(t, c)
	if _, err := s.resultOf(c, good); err != nil {
		t.Fatal(err)
	}
	// Both samples write to one cache.
	cache := good.into
	dev.Hold() // so that the error is unknown when the operations are submitted
	if err := c.DoInto(op.SetRows, nil, cache, bad.in...); err != nil {
		t.Fatal(err)
	}
	if err := c.DoInto(op.SetRows, nil, cache, good.in...); err != nil {
		t.Fatal(err)
	}
	early, err := c.Do(op.Scale, &op.Params{Scale: 1}, cache)
	if err != nil {
		t.Fatal(err)
	}
	defer early.Release()
	dev.Release()
	const want = "index out of bounds: 3 at position 1 of the places, want 0 to 2"
	check := func(what, name string, err error) {
		t.Helper()
		if !errors.Is(err, tensor.ErrIndexOutOfBounds) || err.Error() != name+want {
			t.Errorf("%s: error %v, want %s", what, err, name+want)
		}
	}
	_, err = cache.Bytes(context.Background(), storage.Read)
	check("the cache", "set_rows: ", err)
	_, err = early.Bytes(context.Background(), storage.Read)
	check("an operation submitted before", "set_rows: ", err)
	_, err = c.Do(op.Scale, &op.Params{Scale: 1}, cache)
	check("a later operation", "scale: set_rows: ", err)
	check("a later write", "set_rows: set_rows: ", c.DoInto(op.SetRows, nil, cache, good.in...))

	// The queue and other tensors are not affected.
	if _, err := s.resultOf(c, operands{in: good.in, into: bad.into}); err != nil {
		t.Error(err)
	}
	if s := e.Stats(); s.Fallbacks != 0 {
		t.Errorf("%d fallbacks: %s", s.Fallbacks, s.LastFallback)
	}
}

func declineSetRows(id op.ID, _ *op.Args) string {
	if id == op.SetRows {
		return "the CPU runs it"
	}
	return ""
}

// If the CPU finds a wrong place before it writes, the cache keeps its bytes.
func TestWrongPlaceOnTheCPULeavesTheCache(t *testing.T) {
	e, _ := openDiscrete(t, discrete.Options{Decline: declineSetRows}, littleStaging)
	harness.CloseLater(t, e)
	c := newQueue(t, e)
	s := sample{id: op.SetRows, in: []operandOf{f32s(2, 4), ints(2, 3)}, into: of(dtype.F16, 3, 4)}
	o := s.make(t)
	defer o.release()
	o.toDevice(t, c)
	before, err := o.into.Bytes(context.Background(), storage.Read)
	if err != nil {
		t.Fatal(err)
	}
	before = slices.Clone(before)
	if err := c.DoInto(op.SetRows, nil, o.into, o.in...); !errors.Is(err, tensor.ErrIndexOutOfBounds) {
		t.Errorf("error %v", err)
	}
	if after, err := o.into.Bytes(context.Background(), storage.Read); err != nil || !slices.Equal(after, before) {
		t.Errorf("the cache has changed, %v", err)
	}
}

// The device can use a tensor after the CPU has written to it, or has failed to.
func TestDeviceAfterHostWrite(t *testing.T) {
	cause := errors.New("the test's cause")
	for _, nth := range []int{0, 1} { // the operation of the CPU that fails
		host := newFaultyCPU(t, nth, cause)
		e, dev := openDiscrete(t, discrete.Options{Decline: declineSetRows}, Options{CPU: host, StagingSlots: 1, StagingBytes: 4096})
		harness.CloseLater(t, e)
		c := newQueue(t, e)
		s := sample{id: op.SetRows, in: []operandOf{f32s(2, 4), ints(2, 0)}, into: f32s(3, 4)}
		o := s.make(t)
		defer o.release()
		if _, err := s.resultOf(c, o); nth > 0 != errors.Is(err, cause) {
			t.Errorf("error %v", err)
		}
		before := dev.Stats()
		y, err := c.Do(op.Scale, &op.Params{Scale: 1}, o.into)
		if err != nil {
			t.Fatal(err)
		}
		y.Release()
		if after := dev.Stats(); after.Ops() != before.Ops()+1 {
			t.Errorf("the device does not read the tensor: %s", e.Stats().LastFallback)
		}
	}
}

// An operation whose context ends while the device has no room leaves nothing behind.
func TestOperationsThatEndEarly(t *testing.T) {
	for _, s := range []sample{
		{id: op.AddRMSNorm, in: []operandOf{f32s(4), f32s(4), f32s(4)}},
		rotateStore("", dtype.F32, true, true),
	} {
		leak.Check(t)
		e, dev := openDiscrete(t, discrete.Options{Ring: 1}, littleStaging)
		harness.CloseLater(t, e)
		c := newQueue(t, e)
		o := s.make(t)
		o.toDevice(t, c)
		if err := c.Sync(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		c.SetCancel(ctx)
		before := e.Stats().Pool.Outstanding
		dev.Hold()
		for {
			out, err := s.run(c, o)
			if err == nil {
				releaseAll(out[:])
				continue
			}
			if !errors.Is(err, context.DeadlineExceeded) || !out[0].IsZero() || !out[1].IsZero() {
				t.Errorf("%s: error %v", s.id, err)
			}
			break
		}
		if n := e.Stats().Pool.Outstanding; n != before {
			t.Errorf("%s: %d buffers are not released", s.id, n-before)
		}
		dev.Release()
		cancel()
		o.release()
	}
}

// An operation that writes into a tensor which only the device has runs there, however little
// it costs. The CPU would move the whole tensor to the host.
func TestCacheOnTheDevice(t *testing.T) {
	gates := new([op.Count]int64)
	for id := range gates {
		gates[id] = 1 << 40
	}
	gates[op.Copy] = 0
	for _, decline := range []func(op.ID, *op.Args) string{nil, declineComposites} {
		e, dev := openDiscrete(t, discrete.Options{MinCost: gates, Decline: decline}, littleStaging)
		harness.CloseLater(t, e)
		c := newQueue(t, e)
		s := rotateStore("", dtype.F16, false, false)
		want := onTheHost(t, &s)
		o := s.make(t)
		cache, err := c.Do(op.Copy, &op.Params{To: dtype.F16}, o.into)
		if err != nil {
			t.Fatal(err)
		}
		o.into.Release()
		*o.into = cache
		downloads := dev.Stats().Downloads
		out, err := s.run(c, o)
		if err != nil {
			t.Fatal(err)
		}
		if !cache.Buffer().NewestOnDevice() || dev.Stats().Downloads != downloads {
			t.Errorf("declined %v: the cache has moved to the host", decline != nil)
		}
		for i, x := range []*tensor.Tensor{&out[0], o.into} {
			if p, err := x.Bytes(context.Background(), storage.Read); err != nil || !slices.Equal(p, want[i]) {
				t.Errorf("declined %v: output %d has other bits than on the CPU, %v", decline != nil, i, err)
			}
		}
		releaseAll(out[:])
		o.release()
	}
}

// An operation on the device reads and writes parts of one buffer that do not overlap, without
// a copy.
func TestDeviceReadsTheBufferItWrites(t *testing.T) {
	leak.Check(t)
	e, dev := openDiscrete(t, discrete.Options{}, littleStaging)
	harness.CloseLater(t, e)
	c := newQueue(t, e)
	x := vector(t, c, 1, 2, 3, 4)
	defer x.Release()
	lo, err := x.Narrow(0, 0, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer lo.Release()
	hi, err := x.Narrow(0, 2, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer hi.Release()
	for range 3 {
		if err := c.DoInto(op.Add, nil, &lo, &hi, &hi); err != nil {
			t.Fatal(err)
		}
		if err := c.DoInto(op.Add, nil, &hi, &lo, &lo); err != nil {
			t.Fatal(err)
		}
	}
	if stats := dev.Stats(); stats.Submits[op.Add] != 6 || stats.Ops() != 6 {
		t.Errorf("%d additions of %d operations, want 6 of 6", stats.Submits[op.Add], stats.Ops())
	}
	if got, want := floats(t, &x), []float32{96, 128, 192, 256}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// Indices that were in range are checked again after a write to them, for another table, and in
// another part of their buffer. Indices in lent memory are checked each time, because the lender
// may change them. The error comes from the operation itself, before a device sees it.
func TestIndicesAreCheckedAgain(t *testing.T) {
	leak.Check(t)
	e, _ := openDiscrete(t, discrete.Options{}, littleStaging)
	harness.CloseLater(t, e)
	c := newQueue(t, e)
	table := func(rows int) *tensor.Tensor {
		x, _, err := Fresh[float32](c, shape.Must(rows, 2))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(x.Release)
		return &x
	}
	gather := func(what string, good bool, table, ids *tensor.Tensor) {
		t.Helper()
		y, err := c.Do(op.GetRows, nil, table, ids)
		if err == nil {
			y.Release()
		}
		if good != (err == nil) || !good && !errors.Is(err, tensor.ErrIndexOutOfBounds) {
			t.Errorf("%s: error %v, want one: %t", what, err, !good)
		}
	}
	large, small := table(4), table(3)
	ids, err := FromSlice(c, shape.Must(4), []int32{0, 3, 3, 7})
	if err != nil {
		t.Fatal(err)
	}
	defer ids.Release()
	part := func(start int) *tensor.Tensor {
		v, err := ids.Narrow(0, start, 2)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(v.Release)
		return &v
	}
	first, last := part(0), part(2)
	gather("at first", true, large, first)
	gather("again", true, large, first)
	gather("of a smaller table", false, small, first)
	gather("another part", false, large, last)
	gather("all", false, large, &ids)
	values, err := tensor.Data[int32](t.Context(), &ids, storage.Update)
	if err != nil {
		t.Fatal(err)
	}
	values[1] = 4
	gather("after a write", false, large, first)

	lent := []int32{0, 3}
	borrowed, err := tensor.FromBuffer(storage.Borrow(unsafe.Slice((*byte)(unsafe.Pointer(&lent[0])), 8), storage.BorrowOptions{}), dtype.I32, shape.Must(2))
	if err != nil {
		t.Fatal(err)
	}
	defer borrowed.Release()
	gather("lent", true, large, &borrowed)
	lent[1] = 4
	gather("lent, after a change", false, large, &borrowed)
}
