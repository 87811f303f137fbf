package llm

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/gguf"
)

// presence says whether the files of a family have a tensor.
type presence uint8

const (
	never presence = iota
	maybe
	always
)

// family describes an architecture by what sets it apart from the others: which
// weights its blocks have beside the projections, and constants that its files do
// not carry. The forward pass of Session serves them all. Facts are those of
// llama.cpp's loader, which files are made for.
type family struct {
	rope   fucina.RoPEMode
	output presence // the output matrix; in its absence the embedding stands for it

	qkvBias    presence
	attnBias   presence // of the attention's output projection
	ffnBias    presence
	outputBias presence

	qkNorm    bool // each query and key head has an RMS norm of its own
	postNorms bool // the results of attention and MLP are normed before they are added
	geglu     bool // the MLP's gate is a GELU, not a SiLU

	// fusedGate files have no ffn_gate: ffn_up holds its rows, then those of ffn_up.
	fusedGate bool
	// frequency says where divisors of the rotary frequencies may come from.
	frequency factorSource

	gemma *gemma
}

// longFactorsName is the tensor that a LongRoPE file has, and others of its family do not.
const longFactorsName = "rope_factors_long.weight"

// factorSource is a kind of tensor with divisors of rotary frequencies.
type factorSource uint8

const (
	noFactors   factorSource = iota
	oneFactors               // rope_freqs, of llama 3
	longFactors              // rope_factors_short and rope_factors_long, of LongRoPE
)

// gemma are the constants of the gemma families, which scale their embeddings by
// the root of the width and alternate between blocks that see everything and
// blocks that see a window.
//
// Their norms multiply by 1 + w; the converter has added the 1, so that the
// weights in a file are those of an ordinary norm.
type gemma struct {
	window  int // where the file does not say; 0 is none
	pattern int // every so many blocks one sees everything
	// wide is the number of blocks of the variant (27B) whose scores are scaled by
	// the width over the heads, instead of the head's own length.
	wide int
	// attnCap and finalCap are the soft caps where the file does not say; attention
	// has none if attnCap is 0.
	attnCap, finalCap float64
	// localBase is the rotary base of the blocks with a window, which do not share
	// the scaling of the others; 0 if they share both.
	localBase float64
}

// families are the architectures that this package runs, by general.architecture.
var families = map[string]*family{
	"llama": {
		rope: fucina.RoPEInterleaved, output: maybe, frequency: oneFactors,
		qkvBias: maybe, attnBias: maybe, ffnBias: maybe,
	},
	"qwen2": {rope: fucina.RoPENeoX, output: maybe, qkvBias: always, outputBias: maybe},
	"qwen3": {rope: fucina.RoPENeoX, output: maybe, qkvBias: maybe, qkNorm: true},
	"phi3":  {rope: fucina.RoPENeoX, output: maybe, qkvBias: maybe, fusedGate: true, frequency: longFactors},
	"gemma2": {
		rope: fucina.RoPENeoX, postNorms: true, geglu: true,
		gemma: &gemma{window: 4096, pattern: 2, wide: 46, attnCap: 50, finalCap: 30},
	},
	"gemma3": {
		rope: fucina.RoPENeoX, output: maybe, qkNorm: true, postNorms: true, geglu: true,
		gemma: &gemma{pattern: 6, wide: 62, localBase: 10000},
	},
}

// Architectures returns the values of general.architecture that Open takes, sorted.
func Architectures() []string {
	names := make([]string, 0, len(families))
	for name := range families {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// read sets what p has only in this family.
func (fam *family) read(r *reader, p *Params) {
	p.RoPEMode = fam.rope
	p.AttentionScale = float32(1 / math.Sqrt(float64(p.KeyLength)))
	p.LocalRoPE = p.RoPE
	g := fam.gemma
	if g == nil {
		return
	}
	p.EmbeddingScale = float32(math.Sqrt(float64(p.Embedding)))
	if p.Layers == g.wide {
		p.AttentionScale = float32(1 / math.Sqrt(float64(max(1, p.Embedding/p.Heads))))
	}
	if p.Window = r.count("attention.sliding_window", g.window, maxLength); p.Window > 0 {
		p.WindowPattern = r.windowPattern(p, g.pattern)
		p.LocalRoPE = fam.localRoPE(r, p)
	}
	if g.attnCap != 0 {
		p.AttentionSoftCap = float32(r.number("attn_logit_softcapping", g.attnCap, math.SmallestNonzeroFloat32))
	}
	p.FinalSoftCap = float32(r.number("final_logit_softcapping", g.finalCap, 0))
}

// localRoPE returns the angles of the blocks with a window.
func (fam *family) localRoPE(r *reader, p *Params) fucina.RoPE {
	rope := p.RoPE
	if fam.gemma.localBase != 0 {
		rope = fucina.RoPE{Dims: p.RoPE.Dims, AttnFactor: p.RoPE.AttnFactor}
	}
	rope.FreqBase = r.base("rope.freq_base_swa", cmp.Or(fam.gemma.localBase, p.RoPE.FreqBase), p)
	return rope
}

// windowPattern returns the period of blocks without a window. A file may have an array
// instead, which says of each block whether it has a window. llama.cpp ignores such an
// array in these families and takes the default; known files agree with the default.
func (r *reader) windowPattern(p *Params, def int) int {
	const key = "attention.sliding_window_pattern"
	v, ok := r.f.Value(r.arch + "." + key)
	if !ok || v.Type() != gguf.TypeArray {
		return r.size(key, def, maxLayers)
	}
	windowed := make([]bool, p.Layers)
	for i := range windowed {
		windowed[i] = i%def != def-1
	}
	if list, ok := v.Interface().([]bool); !ok || !slices.Equal(list, windowed) {
		p.Notes = append(p.Notes, fmt.Sprintf("%s.%s is an array and is ignored, as in llama.cpp: one block in %d has no window", r.arch, key, def))
	}
	return def
}

// familyOf returns the family of a file, and its name.
func familyOf(f *gguf.File) (*family, string, error) {
	arch, err := f.String("general.architecture")
	if err != nil {
		return nil, "", fmt.Errorf("%w: %w", ErrInvalidModel, err)
	}
	fam, ok := families[arch]
	if !ok {
		return nil, "", fmt.Errorf("%w: architecture %.80q, want one of %v", ErrUnsupportedModel, arch, Architectures())
	}
	return fam, arch, nil
}
