//go:build !race

package invariants

// RaceEnabled reports whether the build runs under the race detector, which
// sees accesses to Go memory only.
const RaceEnabled = false
