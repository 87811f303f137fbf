// Package accel defines what the core knows of an accelerator: a point on a
// queue's timeline ([Work]), the device half of a buffer ([Memory]), provider
// state tied to an allocation ([Resource]) and a derived host-side copy
// ([HostShadow]). It names no device and imports nothing of this module.
//
// Invariants:
//   - A queue's timeline is monotonic: points are issued and completed in order.
//     A point describes no operation; it only becomes complete or failed.
//   - A Work is a value, may be copied and shared by several outputs, and owns
//     nothing. The zero Work is complete.
//   - An operation depends on others in two ways. It runs after the works of a set of
//     [Fences], whose failures do not concern it. Its results come from the points of a
//     set of [Sources], and if one of these fails, the results fail too.
//   - Waiting parks, honours a context.Context and returns the failure of the
//     point waited for, every time it is asked.
package accel
