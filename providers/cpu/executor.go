package cpu

import (
	"fmt"

	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/internal/offheap"
	"github.com/fucina-go/fucina/internal/team"
)

// kernel is the state of one operation between its preparation and its end.
type kernel interface {
	// prepare checks the operands' metadata and derives the geometry; lanes is
	// the number of lanes that will run.
	prepare(a *provider.Args, lanes int) error
	// bind checks the operands' memory and holds on to it.
	bind(a *provider.Args) error
	// work returns the number of independent units, and the cost of one in
	// multiply-adds.
	work() (units, cost int)
	// run computes the units lo to hi-1.
	run(lo, hi int, s *scratch)
	// release lets go of the operands' memory.
	release()
}

// scratch is what each lane has to itself.
type scratch struct {
	lane   int
	floats [256]float32
	from   [8 * 256]byte
	to     [8 * 256]byte
}

// minTask is the cost, in multiply-adds, of the least task that is worth handing
// to another lane.
const minTask = 16 << 10

// pointwise are the operations of the elementwise kernel.
var pointwise = [...]provider.Op{
	provider.OpAdd, provider.OpMul, provider.OpSwiGLU, provider.OpGeGLU, provider.OpScale, provider.OpSoftCap,
}

// tasksPerLane lets a lane that falls behind leave tasks to the others.
const tasksPerLane = 8

// Executor runs operations on host memory, one at a time: a goroutine that calls
// Execute must not do so while another does. It owns nothing that needs releasing.
type Executor struct {
	team    *team.Team
	lanes   int
	grain   int // the least cost of a task, in multiply-adds
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
	kernels   [provider.OpCount]kernel

	// The operation in progress, for task.
	current kernel
	units   int
	chunk   int
	task    func(task, lane int) bool
}

// NewExecutor returns an Executor whose kernels run on t, which must outlive it.
// Executors may share a team. A nil team means the calling goroutine alone.
func NewExecutor(t *team.Team) *Executor {
	e := &Executor{team: t, lanes: 1, grain: minTask}
	if t != nil {
		e.lanes = max(1, t.Size())
	}
	e.scratch = make([]scratch, e.lanes)
	for i := range e.scratch {
		e.scratch[i].lane = i
	}
	e.kernels = [provider.OpCount]kernel{
		provider.OpCopy:      &e.copy,
		provider.OpGetRows:   &e.getRows,
		provider.OpRMSNorm:   &e.rmsNorm,
		provider.OpRoPE:      &e.rope,
		provider.OpMatMul:    &e.matMul,
		provider.OpAttention: &e.attention,
		provider.OpSoftmax:   &e.softmax,
		provider.OpArgmax:    &e.argmax,
	}
	for i, op := range pointwise {
		e.pointwise[i].op = op
		e.kernels[op] = &e.pointwise[i]
	}
	// A method value made once: made at each call, it would be an allocation.
	e.task = e.runTask
	return e
}

// Lanes returns the number of lanes that kernels run on.
func (e *Executor) Lanes() int { return e.lanes }

// Plan says whether Execute accepts the operation, from the operands' metadata
// alone, and how much workspace it needs. It may be called by several goroutines.
func (e *Executor) Plan(op provider.Op, a *provider.Args) provider.Plan {
	return plan(op, a, e.lanes)
}

// plan prepares a kernel on the stack; through the interface it would escape.
func plan(op provider.Op, a *provider.Args, lanes int) provider.Plan {
	var err error
	need := 0
	switch op {
	case provider.OpCopy:
		var k copyKernel
		err = k.prepare(a, lanes)
	case provider.OpGetRows:
		var k getRows
		err = k.prepare(a, lanes)
	case provider.OpAdd, provider.OpMul, provider.OpSwiGLU, provider.OpGeGLU, provider.OpScale, provider.OpSoftCap:
		k := elementwise{op: op}
		err = k.prepare(a, lanes)
	case provider.OpRMSNorm:
		var k rmsNorm
		err = k.prepare(a, lanes)
	case provider.OpRoPE:
		var k rope
		err = k.prepare(a, lanes)
	case provider.OpMatMul:
		var k matMul
		err = k.prepare(a, lanes)
		need = k.need
	case provider.OpAttention:
		var k attention
		err = k.prepare(a, lanes)
		need = k.need
	case provider.OpSoftmax:
		var k softmax
		err = k.prepare(a, lanes)
	case provider.OpArgmax:
		var k argmax
		err = k.prepare(a, lanes)
	default:
		return provider.Decline(fmt.Sprintf("operation %d is unknown", op))
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
func (e *Executor) Execute(op provider.Op, a *provider.Args) error {
	if op == 0 || op >= provider.OpCount {
		return fmt.Errorf("cpu: %w: operation %d", provider.ErrUnsupported, op)
	}
	k := e.kernels[op]
	err := k.prepare(a, e.lanes)
	if err == nil {
		err = k.bind(a)
	}
	if err != nil {
		k.release()
		return fmt.Errorf("cpu: %v: %w", op, err)
	}
	// Operands may be weights in a mapped file.
	err = offheap.Guard(func() error { e.run(k); return nil })
	e.current = nil
	k.release()
	return err
}

// run splits the units of a kernel over the lanes. Small work stays on this one.
func (e *Executor) run(k kernel) {
	units, cost := k.work()
	tasks := 1
	if perTask := max(1, e.grain/max(1, cost)); e.lanes > 1 && units >= 2*perTask {
		tasks = min(units/perTask, e.lanes*tasksPerLane)
	}
	if tasks == 1 {
		k.run(0, units, &e.scratch[0])
		return
	}
	e.current, e.units, e.chunk = k, units, (units+tasks-1)/tasks
	e.team.Run((units+e.chunk-1)/e.chunk, e.task)
}

func (e *Executor) runTask(task, lane int) bool {
	lo := task * e.chunk
	e.current.run(lo, min(lo+e.chunk, e.units), &e.scratch[lane])
	return true
}
