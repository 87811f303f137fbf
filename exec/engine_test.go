package exec

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/core/storage"
	"github.com/fucina-go/fucina/core/tensor"
	"github.com/fucina-go/fucina/providers/cpu"
)

func openCPU(t *testing.T) (*Engine, *Queue) {
	t.Helper()
	p, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	e, err := Open(Options{CPU: p})
	if err != nil {
		t.Fatal(err)
	}
	c, err := e.NewQueue()
	if err != nil {
		t.Fatal(err)
	}
	return e, c
}

func vector(t *testing.T, c *Queue, values ...float32) tensor.Tensor {
	t.Helper()
	x, err := FromSlice(c, shape.Must(len(values)), values)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// closable is a device that counts its closings.
type closable struct {
	provider.Device
	closed int
}

func (d *closable) Close() error {
	d.closed++
	return nil
}

// Without a CPU provider Open fails, and closes the device, which it owns.
func TestOpenWithoutCPU(t *testing.T) {
	const want = "exec: open: Options.CPU is nil, want a provider that computes in host memory"
	if _, err := Open(Options{}); err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	d := new(closable)
	if _, err := Open(Options{Device: d}); err == nil || err.Error() != want || d.closed != 1 {
		t.Errorf("error %v, want %s; the device was closed %d times", err, want, d.closed)
	}
}

// A queue keeps no buffer of a call that has returned, with or without an error.
func TestQueueForgetsOperands(t *testing.T) {
	e, c := openCPU(t)
	x := vector(t, c, 1, 2)
	y, err := c.Do(op.Add, nil, &x, &x)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.DoInto(op.Copy, nil, &y, &x); err != nil {
		t.Fatal(err)
	}
	huge, err := x.BroadcastTo(shape.Must(math.MaxInt/8, 2))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Do(op.Copy, &op.Params{To: huge.DType()}, &huge); err == nil {
		t.Error("made a copy that nearly fills the address space")
	}
	places := sample{id: op.SetRows, in: []operandOf{f32s(2, 4), ints(0, 1)}, into: f32s(3, 4)}
	both := sample{id: op.AddRMSNorm, in: []operandOf{f32s(4), f32s(4), f32s(4)}}
	for _, s := range []sample{places, both} {
		if _, err := s.result(t, c); err != nil {
			t.Fatal(err)
		}
		for i := range c.bufs {
			if c.bufs[i] != nil || !c.args.In[i].Mem.IsZero() {
				t.Errorf("input %d of %s is still reachable", i, s.id)
			}
		}
		for i := range c.outs {
			if c.outs[i].buf != nil || !c.args.Out[i].Mem.IsZero() {
				t.Errorf("output %d of %s is still reachable", i, s.id)
			}
		}
	}
	huge.Release()
	x.Release()
	y.Release()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if n := e.CPU().Stats().LiveQueues; n != 0 {
		t.Errorf("%d queues of the closed queue", n)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// The error of an op that its context ended contains the context's error once.
func TestDescribeEnd(t *testing.T) {
	ended := context.Canceled
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("residency: 4096 bytes: %w", ended), "add: residency: 4096 bytes: context canceled"},
		{provider.ErrClosed, "add: context canceled, after: closed"},
	} {
		err := describeEnd(op.Add, ended, c.err)
		if err.Error() != c.want || !errors.Is(err, ended) || !errors.Is(err, c.err) {
			t.Errorf("error %q, want %q", err, c.want)
		}
	}
}

// A table has no NaN and no infinity: parameters that give one are refused.
func TestRoPETableIsFinite(t *testing.T) {
	good := RoPE{Dims: 4, FreqBase: 10000}
	if x, err := RoPETable(good, 3); err != nil {
		t.Error(err)
	} else {
		x.Release()
	}
	inf, nan := math.Inf(1), math.NaN()
	for name, change := range map[string]func(r *RoPE){
		"a divisor of 0":             func(r *RoPE) { r.FreqFactors = []float32{1, 0} },
		"a divisor that is NaN":      func(r *RoPE) { r.FreqFactors = []float32{float32(nan), 1} },
		"an infinite scale":          func(r *RoPE) { r.FreqScale = inf },
		"a scale that overflows":     func(r *RoPE) { r.FreqScale = math.MaxFloat64 },
		"an infinite magnitude":      func(r *RoPE) { r.AttnFactor = inf },
		"a magnitude beyond float32": func(r *RoPE) { r.AttnFactor = 1e39 },
		"a share that is NaN":        func(r *RoPE) { r.ExtFactor, r.BetaFast, r.BetaSlow, r.OriginalContext = nan, 32, 1, 10 },
		"an infinite ramp":           func(r *RoPE) { r.ExtFactor, r.BetaFast, r.BetaSlow, r.OriginalContext = inf, 32, 1, 10 },
	} {
		r := good
		change(&r)
		if x, err := RoPETable(r, 3); err == nil {
			t.Errorf("%s: no error", name)
			x.Release()
		}
		if _, err := NewAngles(r, 3); err == nil {
			t.Errorf("%s: no error of NewAngles", name)
		}
	}
}

// Angles at any positions are the rows of the table, bit for bit. Positions and lengths that do
// not fit write nothing.
func TestAngles(t *testing.T) {
	const n = 40
	for name, r := range map[string]RoPE{
		"plain":   {Dims: 6, FreqBase: 10000},
		"linear":  {Dims: 4, FreqBase: 500000, FreqScale: 0.25},
		"factors": {Dims: 4, FreqBase: 10000, FreqFactors: []float32{1, 8}},
		"yarn":    {Dims: 8, FreqBase: 10000, FreqScale: 0.25, ExtFactor: 1, AttnFactor: 1.5, BetaFast: 32, BetaSlow: 1, OriginalContext: 10},
	} {
		table, err := RoPETable(r, n)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := tensor.Data[float32](t.Context(), &table, storage.Read)
		if err != nil {
			t.Fatal(err)
		}
		a, err := NewAngles(r, n)
		if err != nil {
			t.Fatal(err)
		}
		positions := []int32{n - 1, 0, 7, 7, 1}
		got := make([]float32, len(positions)*r.Dims)
		if k := testing.AllocsPerRun(10, func() { err = a.Put(got, positions) }); k != 0 || err != nil {
			t.Errorf("%s: %v allocations, %v", name, k, err)
		}
		for i, pos := range positions {
			for j, x := range got[i*r.Dims:][:r.Dims] {
				if want := rows[int(pos)*r.Dims+j]; math.Float32bits(x) != math.Float32bits(want) {
					t.Errorf("%s: element %d of position %d is %v, want %v", name, j, pos, x, want)
				}
			}
		}
		if name == "plain" {
			sin, cos := math.Sincos((n - 1) * math.Pow(10000, -2.0/6)) // pair 1 of the first position
			if got[2] != float32(cos) || got[3] != float32(sin) {
				t.Errorf("pair 1 of position %d is %v, want %v and %v", n-1, got[2:4], float32(cos), float32(sin))
			}
		}
		clear(got)
		for _, tt := range []struct {
			dst       []float32
			positions []int32
			kind      error
			text      string
		}{
			{got[1:], positions, tensor.ErrInvalidDataLength, "angles of 5 positions, want"},
			{got[:2*r.Dims], []int32{0, n}, tensor.ErrIndexOutOfBounds, "position 40 at index 1, want 0 to 39"},
			{got[:2*r.Dims], []int32{5, -1}, tensor.ErrIndexOutOfBounds, "position -1 at index 1"},
		} {
			if err := a.Put(tt.dst, tt.positions); !errors.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("%s: error %v, want %q", name, err, tt.text)
			}
		}
		if slices.Max(got) != 0 || slices.Min(got) != 0 {
			t.Errorf("%s: a refused Put wrote %v", name, got)
		}
		table.Release()
	}
	for name, a := range map[string]*Angles{"nil": nil, "zero": {}} {
		if err := a.Put(nil, []int32{0}); !errors.Is(err, tensor.ErrIndexOutOfBounds) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, positions := range []int{0, -1} {
		if _, err := NewAngles(RoPE{Dims: 2, FreqBase: 1}, positions); !errors.Is(err, tensor.ErrInvalidShape) {
			t.Errorf("%d positions: %v", positions, err)
		}
	}
	if _, err := NewAngles(RoPE{Dims: math.MaxInt - 1, FreqBase: 1}, 1); err == nil {
		t.Error("angles of more elements than memory has")
	}
}
