package llm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/dtype"
)

// ErrContextFull reports a sequence that has reached its session's length.
var ErrContextFull = errors.New("context is full")

// defaultBatch is how many prompt tokens go through the network at once: enough
// that reading the weights is shared, few enough that activations stay small.
const defaultBatch = 512

// SessionOptions configure a session; zero fields take their defaults.
type SessionOptions struct {
	// Context is the longest sequence, prompt and generated text together; by
	// default the model's, but at most 4096.
	Context int
	// Batch is how many prompt tokens are processed at once; 512 by default.
	Batch int
	// KV is the dtype of the cache, f16 or f32. By default f16, or f32 on an
	// engine in exact mode.
	KV dtype.DType
}

// defaultContext bounds the cache that a session takes without being asked to.
const defaultContext = 4096

// Session is one sequence of tokens on a model: a context of the engine and a KV
// cache. One goroutine at a time drives it: a method that finds another inside
// fails with fucina.ErrBusy.
type Session struct {
	m      *Model
	c      *fucina.Context
	opt    SessionOptions
	angles fucina.Tensor // {pos pair cos_sin}
	cache  []kv
	past   atomic.Int64
	busy   atomic.Bool
	closed bool // guarded by busy
}

// kv is one layer's cache: views of the first tokens are what attention reads.
type kv struct {
	k fucina.Tensor // {key kv_head d_head}
	v fucina.Tensor // {key kv_head d_head}
}

// NewSession returns an empty session.
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
	switch opt.KV {
	case dtype.Invalid:
		opt.KV = dtype.F16
		if m.eng.Exact() {
			opt.KV = dtype.F32
		}
	case dtype.F16, dtype.F32:
	default:
		return nil, fmt.Errorf("llm: KV cache of %s, want f16 or f32", opt.KV)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, fmt.Errorf("llm: session of a model: %w", fucina.ErrClosed)
	}
	c, err := m.eng.NewContext()
	if err != nil {
		return nil, fmt.Errorf("llm: %w", err)
	}
	s := &Session{m: m, c: c, opt: opt}
	if s.angles, err = m.eng.RoPETable(m.params.RoPE, opt.Context, "pos"); err != nil {
		return nil, errors.Join(fmt.Errorf("llm: %w", err), c.Close())
	}
	key, head := fucina.Ax("key", opt.Context), fucina.Ax("kv_head", m.params.KVHeads)
	for range m.params.Layers {
		k, err := m.eng.Empty(opt.KV, key, head, fucina.Ax("d_head", m.params.KeyLength))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("llm: KV cache: %w", err), s.release())
		}
		v, err := m.eng.Empty(opt.KV, key, head, fucina.Ax("d_head", m.params.ValueLength))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("llm: KV cache: %w", err), k.Release(), s.release())
		}
		s.cache = append(s.cache, kv{k, v})
	}
	m.sessions++
	return s, nil
}

func (s *Session) release() error {
	errs := []error{s.angles.Release()}
	for _, l := range s.cache {
		errs = append(errs, l.k.Release(), l.v.Release())
	}
	s.cache = nil
	return errors.Join(append(errs, s.c.Close())...)
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

// Close gives the cache back and ends the session. A second Close does nothing.
func (s *Session) Close() error {
	if err := s.enter(); errors.Is(err, fucina.ErrClosed) {
		return nil
	} else if err != nil {
		return err
	}
	defer s.exit()
	s.closed = true
	err := s.release()
	s.m.mu.Lock()
	s.m.sessions--
	s.m.mu.Unlock()
	return err
}

// Model returns the session's model.
func (s *Session) Model() *Model { return s.m }

// Past returns how many tokens the session holds.
func (s *Session) Past() int { return int(s.past.Load()) }

// Context returns how many tokens the session can hold.
func (s *Session) Context() int { return s.opt.Context }

// Rewind forgets all but the first n tokens.
func (s *Session) Rewind(n int) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.exit()
	if past := s.Past(); n < 0 || n > past {
		return fmt.Errorf("llm: rewind to %d tokens of %d", n, past)
	}
	s.past.Store(int64(n))
	return nil
}

