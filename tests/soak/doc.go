// Package soak tests that a server's memory does not grow with the number of sessions that
// it has served. Eight goroutines open sessions on one model and generate from random
// prompts. Some sessions are cancelled, some fail by a fault on their own queue, and all are
// closed. From the hundredth session on, the resources of the process and the device do not
// grow: objects and bytes of the Go heap, blocks and bytes off the heap, bytes, blocks and
// queues of the device, and goroutines.
//
// A test runs enough sessions to show a leak of a hundred bytes per session.
// FUCINA_SOAK_TIME=duration makes each run that long instead. Then the time of one op on a
// weight, which all sessions use, must not grow either. FUCINA_TEST_SEED is the seed of the
// prompts and fates.
//
// The package has no code but its tests.
package soak
