//go:build accel

package llm_test

import (
	"testing"
	"time"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/internal/sim/discrete"
	"github.com/fucina-go/fucina/tests/inject"
)

func init() {
	openFaulty["discrete"] = func(t *testing.T, seed uint64) *faulty {
		t.Helper()
		d, err := discrete.New(discrete.Options{Seed: seed, Chaos: discrete.Yields, MaxDelay: 20 * time.Microsecond})
		if err != nil {
			t.Fatal(err)
		}
		faults := inject.NewDevice(d)
		f := &faulty{faults: faults.Provider}
		f.failWork = func(q provider.Queue) {
			if err := d.Inject(discrete.Fault{Kind: discrete.SubmitAsync, Nth: 1, On: q, Err: errInjected}); err != nil {
				t.Error(err)
			}
		}
		f.eng = openExactWith(t, fucina.WithDevice(faults.ForEngine()))
		t.Cleanup(func() {
			for _, h := range d.Hazards() {
				t.Error("hazard:", h)
			}
		})
		return f
	}
}
