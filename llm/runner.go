package llm

import (
	"context"
	"errors"
	"sync"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/internal/ctxlock"
	"github.com/fucina-go/fucina/llm/internal/kv"
	"github.com/fucina-go/fucina/llm/internal/kv/page"
	"github.com/fucina-go/fucina/llm/internal/net"
)

// ErrCacheFull reports that the cache of a model has too few free rows. It has room again when
// sessions of the model are rewound or closed.
var ErrCacheFull = page.ErrFull

// runner runs the steps of a model's sessions, one at a time and all in one context, because
// their keys and values share the buffers of the model's caches. Every step ends with a wait
// for its work, so that a failure of the device is an error of the step that it belongs to.
type runner struct {
	m *Model

	// turn is held during a step, and guards the fields up to step.
	turn ctxlock.Lock
	c    *fucina.Context // nil before the first step, and after a failure of the device
	// suspect says that a step has failed since the context and the caches were last known to
	// be good: a device may have failed while it wrote to the caches.
	suspect bool
	failed  int // the number of steps that have failed
	step    net.Step

	// mu guards the caches, and the sequences of all sessions. It is held for bookkeeping and while
	// a cache gets its buffers, but not while a device computes. A goroutine that holds both locks
	// has taken turn first.
	mu     sync.Mutex
	caches map[dtype.DType]*cache
}

// cache is the paged cache of one format. If a device fails while it writes to the cache, the cache
// loses all rows, and begins again with other buffers and an empty pool. The sessions keep their
// tokens, and decode them again when they need the rows.
type cache struct {
	shape  kv.Shape
	prefix int // Options.PrefixTokens
	// pages and pool are nil after a failure, until the next use.
	pages *kv.Cache
	pool  *page.Pool
	used  bool       // a step that wrote to pages has succeeded
	kept  bool       // checkCaches reads pages, so giveBack does nothing
	freed []page.Run // scratch space of giveBack
}

// open gives the cache buffers and an empty pool, if it has none.
func (c *cache) open(eng *fucina.Engine) error {
	if c.pool != nil {
		return nil
	}
	pages, err := kv.New(eng, c.shape)
	if err != nil {
		return err
	}
	c.pages, c.used = pages, false
	c.pool = page.New(page.Options{Rows: c.shape.Pages * page.Rows, Windows: pages.Groups(), PrefixRows: max(0, c.prefix)})
	return nil
}

// lose releases the buffers and forgets what they hold.
func (c *cache) lose() {
	if c.pages != nil {
		c.pages.Release()
	}
	c.pages, c.pool = nil, nil
}

// giveBack gives the memory of long runs of free pages back to the system.
func (c *cache) giveBack() {
	if c.kept {
		return
	}
	c.freed = c.pool.AppendFreed(c.freed[:0], c.pages.LeastRun())
	for _, r := range c.freed {
		// Without the discard, the memory remains resident. It fails only if the engine is
		// closed, and the next step says so.
		_ = c.pages.Discard(r.Group, r.From, r.Count)
	}
}

// cacheOf returns the model's cache of the format. The caller holds mu.
func (r *runner) cacheOf(format dtype.DType) (*cache, error) {
	c := r.caches[format]
	if c == nil {
		m := r.m
		c = &cache{shape: m.net.CacheShape(format), prefix: m.prefixTokens}
		if err := c.shape.Check(); err != nil {
			return nil, err
		}
		rows := m.cacheTokens
		if rows == 0 {
			rows = defaultCacheTokens(m.context, m.eng.ProviderInfo().TotalBytes, c.shape.RowBytes())
		}
		if c.prefix == 0 {
			c.prefix = rows / 4
		}
		c.shape.Pages = (rows + page.Rows - 1) / page.Rows
	}
	if err := c.open(r.m.eng); err != nil {
		return nil, err
	}
	r.caches[format] = c
	return c, nil
}

