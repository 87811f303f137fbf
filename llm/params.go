package llm

import (
	"errors"
	"fmt"
	"math"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/gguf"
)

var (
	// ErrUnsupportedModel reports a file of a family, or with a feature, that this
	// package does not run.
	ErrUnsupportedModel = errors.New("unsupported model")
	// ErrInvalidModel reports a file whose metadata and tensors do not make a model.
	ErrInvalidModel = errors.New("invalid model")
	// ErrFileChanged reports a model whose file changed its size while it was in use.
	// The model and its sessions can only be closed.
	ErrFileChanged = gguf.ErrFileChanged
)

// Params are the dimensions of a network, from a file's metadata.
type Params struct {
	Architecture string
	Name         string // empty if the file has none, or one that is no text
	Layers       int
	Context      int // length that the model was trained for
	Embedding    int // width of the residual stream
	FeedForward  int // width inside of the MLP
	Heads        int
	KVHeads      int
	KeyLength    int // elements of a query or key head
	ValueLength  int
	Vocabulary   int // rows of the embedding, which may be more than the tokenizer's tokens
	NormEpsilon  float32

	RoPE     fucina.RoPE
	RoPEMode fucina.RoPEMode
	// LongFactors stand for RoPE.FreqFactors in sessions longer than
	// RoPE.OriginalContext; nil if the file has no such pair.
	LongFactors []float32

	AttentionScale   float32 // of the products of queries and keys
	AttentionSoftCap float32 // of the scores of attention; 0 is none
	FinalSoftCap     float32 // of the logits; 0 is none
	EmbeddingScale   float32 // of the embeddings; 0 is none

	// Window is how many tokens a block sees, its own included, save every
	// WindowPattern-th block, which sees all; 0 is all in every block. LocalRoPE are
	// the angles of the blocks with a window.
	Window        int
	WindowPattern int
	LocalRoPE     fucina.RoPE

	// Notes has a sentence for each value of the file that is not taken as it is.
	Notes []string
}

// Local reports whether block i sees only a window.
func (p *Params) Local(i int) bool {
	return p.Window > 0 && i%p.WindowPattern != p.WindowPattern-1
}

// stretched returns the angles of a session of n tokens.
func (p *Params) stretched(n int) fucina.RoPE {
	r := p.RoPE
	if p.LongFactors != nil && n > r.OriginalContext {
		r.FreqFactors = p.LongFactors
	}
	return r
}

// Bounds on dimensions, far above any real model, that keep products of a few of
// them inside an int64 and loops over hostile files short.
const (
	maxLayers = 1 << 12
	maxWidth  = 1 << 24
	maxHeads  = 1 << 14
	maxHead   = 1 << 14 // elements of a head; a session has a table of angles for each
	maxLength = 1 << 30
)

