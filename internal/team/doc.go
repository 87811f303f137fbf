// Package team runs data-parallel kernels on a fixed set of goroutines.
//
// The lanes of a [Team] are its workers and the goroutine that calls [Team.Run] or
// [Team.RunRanges]. Run hands out task numbers one by one, in ascending order, so that a slow
// lane gets fewer tasks. RunRanges is for units that lie one after the other in memory, such as
// the rows of a matrix: each lane reads one contiguous range in sequence, and a lane that has
// finished its range helps the others. The caller divides the work into tasks or units in a way
// that does not affect results. A task can end the run early, for example because its context
// is done: the team then skips the tasks that have not begun.
//
// After a run a worker polls for the next one, with pauses in between, and parks within 50
// microseconds. The kernels of a forward pass follow one another closely enough to find the
// workers awake. In an idle program the workers are parked and use no processor time. A run
// never waits for a worker that has not woken: the other lanes take its tasks.
//
// All goroutines of an engine share one team, which executes one run at a time. A caller
// that finds the team busy, or that is already inside a run, runs its tasks on its own
// goroutine. Runs never wait for one another, so that neither nesting nor concurrency can
// deadlock, and the processors are not oversubscribed.
package team
