//go:build accel

package llm_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/internal/invariants"
	"github.com/fucina-go/fucina/internal/sim/discrete"
	"github.com/fucina-go/fucina/llm"
	"github.com/fucina-go/fucina/tests/harness"
	"github.com/fucina-go/fucina/tests/null"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

// openNull returns a session on a device that computes nothing, and the device. The model has
// the given number of layers.
func openNull(t testing.TB, layers int) (*llm.Session, *null.Device) {
	t.Helper()
	dev := null.New()
	eng, err := fucina.Open(fucina.WithDevice(dev), fucina.WithThreads(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := eng.Close(); err != nil {
			t.Error(err)
		}
	})
	path := writeModel(t, tinyllama.NewShape(tinyllama.Shape{Layers: layers, Output: true, Context: 1 << 17}))
	return openSession(t, openModel(t, eng, path, llm.Options{CacheTokens: 1 << 17}), llm.SessionOptions{Context: 1 << 17}), dev
}

// stepMeter counts what the decode steps of a model do on its device.
type stepMeter struct {
	eng    *fucina.Engine
	layers int
	most   int // the most submissions of a step in each layer, without copies of pages
}

// check runs a step, and checks what it did. copies is the largest number of layers in which the
// step copies a page first, because other sessions share it.
func (m *stepMeter) check(t *testing.T, what string, copies int, step func()) {
	t.Helper()
	before := m.eng.Stats()
	step()
	after := m.eng.Stats()
	dev, was := &after.Device, &before.Device
	copied := int(dev.Submits[op.Copy] - was.Submits[op.Copy])
	if n := int(dev.Ops()-was.Ops()) - copied; n > m.most*m.layers+6 || copied > copies {
		t.Errorf("%s: %d submissions and %d copies, want at most %d and %d", what, n, copied, m.most*m.layers+6, copies)
	}
	if up, down := dev.Uploads-was.Uploads, dev.Downloads-was.Downloads; up != 1 || down != 1 {
		t.Errorf("%s: %d uploads and %d downloads, want one of each", what, up, down)
	}
	if n := after.CPU.Ops() - before.CPU.Ops(); n > 0 || after.Fallbacks > 0 {
		t.Errorf("%s: %d operations on the cpu; %d fallbacks: %s", what, n, after.Fallbacks, after.LastFallback)
	}
	if dev.Allocs != was.Allocs || dev.Frees != was.Frees || dev.LiveBytes != was.LiveBytes {
		t.Errorf("%s: %d allocations and %d frees, want none", what, dev.Allocs-was.Allocs, dev.Frees-was.Frees)
	}
}

// A decode step is one upload, one download and a few operations on the device in each layer. It
// allocates no device memory, whatever the lengths of the prompts, and whichever pages come and
// go.
func TestStepCounters(t *testing.T) {
	most := map[string]int{"llama": 8, "qwen2": 8, "qwen3": 10, "gemma2": 10, "gemma3": 10, "phi3": 10}
	tested := make(map[string]bool)
	for _, f := range tinyllama.Families() {
		architecture, _, _ := strings.Cut(f.Name, "-")
		if tested[architecture] {
			continue
		}
		tested[architecture] = true
		t.Run(f.Name, func(t *testing.T) {
			dev, err := discrete.New(discrete.Options{Seed: harness.Seed(t), Chaos: discrete.Yields})
			if err != nil {
				t.Fatal(err)
			}
			eng, err := fucina.Open(fucina.WithDevice(dev), fucina.WithThreads(1), fucina.WithExact(true))
			if err != nil {
				t.Fatal(err)
			}
			harness.CloseLater(t, eng)
			m := openModel(t, eng, f.Model().File(t, "model.gguf"), llm.Options{})
			stepCounters(t, m, &stepMeter{eng: eng, layers: m.Params().Layers, most: most[architecture]})
		})
	}
	for family := range most {
		if !tested[family] {
			t.Errorf("no model of family %s", family)
		}
	}
}

