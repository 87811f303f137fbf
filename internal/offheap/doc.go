// Package offheap hands out memory that the garbage collector neither scans,
// moves nor frees, and maps model files. It is pure Go.
//
// # Blocks
//
// [Alloc] returns a [Block] and [Free] takes it back. The owner of a block frees
// it exactly once; nothing here is finalised, so a forgotten block is a leak that
// [Stats] shows. A block's bytes must not hold Go pointers.
//
//   - Every block starts on a 64-byte boundary and is zero.
//   - A block of 16 KiB or more starts on a page boundary and spans whole pages
//     ([Block.Cap]), pages being of at least 16 KiB on Apple systems: a device can register it or
//     wrap it without copying.
//   - Bytes between the length and the capacity belong to this package. A device
//     may map them; nobody may write them.
//
// Blocks of 16 KiB or more are mappings of their own, returned to the system by
// Free. Smaller ones are carved from slabs, one free list for each power-of-two
// class from 64 bytes to 16 KiB. Slabs stay mapped for the life of the process:
// their total ([Statistics.SlabBytes]) is bounded by the peak demand of each
// class, and freed blocks are the first to be handed out again.
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
//   - blocks lie between inaccessible pages. Blocks under 16 KiB end at the
//     second one, up to the 63 bytes that alignment takes; larger ones must start
//     on a page, so bytes after their length hold a pattern that Free verifies;
//   - freed mappings become inaccessible and their addresses are not reused
//     until a number of later releases; freed slab and heap blocks are filled
//     with 0xDB, and a slab block that was written meanwhile panics when it is
//     handed out again;
//   - [Leaks] lists the live blocks with the stacks that allocated them.
//
// # Files
//
// [MapFile] maps a file for reading. See [Mapping] for the hazards of a file
// that shrinks.
package offheap