// begin waits for the caller's turn, and returns the context of the steps, with the cancellation
// of ctx and an open frame. The rows of operations belong to prompts until the caller says
// otherwise. The caller ends the turn with end.
func (r *runner) begin(ctx context.Context) (*fucina.Context, fucina.Frame, error) {
	if err := r.turn.Lock(ctx); err != nil {
		return nil, fucina.Frame{}, err
	}
	if err := r.ready(ctx); err != nil {
		r.turn.Unlock()
		return nil, fucina.Frame{}, err
	}
	r.c.SetCancel(ctx)
	r.c.SetGenerated(0)
	return r.c, r.c.Frame(), nil
}

// verify returns the error of the model's file if that has changed, because results that the
// weights gave may then be wrong. Otherwise it returns err, with which the computation ended.
func (r *runner) verify(err error) error {
	if err == nil || errors.Is(err, ErrFileChanged) {
		if changed := r.m.source.Check(); changed != nil {
			return changed // it names the file; err names the operation that read it
		}
	}
	return err
}

// end ends a turn that begin began, and which ended with err. It returns err.
func (r *runner) end(f fucina.Frame, err error) error {
	f.Close()
	r.step.Forget()
	r.c.SetCancel(context.Background())
	if err != nil && !errors.Is(err, ErrCacheFull) && !errors.Is(err, errLost) {
		r.suspect = true
		r.failed++
	}
	r.turn.Unlock()
	return err
}

// ready makes the runner ready for a step, and finds out what a failed step has left. If the
// device has failed, the steps go on in a new context, and caches with lost rows are emptied. It
// fails if ctx is done before that is known. The caller holds turn.
func (r *runner) ready(ctx context.Context) (err error) {
	if r.suspect && r.c != nil {
		if err := r.checkContext(ctx); err != nil {
			return err
		}
	}
	if r.c == nil {
		if r.c, err = r.m.eng.NewContext(); err != nil {
			return err
		}
	}
	if !r.suspect {
		return nil
	}
	if r.suspect, err = r.checkCaches(ctx); err != nil || !r.suspect {
		return err
	}
	// The check itself may have failed on the device.
	return r.ready(ctx)
}

// checkContext closes the context if its work has failed. It fails if ctx is done before that is
// known.
func (r *runner) checkContext(ctx context.Context) error {
	r.c.SetCancel(ctx)
	failed := r.c.Sync()
	r.c.SetCancel(context.Background())
	if err := ctx.Err(); err != nil {
		return err
	}
	if failed != nil {
		// The device computes nothing more for this context. The steps that the failures belong
		// to have returned them.
		_ = r.c.Close()
		r.c = nil
	}
	return nil
}

// checkCaches empties the caches whose contents cannot be read, and returns whether there was
// one. If it fails because ctx is done, it returns true. It does not hold mu while it reads. The
// buffers of a cache remain meanwhile, because only the holder of turn releases them while
// sessions are open.
func (r *runner) checkCaches(ctx context.Context) (lost bool, err error) {
	r.c.SetCancel(ctx)
	defer r.c.SetCancel(context.Background())
	for _, c := range r.keepUsed() {
		bad := c.pages.Check(r.c) != nil
		if bad {
			err = ctx.Err()
		}
		r.mu.Lock()
		c.kept = false
		if bad && err == nil {
			c.lose()
			lost = true
		} else {
			c.giveBack()
		}
		r.mu.Unlock()
	}
	return lost || err != nil, err
}

// keepUsed returns the caches that have rows, and sets their kept. It empties the others.
func (r *runner) keepUsed() (used []*cache) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.caches {
		switch {
		case c.pages == nil:
		case c.used:
			c.kept = true
			used = append(used, c)
		default:
			c.lose()
		}
	}
	return used
}

// close releases the caches and the context. No session is open.
func (r *runner) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.caches {
		c.lose()
	}
	if r.c == nil {
		return nil
	}
	return r.c.Close()
}
