// Package residency manages the memory of a device that has its own.
//
// A [Manager] hands out device memory in stream-ordered blocks, keeps adopted
// weights resident within a byte budget, and moves bytes over an upload and a
// download queue through rings of pinned memory (plain memory where the provider
// has no pinned memory). It takes each queue and its ring with the first transfer in
// that direction, or with Prepare.
//
// Invariants:
//   - Giving a block back never waits, not even for another goroutine's allocation
//     in the provider. The block keeps the fences of its last uses: the same queue may
//     reuse it at once, another queue waits for them on the device.
//   - A block is given back to the provider only when its fences have ended. A block
//     behind a failed fence is quarantined until the failed queue has ended.
//   - A transfer waits on the host for what it follows, so that a transfer queue never
//     waits for another queue.
//   - Every wait ends with the caller's context. Nobody waits for the device while holding
//     a lock of the manager, with one exception: whoever submits to a transfer queue that
//     is full holds that queue's submitting lock until there is room.
//   - The budget counts what blocks hold, not what was asked for.
//   - A transfer queue that failed stays dead, and so does the manager: Err says
//     so, and exec then runs operations on the CPU.
//   - Bytes handed to Upload are copied before it returns.
//
// # Sizes
//
// Activations have 8 sizes per power of two, so that prompts of nearby lengths share
// blocks. An idle block also serves a request that is up to 4 times smaller, or 1 MiB
// smaller: once a few lengths have run, others need no new memory. Weights have blocks
// of their own size, up to 4 KiB. Weights and activations leave each other's idle
// blocks alone while there is memory, so that each finds its sizes again.
//
// # Memory that has run out
//
// A request that can never be met is refused at once and evicts nothing: one larger than
// the budget, than the largest allocation, or than idle blocks and weights together.
// Otherwise memory is looked for in this order:
//
//   - a reusable block, and the provider;
//   - idle blocks that were a weight's, or that nobody took for two rounds of the model;
//   - a block of the right size whose uses the device must wait for;
//   - adopted weights whose host copy is valid and which no operation is being prepared
//     on, no more of them than the request needs;
//   - other idle blocks, in the end those that are still in use.
//
// # Which weights go
//
// A forward pass uses the weights of a model in a loop. Least-recently-used order
// would evict each weight just before its next use, so that a model 3% over its budget
// would upload all of its weights in each step. The manager measures how often each
// weight comes back, counted in uses of weights, and gives up the one that is used next
// at the latest time. In a loop that is one that was just used. So a fixed part stays
// resident, and the rest is streamed through the room that is left: a step uploads
// what is over the budget and little more. Three things refine this order:
//
//   - A weight that was not used for three rounds of what runs now is taken for one of
//     a model that is open and idle. It goes first, whatever its size.
//   - Large weights are left alone while smaller ones make enough room. To bring a
//     large one back costs more than the room that a small one needed.
//   - The last used weights stay, up to a 32nd of the budget. The device may still be
//     at work on them, and an upload into their memory would wait for that.
//
// A weight's history outlives its block, and is dropped when the collector takes the
// weight's buffer.
//
// The package knows only the provider interface. It has no content in a build
// without an accelerator tag.
package residency
