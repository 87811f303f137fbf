package cpu

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/internal/isa"
	"github.com/fucina-go/fucina/internal/offheap"
	"github.com/fucina-go/fucina/internal/team"
	"github.com/fucina-go/fucina/kernels/cpu/dense"
	"github.com/fucina-go/fucina/kernels/cpu/vector"
	"github.com/fucina-go/fucina/quant"
)

// kernel is the state of one operation between its preparation and its end.
type kernel interface {
	phase
	// prepare derives the geometry from arguments that op.Check accepted and whose
	// operands fit their memory, and keeps that memory until release. It checks the
	// alignments that depend on formats, and the operands of indices. Because there may be
	// many indices, it polls the context and returns s.err.
	prepare(a *op.Args, s *scratch) error
	// release drops the operands' memory.
	release()
}

// phase is a part of an operation whose units are independent.
type phase interface {
	// cost returns the number of independent units, and the cost of a unit in
	// multiply-adds, by which units are grouped into chunks. The cost is an upper estimate,
	// because a lane does not poll the context within a chunk of small units.
	cost() (units, cost int)
	// run computes the units lo to hi-1. Within a unit that may cost more than lookEvery,
	// it counts the cost with s.spend, and returns when that returns false.
	run(lo, hi int, s *scratch)
}

// staged is a kernel with a phase that ends before its own begins. The phase may be nil.
type staged interface {
	kernel
	before() phase
}

// variant is a way to compute an operation.
type variant struct {
	// make returns the kernel.
	make func() kernel
	// shared and lane, if set, return the bytes of workspace that the lanes share, and that
	// each lane needs. The results are float64s, which do not overflow.
	shared, lane func(a *op.Args) float64
}

// kernels has a row for each operation that is not in the table pointwise.
var kernels = [op.Count]struct {
	variant
	// quick, if set, is the variant for operations that takesQuick accepts.
	quick *variant
	// aligned are the f32 operands that must start on a multiple of 4 bytes, if they are
	// present.
	aligned []op.Place
}{
	op.Copy:    {variant: variant{make: func() kernel { return new(copyKernel) }}},
	op.GetRows: {variant: variant{make: func() kernel { return new(getRows) }}, aligned: []op.Place{op.FirstOut}},
	op.RMSNorm: {variant: variant{make: func() kernel { return new(rmsNorm) }}, aligned: []op.Place{0, op.FirstOut}},
	op.RoPE:    {variant: variant{make: func() kernel { return new(rope) }}, aligned: []op.Place{0, 1, op.FirstOut}},
	op.MatMul:  {variant: variant{make: func() kernel { return new(matMul) }, lane: matMulLane}, quick: quickOf(op.MatMul), aligned: []op.Place{0, op.FirstOut}},
	op.Attention: {
		variant: variant{make: func() kernel { return new(attention) }, lane: attentionLane}, aligned: []op.Place{0, op.FirstOut},
	},
	op.Softmax: {variant: variant{make: func() kernel { return new(softmax) }}, aligned: []op.Place{0, op.FirstOut}},
	op.Argmax:  {variant: variant{make: func() kernel { return new(argmax) }}, aligned: []op.Place{0}},
	op.Project: {
		variant: variant{make: func() kernel { return new(project) }, lane: projectLane}, quick: quickOf(op.Project), aligned: []op.Place{0, 7, op.FirstOut},
	},
	op.GatedProject: {
		variant: variant{make: func() kernel { return new(gatedProject) }, lane: gatedProjectLane}, quick: quickOf(op.GatedProject), aligned: []op.Place{0, op.FirstOut},
	},
	op.SetRows: {variant: variant{make: func() kernel { return new(setRows) }}, aligned: []op.Place{0}},
	op.AddRMSNorm: {
		variant: variant{make: func() kernel { return new(addRMSNorm) }}, aligned: []op.Place{0, 1, op.FirstOut, op.FirstOut + 1},
	},
	op.RotateStore: {
		variant: variant{make: func() kernel { return new(rotateStore) }, lane: rotateStoreLane}, aligned: []op.Place{0, 1, 2, 3, op.FirstOut},
	},
}

// quickOf returns the quick variant of a product.
func quickOf(id op.ID) *variant {
	return &variant{
		make:   func() kernel { return &quickProduct{op: id} },
		shared: quickShared(id),
		lane:   quickLane(id),
	}
}

// variantOf returns the variant that computes the operation, and whether it is the quick one.
func variantOf(id op.ID, a *op.Args) (v *variant, quick bool) {
	k := &kernels[id]
	if k.quick != nil && takesQuick(id, a) {
		return k.quick, true
	}
	return &k.variant, false
}

