package llm

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/llm/internal/arch"
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
	opt    SessionOptions
	angles table
	local  table // of the blocks with a window; zero if there are none
	cache  []kv
	past   atomic.Int64
	busy   atomic.Bool
	closed bool      // guarded by busy
	ids    []int32   // the tokens that the cache holds; guarded by busy
	logits []float32 // see room; guarded by busy
}

// kv is one layer's cache: views of the first tokens are what attention reads. That
// of a block with a window holds all tokens too, of which attention reads the last.
type kv struct {
	k fucina.Tensor // {key kv_head d_head}
	v fucina.Tensor // {key kv_head d_head}
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
	if caches := op.Attention.Inputs()[1].Formats; !caches.Has(opt.KV) {
		return nil, fmt.Errorf("llm: KV cache of %s, want %s", opt.KV, caches)
	}
	p, block := &m.params, opt.KV.BlockSize()
	if p.KeyLength%block != 0 || p.ValueLength%block != 0 {
		return nil, fmt.Errorf("llm: KV cache of %s: heads of %d and %d elements, want multiples of %d", opt.KV, p.KeyLength, p.ValueLength, block)
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
	// A longer sequence grows the slice: its length may be out of all proportion.
	ids := make([]int32, 0, min(opt.Context, defaultContext))
	s := &Session{m: m, c: c, opt: opt, ids: ids}
	if s.angles.Tensor, err = m.eng.RoPETable(arch.Stretched(&m.params, opt.Context), opt.Context, "pos"); err != nil {
		return nil, errors.Join(fmt.Errorf("llm: %w", err), c.Close())
	}
	if m.params.Window > 0 {
		if s.local.Tensor, err = m.eng.RoPETable(m.params.LocalRoPE, opt.Context, "pos"); err != nil {
			return nil, errors.Join(fmt.Errorf("llm: %w", err), s.release())
		}
	}
	key, head := fucina.Ax("key", opt.Context), fucina.Ax("kv_head", m.params.KVHeads)
	for range m.params.Layers {
		k, err := m.eng.Empty(opt.KV, key, head, fucina.Ax("d_head", m.params.KeyLength))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("llm: KV cache: %w", err), s.release())
		}
		v, err := m.eng.Empty(opt.KV, key, head, fucina.Ax("d_head", m.params.ValueLength))
		if err != nil {
			k.Release()
			return nil, errors.Join(fmt.Errorf("llm: KV cache: %w", err), s.release())
		}
		s.cache = append(s.cache, kv{k, v})
	}
	m.sessions++
	return s, nil
}

func (s *Session) release() error {
	s.angles.Release()
	s.local.Release()
	for _, l := range s.cache {
		l.k.Release()
		l.v.Release()
	}
	s.cache, s.logits = nil, nil
	return s.c.Close()
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
	s.ids = s.ids[:n]
	s.past.Store(int64(n))
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
	s.ids = s.ids[:n]
	s.past.Store(int64(n))
	return ids[n:], nil
}

