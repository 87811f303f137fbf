package main

import (
	"math"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/providers"
)

// Sizes are bytes, or units of 1024 and its powers in either case.
func TestByteSize(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "-1": 0, "0G": 0,
		"1048576": 1 << 20, "1024K": 1 << 20, "1M": 1 << 20, "2m": 2 << 20,
		"8G": 8 << 30, "8g": 8 << 30, "3T": 3 << 40,
		"8388607T":            8388607 << 40,
		"9223372036854775807": math.MaxInt64,
	} {
		v := byteSize{n: 5, low: minDeviceMemory}
		if err := v.Set(text); err != nil || v.n != want {
			t.Errorf("%s is %d, %v; want %d", text, v.n, err, want)
		}
	}
}

// The CPU has no device memory: the limit is taken, as for a script that runs anywhere,
// and a note says that it limits nothing.
func TestDeviceMemoryOfCPU(t *testing.T) {
	args := []string{"run", "-m", tinyModel(t), "-p", "a b", "-n", "2", "-temp", "0", "-o", "json", "--provider", providers.CPU}
	var want, got generation
	decodeStrict(t, invoke(t, args...).ok(t), &want)
	decodeStrict(t, invoke(t, append(args, "--device-memory", "1G")...).noted(t, "note: -device-memory limits nothing: the provider cpu"), &got)
	if got.Text != want.Text || got.Memory != 0 {
		t.Errorf("%q, limit %d; without a limit %q", got.Text, got.Memory, want.Text)
	}
	if out := invoke(t, append(args, "--device-memory", "0")...).ok(t); strings.Contains(out, "device_memory") {
		t.Errorf("without a limit prints %s", out)
	}
}
