//go:build accel

package device

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/tensor"
	"github.com/fucina-go/fucina/internal/invariants"
	"github.com/fucina-go/fucina/internal/sim/discrete"
	"github.com/fucina-go/fucina/tests/harness"
)

// context returns a context, and closes it when the test ends.
func (r *rig) context(t testing.TB) *fucina.Context {
	t.Helper()
	c, err := r.eng.NewContext()
	if err != nil {
		t.Fatal(err)
	}
	harness.CloseLater(t, c)
	return c
}

// numbers returns the f32 values of x.
func numbers(t testing.TB, what string, x fucina.Tensor) []float32 {
	t.Helper()
	p, err := fucina.Data[float32](x)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	return p
}

// wrongRow is the CPU's error text for the id 7 at position 1 and a table of two rows.
func wrongRow(t testing.TB) string {
	t.Helper()
	e, err := fucina.Open(fucina.WithProvider("cpu"), fucina.WithThreads(1))
	if err != nil {
		t.Fatal(err)
	}
	c, err := e.NewContext()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}()
	table := fucina.FromSlice(c, []float32{1, 2, 3, 4}, fucina.Ax("r", 2), fucina.Ax("d", 2))
	want := table.Gather(fucina.FromSlice(c, []float32{0, 7}, fucina.Ax("t", 2)).To(dtype.I32), "r").Err()
	if !errors.Is(want, tensor.ErrIndexOutOfBounds) {
		t.Fatalf("the cpu: %v", want)
	}
	text := want.Error()
	return text[strings.Index(text, tensor.ErrIndexOutOfBounds.Error()):]
}

// If ids that the device computed lie outside the table, the values that come from them have
// the CPU's error, and no other value has an error. The queue does not fail, and the context
// can be used afterwards.
func TestDeviceIDsOutsideTable(t *testing.T) {
	want := wrongRow(t)
	for _, chaos := range []discrete.Chaos{discrete.Prompt, discrete.Yields} {
		r := openRig(t, discrete.Options{Seed: testSeed(t), Chaos: chaos, Ring: deepRing})
		c, other := r.context(t), r.context(t)
		there := func(p []float32, axes ...fucina.Axis) fucina.Tensor { // on the device
			return fucina.FromSlice(c, p, axes...).Scale(1)
		}
		table := there([]float32{1, 2, 3, 4}, fucina.Ax("r", 2), fucina.Ax("d", 2))
		good, wrong := there([]float32{1, 0}, fucina.Ax("t", 2)), there([]float32{0, 7}, fucina.Ax("t", 2))
		copied := there(make([]float32, 4), fucina.Ax("t", 2), fucina.Ax("d", 2))
		whole := there(make([]float32, 8), fucina.Ax("t", 4), fucina.Ax("d", 2))
		part := whole.Narrow("t", 1, 2)
		gather := func(ids fucina.Tensor) fucina.Tensor {
			return table.Gather(ids.To(dtype.I32), "r")
		}
		r.dev.Hold() // so that the error is unknown when the operations are submitted
		before, bad, after := gather(good), gather(wrong), gather(good)
		sum := bad.Add(after)
		further := sum.Scale(2)
		elsewhere := further.On(other).Scale(2)
		for _, dst := range []fucina.Tensor{copied, part} {
			if err := dst.CopyFrom(bad).Err(); err != nil {
				t.Fatal(err)
			}
		}
		innocent, around := after.On(other).Scale(3), before.Add(after)
		r.dev.Release()
		for range 2 {
			for name, x := range map[string]fucina.Tensor{
				"the rows": bad, "a sum": sum, "a further op": further, "another context": elsewhere,
				"a copy": copied, "a copy into a part": whole, "that part": part,
			} {
				_, err := fucina.Data[float32](x)
				if !errors.Is(err, tensor.ErrIndexOutOfBounds) || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v, want %q", name, err, want)
				}
				if errors.Is(err, fucina.ErrDeviceFailed) {
					t.Errorf("%s: %v is called a failure of the device", name, err)
				}
				if err := fucina.CopyOut(x, make([]float32, x.Len())); !errors.Is(err, tensor.ErrIndexOutOfBounds) {
					t.Errorf("%s, read: %v", name, err)
				}
			}
			for name, x := range map[string]struct {
				x    fucina.Tensor
				want float32
			}{"before": {before, 3}, "after": {after, 3}, "in another context": {innocent, 9}, "of both sides": {around, 6}, "the table": {table, 1}} {
				if p := numbers(t, name, x.x); p[0] != x.want {
					t.Errorf("%s: %v, want %v first", name, p, x.want)
				}
			}
			// The contexts can still compute on the device.
			for _, c := range []*fucina.Context{c, other} {
				if p := numbers(t, "a next op", after.On(c).Add(after.On(c))); p[1] != 8 {
					t.Errorf("a next op: %v", p)
				}
			}
		}
		if p := numbers(t, "good ids", gather(good)); p[0] != 3 || p[3] != 2 {
			t.Errorf("good ids after bad ones: %v", p)
		}
		// Once the error is known, a new operation fails at once.
		if err := bad.Add(after).Err(); !errors.Is(err, tensor.ErrIndexOutOfBounds) || !strings.Contains(err.Error(), want) {
			t.Errorf("an op on the rows: %v, want %q", err, want)
		}
		// The failed operation is not a fallback to the CPU.
		if s := r.eng.Stats(); s.Fallbacks != 0 || s.CPU.Ops() != 0 {
			t.Errorf("%d fallbacks and %d ops on the cpu: %s", s.Fallbacks, s.CPU.Ops(), s.LastFallback)
		}
	}
}

