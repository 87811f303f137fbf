package fucina

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/core/storage"
	"github.com/fucina-go/fucina/core/tensor"
	"github.com/fucina-go/fucina/exec"
	"github.com/fucina-go/fucina/providers"
	"github.com/fucina-go/fucina/tagged"
	"github.com/fucina-go/fucina/tags"
)

// ExactEnv is the environment variable that turns exact mode on ("1") if the program does
// not use WithExact.
const ExactEnv = "FUCINA_EXACT"

// Option configures an engine.
type Option func(*config)

type config struct {
	provider string
	device   provider.Device
	cpu      provider.Provider
	threads  int
	budget   int64
	exact    *bool
}

// WithProvider chooses the provider that the engine computes on, by a name such as "cpu".
// "auto" chooses the best provider that this machine and this build have. Without this
// option, or with "", the variable FUCINA_PROVIDER chooses, and "auto" if it is not set. If
// the named provider is not available, Open fails with ErrUnavailable.
func WithProvider(name string) Option { return func(c *config) { c.provider = name } }

// WithDevice makes the engine compute on the opened device d. WithProvider and
// FUCINA_PROVIDER then have no effect. The device's Info.HostMemory must be false. Open takes
// ownership of the device, even if Open fails.
func WithDevice(d provider.Device) Option { return func(c *config) { c.device = d } }

// WithCPU makes the engine use the opened provider p in place of the CPU. p runs the
// operations that the device declines, or every operation if there is no device. The choice
// of the device does not depend on p. The provider's Info.HostMemory must be true. p has its
// own threads, so WithCPU and WithThreads exclude each other. Open takes ownership of the
// provider, even if Open fails.
func WithCPU(p provider.Provider) Option { return func(c *config) { c.cpu = p } }

// WithThreads sets the number of threads of the CPU's kernels, at most 4096. 0, the default,
// means one per processor. Results do not depend on the number of threads.
func WithThreads(n int) Option { return func(c *config) { c.threads = n } }

// WithDeviceBudget sets the largest amount of device memory that the engine holds, in bytes.
// 0, the default, means a share of the free memory.
func WithDeviceBudget(bytes int64) Option { return func(c *config) { c.budget = bytes } }

// WithExact turns exact mode on or off. In exact mode, activations are never rounded below
// f32. Without this option the variable FUCINA_EXACT decides: "1" turns exact mode on, and
// "0", the default, turns it off.
func WithExact(on bool) Option { return func(c *config) { c.exact = &on } }

// Engine holds the resources that goroutines share: the providers, the pool of host memory,
// and the device memory of weights and results.
//
// nil and the zero Engine are closed.
type Engine struct {
	x       *exec.Engine
	number  uint32 // counts the engines of this process, from 1
	name    string
	threads int
	exact   bool
	headers headers
	made    atomic.Uint64 // the number of contexts made so far

	mu       sync.Mutex // never held during a wait for a device
	contexts map[*Context]struct{}
	closed   atomic.Bool   // written with mu held
	done     chan struct{} // closed when Close has released everything
}

// engines counts the engines of this process.
var engines atomic.Uint32

// Open returns an engine. The options choose its provider; without such an option the
// variable FUCINA_PROVIDER chooses, and otherwise the engine uses the best provider of this
// machine and this build. FUCINA_EXACT=1 turns exact mode on. Close the engine last, after
// every context, tensor and model that uses it.
//
// Open fails with ErrUnavailable if this machine or this build does not have the named
// provider. It also fails if FUCINA_EXACT is neither 0 nor 1.
func Open(opts ...Option) (*Engine, error) {
	var cfg config
	for _, o := range opts {
		if o != nil {
			o(&cfg)
		}
	}
	e, err := open(&cfg)
	if err != nil {
		return nil, fmt.Errorf("fucina: open: %w", err)
	}
	return e, nil
}