// scratch is the state and the memory of one lane.
type scratch struct {
	e         *Executor
	left      int    // multiply-adds until the next look at the context
	err       error  // the context's error, once a look has found the context done
	workspace []byte // part of the call's workspace that belongs to the lane; starts on a multiple of 8 bytes
	floats    [bufferLen]float32
	second    [bufferLen]float32
	result    [bufferLen]float32
	sums      vector.Sums
	keys      cacheBlock
	values    cacheBlock
	from      [8 * bufferLen]byte
	to        [8 * bufferLen]byte
}

// bufferLen is the number of elements that a lane's buffers hold.
const bufferLen = 256

// look asks the context whether to go on, with n multiply-adds at first.
func (s *scratch) look(n int) bool {
	if s.err = s.e.ctx.Err(); s.err != nil {
		s.left = 0 // the next spend looks again
		return false
	}
	s.left = s.e.every - n
	return true
}

// spend counts n multiply-adds that the caller is about to do, and reports whether to do
// them. If it returns false, s.err is set.
func (s *scratch) spend(n int) bool {
	s.left -= n
	return s.left > 0 || s.look(n)
}

// pieceSize divides the length of every piece but the last, so that a piece has whole
// blocks of every format, and whole iterations of the loops with several accumulators.
const pieceSize = 256

// pieces divides a row of elements into pieces of bounded cost, and counts that cost.
type pieces struct {
	s             *scratch
	n, size, cost int
	lo, hi        int // the current piece
}

// pieces returns the pieces of n elements. cost is the multiply-adds of one element.
func (s *scratch) pieces(n, cost int) pieces {
	p := pieces{s: s, n: n, size: n, cost: cost}
	if n*cost > s.e.every {
		p.size = max(1, s.e.every/cost/pieceSize) * pieceSize
	}
	return p
}

// next advances to the next piece. It returns false if there is none or the context is
// done.
func (p *pieces) next() bool {
	if p.hi == p.n {
		return false
	}
	p.lo = p.hi
	p.hi = min(p.lo+p.size, p.n)
	return p.s.spend((p.hi - p.lo) * p.cost)
}

// decode decodes a contiguous row, and reports whether it reached the end of the row.
func (s *scratch) decode(dst []float32, src []byte, d dtype.DType, decode quant.Decoder) bool {
	if n := decodeCost * len(dst); n <= s.e.every {
		if s.spend(n) {
			s.widen(dst, src, d, decode)
		}
		return s.err == nil
	}
	block, size := d.BlockSize(), d.Size()
	p := s.pieces(len(dst), decodeCost)
	for p.next() {
		s.widen(dst[p.lo:p.hi], src[p.lo/block*size:p.hi/block*size], d, decode)
	}
	return s.err == nil
}

// widen is decode, in vectors if the format is f16 or bf16. The bits are the same.
func (s *scratch) widen(dst []float32, src []byte, d dtype.DType, decode quant.Decoder) {
	if k, ok := dense.KernelOf(d, s.e.level); ok {
		k.Widen(dst, src)
		return
	}
	decode(dst, src)
}

// gather decodes scalar elements that lie stride apart, and reports whether it reached the
// last one.
func (s *scratch) gather(dst []float32, src []byte, stride int, d dtype.DType, decode quant.Decoder) bool {
	p := s.pieces(len(dst), gatherCost)
	for p.next() {
		gather(dst[p.lo:p.hi], d, decode, src[p.lo*stride*d.Size():], stride)
	}
	return s.err == nil
}

// dot4 returns the dot products of x with four rows of at least its length. The result is
// valid if s.err is nil.
func (s *scratch) dot4(x []float32, w *[tile][]float32) [tile]float32 {
	var d dots
	if n := tile * len(x); n <= s.e.every {
		if s.spend(n) {
			d.add(x, w[0], w[1], w[2], w[3])
		}
		return d.sums()
	}
	p := s.pieces(len(x), tile)
	for p.next() {
		d.add(x[p.lo:p.hi], w[0][p.lo:], w[1][p.lo:], w[2][p.lo:], w[3][p.lo:])
	}
	return d.sums()
}

// minChunk is the least cost, in multiply-adds, of a chunk that pays off on another lane.
const minChunk = 16 << 10

// lookEvery is the most multiply-adds that a lane does between two polls of the context.
// They take a fraction of a millisecond in the kernels of this package, with a wide
// margin for slow processors.
const lookEvery = 1 << 19

