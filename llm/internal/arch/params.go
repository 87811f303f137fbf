package arch

import (
	"errors"
	"fmt"
	"math"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/llm/internal/arch/metadata"
)

var (
	// ErrUnsupportedModel reports a file of a family that this package does not support,
	// or with a feature that it does not support.
	ErrUnsupportedModel = errors.New("unsupported model")
	// ErrInvalidModel reports a file whose metadata and tensors do not form a model.
	ErrInvalidModel = errors.New("invalid model")
)

// Params are the dimensions of a network, which the metadata of a file gives.
type Params struct {
	Architecture string
	Name         string // empty if the file has no name, or one that is not a string
	Layers       int
	Context      int // the length that the model was trained for
	Embedding    int // the width of the residual stream
	FeedForward  int // the width inside the MLP
	Heads        int
	KVHeads      int
	KeyLength    int // the elements of a query or key head
	ValueLength  int
	Vocabulary   int // the rows of the embedding; there may be more of them than tokens of the tokenizer
	NormEpsilon  float32

	RoPE     fucina.RoPE
	RoPEMode fucina.RoPEMode
	// LongFactors replace RoPE.FreqFactors in sessions longer than RoPE.OriginalContext.
	// They are nil if the file has no LongRoPE.
	LongFactors []float32

	AttentionScale   float32 // the factor of the products of queries and keys
	AttentionSoftCap float32 // the cap of the scores of attention; 0 means none
	FinalSoftCap     float32 // the cap of the logits; 0 means none
	EmbeddingScale   float32 // the factor of the embeddings; 0 means none

	// Window is the number of tokens that a row sees in a block with a window, including
	// its own. 0 means that all blocks see all tokens. Every WindowPattern-th block has no
	// window. LocalRoPE are the angles of the blocks with a window.
	Window        int
	WindowPattern int
	LocalRoPE     fucina.RoPE

	// Notes has a sentence for each value of the file that is not used unchanged.
	Notes []string
}

// Local reports whether block i sees only a window.
func (p *Params) Local(i int) bool {
	return p.Window > 0 && i%p.WindowPattern != p.WindowPattern-1
}

// Stretched returns the angles of a session of n tokens on the network of p.
func Stretched(p *Params, n int) fucina.RoPE {
	r := p.RoPE
	if p.LongFactors != nil && n > r.OriginalContext {
		r.FreqFactors = p.LongFactors
	}
	return r
}

// Bounds on dimensions. They are far above those of any real model. They keep products of a
// few dimensions within an int64, and loops over hostile files short.
const (
	MaxWidth  = 1 << 24
	MaxLength = 1 << 30 // tokens of a context

	maxLayers = 1 << 12
	maxHeads  = 1 << 14
	maxHead   = 1 << 14 // elements of a head
)

// Read returns the dimensions of the network of f, and its family. The keys are those of the
// GGUF specification and of llama.cpp's loader. Read leaves the size of the vocabulary and
// the divisors of rotary frequencies zero, because the tensors give them. Errors wrap
// ErrUnsupportedModel or ErrInvalidModel.
func Read(f *gguf.File) (Params, Family, error) {
	r, err := metadata.NewReader(&f.Metadata, ErrInvalidModel)
	if err != nil {
		return Params{}, Family{}, err
	}
	arch := r.Architecture()
	fam, ok := known.lookup(arch)
	if !ok {
		return Params{}, Family{}, fmt.Errorf("%w: architecture %.80q, want one of %v", ErrUnsupportedModel, arch, Architectures())
	}
	p := Params{Architecture: arch}
	p.Name, _ = f.StringOr("general.name", "") // a name of another type is no error, because nothing depends on it
	p.Layers = r.Size(metadata.BlockCount, 0, maxLayers)
	p.Context = r.Size("context_length", 0, MaxLength)
	p.Embedding = r.Size("embedding_length", 0, MaxWidth)
	p.FeedForward = uniform(r, "feed_forward_length", 0, MaxWidth, p.Layers)
	p.Heads = uniform(r, metadata.HeadCount, 0, maxHeads, p.Layers)
	p.KVHeads = uniform(r, metadata.KVHeadCount, p.Heads, maxHeads, p.Layers)
	if !r.Has("attention.key_length") && p.Embedding%p.Heads != 0 {
		r.Invalidf("%s is %d, want a divisor of the width %d", r.Key(metadata.HeadCount), p.Heads, p.Embedding)
	}
	p.KeyLength = r.Size("attention.key_length", max(1, p.Embedding/p.Heads), maxHead)
	p.ValueLength = r.Size("attention.value_length", max(1, p.Embedding/p.Heads), maxHead)
	if p.KeyLength > maxHead || p.ValueLength > maxHead {
		r.Invalidf("%s %d over %s %d gives heads of %d elements, want at most %d",
			r.Key("embedding_length"), p.Embedding, r.Key(metadata.HeadCount), p.Heads, p.Embedding/p.Heads, maxHead)
	}
	p.NormEpsilon = float32(r.Needed("attention.layer_norm_rms_epsilon", 0))
	_, long := f.Tensor(LongFactorsName)
	p.RoPE = readRoPE(r, &fam, &p, long)
	fam.read(r, &p)
	if p.Heads%p.KVHeads != 0 {
		r.Invalidf("%s is %d, want a divisor of the %d heads", r.Key(metadata.KVHeadCount), p.KVHeads, p.Heads)
	}
	if n := r.Count(metadata.ExpertCount, 0, MaxWidth); n != 0 {
		r.Fail(fmt.Errorf("%w: %s is %d, want no experts", ErrUnsupportedModel, r.Key(metadata.ExpertCount), n))
	}
	if err := r.Err(); err != nil {
		return Params{}, Family{}, err
	}
	return p, fam, nil
}

