package cpu

import (
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/fucina-go/fucina/core/conformance/reference"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/internal/invariants"
	"github.com/fucina-go/fucina/internal/team"
	"github.com/fucina-go/fucina/tests/countdown"
)

// longCase is an operation whose rows are so long that they are divided into pieces.
type longCase struct {
	name string
	op   op.ID
	args op.Args
	cost int // lower bound of the cost, in multiply-adds
}

// longCases returns all operations, with each path through them, on rows of about n
// elements. n is a multiple of 256. keys is the number of keys of attention.
func longCases(n, keys int) []longCase {
	rng := newRand()
	f := func(l reference.Layout, dims ...int) op.Operand { return random(operand(dtype.F32, l, dims...), rng) }
	in := func(out op.Operand, in ...op.Operand) op.Args {
		a := op.Args{NIn: len(in), Out: [op.MaxOut]op.Operand{out}, Params: op.Params{Scale: 0.1, SoftCap: 3, Eps: 1e-5, Mode: op.RoPENeoX, Scales: [3]float32{0.5, 1, 2}}}
		copy(a.In[:], in)
		return a
	}
	weights := func(d dtype.DType, l reference.Layout, rows int) op.Operand {
		return random(operand(d, l, rows, n), rng)
	}
	misaligned := f(plain, 5, n)
	setMem(&misaligned, 1, misaligned.Mem.Host)
	cache := func(d dtype.DType) op.Operand { return random(operand(d, plain, keys, 1, n), rng) }
	one := func(l reference.Layout, dims ...int) op.Operand { return operand(dtype.F32, l, dims...) }
	none := op.Operand{}
	nan := f(plain, 2, n+3)
	setF32(&nan, n/2, float32(math.NaN()))
	interleaved := in(one(plain, 2, 2, n+3), f(plain, 2, 2, n+3), f(plain, 2, n/3, 2))
	interleaved.Mode = op.RoPEInterleaved
	attention := in(one(plain, 2, 3, n), f(plain, 2, 3, n), cache(dtype.F16), cache(dtype.Q8_0), positions(keys-2, 2))
	direct := in(one(plain, 2, 3, n), f(plain, 2, 3, n), cache(dtype.F32), cache(dtype.F32), positions(keys-2, 2))
	direct.SoftCap = 0
	z := pagedSizes{kd: dtype.Q8_0, vd: dtype.F16, pageRows: 7, heads: 3, kvHeads: 1, d: n, dv: n}
	paged := newPaged(maker{rng}, z, []int{keys, keys}, []attentionRow{{0, keys - 1}, {1, keys - 1}}).paged
	sum := in(one(plain, 2, n+3), f(plain, 2, n+3), f(plain, 2, n+3), f(plain, n+3))
	sum.Out[1] = one(plain, 2, n+3)
	places := ofInts(dtype.I32, 2, 0)
	stored := in(one(plain, 2, 2, n), f(plain, 2, 2, n), f(plain, 2, 1, n), f(plain, 2, 1, n), f(plain, 2, n/4, 2), places, f(plain, n), f(spread, n))
	stored.Out[1] = operand(dtype.Q8_0, padded, 2, 2*2*n)
	set := func(d dtype.DType) op.Args { return in(operand(d, padded, 3, n), f(padded, 2, n), places) }
	list := []longCase{
		{"add", op.Add, in(one(plain, n+3), f(plain, n+3), f(plain, n+3)), n},
		{"swiglu strided", op.SwiGLU, in(one(spread, 2, n), f(reversed, 2, n), f(plain, 2, n)), 2 * n},
		{"soft_cap", op.SoftCap, in(one(plain, n+3), f(plain, n+3)), n},
		{"rms_norm", op.RMSNorm, in(one(plain, 2, n+3), f(plain, 2, n+3), f(plain, n+3)), 2 * (2 + 2) * n},
		{"rms_norm strided weight", op.RMSNorm, in(one(plain, 2, n+3), f(plain, 2, n+3), f(spread, n+3)), 2 * (2 + 2) * n},
		{"softmax", op.Softmax, in(one(plain, 2, n+3), f(plain, 2, n+3)), 2 * (1 + expCost + 1) * n},
		{"argmax", op.Argmax, in(operand(dtype.I32, plain, 2), f(plain, 2, n+3)), 2 * n},
		{"argmax NaN", op.Argmax, in(operand(dtype.I32, plain, 2), nan), n},
		{"rope neox", op.RoPE, in(one(plain, 2, 2, n+3), f(plain, 2, 2, n+3), f(plain, 2, n/3, 2)), 4 * (4 + 1) * (n / 3)},
		{"rope interleaved", op.RoPE, interleaved, 4 * (4 + 1) * (n / 3)},
		{"get_rows q4_k", op.GetRows, in(one(plain, 3, n), weights(dtype.Q4_K, plain, 4), ofInts(dtype.I32, 3, 0, 2)), 3 * n},
		{"get_rows f16", op.GetRows, in(one(plain, 3, n), weights(dtype.F16, padded, 4), ofInts(dtype.I64, 3, 0, 2)), 3 * n},
		{"copy q6_k", op.Copy, in(one(plain, 2, n), weights(dtype.Q6_K, plain, 2)), 2 * n},
		{"copy q6_k strided", op.Copy, in(one(spread, 2, n), weights(dtype.Q6_K, plain, 2)), 2 * n},
		{"copy to q8_0", op.Copy, in(operand(dtype.Q8_0, plain, 2, n), f(plain, 2, n)), 2 * n},
		{"copy to f16", op.Copy, in(operand(dtype.F16, plain, 2, n), f(reversed, 2, n)), 2 * n},
		{"matmul f32", op.MatMul, in(one(plain, 3, 5), f(plain, 3, n), weights(dtype.F32, plain, 5)), 3 * 5 * n},
		{"matmul f32 misaligned", op.MatMul, in(one(plain, 3, 5), f(plain, 3, n), misaligned), 3 * 5 * n},
		{"matmul f32 strided", op.MatMul, in(one(plain, 3, 5), f(plain, 3, n), weights(dtype.F32, spread, 5)), 3 * 5 * n},
		{"matmul q4_k", op.MatMul, in(one(plain, 3, 5), f(plain, 3, n), weights(dtype.Q4_K, plain, 5)), 3 * 5 * n},
		{
			"project", op.Project,
			in(one(plain, 3, 15), f(plain, 3, n), weights(dtype.F32, plain, 5), weights(dtype.Q4_K, plain, 5), misaligned, f(plain, 5), f(spread, 5)),
			3 * 15 * n,
		},
		{
			"project with a residual", op.Project,
			in(one(plain, 3, 5), f(plain, 3, n), weights(dtype.F16, spread, 5), none, none, f(plain, 5), none, none, f(padded, 3, 5)),
			3 * 5 * n,
		},
		{
			"gated_project", op.GatedProject,
			in(one(plain, 3, 5), f(plain, 3, n), weights(dtype.Q6_K, plain, 5), weights(dtype.Q4_K, plain, 5), none, f(plain, 5)),
			2 * 3 * 5 * n,
		},
		{"gated_project f32", op.GatedProject, in(one(plain, 3, 5), f(plain, 3, n), weights(dtype.F32, plain, 5), misaligned), 2 * 3 * 5 * n},
		{"attention", op.Attention, attention, 2 * 3 * (keys - 1) * 2 * n},
		{"add_rms_norm", op.AddRMSNorm, sum, 2 * (1 + 2 + 2) * n},
		{"set_rows f32", op.SetRows, set(dtype.F32), 2 * n},
		{"set_rows f16", op.SetRows, set(dtype.F16), 2 * n},
		{"set_rows q8_0", op.SetRows, set(dtype.Q8_0), 2 * n},
		{"rotate_store", op.RotateStore, stored, 2 * (3*(2+2+1) + 2*1) * n},
		{"attention f32", op.Attention, direct, 2 * 3 * (keys - 1) * 2 * n},
		{"attention paged", op.Attention, paged, 2 * keys * (3*2*n + 2*decodeCost*n)},
	}
	for _, c := range list {
		c.name, c.args.Exact = "exact "+c.name, true
		list = append(list, c)
	}
	return list
}

