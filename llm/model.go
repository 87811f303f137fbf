package llm

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/llm/internal/arch"
	"github.com/fucina-go/fucina/llm/internal/net"
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
	source  gguf.Source // the files that the weights lie in
	tok     *tokenizer.Tokenizer
	net     *net.Network
	context int
	// chatTemplate is the template text that the file carries, or empty; templateErr says
	// what is wrong with one that is no text.
	chatTemplate string
	templateErr  error

	mu       sync.Mutex
	sessions int
	closed   bool
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
	m := &Model{eng: eng, source: f.Source(), tok: tok, context: opt.Context}
	m.chatTemplate, m.templateErr = f.StringOr("tokenizer.chat_template", "")
	if m.context == 0 {
		m.context = p.Context
	}
	if m.context < 1 || m.context > arch.MaxLength {
		return nil, fmt.Errorf("context of %d tokens, want 1 to %d", m.context, arch.MaxLength)
	}
	m.net, err = net.Load(eng, f, net.Config{Params: p, Family: fam, Tokens: tok.VocabSize(), Progress: opt.Progress})
	if err != nil {
		return nil, err
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

// Params returns the network's dimensions. The slices are the caller's.
func (m *Model) Params() Params {
	p := *m.net.Params()
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
	m.net.Release()
	return nil
}
