// Package soak tests that a server's memory does not grow with the sessions that it
// has served. Eight goroutines open sessions on one model and generate after random
// prompts; some sessions are cancelled, some fail by a fault on their own queue, and
// all are closed. From the hundredth session on, what the process and the device hold
// stays where it is: objects and bytes of the Go heap, blocks and bytes off it, bytes,
// blocks and queues of the device, and goroutines.
//
// A test takes as many sessions as show a leak of a hundred bytes per session.
// FUCINA_SOAK_TIME=duration makes each run that long instead, and then requires of the
// time of one op on a weight, which all sessions use, that it stays where it is too.
// FUCINA_TEST_SEED is the seed of the prompts and fates.
//
// The package has no code but its tests.
package soak