// Dividing long rows into pieces does not change the results.
func TestPieces(t *testing.T) {
	es := executors(t)
	for _, c := range longCases(768, 71) {
		t.Run(c.name, func(t *testing.T) { execute(t, es, c.op, c.args) })
	}
}

// At whatever poll the context is found done, the operation ends with the context's error,
// and each lane polls at most a few times more. The executor then holds no operand, and the
// next operation has the usual result.
func TestCancelAnywhere(t *testing.T) {
	es := executors(t)
	for _, c := range longCases(512, 71) {
		t.Run(c.name, func(t *testing.T) {
			c.args.NOut = len(c.op.Outputs())
			before := outputs(&c.args)
			run := func(e *Executor, ctx context.Context) ([][]byte, error) {
				a := withWorkspace(t, e, c.op, withOutputs(c.args, before))
				err := e.Execute(ctx, c.op, &a)
				return outputs(&a), err
			}
			want, err := run(es[0], bg)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range es {
				total := countdown.After(math.MaxInt)
				if _, err := run(e, total); err != nil {
					t.Fatal(err)
				}
				n := total.Looks()
				if n == 0 {
					t.Fatalf("%d lanes never look", e.lanes)
				}
				for _, looks := range []int{0, 1, 2, 3, 5, n / 3, n / 2, n - 2, n - 1} {
					if looks < 0 || looks >= n {
						continue
					}
					ctx := countdown.After(looks)
					out, err := run(e, ctx)
					if !errors.Is(err, context.Canceled) {
						t.Fatalf("%d lanes, done after %d of %d looks: error %v, want %v", e.lanes, looks, n, err, context.Canceled)
					}
					if looks == 0 && !reflect.DeepEqual(out, before) {
						t.Errorf("%d lanes, done at the start: the output has changed", e.lanes)
					}
					if more := int(ctx.Looks()) - looks; more > 40*e.lanes {
						t.Errorf("%d lanes, done after %d of %d looks: looked %d times more", e.lanes, looks, n, more)
					}
					for i := range e.scratch {
						if err := e.scratch[i].err; err != nil {
							t.Errorf("lane %d keeps %v", i, err)
						}
					}
				}
				if got, err := run(e, bg); err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("%d lanes: after a cancelled operation, the next one differs or fails: %v", e.lanes, err)
				}
				// A context that is done too late to be seen changes nothing.
				if got, err := run(e, countdown.After(n+e.lanes)); err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("%d lanes: differs or fails under a context that is never done: %v", e.lanes, err)
				}
			}
		})
	}
}

