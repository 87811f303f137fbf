package team

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// Panic is the value with which [Team.Run] panics if a task panicked on a worker. A panic
// of a task on the caller's goroutine passes through Run unchanged.
type Panic struct {
	Value any    // the task's panic value
	Stack []byte // the worker's stack, from debug.Stack
}

// Error returns the value and the worker's stack.
func (p *Panic) Error() string {
	return fmt.Sprintf("team: task panicked on a worker: %v\n\n%s", p.Value, p.Stack)
}

// Unwrap returns the value if it is an error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// errGoexit is the value of a Panic if a task called runtime.Goexit.
var errGoexit = errors.New("runtime.Goexit called")

// The gate is one word. The upper half is the number of the run. Below it are two flags and
// the number of workers inside the run. A worker enters the run by incrementing that count
// while the gate is open, and reads the run's fields only inside. The caller changes them
// only while the gate is shut and no worker is inside. A worker that wakes too late finds
// the gate shut and reads nothing.
const (
	gateCount   = 1<<30 - 1
	gateWaiting = 1 << 30 // the caller sleeps until the last worker leaves
	gateOpen    = 1 << 31
	gateRun     = 1 << 32 // unit of the run number
)

const (
	// spinTime is how long a goroutine polls before it sleeps, a few times the gap between two
	// kernels of a forward pass.
	spinTime = 35 * time.Microsecond
	// yieldTime is how long a goroutine polls before it lets others run. A team may have more
	// lanes than there are processors. A goroutine that yields often wakes idle processors and
	// changes places with the goroutines that it waits for.
	yieldTime = 10 * time.Microsecond
	// spinLoads polls with a pause after each take from 0.1 to 3 microseconds. The pause of some
	// processors takes 5 cycles and that of others 140.
	spinLoads = 64
)

// Team is a set of lanes. Create it with [New] and close it with [Team.Close]. Its methods
// may be called concurrently.
type Team struct {
	workers []worker
	// spins says whether a goroutine polls the gate before it sleeps. It does not on one
	// processor, which the awaited goroutine needs. New computes it, because GOMAXPROCS
	// locks the scheduler.
	spins bool

	// mu is held during a run that uses workers, and by Close.
	mu      sync.Mutex
	started bool
	closed  bool
	exited  sync.WaitGroup
	done    chan struct{} // receives a value when the last worker has left; see gateWaiting

	// The fields of the run are written under mu while the gate is shut.
	job      job
	grain    int         // the units of a chunk
	ranges   []share     // the parts of the run, at most one for each lane
	stop     bool        // this is the last run: workers end
	cut      atomic.Bool // a task returned false
	panicked atomic.Pointer[Panic]

	// gate is on a cache line of its own.
	_    [64]byte
	gate atomic.Uint64
	_    [56]byte
}

// job is the function of a run: one of the two is set.
type job struct {
	task  func(task, lane int) bool
	chunk func(lo, hi, lane int) bool
}

// run runs the units from lo to hi on a lane.
func (j *job) run(lo, hi, lane int) bool {
	if j.chunk != nil {
		return j.chunk(lo, hi, lane)
	}
	for task := lo; task < hi; task++ {
		if !j.task(task, lane) {
			return false
		}
	}
	return true
}

// share is a contiguous range of units, which lanes take in chunks from both ends.
type share struct {
	lo, hi int
	chunks uint64 // chunks of the run's grain that cover the range, at most maxChunks
	// The lower half of taken counts the attempts to take a chunk from the front, and the
	// upper half those from the back. An attempt fails if there were as many before it as the
	// range has chunks. A lane makes one attempt that fails, so that neither half overflows.
	taken atomic.Uint64
	_     [32]byte
}

const (
	maxChunks = 1 << 30
	takeFront = 1
	takeBack  = 1 << 32
)

// set makes s the range from lo to hi with no chunk taken.
func (s *share) set(lo, hi, grain int) {
	s.lo, s.hi = lo, hi
	s.chunks = uint64((hi-lo-1)/grain) + 1
	s.taken.Store(0)
}