// Decode appends ids to the sequence and writes the logits that follow the last of
// them to logits, one per vocabulary entry; a nil slice skips them. After an
// error the sequence is what it was, save that whole batches before the failing
// one stay.
//
// It fails with ErrContextFull if the sequence would outgrow the session, and with
// ctx's error if ctx is done between ops or during a wait.
func (s *Session) Decode(ctx context.Context, ids []int32, logits []float32) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.exit()
	if len(ids) == 0 {
		return errors.New("llm: decode of no tokens")
	}
	if logits != nil && len(logits) != s.m.params.Vocabulary {
		return fmt.Errorf("llm: room for %d logits, want %d", len(logits), s.m.params.Vocabulary)
	}
	if past := s.Past(); len(ids) > s.opt.Context-past {
		return fmt.Errorf("llm: %w: %d tokens after %d in a context of %d", ErrContextFull, len(ids), past, s.opt.Context)
	}
	for i, id := range ids {
		if id < 0 || int(id) >= s.m.params.Vocabulary {
			return fmt.Errorf("llm: token %d at %d, the vocabulary has %d", id, i, s.m.params.Vocabulary)
		}
	}
	s.c.SetCancel(ctx)
	defer s.c.SetCancel(context.Background())
	for len(ids) > 0 {
		n := min(len(ids), s.opt.Batch)
		out := logits
		if n < len(ids) {
			out = nil
		}
		if err := s.step(ctx, ids[:n], out); err != nil {
			return fmt.Errorf("llm: %w", err)
		}
		s.past.Add(int64(n))
		ids = ids[n:]
	}
	return nil
}

// step runs the network on one batch.
func (s *Session) step(ctx context.Context, ids []int32, logits []float32) error {
	f := flow{ctx: ctx, c: s.c, past: s.Past()}
	x := f.take(fucina.FromSlice(s.c, ids, fucina.Ax("seq", len(ids))))
	x = f.then(x, f.take(s.m.tokenEmbd.GetRows(s.c, x, "vocab")))
	angles := f.take(s.angles.Narrow(s.c, "pos", f.past, len(ids)))
	for i := range s.m.layers {
		if f.stop() {
			break
		}
		x = s.attention(&f, i, x, angles)
		x = s.feedForward(&f, i, x)
	}
	f.drop(angles)
	if logits != nil {
		// Only the last token's row is wanted, so only it goes through the output.
		x = f.then(x, f.take(x.Narrow(s.c, "seq", len(ids)-1, 1)))
		x = f.then(x, f.take(x.RMSNorm(s.c, s.m.outputNorm, "d", s.m.params.NormEpsilon)))
		x = f.then(x, f.take(x.Dot(s.c, s.m.output, "d")))
		if f.err == nil {
			f.fail(fucina.ReadInto(ctx, x, logits))
		}
	}
	f.drop(x)
	return f.err
}