func open(cfg *config) (*Engine, error) {
	name, eager := cfg.choice()
	threads := cfg.threads
	if threads == 0 && cfg.cpu == nil {
		threads = runtime.NumCPU()
	}
	exact, err := cfg.exactMode()
	if err == nil && cfg.budget < 0 {
		err = fmt.Errorf("device memory of %d bytes, want at least 0", cfg.budget)
	}
	if err == nil {
		err = cfg.openProviders(name)
	}
	if err != nil {
		return nil, errors.Join(err, cfg.closeProviders())
	}
	x, err := exec.Open(exec.Options{CPU: cfg.cpu, Device: cfg.device, Eager: eager, DeviceBudget: cfg.budget, Exact: exact})
	if err != nil {
		return nil, err
	}
	e := &Engine{
		x: x, number: engines.Add(1), threads: threads, exact: exact,
		contexts: make(map[*Context]struct{}), done: make(chan struct{}),
	}
	e.name = fmt.Sprintf("%s (%s)", engineName(e.number), e.Provider())
	return e, nil
}

// openProviders opens the CPU's provider and the device called name, unless the program has
// given them.
func (c *config) openProviders(name string) error {
	switch {
	case c.device != nil && c.device.Info().HostMemory:
		return fmt.Errorf("WithDevice: provider %q computes in host memory: give it to WithCPU", c.device.Info().Name)
	case c.cpu != nil && !c.cpu.Info().HostMemory:
		return fmt.Errorf("WithCPU: provider %q does not compute in host memory: give it to WithDevice", c.cpu.Info().Name)
	case c.cpu != nil && c.threads != 0:
		return fmt.Errorf("WithThreads(%d) with WithCPU: the provider has its own threads", c.threads)
	}
	if c.cpu == nil {
		cpu, err := providers.OpenCPU(c.threads)
		if err != nil {
			return err
		}
		c.cpu = cpu
	}
	if c.device == nil {
		device, err := providers.Open(name)
		if err != nil {
			return err
		}
		c.device = device
	}
	return nil
}

// closeProviders closes the providers that the program has given or openProviders has opened.
func (c *config) closeProviders() error {
	var errs []error
	if c.device != nil {
		errs = append(errs, c.device.Close())
	}
	if c.cpu != nil {
		errs = append(errs, c.cpu.Close())
	}
	return errors.Join(errs...)
}

func engineName(number uint32) string { return fmt.Sprintf("engine %d", number) }

// String returns the engine's number in this process and its provider, such as
// "engine 2 (cpu)".
func (e *Engine) String() string {
	if e.none() {
		return "no engine"
	}
	return e.name
}

// none reports whether e is nil or the zero Engine.
func (e *Engine) none() bool { return e == nil || e.x == nil }

// isClosed returns the error of a call on an engine that is closed.
func (e *Engine) isClosed() error {
	if e.none() {
		return &opError{"no engine", ErrClosed}
	}
	return &opError{e.name + " is closed", ErrClosed}
}

// choice returns the name of the provider, and whether Open sets up its device at once. If
// the name asks for a certain provider, Open reports whether that provider works.
func (c *config) choice() (name string, eager bool) {
	if c.device != nil {
		return "", false
	}
	name = cmp.Or(c.provider, os.Getenv(providers.Env))
	return name, name != "" && name != "auto"
}

func (c *config) exactMode() (bool, error) {
	if c.exact != nil {
		return *c.exact, nil
	}
	switch s := os.Getenv(ExactEnv); s {
	case "", "0":
		return false, nil
	case "1":
		return true, nil
	default:
		return false, fmt.Errorf("%s is %q, want 0 or 1", ExactEnv, s)
	}
}

// Provider returns the name of the provider that runs the operations it supports: the name
// of the device's provider, or "cpu" if there is no device.
func (e *Engine) Provider() string { return e.ProviderInfo().Name }

// ProviderInfo describes the provider that Provider names.
func (e *Engine) ProviderInfo() provider.Info {
	if e.none() {
		return provider.Info{}
	}
	if dev := e.x.Device(); dev != nil {
		return dev.Info()
	}
	return e.x.CPU().Info()
}

