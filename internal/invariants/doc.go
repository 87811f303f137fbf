// Package invariants says, as constants, which checks a build carries, so that
// code can write
//
//	if invariants.Enabled {
//		checkEverything()
//	}
//
// and pay nothing in a normal build: the compiler removes the branch and all
// that only it reaches.
//
// [Enabled] follows the build tag invariants, [RaceEnabled] the race detector.
// The two are independent: the detector alone turns no check on, because tests
// that count allocations or time out under poisoned memory must be able to run
// under it.
package invariants
