package llm

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/llm/internal/kv"
	"github.com/fucina-go/fucina/llm/internal/net"
)

// ErrContextFull reports that a sequence would exceed the length of its session.
var ErrContextFull = errors.New("context is full")

// defaultBatch is the default of SessionOptions.Batch. It is large enough that the tokens of a
// batch share the time to read the weights, and small enough that activations need little
// memory.
const defaultBatch = 512

// defaultContext is the largest default of SessionOptions.Context.
const defaultContext = 4096

// SessionOptions are the options of NewSession. Zero fields mean their defaults.
type SessionOptions struct {
	// Context is the largest length of the sequence in tokens, including the prompt and the
	// generated text. The default is Model.Context(), but at most 4096, because the cache
	// has room for a sequence of this length.
	Context int
	// Batch is the number of prompt tokens that go through the network at once. The default
	// is 512.
	Batch int
	// KV is the dtype of the cache: f16, f32 or q8_0. The default is f16, or f32 on an
	// engine in exact mode. A cache in q8_0 needs about half as much memory as one in f16,
	// and the sizes of the heads must be multiples of 32.
	KV dtype.DType
}

// Session is one sequence of tokens on a model, with a context of the engine and a KV cache.
// One goroutine at a time drives it. A method that is called while another method or a
// generation uses the session fails with fucina.ErrBusy, except Past, Context and Model, which
// may be called at any time.
type Session struct {
	m      *Model
	c      *fucina.Context
	batch  int // SessionOptions.Batch
	cache  *kv.Cache
	angles net.Angles
	busy   atomic.Bool
	closed bool      // guarded by busy
	ids    []int32   // the tokens in the cache; guarded by busy
	logits []float32 // the slice of room; guarded by busy
}

// NewSession returns an empty session. Close it before the model.
//
// The memory of the cache is allocated when the first tokens are decoded. If there is too
// little, that call fails with fucina.ErrNoMemory, or on a device with fucina.ErrOutOfMemory.
// NewSession itself computes the session's table of rotary angles, with a sine and a cosine
// for each position and rotated pair: 4 bytes times opt.Context times the rotated elements of
// a head. A family whose blocks with a window have other angles has two such tables.
func (m *Model) NewSession(opt SessionOptions) (*Session, error) {
	if opt.Context == 0 {
		opt.Context = min(m.context, defaultContext)
	}
	if opt.Context < 1 || opt.Context > m.context {
		return nil, fmt.Errorf("llm: session of %d tokens, the model was opened for 1 to %d", opt.Context, m.context)
	}
	if opt.Batch == 0 {
		opt.Batch = defaultBatch
	}
	if opt.Batch < 1 {
		return nil, fmt.Errorf("llm: batch of %d tokens, want at least 1", opt.Batch)
	}
	if opt.KV == dtype.Invalid {
		opt.KV = dtype.F16
		if m.eng.Exact() {
			opt.KV = dtype.F32
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, fmt.Errorf("llm: session of a model: %w", fucina.ErrClosed)
	}
	p := m.net.Params()
	cache, err := kv.New(m.eng, kv.Shape{
		Format: opt.KV, Tokens: opt.Context, Blocks: p.Layers,
		Heads: p.KVHeads, KeyLength: p.KeyLength, ValueLength: p.ValueLength,
	})
	if err != nil {
		return nil, fmt.Errorf("llm: %w", err)
	}
	angles, err := m.net.NewAngles(m.eng, opt.Context)
	if err != nil {
		cache.Release()
		return nil, fmt.Errorf("llm: %w", err)
	}
	c, err := m.eng.NewContext()
	if err != nil {
		angles.Release()
		cache.Release()
		return nil, fmt.Errorf("llm: %w", err)
	}
	// The slice grows with a longer sequence, because opt.Context may be very large.
	ids := make([]int32, 0, min(opt.Context, defaultContext))
	m.sessions++
	return &Session{m: m, c: c, batch: opt.Batch, cache: cache, angles: angles, ids: ids}, nil
}

// enter claims the session for the caller until exit.
func (s *Session) enter() error {
	if !s.busy.CompareAndSwap(false, true) {
		return fmt.Errorf("llm: session: %w", fucina.ErrBusy)
	}
	if s.closed {
		s.exit()
		return fmt.Errorf("llm: session: %w", fucina.ErrClosed)
	}
	return nil
}

func (s *Session) exit() { s.busy.Store(false) }

// Close ends the session and releases its cache. While another call or a generation uses the
// session, it fails with fucina.ErrBusy and releases nothing. A second Close does nothing.
func (s *Session) Close() error {
	if err := s.enter(); errors.Is(err, fucina.ErrClosed) {
		return nil
	} else if err != nil {
		return err
	}
	defer s.exit()
	s.closed = true
	s.logits = nil
	s.angles.Release()
	s.cache.Release()
	err := s.c.Close()
	s.m.mu.Lock()
	s.m.sessions--
	s.m.mu.Unlock()
	return err
}

// Model returns the session's model.
func (s *Session) Model() *Model { return s.m }

// Past returns the number of tokens in the session.
func (s *Session) Past() int { return s.cache.Len() }

// Context returns the largest number of tokens that the session can hold.
func (s *Session) Context() int { return s.cache.Cap() }

// Rewind removes all tokens except the first n.
func (s *Session) Rewind(n int) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.exit()
	return s.rewind(n)
}

