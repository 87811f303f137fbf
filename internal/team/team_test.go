package team_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fucina-go/fucina/internal/invariants"
	"github.com/fucina-go/fucina/internal/team"
	"github.com/fucina-go/fucina/tests/leak"
)

var laneCounts = []int{1, 2, 3, 8}

// run runs tasks that all return true.
func run(tm *team.Team, tasks int, fn func(task, lane int)) bool {
	return tm.Run(tasks, func(task, lane int) bool {
		fn(task, lane)
		return true
	})
}

// Every task runs once. Each makes one plain write, so that the race detector also shows
// that no two lanes run the same task and that Run returns after the writes.
func TestEveryTaskRunsOnce(t *testing.T) {
	for _, lanes := range laneCounts {
		tm := team.New(lanes)
		if tm.Size() != lanes {
			t.Errorf("Size = %d, want %d", tm.Size(), lanes)
		}
		runs := make([]int, 300)
		for round := range 300 {
			tasks := round
			if !run(tm, tasks, func(task, lane int) {
				if lane < 0 || lane >= lanes {
					t.Errorf("lane %d of %d", lane, lanes)
				}
				runs[task]++
			}) {
				t.Errorf("%d lanes, %d tasks: Run says that a task ended the run", lanes, tasks)
			}
			for task, n := range runs {
				if want := boolInt(task < tasks); n != want {
					t.Fatalf("%d lanes, %d tasks: task %d ran %d times, want %d", lanes, tasks, task, n, want)
				}
				runs[task] = 0
			}
		}
		run(tm, -1, func(int, int) { t.Error("a task of a run with none") })
		tm.Close()
	}
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// No two goroutines of a run have the same lane, so that scratch memory needs no lock.
func TestLanesAreExclusive(t *testing.T) {
	tm := team.New(4)
	defer tm.Close()
	sums := make([]struct {
		n int
		_ [56]byte
	}, tm.Size())
	for range 200 {
		run(tm, 50, func(task, lane int) { sums[lane].n += task })
	}
	total := 0
	for _, s := range sums {
		total += s.n
	}
	if want := 200 * 50 * 49 / 2; total != want {
		t.Errorf("sum %d, want %d", total, want)
	}
}

// All lanes can run at the same time: each task waits for the others.
func TestLanesRunTogether(t *testing.T) {
	const lanes = 4
	tm := team.New(lanes)
	defer tm.Close()
	for range 50 {
		var arrived sync.WaitGroup
		arrived.Add(lanes)
		var used [lanes]atomic.Int32
		run(tm, lanes, func(_, lane int) {
			used[lane].Add(1)
			arrived.Done()
			arrived.Wait()
		})
		for lane := range used {
			if n := used[lane].Load(); n != 1 {
				t.Fatalf("lane %d ran %d tasks, want 1", lane, n)
			}
		}
	}
}

// A run inside a task executes on the task's goroutine.
func TestNesting(t *testing.T) {
	tm := team.New(3)
	defer tm.Close()
	for range 100 {
		var inner [4][5]int
		run(tm, 4, func(i, _ int) {
			run(tm, 5, func(j, lane int) {
				if lane != 0 {
					t.Errorf("nested run on lane %d, want 0", lane)
				}
				inner[i][j]++
			})
		})
		for i := range inner {
			for j, n := range inner[i] {
				if n != 1 {
					t.Fatalf("task %d of %d ran %d times", j, i, n)
				}
			}
		}
	}
}

func TestConcurrentCallers(t *testing.T) {
	tm := team.New(3)
	defer tm.Close()
	var wg sync.WaitGroup
	for caller := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(caller), 0))
			for range 200 {
				runs := make([]int, rng.IntN(40))
				run(tm, len(runs), func(task, _ int) { runs[task]++ })
				for task, n := range runs {
					if n != 1 {
						t.Errorf("caller %d: task %d of %d ran %d times", caller, task, len(runs), n)
						return
					}
				}
			}
		})
	}
	wg.Wait()
}

// A caller that finds the team busy does not wait for it.
func TestBusyTeamRunsInline(t *testing.T) {
	tm := team.New(2)
	defer tm.Close()
	inside, finish := make(chan struct{}), make(chan struct{})
	var once sync.Once
	go run(tm, 2, func(int, int) {
		once.Do(func() { close(inside) })
		<-finish
	})
	<-inside
	var order []int
	run(tm, 5, func(task, lane int) {
		if lane != 0 {
			t.Errorf("lane %d, want 0", lane)
		}
		order = append(order, task)
	})
	close(finish)
	if fmt.Sprint(order) != "[0 1 2 3 4]" {
		t.Errorf("order %v", order)
	}
}

