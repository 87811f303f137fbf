package llm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/llm/internal/arch"
	"github.com/fucina-go/fucina/llm/tokenizer"
)

// ErrFileChanged reports a model whose file changed its size while it was in use.
// The model and its sessions can only be closed.
var ErrFileChanged = gguf.ErrFileChanged

// Options configure Open.
type Options struct {
	// Context is the longest sequence that sessions can ask for; 0 is the length
	// that the model was trained for, Params.Context. More than that is allowed, but
	// what a model says beyond it is seldom good.
	Context int
	// Progress, if set, is called as the weights are taken in, with the bytes so
	// far and in all, on the goroutine that called Open.
	Progress func(done, total int64)
}

// Model is a network and its tokenizer. It is immutable and may be shared by
// goroutines; its weights live once per engine.
type Model struct {
	eng     *fucina.Engine
	params  Params
	family  arch.Family
	context int
	tok     *tokenizer.Tokenizer
	// chatTemplate is the template text that the file carries, or empty; templateErr says
	// what is wrong with one that is no text.
	chatTemplate string
	templateErr  error

	tokenEmbd  fucina.Tensor // {vocab d}
	outputNorm fucina.Tensor // {d}
	output     projection    // {vocab d}; of tokenEmbd itself where they are tied
	layers     []layer

	source gguf.Source     // the files that the weights lie in
	all    []fucina.Tensor // every weight, for Close

	mu       sync.Mutex
	sessions int
	closed   bool
}

// layer is the weights of one transformer block. Those that a family does not have
// are zero.
type layer struct {
	attnNorm fucina.Tensor // {d}
	q, k, v  projection    // {q d}, {k d}, {v d}
	qNorm    fucina.Tensor // {d_head}
	kNorm    fucina.Tensor // {d_head}
	attnOut  projection    // {d o}
	attnPost fucina.Tensor // {d}, of the result

	ffnNorm  fucina.Tensor // {d}
	gate, up projection    // {ff d}
	down     projection    // {d ff}
	ffnPost  fucina.Tensor // {d}, of the result
}

// projection is a matrix, and what its product is multiplied by and what is added to it,
// if anything.
type projection struct {
	weight fucina.Tensor
	bias   fucina.Tensor // along the first axis of weight
	scale  float32       // 1 if there is none
	// scalesBias says that the bias is added first, and multiplied too.
	scalesBias bool
}

// Open maps the GGUF file at path and returns its model on eng. The weights stay
// in the file's mapping, which lives until the model is closed; a device takes
// copies as they are first used. Errors match ErrUnsupportedModel, ErrInvalidModel
// or those of package gguf, and nothing is held after one.
//
// While the model is open, another file may replace the file by a rename, but nothing
// may cut it or write over it. If its size changes, whatever needs the weights fails
// with ErrFileChanged.
//
// The caller closes the model before the engine, whose Close otherwise reports its
// weights with fucina.ErrLeak.
func Open(eng *fucina.Engine, path string, opt Options) (*Model, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("llm: %w", err)
	}
	// The tensors keep the mapping.
	m, err := newModel(eng, f, opt)
	if err = errors.Join(err, f.Close()); err != nil {
		if m != nil {
			err = errors.Join(err, m.Close())
		}
		return nil, fmt.Errorf("llm: %s: %w", path, err)
	}
	return m, nil
}

// New returns the model of an open file, which the caller may close at once. See
// Open.
func New(eng *fucina.Engine, f *gguf.File, opt Options) (*Model, error) {
	m, err := newModel(eng, f, opt)
	if err != nil {
		return nil, fmt.Errorf("llm: %w", err)
	}
	return m, nil
}

