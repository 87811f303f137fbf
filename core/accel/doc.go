// Package accel defines the core's view of an accelerator: a point on a queue's
// timeline ([Work]), the device half of a buffer ([Memory]), provider state tied to an
// allocation ([Resource]) and a derived host-side copy ([HostShadow]). It names no
// device and imports no other package of this module.
//
// Invariants:
//   - A queue's timeline is monotonic: points are issued and completed in order.
//     A point describes no operation; it only completes or fails.
//   - A Work is a value. It may be copied and shared by several outputs, and it owns
//     nothing. The zero Work is complete.
//   - An operation depends on others in two ways. It runs after the works of a set of
//     [Fences], and their failures do not fail it. Its results come from the points of
//     a set of [Sources], and if one of these fails, the results fail too.
//   - Wait parks the goroutine, honours its context.Context, and returns the failure of
//     the point on every call.
package accel