// Parked workers are woken, also if they were about to park when the run began.
func TestRunAfterIdleness(t *testing.T) {
	tm := team.New(3)
	defer tm.Close()
	for i := range 100 {
		var n atomic.Int32
		run(tm, 3, func(int, int) { n.Add(1) })
		if n.Load() != 3 {
			t.Fatalf("%d tasks ran, want 3", n.Load())
		}
		time.Sleep(time.Duration(i) * 10 * time.Microsecond)
	}
}

// A run that begins while workers are about to park must still get all of them:
// its tasks wait for each other.
func TestRunWhileParking(t *testing.T) {
	tm := team.New(3)
	defer tm.Close()
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	var barrier sync.WaitGroup
	fn := func(int, int) {
		barrier.Done()
		barrier.Wait()
	}
	for range 3000 {
		barrier.Add(3)
		ended := make(chan struct{})
		go func() {
			run(tm, 3, fn)
			close(ended)
		}()
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			t.Fatalf("seed %d: a worker slept through the run", seed)
		}
		// Wait for up to twice the time that workers stay awake.
		for range rng.IntN(200) {
			results[0].x = spend(200)
			runtime.Gosched()
		}
	}
}

func TestOneProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	tm := team.New(4)
	for range 100 {
		var n atomic.Int32
		run(tm, 10, func(int, int) {
			n.Add(1)
			runtime.Gosched()
		})
		if n.Load() != 10 {
			t.Fatalf("%d tasks ran, want 10", n.Load())
		}
	}
	tm.Close()
}

// catch runs f and returns its panic value.
func catch(f func()) (v any) {
	defer func() { v = recover() }()
	f()
	return nil
}

func TestPanicOnWorker(t *testing.T) {
	tm := team.New(2)
	defer tm.Close()
	cause := errors.New("kernel broke")
	for range 50 {
		var barrier sync.WaitGroup
		barrier.Add(2)
		v := catch(func() {
			run(tm, 2, func(_, lane int) {
				barrier.Done()
				barrier.Wait()
				if lane == 1 {
					panic(cause)
				}
			})
		})
		p, ok := v.(*team.Panic)
		if !ok || p.Value != cause || !errors.Is(p, cause) {
			t.Fatalf("Run panicked with %v, want a *team.Panic of %v", v, cause)
		}
		if !strings.Contains(p.Error(), "kernel broke") || !strings.Contains(string(p.Stack), "TestPanicOnWorker") {
			t.Fatalf("panic lacks its value or stack: %v", p)
		}
		expectUsable(t, tm)
	}
}

func TestPanicOnCaller(t *testing.T) {
	tm := team.New(3)
	defer tm.Close()
	for range 50 {
		var barrier sync.WaitGroup
		barrier.Add(3)
		var late atomic.Int32
		v := catch(func() {
			run(tm, 3, func(_, lane int) {
				barrier.Done()
				barrier.Wait()
				if lane == 0 {
					panic("mine")
				}
				runtime.Gosched()
				late.Add(1)
			})
		})
		if v != "mine" {
			t.Fatalf("Run panicked with %v, want the task's own value", v)
		}
		if late.Load() != 2 {
			t.Fatalf("Run unwound before the workers had ended their tasks")
		}
		expectUsable(t, tm)
	}
}

func TestPanicSkipsTheRest(t *testing.T) {
	tm := team.New(2)
	defer tm.Close()
	for failing := range 2 {
		var barrier sync.WaitGroup
		barrier.Add(2)
		skipped := make(chan struct{}) // closed while the panic unwinds
		var began atomic.Int32
		v := catch(func() {
			run(tm, 1_000_000, func(task, lane int) {
				began.Add(1)
				if task < 2 {
					barrier.Done()
					barrier.Wait()
				}
				if lane == failing {
					defer close(skipped)
					panic("stop")
				}
				<-skipped
				time.Sleep(time.Millisecond)
			})
		})
		// The panic takes some time from the task's deferred call to Run.
		if v == nil || began.Load() > 1000 {
			t.Errorf("lane %d failed: %d tasks began, panic %v", failing, began.Load(), v)
		}
		expectUsable(t, tm)
	}
}

