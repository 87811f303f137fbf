package llm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/llm/internal/kv"
	"github.com/fucina-go/fucina/llm/internal/kv/page"
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
	// generated text. It is a limit, and reserves no memory. The default is Model.Context(),
	// but at most 4096. The angles of a model with LongRoPE depend on it.
	Context int
	// Batch is the number of prompt tokens that go through the network at once. The default
	// is 512.
	Batch int
	// KV is the dtype of the cache: f16, f32 or q8_0. The default is f16, or f32 on an
	// engine in exact mode. A cache in q8_0 needs about half as much memory as one in f16,
	// and the sizes of the heads must be multiples of 32. Each format has a cache of
	// Options.CacheTokens.
	KV dtype.DType
	// KeepWindows keeps the keys and values that no later token sees, in the blocks that see
	// only a window of tokens. Rewind and Fork then need not decode tokens again. By default,
	// their memory is given back.
	KeepWindows bool
}

// Session is one sequence of tokens on a model. Its keys and values lie in pages of the model's
// cache, some of which it may share with other sessions. One goroutine at a time drives a
// session. A method that is called while another method or a generation uses the session fails
// with fucina.ErrBusy, except Past, Context and Model, which may be called at any time.
//
// Sessions of one model take turns: one step of the network runs at a time.
type Session struct {
	m      *Model
	batch  int // SessionOptions.Batch
	limit  int // SessionOptions.Context
	opt    page.SequenceOptions
	angles *net.Angles
	past   atomic.Int64 // the number of tokens
	busy   atomic.Bool
	closed bool // guarded by busy

	cache *cache
	// seq has the tokens, and the pages of their rows in pool. If pool is no longer the pool
	// of the cache, the rows are lost. Both are guarded by the runner's mu, and the tokens of
	// seq also by busy.
	seq  *page.Sequence
	pool *page.Pool

	// The fields below are guarded by busy.

	generated []bool        // for each token, whether it was generated
	tables    [][]int32     // for each group of blocks, the table of seq in the current step
	copies    []page.Copy   // what the current step copies before it writes
	one       [1]int32      // the argument of Next
	logits    []float32     // the slice of room
	keep      bool          // whether compute sets hidden
	hidden    fucina.Tensor // the norm of the last block's output {seq d}, Shared
	failed    int           // runner.failed when hidden was computed
}

// NewSession returns an empty session. Close it before the model.
//
// The session needs memory as it decodes tokens. On the host, that is a page of 32 tokens at a
// time. A device allocates the memory of the whole cache when the first session decodes. If
// there is too little, that call fails with fucina.ErrNoMemory, or on a device with
// fucina.ErrOutOfMemory.
func (m *Model) NewSession(opt SessionOptions) (*Session, error) { return m.newSession(opt, false) }

// newSession implements NewSession. A private session shares pages only with its forks.
func (m *Model) newSession(opt SessionOptions, private bool) (*Session, error) {
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
	angles, variant, err := m.net.NewAngles(opt.Context)
	if err != nil {
		return nil, fmt.Errorf("llm: %w", err)
	}
	s := &Session{
		m: m, batch: opt.Batch, limit: opt.Context, angles: angles,
		// The slices of the sequence grow with it, because opt.Context may be very large.
		opt: page.SequenceOptions{Key: page.Key{Variant: variant}, Private: private, KeepWindows: opt.KeepWindows, Slack: page.Rows, Tokens: min(opt.Context, defaultContext)},
	}
	s.generated = make([]bool, 0, s.opt.Tokens)
	if err := m.addSession(s, func() (err error) {
		s.cache, err = m.steps.cacheOf(opt.KV)
		return err
	}); err != nil {
		return nil, err
	}
	return s, nil
}

// addSession counts the session s of m, after open has made its sequence or its cache. It calls
// open while it holds the lock of all sequences.
func (m *Model) addSession(s *Session, open func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return fmt.Errorf("llm: session of a model: %w", fucina.ErrClosed)
	}
	m.steps.mu.Lock()
	defer m.steps.mu.Unlock()
	err := open()
	if err == nil {
		err = s.current()
	}
	if err != nil {
		return fmt.Errorf("llm: %w", err)
	}
	s.tables = make([][]int32, len(s.cache.pages.Groups()))
	m.sessions++
	return nil
}