func newModel(eng *fucina.Engine, f *gguf.File, opt Options) (*Model, error) {
	p, fam, err := arch.Read(f)
	if err != nil {
		return nil, err
	}
	tok, err := newTokenizer(f)
	if err != nil {
		return nil, err
	}
	m := &Model{eng: eng, tok: tok, family: fam, context: opt.Context, source: f.Source()}
	m.chatTemplate, m.templateErr = f.StringOr("tokenizer.chat_template", "")
	if m.context == 0 {
		m.context = p.Context
	}
	if m.context < 1 || m.context > arch.MaxLength {
		return nil, fmt.Errorf("context of %d tokens, want 1 to %d", m.context, arch.MaxLength)
	}
	l := loader{m: m, f: f, used: make(map[string]bool), progress: opt.Progress}
	l.load(&p)
	l.close()
	m.params = p
	if l.err != nil {
		return nil, errors.Join(l.err, m.Close())
	}
	return m, nil
}

// NewTokenizer returns the tokenizer of an open file, which the caller may close at
// once and which need hold no network: a vocabulary is enough. Errors match
// ErrUnsupportedModel or ErrInvalidModel.
func NewTokenizer(f *gguf.File) (*tokenizer.Tokenizer, error) {
	tok, err := newTokenizer(f)
	if err != nil {
		return nil, fmt.Errorf("llm: %w", err)
	}
	return tok, nil
}

func newTokenizer(f *gguf.File) (*tokenizer.Tokenizer, error) {
	if _, ok := f.Value("tokenizer.ggml.model"); !ok {
		return nil, fmt.Errorf("%w: no tokenizer.ggml.model", ErrInvalidModel)
	}
	cfg, err := tokenizer.FromMetadata(func(key string) (any, bool) {
		v, ok := f.Value(key)
		if !ok {
			return nil, false
		}
		return v.Interface(), true
	})
	if err != nil {
		return nil, vocabularyError(err)
	}
	tok, err := tokenizer.New(cfg)
	if err != nil {
		return nil, vocabularyError(err)
	}
	return tok, nil
}

// vocabularyError says what an error of the tokenizer means for the model.
func vocabularyError(err error) error {
	if errors.Is(err, tokenizer.ErrModel) {
		return fmt.Errorf("%w: %w", ErrUnsupportedModel, err)
	}
	return fmt.Errorf("%w: %w", ErrInvalidModel, err)
}

// loader takes weights from a file and keeps the first error.
type loader struct {
	m        *Model
	f        *gguf.File
	views    *fucina.Context // for parts of weights; nil until there is one
	used     map[string]bool
	progress func(done, total int64)
	done     int64
	total    int64
	err      error
}

func (l *loader) fail(err error) {
	if l.err == nil {
		l.err = err
	}
}

func (l *loader) failIf(err error) {
	if err != nil {
		l.fail(err)
	}
}

