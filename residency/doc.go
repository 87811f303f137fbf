// Package residency manages what lives on a device with its own memory.
//
// A [Manager] hands out device memory in stream-ordered blocks, keeps adopted
// weights resident within a byte budget, and moves bytes over an upload and a
// download queue through rings of pinned memory (plain memory where the provider
// has no pinned memory). It takes each queue and its ring with the first transfer in
// that direction, or with Prepare.
//
// Invariants:
//   - Giving a block back never waits, not even for another goroutine's allocation
//     in the provider. The block keeps the fences of its last
//     uses: the same queue may reuse it at once, another queue waits for them on
//     the device. A block behind a failed fence is quarantined until Close.
//   - A block is given back to the provider only when its fences have ended.
//   - Only bytes whose host copy is valid are evicted, least recently used first.
//   - Memory that runs out is looked for, in this order: a reusable block, the
//     provider, idle blocks of other sizes, a block of the right size whose fences
//     the device must wait for, adopted weights, and idle blocks that are still in
//     use, which the host waits for. It waits before it gives up more weights than
//     the request needs.
//   - A transfer waits on the host for what it follows. Its queue never stands behind
//     work of another queue.
//   - A transfer queue that failed stays dead, and so does the manager: Err says
//     so, and its user turns to the host.
//   - Bytes handed to Upload are copied before it returns.
//
// The package knows only the provider interface. It has no content in a build
// without an accelerator tag.
package residency