// take takes a chunk of s from the front or from the back. ok is false if none is left.
func (s *share) take(end uint64, grain int) (lo, hi int, ok bool) {
	taken := s.taken.Add(end) - end
	front, back := taken%takeBack, taken/takeBack
	if front+back >= s.chunks {
		return 0, 0, false
	}
	i := front
	if end == takeBack {
		i = s.chunks - 1 - back
	}
	lo = s.lo + int(i)*grain
	return lo, lo + min(grain, s.hi-lo), true
}

// worker is the state that a worker goroutine shares with the caller.
type worker struct {
	parked atomic.Bool
	wake   chan struct{} // has at most one value, sent after parked was set
	_      [48]byte
}

// New returns a team of n lanes, including the caller of Run. Its n-1 workers start with
// the first run that needs them. New panics if n < 1.
func New(n int) *Team {
	if n < 1 {
		panic(fmt.Sprintf("team: %d lanes, want at least 1", n))
	}
	t := &Team{
		workers: make([]worker, n-1),
		ranges:  make([]share, 0, n),
		done:    make(chan struct{}, 1),
		spins:   runtime.GOMAXPROCS(0) > 1,
	}
	for i := range t.workers {
		t.workers[i].wake = make(chan struct{}, 1)
	}
	return t
}

// Size returns the number of lanes.
func (t *Team) Size() int { return len(t.workers) + 1 }

// Run calls fn once for every task in [0, tasks), on several lanes concurrently, and
// returns when all calls have returned. The writes of the calls are then visible to the
// caller. lane, in [0, Size()), identifies the goroutine within the run, so that each can
// have scratch memory of its own. The caller is lane 0. Tasks start in ascending order.
//
// A task that returns false ends the run early: tasks that have not begun are
// skipped. Run reports whether every task ran and returned true.
//
// If the team is closed or busy with another run, including a run further up the call
// stack, the caller runs all tasks itself in order, as lane 0.
//
// If a task panics, tasks that have not begun are skipped, and Run panics after the running
// ones have ended. The panic value is the same if the task ran on the caller's goroutine,
// and a [*Panic] if it ran on a worker. A memory fault is such a panic on a worker. On the
// caller's goroutine it is a panic only if the caller has set debug.SetPanicOnFault.
//
// Once the workers have started, Run does not allocate on the Go heap. A caller that must
// not allocate reuses one func value.
func (t *Team) Run(tasks int, fn func(task, lane int) bool) bool {
	return t.run(job{task: fn}, tasks, 1, 1)
}

// RunRanges calls fn for ranges [lo, hi) of at most grain units that together are the units
// [0, units), each once. Everything else is as in [Team.Run]: lanes, visibility, the end by a
// false result or a panic, and the caller that runs everything itself.
//
// The units are divided into one contiguous range for each lane. A lane takes its own range from
// the front to the back, so that it reads memory in sequence, and then helps the others:
// it takes chunks from the back of their ranges. The range of a worker that is late is taken by
// the other lanes. A grain below 1 counts as 1. So that there are at most 1<<30 chunks, they can
// be larger than grain.
func (t *Team) RunRanges(units, grain int, fn func(lo, hi, lane int) bool) bool {
	return t.run(job{chunk: fn}, units, grain, len(t.workers)+1)
}

// run runs a job of units in chunks of grain, which is at least 1. The units are divided into at
// most the given number of ranges, and into fewer if there are not as many chunks.
func (t *Team) run(j job, units, grain, ranges int) bool {
	grain = max(grain, units/maxChunks+1)
	if units <= grain || len(t.workers) == 0 || !t.mu.TryLock() {
		return inline(j, units, grain)
	}
	if t.closed {
		t.mu.Unlock()
		return inline(j, units, grain)
	}
	if !t.started {
		t.start()
	}
	chunks := (units-1)/grain + 1
	t.job, t.grain = j, grain
	t.divide(units, min(ranges, chunks))
	t.open(min(chunks-1, len(t.workers)))
	t.lead()
	done := !t.cut.Swap(false)
	p := t.panicked.Swap(nil)
	t.mu.Unlock()
	if p != nil {
		panic(p)
	}
	return done
}

