// Package faults tests that a fault of one session of a model does not affect others. In
// each run, three random events happen while two sessions generate concurrently. Events are
// failing calls of the provider, work that fails later, delays, cancellations and an early
// close. One session is the victim of the events. It ends with the right ids, or with right
// ids up to an error that names one of the events. The other session ends with the right
// ids, unless an event concerned something that the sessions share. A later session ends
// with the right ids. Nothing is left, and nothing hangs.
//
// The prompts of the sessions have a prefix in common. In some runs, each session has a fork,
// which ends like a session without events. In some, the cache is too small for all sessions, so
// that they may also end with llm.ErrCacheFull.
//
// A seed and the number of a run determine everything but the interleaving. These variables
// control the tests:
//
//   - FUCINA_TEST_SEED is the seed; without it there is a new one each time.
//   - FUCINA_FAULT_RUNS is the number of runs. The default is 100.
//   - FUCINA_FAULT_SHARDS=n runs one in n of them, chosen by the seed.
//   - FUCINA_FAULT_RUN=n runs only number n, 200 times.
//
// The package has no code but its tests.
package faults