// A task that returns false on any lane ends the run: tasks that have not begun are skipped,
// Run returns false, and the next run runs all its tasks.
func TestFalseSkipsTheRest(t *testing.T) {
	const tasks = 1_000_000
	for _, lanes := range laneCounts {
		tm := team.New(lanes)
		for ending := range lanes {
			var barrier sync.WaitGroup
			barrier.Add(lanes)
			var began atomic.Int32
			var ended atomic.Bool
			done := tm.Run(tasks, func(task, lane int) bool {
				began.Add(1)
				if task < lanes {
					barrier.Done()
					barrier.Wait()
				}
				if lane == ending {
					ended.Store(true)
					return false
				}
				for !ended.Load() {
					runtime.Gosched()
				}
				// The lane takes some time from the task's return to setting the flag.
				time.Sleep(time.Millisecond)
				return true
			})
			if done || began.Load() > 1000 {
				t.Errorf("%d lanes, ended by lane %d: %d tasks began, Run returned %t", lanes, ending, began.Load(), done)
			}
			expectUsable(t, tm)
		}
		tm.Close()
		n := 0
		if tm.Run(10, func(int, int) bool { n++; return n < 3 }) || n != 3 {
			t.Errorf("%d lanes, closed: the run went on to task %d after the third ended it", lanes, n)
		}
	}
}

// A task that ends its goroutine, like FailNow of a test, does not make Run hang.
func TestGoexit(t *testing.T) {
	tm := team.New(2)
	defer tm.Close()
	for _, lane := range []int{1, 0} {
		var barrier sync.WaitGroup
		barrier.Add(2)
		ended := make(chan any)
		go func() {
			defer func() { ended <- recover() }()
			run(tm, 2, func(_, l int) {
				barrier.Done()
				barrier.Wait()
				if l == lane {
					runtime.Goexit()
				}
			})
		}()
		v := <-ended
		if p, ok := v.(*team.Panic); lane == 1 && (!ok || !strings.Contains(p.Error(), "Goexit")) {
			t.Errorf("worker ended: Run panicked with %v, want a *team.Panic that says so", v)
		}
		if lane == 0 && v != nil {
			t.Errorf("caller ended: panic %v", v)
		}
		expectUsable(t, tm)
	}
}

// expectUsable checks that all lanes still work.
func expectUsable(t *testing.T, tm *team.Team) {
	t.Helper()
	var barrier sync.WaitGroup
	barrier.Add(tm.Size())
	seen := make([]bool, tm.Size())
	if !run(tm, tm.Size(), func(_, lane int) {
		seen[lane] = true
		barrier.Done()
		barrier.Wait()
	}) {
		t.Error("the run after one that was cut short was cut short, too")
	}
	for lane, ok := range seen {
		if !ok {
			t.Fatalf("lane %d is gone", lane)
		}
	}
}

func TestNewPanics(t *testing.T) {
	for _, n := range []int{0, -1} {
		if catch(func() { team.New(n) }) == nil {
			t.Errorf("New(%d): no panic", n)
		}
	}
}

func TestClose(t *testing.T) {
	leak.Check(t)
	for _, lanes := range laneCounts {
		for _, used := range []bool{false, true} {
			for _, idle := range []time.Duration{0, 5 * time.Millisecond} {
				tm := team.New(lanes)
				if used {
					run(tm, lanes, func(int, int) {})
				}
				time.Sleep(idle)
				tm.Close()
				tm.Close()
				sum := 0
				run(tm, 10, func(task, lane int) {
					if lane != 0 {
						t.Errorf("lane %d after Close", lane)
					}
					sum += task
				})
				if sum != 45 {
					t.Errorf("sum %d after Close, want 45", sum)
				}
			}
		}
	}
}

func TestCloseWaitsForWorkers(t *testing.T) {
	const lanes = 400
	before := runtime.NumGoroutine()
	tm := team.New(lanes)
	run(tm, lanes, func(int, int) {})
	tm.Close()
	// The few goroutines that have not executed their last instruction are still counted.
	if n := runtime.NumGoroutine() - before; n > lanes/2 {
		t.Errorf("%d of %d workers outlive Close", n, lanes-1)
	}
}