// inline runs a job on the caller's goroutine.
func inline(j job, units, grain int) bool {
	for lo := 0; lo < units; {
		hi := lo + min(grain, units-lo)
		if !j.run(lo, hi, 0) {
			return false
		}
		lo = hi
	}
	return true
}

// divide divides the units into n ranges that differ by at most one unit.
func (t *Team) divide(units, n int) {
	t.ranges = t.ranges[:n]
	lo := 0
	for i := range t.ranges {
		hi := lo + units/n
		if i < units%n {
			hi++
		}
		t.ranges[i].set(lo, hi, t.grain)
		lo = hi
	}
}

// lead is the caller's part of a run. It ends with the gate shut and all workers outside,
// even if a task panics or ends the goroutine. In that case it also unlocks mu, because Run
// does not continue.
func (t *Team) lead() {
	returned := false
	defer func() {
		if !returned {
			t.skip()
		}
		t.shut()
		t.job = job{}
		if !returned {
			t.cut.Store(false)
			t.panicked.Store(nil)
			t.mu.Unlock()
		}
	}()
	t.runTasks(0)
	returned = true
}

// skip marks the chunks of the run that have not begun as taken.
func (t *Team) skip() {
	for i := range t.ranges {
		t.ranges[i].taken.Store(t.ranges[i].chunks)
	}
}

// runTasks runs chunks on a lane until none is left: those of the lane's own range, and then
// those of the others, beginning with the next lane's.
func (t *Team) runTasks(lane int) {
	n := len(t.ranges)
	for i := range n {
		r := (lane + i) % n
		end := uint64(takeBack)
		if r == lane || n == 1 {
			end = takeFront
		}
		for {
			lo, hi, ok := t.ranges[r].take(end, t.grain)
			if !ok {
				break
			}
			if !t.job.run(lo, hi, lane) {
				t.cut.Store(true)
				t.skip()
				return
			}
		}
	}
}

// start starts the workers.
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
	for s := (spin{}); g&gateCount != 0 && t.spins && s.more(); {
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

// spin bounds a loop by spinTime. The first round does not read the clock, because most waits
// end in it.
type spin struct {
	rounds  int
	start   time.Time
	yielded time.Duration // from start
}

// more reports whether the loop has time for another round.
func (s *spin) more() bool {
	s.rounds++
	switch s.rounds {
	case 1:
		return true
	case 2:
		s.start = time.Now()
		return true
	}
	spent := time.Since(s.start)
	if spent-s.yielded >= yieldTime {
		runtime.Gosched()
		s.yielded = spent
	}
	return spent < spinTime
}

// look polls the gate briefly for a change from g, and returns the newest value.
func (t *Team) look(g uint64) uint64 {
	for range spinLoads {
		if now := t.gate.Load(); now != g {
			return now
		}
		pause()
	}
	return t.gate.Load()
}

// serve is the loop of worker i, which enters the runs after number seen.
func (t *Team) serve(i int, seen uint64) {
	// Run passes a worker's panic to its caller. A fault of a worker must be a panic too,
	// so that the caller can handle it like a fault of its own.
	debug.SetPanicOnFault(true)
	ended := false
	defer func() {
		if ended {
			t.exited.Done()
			return
		}
		// A task ended this goroutine. Another one replaces it.
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
		for s := (spin{}); t.spins && s.more(); {
			if run, ok := t.enter(g, seen); ok {
				return run
			}
			g = t.look(g)
		}
		w.parked.Store(true)
		// A caller opens the gate and then checks for parked workers. This worker sets
		// parked and then checks the gate. So at least one of the two sees the other.
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

// enter increments the gate's count if the gate is open for a run after number seen, and
// returns the number of that run. g is the last known value of the gate.
func (t *Team) enter(g, seen uint64) (run uint64, ok bool) {
	for fresh(g, seen) {
		if t.gate.CompareAndSwap(g, g+1) {
			return g / gateRun, true
		}
		g = t.gate.Load()
	}
	return 0, false
}

// leave decrements the gate's count. The last worker to leave wakes a sleeping caller.
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
	t.runTasks(lane)
	returned = true
}

// Close waits for the run in progress and ends the workers. It returns when they have
// ended. A second Close does nothing. A task of the same team must not call Close.
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
