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
	angles fucina.Tensor // {pos pair cos_sin}
	local  fucina.Tensor // likewise, of the blocks with a window; zero if there are none
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
	if s.angles, err = m.eng.RoPETable(arch.Stretched(&m.params, opt.Context), opt.Context, "pos"); err != nil {
		return nil, errors.Join(fmt.Errorf("llm: %w", err), c.Close())
	}
	if m.params.Window > 0 {
		if s.local, err = m.eng.RoPETable(m.params.LocalRoPE, opt.Context, "pos"); err != nil {
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
			return nil, errors.Join(fmt.Errorf("llm: KV cache: %w", err), k.Release(), s.release())
		}
		s.cache = append(s.cache, kv{k, v})
	}
	m.sessions++
	return s, nil
}

func (s *Session) release() error {
	errs := []error{s.angles.Release()}
	if s.local != (fucina.Tensor{}) {
		errs = append(errs, s.local.Release())
	}
	for _, l := range s.cache {
		errs = append(errs, l.k.Release(), l.v.Release())
	}
	s.cache, s.logits = nil, nil
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
func (s *Session) step(ctx context.Context, ids []int32, logits []float32) error {
	f := flow{ctx: ctx, c: s.c, past: s.Past(), n: len(ids)}
	x := s.blocks(&f, ids)
	if logits != nil {
		// Only the last token's row is wanted, so only it goes through the output.
		s.readLogits(&f, x, len(ids)-1, 1, logits)
	}
	f.drop(x)
	return s.checked(f.err)
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
func (s *Session) blocks(f *flow, ids []int32) fucina.Tensor {
	p := &s.m.params
	x := f.take(fucina.FromSlice(s.c, ids, fucina.Ax("seq", len(ids))))
	x = f.then(x, f.take(s.m.tokenEmbd.GetRows(s.c, x, "vocab")))
	if p.EmbeddingScale != 0 {
		x = f.then(x, f.take(x.Scale(s.c, p.EmbeddingScale)))
	}
	angles, local := f.positions(s.angles), fucina.Tensor{}
	if p.Window > 0 {
		local = f.positions(s.local)
	}
	for i := range s.m.layers {
		if f.stop() {
			break
		}
		if p.Local(i) {
			x = s.attention(f, i, x, local, p.Window)
		} else {
			x = s.attention(f, i, x, angles, 0)
		}
		x = s.feedForward(f, i, x)
	}
	f.drop(angles)
	f.drop(local)
	return x
}

// readLogits writes the logits of n rows of x {seq d}, from row first, to logits.
func (s *Session) readLogits(f *flow, x fucina.Tensor, first, n int, logits []float32) {
	p := &s.m.params
	y := f.take(x.Narrow(s.c, "seq", first, n))
	y = f.then(y, f.take(y.RMSNorm(s.c, s.m.outputNorm, "d", p.NormEpsilon)))
	y = f.then(y, f.project(y, &s.m.output, "d"))
	if p.FinalSoftCap != 0 {
		y = f.then(y, f.take(y.SoftCap(s.c, p.FinalSoftCap)))
	}
	if f.err == nil {
		f.fail(fucina.ReadInto(f.ctx, y, logits))
	}
	f.drop(y)
}

// attention is the first half of block i: x plus attention over its norm.
func (s *Session) attention(f *flow, i int, x, angles fucina.Tensor, window int) fucina.Tensor {
	p, l, c := &s.m.params, &s.m.layers[i], s.c
	h := f.take(x.RMSNorm(c, l.attnNorm, "d", p.NormEpsilon))
	q := f.project(h, &l.q, "d")
	k := f.project(h, &l.k, "d")
	v := f.project(h, &l.v, "d")
	f.drop(h)
	q = f.then(q, f.take(q.Split(c, "q", fucina.Ax("head", p.Heads), fucina.Ax("d_head", p.KeyLength))))
	k = f.then(k, f.take(k.Split(c, "k", fucina.Ax("kv_head", p.KVHeads), fucina.Ax("d_head", p.KeyLength))))
	v = f.then(v, f.take(v.Split(c, "v", fucina.Ax("kv_head", p.KVHeads), fucina.Ax("d_head", p.ValueLength))))
	if s.m.family.QKNorm {
		q = f.then(q, f.take(q.RMSNorm(c, l.qNorm, "d_head", p.NormEpsilon)))
		k = f.then(k, f.take(k.RMSNorm(c, l.kNorm, "d_head", p.NormEpsilon)))
	}
	q = f.then(q, f.take(q.RoPE(c, angles, p.RoPEMode, "seq", "d_head")))
	k = f.then(k, f.take(k.RoPE(c, angles, p.RoPEMode, "seq", "d_head")))
	s.remember(f, s.cache[i].k, k)
	s.remember(f, s.cache[i].v, v)
	keys := f.take(s.cache[i].k.Narrow(c, "key", 0, f.past+f.n))
	values := f.take(s.cache[i].v.Narrow(c, "key", 0, f.past+f.n))
	y := f.take(fucina.Attention(c, q, keys, values, fucina.AttentionOptions{
		Dim:     "d_head",
		Scale:   p.AttentionScale,
		SoftCap: p.AttentionSoftCap,
		Past:    f.past,
		Window:  window,
	}))
	f.drop(q)
	f.drop(keys)
	f.drop(values)
	y = f.then(y, f.take(y.Merge(c, "o", "head", "d_head")))
	y = f.then(y, f.project(y, &l.attnOut, "o"))
	if s.m.family.PostNorms {
		y = f.then(y, f.take(y.RMSNorm(c, l.attnPost, "d", p.NormEpsilon)))
	}
	return f.add(x, y)
}

// remember writes the new tokens' rows of t {seq kv_head d_head} into the cache,
// and drops t.
func (s *Session) remember(f *flow, cache, t fucina.Tensor) {
	if f.err == nil {
		rows := f.take(cache.Narrow(s.c, "key", f.past, f.n))
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
	p, l, c := &s.m.params, &s.m.layers[i], s.c
	h := f.take(x.RMSNorm(c, l.ffnNorm, "d", p.NormEpsilon))
	gate := f.project(h, &l.gate, "d")
	up := f.project(h, &l.up, "d")
	f.drop(h)
	var y fucina.Tensor
	if s.m.family.GeGLU {
		y = f.take(up.GeGLU(c, gate))
	} else {
		y = f.take(up.SwiGLU(c, gate))
	}
	f.drop(gate)
	f.drop(up)
	y = f.then(y, f.project(y, &l.down, "ff"))
	if s.m.family.PostNorms {
		y = f.then(y, f.take(y.RMSNorm(c, l.ffnPost, "d", p.NormEpsilon)))
	}
	return f.add(x, y)
}

// flow carries the first error through a chain of ops, so that the chain reads
// like the network. The op that fails gives a zero tensor, and with that as an
// operand the next ones fail too. An op on tensors from before the error may still be
// computed, in vain: what would outlast the batch, rows of the cache and the logits,
// is only written where there is no error.
type flow struct {
	ctx  context.Context
	c    *fucina.Context
	past int // tokens before the batch
	n    int // tokens in the batch
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

// project returns x times the projection over the axis, with its scale and bias. x is
// the caller's.
func (f *flow) project(x fucina.Tensor, p *projection, axis string) fucina.Tensor {
	y := f.take(x.Dot(f.c, p.weight, axis))
	if p.scale != 1 && !p.scalesBias {
		y = f.then(y, f.take(y.Scale(f.c, p.scale)))
	}
	if p.bias != (fucina.Tensor{}) {
		y = f.then(y, f.take(y.Add(f.c, p.bias)))
	}
	if p.scale != 1 && p.scalesBias {
		y = f.then(y, f.take(y.Scale(f.c, p.scale)))
	}
	return y
}

// positions returns the rows of a table of angles {pos pair cos_sin} that the batch's
// tokens rotate by, as {seq pair cos_sin}.
func (f *flow) positions(table fucina.Tensor) fucina.Tensor {
	rows := f.take(table.Narrow(f.c, "pos", f.past, f.n))
	return f.then(rows, f.take(rows.Rename(f.c, "pos", "seq")))
}
