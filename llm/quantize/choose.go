package quantize

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/llm/internal/arch/metadata"
	"github.com/fucina-go/fucina/quant"
)

// part is the role of a tensor in a model, as far as recipes distinguish it.
type part int

const (
	partOther part = iota
	partOutput
	partEmbedding
	partValue // values, or values together with keys and queries
	partKey
	partQuery
	partAttnOut
	partFFNUp
	partFFNGate
	partFFNDown

	partCount
)

// blockParts lists the parts of a block by strings in their names. The first match counts.
var blockParts = []struct {
	name string
	part part
}{
	{"attn_qkv.weight", partValue},
	{"attn_kv_b.weight", partValue},
	{"attn_v.weight", partValue},
	{"attn_k.weight", partKey},
	{"attn_q.weight", partQuery},
	{"attn_output.weight", partAttnOut},
	{"ffn_up", partFFNUp},
	{"ffn_gate", partFFNGate},
	{"ffn_down", partFFNDown},
}

func isEmbedding(name string) bool {
	return name == "token_embd.weight" || name == "per_layer_token_embd.weight"
}

func isFeedForward(p part) bool { return p == partFFNUp || p == partFFNGate || p == partFFNDown }

func partOf(name string) part {
	switch {
	case name == "output.weight":
		return partOutput
	case isEmbedding(name):
		return partEmbedding
	}
	for _, p := range blockParts {
		if strings.Contains(name, p.name) {
			return p.part
		}
	}
	return partOther
}

// kept lists strings in the names of matrices that do not change, because they are small or
// the model is sensitive to them. The list is that of llama.cpp.
var kept = []string{
	"_norm.weight",
	// Routers of experts.
	"ffn_gate_inp.weight", "ffn_gate_tid2eid.weight",
	// Gemma 3n.
	"altup", "laurel", "per_layer_model_proj",
	// State space and convolution models.
	"ssm_conv1d", "shortconv.conv.weight",
	// The indexers of sparse attention.
	"indexer.k_proj.weight", "indexer.q_proj.weight",
	// RWKV.
	"time_mix_first.weight",
	"time_mix_w0.weight", "time_mix_w1.weight", "time_mix_w2.weight",
	"time_mix_v0.weight", "time_mix_v1.weight", "time_mix_v2.weight",
	"time_mix_a0.weight", "time_mix_a1.weight", "time_mix_a2.weight",
	"time_mix_g1.weight", "time_mix_g2.weight",
	"time_mix_decay_w1.weight", "time_mix_decay_w2.weight",
	"time_mix_lerp_fused.weight",
	// The relative positions of T5.
	"attn_rel_b.weight",
	// Models for images and sound.
	".position_embd", "sam.pos_embd", "sam.neck.", "sam.net_",
	".rel_pos", ".patch_embd", ".patch_merger",
	"a.rvq.codebook", "mm.a.code_embd",
}

// quantizable reports whether recipes apply to t.
func quantizable(t gguf.TensorInfo) bool {
	// A tensor with outer dims of 1 is a vector.
	if !slices.ContainsFunc(t.Shape[:len(t.Shape)-1], func(n int) bool { return n != 1 }) {
		return false
	}
	switch t.Name {
	case "position_embd.weight", "token_types.weight":
		return false
	}
	return strings.HasSuffix(t.Name, "weight") &&
		!slices.ContainsFunc(kept, func(s string) bool { return strings.Contains(t.Name, s) })
}

// hyper has the hyperparameters of a model that recipes use.
type hyper struct {
	arch    string
	layers  int
	heads   int // query heads in the first layer
	kvHeads int
	experts int
}

// groups returns the number of query heads that share a key head, or 0 if it is unknown.
func (h *hyper) groups() int {
	if h.kvHeads == 0 {
		return 0
	}
	return h.heads / h.kvHeads
}