// current makes seq a sequence of the pool of the cache. If the rows of the tokens are lost, the
// new sequence has only the tokens. The caller holds the runner's mu.
func (s *Session) current() error {
	if err := s.cache.open(s.m.eng); err != nil {
		return err
	}
	if s.pool == s.cache.pool {
		return nil
	}
	seq := s.cache.pool.NewSequence(s.opt)
	if s.seq != nil {
		seq.Append(s.seq.IDs())
	}
	s.seq, s.pool = seq, s.cache.pool
	return nil
}

// Fork returns a session with the tokens and options of s. The two share the memory of the
// tokens that they have in common. Close it before the model.
func (s *Session) Fork() (*Session, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.exit()
	f := &Session{m: s.m, batch: s.batch, limit: s.limit, opt: s.opt, angles: s.angles, cache: s.cache}
	f.generated = append(make([]bool, 0, cap(s.generated)), s.generated...)
	f.past.Store(s.past.Load())
	err := s.m.addSession(f, func() error {
		if err := s.current(); err != nil {
			return err
		}
		f.seq, f.pool = s.seq.Fork(), s.pool
		return nil
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

// busyError is the error of a call that finds its session in use. The text of fucina.ErrBusy is
// about contexts, so it is not part of the message.
type busyError struct{}

func (busyError) Error() string {
	return "llm: session in use: another call or a generation has not ended; wait for it, or give each goroutine a session of its own"
}

func (busyError) Unwrap() error { return fucina.ErrBusy }

// enter claims the session for the caller until exit.
func (s *Session) enter() error {
	if !s.busy.CompareAndSwap(false, true) {
		return busyError{}
	}
	if s.closed {
		s.exit()
		return fmt.Errorf("llm: session: %w", fucina.ErrClosed)
	}
	return nil
}

func (s *Session) exit() { s.busy.Store(false) }

// Close ends the session. The pages of the cache that only the session holds become free, except
// those that the model keeps for later prompts; see Options.PrefixTokens. While another call or a
// generation uses the session, Close fails with fucina.ErrBusy and releases nothing. A second Close
// does nothing.
func (s *Session) Close() error {
	if err := s.enter(); errors.Is(err, fucina.ErrClosed) {
		return nil
	} else if err != nil {
		return err
	}
	defer s.exit()
	s.closed = true
	s.logits, s.generated = nil, nil
	r := &s.m.steps
	r.mu.Lock()
	if s.pool == s.cache.pool {
		s.seq.Release()
		s.cache.giveBack()
	}
	s.seq = nil
	r.mu.Unlock()
	s.m.mu.Lock()
	s.m.sessions--
	s.m.mu.Unlock()
	return nil
}

// Model returns the session's model.
func (s *Session) Model() *Model { return s.m }

// Past returns the number of tokens in the session.
func (s *Session) Past() int { return int(s.past.Load()) }

// Context returns the largest number of tokens that the session can hold.
func (s *Session) Context() int { return s.limit }

// Rewind removes all tokens except the first n. If the model has blocks that see only a window
// of tokens, the next Decode may have to decode some of the n tokens again, because the memory
// of what these blocks no longer saw was given back; see SessionOptions.KeepWindows.
func (s *Session) Rewind(n int) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.exit()
	return s.rewind(n)
}

// rewind implements Rewind. The caller has claimed the session.
func (s *Session) rewind(n int) error {
	r := &s.m.steps
	r.mu.Lock()
	defer r.mu.Unlock()
	err := s.current()
	if err == nil {
		err = s.seq.Rewind(n)
	}
	if err != nil {
		return fmt.Errorf("llm: %w", err)
	}
	s.cache.giveBack()
	s.generated = s.generated[:n]
	s.past.Store(int64(n))
	return nil
}

// IDs returns the tokens of the session.
func (s *Session) IDs() ([]int32, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.exit()
	return slices.Clone(s.ids()), nil
}

// ids returns the tokens of the session, until it changes. The caller has claimed the session.
func (s *Session) ids() []int32 {
	s.m.steps.mu.Lock()
	defer s.m.steps.mu.Unlock()
	return s.seq.IDs()
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
	n, held := 0, s.ids()
	for n < len(held) && n < len(ids)-1 && held[n] == ids[n] {
		n++
	}
	return ids[n:], s.rewind(n)
}

// Decode appends ids to the sequence, and writes the logits that follow the last of them to
// logits, one for each vocabulary entry. If logits is nil, they are not computed. If a batch
// fails, the batches before it remain in the sequence and the rest are not added.
//
// Keys and values that the model's cache has already, because another session has or had the
// same tokens from the first one on, are not computed again; see Options.PrefixTokens. Their tokens
// count as a batch before the first one.
//
// Decode fails with ErrContextFull if the sequence would exceed the length of the session,
// with ErrCacheFull if the model's cache has too few free rows, with ErrFileChanged if the
// model's file was truncated or overwritten, and with ctx's error if ctx is done. It checks ctx
// between operations and while it waits, also for its turn. On the CPU it also checks ctx within
// operations, at least every 5 ms; a device first ends the work that it was given. After an
// error the session remains usable: decoding the missing tokens gives the same logits as an
// uninterrupted Decode.
//
// ids are tokens of a prompt. Use Next for a token that was generated.
func (s *Session) Decode(ctx context.Context, ids []int32, logits []float32) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.exit()
	return s.decode(ctx, ids, false, logits)
}

// Next is Decode for one token that was generated from the logits of the call before. A device
// may compute generated tokens with other kernels than those of a prompt, and so with other
// rounding, which a prompt that reuses their keys and values shares. On the CPU, Next(ctx, id, logits) has the bits of Decode(ctx, []int32{id}, logits).
func (s *Session) Next(ctx context.Context, id int32, logits []float32) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.exit()
	s.one[0] = id
	return s.decode(ctx, s.one[:], true, logits)
}