// The costs of other steps, in multiply-adds.
const (
	unitCost   = 32 // finding the operands of a unit
	decodeCost = 8  // decoding an element of a contiguous row; the IQ formats cost most
	gatherCost = 16 // reading an element that is a cache line away from its neighbours
	castCost   = 4  // converting an element of a contiguous row to another scalar dtype
	encodeCost = 8  // encoding an element as q8_0
	expCost    = 16
	lookupCost = 8 // finding a row of a page
	bytesCost  = 2 // a multiply-add with a value that is not aligned
)

// chunksPerLane is the number of chunks per lane. Several chunks balance the load if lanes
// run at different speeds.
const chunksPerLane = 8

// Executor runs operations on host memory, one at a time: Execute must not be called
// concurrently. It owns nothing that must be released.
type Executor struct {
	team    *team.Team
	level   isa.Level // of the kernels that have several
	lanes   int
	grain   int // the least cost of a chunk, in multiply-adds
	every   int // lookEvery; tests set less
	scratch []scratch
	kernels [op.Count]kernel
	quick   [op.Count]kernel // or nil

	// The operation in progress.
	ctx     context.Context
	shared  []byte // part of the workspace; starts on a multiple of 8 bytes
	current phase
	task    func(lo, hi, lane int) bool
}

// NewExecutor returns an Executor whose kernels run on t, which must outlive it.
// Executors may share a team. If t is nil, kernels run on the calling goroutine only. The kernels
// have the level of isa.Current. If that is an error, which the provider reports, they have
// isa.Generic.
func NewExecutor(t *team.Team) *Executor {
	level, _ := isa.Current()
	return newExecutor(t, level)
}

// NewExecutorAt is NewExecutor for a level of isa.Supported.
func NewExecutorAt(t *team.Team, level isa.Level) *Executor { return newExecutor(t, level) }

func newExecutor(t *team.Team, level isa.Level) *Executor {
	if t == nil {
		t = team.New(1)
	}
	e := &Executor{team: t, level: level, lanes: t.Size(), grain: minChunk, every: lookEvery}
	e.scratch = make([]scratch, e.lanes)
	for i := range e.scratch {
		e.scratch[i].e = e
	}
	for id := op.ID(1); id < op.Count; id++ {
		switch f := kernels[id].make; {
		case pointwise[id].loop != nil:
			e.kernels[id] = &elementwise{op: id}
		case f != nil:
			e.kernels[id] = f()
		default:
			panic("cpu: " + id.String() + " has no kernel")
		}
		if q := kernels[id].quick; q != nil {
			e.quick[id] = q.make()
		}
	}
	// The method value is made once, because making one allocates.
	e.task = e.runChunk
	return e
}

// Plan returns the workspace that Execute needs for arguments that op.Infer or op.Check
// accepted. It declines an unknown operation, and an operation whose workspace exceeds any
// memory. It may be called concurrently.
func (e *Executor) Plan(id op.ID, a *op.Args) provider.Plan {
	return Plan(id, a, e.lanes)
}

// Plan is [Executor.Plan] for an Executor with the given number of lanes.
func Plan(id op.ID, a *op.Args, lanes int) provider.Plan {
	if !id.Valid() {
		return provider.Decline(fmt.Sprintf("operation %d is unknown", id))
	}
	v, _ := variantOf(id, a)
	shared, lane, err := v.workspace(a, lanes)
	if err != nil {
		return provider.Decline(err.Error())
	}
	return provider.Plan{Supported: true, Workspace: shared + lane*lanes}
}

// maxWorkspace bounds the bytes of a workspace. It is more than any machine has, and small
// enough to compute with.
const maxWorkspace = min(1<<50, math.MaxInt/2)

// workspace returns the bytes of workspace that the lanes share, and that each lane needs, padded so
// that two lanes share no cache line.
func (v *variant) workspace(a *op.Args, lanes int) (shared, lane int, err error) {
	var s, l float64
	if v.shared != nil {
		s = v.shared(a)
	}
	if v.lane != nil {
		l = v.lane(a)
	}
	if all := s + l*float64(lanes); all > maxWorkspace {
		return 0, 0, fmt.Errorf("rows so long that they need a workspace of %.3g bytes", all)
	}
	return lines(int(s)), lines(int(l)), nil
}

// lines returns n rounded up to whole cache lines, with one more unless n is 0.
func lines(n int) int {
	if n == 0 {
		return 0
	}
	return (n + 127) &^ 63
}

