// Package arch holds what llm knows of model architectures: the table of families, and
// the dimensions of a network as a file's metadata gives them.
//
// A [Family] is an entry of the table. It describes by its arithmetic what sets an
// architecture apart from the others, and the loader and the forward pass of
// llm/internal/net read it. [Register] adds an entry at run time.
//
// [Params] are the dimensions of one file, which [Read] takes from the metadata. Files
// are untrusted: Read checks every dimension against the others and against bounds.
//
// Package metadata below reads single keys. It knows no families, so that llm/quantize
// reads files of any architecture with it, and without the engine.
package arch
