// Package residency manages the memory of a device that has its own.
//
// A [Manager] hands out device memory in stream-ordered blocks, keeps adopted
// weights resident within a byte budget, and transfers bytes over an upload and a
// download queue through rings of staging memory. Staging memory is pinned if the
// provider supports that. The first transfer in a direction, or Prepare, opens the
// direction's queue and ring.
//
// Invariants:
//   - Block.Free never waits, not even for another goroutine's allocation in the
//     provider. The block keeps the fences of its last uses: the same queue may reuse it
//     at once, another queue waits for the fences on the device.
//   - A block is given back to the provider only after its fences have ended. A block
//     behind a failed fence is quarantined until the failed queue has ended.
//   - A transfer waits on the host for the works that it follows, so that a transfer
//     queue never waits for another queue.
//   - Every wait ends with the caller's context. No goroutine waits for the device while
//     it holds a lock of the manager, with one exception: a submission to a full transfer
//     queue holds that queue's submitting lock until there is room.
//   - The budget counts the sizes of blocks, not the requested sizes.
//   - After a transfer queue has failed, all its transfers fail, and Err returns the
//     failure. exec then runs operations on the CPU.
//   - Upload copies its source before it returns.
//
// # Sizes
//
// Activations have 8 sizes per power of two, so that prompts of nearby lengths share
// blocks. An idle block also serves a request that is up to 4 times smaller, or up to
// 1 MiB smaller. Once prompts of a few lengths have run, other lengths need no new
// memory. A weight's size is rounded by at most 4 KiB. Weights and activations reuse
// each other's idle blocks only when memory runs out, so that each kind finds blocks of
// its sizes.
//
// # When memory runs out
//
// A request that can never be met is refused at once and evicts nothing. That is a request
// larger than the budget, than the largest allocation, or than idle blocks and weights
// together. Otherwise the manager frees or takes memory in this order:
//
//   - a reusable block, or a new one from the provider;
//   - idle blocks that belonged to a weight, or that were not reused for two rounds of
//     the model;
//   - a block of the right size whose uses the device must wait for;
//   - adopted weights with a valid host copy and no operation being prepared on them,
//     as many as the request needs;
//   - other idle blocks, and last those that are still in use.
//
// # Eviction order
//
// A forward pass uses the weights of a model in a loop. Least-recently-used order
// would evict each weight just before its next use, so that a model 3% over its budget
// would upload all of its weights in each step. Instead, the manager measures each
// weight's interval between uses, counted in uses of weights, and evicts the weight with
// the latest expected use. In a loop, that is a weight that was just used. So a large
// part of the model stays resident, the rest is streamed through the remaining room, and
// a step uploads little more than the part over the budget. Weights of one operation are
// needed at once, and none of them makes room for another. So the streamed part starts
// earlier in each step, by about the largest sum of the weights of one operation and of
// those that the third rule keeps. A step in which it passes the end of the loop uploads as
// much in addition to the part over the budget.
//
// Three rules refine this order:
//
//   - A weight that was not used for three rounds of the running model is assumed to
//     belong to an idle model. It is evicted first, whatever its size.
//   - A large weight is evicted only if smaller ones do not make enough room, because
//     its next upload would cost more than the room that a small request needs.
//   - The last used weights stay, up to a 32nd of the bytes of all resident weights. The
//     device may still be using them, and an upload into their memory would wait.
//
// A weight's history outlives its block. It is dropped after the garbage collector has
// freed the weight's buffer.
//
// The package imports providers only through their interface. It is empty in a build
// without an accelerator tag.
package residency
