// Package coherence tests that no interleaving of reads, writes, views, releases,
// evictions and transfers shows an engine's user anything but the program order.
//
// A seed makes a schedule: some dozens of steps over a handful of small tensors
// and two contexts of one engine. While it is made, a model that copies everything
// computes what every read must see, bit for bit: model and device run the same
// kernels. The schedule then runs on several engines (the CPU alone, and, with the
// build tag accel, discrete devices that are prompt, late, short of memory or fond
// of declining), where every read is compared and, at the end, every counter must
// be back at zero.
//
// A schedule is driven by one goroutine, but for reads in the background and for
// forks, where each context has a goroutine; what runs beside it is the device. The same seed therefore makes the same calls, though not
// the same interleaving: run a seed several times. These variables steer the tests:
//
//   - FUCINA_TEST_SEED is the number from which the seeds of a run derive.
//   - FUCINA_TEST_FULL=1 runs ten times as many schedules.
//   - FUCINA_COHERENCE_SEED=n runs the schedule of seed n alone, again and again,
//     on every configuration, and prints its steps.
//
// The package has no code but its tests.
package coherence
