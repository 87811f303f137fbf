package quantize

import (
	"errors"

	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/internal/untrusted"
)

// Errors that this package wraps.
var (
	// ErrFileType reports a name or a number that is not a [FileType].
	ErrFileType = errors.New("quantize: unknown type")
	// ErrQuantized reports a matrix that is already in a block format. See
	// [Options.AllowRequantize].
	ErrQuantized = errors.New("quantize: the input is quantized already")
	// ErrImportance reports importance data that cannot be read, or that lacks the
	// weights that a tensor needs.
	ErrImportance = errors.New("quantize: importance data is missing or unusable")
	// ErrTensor reports a tensor that cannot be stored in its format. If the cause is a
	// value that is infinite, NaN or too large, the error also wraps [quant.ErrRange].
	ErrTensor = errors.New("quantize: tensor cannot be stored")
	// ErrOutput reports an output that is the input or a part of the input.
	ErrOutput = errors.New("quantize: output would overwrite the input")
	// ErrMetadata reports a model that lacks metadata which the choice of formats needs.
	ErrMetadata = errors.New("quantize: metadata is missing or unusable")
)

func quote(s string) string { return untrusted.Quote(s) }

func quoted(t gguf.TensorInfo) string { return quote(t.Name) }