func stepCounters(t *testing.T, m *llm.Model, meter *stepMeter) {
	rng := rand.New(rand.NewPCG(1, 2))
	s := openSession(t, m, llm.SessionOptions{Context: 200, Batch: 64})
	logits := make([]float32, m.Params().Vocabulary)
	next := func(s *llm.Session) {
		if err := s.Next(context.Background(), int32(5+rng.IntN(200)), logits); err != nil {
			t.Fatal(err)
		}
	}
	prompts, longest := 50, 100
	if invariants.RaceEnabled || invariants.Enabled || testing.Short() {
		prompts = 4
	}
	ids := make([]int32, longest)
	for i := range ids {
		ids[i] = int32(5 + rng.IntN(200))
	}
	decode(t, s, ids...)
	next(s)
	for i := range prompts {
		// Half of the prompts begin as others did, so that their pages are shared.
		prompt := slices.Clone(ids[:1+rng.IntN(longest)])
		if i%2 == 0 {
			prompt[0] = int32(5 + i)
		}
		if err := s.Rewind(0); err != nil {
			t.Fatal(err)
		}
		decode(t, s, prompt...)
		meter.check(t, fmt.Sprintf("after %d tokens", len(prompt)), 0, func() { next(s) })
		if i%8 != 0 {
			continue
		}
		for k := range 4 {
			fork, err := s.Fork()
			if err != nil {
				t.Fatal(err)
			}
			meter.check(t, "a fork", meter.layers, func() { next(fork) })
			meter.check(t, "its origin", meter.layers, func() { next(s) })
			meter.check(t, "the fork again", 0, func() { next(fork) })
			if err := fork.Close(); err != nil {
				t.Fatal(err)
			}
			meter.check(t, "after the fork", 0, func() { next(s) })
			if err := s.Rewind(max(0, s.Past()-rng.IntN(4)-k)); err != nil {
				t.Fatal(err)
			}
			meter.check(t, "after a rewind", meter.layers, func() { next(s) })
		}
	}
	// Pages of windows go, and others come, at the borders of pages.
	if err := s.Rewind(0); err != nil {
		t.Fatal(err)
	}
	for range min(s.Context(), 5*32) {
		meter.check(t, fmt.Sprintf("step %d", s.Past()), 0, func() { next(s) })
	}
}

// At every length of a sequence, a step allocates neither on the Go heap nor on the device, also
// with a context that can be canceled. The size of its upload changes rarely as the sequence
// grows, so that memory of one size serves many steps.
func TestLongSteps(t *testing.T) {
	s, dev := openNull(t, 2)
	logits := make([]float32, s.Model().Params().Vocabulary)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	step := func() {
		if err := s.Next(ctx, 5, logits); err != nil {
			t.Fatal(err)
		}
	}
	step() // uploads the weights
	uploads := make(map[uint64]bool)
	for prompt := make([]int32, 999); s.Past() < s.Context()-2*len(prompt); {
		if err := s.Decode(ctx, prompt, nil); err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(8, step); n > 0 && !invariants.Enabled && !invariants.RaceEnabled { // checked builds record every use
			t.Errorf("%v allocations in a step after %d tokens", n, s.Past())
		}
		before := dev.Stats()
		step()
		after := dev.Stats()
		if after.Allocs != before.Allocs || after.Uploads != before.Uploads+1 {
			t.Errorf("%d uploads and %d allocations on the device in a step after %d tokens", after.Uploads-before.Uploads, after.Allocs-before.Allocs, s.Past())
		}
		uploads[after.UploadBytes-before.UploadBytes] = true
	}
	if len(uploads) > 9 {
		t.Errorf("uploads of %d sizes in steps up to %d tokens, want 9", len(uploads), s.Past())
	}
}

// BenchmarkStep measures a step of a network of 32 layers on a device that computes nothing: the
// time that Go code needs for a token, or for a prompt. It also reports the number of
// submissions.
func BenchmarkStep(b *testing.B) {
	s, dev := openNull(b, 32)
	logits := make([]float32, s.Model().Params().Vocabulary)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, rows := range []int{1, 4, 64} {
		ids := make([]int32, rows)
		decode := func() {
			if s.Past()+rows > 4096 {
				if err := s.Rewind(0); err != nil {
					b.Fatal(err)
				}
			}
			if err := s.Decode(ctx, ids, logits); err != nil {
				b.Fatal(err)
			}
		}
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			for range 40 {
				decode()
			}
			before := dev.Stats()
			b.ReportAllocs()
			for b.Loop() {
				decode()
			}
			after := dev.Stats()
			b.ReportMetric(float64(after.Ops()-before.Ops())/float64(b.N), "submissions/op")
		})
	}
}
