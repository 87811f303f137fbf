package main

import (
	"context"
	"fmt"
	"strconv"
	"text/tabwriter"

	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/providers"
)

// providerEntry is one provider of this build, as devices -o json lists them.
type providerEntry struct {
	Provider string        `json:"provider"`
	Devices  []deviceEntry `json:"devices"`
	Error    string        `json:"error,omitempty"` // why there are no devices
}

type deviceEntry struct {
	Index   int    `json:"index"`
	Name    string `json:"name"`
	UUID    string `json:"uuid,omitempty"`
	Memory  string `json:"memory"`      // "host", "unified" or "own"
	Total   int64  `json:"total_bytes"` // bytes of the device's memory
	Free    int64  `json:"free_bytes"`
	MaxSize int64  `json:"max_alloc_bytes,omitempty"` // the largest single allocation, if there is a limit
}

// devices is the devices command.
func (t *tool) devices(_ context.Context, args []string) error {
	fs := newFlags("devices", "")
	out := fs.format()
	if err := fs.parse(t, args, 0); err != nil {
		return err
	}
	list := describeProviders(providers.List())
	if *out == jsonl {
		return t.writeJSON(list)
	}
	w := tabwriter.NewWriter(t.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "provider\tindex\tdevice\tmemory\ttotal\tfree\tuuid\n")
	for _, p := range list {
		for _, d := range p.Devices {
			fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\n", p.Provider, d.Index, visible(d.Name), d.Memory, sizeText(d.Total), sizeText(d.Free), dash(d.UUID))
		}
		if p.Error != "" {
			fmt.Fprintf(w, "%s\t-\tnone: %s\n", p.Provider, oneLine(p.Error))
		}
	}
	return w.Flush()
}

func describeProviders(listings []providers.Listing) []providerEntry {
	list := []providerEntry{}
	for _, l := range listings {
		p := providerEntry{Provider: l.Provider, Devices: []deviceEntry{}}
		for _, info := range l.Devices {
			p.Devices = append(p.Devices, describeDevice(info))
		}
		switch {
		case l.Err != nil:
			p.Error = l.Err.Error()
		case len(p.Devices) == 0:
			p.Error = "no devices found"
		}
		list = append(list, p)
	}
	return list
}

func describeDevice(info provider.Info) deviceEntry {
	d := deviceEntry{
		Index:   info.Index,
		Name:    info.Device,
		UUID:    info.UUID,
		Memory:  "own",
		Total:   info.TotalBytes,
		Free:    info.FreeBytes,
		MaxSize: info.MaxAlloc,
	}
	switch {
	case info.HostMemory:
		d.Memory = "host"
	case info.Unified:
		d.Memory = "unified"
	}
	return d
}

// sizeText returns a size in the largest binary unit that fits, or "-" if it is unknown.
func sizeText(n int64) string {
	if n <= 0 {
		return "-"
	}
	units := []string{"B", "KiB", "MiB", "GiB"}
	x, u := float64(n), 0
	for x >= 1024 && u < len(units)-1 {
		x, u = x/1024, u+1
	}
	if u == 0 {
		return strconv.FormatInt(n, 10) + " B"
	}
	return fmt.Sprintf("%.1f %s", x, units[u])
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return visible(s)
}
