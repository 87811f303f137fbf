//go:build accel

package exec

import (
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"testing"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/core/storage"
	"github.com/fucina-go/fucina/core/tensor"
	"github.com/fucina-go/fucina/internal/offheap"
	"github.com/fucina-go/fucina/internal/sim/discrete"
	"github.com/fucina-go/fucina/providers/cpu"
	"github.com/fucina-go/fucina/tests/harness"
	"github.com/x448/float16"
)

// When a workspace goes from one queue to another while the first still uses it, the
// operation of the second queue waits for the first. A failure of the first does not fail
// the second. The two products otherwise share only the weights.
func TestWorkspaceChangesQueue(t *testing.T) {
	const rows, k = 8, 64
	for _, tt := range []struct {
		name   string
		faults []discrete.Fault
	}{
		{"in order", nil},
		{"first fails", []discrete.Fault{{Kind: discrete.SubmitAsync, Nth: 1}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// The weights, each product's operand and result, and one workspace.
			e, dev := openDiscrete(t, discrete.Options{Faults: tt.faults}, Options{Exact: true, DeviceBudget: 1024 + 4*256 + 2048}) // in exact mode the products need workspace
			w, err := tensor.FromSlice(shape.Must(rows, k), make([]float16.Float16, rows*k))
			if err != nil {
				t.Fatal(err)
			}
			w.Buffer().MarkStable()

			dev.Hold()
			var y [2]tensor.Tensor
			var queues [2]*Queue
			for i := range y {
				c, err := e.NewQueue()
				if err != nil {
					t.Fatal(err)
				}
				queues[i] = c
				x, err := FromSlice(c, shape.Must(1, k), make([]float32, k))
				if err != nil {
					t.Fatal(err)
				}
				if y[i], err = c.Do(op.MatMul, nil, &x, &w); err != nil {
					t.Fatal(err)
				}
				x.Release()
				first := queues[0].dev.q.Timeline().Last()
				if i > 0 && !slices.Contains(c.dev.needs.Order, first) {
					t.Errorf("the second product is ordered after %v, without the first, whose workspace it has", c.dev.needs.Order)
				}
				// If the second queue dies, its product may end before the first.
				if i > 0 && !slices.Contains(c.dev.fence, first) {
					t.Errorf("the workspace is given back under %v, without the first product", c.dev.fence)
				}
			}
			second := queues[1].dev.q
			dev.Step(second, 1)
			for range 1000 { // an operation that does not wait ends within these yields
				runtime.Gosched()
			}
			if second.Timeline().Last().Done() {
				t.Error("the second product did not wait for the first, whose workspace it has")
			}
			if s := e.Stats(); s.Fallbacks != 0 {
				t.Fatalf("%d fallbacks: %s", s.Fallbacks, s.LastFallback)
			}
			if s := dev.Stats(); s.LiveBlocks != 6 {
				t.Fatalf("%d device blocks, want 6 with one workspace for both", s.LiveBlocks)
			}
			dev.Release()

			for i := range y {
				var want error
				if tt.faults != nil && i == 0 {
					want = accel.ErrDeviceFailed // the second product is only ordered after the first
				}
				p, err := tensor.Data[float32](context.Background(), &y[i], storage.Read)
				if !errors.Is(err, want) {
					t.Errorf("product %d: error %v, want %v", i, err, want)
				}
				for _, v := range p {
					if v != 0 {
						t.Errorf("product %d of zeros is %v", i, p)
						break
					}
				}
				y[i].Release()
			}
			w.Release()
			if err := errors.Join(queues[0].Close(), queues[1].Close(), e.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A result of nearly the largest size fails with out of memory on the device and on the
// host. If its size were rounded up, it would be negative, and the device would write past
// its block.
func TestResultTooLargeToRound(t *testing.T) {
	e, dev := openDiscrete(t, discrete.Options{}, Options{})
	c, err := e.NewQueue()
	if err != nil {
		t.Fatal(err)
	}
	x := vector(t, c, 1)
	v, err := x.BroadcastTo(shape.Must(math.MaxInt / 4))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Do(op.Copy, &op.Params{To: v.DType()}, &v); !errors.Is(err, accel.ErrOutOfMemory) || !errors.Is(err, offheap.ErrNoMemory) {
		t.Errorf("error %v, want both kinds of memory", err)
	}
	if s := dev.Stats(); s.Ops() != 0 {
		t.Errorf("%d ops on the device", s.Ops())
	}
	v.Release()
	x.Release()
	if err := errors.Join(c.Close(), e.Close()); err != nil {
		t.Error(err)
	}
}

// If the upload of ids that the host has checked fails, the gathered rows have the failure
// of the upload. Neither the gather's own point nor the compute queue fails.
func TestIDsThatFailToUpload(t *testing.T) {
	cause := errors.New("the test's cause")
	e, dev := openDiscrete(t, discrete.Options{Faults: []discrete.Fault{{Kind: discrete.UploadAsync, Nth: 2, Err: cause}}}, Options{})
	c, err := e.NewQueue()
	if err != nil {
		t.Fatal(err)
	}
	table, err := FromSlice(c, shape.Must(3, 2), []float32{0, 1, 2, 3, 4, 5})
	if err != nil {
		t.Fatal(err)
	}
	ids, err := FromSlice(c, shape.Must(1), []int32{2})
	if err != nil {
		t.Fatal(err)
	}
	dev.Hold() // so that the failure happens after everything is submitted
	y, err := c.Do(op.GetRows, nil, &table, &ids)
	if err != nil {
		t.Fatal(err)
	}
	dev.Release()
	if _, err := tensor.Data[float32](context.Background(), &y, storage.Read); !errors.Is(err, cause) {
		t.Errorf("the error of the rows is %v, want the failure of the upload", err)
	}
	if err := c.dev.q.Timeline().Last().Wait(context.Background()); err != nil {
		t.Errorf("the gather: %v", err)
	}
	if err := c.dev.q.Timeline().Dead(); err != nil {
		t.Errorf("the compute queue is dead: %v", err)
	}
	table.Release()
	ids.Release()
	y.Release()
	if err := errors.Join(c.Close(), e.Close()); err != nil {
		t.Error(err)
	}
}

// hookedCPU calls before at the start of each Submit.
type hookedCPU struct {
	provider.Provider
	before func()
}

func (p *hookedCPU) Submit(ctx context.Context, q provider.Queue, id op.ID, a *op.Args) (accel.Work, error) {
	if p.before != nil {
		p.before()
	}
	return p.Provider.Submit(ctx, q, id, a)
}

// If an operation of another queue reads a part of a tensor while the CPU writes another
// part, the device still gets what the CPU wrote.
func TestDeviceReadsDuringHostWrite(t *testing.T) {
	host, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	hooked := &hookedCPU{Provider: host}
	e, _ := openDiscrete(t, discrete.Options{Decline: func(id op.ID, _ *op.Args) string {
		if id == op.Copy {
			return "the CPU copies"
		}
		return ""
	}}, Options{CPU: hooked})
	harness.CloseLater(t, e)
	writer, reader := newQueue(t, e), newQueue(t, e)
	must := func(x tensor.Tensor, err error) tensor.Tensor {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	cache := must(FromSlice(writer, shape.Must(2, 1), []float32{1, 2}))
	src := must(FromSlice(writer, shape.Must(1, 1), []float32{7}))
	first, second := must(cache.Narrow(0, 0, 1)), must(cache.Narrow(0, 1, 1))
	var during tensor.Tensor
	hooked.before = func() {
		hooked.before = nil
		during = must(reader.Do(op.Scale, &op.Params{Scale: 1}, &second))
	}
	if err := writer.DoInto(op.Copy, nil, &first, &src); err != nil {
		t.Fatal(err)
	}
	after := must(reader.Do(op.Scale, &op.Params{Scale: 1}, &first))
	for _, r := range []struct {
		name string
		t    *tensor.Tensor
		want float32
	}{{"the part that was read meanwhile", &during, 2}, {"the part that was written", &after, 7}} {
		got, err := tensor.Data[float32](context.Background(), r.t, storage.Read)
		if err != nil || got[0] != r.want {
			t.Errorf("%s is %v, %v; want %v", r.name, got, err, r.want)
		}
	}
	for _, x := range []*tensor.Tensor{&cache, &src, &first, &second, &during, &after} {
		x.Release()
	}
}

// A device plans an operation once, also an operation with parts. It plans again for the copy of
// an input, and for the operation with that copy.
func TestOnePlan(t *testing.T) {
	var plans [op.Count]int
	e, dev := openDiscrete(t, discrete.Options{Decline: func(id op.ID, _ *op.Args) string { plans[id]++; return "" }}, Options{})
	harness.CloseLater(t, e)
	c := newQueue(t, e)
	x, err := FromSlice(c, shape.Must(4, 4), make([]float32, 16))
	if err != nil {
		t.Fatal(err)
	}
	column, err := x.Permute(1, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range []*tensor.Tensor{&x, &column} {
		plans = [op.Count]int{}
		before := dev.Stats().Submits
		y, err := c.Do(op.Project, &op.Params{Scales: [3]float32{1, 1, 1}}, in, &x)
		if err != nil {
			t.Fatal(err)
		}
		y.Release()
		want := [op.Count]int{op.Project: 1}
		if in == &column {
			want = [op.Count]int{op.Project: 2, op.Copy: 1}
		}
		for id, n := range dev.Stats().Submits {
			plans[id] -= int(n - before[id]) // this device also plans when it gets an operation
		}
		if plans != want {
			t.Errorf("plans %v, want %v", plans, want)
		}
	}
	x.Release()
	column.Release()
}
