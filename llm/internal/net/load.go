package net

import (
	"fmt"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/llm/internal/arch"
)

// Config says which network a file holds.
type Config struct {
	Params arch.Params // as the metadata gives them: those that come with tensors are not set
	Family arch.Family
	// Tokens is how many tokens the vocabulary has. The embedding may have more rows.
	Tokens int
	// Progress, if set, is called as the weights are taken in, with the bytes so far and
	// in all.
	Progress func(done, total int64)
}

// Load returns the network whose weights lie in f, which the caller may close at once. The
// caller releases the network. The weights stay in the file's mapping; a device takes
// copies as they are first used. Errors match arch.ErrUnsupportedModel,
// arch.ErrInvalidModel or those of package gguf, and nothing is held after one.
func Load(eng *fucina.Engine, f *gguf.File, cfg Config) (*Network, error) {
	n := &Network{params: cfg.Params}
	l := loader{
		eng: eng, f: f, family: &cfg.Family, tokens: cfg.Tokens, n: n, p: &n.params,
		used: make(map[string]bool), progress: cfg.Progress,
	}
	for _, t := range f.Tensors() {
		l.total += t.Size
	}
	l.network()
	l.close()
	if l.err != nil {
		n.Release()
		return nil, l.err
	}
	return n, nil
}

// network takes all weights, and requires the file to have no others.
func (l *loader) network() {
	l.p.Vocabulary = l.vocabulary()
	d, vocab := fucina.Ax("d", l.p.Embedding), fucina.Ax("vocab", l.p.Vocabulary)
	l.n.embedding = l.matrix(embeddingName, vocab, d)
	l.n.norm = l.norm("output_norm", d)
	if l.wants(l.family.Output, "output.weight") {
		l.n.output = l.projection("output", l.family.OutputBias, vocab, d)
	} else {
		l.n.output = projection{weight: l.n.embedding, bias: l.bias("output", l.family.OutputBias, vocab), scale: 1}
	}
	for i := 0; i < l.p.Layers && l.err == nil; i++ {
		l.n.blocks = append(l.n.blocks, block{l.attention(i), l.feedForward(i)})
	}
	l.factors()
	for _, t := range l.f.Tensors() {
		if l.err == nil && !l.used[t.Name] {
			l.fail(fmt.Errorf("%w: the %s family has no use for tensor %q", arch.ErrUnsupportedModel, l.p.Architecture, t.Name))
		}
	}
}

const embeddingName = "token_embd.weight"

// vocabulary returns the number of rows of the embedding: the vocabulary is as large as
// that says, and the tokenizer must agree.
func (l *loader) vocabulary() int {
	embedding, ok := l.f.Tensor(embeddingName)
	if !ok {
		l.fail(fmt.Errorf("%w: no tensor %q", arch.ErrInvalidModel, embeddingName))
		return 0
	}
	if len(embedding.Shape) != 2 {
		l.fail(fmt.Errorf("%w: %s has shape %v, want [tokens %d]", arch.ErrInvalidModel, embeddingName, embedding.Shape, l.p.Embedding))
		return 0
	}
	rows := embedding.Shape[0]
	if rows > arch.MaxWidth {
		l.fail(fmt.Errorf("%w: %s has %d rows, want at most %d", arch.ErrInvalidModel, embeddingName, rows, arch.MaxWidth))
	}
	if l.tokens > rows {
		l.fail(fmt.Errorf("%w: tokenizer.ggml.tokens has %d tokens, but %s only %d rows", arch.ErrInvalidModel, l.tokens, embeddingName, rows))
	}
	return rows
}

// attention takes the first half of block i.
func (l *loader) attention(i int) attention {
	p, name := l.p, func(s string) string { return fmt.Sprintf("blk.%d.%s", i, s) }
	d := fucina.Ax("d", p.Embedding)
	q := fucina.Ax("q", p.Heads*p.KeyLength)
	k := fucina.Ax("k", p.KVHeads*p.KeyLength)
	v := fucina.Ax("v", p.KVHeads*p.ValueLength)
	a := attention{params: p}
	if p.Local(i) {
		a.window = p.Window
	}
	a.norm = l.norm(name("attn_norm"), d)
	if bias := l.family.QKVBias; l.wants(arch.Optional, name("attn_qkv.weight")) {
		l.fused(name("attn_qkv"), bias, d, part{&a.q, q}, part{&a.k, k}, part{&a.v, v})
	} else {
		a.q = l.projection(name("attn_q"), bias, q, d)
		a.k = l.projection(name("attn_k"), bias, k, d)
		a.v = l.projection(name("attn_v"), bias, v, d)
	}
	if l.family.QKNorm {
		head := fucina.Ax("d_head", p.KeyLength)
		a.qNorm, a.kNorm = l.norm(name("attn_q_norm"), head), l.norm(name("attn_k_norm"), head)
	}
	a.out = l.projection(name("attn_output"), l.family.AttnBias, d, fucina.Ax("o", p.Heads*p.ValueLength))
	if l.family.PostNorms {
		a.post = l.norm(name("post_attention_norm"), d)
	}
	return a
}

// feedForward takes the second half of block i.
func (l *loader) feedForward(i int) feedForward {
	p, name := l.p, func(s string) string { return fmt.Sprintf("blk.%d.%s", i, s) }
	d, ff, bias := fucina.Ax("d", p.Embedding), fucina.Ax("ff", p.FeedForward), l.family.FFNBias
	m := feedForward{gelu: l.family.GeGLU, norm: l.norm(name("ffn_norm"), d)}
	if l.family.FusedGate {
		l.fused(name("ffn_up"), bias, d, part{&m.gate, ff}, part{&m.up, ff})
	} else {
		m.gate = l.projection(name("ffn_gate"), bias, ff, d)
		m.up = l.projection(name("ffn_up"), bias, ff, d)
	}
	m.down = l.projection(name("ffn_down"), bias, d, ff)
	for _, p := range []*projection{&m.gate, &m.up, &m.down} {
		p.scalesBias = true // as in llama.cpp, which does so in the MLP only
	}
	if l.family.PostNorms {
		m.post = l.norm(name("post_ffw_norm"), d)
	}
	return m
}

// factors reads the divisors of rotary frequencies that a family may have.
func (l *loader) factors() {
	switch l.family.Factors {
	case arch.FixedFactors:
		l.p.RoPE.FreqFactors = l.divisors(arch.Optional, "rope_freqs.weight")
	case arch.LongFactors:
		const short, long = "rope_factors_short.weight", arch.LongFactorsName
		if l.wants(arch.Optional, short) || l.wants(arch.Optional, long) {
			l.p.RoPE.FreqFactors = l.divisors(arch.Required, short)
			l.p.LongFactors = l.divisors(arch.Required, long)
		}
	}
}