// decode implements Decode, and Next if generated is set. The caller has claimed the session.
func (s *Session) decode(ctx context.Context, ids []int32, generated bool, logits []float32) error {
	if err := s.check(ids); err != nil {
		return err
	}
	if logits != nil && len(logits) != s.m.net.Params().Vocabulary {
		return fmt.Errorf("llm: room for %d logits, want %d", len(logits), s.m.net.Params().Vocabulary)
	}
	n, err := s.takePrefix(ids)
	if err != nil {
		return err
	}
	for ids = ids[n:]; len(ids) > 0; ids = ids[n:] {
		n = min(len(ids), s.batch)
		out := logits
		if n < len(ids) {
			out = nil
		}
		if err := s.advance(ctx, ids[:n], generated, out); err != nil {
			return fmt.Errorf("llm: %w", err)
		}
	}
	return nil
}

// takePrefix appends the first of ids to the sequence if the cache has their keys and values. It
// returns their number. At least one id remains.
func (s *Session) takePrefix(ids []int32) (int, error) {
	if len(ids) <= 1 {
		return 0, nil
	}
	r := &s.m.steps
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := s.current(); err != nil {
		return 0, fmt.Errorf("llm: %w", err)
	}
	n := s.seq.Prefix(ids)
	s.count(n, false)
	return n, nil
}

// count counts n tokens that were appended to the sequence.
func (s *Session) count(n int, generated bool) {
	for range n {
		s.generated = append(s.generated, generated)
	}
	s.past.Add(int64(n))
}

// putBack appends tokens that rewind has removed.
func (s *Session) putBack(ids []int32, generated bool) {
	r := &s.m.steps
	r.mu.Lock()
	defer r.mu.Unlock()
	s.seq.Append(ids)
	s.count(len(ids), generated)
}

