package cpu

import (
	"context"
	"fmt"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/internal/offheap"
	"github.com/fucina-go/fucina/internal/team"
	"github.com/fucina-go/fucina/quant"
)

// kernel is the state of one operation between its preparation and its end.
type kernel interface {
	// prepare checks the operands' metadata and derives the geometry; lanes is
	// the number of lanes that will run.
	prepare(a *op.Args, lanes int) error
	// bind checks the operands' memory and holds on to it. It may return s.err.
	bind(a *op.Args, s *scratch) error
	// work returns the number of independent units, and the cost of one in
	// multiply-adds, by which units are grouped into tasks. The cost is an upper estimate,
	// because a lane does not look at the context within a task of small units.
	work() (units, cost int)
	// run computes the units lo to hi-1. A unit that may cost more than lookEvery
	// is counted with s as it goes, and run returns when s says that the context is
	// done.
	run(lo, hi int, s *scratch)
	// release lets go of the operands' memory.
	release()
}

// scratch is what each lane has to itself.
type scratch struct {
	e      *Executor
	lane   int
	left   int   // multiply-adds until the next look at the context
	err    error // the context's error, once a look has found the context done
	floats [256]float32
	from   [8 * 256]byte
	to     [8 * 256]byte
}

// look asks the context whether to go on, with n multiply-adds at first.
func (s *scratch) look(n int) bool {
	if s.err = s.e.ctx.Err(); s.err != nil {
		s.left = 0 // the next spend looks again
		return false
	}
	s.left = s.e.every - n
	return true
}

// spend counts n multiply-adds that are about to be done, and reports whether to do
// them. After it has returned false, s.err is set.
func (s *scratch) spend(n int) bool {
	s.left -= n
	return s.left > 0 || s.look(n)
}

// pieceSize divides the length of every piece but the last: pieces are whole blocks
// of every format, and whole turns of the loops that have several accumulators.
const pieceSize = 256

// pieces cuts a row of elements into pieces that cost little enough, and counts them.
type pieces struct {
	s             *scratch
	n, size, cost int
	lo, hi        int // the current piece
}

// pieces returns the pieces of n elements that cost that many multiply-adds each.
func (s *scratch) pieces(n, cost int) pieces {
	p := pieces{s: s, n: n, size: n, cost: cost}
	if n*cost > s.e.every {
		p.size = max(1, s.e.every/cost/pieceSize) * pieceSize
	}
	return p
}

// next goes to the next piece, if there is one and the context is not done.
func (p *pieces) next() bool {
	if p.hi == p.n {
		return false
	}
	p.lo = p.hi
	p.hi = min(p.lo+p.size, p.n)
	return p.s.spend((p.hi - p.lo) * p.cost)
}

// decode decodes a contiguous row and reports whether it came to its end.
func (s *scratch) decode(dst []float32, src []byte, d dtype.DType, decode quant.Decoder) bool {
	if n := decodeCost * len(dst); n <= s.e.every {
		if s.spend(n) {
			decode(dst, src)
		}
		return s.err == nil
	}
	block, size := d.BlockSize(), d.Size()
	p := s.pieces(len(dst), decodeCost)
	for p.next() {
		decode(dst[p.lo:p.hi], src[p.lo/block*size:p.hi/block*size])
	}
	return s.err == nil
}

// gather decodes scalar elements that lie stride apart and reports whether it came to
// the end.
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

// minTask is the cost, in multiply-adds, of the least task that is worth handing
// to another lane.
const minTask = 16 << 10

// lookEvery is the most work, in multiply-adds, that a lane does between two looks at
// the context: a fraction of a millisecond in the kernels of this package, with a wide
// margin for slow processors.
const lookEvery = 1 << 19

// What other work costs, in multiply-adds.
const (
	unitCost   = 32 // finding the operands of a unit
	decodeCost = 8  // an element of a contiguous row; those of the IQ formats cost most
	gatherCost = 16 // an element that is a cache line away from its neighbours
	encodeCost = 8  // an element of q8_0
	expCost    = 16
)

// pointwise are the operations of the elementwise kernel.
var pointwise = [...]op.ID{
	op.Add, op.Mul, op.SwiGLU, op.GeGLU, op.Scale, op.SoftCap,
}

// tasksPerLane lets a lane that falls behind leave tasks to the others.
const tasksPerLane = 8

// Executor runs operations on host memory, one at a time: a goroutine that calls
// Execute must not do so while another does. It owns nothing that needs releasing.
type Executor struct {
	team    *team.Team
	lanes   int
	grain   int // the least cost of a task, in multiply-adds
	every   int // lookEvery
	scratch []scratch

	copy      copyKernel
	getRows   getRows
	pointwise [len(pointwise)]elementwise
	rmsNorm   rmsNorm
	rope      rope
	matMul    matMul
	attention attention
	softmax   softmax
	argmax    argmax
	kernels   [op.Count]kernel

	// The operation in progress, for its lanes.
	ctx     context.Context
	current kernel
	units   int
	chunk   int
	task    func(task, lane int) bool
}

