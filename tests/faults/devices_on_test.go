//go:build accel

package faults

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/internal/sim/discrete"
	"github.com/fucina-go/fucina/tests/inject"
)

func devices() []configuration {
	return []configuration{{
		name: "discrete",
		open: openDiscrete,
		events: []func(*planner) event{
			failCall(inject.Submit, nil), failCall(inject.Submit, accel.ErrDeviceFailed),
			failCall(inject.WaitFor, nil), failCall(inject.Upload, nil), failCall(inject.Download, nil),
			failCall(inject.NewQueue, nil), failCall(inject.AllocPinned, nil),
			failCall(inject.Alloc, nil), failCall(inject.Alloc, accel.ErrOutOfMemory),
			failWork(inject.Submit, discrete.SubmitAsync, false), failWork(inject.Submit, discrete.SubmitAsync, false), failWork(inject.Submit, discrete.SubmitAsync, true),
			failWork(inject.Upload, discrete.UploadAsync, true), failWork(inject.Download, discrete.DownloadAsync, true),
			loss, delay, delay, cancelAtCall, cancelAtCall, cancelAfter, closeEarly,
		},
	}}
}

// openDiscrete opens a discrete device with random delays. In one run of two, its memory or
// the budget is too small for both sessions: weights are evicted, or the CPU computes, with
// the same ids. In one run of four it declines some operations, so that values are
// transferred in both directions.
func openDiscrete(rng *rand.Rand) (*device, string, error) {
	opt := discrete.Options{
		Seed: rng.Uint64(), Chaos: discrete.Chaos(rng.IntN(3)), MaxDelay: 50 * time.Microsecond, Ring: 1 + rng.IntN(64),
	}
	budget := int64(0)
	switch rng.IntN(4) {
	case 0:
		opt.MemoryBytes = 20<<10 + rng.Int64N(100<<10)
	case 1:
		budget = 20<<10 + rng.Int64N(100<<10)
	}
	var declined []op.ID
	if rng.IntN(4) == 0 {
		for range 2 {
			declined = append(declined, op.ID(1+rng.IntN(int(op.Count)-1)))
		}
		opt.Decline = func(id op.ID, _ *op.Args) string {
			if slices.Contains(declined, id) {
				return "chosen to be declined"
			}
			return ""
		}
	}
	d, err := discrete.New(opt)
	if err != nil {
		return nil, "", err
	}
	faults := inject.NewDevice(d)
	dev := &device{
		faults: faults.Provider, disarm: d.Disarm, hazards: d.Hazards,
		opts: []fucina.Option{fucina.WithDevice(faults.ForEngine()), fucina.WithDeviceBudget(budget)},
	}
	return dev, fmt.Sprintf("seed %d, chaos %d, ring %d, %d bytes, budget %d, without %s",
		opt.Seed, opt.Chaos, opt.Ring, opt.MemoryBytes, budget, declined), nil
}

// inject arms a fault of the simulated device.
func (r *run) inject(f discrete.Fault) {
	if err := r.faults.Provider.(*discrete.Device).Inject(f); err != nil {
		panic(err)
	}
}

// failWork makes work fail after it was submitted, which kills its queue. The queue is that
// of the victim or, if shared is set, of the session that submits. The transfer queues
// belong to both sessions.
func failWork(call inject.Call, kind discrete.FaultKind, shared bool) func(*planner) event {
	return func(p *planner) event {
		nth := p.nth(call, shared)
		err := fmt.Errorf("injected failure of %s %d", call, nth)
		f := inject.Fault{Call: call, Who: who(p.victim), Nth: nth}
		if shared {
			f.Who = nil
		}
		return event{
			what: fmt.Sprintf("work of %s %d fails", call, nth), shared: shared, errs: []error{err},
			arm: func(r *run) {
				f.Do = func(q provider.Queue) { r.inject(discrete.Fault{Kind: kind, Nth: 1, On: q, Err: err}) }
				r.faults.Arm(f)
			},
		}
	}
}

// loss makes the device disappear.
func loss(p *planner) event {
	nth := p.nth(inject.Submit, true)
	err := fmt.Errorf("injected loss at submit %d", nth)
	return event{
		what: fmt.Sprintf("the device is lost at submit %d", nth), shared: true, errs: []error{err},
		arm: func(r *run) {
			r.faults.Arm(inject.Fault{Call: inject.Submit, Nth: nth, Do: func(provider.Queue) {
				r.inject(discrete.Fault{Kind: discrete.Loss, Nth: 1, Err: err})
			}})
		},
	}
}
