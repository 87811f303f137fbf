//go:build accel

package llm_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/internal/sim/discrete"
	"github.com/fucina-go/fucina/tests/inject"
)

func init() {
	openFaulty["discrete"] = func(t *testing.T, seed uint64) *faulty {
		t.Helper()
		rng := rand.New(rand.NewPCG(seed, 0))
		opt := discrete.Options{Seed: seed, Chaos: discrete.Yields, MaxDelay: 20 * time.Microsecond}
		// Half of the devices decline an operation, or have too little memory for everything, so
		// that parts of the cache move between the host and the device.
		var declined op.ID
		switch rng.IntN(4) {
		case 0:
			of := []op.ID{op.GetRows, op.RMSNorm, op.Project, op.RotateStore, op.Attention, op.AddRMSNorm, op.Copy}
			declined = of[rng.IntN(len(of))]
			opt.Decline = func(id op.ID, _ *op.Args) string {
				if id == declined {
					return "chosen to be declined"
				}
				return ""
			}
		case 1:
			opt.MemoryBytes = 100<<10 + rng.Int64N(200<<10)
		}
		t.Logf("%d bytes, declines %s", opt.MemoryBytes, declined)
		d, err := discrete.New(opt)
		if err != nil {
			t.Fatal(err)
		}
		faults := inject.NewDevice(d)
		f := &faulty{faults: faults.Provider}
		f.failWork = func(q provider.Queue, alone bool) {
			fault := discrete.Fault{Kind: discrete.SubmitAsync, Nth: 1, On: q, Err: errInjected}
			if alone && rng.IntN(10) == 0 {
				// The device is of no use afterwards.
				kinds := []discrete.FaultKind{discrete.UploadAsync, discrete.DownloadAsync, discrete.Loss}
				fault.Kind, fault.On = kinds[rng.IntN(len(kinds))], nil
				f.useless = true
			}
			if err := d.Inject(fault); err != nil {
				t.Error(err)
			}
		}
		f.disarm = d.Disarm
		f.eng = openExactWith(t, fucina.WithDevice(faults.ForEngine()))
		t.Cleanup(func() {
			for _, h := range d.Hazards() {
				t.Error("hazard:", h)
			}
		})
		return f
	}
}
