// Package faults tests that what strikes one session of a model leaves the others
// alone. In each run three random events (calls of the provider that fail, work that
// fails later, delays, cancellations, an early close) meet two sessions that generate
// at once. The one that they are meant for ends with the right ids or with an error
// that names one of them, after a right beginning; so does the other one if an event
// was one of something that the sessions share; otherwise the other one ends with the
// right ids. So does a session that comes after them. Nothing is left, and nothing
// hangs.
//
// A run is determined by a seed and its number, but for the interleaving. These
// variables steer the tests:
//
//   - FUCINA_TEST_SEED is the seed; without it there is a new one each time.
//   - FUCINA_FAULT_RUNS is the number of runs, 100 without it.
//   - FUCINA_FAULT_SHARDS=n runs one in n of them, chosen by the seed.
//   - FUCINA_FAULT_RUN=n runs number n alone, 200 times.
//
// The package has no code but its tests.
package faults