func TestCloseDuringRuns(t *testing.T) {
	for range 50 {
		tm := team.New(3)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for range 20 {
					var n atomic.Int32
					run(tm, 7, func(int, int) { n.Add(1) })
					if n.Load() != 7 {
						t.Errorf("%d tasks ran, want 7", n.Load())
					}
				}
			})
		}
		tm.Close()
		wg.Wait()
	}
}

func TestRunAllocatesNothing(t *testing.T) {
	if invariants.RaceEnabled {
		t.Skip("the race detector allocates")
	}
	tm := team.New(3)
	defer tm.Close()
	var sums [3]int
	for _, last := range []int{8, 4} { // the task that ends the run, if there is one with that number
		fn := func(task, lane int) bool {
			sums[lane] += task
			return task < last
		}
		tm.Run(8, fn)
		if got := testing.AllocsPerRun(500, func() { tm.Run(8, fn) }); got != 0 {
			t.Errorf("%v allocations per run that ends at task %d of 8, want 0", got, last)
		}
		chunk := func(lo, _, lane int) bool { return fn(lo, lane) }
		if got := testing.AllocsPerRun(500, func() { tm.RunRanges(24, 3, chunk) }); got != 0 {
			t.Errorf("%v allocations per run of ranges that ends at chunk %d of 8, want 0", got, last)
		}
	}
}

// Every unit is in one chunk of at most the grain, for any division into ranges and chunks. Some
// chunks take long, so that lanes that are done help the others. The plain writes show the race
// detector that no two lanes run the same unit.
func TestRangesEveryUnitOnce(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	runs := make([]int, 500)
	slow := make([]bool, len(runs))
	for _, lanes := range laneCounts {
		tm := team.New(lanes)
		for range 150 {
			units, grain := rng.IntN(len(runs)+1), rng.IntN(40)-2
			for i := range slow {
				slow[i] = rng.IntN(100) == 0
			}
			clear(runs)
			done := tm.RunRanges(units, grain, func(lo, hi, lane int) bool {
				if lane < 0 || lane >= lanes || lo >= hi || hi-lo > max(1, grain) {
					t.Errorf("seed %d: chunk [%d, %d) on lane %d of %d, want at most %d units", seed, lo, hi, lane, lanes, grain)
				}
				for unit := lo; unit < hi; unit++ {
					runs[unit]++
				}
				if slow[lo] {
					time.Sleep(20 * time.Microsecond)
				}
				return true
			})
			if !done {
				t.Errorf("seed %d: RunRanges says that a chunk ended the run", seed)
			}
			for unit, n := range runs {
				if want := boolInt(unit < units); n != want {
					t.Fatalf("seed %d: %d lanes, %d units, grain %d: unit %d ran %d times, want %d", seed, lanes, units, grain, unit, n, want)
				}
			}
		}
		tm.RunRanges(-1, 4, func(int, int, int) bool { t.Error("a chunk of a run without units"); return true })
		tm.Close()
	}
}

// A lane takes its own range in ascending chunks. While another lane is at its first chunk, it
// takes that lane's range, too, from the back.
func TestRangesAreStolenFromTheBack(t *testing.T) {
	tm := team.New(2)
	defer tm.Close()
	for busy := range 2 {
		helper := 1 - busy
		var first []int
		var order [][2]int
		left := make(chan struct{})
		began := make(chan struct{})
		tm.RunRanges(21, 3, func(lo, hi, lane int) bool {
			if lane == busy {
				first = append(first, lo, hi)
				close(began)
				<-left
				return true
			}
			<-began
			if order = append(order, [2]int{lo, hi}); len(order) == 7 {
				close(left)
			}
			return true
		})
		// The ranges of 11 and 10 units have four chunks each.
		ranges := [2][][2]int{{{0, 3}, {3, 6}, {6, 9}, {9, 11}}, {{11, 14}, {14, 17}, {17, 20}, {20, 21}}}
		want := ranges[helper]
		for i := 3; i > 0; i-- {
			want = append(want, ranges[busy][i])
		}
		if fmt.Sprint(order) != fmt.Sprint(want) {
			t.Errorf("lane %d took %v, want %v", helper, order, want)
		}
		if got := [2]int(first); got != ranges[busy][0] {
			t.Errorf("lane %d took %v, want %v alone", busy, got, ranges[busy][0])
		}
	}
}

