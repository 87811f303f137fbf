package tinyllama

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"

	"github.com/fucina-go/fucina/core/dtype"
)

// Shape describes a model of any family. A zero field means its default. A tensor's elements
// depend on its name as in [New].
type Shape struct {
	Architecture string // "llama"
	Layers       int    // 2
	Embedding    int    // 64
	FeedForward  int    // 160
	Heads        int    // 4
	KVHeads      int    // 2
	HeadLength   int    // 16
	Context      int    // 512
	DType        dtype.DType

	Output     bool // has an output matrix; otherwise the embedding is used
	OutputBias bool
	QKVBias    bool
	AttnBias   bool // bias of the attention's output projection
	FFNBias    bool
	QKNorm     bool
	PostNorms  bool
	Fused      bool // attn_qkv for attn_q, attn_k and attn_v; ffn_up for ffn_gate and ffn_up

	seed uint64
	name string // general.name; if it is set, rope.dimension_count is written too
}

// postGain is the scale of the norms after attention and MLP in gemma. ggml's CPU kernels
// look up gelu in a table of f16 numbers, with a relative error of about 2e-4, which these
// norms add to the residual stream. A small scale keeps that error at the level of the other
// families' rounding.
const postGain = 1.0 / 32

// NewShape returns the model that s describes. The caller adds metadata and tensors that only
// some files of the family have.
func NewShape(s Shape) *Model { return s.model() }

func (s Shape) model() *Model {
	s.Architecture = cmp.Or(s.Architecture, "llama")
	s.Layers = cmp.Or(s.Layers, 2)
	s.Embedding = cmp.Or(s.Embedding, 64)
	s.FeedForward = cmp.Or(s.FeedForward, 160)
	s.Heads = cmp.Or(s.Heads, 4)
	s.KVHeads = cmp.Or(s.KVHeads, 2)
	s.HeadLength = cmp.Or(s.HeadLength, 16)
	s.Context = cmp.Or(s.Context, 512)
	s.DType = cmp.Or(s.DType, dtype.F32)

	m := &Model{}
	key := func(k string) string { return s.Architecture + "." + k }
	m.Set("general.architecture", s.Architecture)
	if s.name != "" {
		m.Set("general.name", s.name)
	}
	m.Set(key("block_count"), uint32(s.Layers))
	m.Set(key("context_length"), uint32(s.Context))
	m.Set(key("embedding_length"), uint32(s.Embedding))
	m.Set(key("feed_forward_length"), uint32(s.FeedForward))
	m.Set(key("attention.head_count"), uint32(s.Heads))
	m.Set(key("attention.head_count_kv"), uint32(s.KVHeads))
	m.Set(key("attention.layer_norm_rms_epsilon"), float32(1e-5))
	if s.name != "" {
		m.Set(key("rope.dimension_count"), uint32(s.HeadLength))
	}
	if s.HeadLength != s.Embedding/s.Heads {
		m.Set(key("attention.key_length"), uint32(s.HeadLength))
		m.Set(key("attention.value_length"), uint32(s.HeadLength))
	}
	v := newVocabulary()
	v.set(m)

	d, q, kv, ff := s.Embedding, s.Heads*s.HeadLength, s.KVHeads*s.HeadLength, s.FeedForward
	g := generator{m: m, seed: s.seed, dtype: s.DType}
	gain := float64(embedGain)
	if s.PostNorms {
		// gemma multiplies the embeddings by the square root of the width, while its norms
		// keep the outputs of the blocks small.
		gain /= 2
	}
	g.matrix("token_embd.weight", len(v.tokens), d, gain, 0)
	for i := range s.Layers {
		name := func(s string) string { return fmt.Sprintf("blk.%d.%s", i, s) }
		project := func(n string, rows, cols int, gain float64, bias bool) {
			g.matrix(name(n+".weight"), rows, cols, gain, 0)
			if bias {
				g.vector(name(n+".bias"), rows, 0, 0.5)
			}
		}
		g.norm(name("attn_norm.weight"), d)
		if s.Fused {
			project("attn_qkv", q+2*kv, d, attnGain, s.QKVBias)
		} else {
			project("attn_q", q, d, attnGain, s.QKVBias)
			project("attn_k", kv, d, attnGain, s.QKVBias)
			project("attn_v", kv, d, blockGain, s.QKVBias)
		}
		if s.QKNorm {
			g.vector(name("attn_q_norm.weight"), s.HeadLength, 1.25, 0.5)
			g.vector(name("attn_k_norm.weight"), s.HeadLength, 1.25, 0.5)
		}
		project("attn_output", d, q, blockGain, s.AttnBias)
		g.norm(name("ffn_norm.weight"), d)
		if s.Fused {
			project("ffn_up", 2*ff, d, blockGain, s.FFNBias)
		} else {
			project("ffn_gate", ff, d, blockGain, s.FFNBias)
			project("ffn_up", ff, d, blockGain, s.FFNBias)
		}
		project("ffn_down", d, ff, blockGain, s.FFNBias)
		if s.PostNorms {
			g.vector(name("post_attention_norm.weight"), d, 2, 0.5)
			g.vector(name("post_ffw_norm.weight"), d, postGain, postGain/4)
		}
	}
	g.norm("output_norm.weight", d)
	if s.Output {
		g.matrix("output.weight", len(v.tokens), d, outputGain, v.pieces)
	}
	if s.OutputBias {
		g.vector("output.bias", len(v.tokens), 0, 1)
	}
	return m
}

