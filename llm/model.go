package llm

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/internal/ctxlock"
	"github.com/fucina-go/fucina/llm/internal/arch"
	"github.com/fucina-go/fucina/llm/internal/net"
	"github.com/fucina-go/fucina/llm/tokenizer"
)

// ErrFileChanged reports a model whose file was truncated or overwritten while the model was
// open. The model and its sessions can only be closed.
var ErrFileChanged = gguf.ErrFileChanged

// Options configure Open.
type Options struct {
	// Context is the largest length that a session can request, in tokens. 0 means the
	// length that the model was trained for, Params.Context. A greater length is allowed,
	// but few models write good text beyond the length that they were trained for.
	Context int
	// CacheTokens is the number of tokens whose keys and values the sessions of the model can
	// hold together, for each format of SessionOptions.KV. Tokens that sessions share count
	// once. The number is rounded up to whole pages of 32 tokens, and a session takes whole
	// pages. The default is 4 times Context, but at most 1<<30, and not more than a quarter of
	// the provider's memory has room for. On the host, the memory becomes resident as it is
	// used.
	CacheTokens int
	// PrefixTokens is the number of tokens whose keys and values the cache keeps after the
	// last session with them has ended, for later sessions that begin with the same tokens.
	// The least recently used ones are dropped beyond it, or earlier if sessions need their
	// rows. 0 means the default of a quarter of CacheTokens. Only whole pages of 32 tokens are
	// kept: if the number is negative or less than 32, sessions do not reuse prefixes at all,
	// not even those of open sessions.
	PrefixTokens int
	// Progress, if set, is called while the weights are loaded, on the goroutine that
	// called Open: with the bytes loaded so far and the bytes of all weights.
	Progress func(done, total int64)
}

// Model is a network and its tokenizer on one engine. It is immutable, and goroutines may
// share it.
type Model struct {
	eng     *fucina.Engine
	source  gguf.Source // the files of the weights, which the model retains
	tok     *tokenizer.Tokenizer
	net     *net.Network
	steps   runner
	context int
	// cacheTokens and prefixTokens are those of Options; 0 means the default.
	cacheTokens, prefixTokens int
	// chatTemplate is the text of the file's chat template, or empty. templateErr is set if
	// the template is not a string.
	chatTemplate string
	templateErr  error
	// fingerprint returns that of source. Only saved sessions need it.
	fingerprint func() ([sha256.Size]byte, error)

	mu       sync.Mutex
	sessions int
	closed   bool
}

// Open maps the GGUF file at path and returns its model on eng. The weights remain in the
// mapping of the file, which lives until the model is closed. A device copies a weight at its
// first use. Errors wrap ErrUnsupportedModel, ErrInvalidModel or an error of package gguf.
// After an error nothing remains open.
//
// While the model is open, a rename may replace the file, but the file must not be truncated
// or overwritten: everything that needs the weights then fails with ErrFileChanged.
//
// Close the model before the engine. Otherwise the engine's Close reports the weights with
// fucina.ErrLeak.
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

// New is like Open for a file that is open already. The caller may close the file when New
// returns.
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
	m := &Model{eng: eng, source: f.Source(), tok: tok}
	m.chatTemplate, m.templateErr = f.StringOr("tokenizer.chat_template", "")
	if m.context, err = longest(&p, opt.Context); err != nil {
		return nil, err
	}
	if opt.CacheTokens < 0 || opt.CacheTokens > arch.MaxLength {
		return nil, fmt.Errorf("cache of %d tokens, want 1 to %d, or 0 for the default", opt.CacheTokens, arch.MaxLength)
	}
	m.fingerprint = sync.OnceValues(m.source.Fingerprint)
	m.cacheTokens, m.prefixTokens = opt.CacheTokens, opt.PrefixTokens
	m.steps = runner{m: m, turn: ctxlock.New(), caches: make(map[dtype.DType]*cache)}
	m.net, err = net.Load(eng, f, net.Config{Params: p, Family: fam, Tokens: tok.VocabSize(), Progress: opt.Progress})
	if err != nil {
		return nil, err
	}
	// The parts of a split file that have no weights would not remain open otherwise.
	if err := m.source.Retain(); err != nil {
		m.net.Release()
		return nil, err
	}
	return m, nil
}

// longest returns the largest length of a session of a model with the dimensions p. asked is
// Options.Context.
func longest(p *arch.Params, asked int) (int, error) {
	n := asked
	if n == 0 {
		n = p.Context
	}
	if n < 1 || n > arch.MaxLength {
		return 0, fmt.Errorf("context of %d tokens, want 1 to %d", n, arch.MaxLength)
	}
	return n, nil
}

// NewTokenizer returns the tokenizer of an open file. The file needs a vocabulary, but no
// network. The caller may close it when NewTokenizer returns. Errors wrap ErrUnsupportedModel
// or ErrInvalidModel.
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

// vocabularyError wraps an error of the tokenizer with the error of this package that
// corresponds to it.
func vocabularyError(err error) error {
	if errors.Is(err, tokenizer.ErrModel) {
		return fmt.Errorf("%w: %w", ErrUnsupportedModel, err)
	}
	return fmt.Errorf("%w: %w", ErrInvalidModel, err)
}

// Params returns the dimensions of the network. The caller may change the slices.
func (m *Model) Params() Params {
	p := *m.net.Params()
	p.RoPE.FreqFactors = slices.Clone(p.RoPE.FreqFactors)
	p.LocalRoPE.FreqFactors = slices.Clone(p.LocalRoPE.FreqFactors)
	p.LongFactors = slices.Clone(p.LongFactors)
	p.Notes = slices.Clone(p.Notes)
	return p
}

// Context returns the largest length that a session can request, in tokens.
func (m *Model) Context() int { return m.context }

// Tokenizer returns the model's tokenizer.
func (m *Model) Tokenizer() *tokenizer.Tokenizer { return m.tok }

// ChatTemplate returns the text of the file's chat template, and whether the file has one. A
// template that is not a string counts as none. The template is a program, which
// chat.Recognise identifies.
func (m *Model) ChatTemplate() (text string, ok bool) {
	return m.chatTemplate, m.chatTemplate != ""
}

// Engine returns the engine of the model.
func (m *Model) Engine() *fucina.Engine { return m.eng }

// Close releases the weights and the cache. While sessions are open, it fails and releases nothing. A second
// Close does nothing.
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
	err := m.steps.close()
	m.net.Release()
	m.source.Release()
	return err
}
