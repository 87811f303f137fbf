//go:build accel

package device

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/internal/invariants"
	"github.com/fucina-go/fucina/internal/sim/discrete"
	"github.com/fucina-go/fucina/tests/harness"
)

// The ops that the small model runs.
var modelOps = []op.ID{
	op.GetRows, op.RMSNorm, op.Project, op.RotateStore, op.Attention, op.AddRMSNorm, op.GatedProject,
}

// The composite ops among modelOps, and the ops that the small model runs if a device declines
// these.
var (
	composites = []op.ID{op.Project, op.RotateStore, op.AddRMSNorm, op.GatedProject}
	partOps    = []op.ID{
		op.GetRows, op.RMSNorm, op.MatMul, op.Copy, op.RoPE, op.SetRows, op.Attention, op.Add, op.SwiGLU,
	}
)

// If a device declines a composite op, it runs the parts. The CPU runs every other op that is
// declined, wherever its operands are. No result changes.
func TestDeclines(t *testing.T) {
	seed := testSeed(t)
	f := openFile(t, small)
	want := wantSmall(t)
	type decline struct {
		ids     []op.ID // declined
		ops     []op.ID // what runs
		onlyCPU op.ID   // the op that the CPU runs, or 0
	}
	cases := []decline{{composites, partOps, 0}}
	for _, id := range modelOps {
		if slices.Contains(composites, id) {
			cases = append(cases, decline{[]op.ID{id}, slices.DeleteFunc(slices.Clone(modelOps), func(x op.ID) bool { return x == id }), 0})
		} else {
			cases = append(cases, decline{[]op.ID{id}, modelOps, id})
		}
	}
	for _, id := range partOps {
		cases = append(cases, decline{append([]op.ID{id}, composites...), partOps, id})
	}
	for _, tc := range cases {
		t.Run(fmt.Sprint(tc.ids), func(t *testing.T) {
			r := openRig(t, discrete.Options{Seed: seed, Chaos: discrete.Yields,
				Decline: func(id op.ID, _ *op.Args) string {
					if slices.Contains(tc.ids, id) {
						return "not today"
					}
					return ""
				}})
			ids, err := r.smallRun(f)
			if err == nil {
				err = harness.SameIDs(ids, want)
			}
			if err != nil {
				t.Fatal(err)
			}
			s := r.eng.Stats()
			for _, id := range tc.ops {
				there, here := s.Device.Submits[id], s.CPU.Submits[id]
				if id == tc.onlyCPU && (there != 0 || here == 0) || id != tc.onlyCPU && (there == 0 || here != 0) {
					t.Errorf("%s: %d times on the device, %d on the cpu", id, there, here)
				}
			}
			for _, id := range tc.ids {
				if n := s.CPU.Submits[id]; n != 0 && id != tc.onlyCPU {
					t.Errorf("%s: %d times on the cpu, want only its parts", id, n)
				}
			}
			if s.Fallbacks != 0 {
				t.Errorf("a decline is no fallback: %d, %s", s.Fallbacks, s.LastFallback)
			}
		})
	}
	mixes := 12
	if invariants.RaceEnabled {
		mixes = 3
	}
	var here uint64
	for i := range mixes {
		t.Run(fmt.Sprintf("mix %d", i), func(t *testing.T) {
			var declined atomic.Bool // an operation without parts, which the CPU runs then
			r := openRig(t, discrete.Options{Seed: seed, Chaos: discrete.Yields,
				Decline: func(id op.ID, a *op.Args) string {
					h := fnv.New64a()
					fmt.Fprint(h, seed, i, id, a.Out[0].Shape, a.In[1].Shape)
					if h.Sum64()>>32%3 != 0 {
						return ""
					}
					switch id {
					case op.AddRMSNorm, op.Project, op.GatedProject, op.RotateStore:
					default:
						declined.Store(true)
					}
					return "bad luck"
				}})
			ids, err := r.smallRun(f)
			if err == nil {
				err = harness.SameIDs(ids, want)
			}
			if err != nil {
				t.Fatal(err)
			}
			s := r.eng.Stats()
			if (s.CPU.Ops() > 0) != declined.Load() || s.Device.Ops() == 0 {
				t.Errorf("%d ops on the cpu, %d on the device; declined one without parts: %t", s.CPU.Ops(), s.Device.Ops(), declined.Load())
			}
			here += s.CPU.Ops()
		})
	}
	if here == 0 {
		t.Error("no mix declined an operation without parts")
	}
}

