package providers

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/providers/cpu"
)

// Env is the environment variable that chooses a provider if the program does not.
const Env = "FUCINA_PROVIDER"

// CPU is the name of the provider that every build has.
const CPU = cpu.Name

// device is a provider with its own memory that this build can open.
type device struct {
	name string
	// auto says that Open may choose the device without its name.
	auto bool
	// list describes the devices of this machine, without creating a device context. If
	// there is no driver or device, it returns an error with the reason.
	list func() ([]provider.Info, error)
	open func() (provider.Device, error)
}

// devices is sorted by name. The init functions of tagged files fill it.
var devices []device

func register(d device) {
	devices = append(devices, d)
	slices.SortFunc(devices, func(a, b device) int { return strings.Compare(a.name, b.name) })
}

// Names returns the names that Open accepts in this build.
func Names() []string {
	names := []string{CPU}
	for _, d := range devices {
		names = append(names, d.name)
	}
	return names
}

// Open returns the device called name, or nil if only the CPU computes. If name is empty,
// Open uses the value of the variable Env. If that is empty too, or the name is "auto",
// Open returns the first device that can be opened, or nil. A device that is named but
// cannot be opened is an error that wraps provider.ErrUnavailable and gives the reason.
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

// OpenCPU returns the CPU provider with the given number of threads. 0 means one per
// processor.
func OpenCPU(threads int) (provider.Provider, error) {
	return cpu.New(cpu.Options{Threads: threads})
}

// Listing has the devices of one provider on this machine.
type Listing struct {
	Provider string
	Devices  []provider.Info
	Err      error // why there are no devices
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
