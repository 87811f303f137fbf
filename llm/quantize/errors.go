package quantize

import (
	"errors"

	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/internal/untrusted"
)

// Errors that this package's wrap.
var (
	// ErrFileType reports a name that is no [FileType].
	ErrFileType = errors.New("quantize: unknown type")
	// ErrQuantized reports a matrix that is in a block format already. See
	// [Options.AllowRequantize].
	ErrQuantized = errors.New("quantize: the input is quantized already")
	// ErrImportance reports an importance file that cannot be read, or that lacks
	// what a tensor needs.
	ErrImportance = errors.New("quantize: importance data is missing or unusable")
	// ErrTensor reports a tensor that cannot be stored in the format chosen for it. Where
	// that is for a value, which may be infinite, a NaN or too large, the error wraps
	// [quant.ErrRange] too.
	ErrTensor = errors.New("quantize: tensor cannot be stored")
	// ErrOutput reports an output that is the input, or a part of it: it would be lost.
	ErrOutput = errors.New("quantize: output would overwrite the input")
	// ErrMetadata reports a model whose metadata lacks what the choice of formats
	// depends on.
	ErrMetadata = errors.New("quantize: metadata is missing or unusable")
)

func quote(s string) string { return untrusted.Quote(s) }

func quoted(t gguf.TensorInfo) string { return quote(t.Name) }
