package providers

import (
	"errors"
	"slices"
	"testing"

	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/providers/cpu"
)

// fake is a device that is identified by its name.
type fake struct {
	provider.Device
	name string
}

var errBroken = errors.New("broken")

// fakeDevices replaces the build's devices until the test ends. The name of a device says
// how it behaves.
func fakeDevices(t *testing.T, names ...string) {
	t.Helper()
	saved := devices
	t.Cleanup(func() { devices = saved })
	devices = nil
	for _, name := range names {
		register(device{
			name: name,
			auto: name != "manual",
			list: func() ([]provider.Info, error) {
				switch name {
				case "absent":
					return nil, errBroken
				case "none":
					return nil, nil
				}
				return []provider.Info{{Name: name}}, nil
			},
			open: func() (provider.Device, error) {
				if name == "broken" {
					return (*fake)(nil), errBroken
				}
				return &fake{name: name}, nil
			},
		})
	}
}

func TestOpen(t *testing.T) {
	for _, tt := range []struct {
		name    string
		devices []string
		env     string
		ask     string
		want    string // "" is the CPU alone
		err     error
	}{
		{name: "no devices"},
		{name: "the first by name", devices: []string{"gpu2", "gpu1"}, want: "gpu1"},
		{name: "what cannot be had is passed over", devices: []string{"absent", "broken", "gpu", "none"}, want: "gpu"},
		{name: "nothing can be had", devices: []string{"absent", "broken", "none"}},
		{name: "only on demand", devices: []string{"manual"}},
		{name: "on demand", devices: []string{"gpu", "manual"}, ask: "manual", want: "manual"},
		{name: "the CPU on demand", devices: []string{"gpu"}, ask: CPU},
		{name: "the variable", devices: []string{"gpu", "manual"}, env: "manual", want: "manual"},
		{name: "auto by the variable", devices: []string{"gpu"}, env: "auto", want: "gpu"},
		{name: "the program before the variable", devices: []string{"gpu", "manual"}, env: "manual", ask: "auto", want: "gpu"},
		{name: "broken", devices: []string{"broken", "gpu"}, ask: "broken", err: errBroken},
		{name: "unknown", devices: []string{"gpu"}, ask: "abacus", err: provider.ErrUnavailable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fakeDevices(t, tt.devices...)
			t.Setenv(Env, tt.env)
			p, err := Open(tt.ask)
			if tt.err != nil {
				if p != nil || !errors.Is(err, tt.err) || !errors.Is(err, provider.ErrUnavailable) {
					t.Errorf("%v, error %v; want %v", p, err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if f, ok := p.(*fake); ok {
				got = f.name
			}
			if got != tt.want || p == nil != (tt.want == "") {
				t.Errorf("opened %q, want %q", got, tt.want)
			}
		})
	}
}

func TestList(t *testing.T) {
	fakeDevices(t, "gpu", "absent")
	if got := Names(); !slices.Equal(got, []string{CPU, "absent", "gpu"}) {
		t.Errorf("names %q", got)
	}
	list := List()
	if len(list) != 3 {
		t.Fatalf("%d listings, want 3", len(list))
	}
	if l := list[0]; l.Provider != CPU || l.Err != nil || len(l.Devices) != 1 || l.Devices[0].Name != cpu.Name {
		t.Errorf("%+v", l)
	}
	if l := list[1]; l.Provider != "absent" || !errors.Is(l.Err, errBroken) || l.Devices != nil {
		t.Errorf("%+v", l)
	}
	if l := list[2]; l.Provider != "gpu" || l.Err != nil || len(l.Devices) != 1 {
		t.Errorf("%+v", l)
	}
}