// metered is a kernel of known cost that records how many multiply-adds it does between two
// polls of the context.
type metered struct {
	units, each int // number of units, and the cost of one
	step        int // multiply-adds between calls of spend inside a unit; 0 for no calls
	since, most int // multiply-adds since the last poll, and their maximum
}

func (k *metered) prepare(*op.Args, *scratch) error { return nil }
func (k *metered) cost() (units, cost int)          { return k.units, k.each }
func (k *metered) release()                         {}
func (k *metered) do(n int)                         { k.since += n; k.most = max(k.most, k.since) }
func (k *metered) Err() error                       { k.since = 0; return nil }
func (k *metered) run(lo, hi int, s *scratch) {
	for range hi - lo {
		if k.step == 0 {
			k.do(k.each)
			continue
		}
		p := s.pieces(k.each/k.step, k.step)
		for p.next() {
			k.do((p.hi - p.lo) * k.step)
		}
	}
}

type meteredContext struct {
	context.Context
	*metered
}

func (c meteredContext) Err() error { return c.metered.Err() }

// The cost between two polls of a lane is bounded, whatever the size and the number of the
// units.
func TestLooksAreClose(t *testing.T) {
	for _, k := range []*metered{
		{units: 1, each: 100},
		{units: 1 << 20, each: 0},
		{units: 1 << 20, each: 1},
		{units: 1 << 20, each: 100},
		{units: 1000, each: lookEvery/2 + 1},
		{units: 1000, each: lookEvery},
		{units: 3, each: 100 * lookEvery, step: 1},
		{units: 3, each: 100 * lookEvery, step: 64},
		{units: 1000, each: lookEvery - 1, step: 7},
		{units: 100, each: lookEvery + 1, step: 1},
	} {
		e := NewExecutor(nil)
		e.kernels[op.Copy] = k
		a := sampleOf(t, e, op.Copy)
		if err := e.Execute(meteredContext{bg, k}, op.Copy, &a); err != nil {
			t.Fatal(err)
		}
		if k.most == 0 && k.each > 0 || k.most > lookEvery {
			t.Errorf("%d units of %d: %d multiply-adds between two looks, want at most %d", k.units, k.each, k.most, lookEvery)
		}
	}
}

