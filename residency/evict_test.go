//go:build accel

package residency

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/core/storage"
	"github.com/fucina-go/fucina/internal/sim/discrete"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

// loop lists the weights of a model in the order in which a forward pass uses them.
type loop []*storage.Buffer

// modelLoop returns the weights of a seeded model.
func (x *bench) modelLoop(opt tinyllama.Options) loop {
	size := make(map[string]int)
	for _, w := range tinyllama.New(opt).Tensors {
		size[w.Name] = len(w.Data)
	}
	order := []string{"token_embd"}
	for l := range opt.Layers {
		for _, name := range strings.Fields("attn_norm attn_q attn_k attn_v attn_output ffn_norm ffn_gate ffn_up ffn_down") {
			order = append(order, fmt.Sprintf("blk.%d.%s", l, name))
		}
	}
	order = append(order, "output_norm", "output")
	if len(order) != len(size) {
		x.t.Fatalf("%d weights are used, the model has %d", len(order), len(size))
	}
	var ws loop
	for _, name := range order {
		ws = append(ws, x.weight(size[name+".weight"], 1))
	}
	return ws
}

// randomLoop returns n weights, the largest of which are 100 times the smallest.
func (x *bench) randomLoop(seed uint64, n int) loop {
	rng := rand.New(rand.NewPCG(seed, 0))
	var ws loop
	for range n {
		ws = append(ws, x.weight(1000+rng.IntN(99000), 1))
	}
	return ws
}

// bytes returns the size of the loop's blocks when all weights are resident.
func (l loop) bytes() int64 {
	n := int64(0)
	for _, w := range l {
		n += int64(exactSize(w.Size()))
	}
	return n
}

// largest returns the bytes of the largest operation of n weights.
func (l loop) largest(n int) int64 {
	most := int64(0)
	for ws := range slices.Chunk(l, n) {
		most = max(most, ws.bytes())
	}
	return most
}

func (l loop) release() {
	for _, w := range l {
		w.Release()
	}
}

// step uses every weight of the loop once and returns the bytes that it uploaded.
func (x *bench) step(l loop) int64 {
	x.t.Helper()
	return x.stepBy(l, 1)
}

// stepBy is step with operations that use n weights each.
func (x *bench) stepBy(l loop, n int) int64 {
	x.t.Helper()
	before := x.dev.Stats().UploadBytes
	for ws := range slices.Chunk(l, n) {
		x.ensure(ws...)
	}
	return int64(x.dev.Stats().UploadBytes - before)
}

// A model over its budget keeps a fixed part resident: a step uploads little more than the
// part over the budget, whatever the sizes of the weights, however many of them an operation
// uses, and whatever memory a cache holds beside them.
func TestOversizedModelStreams(t *testing.T) {
	shapes := []struct {
		name string
		make func(x *bench) loop
		// slack is the share of all weights that a step may upload in addition to the part
		// over the budget. It is large for a model of few weights.
		slack float64
	}{
		{"2 layers", func(x *bench) loop { return x.modelLoop(tinyllama.Options{Layers: 2}) }, 0.3},
		{"4 layers", func(x *bench) loop { return x.modelLoop(tinyllama.Options{Layers: 4}) }, 0.1},
		{"16 layers", func(x *bench) loop { return x.modelLoop(tinyllama.Options{Layers: 16}) }, 0.03},
		{"4 layers, tied", func(x *bench) loop {
			l := x.modelLoop(tinyllama.Options{Layers: 4})
			l[len(l)-1].Release()
			l[0].Retain()
			l[len(l)-1] = l[0]
			return l
		}, 0.1},
		{"random 1", func(x *bench) loop { return x.randomLoop(1, 60) }, 0.06},
		{"random 2", func(x *bench) loop { return x.randomLoop(2, 60) }, 0.06},
		{"random 3", func(x *bench) loop { return x.randomLoop(3, 200) }, 0.04},
	}
	uses := []struct {
		weights int     // of an operation
		cache   float64 // bytes of another block, as a share of all weights
	}{{1, 0}, {3, 0}, {1, 4}}
	for _, tt := range shapes {
		for _, budget := range []float64{0.95, 0.9, 0.75, 0.5} {
			for _, use := range uses {
				t.Run(fmt.Sprintf("%s, budget %v, %d weights at once, cache %v", tt.name, budget, use.weights, use.cache), func(t *testing.T) {
					probe := newBench(t, discrete.Options{}, Options{})
					l := tt.make(probe)
					total := float64(l.bytes())
					cache := classSize(int(use.cache * total))
					x := newBench(t, discrete.Options{}, Options{Budget: int64(budget*total) + int64(cache)})
					held, _ := x.acquire(x.a, cache)
					// Each step streams an earlier part of the loop. While it passes the end of
					// the loop, a step uploads the weights of an operation in addition.
					more := float64(l.largest(use.weights) - l.largest(1))
					limit := 1 - budget + tt.slack + (1-budget)*more/total
					if budget == 0.9 {
						limit = min(limit, 0.2)
					}
					for range 3 {
						x.stepBy(l, use.weights)
					}
					const steps = 10
					uploaded := 0.
					for range steps {
						uploaded += float64(x.stepBy(l, use.weights)) / total
					}
					if uploaded/steps > limit {
						t.Errorf("a step uploads %.3f of the weights, want at most %.3f", uploaded/steps, limit)
					}
					if peak := float64(x.dev.PeakBytes()); peak > budget*total+float64(cache) {
						t.Errorf("%v bytes held at once with a budget of %v", peak, budget*total+float64(cache))
					}
					held.Free(nil)
					l.release()
					x.close()
					probe.close()
				})
			}
		}
	}
}

