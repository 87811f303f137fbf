// Package storage holds the reference-counted buffer that every tensor shares.
//
// A [Buffer] is a header over bytes: off-heap host memory that it owns, bytes
// that its caller lent, or device bytes with no host memory yet. It knows neither
// dtype nor shape. Its states are:
//
//   - References. Whoever sees the count reach zero ends the buffer, once.
//     Using a released buffer, or releasing it again, panics with its origin.
//   - Generation. Every mutation, by host or device, of the whole or a part,
//     bumps it. Derived copies record it and are stale once it moved on.
//   - Valid bits (coherence). The host copy, the device copy, both or neither
//     hold the newest bytes. Every access says [Read], [Overwrite] or [Update]:
//     Read validates the copy it reads; Update validates the copy it changes,
//     then invalidates the other; Overwrite only invalidates the other. Transfers
//     are these transitions and nothing else.
//   - Fences, orthogonal to the valid bits: the latest device writer, and the
//     latest device reader of each queue. Host reads wait for the writer, host
//     writes for readers too; a device write waits, on the device, for earlier
//     users on other queues.
//   - Sources: the points, beside the writer, that the device bytes may come from and
//     that are not known to have ended well. A result inherits those of the operands
//     that it was computed from. A host read waits for them and fails with the error of
//     one that failed, or that reported a wrong element. Work that is only ordered
//     before the bytes is no source, and its failure is no error of theirs.
//
// Release never waits for a device: device bytes go back to their pool under
// their fences, and host bytes that a transfer still fills go on a [Retired] list.
// Only bytes the caller lent make the last Release wait.
//
// Retain and Release may race freely. The valid bits and fences are guarded; the
// bytes themselves are not: writers need the caller's coordination.
//
// Without an accelerator build tag (cuda, metal, or accel for tests) the device
// state is an empty struct and every transition is a plain host access.
package storage
