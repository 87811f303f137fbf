package llm

import "github.com/fucina-go/fucina/llm/internal/arch"

// Params are the dimensions of a network, from a file's metadata.
type Params = arch.Params

var (
	// ErrUnsupportedModel reports a file of a family, or with a feature, that this
	// package does not run.
	ErrUnsupportedModel = arch.ErrUnsupportedModel
	// ErrInvalidModel reports a file whose metadata and tensors do not make a model.
	ErrInvalidModel = arch.ErrInvalidModel
)

// Architectures returns the values of general.architecture that Open takes, sorted.
func Architectures() []string { return arch.Architectures() }
