package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/llm"
	"github.com/fucina-go/fucina/providers"
)

// The largest values of flags. They are far above useful values, and the library accepts
// them.
const (
	maxTokens  = 1 << 30
	maxThreads = 1 << 10
)

// minDeviceMemory is the least memory of a device to compute with. What is below is a
// unit left out, as in -device-memory 8.
const minDeviceMemory = 1 << 20

// Values of the context length that have a special meaning.
const (
	defaultLength = -1 // the session's default
	ownLength     = 0  // the length that the model was trained for
)

// defaultPrefix is the value of -cache-prefix that means the default.
const defaultPrefix = -1

// modelFlags are the flags that choose the model and where it runs.
type modelFlags struct {
	path     string
	provider providerName
	threads  *int
	exact    *bool // nil if the environment decides
	batch    *int  // 0 means the session's default
	cache    cacheType
	memory   byteSize // the most to hold on a device

	// The cache of keys and values: its tokens, those of them that it keeps for later prompts,
	// and whether it keeps what no later token sees.
	cacheTokens *int // 0 means the model's default
	cachePrefix *int // defaultPrefix means the model's default
	keepWindows bool
	saved       string // the file of a session to begin with, if it exists

	// keys and values are the dtypes of keys and values in the KV cache. They must be equal.
	keys, values cacheType
}

// cacheFormats are the dtypes that a KV cache can have.
var cacheFormats = op.Attention.Inputs()[1].Formats

// cacheType is the dtype of the KV cache. Zero means the session's default.
type cacheType dtype.DType

func (v *cacheType) String() string { return "" }

func (v *cacheType) words() []string {
	var names []string
	for _, d := range cacheFormats.List() {
		names = append(names, d.String())
	}
	return names
}

func (v *cacheType) Set(s string) error {
	if err := oneOf(s, v.words()); err != nil {
		return err
	}
	d, err := dtype.Parse(s)
	*v = cacheType(d)
	return err
}

// providerName is the name of a provider. The build may not have that provider.
type providerName string

func (v *providerName) String() string { return string(*v) }

func (v *providerName) words() []string { return providers.Names() }

func (v *providerName) Set(s string) error {
	*v = providerName(s)
	return nil
}

// provider defines the flag that chooses a provider for a purpose.
func (f *flags) provider(v *providerName, purpose string) {
	f.Var(v, "provider", "`name` of the provider "+purpose+"; fucina devices lists the names (default $"+providers.Env+", or the best provider of this machine)")
}

// modelFile defines the flag for the file of a model.
func (f *flags) modelFile(path *string, usage string) {
	f.StringVar(path, "m", "", usage)
	f.alias("m", "model")
}

// cacheType defines the flag for the dtype of the KV cache.
func (f *flags) cacheType(v *cacheType, def string) {
	f.Var(v, "cache-type", "`dtype` of the KV cache: "+cacheFormats.String()+" (default "+def+")")
}

func (f *flags) model() *modelFlags {
	m := &modelFlags{memory: byteSize{low: minDeviceMemory}}
	f.inert(inertModel)
	f.modelFile(&m.path, "model `file`, GGUF")
	f.provider(&m.provider, "to compute on")
	f.Var(&m.memory, "device-memory", "most `bytes` to hold on a device, also in K, M, G or T as in 8G; weights that do not fit together are brought in turn (default a share of what is free, as for 0 and -1)")
	m.threads = f.size("t", 0, 0, maxThreads, "`threads` to compute with (default one per processor, as for 0 and -1)")
	f.alias("t", "threads")
	m.batch = f.size("b", 0, 0, maxTokens, "`tokens` of a prompt to process at once; 0 and -1 mean 512, which is the default")
	f.alias("b", "batch-size")
	f.cacheType(&m.cache, "f16, or f32 with -exact")
	f.Var(&m.keys, "cache-type-k", "`dtype` of the keys in the KV cache, as in llama.cpp; -cache-type-v must give the same")
	f.alias("cache-type-k", "ctk")
	f.Var(&m.values, "cache-type-v", "`dtype` of the values in the KV cache; see -cache-type-k")
	f.alias("cache-type-v", "ctv")
	m.cacheTokens = f.size("cache-tokens", 0, 1, maxTokens, "`tokens` that the KV cache has room for (default 4 times the context of the model or of -c, but at most what a quarter of the memory has room for; fucina devices -m shows it)")
	m.cachePrefix = f.size("cache-prefix", defaultPrefix, 0, maxTokens, "`tokens` that the KV cache keeps for later prompts with the same beginning; 0 keeps none (default a quarter of the cache)")
	f.BoolVar(&m.keepWindows, "keep-windows", false, "keep the keys and values that no later token sees, in blocks with a window")
	f.alias("keep-windows", "swa-full")
	f.BoolFunc("exact", "never round activations; -exact and -exact=false override FUCINA_EXACT", func(s string) error {
		on, err := strconv.ParseBool(s)
		if err != nil {
			return errors.New("want true or false")
		}
		m.exact = &on
		return nil
	})
	return m
}

