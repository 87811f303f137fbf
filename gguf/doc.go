// Package gguf reads and writes GGUF model files: versions 2 and 3 are read, 3 is
// written, little-endian.
//
// A file is a header, a list of typed metadata pairs, a list of tensor
// descriptions and one data section. [Open] maps the file and checks all of
// the first three against its size before it returns; nothing is decoded from
// the data section. The format is that of ggml (docs/gguf.md, src/gguf.cpp).
//
// # Ownership
//
// Metadata and tensor descriptions are copies and never expire. Tensor bytes
// are views of the mapping, which is reference counted: the [File] holds one
// reference until [File.Close], every buffer from [File.Buffer] holds one until
// its release, and the file is unmapped and closed when the last is dropped.
//
// # Files that change
//
// If another file replaces an open one by a rename, the open one does not change. If an
// open file is cut or written over, these fail with an error that wraps
// [ErrFileChanged]: Open, [File.View], [File.Buffer] if it copies, [Write], and the
// operations of this module that read a buffer of the file. They find the change in two
// ways. Reads of pages that are no longer there fault. [Source.Check] compares the size
// and the time of modification, because bytes behind the new end but in the same page
// read as zeros, and bytes that are written over as what they are now. Code that reads
// the bytes of [File.Data] by itself is ended by the system.
//
// A model may be split into files that are named and numbered as llama.cpp's
// gguf-split does ([SplitPath]); opening any of them opens all as one [File]. Each
// part has an alignment of its own.
//
// # Writing
//
// A [Writer] takes metadata and tensor descriptions first and then streams the
// data. [Write] copies a file, to the same bytes if it is of the current version.
// [WriteFile] replaces a file at once or not at all. The parts of a split file are
// written as one.
//
// # What is accepted
//
// Files are untrusted. Every count, length, offset and product is checked
// before it is used, and memory stays within a small multiple of the bytes that
// describe the metadata. Whatever ggml refuses is refused here, in particular:
//
//   - version 1, versions above 3, big-endian files (a version 1 with its 32-bit
//     lengths could be read, but not told from what ggml refuses);
//   - a count or length that the rest of the file cannot hold;
//   - an empty or repeated key, a repeated tensor name, a name of 64 bytes or
//     more, more than 4 dims, an array of arrays, an unknown type;
//   - an alignment (key general.alignment, 32 by default) that is not a u32 or
//     not a power of two;
//   - a row length that is no multiple of the format's block;
//   - tensors that do not lie back to back: the first at offset 0 of the data
//     section, each next one at the padded end of the one before. This also
//     rules out overlap and unaligned offsets.
//
// Some files that ggml accepts are refused:
//
//   - an element count or byte size that wraps around or exceeds the file, also
//     in the shape of an empty tensor ([2^63, 2^63, 0]);
//   - a bool other than 0 and 1;
//   - parts of a split file that repeat a metadata key with another value;
//   - a NUL byte in a key or tensor name, where ggml compares only what comes
//     before it, and a key above the 65535 bytes that the format allows.
//
// The padding after the last tensor may be missing, and bytes after it are
// ignored, as in llama.cpp's loader. A tensor with no dims is a scalar of shape
// [1]. A tensor with a dim of 0 is listed, but has no buffer ([ErrEmptyTensor]): no
// tensor of this runtime is empty. The bytes of padding, the spelling of keys and the
// encoding of strings are not checked.
//
// # Type 42
//
// Two formats are in use under type 42: q2_0 (128 elements in 34 bytes) and
// q2_0_g64 (64 elements in 18 bytes, what ggml 0.23 writes). A file is the work
// of one writer, so the choice is made once per file: the format under which
// every tensor's offset and the file's size agree. Where both agree, which
// takes tensors so small that padding hides the difference or bytes after the
// last one, it is q2_0_g64. Where neither does, the file is refused.
package gguf