// In a model with equal layers, a streamed weight reuses the block of another one of its
// size, so that streaming allocates nothing from the provider. Transfers have ended before
// the next weight is needed; otherwise a weight of another size may have to be evicted,
// because those of the right size are still in use.
func TestStreamingReusesBlocks(t *testing.T) {
	probe := newBench(t, discrete.Options{}, Options{})
	l := probe.modelLoop(tinyllama.Options{Layers: 16})
	x := newBench(t, discrete.Options{Sync: true}, Options{Budget: l.bytes() * 9 / 10})
	for range 4 {
		x.step(l)
	}
	before, evictions := x.dev.Stats(), x.m.Stats().Evictions
	for range 8 {
		x.step(l)
	}
	if s := x.dev.Stats(); s.Allocs != before.Allocs || s.Frees != before.Frees {
		t.Errorf("%d allocations and %d frees in 8 steps", s.Allocs-before.Allocs, s.Frees-before.Frees)
	}
	if x.m.Stats().Evictions == evictions {
		t.Error("nothing was streamed, so that nothing was shown")
	}
	l.release()
	x.close()
	probe.close()
}

// Activation blocks that were not reused for two rounds are freed before any weight is
// evicted. Blocks that each step reuses stay.
func TestStaleBlocksGoFirst(t *testing.T) {
	for _, again := range []bool{false, true} {
		x := newBench(t, discrete.Options{}, Options{Budget: 48 << 10})
		var l loop
		for range 8 {
			l = append(l, x.weight(4096, 1))
		}
		b, _ := x.acquire(x.a, 16<<10)
		b.Free(nil)
		for range 5 {
			if again {
				b, _ = x.acquire(x.a, 16<<10)
				b.Free(nil)
			}
			x.step(l)
		}
		more := x.weight(8<<10, 1)
		x.ensure(more)
		s := x.m.Stats()
		if kept := s.Idle == 16<<10; kept != again || kept != (s.Evictions > 0) {
			t.Errorf("block taken in each round %v: %+v", again, s)
		}
		more.Release()
		l.release()
		x.close()
	}
}

// The weights of an idle model are evicted for the model in use, whichever model is larger
// and whichever has the larger weights. Models that take turns share the memory.
func TestIdleModelGivesWay(t *testing.T) {
	make := func(x *bench, n, size int) loop {
		var l loop
		for range n {
			l = append(l, x.weight(size, 1))
		}
		return l
	}
	for _, tt := range []struct{ idle, size, busy, busySize int }{
		{20, 16 << 10, 20, 16 << 10},
		{100, 4 << 10, 10, 40 << 10},
		{10, 40 << 10, 100, 4 << 10},
		{200, 8 << 10, 10, 8 << 10},
		{10, 8 << 10, 200, 8 << 10},
	} {
		t.Run(fmt.Sprintf("%d of %d idle, %d of %d in use", tt.idle, tt.size, tt.busy, tt.busySize), func(t *testing.T) {
			probe := newBench(t, discrete.Options{}, Options{})
			idle, busy := make(probe, tt.idle, tt.size), make(probe, tt.busy, tt.busySize)
			x := newBench(t, discrete.Options{}, Options{Budget: max(idle.bytes(), busy.bytes()) + 4096})
			for range 5 {
				x.step(idle)
			}
			var uploads []int64
			for range 8 {
				uploads = append(uploads, x.step(busy))
			}
			for i, n := range uploads[5:] {
				if n != 0 {
					t.Errorf("step %d of the model in use uploads %d bytes of %d (%d)", 5+i, n, busy.bytes(), uploads)
				}
			}
			// Use the idle model again.
			uploads = nil
			for range 8 {
				uploads = append(uploads, x.step(idle))
			}
			if n := uploads[7]; n != 0 {
				t.Errorf("the idle model in use again uploads %d bytes of %d (%d)", n, idle.bytes(), uploads)
			}
			// Use the models in turns.
			total := idle.bytes() + busy.bytes()
			over := total - x.m.budget
			var n int64
			for range 10 {
				n = x.step(idle) + x.step(busy)
			}
			if n > over+total/10 {
				t.Errorf("in turns the models upload %d bytes of %d; the models are %d bytes over the budget", n, total, over)
			}
			idle.release()
			busy.release()
			x.close()
			probe.close()
		})
	}
}

