package llm

import (
	"fmt"

	"github.com/fucina-go/fucina/llm/internal/arch"
)

// Params are the dimensions of a network, from a file's metadata:
//
//   - Architecture and Name are what the file calls itself.
//   - Layers, Context (the length that the model was trained for), Embedding (the width of the
//     residual stream), FeedForward (the width inside the MLP), Heads, KVHeads, KeyLength and
//     ValueLength (of a head), and Vocabulary (the rows of the embedding) are its sizes.
//   - NormEpsilon is that of the RMS norms.
//   - RoPE, RoPEMode and LongFactors are its rotary angles.
//   - AttentionScale, AttentionSoftCap, FinalSoftCap and EmbeddingScale are factors and caps.
//     A cap of 0 is none.
//   - Window, WindowPattern and LocalRoPE describe the blocks that see only a window.
//   - Notes has a sentence for each value of the file that is not used unchanged.
type Params = arch.Params

// Family describes the arithmetic of an architecture. The families of this package are values
// of this type, and [RegisterFamily] adds others. The type is unstable. The zero value is a
// transformer with RMS norms before attention and MLP, a SiLU gate, no bias and tied
// embeddings. The fields change that:
//
//   - RoPE, a fucina.RoPEMode, says which elements of a head form a rotated pair, and Factors,
//     a [FactorSource], which tensors divide the rotary frequencies.
//   - Output, QKVBias, AttnBias, FFNBias and OutputBias, each a [Presence], say whether files
//     have the output matrix, and the biases of queries, keys and values, of attention's
//     output, of the MLP and of the logits.
//   - QKNorm gives each query and key head an RMS norm, and PostNorms one to the results of
//     attention and MLP. GeGLU makes the gate a GELU. FusedGate says that the rows of ffn_up
//     are those of the gate, followed by those of the upward projection.
//   - ScaleEmbedding multiplies embeddings by the square root of the width. WideLayers is the
//     number of blocks of a variant whose scores are divided by the square root of
//     Params.Embedding/Params.Heads instead of Params.KeyLength.
//   - Windows, of type [Windows], describes blocks that see only the last tokens.
//   - AttentionSoftCap and FinalSoftCap, each a [SoftCap], cap the scores and the logits.
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
// Pattern says that every Pattern-th block sees all tokens; 0 means that the family has no
// windows, and 1 that only the file says which blocks have one. Length is the window of a file
// that gives none, and FreqBase the rotary base of the blocks with a window. In both, 0 leaves
// these blocks as the others.
type Windows = arch.Windows

// SoftCap describes a cap c of a [Family]. It changes a value x to c*tanh(x/c). Read says that
// the family has the cap, and Default is its value in a file without one; 0 means no cap.
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
