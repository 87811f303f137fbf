package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"text/tabwriter"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/llm"
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
	// Cache is the most memory that a KV cache takes by default; 0 if that has no limit because
	// the size of the memory is not known. CacheTokens is the number of tokens that the cache of
	// the model of -m has room for by default.
	Cache       int64 `json:"cache_bytes"`
	CacheTokens int   `json:"cache_tokens,omitempty"`
}

// devicesNote explains the columns of the cache.
const devicesNote = `cache is the most memory that the keys and values of a model take by default. With -m,
cache tokens is the number of tokens that this memory has room for, but at most 4 times the
context of the model or that of -c.`

// devices is the devices command.
func (t *tool) devices(_ context.Context, args []string) error {
	fs := newFlags("devices", "")
	var path string
	var format cacheType
	fs.modelFile(&path, "model `file`, GGUF, whose tokens the KV cache of each device is measured in")
	length := fs.size("c", ownLength, ownLength, maxTokens, "`tokens` of context of the model; 0 and -1 mean the context that it was trained for")
	fs.alias("c", "ctx-size")
	fs.cacheType(&format, "f16")
	out := fs.format()
	fs.note = devicesNote
	if err := fs.parse(t, args, 0); err != nil {
		return err
	}
	if path == "" && (fs.given("c") || fs.given("cache-type")) {
		return usagef("devices: -c and -cache-type go with -m")
	}
	list := describeProviders(providers.List())
	if path != "" {
		if err := countCacheTokens(list, path, *length, cmp.Or(dtype.DType(format), dtype.F16)); err != nil {
			return err
		}
	}
	if *out == jsonl {
		return t.writeJSON(list)
	}
	w := tabwriter.NewWriter(t.stdout, 0, 0, 2, ' ', 0)
	tokens := func(text string) string {
		if path == "" {
			return ""
		}
		return "\t" + text
	}
	fmt.Fprintf(w, "provider\tindex\tdevice\tmemory\ttotal\tfree\tcache%s\tuuid\n", tokens("cache tokens"))
	for _, p := range list {
		for _, d := range p.Devices {
			fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s%s\t%s\n", p.Provider, d.Index, visible(d.Name), d.Memory,
				sizeText(d.Total), sizeText(d.Free), sizeText(d.Cache), tokens(strconv.Itoa(d.CacheTokens)), dash(d.UUID))
		}
		if p.Error != "" {
			fmt.Fprintf(w, "%s\t-\tnone: %s\n", p.Provider, oneLine(p.Error))
		}
	}
	return w.Flush()
}

// countCacheTokens sets the CacheTokens of all devices, for the model in the file at path.
func countCacheTokens(list []providerEntry, path string, length int, format dtype.DType) (err error) {
	f, err := gguf.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for _, p := range list {
		for i := range p.Devices {
			d := &p.Devices[i]
			if d.CacheTokens, err = llm.DefaultCacheTokens(f, llm.Options{Context: length}, format, d.Total); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
	}
	return nil
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
		Cache:   llm.DefaultCacheBytes(info.TotalBytes),
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
