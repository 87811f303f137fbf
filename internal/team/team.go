package team

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Panic is what [Team.Run] panics with when a task panicked on a worker. A panic
// of a task on the caller's own goroutine passes through Run unchanged.
type Panic struct {
	Value any    // what the task panicked with
	Stack []byte // where, as debug.Stack prints it
}

// Error gives the value and the worker's stack.
func (p *Panic) Error() string {
	return fmt.Sprintf("team: task panicked on a worker: %v\n\n%s", p.Value, p.Stack)
}

// Unwrap returns the value if it is an error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// errGoexit stands for the value when a task ended its goroutine.
var errGoexit = errors.New("runtime.Goexit called")

// The gate is one word: the number of the run above, two flags, and the number of
// workers inside the run below. A worker enters by raising the count while the
// gate is open, and reads the run's fields only inside; the caller changes them
// only when the gate is closed and nobody is inside. A worker that wakes too late
// therefore finds the gate shut and touches nothing.
const (
	gateCount   = 1<<30 - 1
	gateWaiting = 1 << 30 // the caller sleeps until the last worker leaves
	gateOpen    = 1 << 31
	gateRun     = 1 << 32 // unit of the run number
)

const (
	// spinRounds times spinLoads looks at the gate take about 20 microseconds, a
	// few times the gap between two kernels of a forward pass.
	spinRounds = 100
	spinLoads  = 64
)

// Team is a set of lanes. Create it with [New] and end it with [Team.Close]. Its
// methods may be called from any goroutine.
type Team struct {
	workers []worker
	// spins is the number of looks at the gate worth taking before sleeping: none
	// on one processor, where whoever is waited for needs it to get on. Asking
	// for GOMAXPROCS takes a lock of the scheduler, hence not in every run.
	spins int

	// mu is held during a run that uses workers, and by Close.
	mu      sync.Mutex
	started bool
	closed  bool
	exited  sync.WaitGroup
	done    chan struct{} // the last worker has left, see gateWaiting

	// The run: written under mu while the gate is shut.
	fn       func(task, lane int) bool
	tasks    int
	stop     bool        // the run is the last: workers end
	cut      atomic.Bool // a task returned false
	panicked atomic.Pointer[Panic]

	// Each on a cache line of its own.
	_    [64]byte
	gate atomic.Uint64
	_    [56]byte
	next atomic.Int64 // the next task to hand out
	_    [56]byte
}

// worker is the state of one worker goroutine that the caller sees.
type worker struct {
	parked atomic.Bool
	wake   chan struct{} // holds at most the one token that follows parked
	_      [48]byte
}

// New returns a team of n lanes, the caller of Run being one of them. Its n-1
// workers start with the first run that needs them. It panics if n < 1.
func New(n int) *Team {
	if n < 1 {
		panic(fmt.Sprintf("team: %d lanes, want at least 1", n))
	}
	t := &Team{workers: make([]worker, n-1), done: make(chan struct{}, 1)}
	if runtime.GOMAXPROCS(0) > 1 {
		t.spins = spinRounds
	}
	for i := range t.workers {
		t.workers[i].wake = make(chan struct{}, 1)
	}
	return t
}

// Size returns the number of lanes.
func (t *Team) Size() int { return len(t.workers) + 1 }

// Run calls fn once for every task in [0, tasks), on several lanes at once, and
// returns when all calls have. What the calls wrote is then visible to the caller.
// The lane, in [0, Size()), tells apart the goroutines of this run, so that each
// can have scratch memory of its own; lane 0 is the caller. Tasks start in
// ascending order.
//
// A task that returns false ends the run early: tasks that have not begun are
// skipped. Run reports whether every task ran and returned true.
//
// If the team is busy with another run, also one further up the same call stack,
// or closed, the caller runs all tasks itself, as lane 0 and in order.
//
// When a task panics, tasks that have not begun are skipped, and Run panics after
// the running ones have ended: with the same value if the task ran on the caller's
// goroutine, with a [*Panic] if it ran on a worker. A memory fault is such a panic on
// a worker; on the caller's goroutine, it is one if the caller has set
// debug.SetPanicOnFault.
//
// Run allocates nothing on the Go heap once the workers are started; a caller that
// wants no allocation at all reuses one func value.
func (t *Team) Run(tasks int, fn func(task, lane int) bool) bool {
	if tasks <= 1 || len(t.workers) == 0 || !t.mu.TryLock() {
		return inline(tasks, fn)
	}
	if t.closed {
		t.mu.Unlock()
		return inline(tasks, fn)
	}
	if !t.started {
		t.start()
	}
	t.fn, t.tasks = fn, tasks
	t.next.Store(0)
	t.open(min(tasks-1, len(t.workers)))
	t.lead()
	done := !t.cut.Swap(false)
	p := t.panicked.Swap(nil)
	t.mu.Unlock()
	if p != nil {
		panic(p)
	}
	return done
}

func inline(tasks int, fn func(task, lane int) bool) bool {
	for task := range tasks {
		if !fn(task, 0) {
			return false
		}
	}
	return true
}

