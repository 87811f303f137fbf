// Package offheap allocates memory that the garbage collector neither scans, moves nor
// frees, and maps model files. It is pure Go.
//
// # Blocks
//
// [Alloc] returns a [Block] and [Free] frees it. The owner of a block frees it exactly
// once. There are no finalizers, so a forgotten block is a leak that [Stats] shows. A
// block's bytes must not hold Go pointers.
//
//   - Every block starts on a 64-byte boundary and is zero.
//   - A block of 16 KiB or more starts on a page boundary and spans whole pages of
//     [PageSize] bytes ([Block.Cap]), so that a device can register it or wrap it
//     without a copy.
//   - Bytes between the length and the capacity belong to this package. A device may map
//     them, but they must not be written.
//
// Blocks of 16 KiB or more are mappings of their own. A page of one is resident from its first
// access on. Free returns them to the system, and [Discard] returns the pages of a part.
// Smaller ones are cells of slabs, with one free list per power-of-two class from 64 bytes
// to 16 KiB. Slabs stay mapped until the process ends. Freed cells are reused first, so
// that the peak demand of each class bounds the total ([Statistics.SlabBytes]).
//
// # Builds
//
// On systems without mmap or VirtualAlloc, and in every build under the race
// detector (which does not see mapped memory), blocks come from the Go heap with
// the same alignment. A Block then keeps its memory reachable, and running out
// of memory ends the process instead of returning [ErrNoMemory].
//
// With the build tag invariants every allocation and release is recorded:
//
//   - freeing a block twice, through a copy, or with altered fields panics with
//     the stacks of the allocation and of the first release;
//   - blocks lie between inaccessible pages. A block under 16 KiB ends at the second one,
//     except for up to 63 bytes of alignment. A larger block starts on a page, so the
//     bytes after its length hold a pattern that Free verifies;
//   - freed mappings become inaccessible, and their addresses are reused only after a
//     number of later releases. Freed slab and heap blocks are filled with 0xDB. Reuse of
//     a slab block that was written after its release panics;
//   - [Leaks] lists the live blocks with the stacks that allocated them.
//
// # Files
//
// [MapFile] maps a file for reading. [Mapping] describes what happens if the file shrinks.
package offheap