// is70B reports whether llama.cpp treats the model as one of 70 billion parameters, by its
// number of layers.
func (h *hyper) is70B() bool {
	switch h.arch {
	case "llama", "llama-embed":
		return h.layers == 80 && h.heads != h.kvHeads && h.experts != 8
	case "qwen2", "olmo", "deci":
		return h.layers == 80
	case "jais2":
		return h.layers == 68
	}
	return false
}

func readHyper(f *gguf.File) (*hyper, error) {
	r, err := metadata.NewReader(&f.Metadata, ErrMetadata)
	if err != nil {
		return nil, err
	}
	// The limit is far above any model, and products of a few of these numbers do not
	// overflow.
	const limit = 1 << 20
	h := &hyper{arch: r.Architecture()}
	h.layers = r.First(metadata.BlockCount, -1, limit)
	h.heads = r.First(metadata.HeadCount, 0, limit)
	h.kvHeads = r.First(metadata.KVHeadCount, h.heads, limit)
	h.experts = r.First(metadata.ExpertCount, 0, limit)
	if err := r.Err(); err != nil {
		return nil, err
	}
	return h, nil
}

// Choice is the format that a tensor gets.
type Choice struct {
	Tensor gguf.TensorInfo // the tensor of the input
	To     dtype.DType
	Size   int64 // the size of the result in bytes
	// Fallback says that the recipe's format does not fit the tensor's rows, and that To
	// replaces it.
	Fallback bool
	// Weighted says that the tensor is converted with weights of [Options.Importance].
	Weighted bool
}

// Converts reports whether the tensor's bytes change.
func (c Choice) Converts() bool { return c.To != c.Tensor.DType }

// chooser applies a recipe to the tensors of a model, in the order of their layers.
type chooser struct {
	opt    *Options
	mix    mixture
	model  *hyper
	tied   bool // whether the token embedding is also the output matrix
	values int  // the number of value matrices
	seen   [partCount]int
}