// Exact reports whether the engine is in exact mode; see WithExact.
func (e *Engine) Exact() bool { return e != nil && e.exact }

// Threads returns the number of threads of the CPU's kernels.
func (e *Engine) Threads() int {
	if e == nil {
		return 0
	}
	return e.threads
}

// Stats are an engine's counters.
type Stats struct {
	exec.Stats
	Handles int64 // tensors that have not ended
	CPU     provider.Stats
	Device  provider.Stats // zero without a device
}

// Stats returns the current values of the counters.
func (e *Engine) Stats() Stats {
	if e.none() {
		return Stats{}
	}
	s := Stats{Stats: e.x.Stats(), Handles: e.headers.live(), CPU: e.x.CPU().Stats()}
	if dev := e.x.Device(); dev != nil {
		s.Device = dev.Stats()
	}
	return s
}

// Close closes the contexts of the engine, waits for the device and releases everything. If
// a context is in use, being made or being closed, Close fails with ErrBusy and changes
// nothing, and no call on any context is affected. If Shared tensors were never released,
// Close fails with ErrLeak; their memory is freed by their Release. A second Close waits
// until the first one has ended, and returns nil.
//
// A call of Data, CopyOut, Read or Update that is running fails with ErrClosed if it still
// needs the device. Close does not wait for it: it reports that a buffer was not released,
// which the end of the call frees.
func (e *Engine) Close() error {
	if e.none() {
		return nil
	}
	contexts, err := e.shut()
	switch {
	case errors.Is(err, ErrClosed):
		<-e.done
		return nil
	case err != nil:
		return fmt.Errorf("fucina: close %s: %w", e, err)
	}
	if err := e.end(contexts); err != nil {
		return fmt.Errorf("fucina: close %s: %w", e, err)
	}
	return nil
}

// end releases everything, after shut. It waits for the device.
func (e *Engine) end(contexts []*Context) error {
	defer close(e.done)
	var errs []error
	for _, c := range contexts {
		errs = append(errs, c.end())
	}
	if n := e.headers.live(); n != 0 {
		errs = append(errs, fmt.Errorf("%w: %d of them", ErrLeak, n))
	}
	return errors.Join(append(errs, e.x.Close())...)
}

// shut closes the engine and its contexts to new calls, and returns the contexts, which the
// caller ends. If it fails, it changes nothing.
func (e *Engine) shut() ([]*Context, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed.Load() {
		return nil, ErrClosed
	}
	held := make([]*Context, 0, len(e.contexts))
	for c := range e.contexts {
		if !c.state.CompareAndSwap(stateIdle, stateHeld) {
			for _, c := range held {
				c.state.Store(stateIdle)
			}
			return nil, ErrBusy
		}
		held = append(held, c)
	}
	e.closed.Store(true)
	for _, c := range held {
		c.state.Store(stateClosed)
	}
	return held, nil
}

// Weight returns a Shared tensor over buf. The bytes of buf have format d and the row-major
// layout of axes; a buffer of another size fails with ErrInvalidDataLength. The bytes must
// not change while the engine is open, because a device may keep a copy of them.
//
// On success Weight takes the caller's reference to buf. Several tensors may share a buffer.
// The buffer belongs to the engine whose Weight used it first; Weight of another engine
// fails with ErrEngine. The caller releases the tensor, even if frames or scopes are open.
func (e *Engine) Weight(buf *storage.Buffer, d DType, axes ...Axis) (Tensor, error) {
	names, s, err := layout("weight", axes)
	if err != nil {
		return Tensor{}, err
	}
	x, err := e.weight(buf, d, s, names)
	if err != nil {
		return Tensor{}, fmt.Errorf("weight %s: %w", names.Describe(s), err)
	}
	return x, nil
}