func TestChoose(t *testing.T) {
	// In order of use: the last one was used last.
	c := func(size, next int64) candidate { return candidate{size: size, next: next} }
	dead := func(size int64) candidate { return candidate{size: size, dead: true} }
	tests := []struct {
		name          string
		list          []candidate
		size, missing int64
		spare         int64
		want          []int // indices
	}{
		{"not enough", []candidate{c(10, 1), c(10, 2)}, 30, 30, 0, nil},
		{"all of them", []candidate{c(10, 1), c(10, 2)}, 20, 20, 0, []int{0, 1}},
		{"used next at the latest time", []candidate{c(10, 5), c(10, 9), c(10, 7)}, 10, 10, 0, []int{1}},
		{"used last, among equals", []candidate{c(10, 5), c(10, 5), c(10, 5)}, 10, 10, 0, []int{2}},
		{"no large one for a small one", []candidate{c(10, 1), c(10, 2), c(1000, 9)}, 10, 10, 0, []int{1}},
		{"the smallest large one", []candidate{c(1000, 9), c(50, 1), c(70, 5)}, 10, 10, 0, []int{1}},
		{"a large one instead of too little", []candidate{c(10, 9), c(50, 1)}, 20, 20, 0, []int{1}},
		{"small ones for a large one", []candidate{c(40, 1), c(30, 2), c(30, 3), c(10, 4)}, 60, 60, 0, []int{1, 2}},
		{"of the right size", []candidate{c(64, 7), c(10, 8), c(10, 9)}, 64, 60, 8, []int{0}},
		{"of the right size, but much more than is missing", []candidate{c(64, 7), c(10, 8), c(10, 9)}, 64, 20, 8, []int{1, 2}},
		{"unless at work", []candidate{c(10, 7), c(10, 8), c(10, 9)}, 10, 10, 20, []int{0}},
		{"at work if need be", []candidate{c(10, 7), c(10, 8), c(10, 9)}, 20, 20, 20, []int{0, 1}},
		{"dead ones, the oldest first", []candidate{dead(10), dead(10), c(10, 9)}, 10, 10, 0, []int{0}},
		{"dead ones, large as they are", []candidate{dead(1000), c(10, 9)}, 10, 10, 0, []int{0}},
		{"dead ones and others", []candidate{dead(10), c(10, 8), c(10, 9)}, 20, 20, 0, []int{0, 2}},
		{"nothing in vain", []candidate{c(40, 7), c(20, 8), c(3, 9)}, 60, 60, 0, []int{0, 1}},
	}
	for _, tt := range tests {
		for i := range tt.list {
			tt.list[i].last = int64(i + 1)
		}
		var got []int
		for _, c := range choose(tt.list, tt.size, tt.missing, tt.spare) {
			got = append(got, int(c.last-1))
		}
		slices.Sort(got)
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: gave up %v, want %v", tt.name, got, tt.want)
		}
	}
}

// The interval of a weight that is used at both ends of a round is the round. A pause does
// not change an interval. The history survives eviction.
func TestHistory(t *testing.T) {
	var h history
	if h.use(1); h.next(1) != math.MaxInt64 {
		t.Errorf("used once: next use in %d", h.next(1))
	}
	for round := range int64(10) {
		h.use(100*round + 100)
		h.use(100*round + 199)
	}
	if n := h.next(1099); n != 99 {
		t.Errorf("used at both ends of a round of 100: next use in %d", n)
	}
	if n := h.next(5000); n != 0 {
		t.Errorf("overdue: next use in %d", n)
	}
	h = history{}
	for _, tick := range []int64{10, 20, 30, 900, 910} {
		if h.use(tick); h.next(tick) != 10 && tick > 10 {
			t.Errorf("used every 10 ticks with one pause: next use in %d at %d", h.next(tick), tick)
		}
	}

	x := newBench(t, discrete.Options{}, Options{})
	w, other := x.weight(4096, 1), x.weight(4096, 1)
	x.ensure(w)
	x.ensure(other)
	if !w.DropDevice() {
		t.Fatal("not dropped")
	}
	x.ensure(w)
	if past := w.DeviceMemory().(*Block).past; past.interval != 2 {
		t.Errorf("interval %d after the weight came back, want 2", past.interval)
	}
	w.Release()
	other.Release()
	x.close()
}

// The histories of freed buffers are dropped.
func TestHistoriesAreForgotten(t *testing.T) {
	x := newBench(t, discrete.Options{}, Options{})
	for range 4 * minPast {
		w := x.weight(16, 1)
		if _, err := x.m.Ensure(bg, w, nil, true); err != nil {
			t.Fatal(err)
		}
		w.Release()
		if len(x.m.past) == minPast {
			runtime.GC()
		}
	}
	if n := len(x.m.past); n > 3*minPast {
		t.Errorf("%d histories", n)
	}
	x.close()
}
