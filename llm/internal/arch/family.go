package arch

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/llm/internal/arch/metadata"
)

// ErrInvalidFamily reports an entry that the table of families does not accept.
var ErrInvalidFamily = errors.New("invalid family")

// Presence says whether the files of a family have a tensor.
type Presence uint8

const (
	Absent   Presence = iota // No file has it.
	Optional                 // A file may have it.
	Required                 // Every file has it.
)

// Family describes the features of an architecture: the weights that its blocks have in
// addition to the projections, and the constants that its files do not contain. The forward
// pass in llm/internal/net is the same for all families. The zero value is a transformer with
// RMS norms in front of attention and MLP, a SiLU gate, no bias and tied embeddings.
//
// A file with a tensor that its family does not use cannot be opened.
type Family struct {
	// RoPE says which elements of a head form a rotated pair.
	RoPE fucina.RoPEMode
	// Factors says which tensors may have divisors of the rotary frequencies.
	Factors FactorSource

	// Output is the presence of the output matrix. If a file has none, the embedding is
	// the output matrix.
	Output Presence
	// QKVBias is the presence of each bias of the queries, keys and values.
	QKVBias Presence
	// AttnBias is the presence of the bias of attention's output projection.
	AttnBias Presence
	// FFNBias is the presence of each bias of the MLP's projections.
	FFNBias Presence
	// OutputBias is the presence of the bias of the logits.
	OutputBias Presence

	// QKNorm says that each query and key head has an RMS norm, before the rotation.
	QKNorm bool
	// PostNorms says that an RMS norm is applied to the results of attention and of the
	// MLP before they are added to the residual stream.
	PostNorms bool
	// GeGLU says that the gate of the MLP is a GELU. Otherwise it is a SiLU.
	GeGLU bool
	// FusedGate says that files have no ffn_gate. The rows of ffn_up are then those of the
	// gate, followed by those of the upward projection.
	FusedGate bool

	// ScaleEmbedding says that embeddings are multiplied by the square root of the width.
	ScaleEmbedding bool
	// WideLayers is the number of blocks of a variant whose attention divides its scores
	// by the square root of Params.Embedding/Params.Heads. All other models divide by the
	// square root of Params.KeyLength. 0 means that there is no such variant.
	WideLayers int

	// Windows describes the blocks that see only the last tokens.
	Windows Windows
	// AttentionSoftCap is the cap of the scores, which files have under
	// attn_logit_softcapping. A cap of 0 in a file is an error.
	AttentionSoftCap SoftCap
	// FinalSoftCap is the cap of the logits, which files have under
	// final_logit_softcapping. A cap of 0 in a file means that there is no cap.
	FinalSoftCap SoftCap
}

// FactorSource says which tensors have divisors of rotary frequencies.
type FactorSource uint8

const (
	NoFactors    FactorSource = iota // Files have no divisors.
	FixedFactors                     // rope_freqs.weight has the divisors of all sessions, as for llama 3.
	LongFactors                      // rope_factors_short.weight and rope_factors_long.weight have the divisors of LongRoPE.
)

// LongFactorsName is the name of a tensor that only files with LongRoPE have.
const LongFactorsName = "rope_factors_long.weight"

// Windows describes blocks that see only a window of the last tokens. In the zero value, all
// blocks see all tokens, and the metadata of a file does not change that.
type Windows struct {
	// Pattern says that every Pattern-th block sees all tokens, in a file without the
	// number attention.sliding_window_pattern. It is 0 if the family has no windows, and
	// 1 if blocks have a window only if the file says so.
	Pattern int
	// Length is the number of tokens that a row sees in a window, including its own, in a
	// file without attention.sliding_window. 0 means that all blocks of such a file see
	// all tokens.
	Length int
	// FreqBase is the rotary base of the blocks with a window, in a file without
	// rope.freq_base_swa. These blocks then do not have the scaling of the other blocks.
	// 0 means that they have the base and the scaling of the other blocks.
	FreqBase float64
}

// SoftCap describes a cap c. It changes a value x to c*tanh(x/c).
type SoftCap struct {
	// Read says that the family has the cap. Otherwise there is no cap, and the metadata of
	// a file does not change that.
	Read bool
	// Default is the cap in a file without a value for it. 0 means that there is no cap.
	Default float64
}