// The real kernels poll as often as the lower bound of their cost requires, even if the
// whole operation is one unit.
func TestLongRowsLook(t *testing.T) {
	e := NewExecutor(nil)
	e.every = 1 << 12 // so that rows of a moderate length are divided into many pieces
	const n = 1 << 16
	long := longCases(n, 5)
	rng := newRand()
	f := func(dims ...int) op.Operand { return random(operand(dtype.F32, plain, dims...), rng) }
	keys := reference.Args(op.Params{}, operand(dtype.F32, plain, 1, 1, 64), f(1, 1, 64), f(n/16, 1, 64), f(n/16, 1, 64), positions(n/16-1, 1))
	coded := keys
	coded.In[1] = random(operand(dtype.F16, plain, n/16, 1, 64), rng)
	coded.In[2] = random(operand(dtype.Q8_0, plain, n/16, 1, 64), rng)
	rows := op.Args{NIn: 2, Out: [op.MaxOut]op.Operand{operand(dtype.F32, plain, n/256, 4)}}
	rows.In[0], rows.In[1] = f(n/256, 256), f(4, 256)
	// There are so many tiles that all rows are one stretch.
	short := reference.Args(op.Params{}, operand(dtype.F32, plain, n, 4*tile), f(n, 1), f(4*tile, 1))
	gated := reference.Args(op.Params{}, operand(dtype.F32, plain, n, 4*tile), f(n, 1), f(4*tile, 1), f(4*tile, 1))
	ids := op.Args{NIn: 2, Out: [op.MaxOut]op.Operand{operand(dtype.F32, plain, n, 1)}}
	ids.In[0], ids.In[1] = f(2, 1), ofInts(dtype.I32, make([]int64, n)...)
	// The positions and the pages are checked before the scores are computed. A key costs at
	// least a look-up, a score of a tile, a weight and a value.
	const key = lookupCost + tile + expCost + 1
	many := reference.Args(op.Params{}, operand(dtype.F32, plain, n, 1, 1), f(n, 1, 1), f(1, 1, 1), f(1, 1, 1), positions(0, 1))
	many.In[3] = ofInts(dtype.I32, make([]int64, n)...)
	z := pagedSizes{kd: dtype.F32, vd: dtype.F32, pageRows: 1, heads: 1, kvHeads: 1, d: 1, dv: 1}
	pages := newPaged(maker{rng}, z, []int{n}, []attentionRow{{0, n - 1}}).paged
	long = append(long,
		longCase{"attention of many rows", op.Attention, many, n * (unitCost + key)},
		longCase{"attention over many pages", op.Attention, pages, n * (lookupCost + key)},
		longCase{"attention of one head over many keys", op.Attention, keys, n / 16 * 128},
		longCase{"attention of one head over many coded keys", op.Attention, coded, n / 16 * 128 * (1 + decodeCost)},
		longCase{"matmul of many rows with one tile", op.MatMul, rows, 4 * n},
		longCase{"project of many short rows", op.Project, short, 4 * n * (tile + stepsCost)},
		longCase{"gated_project of many short rows", op.GatedProject, gated, 4 * n * (2*tile + activationCost)},
		// The ids are checked before the rows are gathered.
		longCase{"get_rows of many ids", op.GetRows, ids, n*decodeCost + n*(unitCost+decodeCost)})
	for _, c := range long {
		if _, quick := variantOf(c.op, &c.args); quick {
			c.cost = max(e.every, c.cost/(8*panelSpeed)) // a call of assembly takes several rows
		}
		ctx := countdown.After(math.MaxInt)
		a := withWorkspace(t, e, c.op, c.args)
		if err := e.Execute(ctx, c.op, &a); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if looks, want := ctx.Looks(), c.cost/e.every; want == 0 || looks < want {
			t.Errorf("%s: %d looks during %d multiply-adds, want one every %d", c.name, looks, c.cost, e.every)
		}
	}
}