// keep records that the cache holds ids, behind what it held. The caller has claimed
// the session.
func (s *Session) keep(ids []int32) {
	s.ids = append(s.ids, ids...)
	s.past.Add(int64(len(ids)))
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
	if logits != nil && len(logits) != s.m.params.Vocabulary {
		return fmt.Errorf("llm: room for %d logits, want %d", len(logits), s.m.params.Vocabulary)
	}
	s.c.SetCancel(ctx)
	defer s.c.SetCancel(nil)
	for len(ids) > 0 {
		n := min(len(ids), s.opt.Batch)
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
	if past := s.Past(); len(ids) > s.opt.Context-past {
		return fmt.Errorf("llm: %w: %d tokens after %d in a context of %d", ErrContextFull, len(ids), past, s.opt.Context)
	}
	for i, id := range ids {
		if id < 0 || int(id) >= s.m.params.Vocabulary {
			return fmt.Errorf("llm: token %d at %d, the vocabulary has %d", id, i, s.m.params.Vocabulary)
		}
	}
	return nil
}

// room returns space for the logits after n tokens, which the session keeps. The
// caller has claimed the session.
func (s *Session) room(n int) []float32 {
	if n *= s.m.params.Vocabulary; n > len(s.logits) {
		s.logits = make([]float32, n)
	}
	return s.logits[:n]
}

// step runs the network on one batch.
func (s *Session) step(ids []int32, logits []float32) error {
	f := s.c.Frame()
	defer f.Close()
	x := s.blocks(ids)
	err := x.Err()
	if err == nil && logits != nil {
		// Only the last token's row is wanted, so only it goes through the output.
		err = fucina.CopyOut(s.output(x.Narrow("seq", len(ids)-1, 1)), logits)
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

// blocks runs a batch through all blocks, and returns what comes out of the last,
// {seq d}.
func (s *Session) blocks(ids []int32) fucina.Tensor {
	p, c := &s.m.params, s.c
	f := c.Frame()
	past, n := s.Past(), len(ids)
	x := s.m.tokenEmbd.On(c).Gather(fucina.FromSlice(c, ids, fucina.Ax("seq", n)), "vocab")
	if p.EmbeddingScale != 0 {
		x = x.Move().Scale(float64(p.EmbeddingScale))
	}
	angles, local := s.angles.positions(c, past, n), fucina.Tensor{}
	if p.Window > 0 {
		local = s.local.positions(c, past, n)
	}
	for i := range s.m.layers {
		window := 0
		turn := angles
		if p.Local(i) {
			window, turn = p.Window, local
		}
		// The value before a block ends with it.
		err := fucina.Replace(&x, s.attention(i, x, turn, window))
		if err == nil {
			err = fucina.Replace(&x, s.feedForward(i, x))
		}
		if err != nil {
			return f.Return(c.Fail(err))
		}
	}
	return f.Return(x)
}

// output returns the logits {seq vocab} of the rows x {seq d}.
func (s *Session) output(x fucina.Tensor) fucina.Tensor {
	p := &s.m.params
	f := x.Frame()
	y := s.m.output.apply(x.RMSNorm(s.m.outputNorm, "d", float64(p.NormEpsilon)).Move(), "d")
	if p.FinalSoftCap != 0 {
		y = y.Move().SoftCap(float64(p.FinalSoftCap))
	}
	return f.Return(y)
}

// attention is the first half of block i: x plus attention over its norm. What is large
// is moved into its last use, so that a batch needs no more memory than it must.
func (s *Session) attention(i int, x, angles fucina.Tensor, window int) fucina.Tensor {
	p, l := &s.m.params, &s.m.layers[i]
	eps := float64(p.NormEpsilon)
	f := x.Frame()
	h := x.RMSNorm(l.attnNorm, "d", eps)
	q := l.q.apply(h, "d").Move().Split("q", fucina.Ax("head", p.Heads), fucina.Ax("d_head", p.KeyLength))
	k := l.k.apply(h, "d").Move().Split("k", fucina.Ax("kv_head", p.KVHeads), fucina.Ax("d_head", p.KeyLength))
	v := l.v.apply(h.Move(), "d").Move().Split("v", fucina.Ax("kv_head", p.KVHeads), fucina.Ax("d_head", p.ValueLength))
	if s.m.family.QKNorm {
		q, k = q.Move().RMSNorm(l.qNorm, "d_head", eps), k.Move().RMSNorm(l.kNorm, "d_head", eps)
	}
	q = q.Move().RoPE(angles, p.RoPEMode, "seq", "d_head")
	k = k.Move().RoPE(angles, p.RoPEMode, "seq", "d_head")
	past, n := s.Past(), angles.Dim("seq")
	keys := s.cache[i].k.On(s.c).Narrow("key", 0, past+n)
	values := s.cache[i].v.On(s.c).Narrow("key", 0, past+n)
	keys.Narrow("key", past, n).CopyFrom(k.Move().Rename("seq", "key").Move())
	values.Narrow("key", past, n).CopyFrom(v.Move().Rename("seq", "key").Move())
	y := fucina.Attention(q.Move(), keys, values, fucina.AttentionOptions{
		Dim:     "d_head",
		Scale:   float64(p.AttentionScale),
		SoftCap: float64(p.AttentionSoftCap),
		Past:    past,
		Window:  window,
	})
	y = l.attnOut.apply(y.Move().Merge("o", "head", "d_head").Move(), "o")
	if s.m.family.PostNorms {
		y = y.Move().RMSNorm(l.attnPost, "d", eps)
	}
	return f.Return(x.Add(y.Move()))
}

// feedForward is the second half of block i: x plus the gated MLP of its norm.
func (s *Session) feedForward(i int, x fucina.Tensor) fucina.Tensor {
	p, l := &s.m.params, &s.m.layers[i]
	eps := float64(p.NormEpsilon)
	f := x.Frame()
	h := x.RMSNorm(l.ffnNorm, "d", eps)
	gate, up := l.gate.apply(h, "d"), l.up.apply(h.Move(), "d")
	var y fucina.Tensor
	if s.m.family.GeGLU {
		y = up.Move().GeGLU(gate.Move())
	} else {
		y = up.Move().SwiGLU(gate.Move())
	}
	y = l.down.apply(y.Move(), "ff")
	if s.m.family.PostNorms {
		y = y.Move().RMSNorm(l.ffnPost, "d", eps)
	}
	return f.Return(x.Add(y.Move()))
}

// apply returns x times the projection over the axis, with its scale and bias. The result
// belongs to the innermost frame.
func (p *projection) apply(x fucina.Tensor, axis string) fucina.Tensor {
	y := x.Dot(p.weight, axis)
	if p.scale != 1 && !p.scalesBias {
		y = y.Move().Scale(float64(p.scale))
	}
	if !p.bias.IsZero() {
		y = y.Move().Add(p.bias)
	}
	if p.scale != 1 && p.scalesBias {
		y = y.Move().Scale(float64(p.scale))
	}
	return y
}

// table is a table of angles {pos pair cos_sin}.
type table struct{ fucina.Tensor }

// positions returns the rows that the batch's tokens rotate by, as {seq pair cos_sin}.
func (t table) positions(c *fucina.Context, past, n int) fucina.Tensor {
	f := c.Frame()
	return f.Return(t.On(c).Narrow("pos", past, n).Rename("pos", "seq"))
}