// reader collects typed metadata of one architecture and keeps the first error.
type reader struct {
	f    *gguf.File
	arch string
	err  error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// size returns the integer under arch.key, which must lie in [1, limit]. If the key
// is absent it returns def, or fails if def is 0.
func (r *reader) size(key string, def, limit int) int {
	key = r.arch + "." + key
	v, err := r.f.Int(key)
	if errors.Is(err, gguf.ErrNoKey) && def > 0 {
		return def
	}
	if err != nil {
		r.fail(fmt.Errorf("%w: %w", ErrInvalidModel, err))
		return 1
	}
	if v < 1 || v > int64(limit) {
		r.fail(fmt.Errorf("%w: %s is %d, want 1 to %d", ErrInvalidModel, key, v, limit))
		return 1
	}
	return int(v)
}

// perBlock is size for a key that may hold an array with an entry for each of the
// layers. Its entries must be equal: all blocks have one shape here.
func (r *reader) perBlock(key string, def, limit, layers int) int {
	if !r.isArray(key) {
		return r.size(key, def, limit)
	}
	key = r.arch + "." + key
	values, err := r.f.Ints(key)
	switch {
	case err != nil:
		r.fail(fmt.Errorf("%w: %w", ErrInvalidModel, err))
		return 1
	case len(values) != layers:
		r.fail(fmt.Errorf("%w: %s has %d entries, want one for each of %d blocks", ErrInvalidModel, key, len(values), layers))
		return 1
	}
	for i, v := range values {
		switch {
		case v < 0 || v > int64(limit):
			r.fail(fmt.Errorf("%w: %s[%d] is %d, want 1 to %d", ErrInvalidModel, key, i, v, limit))
			return 1
		case v != values[0] || v == 0:
			r.fail(fmt.Errorf("%w: %s[%d] is %d and %s[0] is %d, want one number above 0 for all blocks", ErrUnsupportedModel, key, i, v, key, values[0]))
			return 1
		}
	}
	return int(values[0])
}

// isArray reports whether the value under arch.key is an array of integers or bools.
func (r *reader) isArray(key string) bool {
	v, ok := r.f.Value(r.arch + "." + key)
	if !ok || v.Type() != gguf.TypeArray {
		return false
	}
	switch v.Elem() {
	case gguf.TypeFloat32, gguf.TypeFloat64, gguf.TypeString:
		return false
	}
	return true
}

// count is size for a number that may be 0.
func (r *reader) count(key string, def, limit int) int {
	key = r.arch + "." + key
	v, err := r.f.IntOr(key, int64(def))
	if err != nil {
		r.fail(fmt.Errorf("%w: %w", ErrInvalidModel, err))
		return 0
	}
	if v < 0 || v > int64(limit) {
		r.fail(fmt.Errorf("%w: %s is %d, want 0 to %d", ErrInvalidModel, key, v, limit))
		return 0
	}
	return int(v)
}

// number returns the float under arch.key, or def if the key is absent. It must be
// finite and at least low.
func (r *reader) number(key string, def, low float64) float64 {
	if _, ok := r.f.Value(r.arch + "." + key); !ok {
		return def
	}
	return r.needed(key, low)
}

// needed is number for a key that must be there. After an error it returns low.
func (r *reader) needed(key string, low float64) float64 {
	key = r.arch + "." + key
	v, err := r.f.Float(key)
	if err != nil {
		r.fail(fmt.Errorf("%w: %w", ErrInvalidModel, err))
		return low
	}
	if !(v >= low) || v > math.MaxFloat32 {
		r.fail(fmt.Errorf("%w: %s is %v, want a finite number of at least %v", ErrInvalidModel, key, v, low))
		return low
	}
	return v
}

// base returns the frequency base of a rotation under arch.key, or def if the key is
// absent or 0. llama.cpp takes a 0 as it is, so that all angles but the first are
// infinite and every logit is NaN: a file that holds it means that it has no base.
func (r *reader) base(key string, def float64, p *Params) float64 {
	v := r.number(key, def, 0)
	if v == 0 && r.err == nil {
		p.Notes = append(p.Notes, fmt.Sprintf("%s.%s is 0, which is not a frequency base: %v is used", r.arch, key, def))
		return def
	}
	return v
}

// readParams reads the dimensions of a file. Keys are those of the GGUF
// specification and of llama.cpp's loader.
func readParams(f *gguf.File) (Params, *family, error) {
	fam, arch, err := familyOf(f)
	if err != nil {
		return Params{}, nil, err
	}
	r := &reader{f: f, arch: arch}
	p := Params{Architecture: arch}
	p.Name, _ = f.StringOr("general.name", "") // nothing depends on it
	p.Layers = r.size("block_count", 0, maxLayers)
	p.Context = r.size("context_length", 0, maxLength)
	p.Embedding = r.size("embedding_length", 0, maxWidth)
	p.FeedForward = r.perBlock("feed_forward_length", 0, maxWidth, p.Layers)
	p.Heads = r.perBlock("attention.head_count", 0, maxHeads, p.Layers)
	p.KVHeads = r.perBlock("attention.head_count_kv", p.Heads, maxHeads, p.Layers)
	_, ok := f.Value(arch + ".attention.key_length")
	if !ok && p.Embedding%p.Heads != 0 {
		r.fail(fmt.Errorf("%w: %s.attention.head_count is %d, want a divisor of the width %d", ErrInvalidModel, arch, p.Heads, p.Embedding))
	}
	p.KeyLength = r.size("attention.key_length", max(1, p.Embedding/p.Heads), maxHead)
	p.ValueLength = r.size("attention.value_length", max(1, p.Embedding/p.Heads), maxHead)
	if p.KeyLength > maxHead || p.ValueLength > maxHead {
		r.fail(fmt.Errorf("%w: %s.embedding_length %d over %s.attention.head_count %d gives heads of %d elements, want at most %d",
			ErrInvalidModel, arch, p.Embedding, arch, p.Heads, p.Embedding/p.Heads, maxHead))
	}
	p.NormEpsilon = float32(r.needed("attention.layer_norm_rms_epsilon", 0))
	p.RoPE = readRoPE(r, fam, &p)
	fam.read(r, &p)
	if r.err != nil {
		return Params{}, nil, r.err
	}
	if p.Heads%p.KVHeads != 0 {
		return Params{}, nil, fmt.Errorf("%w: %s.attention.head_count_kv is %d, want a divisor of the %d heads", ErrInvalidModel, arch, p.KVHeads, p.Heads)
	}
	key := arch + ".expert_count"
	if n, err := f.IntOr(key, 0); err != nil {
		return Params{}, nil, fmt.Errorf("%w: %w", ErrInvalidModel, err)
	} else if n != 0 {
		return Params{}, nil, fmt.Errorf("%w: %s is %d, want no experts", ErrUnsupportedModel, key, n)
	}
	return p, fam, nil
}

func readRoPE(r *reader, fam *family, p *Params) fucina.RoPE {
	rope := fucina.RoPE{
		Dims:     r.size("rope.dimension_count", p.KeyLength, maxWidth),
		FreqBase: r.base("rope.freq_base", 10000, p),
	}
	if rope.Dims%2 != 0 || rope.Dims > p.KeyLength {
		r.fail(fmt.Errorf("%w: %s.rope.dimension_count is %d, want an even number of at most the head size %d", ErrInvalidModel, r.arch, rope.Dims, p.KeyLength))
	}
	kind, err := r.f.StringOr(r.arch+".rope.scaling.type", "linear")
	if err != nil {
		r.fail(fmt.Errorf("%w: %w", ErrInvalidModel, err))
	}
	rope.AttnFactor = r.number("rope.scaling.attn_factor", 1, 0)
	if kind == "longrope" && fam.frequency == longFactors {
		kind = "linear" // beside the divisors, which are tensors
	}
	switch kind {
	case "none":
	case "linear", "yarn":
		const key = "rope.scaling.factor"
		factor := 0.0
		if _, ok := r.f.Value(r.arch + "." + key); ok {
			factor = r.needed(key, 0)
		} else { // files older than rope.scaling.type have only the linear factor
			factor = r.number("rope.scale_linear", 0, 0)
		}
		if factor != 0 {
			rope.FreqScale = 1 / factor
		}
		if kind == "yarn" {
			// rope.scaling.yarn_beta_fast and yarn_beta_slow are not read: llama.cpp
			// reads them for other families only, and runs these with its defaults.
			rope.ExtFactor, rope.BetaFast, rope.BetaSlow = 1, 32, 1
		}
		_, long := r.f.Tensor(longFactorsName)
		if kind == "yarn" || long && fam.frequency == longFactors {
			rope.OriginalContext = r.size("rope.scaling.original_context_length", p.Context, maxLength)
		}
	default:
		r.fail(fmt.Errorf("%w: %s.rope.scaling.type is %.80q, which this family does not have", ErrUnsupportedModel, r.arch, kind))
	}
	return rope
}
