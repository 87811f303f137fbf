//go:build accel

package fucina_test

import (
	"testing"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/internal/sim/discrete"
	"github.com/fucina-go/fucina/providers/cpu"
)

// A device that the program opened computes, and reading a range of a result moves
// that range only.
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

// A provider in the CPU's place runs what the device declines, and both end with the
// engine.
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
		t.Errorf("the CPU's place counts %+v, the device %+v", cpu, dev)
	}
	end()
	if s := d.Stats(); closed != 1 || s.LiveQueues != 0 {
		t.Errorf("the CPU's place was closed %d times, the device has %d queues", closed, s.LiveQueues)
	}
}