const gateEnv = "FUCINA_GPU_MIN_WORK"

// Gates keep an operation of low cost on the CPU, unless an operand is newest on the device.
func TestGates(t *testing.T) {
	f := openFile(t, small)
	want := wantSmall(t)
	const never = 1 << 50
	tests := []struct {
		name    string
		env     map[string]int64
		minCost int64 // Info.MinCost of the device
		cpu     []op.ID
		device  []op.ID
	}{
		{name: "open", device: modelOps},
		{name: "closed", env: map[string]int64{"": never}, cpu: modelOps},
		{name: "closed by the device", minCost: never, cpu: modelOps},
		{name: "opened against the device", minCost: never, env: map[string]int64{"": 0}, device: modelOps},
		{
			name: "one op", env: map[string]int64{"_GET_ROWS": never},
			cpu: []op.ID{op.GetRows}, device: modelOps[1:],
		},
		// The ops after the gather have their operands on the device.
		{name: "all but one op", env: map[string]int64{"": never, "_GET_ROWS": 0}, device: modelOps},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for k, v := range tt.env {
				t.Setenv(gateEnv+k, strconv.FormatInt(v, 10))
			}
			var costs [op.Count]int64
			for op := range costs {
				costs[op] = tt.minCost
			}
			r := openRig(t, discrete.Options{MinCost: &costs})
			ids, err := r.smallRun(f)
			if err == nil {
				err = harness.SameIDs(ids, want)
			}
			if err != nil {
				t.Fatal(err)
			}
			s := r.eng.Stats()
			for _, id := range tt.cpu {
				if s.Device.Submits[id] != 0 || s.CPU.Submits[id] == 0 {
					t.Errorf("%s: %d times on the device, %d on the cpu, want the cpu", id, s.Device.Submits[id], s.CPU.Submits[id])
				}
			}
			for _, id := range tt.device {
				if s.Device.Submits[id] == 0 || s.CPU.Submits[id] != 0 {
					t.Errorf("%s: %d times on the device, %d on the cpu, want the device", id, s.Device.Submits[id], s.CPU.Submits[id])
				}
			}
		})
	}
}

// If a gate is not a number, Open fails with an error that names the variable, and leaves
// nothing open.
func TestBadGates(t *testing.T) {
	for _, tt := range []struct{ env, value string }{
		{gateEnv, "many"}, {gateEnv, "-1"}, {gateEnv + "_MATMUL", "1e6"}, {gateEnv + "_ROPE", "9223372036854775808"},
	} {
		t.Run(tt.env+"="+tt.value, func(t *testing.T) {
			t.Setenv(tt.env, tt.value)
			dev, err := discrete.New(discrete.Options{})
			if err != nil {
				t.Fatal(err)
			}
			eng, err := fucina.Open(fucina.WithDevice(dev))
			if err == nil {
				t.Fatalf("opened: %v", eng.Close())
			}
			if !strings.Contains(err.Error(), tt.env) || !strings.Contains(err.Error(), tt.value) {
				t.Errorf("error %q does not name %s=%s", err, tt.env, tt.value)
			}
			if s := dev.Stats(); s.LiveQueues != 0 || s.PinnedBytes != 0 {
				t.Errorf("left open: %+v", s)
			}
			if _, err := dev.NewQueue(provider.Compute); err == nil {
				t.Error("the device was not closed")
			}
		})
	}
}
