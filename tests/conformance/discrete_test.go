//go:build accel

package conformance

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/conformance"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/internal/invariants"
	"github.com/fucina-go/fucina/internal/sim/discrete"
	"github.com/fucina-go/fucina/kernels/cpu"
)

// The simulated device passes the suite with any delay and order of completion, and gives
// the same bits each time.
func TestDiscrete(t *testing.T) {
	digests := make(map[bool]string)
	for _, tt := range []struct {
		name string
		opt  discrete.Options
		long bool
	}{
		{"prompt", discrete.Options{}, true},
		{"one at a time", discrete.Options{Sync: true}, false},
		{"yields", discrete.Options{Chaos: discrete.Yields, Seed: 1}, false},
		{"sleeps", discrete.Options{Chaos: discrete.Sleeps, Seed: 2, MaxDelay: 20 * time.Microsecond}, false},
		{"sleeps with a short ring", discrete.Options{Chaos: discrete.Sleeps, Seed: 3, MaxDelay: 20 * time.Microsecond, Ring: 2}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			run(t, func() (provider.Provider, error) { return discrete.New(tt.opt) }, tt.long, digests)
		})
	}
}

// unordered is a device that ignores WaitFor.
type unordered struct{ provider.Device }

func (unordered) WaitFor(context.Context, provider.Queue, accel.Work) error { return nil }

// empty is a device whose Alloc returns no memory and no error.
type empty struct{ provider.Device }

func (empty) Alloc(int) (op.Mem, error) { return op.Mem{}, nil }

// panicking is a device whose Upload panics.
type panicking struct{ provider.Device }

func (panicking) Upload(context.Context, provider.Queue, op.Mem, []byte) (accel.Work, error) {
	panic("surprise")
}

// spilling is a device that writes the byte after its output.
type spilling struct{ discrete.Executor }

func (s spilling) Execute(ctx context.Context, id op.ID, a *op.Args) error {
	m := a.Out[0].Mem
	*(*byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(m.Host)), m.Len)) ^= 1
	return s.Executor.Execute(ctx, id, a)
}

// reporter is a T that keeps the reported failures.
type reporter struct{ errors []string }

func (r *reporter) Helper()             {}
func (r *reporter) Logf(string, ...any) {}
func (r *reporter) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

// The suite finds faults of a device that a provider in host memory cannot have.
func TestBrokenDevicesFail(t *testing.T) {
	for _, tt := range []struct {
		name, only, says string
		open             conformance.Open
	}{
		{"unordered", "lifetime", "order between two queues", func() (provider.Provider, error) {
			d, err := discrete.New(discrete.Options{Chaos: discrete.Sleeps})
			return unordered{d}, err
		}},
		{"unordered stores", "lifetime: store", "the second queue did not wait for the first", func() (provider.Provider, error) {
			d, err := discrete.New(discrete.Options{Chaos: discrete.Sleeps})
			return unordered{d}, err
		}},
		{"no memory", "scale", "returns 0 bytes of allocation 0", func() (provider.Provider, error) {
			d, err := discrete.New(discrete.Options{})
			return empty{d}, err
		}},
		{"a panic during an upload", "scale", "the suite ends with the panic, after 1 cases", func() (provider.Provider, error) {
			d, err := discrete.New(discrete.Options{})
			return panicking{d}, err
		}},
		{"spilling", "softmax", "memory outside the output is written", func() (provider.Provider, error) {
			return discrete.New(discrete.Options{NewExecutor: func() discrete.Executor { return spilling{cpu.NewExecutor(nil)} }})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if invariants.RaceEnabled && strings.HasPrefix(tt.name, "unordered") {
				t.Skip("what is not ordered is a race")
			}
			var r reporter
			conformance.Run(&r, tt.open, conformance.Options{Only: tt.only})
			if all := strings.Join(r.errors, "\n"); !strings.Contains(all, tt.says) {
				t.Errorf("the failures are\n%s\nwant one with %q", all, tt.says)
			}
		})
	}
}