// Units past 32 bits are divided, too, and chunks may then exceed the grain.
func TestRangesOfManyUnits(t *testing.T) {
	if strconv.IntSize < 64 {
		return
	}
	tm := team.New(3)
	defer tm.Close()
	units := 1 << 20
	units *= units
	for _, grain := range []int{1, units} {
		var mu sync.Mutex
		var los []int
		size := 0
		tm.RunRanges(units+1, grain, func(lo, hi, _ int) bool {
			mu.Lock()
			los, size = append(los, lo), max(size, hi-lo)
			mu.Unlock()
			return false
		})
		if grain = max(grain, units>>29); len(los) == 0 || size < units>>31 || size > grain {
			t.Errorf("grain %d: chunks at %v of up to %d units", grain, los, size)
		}
	}
}

// A run of ranges inside a chunk, and one on a team that is busy, execute on the caller's
// goroutine in order.
func TestRangesInline(t *testing.T) {
	tm := team.New(3)
	defer tm.Close()
	var got [4]string
	tm.RunRanges(4, 1, func(lo, hi, _ int) bool {
		for i := lo; i < hi; i++ {
			tm.RunRanges(7, 3, func(lo, hi, lane int) bool {
				got[i] += fmt.Sprintf("%d-%d/%d ", lo, hi, lane)
				return lo < 3
			})
			run(tm, 2, func(task, lane int) { got[i] += fmt.Sprintf("%d/%d ", task, lane) })
		}
		return true
	})
	for i, s := range got {
		if want := "0-3/0 3-6/0 0/0 1/0 "; s != want {
			t.Errorf("chunk %d ran %q, want %q", i, s, want)
		}
	}
}

// A chunk that returns false, panics or ends its goroutine, on any lane, ends the run: the chunks
// that have not begun are skipped, those of other lanes' ranges too.
func TestRangesEndEarly(t *testing.T) {
	const units, lanes = 3_000_000, 3
	tm := team.New(lanes)
	defer tm.Close()
	for name, end := range map[string]func() bool{
		"false":  func() bool { return false },
		"panic":  func() bool { panic("stop") },
		"goexit": func() bool { runtime.Goexit(); return true },
	} {
		for ending := range lanes {
			var barrier sync.WaitGroup
			barrier.Add(lanes)
			var began atomic.Int32
			var entered [lanes]bool
			ended := make(chan struct{})
			done, value := true, any(nil)
			returned := make(chan struct{})
			go func() {
				defer close(returned)
				defer func() { value = recover() }()
				done = tm.RunRanges(units, 2, func(_, _, lane int) bool {
					began.Add(1)
					if !entered[lane] {
						entered[lane] = true
						barrier.Done()
						barrier.Wait()
					}
					if lane == ending {
						defer close(ended)
						return end()
					}
					<-ended
					// The lane takes some time from the end of the chunk to skipping the others.
					time.Sleep(time.Millisecond)
					return true
				})
			}()
			<-returned
			if began.Load() > 1000 {
				t.Errorf("%s on lane %d: %d chunks began", name, ending, began.Load())
			}
			if name == "false" && (done || value != nil) {
				t.Errorf("false on lane %d: RunRanges returned %t, panic %v", ending, done, value)
			}
			if _, ok := value.(*team.Panic); name != "false" && ok != (ending > 0) {
				t.Errorf("%s on lane %d: panic %v", name, ending, value)
			}
			expectUsable(t, tm)
		}
	}
}

// Workers that have nothing to do park.
func TestWorkersPark(t *testing.T) {
	tm := team.New(4)
	defer tm.Close()
	for range 20 {
		run(tm, 4, func(int, int) {})
		for deadline := time.Now().Add(20 * time.Second); !tm.Parked(); time.Sleep(100 * time.Microsecond) {
			if time.Now().After(deadline) {
				t.Fatal("a worker does not park")
			}
		}
	}
}

func ExampleTeam_Run() {
	tm := team.New(2)
	defer tm.Close()
	row := make([]float32, 4)
	tm.Run(len(row), func(task, _ int) bool {
		row[task] = float32(task * task)
		return true
	})
	fmt.Println(row)
	// Output: [0 1 4 9]
}

func ExampleTeam_RunRanges() {
	tm := team.New(2)
	defer tm.Close()
	row := make([]float32, 10)
	tm.RunRanges(len(row), 4, func(lo, hi, _ int) bool {
		for i := lo; i < hi; i++ {
			row[i] = float32(i * i)
		}
		return true
	})
	fmt.Println(row)
	// Output: [0 1 4 9 16 25 36 49 64 81]
}
