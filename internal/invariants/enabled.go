//go:build invariants

package invariants

// Enabled reports whether the build has the expensive checks (build tag
// invariants): poisoned and guarded memory, release stacks, leak reports.
const Enabled = true
