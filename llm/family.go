package llm

import (
	"fmt"

	"github.com/fucina-go/fucina/llm/internal/arch"
)

// Params are the dimensions of a network, from a file's metadata.
type Params = arch.Params

// Family describes the arithmetic of an architecture. The families of this package are values
// of this type, and [RegisterFamily] adds others. The type is unstable.
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
	FixedFactors = arch.FixedFactors // rope_freqs.weight has the divisors of all sessions, as for llama 3.
	LongFactors  = arch.LongFactors  // rope_factors_short.weight and rope_factors_long.weight have the divisors of LongRoPE.
)

// Windows describes the blocks of a [Family] that see only a window of the last tokens.
type Windows = arch.Windows

// SoftCap describes a cap c of a [Family]. It changes a value x to c*tanh(x/c).
type SoftCap = arch.SoftCap

var (
	// ErrUnsupportedModel reports a file of a family that this package does not support, or
	// with a feature that it does not support.
	ErrUnsupportedModel = arch.ErrUnsupportedModel
	// ErrInvalidModel reports a file whose metadata and tensors do not form a model.
	ErrInvalidModel = arch.ErrInvalidModel
	// ErrInvalidFamily reports a family that RegisterFamily does not accept.
	ErrInvalidFamily = arch.ErrInvalidFamily
)

// Architectures returns the values of general.architecture that Open supports, sorted: those
// of this package and those that were registered.
func Architectures() []string { return arch.Architectures() }

// RegisterFamily adds the family f to those that Open and New support, for files whose
// general.architecture is name. The other keys of such a file begin with name too. The family
// remains registered until the program ends. Models that are already open do not change.
//
// RegisterFamily may be called at any time, from any goroutine. It fails with
// ErrInvalidFamily, and changes nothing, if name is empty or already registered, or if f does
// not describe a network.
//
// RegisterFamily and [Family] are unstable: the fields of Family change as this package
// supports more kinds of networks.
func RegisterFamily(name string, f Family) error {
	if err := arch.Register(name, f); err != nil {
		return fmt.Errorf("llm: %w", err)
	}
	return nil
}
