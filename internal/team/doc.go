// Package team runs data-parallel kernels on a fixed set of goroutines.
//
// A [Team] has as many lanes as kernels may run at once: its workers and the
// goroutine that calls [Team.Run]. A run hands out task numbers one by one, so
// that a lane which the system slows down takes fewer; the caller cuts the work
// into tasks without looking at the number of lanes, which keeps results
// independent of it. A task can end the run early, for example because its context is
// done: the team then skips the tasks that have not begun.
//
// Between runs a worker watches for the next one for some microseconds, then
// parks. Kernels of one forward pass follow each other closely enough to find it
// awake; an idle program costs nothing.
//
// One team is shared by all goroutines of an engine, and serves one run at a
// time. A caller that finds it busy, or that already is inside a run, does its
// tasks on its own goroutine: nobody queues, so neither nesting nor concurrency
// can deadlock, and the processors are not oversubscribed.
package team