// rewind implements Rewind. The caller has claimed the session.
func (s *Session) rewind(n int) error {
	if err := s.cache.Rewind(n); err != nil {
		return fmt.Errorf("llm: %w", err)
	}
	s.ids = s.ids[:n]
	return nil
}

// Resume rewinds the session to the longest prefix that it has in common with ids, and returns
// the rest of ids. When these have been decoded, the sequence is ids. The rest has at least
// the last token, so that decoding it gives the logits that follow ids. Use Resume to decode
// only the new part of a conversation that grows.
func (s *Session) Resume(ids []int32) ([]int32, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.exit()
	return s.resume(ids)
}

// resume implements Resume. The caller has claimed the session.
func (s *Session) resume(ids []int32) ([]int32, error) {
	if len(ids) == 0 {
		return nil, errors.New("llm: resume with no tokens")
	}
	n := 0
	for n < len(s.ids) && n < len(ids)-1 && s.ids[n] == ids[n] {
		n++
	}
	return ids[n:], s.rewind(n)
}

// keep adds ids, whose keys and values are in the cache, to the sequence. The caller has
// claimed the session.
func (s *Session) keep(ids []int32) {
	s.ids = append(s.ids, ids...)
	s.cache.Advance(len(ids))
}

// Decode appends ids to the sequence, and writes the logits that follow the last of them to
// logits, one for each vocabulary entry. If logits is nil, they are not computed. If a batch
// fails, the batches before it remain in the sequence and the rest are not added.
//
// Decode fails with ErrContextFull if the sequence would exceed the length of the session,
// with ErrFileChanged if the model's file was truncated or overwritten, and with ctx's error
// if ctx is done. It checks ctx between operations and while it waits. On the CPU it also
// checks ctx within operations, at least every 5 ms; a device first ends the work that it was
// given. After an error the session remains usable: decoding the missing tokens gives the
// same logits as an uninterrupted Decode.
func (s *Session) Decode(ctx context.Context, ids []int32, logits []float32) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.exit()
	return s.decode(ctx, ids, logits)
}

// decode implements Decode. The caller has claimed the session.
func (s *Session) decode(ctx context.Context, ids []int32, logits []float32) error {
	if err := s.check(ids); err != nil {
		return err
	}
	if logits != nil && len(logits) != s.m.net.Params().Vocabulary {
		return fmt.Errorf("llm: room for %d logits, want %d", len(logits), s.m.net.Params().Vocabulary)
	}
	s.c.SetCancel(ctx)
	defer s.c.SetCancel(context.Background())
	for len(ids) > 0 {
		n := min(len(ids), s.batch)
		out := logits
		if n < len(ids) {
			out = nil
		}
		if err := s.step(ids[:n], out); err != nil {
			return fmt.Errorf("llm: %w", err)
		}
		s.keep(ids[:n])
		ids = ids[n:]
	}
	return nil
}

// check returns an error if ids cannot be appended to the sequence.
func (s *Session) check(ids []int32) error {
	if len(ids) == 0 {
		return errors.New("llm: decode of no tokens")
	}
	if past, room := s.Past(), s.Context(); len(ids) > room-past {
		return fmt.Errorf("llm: %w: %d tokens after %d in a context of %d", ErrContextFull, len(ids), past, room)
	}
	for i, id := range ids {
		if id < 0 || int(id) >= s.m.net.Params().Vocabulary {
			return fmt.Errorf("llm: token %d at %d, the vocabulary has %d", id, i, s.m.net.Params().Vocabulary)
		}
	}
	return nil
}

// room returns a slice for the logits of n tokens. The session reuses it. The caller has
// claimed the session.
func (s *Session) room(n int) []float32 {
	if n *= s.m.net.Params().Vocabulary; n > len(s.logits) {
		s.logits = make([]float32, n)
	}
	return s.logits[:n]
}

// step runs the network on one batch.
func (s *Session) step(ids []int32, logits []float32) error {
	f := s.c.Frame()
	defer f.Close()
	x := s.m.net.Forward(s.c, ids, s.cache, s.angles)
	err := x.Err()
	if err == nil && logits != nil {
		// Only the row of the last token goes through the output matrix.
		err = fucina.CopyOut(s.m.net.Logits(x.Narrow("seq", len(ids)-1, 1)), logits)
	}
	return s.checked(err)
}

// checked returns the error of a batch that ended with err. If the model's file has changed,
// that is the error of the file, even if err is nil, because the results may be wrong.
func (s *Session) checked(err error) error {
	if err == nil || errors.Is(err, ErrFileChanged) {
		if changed := s.m.source.Check(); changed != nil {
			return changed // it names the file; err names the operation that read it
		}
	}
	return err
}