func (m *modelFlags) check(command string) error {
	if m.path == "" {
		return usagef("%s: no model: give its file with -m", command)
	}
	if m.keys != m.values || m.keys != 0 && m.cache != 0 && m.cache != m.keys {
		return usagef("%s: keys and values of the KV cache have one type; give -cache-type, or the same -cache-type-k and -cache-type-v", command)
	}
	m.cache = cmp.Or(m.cache, m.keys)
	return nil
}

func (m *modelFlags) name() string { return filepath.Base(m.path) }

// loaded is an engine with a model and a session on it.
type loaded struct {
	engine  *fucina.Engine
	model   *llm.Model
	session *llm.Session
	seconds float64 // the time of loading
}

// budget returns the most bytes that l holds on a device because the user said so, or 0.
func (m *modelFlags) budget(l *loaded) int64 {
	if l.engine.Provider() == providers.CPU {
		return 0
	}
	return m.memory.n
}

// load opens the engine, the model and a session. length is the context length of the
// session, defaultLength or ownLength. The caller closes the result. These steps cannot be
// cancelled, but load does not wait for them once ctx is done: another goroutine then closes
// what they open.
func (t *tool) load(ctx context.Context, m *modelFlags, length int) (*loaded, error) {
	start := time.Now()
	l := &loaded{}
	progress := t.newProgress("loading " + m.name())
	opened := make(chan error, 1)
	go func() { opened <- l.open(ctx, m, length, progress) }()
	select {
	case err := <-opened:
		progress.clear()
		if l.model != nil {
			for _, text := range l.model.Params().Notes {
				t.note(text)
			}
			if m.memory.n != 0 && m.budget(l) == 0 {
				t.note("-device-memory limits nothing: the provider " + providers.CPU + " computes in host memory")
			}
		}
		if err != nil {
			return nil, errors.Join(err, l.close())
		}
	case <-ctx.Done():
		progress.clear()
		go func() {
			<-opened
			_ = l.close() // load has returned, so nothing can report the error
		}()
		return nil, ctx.Err()
	}
	l.seconds = time.Since(start).Seconds()
	return l, nil
}

// open opens the engine, the model and the session that m describes. It checks ctx at the
// start, after the model and after the session. The caller closes l, even after an error.
func (l *loaded) open(ctx context.Context, m *modelFlags, length int, progress *progress) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	var opts []fucina.Option
	name := string(m.provider)
	if name != "" {
		opts = append(opts, fucina.WithProvider(name))
	}
	if m.memory.n > 0 {
		opts = append(opts, fucina.WithDeviceBudget(m.memory.n))
	}
	if *m.threads > 0 {
		opts = append(opts, fucina.WithThreads(*m.threads))
	}
	if m.exact != nil {
		opts = append(opts, fucina.WithExact(*m.exact))
	}
	if l.engine, err = fucina.Open(opts...); err != nil {
		return explainProvider(err, name)
	}
	l.model, err = llm.Open(l.engine, m.path, m.options(length, progress))
	if err := cmp.Or(err, ctx.Err()); err != nil {
		return err
	}
	opt := llm.SessionOptions{Batch: *m.batch, KV: dtype.DType(m.cache), KeepWindows: m.keepWindows}
	if m.saved != "" && opt.KV == dtype.Invalid && l.engine.Exact() {
		opt.KV = dtype.F32 // a file in another format would make the run inexact
	}
	if length != defaultLength {
		opt.Context = l.model.Context()
	}
	if l.session, err = beginSession(ctx, l.model, m.saved, opt); err != nil {
		return err
	}
	return ctx.Err()
}

