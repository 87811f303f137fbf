// Package coherence tests that an engine's user sees the program order in any interleaving
// of reads, writes, views, releases, evictions and transfers.
//
// A schedule is generated from a seed. It has some dozens of steps over a few small tensors
// and two queues of one engine. The generator also runs the steps on a model that copies
// everything, which gives the exact bits of every read, because model and device run the
// same kernels. The schedule then runs on several engines: the CPU alone and, with the build
// tag accel, discrete devices that are prompt, late, short of memory or decline operations.
// There every read is compared, and at the end every counter must be zero.
//
// One goroutine runs a schedule, except for reads in the background and for forks, in which
// each queue has a goroutine. The device runs concurrently. The same seed therefore makes
// the same calls, but not the same interleaving, so a seed should be run several times.
// These variables control the tests:
//
//   - FUCINA_TEST_SEED is the number from which the seeds of a run derive.
//   - FUCINA_TEST_FULL=1 runs ten times as many schedules.
//   - FUCINA_COHERENCE_SEED=n runs only the schedule of seed n, many times on every
//     configuration, and prints its steps.
//
// The package has no code but its tests.
package coherence