// NewExecutor returns an Executor whose kernels run on t, which must outlive it.
// Executors may share a team. A nil team means the calling goroutine alone.
func NewExecutor(t *team.Team) *Executor {
	if t == nil {
		t = team.New(1)
	}
	e := &Executor{team: t, lanes: t.Size(), grain: minTask, every: lookEvery}
	e.scratch = make([]scratch, e.lanes)
	for i := range e.scratch {
		e.scratch[i].e, e.scratch[i].lane = e, i
	}
	e.kernels = [op.Count]kernel{
		op.Copy:      &e.copy,
		op.GetRows:   &e.getRows,
		op.RMSNorm:   &e.rmsNorm,
		op.RoPE:      &e.rope,
		op.MatMul:    &e.matMul,
		op.Attention: &e.attention,
		op.Softmax:   &e.softmax,
		op.Argmax:    &e.argmax,
	}
	for i, id := range pointwise {
		e.pointwise[i].op = id
		e.kernels[id] = &e.pointwise[i]
	}
	// A method value made once: made at each call, it would be an allocation.
	e.task = e.runTask
	return e
}

// Lanes returns the number of lanes that kernels run on.
func (e *Executor) Lanes() int { return e.lanes }

// Plan says whether Execute accepts the operation, from the operands' metadata
// alone, and how much workspace it needs. It may be called by several goroutines.
func (e *Executor) Plan(id op.ID, a *op.Args) provider.Plan {
	return Plan(id, a, e.lanes)
}

// Plan is [Executor.Plan] of an Executor with that many lanes.
func Plan(id op.ID, a *op.Args, lanes int) provider.Plan {
	// Each case has its kernel on the stack; through the interface it would escape.
	var err error
	need := 0
	switch id {
	case op.Copy:
		var k copyKernel
		err = k.prepare(a, lanes)
	case op.GetRows:
		var k getRows
		err = k.prepare(a, lanes)
	case op.Add, op.Mul, op.SwiGLU, op.GeGLU, op.Scale, op.SoftCap:
		k := elementwise{op: id}
		err = k.prepare(a, lanes)
	case op.RMSNorm:
		var k rmsNorm
		err = k.prepare(a, lanes)
	case op.RoPE:
		var k rope
		err = k.prepare(a, lanes)
	case op.MatMul:
		var k matMul
		err = k.prepare(a, lanes)
		need = k.need
	case op.Attention:
		var k attention
		err = k.prepare(a, lanes)
		need = k.need
	case op.Softmax:
		var k softmax
		err = k.prepare(a, lanes)
	case op.Argmax:
		var k argmax
		err = k.prepare(a, lanes)
	default:
		return provider.Decline(fmt.Sprintf("operation %d is unknown", id))
	}
	if err != nil {
		return provider.Decline(err.Error())
	}
	return provider.Plan{Supported: true, Workspace: need}
}

// Execute runs the operation and returns when it is done. All operands, and the
// workspace if Plan asks for one, have Mem.Host set; the workspace starts on a
// multiple of 8 bytes. The arguments are checked first: an error, which wraps
// provider.ErrUnsupported or shape.ErrShapeMismatch where it is one of these,
// means that the output is untouched, but for one that wraps offheap.ErrFileChanged: an
// operand lies in a mapped file that was cut, and the output is undefined.
//
// Every lane looks at ctx before it begins and at least every 5 ms of work. When ctx
// is done, Execute returns an error that wraps ctx's as soon as the lanes have seen
// it; the output then holds anything. An operation that ends first succeeds.
func (e *Executor) Execute(ctx context.Context, id op.ID, a *op.Args) error {
	if id == 0 || id >= op.Count {
		return fmt.Errorf("cpu: %w: operation %d", provider.ErrUnsupported, id)
	}
	k := e.kernels[id]
	e.ctx = ctx
	err := k.prepare(a, e.lanes)
	if err == nil {
		// Operands may lie in a mapped file.
		err = offheap.Guard(func() error {
			if err := k.bind(a, &e.scratch[0]); err != nil {
				return err
			}
			return e.run(k)
		})
	}
	k.release()
	e.ctx, e.current = nil, nil
	if err != nil {
		for i := range e.scratch {
			e.scratch[i].err = nil
		}
		return fmt.Errorf("cpu: %v: %w", id, err)
	}
	return nil
}

// run splits the units of a kernel over the lanes, into tasks that cost no more than
// lookEvery where units allow. Small work stays on this lane.
func (e *Executor) run(k kernel) error {
	units, cost := k.work()
	cost = max(1, cost)
	tasks := 1
	if perTask := max(1, e.grain/cost); e.lanes > 1 && units >= 2*perTask {
		tasks = min(units/perTask, e.lanes*tasksPerLane)
	}
	e.chunk = min((units+tasks-1)/tasks, max(1, e.every/cost))
	e.current, e.units = k, units
	if e.team.Run((units+e.chunk-1)/e.chunk, e.task) {
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

func (e *Executor) runTask(task, lane int) bool {
	s := &e.scratch[lane]
	if s.look(0) {
		lo := task * e.chunk
		e.current.run(lo, min(lo+e.chunk, e.units), s)
	}
	return s.err == nil
}