// options returns the options of the model. length is that of load.
func (m *modelFlags) options(length int, progress *progress) llm.Options {
	opt := llm.Options{Context: max(length, 0), CacheTokens: *m.cacheTokens, Progress: progress.update}
	switch n := *m.cachePrefix; n {
	case defaultPrefix:
	case 0:
		opt.PrefixTokens = -1
	default:
		opt.PrefixTokens = n
	}
	return opt
}

// warnLength warns if the session is longer than the context that the model was trained for.
func (t *tool) warnLength(l *loaded) {
	if n, trained := l.session.Context(), l.model.Params().Context; n > trained {
		fmt.Fprintf(t.stderr, "fucina: warning: a context of %d tokens, but the model was trained for %d\n", n, trained)
	}
}

// shorter adds a hint to an error about too little memory.
func shorter(err error) error {
	if errors.Is(err, llm.ErrCacheFull) {
		return fmt.Errorf("%w; see -cache-tokens", err)
	}
	if errors.Is(err, fucina.ErrNoMemory) || errors.Is(err, fucina.ErrOutOfMemory) {
		return fmt.Errorf("%w; a shorter context takes less memory, see -c", err)
	}
	return err
}

// tagged has the build tags of providers that a build without tags does not have.
var tagged = map[string]string{"discrete": "accel"}

// explainProvider adds a hint to the error of opening the provider called name, if this build
// does not have that provider: a similar name, or the build tag of another provider.
func explainProvider(err error, name string) error {
	if name = cmp.Or(name, os.Getenv(providers.Env)); !errors.Is(err, provider.ErrUnavailable) || slices.Contains(providers.Names(), name) {
		return err
	}
	if hint := didYouMean(name, providers.Names()); hint != "" {
		return fmt.Errorf("%w%s", err, hint)
	}
	for _, other := range slices.Sorted(maps.Keys(tagged)) {
		if !slices.Contains(providers.Names(), other) {
			err = fmt.Errorf("%w; a build with -tags %s has %s", err, tagged[other], other)
		}
	}
	return err
}

func (l *loaded) close() error {
	var errs []error
	if l.session != nil {
		errs = append(errs, l.session.Close())
	}
	if l.model != nil {
		errs = append(errs, l.model.Close())
	}
	if l.engine != nil {
		errs = append(errs, l.engine.Close())
	}
	return errors.Join(errs...)
}

// progress is a line on the terminal that is rewritten in place until it is cleared. It shows
// nothing if stderr is not a terminal.
type progress struct {
	t     *tool
	label string

	mu      sync.Mutex
	cleared bool
	shown   int // the percentage shown; -1 at the start
	width   int // the columns written
}

func (t *tool) newProgress(label string) *progress {
	return &progress{t: t, label: visible(label), shown: -1}
}

func (p *progress) update(done, total int64) {
	if !p.t.tty || total <= 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	percent := int(float64(done) / float64(total) * 100)
	if p.cleared || percent == p.shown {
		return
	}
	p.shown = percent
	line := fmt.Sprintf("%s %3d%%", p.label, percent)
	fmt.Fprintf(p.t.stderr, "\r%s", line)
	p.width = utf8.RuneCountInString(line)
}

// clear removes the line. Later updates show nothing.
func (p *progress) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cleared = true
	if p.width > 0 {
		fmt.Fprintf(p.t.stderr, "\r%s\r", strings.Repeat(" ", p.width))
		p.width = 0
	}
}

// rate returns n per second, or 0 if n or seconds is not positive.
func rate(n int, seconds float64) float64 {
	if n <= 0 || seconds <= 0 {
		return 0
	}
	return float64(n) / seconds
}
