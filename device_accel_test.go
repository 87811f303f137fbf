//go:build accel

package fucina_test

import (
	"testing"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/tests/sim/discrete"
)

// A device that the program opened computes, and reading a range of a result moves
// that range only.
func TestWithDevice(t *testing.T) {
	d, err := discrete.New(discrete.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, end := open(t, fucina.WithDevice(d))
	e, k := c.Engine(), check{t}
	if e.Provider() != "discrete" {
		t.Errorf("provider %q", e.Provider())
	}
	x := numbered(t, c, "a:3 b:2")
	y := k.of(x.Add(c, x))
	row := k.of(y.Narrow(c, "a", 1, 1))
	got := make([]float32, 2)
	if err := fucina.ReadInto(t.Context(), row, got); err != nil || got[0] != 6 || got[1] != 8 {
		t.Errorf("read %v, %v", got, err)
	}
	s := e.Stats()
	if s.CPU.Ops() != 0 || s.Device.Ops() != 1 || s.Device.Uploads != 1 || s.Device.Downloads != 1 || s.Device.DownloadBytes != 8 {
		t.Errorf("%+v", s)
	}
	drop(t, x, y, row)
	end()
	if s := d.Stats(); s.LiveBytes != 0 || s.LiveQueues != 0 {
		t.Errorf("the device after Close: %+v", s)
	}
}