// The number of operations of a queue whose ids are not yet checked is limited. Further
// operations wait and then run, and each has its own error.
func TestManyDeviceIDs(t *testing.T) {
	r := openRig(t, discrete.Options{Seed: testSeed(t), Chaos: discrete.Yields})
	c := r.context(t)
	table := fucina.FromSlice(c, []float32{1, 2, 3, 4}, fucina.Ax("r", 2), fucina.Ax("d", 2))
	const n = 300
	var results []fucina.Tensor
	within(t, "gathers", func() error {
		for i := range n {
			id := float32(i % 2)
			if i%7 == 0 {
				id = float32(i + 2)
			}
			f := c.Frame()
			ids := fucina.FromSlice(c, []float32{id}, fucina.Ax("t", 1)).To(dtype.I32)
			results = append(results, f.Return(table.Gather(ids, "r")))
		}
		return nil
	})
	for i, y := range results {
		p, err := fucina.Data[float32](y)
		switch {
		case i%7 == 0:
			if text := rowText(i + 2); err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("gather %d: %v, want %q", i, err, text)
			}
		case err != nil:
			t.Errorf("gather %d: %v", i, err)
		case p[0] != float32(1+i%2*2):
			t.Errorf("gather %d: %v", i, p)
		}
		y.Release()
	}
	if s := r.eng.Stats(); s.Fallbacks != 0 {
		t.Errorf("%d fallbacks: %s", s.Fallbacks, s.LastFallback)
	}
}

// rowText returns a part of the error for a single id outside a table of two rows.
func rowText(id int) string {
	return fmt.Sprintf("id %d at position 0, the table has 2 rows", id)
}

// Bad requests, each in a context of its own, do not keep device memory from reuse, so that
// the device still computes after hundreds of them.
func TestBadRequestsLeaveMemoryFlat(t *testing.T) {
	r := openRig(t, discrete.Options{MemoryBytes: 4 << 20})
	request := func() error {
		c, err := r.eng.NewContext()
		if err != nil {
			return err
		}
		table := fucina.FromSlice(c, make([]float32, 2048), fucina.Ax("r", 4), fucina.Ax("d", 512)).Scale(1)
		ids := fucina.FromSlice(c, []float32{0, 7}, fucina.Ax("t", 2)).To(dtype.I32)
		y := table.Gather(ids, "r")
		if _, err := fucina.Data[float32](y); !errors.Is(err, tensor.ErrIndexOutOfBounds) {
			return fmt.Errorf("a bad request: %w", err)
		}
		return c.Close()
	}
	requests := 400
	if invariants.RaceEnabled {
		requests = 50
	}
	var warm int64
	for i := range requests {
		if err := request(); err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		if i == 5 {
			warm = r.dev.Stats().LiveBytes
		}
	}
	if s := r.dev.Stats(); s.LiveBytes > warm || s.LiveQueues > 3 {
		t.Errorf("%d bytes in %d blocks and %d queues on the device after %d requests, %d bytes after 5", s.LiveBytes, s.LiveBlocks, s.LiveQueues, requests, warm)
	}
	if s := r.eng.Stats(); s.Fallbacks != 0 {
		t.Errorf("%d fallbacks: %s", s.Fallbacks, s.LastFallback)
	}
}