func (l *loader) load(p *Params) {
	for _, t := range l.f.Tensors() {
		l.total += t.Size
	}
	// The vocabulary is as large as the embedding says; the tokenizer must agree.
	embd, ok := l.f.Tensor("token_embd.weight")
	if !ok {
		l.fail(fmt.Errorf("%w: no tensor %q", ErrInvalidModel, "token_embd.weight"))
		return
	}
	if len(embd.Shape) != 2 {
		l.fail(fmt.Errorf("%w: token_embd.weight has shape %v, want [tokens %d]", ErrInvalidModel, embd.Shape, p.Embedding))
		return
	}
	if p.Vocabulary = embd.Shape[0]; p.Vocabulary > arch.MaxWidth {
		l.fail(fmt.Errorf("%w: token_embd.weight has %d rows, want at most %d", ErrInvalidModel, p.Vocabulary, arch.MaxWidth))
		return
	}
	if n := l.m.tok.VocabSize(); n > p.Vocabulary {
		l.fail(fmt.Errorf("%w: tokenizer.ggml.tokens has %d tokens, but token_embd.weight only %d rows", ErrInvalidModel, n, p.Vocabulary))
		return
	}
	ax := fucina.Ax
	d := ax("d", p.Embedding)
	vocab := ax("vocab", p.Vocabulary)
	m, fam := l.m, &l.m.family
	m.tokenEmbd = l.matrix("token_embd.weight", vocab, d)
	m.outputNorm = l.vector("output_norm.weight", d)
	if l.wants(fam.Output, "output.weight") {
		m.output = l.projection("output", fam.OutputBias, vocab, d)
	} else {
		m.output = projection{weight: m.tokenEmbd, bias: l.bias("output", fam.OutputBias, vocab), scale: 1}
	}
	head := ax("d_head", p.KeyLength)
	q := ax("q", p.Heads*p.KeyLength)
	k := ax("k", p.KVHeads*p.KeyLength)
	v := ax("v", p.KVHeads*p.ValueLength)
	o := ax("o", p.Heads*p.ValueLength)
	ff := ax("ff", p.FeedForward)
	for i := 0; i < p.Layers && l.err == nil; i++ {
		block := fmt.Sprintf("blk.%d.", i)
		norm := func(s string, axis fucina.Axis) fucina.Tensor { return l.vector(block+s+".weight", axis) }
		var b layer
		b.attnNorm = norm("attn_norm", d)
		if l.wants(arch.Optional, block+"attn_qkv.weight") {
			l.fused(block+"attn_qkv", fam.QKVBias, d, part{&b.q, q}, part{&b.k, k}, part{&b.v, v})
		} else {
			b.q = l.projection(block+"attn_q", fam.QKVBias, q, d)
			b.k = l.projection(block+"attn_k", fam.QKVBias, k, d)
			b.v = l.projection(block+"attn_v", fam.QKVBias, v, d)
		}
		if fam.QKNorm {
			b.qNorm, b.kNorm = norm("attn_q_norm", head), norm("attn_k_norm", head)
		}
		b.attnOut = l.projection(block+"attn_output", fam.AttnBias, d, o)
		b.ffnNorm = norm("ffn_norm", d)
		if fam.FusedGate {
			l.fused(block+"ffn_up", fam.FFNBias, d, part{&b.gate, ff}, part{&b.up, ff})
		} else {
			b.gate = l.projection(block+"ffn_gate", fam.FFNBias, ff, d)
			b.up = l.projection(block+"ffn_up", fam.FFNBias, ff, d)
		}
		b.down = l.projection(block+"ffn_down", fam.FFNBias, d, ff)
		for _, p := range []*projection{&b.gate, &b.up, &b.down} {
			p.scalesBias = true // as in llama.cpp, which does so in the MLP only
		}
		if fam.PostNorms {
			b.attnPost, b.ffnPost = norm("post_attention_norm", d), norm("post_ffw_norm", d)
		}
		m.layers = append(m.layers, b)
	}
	l.factors(p)
	for _, t := range l.f.Tensors() {
		if l.err == nil && !l.used[t.Name] {
			l.fail(fmt.Errorf("%w: the %s family has no use for tensor %q", ErrUnsupportedModel, p.Architecture, t.Name))
		}
	}
}

// factors reads the divisors of rotary frequencies that a family may have.
func (l *loader) factors(p *Params) {
	switch l.m.family.Factors {
	case arch.FixedFactors:
		p.RoPE.FreqFactors = l.divisors(arch.Optional, "rope_freqs.weight", p)
	case arch.LongFactors:
		const short, long = "rope_factors_short.weight", arch.LongFactorsName
		if l.wants(arch.Optional, short) || l.wants(arch.Optional, long) {
			p.RoPE.FreqFactors = l.divisors(arch.Required, short, p)
			p.LongFactors = l.divisors(arch.Required, long, p)
		}
	}
}

// divisors reads a tensor with one positive number per rotated pair.
func (l *loader) divisors(has arch.Presence, name string, p *Params) []float32 {
	if !l.wants(has, name) {
		return nil
	}
	t, ok := l.f.Tensor(name)
	if !ok {
		l.fail(fmt.Errorf("%w: no tensor %q", ErrInvalidModel, name))
		return nil
	}
	if t.DType != dtype.F32 || len(t.Shape) != 1 || t.Shape[0] != p.RoPE.Dims/2 {
		l.fail(fmt.Errorf("%w: %s is %s %v, want f32 [%d]", ErrInvalidModel, name, t.DType, t.Shape, p.RoPE.Dims/2))
		return nil
	}
	values := l.floats(t)
	for i, v := range values {
		if !(v > 0) {
			l.fail(fmt.Errorf("%w: %s[%d] is %v, want a positive number", ErrInvalidModel, name, i, v))
			return nil
		}
	}
	l.took(t)
	return values
}