// lead is the caller's part of a run. It returns with the gate shut and all
// workers outside, also when a task panics or ends the goroutine; it then drops
// the lock as well, since Run does not continue.
func (t *Team) lead() {
	returned := false
	defer func() {
		if !returned {
			t.skip()
		}
		t.shut()
		t.fn = nil
		if !returned {
			t.cut.Store(false)
			t.panicked.Store(nil)
			t.mu.Unlock()
		}
	}()
	t.work(0)
	returned = true
}

// skip makes the tasks of the run that have not begun count as handed out.
func (t *Team) skip() { t.next.Store(int64(t.tasks)) }

// work runs tasks until none is left.
func (t *Team) work(lane int) {
	fn, tasks := t.fn, int64(t.tasks)
	for {
		task := t.next.Add(1) - 1
		if task >= tasks {
			return
		}
		if !fn(int(task), lane) {
			t.cut.Store(true)
			t.skip()
			return
		}
	}
}

// start makes the workers.
func (t *Team) start() {
	t.started = true
	t.exited.Add(len(t.workers))
	for i := range t.workers {
		go t.serve(i, 0)
	}
}

// open begins a run and wakes up to n workers that are parked.
func (t *Team) open(n int) {
	g := t.gate.Load()
	t.gate.Store(g&^(gateRun-1) + gateRun | gateOpen)
	for i := range t.workers[:n] {
		if w := &t.workers[i]; w.parked.CompareAndSwap(true, false) {
			w.wake <- struct{}{}
		}
	}
}

// shut lets no more workers in and waits until those inside have left.
func (t *Team) shut() {
	g := t.gate.And(^uint64(gateOpen)) &^ gateOpen
	for range t.spins {
		if g&gateCount == 0 {
			return
		}
		g = t.look(g)
	}
	for g&gateCount != 0 {
		if t.gate.CompareAndSwap(g, g|gateWaiting) {
			<-t.done
			t.gate.And(^uint64(gateWaiting))
			return
		}
		g = t.gate.Load()
	}
}

// look watches the gate for a change from g, briefly, and returns the newest value.
// It gives way to other goroutines first if nothing changed.
func (t *Team) look(g uint64) uint64 {
	for range spinLoads {
		if now := t.gate.Load(); now != g {
			return now
		}
	}
	runtime.Gosched()
	return t.gate.Load()
}

// serve is worker i, to enter runs after number seen.
func (t *Team) serve(i int, seen uint64) {
	// Run panics in its caller with a worker's panic. A fault of a worker has to be such
	// a panic, so that the caller can deal with it as with a fault of its own.
	debug.SetPanicOnFault(true)
	ended := false
	defer func() {
		if ended {
			t.exited.Done()
			return
		}
		// A task ended this goroutine; another takes its place.
		go t.serve(i, seen)
	}()
	for {
		seen = t.await(i, seen)
		if t.stop {
			ended = true
			t.leave()
			return
		}
		t.follow(i + 1)
	}
}

// await waits for a run after number seen, enters it, and returns its number.
func (t *Team) await(i int, seen uint64) uint64 {
	w := &t.workers[i]
	g := t.gate.Load()
	for {
		for range t.spins {
			if run, ok := t.enter(g, seen); ok {
				return run
			}
			g = t.look(g)
		}
		w.parked.Store(true)
		// A caller opens the gate before it looks for parked workers, and this
		// worker looks at the gate after it said that it parks: one of them sees
		// the other.
		if g = t.gate.Load(); fresh(g, seen) && w.parked.CompareAndSwap(true, false) {
			if run, ok := t.enter(g, seen); ok {
				return run
			}
			g = t.gate.Load()
			continue
		}
		<-w.wake
		g = t.gate.Load()
		if run, ok := t.enter(g, seen); ok {
			return run
		}
	}
}

// fresh reports whether g is the open gate of a run after number seen.
func fresh(g, seen uint64) bool { return g&gateOpen != 0 && g/gateRun != seen }

// enter raises the count of the gate, last seen as g, if it is open to a worker
// that was in run number seen.
func (t *Team) enter(g, seen uint64) (run uint64, ok bool) {
	for fresh(g, seen) {
		if t.gate.CompareAndSwap(g, g+1) {
			return g / gateRun, true
		}
		g = t.gate.Load()
	}
	return 0, false
}

// leave lowers the count; the last worker to go wakes a caller that sleeps.
func (t *Team) leave() {
	if g := t.gate.Add(^uint64(0)); g&gateCount == 0 && g&gateWaiting != 0 {
		t.done <- struct{}{}
	}
}

// follow is a worker's part of a run.
func (t *Team) follow(lane int) {
	returned := false
	defer func() {
		if !returned {
			value := recover()
			if value == nil {
				value = errGoexit
			}
			t.panicked.CompareAndSwap(nil, &Panic{Value: value, Stack: debug.Stack()})
			t.skip()
		}
		t.leave()
	}()
	t.work(lane)
	returned = true
}

// Close waits for the run in progress, ends the workers and returns when they are
// gone. Closing again does nothing. A task of the same team must not call it.
func (t *Team) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	t.closed = true
	if !t.started {
		return
	}
	t.stop = true
	t.open(len(t.workers))
	t.exited.Wait()
}