// attention is the first half of block i: x plus attention over its norm.
func (s *Session) attention(f *flow, i int, x, angles fucina.Tensor) fucina.Tensor {
	p, l, c := &s.m.params, &s.m.layers[i], s.c
	h := f.take(x.RMSNorm(c, l.attnNorm, "d", p.NormEpsilon))
	q := f.take(h.Dot(c, l.q, "d"))
	k := f.take(h.Dot(c, l.k, "d"))
	v := f.take(h.Dot(c, l.v, "d"))
	f.drop(h)
	q = f.then(q, f.take(q.Split(c, "q", fucina.Ax("head", p.Heads), fucina.Ax("d_head", p.KeyLength))))
	k = f.then(k, f.take(k.Split(c, "k", fucina.Ax("kv_head", p.KVHeads), fucina.Ax("d_head", p.KeyLength))))
	v = f.then(v, f.take(v.Split(c, "v", fucina.Ax("kv_head", p.KVHeads), fucina.Ax("d_head", p.ValueLength))))
	pos := f.take(angles.Rename(c, "pos", "seq"))
	q = f.then(q, f.take(q.RoPE(c, pos, p.RoPEMode, "seq", "d_head")))
	k = f.then(k, f.take(k.RoPE(c, pos, p.RoPEMode, "seq", "d_head")))
	f.drop(pos)
	s.remember(f, s.cache[i].k, k)
	s.remember(f, s.cache[i].v, v)
	n := 1
	if f.err == nil {
		n, f.err = x.Dim("seq")
	}
	keys := f.take(s.cache[i].k.Narrow(c, "key", 0, f.past+n))
	values := f.take(s.cache[i].v.Narrow(c, "key", 0, f.past+n))
	y := f.take(fucina.Attention(c, q, keys, values, fucina.AttentionOptions{
		Dim:   "d_head",
		Scale: float32(1 / math.Sqrt(float64(p.KeyLength))),
		Past:  f.past,
	}))
	f.drop(q)
	f.drop(keys)
	f.drop(values)
	y = f.then(y, f.take(y.Merge(c, "o", "head", "d_head")))
	y = f.then(y, f.take(y.Dot(c, l.attnOut, "o")))
	return f.add(x, y)
}

// remember writes the new tokens' rows of t {seq kv_head d_head} into the cache,
// and drops t.
func (s *Session) remember(f *flow, cache, t fucina.Tensor) {
	if f.err == nil {
		n, err := t.Dim("seq")
		f.fail(err)
		rows := f.take(cache.Narrow(s.c, "key", f.past, n))
		t = f.then(t, f.take(t.Rename(s.c, "seq", "key")))
		if f.err == nil {
			f.fail(rows.CopyFrom(s.c, t))
		}
		f.drop(rows)
	}
	f.drop(t)
}

// feedForward is the second half of block i: x plus the gated MLP of its norm.
func (s *Session) feedForward(f *flow, i int, x fucina.Tensor) fucina.Tensor {
	l, c := &s.m.layers[i], s.c
	h := f.take(x.RMSNorm(c, l.ffnNorm, "d", s.m.params.NormEpsilon))
	gate := f.take(h.Dot(c, l.gate, "d"))
	up := f.take(h.Dot(c, l.up, "d"))
	f.drop(h)
	y := f.take(gate.SwiGLU(c, up))
	f.drop(gate)
	f.drop(up)
	y = f.then(y, f.take(y.Dot(c, l.down, "ff")))
	return f.add(x, y)
}

// flow carries the first error through a chain of ops, so that the chain reads
// like the network. After an error, tensors are zero and every op fails, without
// effect.
type flow struct {
	ctx  context.Context
	c    *fucina.Context
	past int // tokens before the batch
	err  error
}

func (f *flow) fail(err error) {
	if f.err == nil {
		f.err = err
	}
}

// stop reports whether the chain has ended, also because its context has.
func (f *flow) stop() bool {
	if f.err == nil {
		f.err = f.ctx.Err()
	}
	return f.err != nil
}

func (f *flow) take(t fucina.Tensor, err error) fucina.Tensor {
	f.fail(err)
	return t
}

func (f *flow) drop(t fucina.Tensor) {
	if t != (fucina.Tensor{}) {
		f.fail(t.Release())
	}
}

// then drops old and goes on with fresh, which was made from it.
func (f *flow) then(old, fresh fucina.Tensor) fucina.Tensor {
	f.drop(old)
	return fresh
}

// add returns x + y and drops both.
func (f *flow) add(x, y fucina.Tensor) fucina.Tensor {
	sum := f.take(x.Add(f.c, y))
	f.drop(x)
	f.drop(y)
	return sum
}
