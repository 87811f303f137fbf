package net

import (
	"fmt"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/llm/internal/arch"
)

// Config describes the network of a file.
type Config struct {
	Params arch.Params // as arch.Read returns them, without those that the tensors give
	Family arch.Family
	// Tokens is the number of tokens in the vocabulary. The embedding may have more rows.
	Tokens int
	// Progress, if set, is called while the weights are loaded, with the bytes loaded so
	// far and the bytes of all weights.
	Progress func(done, total int64)
}

// Load returns the network with the weights in f. The caller may close f when Load returns, and
// releases the network. The weights remain in the mapping of the file, and a device copies a
// weight at its first use. Errors wrap arch.ErrUnsupportedModel, arch.ErrInvalidModel or an
// error of package gguf. After an error no memory is held.
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

// network loads all weights. It fails if the file has other tensors.
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

// vocabulary returns the number of rows of the embedding, which is the number of logits. It
// fails if the tokenizer has more tokens.
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

// attention loads the first half of block i.
func (l *loader) attention(i int) attention {
	p, name := l.p, func(s string) string { return fmt.Sprintf("blk.%d.%s", i, s) }
	d := fucina.Ax("d", p.Embedding)
	q := fucina.Ax("q", p.Heads*p.KeyLength)
	k := fucina.Ax("k", p.KVHeads*p.KeyLength)
	v := fucina.Ax("v", p.KVHeads*p.ValueLength)
	a := attention{params: p, window: window(p, i)}
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
	a.out = l.inChunks(l.projection(name("attn_output"), l.family.AttnBias, d, fucina.Ax("o", p.Heads*p.ValueLength)))
	if l.family.PostNorms {
		a.post = l.norm(name("post_attention_norm"), d)
	}
	return a
}

// feedForward loads the second half of block i.
func (l *loader) feedForward(i int) feedForward {
	p, name := l.p, func(s string) string { return fmt.Sprintf("blk.%d.%s", i, s) }
	d, ff, bias := fucina.Ax("d", p.Embedding), fucina.Ax("ff", p.FeedForward), l.family.FFNBias
	m := feedForward{norm: l.norm(name("ffn_norm"), d)}
	if l.family.GeGLU {
		m.activation = fucina.GELU
	}
	if l.family.FusedGate {
		l.fused(name("ffn_up"), bias, d, part{&m.gate, ff}, part{&m.up, ff})
	} else {
		m.gate = l.projection(name("ffn_gate"), bias, ff, d)
		m.up = l.projection(name("ffn_up"), bias, ff, d)
	}
	m.down = l.inChunks(l.projection(name("ffn_down"), bias, d, ff))
	for _, p := range []*projection{&m.gate, &m.up, &m.down} {
		p.biasFirst = true // as in llama.cpp, which does so only in the MLP
	}
	if l.family.PostNorms {
		m.post = l.norm(name("post_ffw_norm"), d)
	}
	return m
}

// factors reads the divisors of the rotary frequencies, if the family has them.
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