// floats returns the values of an f32 tensor.
func (l *loader) floats(t gguf.TensorInfo) []float32 {
	values := make([]float32, t.Elements())
	err := l.f.View(t, func(data []byte) error {
		_, err := binary.Decode(data, binary.LittleEndian, values)
		return err
	})
	if err != nil {
		l.fail(fmt.Errorf("tensor %q: %w", t.Name, err))
	}
	return values
}

// wants reports whether the tensor is one to load: if it may be absent, whether it
// is there.
func (l *loader) wants(has arch.Presence, name string) bool {
	if has == arch.Optional {
		_, ok := l.f.Tensor(name)
		return ok && l.err == nil
	}
	return has == arch.Required && l.err == nil
}

// projection takes the matrix name.weight {out in} and, if they are there, the vector
// name.bias {out} and the number name.scale, which NVFP4 files have beside the scales in
// the blocks. Such files also have a name.input_scale, for products whose activations
// are in NVFP4 too: nothing needs it here.
func (l *loader) projection(name string, bias arch.Presence, out, in fucina.Axis) projection {
	p := projection{weight: l.matrix(name+".weight", out, in), bias: l.bias(name, bias, out), scale: 1}
	if l.wants(arch.Optional, name+".scale") {
		p.scale = l.number(name + ".scale")
	}
	if t, ok := l.f.Tensor(name + ".input_scale"); ok && l.err == nil {
		l.took(t)
	}
	return p
}

// bias takes the vector name.bias {out}, if there is one to take.
func (l *loader) bias(name string, has arch.Presence, out fucina.Axis) fucina.Tensor {
	if !l.wants(has, name+".bias") {
		return fucina.Tensor{}
	}
	return l.vector(name+".bias", out)
}

// number reads a tensor that is one finite number in f32.
func (l *loader) number(name string) float32 {
	t, _ := l.f.Tensor(name)
	if t.DType != dtype.F32 || t.Elements() != 1 {
		l.fail(fmt.Errorf("%w: %s is %s %v, want f32 [1]", ErrInvalidModel, name, t.DType, t.Shape))
		return 1
	}
	v := l.floats(t)[0]
	if !(math.Abs(float64(v)) <= math.MaxFloat32) {
		l.fail(fmt.Errorf("%w: %s is %v, want a finite number", ErrInvalidModel, name, v))
	}
	l.took(t)
	return v
}

// part is a range of rows of a matrix that holds several projections.
type part struct {
	into *projection
	out  fucina.Axis
}

// fused takes a matrix that holds the rows of several projections one after the
// other, and a bias likewise. The parts are views: a device has one copy of the
// whole.
func (l *loader) fused(name string, bias arch.Presence, in fucina.Axis, parts ...part) {
	all := fucina.Ax("fused", 0)
	for _, p := range parts {
		all.Size += p.out.Size
	}
	whole := l.projection(name, bias, all, in)
	start := 0
	for _, p := range parts {
		p.into.weight = l.rows(whole.weight, start, all, p.out)
		if whole.bias != (fucina.Tensor{}) {
			p.into.bias = l.rows(whole.bias, start, all, p.out)
		}
		p.into.scale = whole.scale
		start += p.out.Size
	}
}

// rows returns the view of the entries of t from start on along the axis of, called
// as and of its size.
func (l *loader) rows(t fucina.Tensor, start int, of, as fucina.Axis) fucina.Tensor {
	if l.err == nil && l.views == nil {
		c, err := l.m.eng.NewContext()
		l.views = c
		l.failIf(err)
	}
	if l.err != nil {
		return fucina.Tensor{}
	}
	v := t.On(l.views).Narrow(of.Name, start, as.Size).Rename(of.Name, as.Name).Shared()
	if err := v.Err(); err != nil {
		l.fail(err)
		return fucina.Tensor{}
	}
	l.m.all = append(l.m.all, v)
	return v
}

