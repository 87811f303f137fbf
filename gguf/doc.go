// Package gguf reads and writes little-endian GGUF model files. It reads versions 2 and 3
// and writes version 3.
//
// A file has a header, a list of typed metadata pairs, a list of tensor descriptions and
// one data section. [Open] maps the file and checks the first three against the file's
// size before it returns. It decodes nothing of the data section. The format is ggml's
// (docs/gguf.md, src/gguf.cpp).
//
// # Ownership
//
// Metadata and tensor descriptions are copies and stay valid. Tensor bytes are views of
// the mapping, which is reference counted: the [File] holds one reference until
// [File.Close], and every buffer of [File.Buffer] holds one until its last Release. The
// file is unmapped and closed when the last reference is dropped.
//
// # Files that change
//
// If another file replaces an open one by a rename, the open one does not change. If an
// open file is truncated or overwritten, the following fail with an error that wraps
// [ErrFileChanged]: Open, [File.View], [File.Buffer] if it copies, [Write], and the
// operations of this module that read a buffer of the file. They detect a change in two
// ways. Reads of pages behind the new end fault. [Source.Check] compares the size and the
// time of modification, because some changed bytes can still be read: bytes behind the new
// end but in its page read as zeros, and overwritten bytes read as the new ones. The
// system ends a program that reads a truncated file through [File.Data].
//
// A model may be split into files that are named and numbered like those of llama.cpp's
// gguf-split ([SplitPath]). Opening any of them opens all as one [File]. Each part has an
// alignment of its own.
//
// # Writing
//
// A [Writer] takes metadata and tensor descriptions first and then streams the data.
// [Write] copies a file, to the same bytes if the file is of the current version.
// [WriteFile] replaces a file atomically. The parts of a split file are written as one
// file.
//
// # Accepted files
//
// Files are untrusted. Every count, length, offset and product is checked
// before it is used, and memory stays within a small multiple of the bytes that
// describe the metadata. Every file that ggml refuses is refused, in particular:
//
//   - version 1, versions above 3, big-endian files (version 1 with its 32-bit lengths
//     cannot be told from files that ggml refuses);
//   - a count or length that the rest of the file cannot hold;
//   - an empty or repeated key, a repeated tensor name, a name of 64 bytes or
//     more, more than 4 dims, an array of arrays, an unknown type;
//   - an alignment (key general.alignment, 32 by default) that is not a u32 or
//     not a power of two;
//   - a row length that is not a multiple of the format's block;
//   - tensors that do not lie back to back, the first at offset 0 of the data section and
//     each next one at the padded end of the one before. This also rules out overlap and
//     unaligned offsets.
//
// Some files that ggml accepts are refused:
//
//   - an element count or byte size that wraps around or exceeds the file, including
//     the shape of an empty tensor such as [2^63, 2^63, 0];
//   - a bool other than 0 and 1;
//   - parts of a split file that repeat a metadata key with another value;
//   - a NUL byte in a key or tensor name, because ggml compares only the bytes before it;
//   - a key longer than the 65535 bytes that the format allows.
//
// The padding after the last tensor may be missing, and bytes after it are ignored, as in
// llama.cpp's loader. A tensor with no dims is a scalar of shape [1]. A tensor with a dim
// of 0 is listed but has no buffer ([ErrEmptyTensor]), because this runtime has no empty
// tensors. The bytes of padding, the spelling of keys and the encoding of strings are not
// checked.
//
// # Type 42
//
// Two formats use type 42: q2_0 (128 elements in 34 bytes) and q2_0_g64 (64 elements in
// 18 bytes), which ggml 0.23 writes. One writer writes a whole file, so one format is
// chosen per file: the format for which every tensor's offset and the file's size agree.
// Both formats agree only if padding hides the difference between small tensors or bytes
// follow the last tensor; then q2_0_g64 is chosen. If neither agrees, the file is refused.
package gguf