// uniform returns the number under the key. All blocks must have the same number, because they
// have the same shapes here.
func uniform(r *metadata.Reader, key string, def, limit, layers int) int {
	values := r.PerBlock(key, def, limit, layers)
	for i, v := range values {
		if v != values[0] || v == 0 {
			name := r.Key(key)
			r.Fail(fmt.Errorf("%w: %s[%d] is %d and %s[0] is %d, want one number above 0 for all blocks", ErrUnsupportedModel, name, i, v, name, values[0]))
			return 1
		}
	}
	return values[0]
}

// readBase returns the frequency base of a rotation under the key, or def if the key is missing
// or 0. A file with 0 means that it has no base: llama.cpp uses the 0, so that all angles
// except the first are infinite and every logit is NaN.
func readBase(r *metadata.Reader, key string, def float64, p *Params) float64 {
	v := r.Number(key, def, 0)
	if v == 0 && r.Err() == nil {
		p.Notes = append(p.Notes, fmt.Sprintf("%s is 0, which is not a frequency base: %v is used", r.Key(key), def))
		return def
	}
	return v
}

// readRoPE returns the angles of the blocks without a window. long says that the file has
// LongRoPE.
func readRoPE(r *metadata.Reader, fam *Family, p *Params, long bool) fucina.RoPE {
	rope := fucina.RoPE{
		Dims:     r.Size("rope.dimension_count", p.KeyLength, MaxWidth),
		FreqBase: readBase(r, "rope.freq_base", 10000, p),
	}
	if rope.Dims%2 != 0 || rope.Dims > p.KeyLength {
		r.Invalidf("%s is %d, want an even number of at most the head size %d", r.Key("rope.dimension_count"), rope.Dims, p.KeyLength)
	}
	kind := r.Text("rope.scaling.type", "linear")
	rope.AttnFactor = r.Number("rope.scaling.attn_factor", 1, 0)
	if kind == "longrope" && fam.Factors == LongFactors {
		kind = "linear" // the divisors are tensors
	}
	switch kind {
	case "none":
	case "linear", "yarn":
		key, factor := "rope.scaling.factor", 0.0
		if r.Has(key) {
			factor = r.Needed(key, 0)
		} else { // files without rope.scaling.type are older and have only the linear factor
			key = "rope.scale_linear"
			factor = r.Number(key, 0, 0)
		}
		if factor != 0 {
			rope.FreqScale = 1 / factor
		}
		if math.IsInf(rope.FreqScale, 1) {
			r.Invalidf("%s is %v, want 0 or a number with a finite reciprocal", r.Key(key), factor)
		}
		if kind == "yarn" {
			// rope.scaling.yarn_beta_fast and yarn_beta_slow are not read, because
			// llama.cpp reads them only for other families, and uses its defaults here.
			rope.ExtFactor, rope.BetaFast, rope.BetaSlow = 1, 32, 1
		}
		if kind == "yarn" || long && fam.Factors == LongFactors {
			rope.OriginalContext = r.Size("rope.scaling.original_context_length", p.Context, MaxLength)
		}
	default:
		r.Fail(fmt.Errorf("%w: %s is %.80q, which this family does not have", ErrUnsupportedModel, r.Key("rope.scaling.type"), kind))
	}
	return rope
}