// A matrix product polls while it computes the output, not only before or after. A quick one does
// many more multiply-adds in the time.
func TestMatMulLooksAsItGoes(t *testing.T) {
	t.Run("exact", func(t *testing.T) { testMatMulLooks(t, 512, 64, true, lookEvery) })
	t.Run("quick", func(t *testing.T) { testMatMulLooks(t, 1024, 256, false, panelSpeed*lookEvery) })
}

func testMatMulLooks(t *testing.T, m, n int, exact bool, most int) {
	const kk = 256
	rng := newRand()
	e := NewExecutor(nil)
	a := op.Args{NIn: 2, Out: [op.MaxOut]op.Operand{operand(dtype.F32, plain, m, n)}, Exact: exact}
	a.In[0], a.In[1] = random(operand(dtype.F32, plain, m, kk), rng), random(operand(dtype.Q8_0, plain, n, kk), rng)
	a = withWorkspace(t, e, op.MatMul, a)
	out := floats(a.Out[0].Mem.Host)
	fresh := out[0]
	seen := 0
	ctx := &watcher{Context: bg, f: func() {
		done := 0
		for _, v := range out {
			if v != fresh {
				done++
			}
		}
		if cost := (done - seen) * kk; cost > most {
			t.Errorf("%d multiply-adds between two looks, want at most %d", cost, most)
		}
		seen = done
	}}
	if err := e.Execute(ctx, op.MatMul, &a); err != nil {
		t.Fatal(err)
	}
	if rest := (m*n - seen) * kk; rest > most {
		t.Errorf("%d multiply-adds after the last look, want at most %d", rest, most)
	}
}

// watcher calls f at each poll.
type watcher struct {
	context.Context
	f func()
}

func (w *watcher) Err() error {
	w.f()
	return nil
}

// Execute with a cancellable context does not allocate.
func TestCancelAllocatesNothing(t *testing.T) {
	if invariants.RaceEnabled {
		t.Skip("the race detector allocates")
	}
	ctx, cancel := context.WithCancel(bg)
	defer cancel()
	for _, e := range executors(t) {
		for _, c := range longCases(512, 71) {
			a := withWorkspace(t, e, c.op, c.args)
			if got := testing.AllocsPerRun(3, func() {
				if err := e.Execute(ctx, c.op, &a); err != nil {
					t.Fatal(err)
				}
			}); got != 0 {
				t.Errorf("%s on %d lanes: %v allocations, want 0", c.name, e.lanes, got)
			}
		}
	}
}

// together is a kernel with one unit per lane. The units wait for one another before they
// call spend.
type together struct {
	metered
	barrier sync.WaitGroup
}

func (k *together) run(_, _ int, s *scratch) {
	k.barrier.Done()
	k.barrier.Wait()
	s.spend(lookEvery)
}

// If several lanes find the context done in one run, none of them keeps the error for the
// next run.
func TestCancelOnEveryLane(t *testing.T) {
	const lanes = 3
	tm := team.New(lanes)
	defer tm.Close()
	e := NewExecutor(tm)
	k := &together{metered: metered{units: lanes, each: lookEvery}}
	e.kernels[op.Copy] = k
	k.barrier.Add(lanes)
	a := sampleOf(t, e, op.Copy)
	if err := e.Execute(countdown.After(lanes), op.Copy, &a); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
	for i := range e.scratch {
		if err := e.scratch[i].err; err != nil {
			t.Errorf("lane %d keeps %v", i, err)
		}
	}
	k.barrier.Add(lanes)
	if err := e.Execute(bg, op.Copy, &a); err != nil {
		t.Error(err)
	}
}

// An executor whose team is busy runs on one lane, and ends with its context too.
func TestCancelOnBusyTeam(t *testing.T) {
	tm := team.New(2)
	defer tm.Close()
	e := NewExecutor(tm)
	e.grain, e.every = 1, 1
	c := longCases(512, 71)[slices.IndexFunc(longCases(512, 71), func(c longCase) bool { return c.name == "exact matmul q4_k" })]
	a := withWorkspace(t, e, c.op, c.args)
	tm.Run(2, func(task, _ int) bool {
		if task == 0 {
			if err := e.Execute(countdown.After(10), c.op, &a); !errors.Is(err, context.Canceled) {
				t.Errorf("error %v, want %v", err, context.Canceled)
			}
		}
		return true
	})
}