func (e *Engine) weight(buf *storage.Buffer, d DType, s shape.Shape, names tags.List) (Tensor, error) {
	if e.none() {
		return Tensor{}, e.isClosed()
	}
	n, err := s.Bytes(d)
	if err != nil {
		return Tensor{}, err
	}
	if buf == nil {
		return Tensor{}, fmt.Errorf("%w: no buffer, want %d bytes of %s", ErrInvalidDataLength, n, d)
	}
	if buf.Size() != n {
		return Tensor{}, fmt.Errorf("%w: a buffer of %d bytes, want %d bytes of %s", ErrInvalidDataLength, buf.Size(), n, d)
	}
	t, err := tensor.FromBuffer(buf, d, s)
	if err != nil {
		return Tensor{}, err
	}
	x, err := e.own(t, names)
	if err != nil {
		return Tensor{}, err
	}
	buf.MarkStable()
	return x, nil
}

// Empty returns a Shared tensor with undefined contents. It has its own memory outside the
// pool, which suits values that live long, such as a KV cache. The memory is allocated at
// the first write, on the host or on the device that writes. A page of host memory is resident
// from its first access until [Tensor.Discard] or the release. The caller releases the tensor,
// even if frames or scopes are open.
func (e *Engine) Empty(d DType, axes ...Axis) (Tensor, error) {
	names, s, err := layout("empty", axes)
	if err != nil {
		return Tensor{}, err
	}
	if e.none() {
		return Tensor{}, fmt.Errorf("empty %s: %w", names.Describe(s), e.isClosed())
	}
	t, err := e.x.Empty(d, s)
	if err != nil {
		return Tensor{}, fmt.Errorf("empty %s: %w", names.Describe(s), err)
	}
	x, err := e.own(t, names)
	if err != nil {
		t.Release()
		return Tensor{}, fmt.Errorf("empty %s: %w", names.Describe(s), err)
	}
	return x, nil
}

// The axes of a table of rotary position angles besides the axis of positions.
const (
	PairAxis   = tagged.PairAxis   // the pairs of rotated elements
	CosSinAxis = tagged.CosSinAxis // cosine and sine; the size is 2
)

// RoPE describes rotary position angles and their stretching to longer contexts. Its fields are
// Dims, the rotated elements of a head; FreqBase, usually 10000; FreqScale and FreqFactors, which
// stretch the angles; and those of YaRN, ExtFactor, AttnFactor, BetaFast, BetaSlow and
// OriginalContext. A RoPE with only Dims and FreqBase stretches nothing. Package exec documents
// each field.
type RoPE = exec.RoPE

// Angles computes the rows of a table of rotary position angles for any positions, such as
// those of tokens of several sequences. Its method
//
//	Put(dst []float32, positions []int32) error
//
// writes RoPE.Dims numbers for each position to dst: the cosine and the sine of each pair.
type Angles = exec.Angles

// NewAngles returns the angles of r for the positions 0 to positions-1. It fails, as
// Engine.RoPETable does, if a field of r is out of its range or if an angle or an element is
// not finite.
func NewAngles(r RoPE, positions int) (*Angles, error) {
	a, err := exec.NewAngles(r, positions)
	if err != nil {
		return nil, fmt.Errorf("angles: %w", err)
	}
	return a, nil
}

// RoPETable returns a Shared f32 tensor {posAxis PairAxis CosSinAxis} with the cosines and
// sines of the angles of positions 0 to positions-1, for Tensor.RoPE. The caller releases
// the tensor, even if frames or scopes are open.
func (e *Engine) RoPETable(r RoPE, positions int, posAxis string) (Tensor, error) {
	names, err := tags.Of(posAxis, PairAxis, CosSinAxis)
	if err != nil {
		return Tensor{}, fmt.Errorf("rope table: %w", err)
	}
	if e.none() {
		return Tensor{}, fmt.Errorf("rope table: %w", e.isClosed())
	}
	t, err := exec.RoPETable(r, positions)
	if err != nil {
		return Tensor{}, fmt.Errorf("rope table: %w", err)
	}
	x, err := e.own(t, names)
	if err != nil {
		t.Release()
		return Tensor{}, fmt.Errorf("rope table: %w", err)
	}
	return x, nil
}
