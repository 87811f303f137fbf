package team_test

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fucina-go/fucina/internal/team"
)

// spend is a task of about n nanoseconds.
func spend(n int) uint32 {
	x := uint32(n)
	for range n {
		x = x*1664525 + 1013904223
	}
	return x
}

var results [64]struct {
	x uint32
	_ [60]byte
}

// BenchmarkDispatch measures a run of one task per processor, of zero and of some
// microseconds, and the same tasks on new goroutines.
func BenchmarkDispatch(b *testing.B) {
	lanes := min(max(runtime.GOMAXPROCS(0), 2), len(results))
	for _, work := range []int{0, 2000, 20000} {
		fn := func(task, _ int) bool {
			results[task].x = spend(work)
			return true
		}
		b.Run(fmt.Sprintf("team/%d", work), func(b *testing.B) {
			tm := team.New(lanes)
			defer tm.Close()
			b.ReportAllocs()
			for b.Loop() {
				tm.Run(lanes, fn)
			}
		})
		b.Run(fmt.Sprintf("ranges/%d", work), func(b *testing.B) {
			tm := team.New(lanes)
			defer tm.Close()
			chunk := func(lo, _, lane int) bool { return fn(lo, lane) }
			b.ReportAllocs()
			for b.Loop() {
				tm.RunRanges(lanes, 1, chunk)
			}
		})
		b.Run(fmt.Sprintf("goroutines/%d", work), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var next atomic.Int64
				var wg sync.WaitGroup
				run := func(lane int) {
					for task := int(next.Add(1)) - 1; task < lanes; task = int(next.Add(1)) - 1 {
						fn(task, lane)
					}
				}
				for lane := 1; lane < lanes; lane++ {
					wg.Go(func() { run(lane) })
				}
				run(0)
				wg.Wait()
			}
		})
		b.Run(fmt.Sprintf("inline/%d", work), func(b *testing.B) {
			for b.Loop() {
				for task := range lanes {
					fn(task, 0)
				}
			}
		})
	}
}

// BenchmarkPark measures the median time from the end of a run, which all workers were in, until all
// are parked.
func BenchmarkPark(b *testing.B) {
	lanes := max(runtime.GOMAXPROCS(0), 2)
	tm := team.New(lanes)
	defer tm.Close()
	var inside atomic.Int32
	fn := func(int, int) bool {
		inside.Add(1)
		for int(inside.Load()) < lanes {
			runtime.Gosched()
		}
		return true
	}
	var times []time.Duration
	for b.Loop() {
		inside.Store(0)
		tm.Run(lanes, fn)
		start := time.Now()
		for !tm.Parked() {
			results[0].x = spend(20)
		}
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Nanoseconds()), "ns/park")
}
