package fucina

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/core/storage"
	"github.com/fucina-go/fucina/core/tensor"
	"github.com/fucina-go/fucina/exec"
	"github.com/fucina-go/fucina/providers"
	"github.com/fucina-go/fucina/tagged"
	"github.com/fucina-go/fucina/tags"
)

// ExactEnv names the variable that turns exact mode on ("1") where the program
// does not choose; see WithExact.
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

// WithProvider chooses where the engine computes, by the name of a provider such
// as "cpu". "auto" is the best that this machine and build have. The default, as for
// "", is the variable FUCINA_PROVIDER, and "auto" without it. If the provider that name
// asks for is not available, Open fails with ErrUnavailable.
func WithProvider(name string) Option { return func(c *config) { c.provider = name } }

// WithDevice makes the engine compute on an opened device, whatever WithProvider and
// FUCINA_PROVIDER say. The device's Info.HostMemory must be false. Open takes the device
// over, even when it fails.
func WithDevice(d provider.Device) Option { return func(c *config) { c.device = d } }

// WithCPU puts an opened provider, such as a wrapper with faults, into the place of the
// CPU: it runs what the device declines, or everything if there is no device. Which
// device there is does not depend on it. The provider's Info.HostMemory must be true.
// Its threads are its own, so it does not go with WithThreads. Open takes the provider
// over, even when it fails.
func WithCPU(p provider.Provider) Option { return func(c *config) { c.cpu = p } }

// WithThreads sets the number of threads that the CPU's kernels run on; 0, the
// default, is one per processor, 4096 the most. Results do not depend on it.
func WithThreads(n int) Option { return func(c *config) { c.threads = n } }

// WithDeviceBudget sets the most device memory to hold, in bytes; 0, the default,
// is a share of what is free. A weight that does not fit beside the others takes their
// place, and one that never fits stays with the CPU.
func WithDeviceBudget(bytes int64) Option { return func(c *config) { c.budget = bytes } }

// WithExact turns exact mode on or off: activations are never rounded below f32.
// The default is the variable FUCINA_EXACT: on for "1", off for "0" or none.
func WithExact(on bool) Option { return func(c *config) { c.exact = &on } }

// Engine is what goroutines share: the providers, the pool of host memory, and the
// device memory that weights and results live in.
//
// nil and the zero Engine are closed.
type Engine struct {
	x       *exec.Engine
	number  uint32 // from 1, of this process
	name    string
	threads int
	exact   bool
	headers headers
	made    atomic.Uint64 // contexts

	mu       sync.Mutex // never held while something waits for a device
	contexts map[*Context]struct{}
	closed   atomic.Bool   // written with mu held
	done     chan struct{} // closed when Close has given everything back
}

// engines counts the engines that were opened.
var engines atomic.Uint32

// Open returns an engine on the provider that the options choose, or else the variable
// FUCINA_PROVIDER, or else the best that this build has; FUCINA_EXACT=1 turns exact mode
// on. Close the engine last, after every context, tensor and model that uses it. Open
// fails with ErrUnavailable for a provider that this machine or build does not have; a
// FUCINA_EXACT other than 0 and 1 is an error too.
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

// openProviders opens what the program has not opened: the CPU's provider, and the
// device called name.
func (c *config) openProviders(name string) error {
	switch {
	case c.device != nil && c.device.Info().HostMemory:
		return fmt.Errorf("WithDevice: provider %q computes in host memory: give it to WithCPU", c.device.Info().Name)
	case c.cpu != nil && !c.cpu.Info().HostMemory:
		return fmt.Errorf("WithCPU: provider %q does not compute in host memory: give it to WithDevice", c.cpu.Info().Name)
	case c.cpu != nil && c.threads != 0:
		return fmt.Errorf("%d threads: the provider of WithCPU was opened with its own", c.threads)
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

// closeProviders closes what the program or openProviders has opened.
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

// String names the engine in messages, as "engine 2 (cpu)": by its number in this
// process and its provider.
func (e *Engine) String() string {
	if e.none() {
		return "no engine"
	}
	return e.name
}

// none reports whether e was not made by Open.
func (e *Engine) none() bool { return e == nil || e.x == nil }

// isClosed is the error of a call that came after Close.
func (e *Engine) isClosed() error {
	if e.none() {
		return &opError{"no engine", ErrClosed}
	}
	return &opError{e.name + " is closed", ErrClosed}
}

// choice returns the provider's name, and whether the device is to be set up at once:
// whoever asks for one by name learns from Open whether it works.
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

// Provider returns the name of the provider that operations run on where it takes
// them: the device's, or "cpu".
func (e *Engine) Provider() string { return e.ProviderInfo().Name }

// ProviderInfo describes that provider.
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
	Handles int64 // tensors that were not released
	CPU     provider.Stats
	Device  provider.Stats // zero without a device
}

// Stats returns the counters.
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

// Close closes the contexts, waits for the device and gives everything back. It fails
// with ErrBusy and does nothing while a context is in use, being made or being closed; no
// call on any context notices. It reports tensors that were never released with ErrLeak;
// their memory is freed when they are. A second Close only waits until the first has
// ended.
//
// A read of elements that is under way fails with ErrClosed if it still needs the
// device.
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

// end gives everything back, for whoever shut the engine. It waits for the device.
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

// shut closes the engine and its contexts to calls and returns the contexts, for the
// caller to end, or fails and changes nothing.
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

// Weight returns a tensor over buf, whose bytes have format d and the row-major
// layout of axes, no more and no fewer, and stay as they are while the engine lives, so
// that a device may keep a copy. On success it takes the caller's reference to buf.
// Several tensors may share a buffer, but all of them belong to the engine that had it
// first: Weight of another engine fails with ErrEngine. The tensor belongs to the
// caller, whatever scopes are open.
func (e *Engine) Weight(buf *storage.Buffer, d dtype.DType, axes ...Axis) (Tensor, error) {
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

func (e *Engine) weight(buf *storage.Buffer, d dtype.DType, s shape.Shape, names tags.List) (Tensor, error) {
	if e.none() {
		return Tensor{}, e.isClosed()
	}
	n, err := s.Bytes(d)
	if err != nil {
		return Tensor{}, err
	}
	if buf == nil {
		return Tensor{}, fmt.Errorf("%w: no buffer, want one of %d bytes of %s", ErrInvalidDataLength, n, d)
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

// Empty returns a tensor of undefined contents with memory of its own, outside the
// pool, for values that live long, such as a KV cache. The memory appears when it
// is first written, where it is written. The tensor belongs to the caller, whatever
// scopes are open.
func (e *Engine) Empty(d dtype.DType, axes ...Axis) (Tensor, error) {
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

// The axes of a table of rotary position angles, beside that of the positions.
const (
	PairAxis   = tagged.PairAxis   // pairs of rotated elements
	CosSinAxis = tagged.CosSinAxis // of size 2: cosine, sine
)

// RoPE describes rotary position angles and their stretching to longer contexts.
type RoPE = exec.RoPE

// RoPETable returns the f32 table {posAxis PairAxis CosSinAxis} of the angles of
// positions 0 to positions-1, for Tensor.RoPE. The tensor belongs to the caller,
// whatever scopes are open.
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
