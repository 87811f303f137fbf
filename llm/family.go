package llm

import (
	"fmt"

	"github.com/fucina-go/fucina/llm/internal/arch"
)

// Params are the dimensions of a network, from a file's metadata.
type Params = arch.Params

// Family describes the networks of an architecture by what sets them apart from the
// others. It is the type of the entries that this package has for its own families. See
// [RegisterFamily]; the type is as unstable.
type Family = arch.Family

// Presence says whether the files of a [Family] have a tensor.
type Presence = arch.Presence

const (
	Absent   = arch.Absent   // No file has it.
	Optional = arch.Optional // A file may have it.
	Required = arch.Required // Every file has it.
)

// FactorSource is a kind of tensor with divisors of the rotary frequencies of a [Family].
type FactorSource = arch.FactorSource

const (
	NoFactors    = arch.NoFactors    // Files have no divisors.
	FixedFactors = arch.FixedFactors // rope_freqs.weight holds those of all sessions, as for llama 3.
	LongFactors  = arch.LongFactors  // rope_factors_short.weight and rope_factors_long.weight hold those of LongRoPE.
)

// Windows describes the blocks of a [Family] that see only a window of the last tokens.
type Windows = arch.Windows

// SoftCap is a cap c of values x of a [Family], which become c*tanh(x/c).
type SoftCap = arch.SoftCap

var (
	// ErrUnsupportedModel reports a file of a family, or with a feature, that this
	// package does not run.
	ErrUnsupportedModel = arch.ErrUnsupportedModel
	// ErrInvalidModel reports a file whose metadata and tensors do not make a model.
	ErrInvalidModel = arch.ErrInvalidModel
	// ErrInvalidFamily reports a family that RegisterFamily does not take.
	ErrInvalidFamily = arch.ErrInvalidFamily
)

// Architectures returns the values of general.architecture that Open takes, sorted:
// those of this package and those that were registered.
func Architectures() []string { return arch.Architectures() }

// RegisterFamily makes Open and New take files whose general.architecture is name, and
// run their networks as f describes. The file's keys are those of name. A family stays
// registered until the program ends; models that are open do not change.
//
// RegisterFamily may be called by any goroutine, also while others open models. It fails
// with ErrInvalidFamily, and changes nothing, if name is empty, if a family of that name
// is there already, or if f is no description of a network.
//
// RegisterFamily and [Family] are unstable: the fields of a description change as this
// package learns to run more kinds of networks.
func RegisterFamily(name string, f Family) error {
	if err := arch.Register(name, f); err != nil {
		return fmt.Errorf("llm: %w", err)
	}
	return nil
}
