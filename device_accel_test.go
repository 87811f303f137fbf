//go:build accel

package fucina_test

import (
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/internal/sim/discrete"
	"github.com/fucina-go/fucina/providers/cpu"
)

// WithDevice makes the engine compute on an opened device. Reading a range of a result
// transfers that range only.
func TestWithDevice(t *testing.T) {
	d, err := discrete.New(discrete.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, end := open(t, fucina.WithDevice(d))
	e := c.Engine()
	if e.Provider() != "discrete" {
		t.Errorf("provider %q", e.Provider())
	}
	x := numbered(c, "a:3 b:2")
	y := x.Add(x)
	row := y.Narrow("a", 1, 1)
	got := make([]float32, 2)
	if err := fucina.CopyOut(row, got); err != nil || got[0] != 6 || got[1] != 8 {
		t.Errorf("read %v, %v", got, err)
	}
	s := e.Stats()
	if s.CPU.Ops() != 0 || s.Device.Ops() != 1 || s.Device.Uploads != 1 || s.Device.Downloads != 1 || s.Device.DownloadBytes != 8 {
		t.Errorf("%+v", s)
	}
	end()
	if s := d.Stats(); s.LiveBytes != 0 || s.LiveQueues != 0 {
		t.Errorf("the device after Close: %+v", s)
	}
}

// The provider of WithCPU runs the operations that the device declines. The engine closes
// both.
func TestWithCPUAndDevice(t *testing.T) {
	d, err := discrete.New(discrete.Options{Decline: func(id op.ID, _ *op.Args) string {
		if id == op.Mul {
			return "the CPU multiplies"
		}
		return ""
	}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	closed := 0
	c, end := open(t, fucina.WithDevice(d), fucina.WithCPU(closing{p, &closed}))
	x := numbered(c, "a:3")
	y := x.Add(x)
	z := y.Mul(x)
	if got, err := fucina.Data[float32](z); err != nil || got[2] != 18 {
		t.Errorf("read %v, %v", got, err)
	}
	if cpu, dev := p.Stats(), d.Stats(); cpu.Submits[op.Mul] != 1 || cpu.Ops() != 1 || dev.Submits[op.Add] != 1 || dev.Ops() != 1 {
		t.Errorf("the provider of WithCPU counts %+v, the device %+v", cpu, dev)
	}
	end()
	if s := d.Stats(); closed != 1 || s.LiveQueues != 0 {
		t.Errorf("the provider of WithCPU was closed %d times, the device has %d queues", closed, s.LiveQueues)
	}
}

// If work fails on the device after its operation has returned, the next call that waits for
// it reports the failure: Sync, a read of the result, or a later operation. Values that were
// not computed from the result remain correct, other contexts continue, and nothing leaks.
func TestDeviceFailureIsFound(t *testing.T) {
	for _, tt := range []struct {
		name string
		find func(c *fucina.Context, failed fucina.Tensor) error
		text string
		// during says that the work fails after find has submitted a copy. Otherwise it fails
		// at any time.
		during bool
	}{
		{name: "sync", find: func(c *fucina.Context, _ fucina.Tensor) error { return c.Sync() }, text: "sync: "},
		{name: "sync again", find: func(c *fucina.Context, _ fucina.Tensor) error {
			_ = c.Sync()
			return c.Sync()
		}, text: "sync: "},
		{name: "data", find: func(_ *fucina.Context, y fucina.Tensor) error {
			_, err := fucina.Data[float32](y)
			return err
		}, text: "data: f32 {d:3}: "},
		{name: "copy out", find: func(_ *fucina.Context, y fucina.Tensor) error {
			return fucina.CopyOut(y, make([]float32, 3))
		}, text: "copy out: f32 {d:3}: "},
		{name: "read", find: func(_ *fucina.Context, y fucina.Tensor) error { return fucina.Read(y, notCalled[float32](t)) }, text: "read: f32 {d:3}: "},
		{name: "float", find: func(_ *fucina.Context, y fucina.Tensor) error {
			_, err := y.Narrow("d", 0, 1).Float()
			return err
		}, text: "float: f64 {d:1}: ", during: true},
		{name: "float after the failure", find: func(c *fucina.Context, y fucina.Tensor) error {
			_ = c.Sync()
			_, err := y.Narrow("d", 0, 1).Float()
			return err
		}, text: "to of f32 {d:1}: "},
		{name: "read of what comes from it", find: func(_ *fucina.Context, y fucina.Tensor) error {
			_, err := fucina.Data[float32](y.Scale(2).Permute("d"))
			return err
		}, text: ": "},
		{name: "later op", find: func(c *fucina.Context, y fucina.Tensor) error {
			_ = c.Sync()
			f := c.Frame()
			y.Scale(2)
			return f.Return(c.Ones(fucina.F32)).Err()
		}, text: "scale of f32 {d:3}: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, err := discrete.New(discrete.Options{Ring: 64})
			if err != nil {
				t.Fatal(err)
			}
			c, end := open(t, fucina.WithDevice(d))
			other, err := c.Engine().NewContext()
			if err != nil {
				t.Fatal(err)
			}
			x := numbered(c, "d:3")
			before, there := x.Scale(2), numbered(other, "d:3").Scale(2)
			want(t, before, "{d:3}", []float32{2, 4, 6})
			want(t, there, "{d:3}", []float32{2, 4, 6})
			d.Hold()
			if err := d.Inject(discrete.Fault{Kind: discrete.SubmitAsync, Nth: 1}); err != nil {
				t.Fatal(err)
			}
			y := before.Add(before)
			if err := y.Err(); err != nil {
				t.Fatalf("the operation waited: %v", err)
			}
			var found atomic.Bool
			go func() {
				for tt.during && d.Stats().Submits[op.Copy] == 0 && !found.Load() {
					runtime.Gosched()
				}
				d.Release()
			}()
			err = tt.find(c, y)
			found.Store(true)
			var w *accel.WindowError
			refused(t, err, fucina.ErrDeviceFailed, "device_accel_test.go:", tt.text)
			if !errors.As(err, &w) || !strings.HasPrefix(w.Ops, "add") {
				t.Errorf("the failure names %+v", w)
			}
			want(t, before, "{d:3}", []float32{2, 4, 6})
			want(t, there.Add(before.On(other)), "{d:3}", []float32{4, 8, 12})
			if err := errors.Join(other.Sync(), c.Err()); err != nil {
				t.Errorf("reported again: %v", err)
			}
			end()
		})
	}
}
