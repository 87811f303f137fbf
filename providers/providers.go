package providers

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/providers/cpu"
)

// Env names the variable that chooses a provider where the program does not.
const Env = "FUCINA_PROVIDER"

// CPU is the name of the provider that every build has.
const CPU = cpu.Name

// device is a provider with its own memory that this build can open.
type device struct {
	name string
	// auto says that it may be chosen without being asked for by name.
	auto bool
	// list describes the devices of this machine, without creating a device
	// context; none, with a reason, if there is no driver or device.
	list func() ([]provider.Info, error)
	open func() (provider.Device, error)
}

// devices is filled by the init functions of tagged files, and sorted by name.
var devices []device

func register(d device) {
	devices = append(devices, d)
	slices.SortFunc(devices, func(a, b device) int { return strings.Compare(a.name, b.name) })
}

// Names returns the names that Open takes in this build.
func Names() []string {
	names := []string{CPU}
	for _, d := range devices {
		names = append(names, d.name)
	}
	return names
}

// Open returns the device called name, or nil if the CPU alone is to
// compute. An empty name stands for the environment's choice, and without one, or
// for "auto", for the first device that can be had, if any. Asking by name for
// what cannot be had fails with provider.ErrUnavailable and the reason.
func Open(name string) (provider.Device, error) {
	if name == "" {
		name = os.Getenv(Env)
	}
	switch name {
	case CPU:
		return nil, nil
	case "", "auto":
		for _, d := range devices {
			if !d.auto {
				continue
			}
			if infos, err := d.list(); err != nil || len(infos) == 0 {
				continue
			}
			if p, err := d.open(); err == nil {
				return p, nil
			}
		}
		return nil, nil
	}
	for _, d := range devices {
		if d.name == name {
			p, err := d.open()
			if err != nil {
				return nil, fmt.Errorf("provider %q: %w: %w", name, provider.ErrUnavailable, err)
			}
			return p, nil
		}
	}
	return nil, fmt.Errorf("provider %q: %w: this build has %s", name, provider.ErrUnavailable, strings.Join(Names(), ", "))
}

// OpenCPU returns the provider that runs what a device declines, on the given
// number of threads; 0 is one per processor.
func OpenCPU(threads int) (provider.Provider, error) {
	return cpu.New(cpu.Options{Threads: threads})
}

// Listing is what one provider found on this machine.
type Listing struct {
	Provider string
	Devices  []provider.Info
	Err      error // why there are none
}

// List describes the providers of this build and their devices.
func List() []Listing {
	var out []Listing
	p, err := OpenCPU(0)
	l := Listing{Provider: CPU, Err: err}
	if err == nil {
		l.Devices = []provider.Info{p.Info()}
		l.Err = p.Close()
	}
	out = append(out, l)
	for _, d := range devices {
		infos, err := d.list()
		out = append(out, Listing{Provider: d.name, Devices: infos, Err: err})
	}
	return out
}
