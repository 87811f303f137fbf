//go:build invariants

package invariants

// Enabled reports whether the build carries its expensive checks (build tag
// invariants): poisoned and guarded memory, release stacks, leak reports.
const Enabled = true
