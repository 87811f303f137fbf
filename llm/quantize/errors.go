package quantize

import "errors"

// Errors that this package's wrap.
var (
	// ErrFileType reports a name that is no [FileType].
	ErrFileType = errors.New("quantize: unknown type")
	// ErrQuantized reports a matrix that is in a block format already. See
	// [Options.AllowRequantize].
	ErrQuantized = errors.New("quantize: the input is quantized already")
	// ErrImportance reports an importance file that cannot be read, or that lacks
	// what a tensor needs.
	ErrImportance = errors.New("quantize: importance data")
	// ErrTensor reports a tensor that cannot be stored in the format chosen for it.
	ErrTensor = errors.New("quantize: tensor")
	// ErrOutput reports an output that is the input, or a part of it: it would be lost.
	ErrOutput = errors.New("quantize: output")
	// ErrMetadata reports a model whose metadata lacks what the choice of formats
	// depends on.
	ErrMetadata = errors.New("quantize: metadata")
)