// vector adds n elements of [mid-spread, mid+spread), f32.
func (g *generator) vector(name string, n int, mid, spread float32) {
	values := g.uniform(name, n)
	for i, u := range values {
		values[i] = mid + float32(u*spread) // the conversion prevents a fused operation
	}
	g.add(name, dtype.F32, []int{n}, values)
}

// AddFloats adds a vector of the given numbers, f32.
func (m *Model) AddFloats(name string, values ...float32) {
	g := generator{m: m}
	g.add(name, dtype.F32, []int{len(values)}, values)
}

// Family is a model and its greedy output, like [Golden], for all families.
type Family struct {
	Name  string        `json:"-"`
	Model func() *Model `json:"-"`

	Context     int       `json:"context"` // length of the session
	Prompt      string    `json:"prompt"`
	PromptIDs   []int32   `json:"prompt_ids"`
	IDs         []int32   `json:"ids"`
	FirstLogits []float32 `json:"first_logits"`
}

//go:embed testdata/families.json
var familiesJSON []byte

// families are the models whose results are in testdata/families.json.
var families = []struct {
	name  string
	build func() *Model
}{
	{"llama-linear", func() *Model {
		m := NewShape(Shape{Output: true})
		m.Set("llama.rope.scaling.type", "linear")
		m.Set("llama.rope.scaling.factor", float32(4))
		return m
	}},
	// llama.cpp takes a factor without a type as a factor of linear scaling.
	{"llama-factor", func() *Model {
		m := NewShape(Shape{Output: true})
		m.Set("llama.rope.scaling.factor", float32(4))
		return m
	}},
	{"llama-yarn", func() *Model {
		m := NewShape(Shape{Output: true})
		m.Set("llama.rope.scaling.type", "yarn")
		m.Set("llama.rope.scaling.factor", float32(8))
		m.Set("llama.rope.scaling.original_context_length", uint32(64))
		return m
	}},
	{"llama-yarn-magnitude", func() *Model {
		m := NewShape(Shape{Output: true})
		m.Set("llama.rope.scaling.type", "yarn")
		m.Set("llama.rope.scaling.factor", float32(8))
		m.Set("llama.rope.scaling.original_context_length", uint32(64))
		m.Set("llama.rope.scaling.attn_factor", float32(0.75))
		return m
	}},
	{"llama-yarn-shorter", func() *Model {
		m := NewShape(Shape{Output: true})
		m.Set("llama.rope.scaling.type", "yarn")
		m.Set("llama.rope.scaling.factor", float32(0.5))
		m.Set("llama.rope.scaling.original_context_length", uint32(64))
		return m
	}},
	// The original context is long enough for the ramp to end inside the head.
	{"llama-yarn-ramp", func() *Model {
		m := NewShape(Shape{Output: true, HeadLength: 32})
		m.Set("llama.rope.scaling.type", "yarn")
		m.Set("llama.rope.scaling.factor", float32(4))
		m.Set("llama.rope.scaling.original_context_length", uint32(4096))
		return m
	}},
	// llama.cpp does not read the ends of the ramp from the files of these families.
	{"qwen2-yarn-betas", func() *Model {
		m := NewShape(Shape{Architecture: "qwen2", Heads: 2, KVHeads: 1, HeadLength: 32, QKVBias: true, Output: true})
		m.Set("qwen2.rope.scaling.type", "yarn")
		m.Set("qwen2.rope.scaling.factor", float32(4))
		m.Set("qwen2.rope.scaling.original_context_length", uint32(4096))
		m.Set("qwen2.rope.scaling.yarn_beta_fast", float32(4))
		m.Set("qwen2.rope.scaling.yarn_beta_slow", float32(2))
		return m
	}},
	{"llama-3", func() *Model {
		m := NewShape(Shape{})
		m.Set("llama.rope.freq_base", float32(500000))
		m.AddFloats("rope_freqs.weight", 1, 1, 1, 1.5, 3, 6, 8, 8)
		return m
	}},
	{"llama-bias", func() *Model { return NewShape(Shape{Output: true, QKVBias: true, AttnBias: true, FFNBias: true}) }},
	{"qwen2", func() *Model {
		m := NewShape(Shape{Architecture: "qwen2", Layers: 3, QKVBias: true, OutputBias: true, Output: true})
		m.Set("qwen2.rope.freq_base", float32(1e6))
		return m
	}},
	{"qwen3", func() *Model {
		m := NewShape(Shape{Architecture: "qwen3", Layers: 3, HeadLength: 32, QKNorm: true})
		m.Set("qwen3.rope.freq_base", float32(1e6))
		return m
	}},
	{"gemma2", func() *Model {
		m := NewShape(Shape{Architecture: "gemma2", Layers: 4, HeadLength: 32, PostNorms: true})
		m.Set("gemma2.attention.sliding_window", uint32(7))
		m.Set("gemma2.attn_logit_softcapping", float32(5))
		m.Set("gemma2.final_logit_softcapping", float32(6))
		return m
	}},
	// The soft caps and the pattern are the defaults.
	{"gemma2-default", func() *Model {
		return NewShape(Shape{Architecture: "gemma2", HeadLength: 32, PostNorms: true})
	}},
	{"gemma3", func() *Model {
		m := NewShape(Shape{Architecture: "gemma3", Layers: 7, HeadLength: 32, QKNorm: true, PostNorms: true})
		m.Set("gemma3.rope.freq_base", float32(1e6))
		m.Set("gemma3.rope.scaling.type", "linear")
		m.Set("gemma3.rope.scaling.factor", float32(8))
		m.Set("gemma3.attention.sliding_window", uint32(9))
		return m
	}},
	// The magnitude factor of the scaling is that of the blocks without a window.
	{"gemma3-yarn", func() *Model {
		m := NewShape(Shape{Architecture: "gemma3", Layers: 4, HeadLength: 32, QKNorm: true, PostNorms: true})
		m.Set("gemma3.rope.freq_base", float32(1e6))
		m.Set("gemma3.rope.scaling.type", "yarn")
		m.Set("gemma3.rope.scaling.factor", float32(4))
		m.Set("gemma3.rope.scaling.original_context_length", uint32(64))
		m.Set("gemma3.rope.scaling.attn_factor", float32(0.75))
		m.Set("gemma3.attention.sliding_window", uint32(9))
		m.Set("gemma3.attention.sliding_window_pattern", uint32(2))
		m.Set("gemma3.final_logit_softcapping", float32(4))
		return m
	}},
	{"gemma3-global", func() *Model {
		m := NewShape(Shape{Architecture: "gemma3", HeadLength: 32, QKNorm: true, PostNorms: true, Output: true})
		m.Set("gemma3.rope.freq_base", float32(1e6))
		return m
	}},
	{"phi3-short", func() *Model {
		m := NewShape(Shape{Architecture: "phi3", DType: dtype.Q8_0, Fused: true, Output: true})
		m.Set("phi3.rope.scaling.original_context_length", uint32(512))
		longRoPE(m)
		return m
	}},
	{"phi3-long", func() *Model {
		m := NewShape(Shape{Architecture: "phi3", Fused: true, Output: true})
		m.Set("phi3.rope.scaling.original_context_length", uint32(128))
		longRoPE(m)
		return m
	}},
}

// longRoPE makes m rotate 12 elements of each head, by one of two sets of angles.
func longRoPE(m *Model) {
	m.Set("phi3.rope.dimension_count", uint32(12))
	m.Set("phi3.rope.scaling.attn_factor", float32(1.1875))
	m.AddFloats("rope_factors_short.weight", 1, 1, 1.125, 1.25, 1.5, 2)
	m.AddFloats("rope_factors_long.weight", 1, 1.5, 2.5, 5, 9, 16)
}

// Families returns the recorded results of the families.
func Families() []Family {
	var file map[string]Family
	if err := json.Unmarshal(familiesJSON, &file); err != nil {
		panic(fmt.Sprintf("tinyllama: testdata/families.json: %v", err))
	}
	all := make([]Family, len(families))
	for i, f := range families {
		r, ok := file[f.name]
		if !ok {
			panic(fmt.Sprintf("tinyllama: testdata/families.json: no %q", f.name))
		}
		r.Name, r.Model = f.name, f.build
		all[i] = r
	}
	return all
}
