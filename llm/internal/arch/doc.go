// Package arch holds the table of families of models, and reads the dimensions of a network
// from the metadata of a file.
//
// A [Family] is an entry of the table. It describes the arithmetic in which an architecture
// differs from the others. The loader and the forward pass in llm/internal/net read it.
// [Register] adds an entry at run time.
//
// [Params] are the dimensions of one file. [Read] reads them from the metadata. Files are
// untrusted: Read checks every dimension against the others and against bounds.
//
// Package metadata, below this one, reads single keys. It does not depend on families, so
// llm/quantize reads files of any architecture with it, without the engine.
package arch
