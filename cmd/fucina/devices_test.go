package main

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/internal/isa"
	"github.com/fucina-go/fucina/llm"
	"github.com/fucina-go/fucina/providers"
	"github.com/fucina-go/fucina/tests/process"
)

func TestDevicesJSON(t *testing.T) {
	out := invoke(t, "devices", "-o", "json").ok(t)
	var objects []map[string]any
	decodeStrict(t, out, &objects)
	keys(t, objects[0], "provider", "devices")
	keys(t, objects[0]["devices"].([]any)[0].(map[string]any), "index", "name", "memory", "total_bytes", "free_bytes", "cache_bytes")
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
			{Index: 1, Name: "big", UUID: "u", Memory: "own", Total: 3 << 30, Free: 1 << 30, MaxSize: 5, Cache: 3 << 28},
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

// With a model, the list has the number of tokens of each cache, which is the default of a model
// that runs there.
func TestDevicesCache(t *testing.T) {
	path := tinyModel(t)
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, c := range []struct {
		args   []string
		length int
		format dtype.DType
	}{
		{nil, 0, dtype.F16},
		{[]string{"-c", "0"}, 0, dtype.F16},
		{[]string{"-c", "1000", "--cache-type", "f32"}, 1000, dtype.F32},
		{[]string{"-c", "1073741824"}, 1 << 30, dtype.F16}, // the memory decides
	} {
		var list []providerEntry
		decodeStrict(t, invoke(t, append([]string{"devices", "-o", "json", "-m", path}, c.args...)...).ok(t), &list)
		d := list[0].Devices[0]
		want, err := llm.DefaultCacheTokens(f, llm.Options{Context: c.length}, c.format, d.Total)
		if err != nil || d.CacheTokens != want || want < 256 || d.Cache != d.Total/4 {
			t.Errorf("%v: %d tokens in %d bytes of %d, want %d (%v)", c.args, d.CacheTokens, d.Cache, d.Total, want, err)
		}
	}
	out := invoke(t, "devices", "-m", path).ok(t)
	if head, _, _ := strings.Cut(out, "\n"); !strings.Contains(head, "  cache   ") || !strings.Contains(head, "  cache tokens  ") || !strings.Contains(out, " 1024 ") {
		t.Errorf("prints\n%s", out)
	}
	if out := invoke(t, "devices").ok(t); !strings.Contains(out, "  cache   ") || strings.Contains(out, "tokens") {
		t.Errorf("without a model prints\n%s", out)
	}
	invoke(t, "devices", "-c", "5").failed(t, exitUsage, "go with -m")
	invoke(t, "devices", "-m", path, "--cache-type", "q8_0").failed(t, exitError, path+": llm: KV cache of q8_0")
	invoke(t, "devices", "-m", path+".no").failed(t, exitError, path+".no")
	invoke(t, "devices", "-m", path, "-c", "1e9").failed(t, exitUsage, "integer")
}

func TestSizeText(t *testing.T) {
	for n, want := range map[int64]string{0: "-", 1023: "1023 B", 1536: "1.5 KiB", 80 << 30: "80.0 GiB", 5 << 40: "5120.0 GiB"} {
		if got := sizeText(n); got != want {
			t.Errorf("sizeText(%d) = %q, want %q", n, got, want)
		}
	}
}

// FUCINA_CPU chooses the instruction set, which the list of devices names. A set that is not
// supported is an error that lists those that are.
func TestInstructionSets(t *testing.T) {
	run := func(level string) (stdout, stderr string, err error) {
		cmd := process.Command(t, "devices")
		cmd.Env = append(cmd.Env, isa.Env+"="+level)
		var out, errors bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errors
		err = cmd.Start()
		process.SkipEmulated(t, err)
		if err == nil {
			err = cmd.Wait()
		}
		return out.String(), errors.String(), err
	}
	for _, level := range isa.Supported() {
		if out, _, err := run(level.String()); err != nil || !strings.Contains(out, " "+level.String()+",") {
			t.Errorf("with %v: %v, prints\n%s", level, err, out)
		}
	}
	out, stderr, err := run("mmx")
	if all := out + stderr; !strings.Contains(all, `FUCINA_CPU: instruction set "mmx" is unknown; supported here: generic`) {
		t.Errorf("with an unknown set: %v, prints\n%s", err, all)
	}
}