// advance appends a batch of tokens to the sequence, after it has computed the tokens of the
// sequence again whose rows are missing. It writes the logits after the last one to logits, if
// that is not nil.
func (s *Session) advance(ctx context.Context, ids []int32, generated bool, logits []float32) error {
	for {
		again, kind, err := s.missing()
		if err != nil {
			return err
		}
		if len(again) > 0 {
			err = s.step(ctx, again, kind, nil)
		} else if err = s.step(ctx, ids, generated, logits); err == nil {
			s.count(len(ids), generated)
			return nil
		}
		if err != nil && !errors.Is(err, errLost) {
			return err
		}
	}
}

// missing returns the first tokens of the sequence whose rows are missing, at most a batch of one
// kind.
func (s *Session) missing() (ids []int32, generated bool, err error) {
	r := &s.m.steps
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := s.current(); err != nil {
		return nil, false, err
	}
	from, to := s.seq.Redo()
	n := 0
	for n < s.batch && from+n < to && s.generated[from+n] == s.generated[from] {
		n++
	}
	return s.seq.IDs()[from : from+n], n > 0 && s.generated[from], nil
}

// errLost reports that the cache has lost the rows of the sequence, so that the step must begin
// with other tokens.
var errLost = errors.New("the rows of the session are lost")

// step computes ids, the next rows of the sequence, and waits for their results.
func (s *Session) step(ctx context.Context, ids []int32, generated bool, logits []float32) error {
	r := &s.m.steps
	c, f, err := r.begin(ctx)
	if err != nil {
		return err
	}
	pages, past, err := s.reserve(len(ids))
	if err == nil {
		err = r.verify(s.compute(c, pages, past, ids, generated, logits))
		s.settle(ids, err == nil)
	}
	return r.end(f, err)
}

// reserve makes room for n rows, and returns the position of the first.
func (s *Session) reserve(n int) (*kv.Cache, int, error) {
	r := &s.m.steps
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.pool != s.cache.pool {
		return nil, 0, errLost
	}
	var err error
	if s.copies, err = s.seq.Reserve(n); err != nil {
		return nil, 0, err
	}
	for g := range s.tables {
		s.tables[g] = s.seq.Table(g)
	}
	past, _ := s.seq.Redo()
	return s.cache.pages, past, nil
}

// settle ends the reservation of rows for ids. If ok, the rows were written.
func (s *Session) settle(ids []int32, ok bool) {
	r := &s.m.steps
	r.mu.Lock()
	defer r.mu.Unlock()
	if ok {
		s.seq.Commit(ids)
		s.cache.used = true
	} else {
		s.seq.Cancel()
	}
	s.cache.giveBack()
}

// compute runs the network on ids in the context c. The room for their rows is reserved, and the
// first has the position past.
func (s *Session) compute(c *fucina.Context, pages *kv.Cache, past int, ids []int32, generated bool, logits []float32) error {
	for _, p := range s.copies {
		if err := pages.CopyPage(c, p.Group, int(p.From), int(p.To)); err != nil {
			return err
		}
	}
	step := &s.m.steps.step
	step.Rows = append(step.Rows[:0], net.Rows{IDs: ids, Past: past, Angles: s.angles, Tables: s.tables})
	if step.Generated = 0; generated {
		step.Generated = len(ids)
	}
	h := s.m.net.Forward(c, step, pages)
	if err := h.Err(); err != nil {
		return err
	}
	if s.keep {
		s.hidden.Release()
		s.hidden, s.failed = h.Shared(), s.m.steps.failed
	}
	if logits == nil {
		return c.Sync()
	}
	// Only the row of the last token goes through the output matrix.
	return fucina.CopyOut(s.m.net.Logits(h.Narrow("seq", len(ids)-1, 1)), logits)
}

// check returns an error if ids cannot be appended to the sequence.
func (s *Session) check(ids []int32) error {
	if len(ids) == 0 {
		return errors.New("llm: decode of no tokens")
	}
	if past, room := s.Past(), s.Context(); len(ids) > room-past {
		return fmt.Errorf("llm: %w: %d tokens after %d in a context of %d", ErrContextFull, len(ids), past, room)
	}
	if past, room := s.Past(), s.cache.shape.Pages*page.Rows; len(ids) > room-past {
		return fmt.Errorf("llm: %w: %d tokens after %d, and it has room for %d in all", ErrCacheFull, len(ids), past, room)
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