// Execute runs the operation and returns when it is done. op.Check has accepted the
// arguments. Execute relies on that and checks the memory:
//   - every operand that is present, and the workspace if Plan asks for one, has Mem.Host set
//     and lies within it;
//   - the workspace starts on a multiple of 8 bytes;
//   - f32 activations and outputs start on a multiple of 4 bytes;
//   - indices are in range, unless Args.Status is set.
//
// If a check fails, the outputs are unchanged, as they are for an unknown operation, whose
// error wraps provider.ErrUnsupported. If an index changes during the operation, to one out
// of range, Execute fails too, and the outputs are undefined. If an operand lies in a mapped
// file that was truncated, the error wraps offheap.ErrFileChanged and the outputs are
// undefined. Of an output that the operation writes into, only the elements that it writes
// may be undefined. The errors do not name the operation; the caller adds its name.
//
// Every lane polls ctx before it begins and at least every 5 ms of work. Once the lanes
// have found ctx done, Execute returns an error that wraps ctx's, and the outputs are
// undefined. An operation that ends before succeeds.
func (e *Executor) Execute(ctx context.Context, id op.ID, a *op.Args) error {
	if !id.Valid() {
		return fmt.Errorf("cpu: %w: operation %d", provider.ErrUnsupported, id)
	}
	v, quick := variantOf(id, a)
	err := e.checkMemory(id, a, v)
	if err == nil {
		k := e.kernels[id]
		if quick {
			k = e.quick[id]
		}
		e.ctx = ctx
		// Operands may lie in a mapped file.
		err = offheap.Guard(func() error {
			if err := k.prepare(a, &e.scratch[0]); err != nil {
				return err
			}
			if k, ok := k.(staged); ok {
				if p := k.before(); p != nil {
					if err := e.run(p); err != nil {
						return err
					}
				}
			}
			return e.run(k)
		})
		k.release()
		e.ctx, e.current, e.shared = nil, nil, nil
		for i := range e.scratch {
			e.scratch[i].workspace = nil
		}
	}
	if err != nil {
		for i := range e.scratch {
			e.scratch[i].err = nil
		}
		return fmt.Errorf("cpu: %w", err)
	}
	return nil
}

// checkMemory checks that the operands and the workspace lie within their memory, and gives
// each lane its workspace.
func (e *Executor) checkMemory(id op.ID, a *op.Args, v *variant) error {
	for i := range a.NIn {
		if a.In[i].IsZero() {
			continue
		}
		if err := checkMem(id, a, op.Place(i)); err != nil {
			return err
		}
	}
	for i := range id.Outputs() {
		if err := checkMem(id, a, op.FirstOut+op.Place(i)); err != nil {
			return err
		}
	}
	for _, p := range kernels[id].aligned {
		if p < op.FirstOut && !a.Has(p) {
			continue
		}
		if err := checkAligned(id, a, p); err != nil {
			return err
		}
	}
	shared, lane, err := v.workspace(a, e.lanes)
	if err != nil || shared+lane == 0 {
		return err
	}
	w := a.Workspace.Host
	if need := shared + lane*e.lanes; len(w) < need {
		return fmt.Errorf("the workspace has %d bytes, want the %d that Plan asks for", len(w), need)
	}
	if !aligned(w, 8) {
		return errors.New("the workspace does not start on a multiple of 8 bytes")
	}
	e.shared, w = w[:shared:shared], w[shared:]
	for i := range e.scratch {
		e.scratch[i].workspace = w[i*lane:][:lane:lane]
	}
	return nil
}

// run divides the units of a phase into chunks and runs them on the lanes. A chunk costs at
// most lookEvery, unless a single unit costs more. A small operation runs on this
// goroutine only.
func (e *Executor) run(p phase) error {
	units, cost := p.cost()
	cost = max(1, cost)
	chunks := 1
	if perChunk := max(1, e.grain/cost); e.lanes > 1 && units >= 2*perChunk {
		chunks = min(units/perChunk, e.lanes*chunksPerLane)
	}
	e.current = p
	if e.team.RunRanges(units, min((units+chunks-1)/chunks, max(1, e.every/cost)), e.task) {
		return nil
	}
	var err error
	for i := range e.scratch {
		if s := &e.scratch[i]; s.err != nil {
			err = s.err
		}
	}
	return err
}

func (e *Executor) runChunk(lo, hi, lane int) bool {
	s := &e.scratch[lane]
	if s.look(0) {
		e.current.run(lo, hi, s)
	}
	return s.err == nil
}
