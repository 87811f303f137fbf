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

// ErrContextFull reports a sequence that has reached its session's length.
var ErrContextFull = errors.New("context is full")

// defaultBatch is how many prompt tokens go through the network at once: enough
// that reading the weights is shared, few enough that activations stay small.
const defaultBatch = 512

// SessionOptions configure a session; zero fields take their defaults.
type SessionOptions struct {
	// Context is the longest sequence, prompt and generated text together. 0 is the
	// model's, but at most 4096, because a cache is as large as its sequence may
	// become; Model.Context() asks for all of it.
	Context int
	// Batch is how many prompt tokens are processed at once; 512 by default.
	Batch int
	// KV is the dtype of the cache, f16, f32 or q8_0. By default f16, or f32 on an
	// engine in exact mode. q8_0 takes about half of what f16 does; the lengths of
	// heads must be multiples of its blocks of 32.
	KV dtype.DType
}

// defaultContext bounds the cache that a session takes without being asked to.
const defaultContext = 4096

// Session is one sequence of tokens on a model: a context of the engine and a KV
// cache. One goroutine at a time drives it: a method that finds another inside, a
// generation under way included, fails with fucina.ErrBusy. Past, Context and Model
// may be called at any time.
type Session struct {
	m      *Model
	c      *fucina.Context
	batch  int // SessionOptions.Batch
	cache  *kv.Cache
	angles net.Angles
	busy   atomic.Bool
	closed bool      // guarded by busy
	ids    []int32   // the tokens that the cache holds; guarded by busy
	logits []float32 // see room; guarded by busy
}

// NewSession returns an empty session. The memory of its cache is taken when the
// first tokens are decoded, which fails with fucina.ErrNoMemory, or on a device
// fucina.ErrOutOfMemory, where there is too little. The table of rotary angles is
// made now, and anew for every session: a sine and a cosine for each position and
// rotated pair, which is 4 bytes times opt.Context times the rotated elements of a
// head, and as much again in families whose blocks with a window have other angles.
//
// Close the session before the model.
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
	// A longer sequence grows the slice: its length may be out of all proportion.
	ids := make([]int32, 0, min(opt.Context, defaultContext))
	m.sessions++
	return &Session{m: m, c: c, batch: opt.Batch, cache: cache, angles: angles, ids: ids}, nil
}

// enter claims the session for the calling goroutine until exit.
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

// Close gives the cache back and ends the session. It fails with fucina.ErrBusy, and
// closes nothing, while another call or a generation uses the session. A second Close
// does nothing.
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

// Past returns how many tokens the session holds.
func (s *Session) Past() int { return s.cache.Len() }

// Context returns how many tokens the session can hold.
func (s *Session) Context() int { return s.cache.Cap() }

// Rewind forgets all but the first n tokens.
func (s *Session) Rewind(n int) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.exit()
	return s.rewind(n)
}

// rewind is Rewind for a caller that has claimed the session.
func (s *Session) rewind(n int) error {
	if err := s.cache.Rewind(n); err != nil {
		return fmt.Errorf("llm: %w", err)
	}
	s.ids = s.ids[:n]
	return nil
}

// Resume rewinds to what the sequence has in common with ids, less the last of ids
// if all of them are there, and returns the rest of ids: what is left to decode for
// the sequence to be ids. A conversation that grows decodes only what is new.
func (s *Session) Resume(ids []int32) ([]int32, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.exit()
	return s.resume(ids)
}

// resume is Resume for a caller that has claimed the session.
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

// keep records that the cache holds ids, behind what it held. The caller has claimed
// the session.
func (s *Session) keep(ids []int32) {
	s.ids = append(s.ids, ids...)
	s.cache.Advance(len(ids))
}

// Decode appends ids to the sequence and writes the logits that follow the last of
// them to logits, one per vocabulary entry; a nil slice skips them. If a batch fails,
// the batches before it remain in the sequence and the rest are not added.
//
// It fails with ErrContextFull if the sequence would outgrow the session, with
// ErrFileChanged if the model's file was cut or written over, and with ctx's error if
// ctx is done. Decode looks at ctx between ops, in waits and, on the CPU, at least
// every 5 ms of work inside an op, whatever the batch; a device finishes the work that
// it was given. The session remains usable: decoding the missing tokens gives the same
// logits as an uninterrupted Decode.
func (s *Session) Decode(ctx context.Context, ids []int32, logits []float32) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.exit()
	return s.decode(ctx, ids, logits)
}

// decode is Decode for a caller that has claimed the session.
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

// check returns an error if ids cannot follow the sequence.
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

// room returns space for the logits after n tokens, which the session keeps. The
// caller has claimed the session.
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
		// Only the last token's row is wanted, so only it goes through the output.
		err = fucina.CopyOut(s.m.net.Logits(x.Narrow("seq", len(ids)-1, 1)), logits)
	}
	return s.checked(err)
}

// checked returns the error of a batch that ended with err: that of the model's file if
// it is no longer what it was, so that what was computed may be wrong.
func (s *Session) checked(err error) error {
	if err == nil || errors.Is(err, ErrFileChanged) {
		if changed := s.m.source.Check(); changed != nil {
			return changed // in place of the op that met the change
		}
	}
	return err
}