// check returns an error if the fields of fam do not describe a network.
func (fam *Family) check() error {
	if fam.RoPE != fucina.RoPEInterleaved && fam.RoPE != fucina.RoPENeoX {
		return fmt.Errorf("RoPE is %d, want RoPEInterleaved or RoPENeoX", fam.RoPE)
	}
	if fam.Factors > LongFactors {
		return fmt.Errorf("field Factors is %d, want NoFactors, FixedFactors or LongFactors", fam.Factors)
	}
	for _, p := range []struct {
		field string
		has   Presence
	}{
		{"Output", fam.Output}, {"QKVBias", fam.QKVBias}, {"AttnBias", fam.AttnBias},
		{"FFNBias", fam.FFNBias}, {"OutputBias", fam.OutputBias},
	} {
		if p.has > Required {
			return fmt.Errorf("%s is %d, want Absent, Optional or Required", p.field, p.has)
		}
	}
	if fam.WideLayers < 0 || fam.WideLayers > maxLayers {
		return fmt.Errorf("WideLayers is %d, want 0 to %d", fam.WideLayers, maxLayers)
	}
	return cmp.Or(fam.Windows.check(), fam.AttentionSoftCap.check("AttentionSoftCap"), fam.FinalSoftCap.check("FinalSoftCap"))
}

func (w *Windows) check() error {
	switch {
	case w.Pattern < 0 || w.Pattern > maxLayers:
		return fmt.Errorf("Windows.Pattern is %d, want 0 to %d", w.Pattern, maxLayers)
	case w.Length < 0 || w.Length > MaxLength:
		return fmt.Errorf("Windows.Length is %d, want 0 to %d", w.Length, MaxLength)
	case !isConstant(w.FreqBase):
		return fmt.Errorf("Windows.FreqBase is %v, want 0 or a positive number within float32", w.FreqBase)
	case w.Pattern == 0 && (w.Length != 0 || w.FreqBase != 0):
		return fmt.Errorf("Windows.Length is %d and Windows.FreqBase is %v, want a Pattern with them", w.Length, w.FreqBase)
	}
	return nil
}

func (c SoftCap) check(field string) error {
	switch {
	case !isConstant(c.Default):
		return fmt.Errorf("%s.Default is %v, want 0 or a positive number within float32", field, c.Default)
	case c.Default != 0 && !c.Read:
		return fmt.Errorf("%s.Default is %v, want Read with it", field, c.Default)
	}
	return nil
}

// isConstant reports whether v may be a constant of a family: 0, which means that there is
// none, or a number that is positive and finite in float32 too.
func isConstant(v float64) bool {
	return v == 0 || v >= math.SmallestNonzeroFloat32 && v <= math.MaxFloat32
}

// read sets the fields of p that depend on the family.
func (fam *Family) read(r *metadata.Reader, p *Params) {
	p.RoPEMode = fam.RoPE
	p.AttentionScale = float32(1 / math.Sqrt(float64(p.KeyLength)))
	p.LocalRoPE = p.RoPE
	if fam.ScaleEmbedding {
		p.EmbeddingScale = float32(math.Sqrt(float64(p.Embedding)))
	}
	if p.Layers == fam.WideLayers {
		p.AttentionScale = float32(1 / math.Sqrt(float64(max(1, p.Embedding/p.Heads))))
	}
	if w := &fam.Windows; w.Pattern > 0 {
		if p.Window = r.Count("attention.sliding_window", w.Length, MaxLength); p.Window > 0 {
			p.WindowPattern = readPattern(r, p, w.Pattern)
			p.LocalRoPE = w.readRoPE(r, p)
		}
	}
	p.AttentionSoftCap = fam.AttentionSoftCap.read(r, "attn_logit_softcapping", math.SmallestNonzeroFloat32)
	p.FinalSoftCap = fam.FinalSoftCap.read(r, "final_logit_softcapping", 0)
}

// read returns the cap of a file. If the file has a cap, it must be at least low.
func (c SoftCap) read(r *metadata.Reader, key string, low float64) float32 {
	if !c.Read {
		return 0
	}
	return float32(r.Number(key, c.Default, low))
}

// readRoPE returns the angles of the blocks with a window.
func (w *Windows) readRoPE(r *metadata.Reader, p *Params) fucina.RoPE {
	rope := p.RoPE
	if w.FreqBase != 0 {
		rope = fucina.RoPE{Dims: p.RoPE.Dims, AttnFactor: p.RoPE.AttnFactor}
	}
	rope.FreqBase = readBase(r, "rope.freq_base_swa", cmp.Or(w.FreqBase, p.RoPE.FreqBase), p)
	return rope
}

// readPattern returns the period of blocks without a window. A file may have an array instead
// that says for each block whether it has a window. llama.cpp ignores such an array in these
// families and uses the default; known files agree with the default.
func readPattern(r *metadata.Reader, p *Params, def int) int {
	const key = "attention.sliding_window_pattern"
	v, ok := r.Value(key)
	if !ok || v.Type() != gguf.TypeArray {
		return r.Size(key, def, maxLayers)
	}
	windowed := make([]bool, p.Layers)
	for i := range windowed {
		windowed[i] = i%def != def-1
	}
	if list, ok := v.Interface().([]bool); !ok || !slices.Equal(list, windowed) {
		p.Notes = append(p.Notes, fmt.Sprintf("%s is an array and is ignored, as in llama.cpp: one block in %d has no window", r.Key(key), def))
	}
	return def
}
