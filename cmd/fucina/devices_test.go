package main

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/providers"
)

func TestDevicesJSON(t *testing.T) {
	out := invoke(t, "devices", "-o", "json").ok(t)
	var objects []map[string]any
	decodeStrict(t, out, &objects)
	keys(t, objects[0], "provider", "devices")
	keys(t, objects[0]["devices"].([]any)[0].(map[string]any), "index", "name", "memory", "total_bytes", "free_bytes")
	var list []providerEntry
	decodeStrict(t, out, &list)
	var names []string
	for _, p := range list {
		names = append(names, p.Provider)
		if len(p.Devices) == 0 && p.Error == "" {
			t.Errorf("%s has no devices and no reason", p.Provider)
		}
	}
	if !slices.Equal(names, providers.Names()) {
		t.Errorf("providers %q, want %q", names, providers.Names())
	}
}

func TestDevicesText(t *testing.T) {
	out := invoke(t, "devices").ok(t)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) < 1+len(providers.Names()) || !strings.HasPrefix(lines[0], "provider ") || !strings.HasPrefix(lines[1], "cpu ") {
		t.Errorf("prints\n%s", out)
	}
}

func TestDescribeProviders(t *testing.T) {
	got := describeProviders([]providers.Listing{
		{Provider: "a", Devices: []provider.Info{
			{Device: "big", Index: 1, UUID: "u", TotalBytes: 3 << 30, FreeBytes: 1 << 30, MaxAlloc: 5},
			{Device: "shared", Unified: true},
			{Device: "host", HostMemory: true},
		}},
		{Provider: "b", Err: errors.New("no driver")},
		{Provider: "c"},
	})
	want := []providerEntry{
		{Provider: "a", Devices: []deviceEntry{
			{Index: 1, Name: "big", UUID: "u", Memory: "own", Total: 3 << 30, Free: 1 << 30, MaxSize: 5},
			{Name: "shared", Memory: "unified"},
			{Name: "host", Memory: "host"},
		}},
		{Provider: "b", Devices: []deviceEntry{}, Error: "no driver"},
		{Provider: "c", Devices: []deviceEntry{}, Error: "no devices found"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestSizeText(t *testing.T) {
	for n, want := range map[int64]string{0: "-", 1023: "1023 B", 1536: "1.5 KiB", 80 << 30: "80.0 GiB", 5 << 40: "5120.0 GiB"} {
		if got := sizeText(n); got != want {
			t.Errorf("sizeText(%d) = %q, want %q", n, got, want)
		}
	}
}