// Plan returns the format that [Write] gives to each tensor of f, in the order of the
// output: first the tensors outside of blocks, then those of each block, by name. It fails
// with [ErrFileType], [ErrQuantized], [ErrImportance], [ErrTensor] or [ErrMetadata] if Write
// cannot make the result.
func Plan(f *gguf.File, opt Options) ([]Choice, error) {
	base := opt.Type.DType()
	if base == dtype.Invalid {
		return nil, fmt.Errorf("%w: %s", ErrFileType, opt.Type)
	}
	tensors := f.Tensors()
	slices.SortStableFunc(tensors, func(a, b gguf.TensorInfo) int {
		if c := layerOf(a.Name) - layerOf(b.Name); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	c := &chooser{opt: &opt, mix: mixtures[opt.Type], tied: true}
	for _, t := range tensors {
		switch partOf(t.Name) {
		case partOutput:
			c.tied = false
		case partValue:
			c.values++
		}
	}
	if c.mixes(base) {
		var err error
		if c.model, err = readHyper(f); err != nil {
			return nil, err
		}
	}
	list := make([]Choice, len(tensors))
	for i, t := range tensors {
		ch := Choice{Tensor: t, To: t.DType}
		if quantizable(t) {
			var err error
			if ch.To, ch.Fallback, err = c.choose(t, base); err != nil {
				return nil, err
			}
		}
		var err error
		if ch.Weighted, err = c.check(ch); err != nil {
			return nil, err
		}
		ch.Size = t.Size
		if ch.Converts() {
			n := t.Elements() / int64(ch.To.BlockSize())
			ch.Size = n * int64(ch.To.Size())
		}
		list[i] = ch
	}
	return list, nil
}

// layerOf returns the number of the block in a tensor's name, or -1.
func layerOf(name string) int {
	rest, ok := strings.CutPrefix(name, "blk.")
	if !ok {
		return -1
	}
	digits, _, _ := strings.Cut(rest, ".")
	// The number may be too long for an int.
	n, err := strconv.ParseUint(digits, 10, 31)
	if err != nil {
		return -1
	}
	return int(n)
}

// mixes reports whether the recipe has exceptions to its base format, which depend on the
// metadata of the model.
func (c *chooser) mixes(base dtype.DType) bool {
	return base.IsBlockQuantized() && base != dtype.Q8_0 && !c.opt.Pure
}

// choose returns the format of t, and whether it replaces the recipe's format.
func (c *chooser) choose(t gguf.TensorInfo, base dtype.DType) (d dtype.DType, fallback bool, err error) {
	if !base.IsBlockQuantized() {
		return base, false, nil
	}
	d = base
	if c.mixes(base) {
		if d, err = c.mixed(t, base); err != nil {
			return 0, false, err
		}
	}
	cols := t.Shape[len(t.Shape)-1]
	if cols%d.BlockSize() == 0 {
		return d, false, nil
	}
	short, ok := shorter[d]
	if !ok { // only NVFP4 and Q1_0
		return 0, false, fmt.Errorf("%w: %s has rows of %d, want a multiple of %d for %s, which no other format replaces",
			ErrTensor, quoted(t), cols, d.BlockSize(), d)
	}
	if cols%short.BlockSize() != 0 {
		short = dtype.F16
	}
	return short, true, nil
}

// shorter has, for each format with long blocks, the format with shorter blocks that replaces
// it, and f16 for the formats with the shortest blocks.
var shorter = map[dtype.DType]dtype.DType{
	dtype.IQ1_S:    dtype.IQ4_NL,
	dtype.IQ1_M:    dtype.IQ4_NL,
	dtype.IQ2_XXS:  dtype.IQ4_NL,
	dtype.IQ2_XS:   dtype.IQ4_NL,
	dtype.IQ2_S:    dtype.IQ4_NL,
	dtype.IQ3_XXS:  dtype.IQ4_NL,
	dtype.IQ3_S:    dtype.IQ4_NL,
	dtype.IQ4_XS:   dtype.IQ4_NL,
	dtype.Q2_0_G64: dtype.Q4_0,
	dtype.Q2_K:     dtype.Q4_0,
	dtype.Q3_K:     dtype.Q4_0,
	dtype.TQ1_0:    dtype.Q4_0,
	dtype.TQ2_0:    dtype.Q4_0,
	dtype.Q4_K:     dtype.Q5_0,
	dtype.Q5_K:     dtype.Q5_1,
	dtype.Q6_K:     dtype.Q8_0,
	dtype.Q4_0:     dtype.F16,
	dtype.Q4_1:     dtype.F16,
	dtype.Q5_0:     dtype.F16,
	dtype.Q5_1:     dtype.F16,
	dtype.Q8_0:     dtype.F16,
	dtype.IQ4_NL:   dtype.F16,
	dtype.MXFP4:    dtype.F16,
}

// mixed returns the format of t in the mixture of the recipe.
func (c *chooser) mixed(t gguf.TensorInfo, base dtype.DType) (dtype.DType, error) {
	p := partOf(t.Name)
	isOutput := p == partOutput || p == partEmbedding && c.tied
	if c.opt.Type == MXFP4_MOE {
		// Only stacks get the short format: the experts, and, except in bailingmoe3, the
		// attention's stacks of one matrix for each head.
		stack := len(t.Shape) > 2 && t.Shape[len(t.Shape)-3] > 1
		if isOutput || !stack || c.model.arch == "bailingmoe3" && !isFeedForward(p) {
			return dtype.Q8_0, nil
		}
		return base, nil
	}
	if isOutput {
		switch {
		case c.model.arch == "falcon", t.Shape[len(t.Shape)-1]%base.BlockSize() != 0:
			return dtype.Q8_0, nil
		case c.mix.output != dtype.Invalid:
			return c.mix.output, nil
		}
		return dtype.Q6_K, nil
	}
	if p == partEmbedding {
		return orBase(c.mix.embedding, base), nil
	}
	s := site{layer: c.seen[p], layers: c.model.layers, model: c.model, importance: c.opt.Importance != nil}
	c.seen[p]++
	if p == partValue {
		s.layers = c.values
	}
	// Each expert of a block may be a tensor, and these may have any order.
	if isFeedForward(p) && c.model.experts > 1 && !c.mix.tiny {
		s.layer = layerOf(t.Name)
		if s.layer < 0 || s.layer >= c.model.layers {
			return 0, fmt.Errorf("%w: %s is outside of the model's %d layers", ErrMetadata, quoted(t), c.model.layers)
		}
	}
	return orBase(c.exception(p, &s, base), base), nil
}

// exception returns the format of a tensor of a block, or dtype.Invalid for the base format.
func (c *chooser) exception(p part, s *site, base dtype.DType) dtype.DType {
	// The recipes below three bits have other rules for experts.
	eight := s.eightExperts() && !c.mix.tiny
	switch p {
	case partValue:
		d := orBase(apply(c.mix.value, s), base)
		switch {
		case c.mix.tiny:
		case eight:
			d = dtype.Q8_0
		case c.model.is70B() && (d == dtype.Q3_K || d == dtype.Q4_K):
			d = dtype.Q5_K
		}
		return d
	case partKey:
		if eight {
			return dtype.Q8_0
		}
		return apply(c.mix.key, s)
	case partQuery:
		return apply(c.mix.query, s)
	case partAttnOut:
		if eight && c.model.arch != "falcon" {
			if c.mix.richOut {
				return dtype.Q5_K
			}
			return dtype.Invalid
		}
		return apply(c.mix.attnOut, s)
	case partFFNDown:
		return apply(c.mix.down, s)
	case partFFNUp, partFFNGate:
		return apply(c.mix.gateUp, s)
	}
	return dtype.Invalid
}

func apply(r rule, s *site) dtype.DType {
	if r == nil {
		return dtype.Invalid
	}
	return r(s)
}

func orBase(d, base dtype.DType) dtype.DType {
	if d == dtype.Invalid {
		return base
	}
	return d
}

// check returns an error if ch cannot be carried out. Otherwise it returns whether there are
// weights for the tensor.
func (c *chooser) check(ch Choice) (weighted bool, err error) {
	t := ch.Tensor
	special := isEmbedding(t.Name) || t.Name == "output.weight"
	needs := !special && (wantsImportance(ch.To) || ch.To == dtype.Q2_K && c.opt.Type == Q2_K_S)
	if needs && c.opt.Importance == nil && quantizable(t) {
		return false, fmt.Errorf("%w: %s as %s in %s needs importance data, and none was given", ErrImportance, quoted(t), ch.To, c.opt.Type)
	}
	if !ch.Converts() {
		return false, nil
	}
	switch d := t.DType; {
	case d == dtype.F32, d == dtype.F16, d == dtype.BF16:
	case !d.IsBlockQuantized():
		return false, fmt.Errorf("%w: %s is %s, want a float or block format", ErrTensor, quoted(t), d)
	case !c.opt.AllowRequantize:
		return false, fmt.Errorf("%w: %s is %s", ErrQuantized, quoted(t), d)
	}
	weights, err := c.opt.Importance.of(t)
	if err != nil {
		return false, err
	}
	if weights == nil && (needs || quant.RequiresImportance(ch.To)) {
		return false, fmt.Errorf("%w: no data for %s, which needs it as %s", ErrImportance, quoted(t), ch.To)
	}
	return weights != nil, nil
}

// wantsImportance reports whether d gives unusable results without importance data.
func wantsImportance(d dtype.DType) bool {
	switch d {
	case dtype.IQ1_S, dtype.IQ1_M, dtype.IQ2_XXS, dtype.IQ2_XS, dtype.IQ2_S, dtype.IQ3_XXS:
		return true
	}
	return false
}
