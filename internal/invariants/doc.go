// Package invariants has constants that say which checks a build has, so that code can
// write
//
//	if invariants.Enabled {
//		checkEverything()
//	}
//
// at no cost in a normal build: the compiler removes the branch and the code that only
// the branch reaches.
//
// The build tag invariants sets [Enabled], the race detector sets [RaceEnabled]. The two
// are independent, because tests that count allocations or time out with poisoned memory
// must be able to run under the detector.
package invariants
