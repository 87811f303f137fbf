//go:build accel

package coherence

import (
	"context"
	"fmt"
	"time"

	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/storage"
	"github.com/fucina-go/fucina/exec"
	"github.com/fucina-go/fucina/internal/sim/discrete"
	"github.com/fucina-go/fucina/providers/cpu"
	"github.com/fucina-go/fucina/residency"
)

// device is a configuration of the discrete device.
type device struct {
	name      string
	chaos     discrete.Chaos
	ring      int
	memory    int64 // device memory in bytes, times 1, 2 or 4; 0 means enough
	budget    int64 // the engine's budget in bytes, times 1, 2 or 4; 0 means enough
	slots     int
	slotBytes int
	decline   bool // decline some operations, chosen by their arguments
	gate      int64
	sync      bool
}

func devices() []configuration {
	list := []device{
		{name: "prompt"},
		{name: "yields", chaos: discrete.Yields},
		{name: "sleeps", chaos: discrete.Sleeps},
		{name: "tiny rings", chaos: discrete.Yields, ring: 1, slots: 1, slotBytes: 256},
		{name: "small memory", chaos: discrete.Yields, memory: 3 << 10},
		{name: "small budget", chaos: discrete.Yields, budget: 2 << 10},
		{name: "declines", chaos: discrete.Yields, decline: true},
		{name: "gates", chaos: discrete.Yields, gate: 128},
		{name: "sync", chaos: discrete.Yields, sync: true},
		{name: "everything", chaos: discrete.Sleeps, ring: 2, slots: 2, slotBytes: 1 << 10, memory: 4 << 10, decline: true},
	}
	var out []configuration
	for _, d := range list {
		out = append(out, configuration{d.name, d.open})
	}
	return out
}

func (d device) open(seed uint64) (*rig, error) {
	d.memory <<= seed / 64 % 3
	d.budget <<= seed / 64 % 3
	r := &rig{waits: d.ring > 0 || d.memory > 0 || d.budget > 0 || d.decline || d.gate > 0 || d.sync}
	if d.slots == 0 {
		d.slots, d.slotBytes = 16, 4<<10
	}
	opt := discrete.Options{
		MemoryBytes: d.memory, Ring: d.ring, Seed: seed, Chaos: d.chaos, MaxDelay: 20 * time.Microsecond, Sync: d.sync,
	}
	if d.decline {
		opt.Decline = func(id op.ID, a *op.Args) string { return decline(seed, id, a) }
	}
	if d.gate > 0 {
		opt.MinCost = new([op.Count]int64)
		for op := range opt.MinCost {
			opt.MinCost[op] = d.gate
		}
	}
	dev, err := discrete.New(opt)
	if err != nil {
		return nil, err
	}
	c, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		return nil, err
	}
	r.engine, err = exec.Open(exec.Options{
		CPU: c, Device: dev, DeviceBudget: d.budget, StagingSlots: d.slots, StagingBytes: d.slotBytes,
	})
	if err != nil {
		return nil, err
	}
	r.settle = func() error { return dev.Sync(context.Background()) }
	r.hold, r.release = dev.Hold, dev.Release
	r.evict = (*storage.Buffer).DropDevice
	r.idle = func() error {
		res, st := r.engine.Residency(), dev.Stats()
		want := residency.Stats{Idle: res.Idle, Evictions: res.Evictions, Retired: res.Retired}
		if res != want || st.LiveBytes != res.Idle {
			return fmt.Errorf("residency %+v with %d bytes of the device in use", res, st.LiveBytes)
		}
		return nil
	}
	r.ended = func() error {
		st := dev.Stats()
		if st.LiveBytes != 0 || st.LiveBlocks != 0 || st.LiveQueues != 0 || st.PinnedBytes != 0 {
			return fmt.Errorf("counters of the device: %+v", st)
		}
		if h := dev.Hazards(); len(h) > 0 {
			return fmt.Errorf("hazards: %q", h)
		}
		return nil
	}
	return r, nil
}

// decline declines about one operation in three, depending on the operation and its output.
func decline(seed uint64, id op.ID, a *op.Args) string {
	h := seed ^ uint64(id)*0x9e3779b97f4a7c15
	for _, d := range a.Out[0].Shape.Slice() {
		h = (h ^ uint64(d)) * 0xff51afd7ed558ccd
		h ^= h >> 32
	}
	if h%3 == 0 {
		return "chosen to be declined"
	}
	return ""
}
