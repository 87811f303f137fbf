// Package storage holds the reference-counted buffer that every tensor shares.
//
// A [Buffer] is a header over bytes: off-heap host memory that it owns, bytes
// that its caller lent, or device bytes with no host memory yet. It knows neither
// dtype nor shape. Its states are:
//
//   - References. The Release that brings the count to zero ends the buffer, once.
//     Using a released buffer, or releasing it again, panics with its origin.
//   - Generation. Every mutation of the whole or of a part, by host or device, bumps
//     the generation. A derived copy records the generation and is stale once it differs.
//   - Valid bits (coherence). The host copy, the device copy, both or neither
//     hold the newest bytes. Every access says [Read], [Overwrite] or [Update]:
//     Read validates the copy it reads; Update validates the copy it changes,
//     then invalidates the other; Overwrite only invalidates the other. These
//     transitions are the only transfers.
//   - Fences, independent of the valid bits: the latest device writer, and the
//     latest device reader of each queue. A host read waits for the writer. A host
//     write also waits for the readers. A device write waits, on the device, for
//     earlier users on other queues.
//   - Sources: the points, besides the writer, that the device bytes may come from and
//     that are not known to have ended well. A result inherits the sources of its
//     operands. A host read waits for the sources and fails if one of them failed or
//     reported a wrong element. Work that is only ordered before the bytes is not a
//     source, and its failure does not fail a read of the bytes.
//
// Release never waits for a device: device bytes go back to their pool under
// their fences, and host bytes that a transfer still fills go on a [Retired] list.
// The one exception is memory that the caller lent: its last Release waits.
//
// Retain and Release may race freely. A mutex guards the valid bits and fences, except while
// only one goroutine can use them: before a new buffer is shared, and in the last Release of a
// buffer that is not stable. The bytes themselves are not guarded: the caller coordinates
// writers.
//
// Without an accelerator build tag (cuda, metal, or accel for tests) the device
// state is an empty struct and every transition is a plain host access.
package storage