// close ends the context of views, which outlive it.
func (l *loader) close() {
	if l.views != nil {
		l.failIf(l.views.Close())
	}
}

// vector takes a weight that ops want in f32.
func (l *loader) vector(name string, axis fucina.Axis) fucina.Tensor {
	if t, ok := l.f.Tensor(name); ok && l.err == nil && t.DType != dtype.F32 {
		l.fail(fmt.Errorf("%w: %s is %s, want f32", ErrUnsupportedModel, name, t.DType))
	}
	return l.take(name, axis)
}

// matrix takes a weight of any dtype that may stand right in a product.
func (l *loader) matrix(name string, axes ...fucina.Axis) fucina.Tensor {
	if t, ok := l.f.Tensor(name); ok && l.err == nil {
		if weights := op.MatMul.Inputs()[1].Formats; !weights.Has(t.DType) {
			l.fail(fmt.Errorf("%w: %s is %s, want %s", ErrUnsupportedModel, name, t.DType, weights))
		}
	}
	return l.take(name, axes...)
}

func (l *loader) take(name string, axes ...fucina.Axis) fucina.Tensor {
	if l.err != nil {
		return fucina.Tensor{}
	}
	t, ok := l.f.Tensor(name)
	if !ok {
		l.fail(fmt.Errorf("%w: no tensor %q", ErrInvalidModel, name))
		return fucina.Tensor{}
	}
	fits := len(t.Shape) == len(axes)
	for i := range axes {
		fits = fits && t.Shape[i] == axes[i].Size
	}
	if !fits {
		want := make([]int, len(axes))
		for i := range axes {
			want[i] = axes[i].Size
		}
		l.fail(fmt.Errorf("%w: tensor %q has shape %v, the metadata wants %v", ErrInvalidModel, name, t.Shape, want))
		return fucina.Tensor{}
	}
	buf, err := l.f.Buffer(t)
	if err != nil {
		l.fail(err)
		return fucina.Tensor{}
	}
	w, err := l.m.eng.Weight(buf, t.DType, axes...)
	if err != nil {
		buf.Release()
		l.fail(fmt.Errorf("tensor %q: %w", name, err))
		return fucina.Tensor{}
	}
	l.m.all = append(l.m.all, w)
	l.took(t)
	return w
}

// took records that the model has what it needs of t.
func (l *loader) took(t gguf.TensorInfo) {
	l.used[t.Name] = true
	l.done += t.Size
	if l.progress != nil {
		l.progress(l.done, l.total)
	}
}

// Params returns the network's dimensions. The slices are the caller's.
func (m *Model) Params() Params {
	p := m.params
	p.RoPE.FreqFactors = slices.Clone(p.RoPE.FreqFactors)
	p.LocalRoPE.FreqFactors = slices.Clone(p.LocalRoPE.FreqFactors)
	p.LongFactors = slices.Clone(p.LongFactors)
	p.Notes = slices.Clone(p.Notes)
	return p
}

// Context returns the longest sequence that a session can hold.
func (m *Model) Context() int { return m.context }

// Tokenizer returns the model's tokenizer.
func (m *Model) Tokenizer() *tokenizer.Tokenizer { return m.tok }

// ChatTemplate returns the text of the chat template that the file carries, and
// whether there is one: a value that is not a text counts as none. The template is a
// program, which chat.Recognise identifies.
func (m *Model) ChatTemplate() (text string, ok bool) {
	return m.chatTemplate, m.chatTemplate != ""
}

// Engine returns the engine that the model lives on.
func (m *Model) Engine() *fucina.Engine { return m.eng }

// Close gives the weights back. It fails, and closes nothing, while sessions are
// open. A second Close does nothing.
func (m *Model) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sessions > 0 {
		return fmt.Errorf("llm: close of a model with %d open sessions", m.sessions)
	}
	if m.closed {
		return nil
	}
	m.closed = true
	for _, t := range m.all {
		t.Release()
	}
	return nil
}
