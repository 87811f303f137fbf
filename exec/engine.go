package exec

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/core/storage"
	"github.com/fucina-go/fucina/core/tensor"
)

var (
	// ErrClosed reports use of an engine or context after it was closed.
	ErrClosed = errors.New("closed")
	// ErrBusy reports a context used by two goroutines at once.
	ErrBusy = errors.New("context in use by another goroutine")
	// ErrUnsupported reports an operation that no provider of the engine takes.
	ErrUnsupported = provider.ErrUnsupported
)

// Options configure an Engine.
type Options struct {
	// CPU runs what the device declines; required. The engine owns it.
	CPU provider.Provider
	// Device is a provider with its own memory, or nil. The engine owns it.
	Device provider.Provider
	// DeviceBudget is the most device memory to hold, in bytes; 0 is the default
	// share of the free memory.
	DeviceBudget int64
	// StagingSlots and StagingBytes size the staging memory between host and
	// device: how many pieces each way, and the bytes of a piece; 0 is the default.
	StagingSlots int
	StagingBytes int
	// PoolCap is the most idle host memory to hold, in bytes; 0 is PoolCap.
	PoolCap int64
}

// Engine is what goroutines share: providers, device residency and buffer pool.
type Engine struct {
	cpu  provider.Provider
	dev  device
	pool *Pool

	handles handlePool

	mu       sync.Mutex
	contexts map[*Context]struct{}
	closed   bool
}

// Open returns an engine over the providers of opt. On an error the providers are
// closed.
func Open(opt Options) (*Engine, error) {
	if opt.CPU == nil {
		return nil, errors.New("exec: an engine needs a CPU provider")
	}
	e := &Engine{cpu: opt.CPU, pool: NewPool(opt.PoolCap), contexts: make(map[*Context]struct{})}
	if err := e.dev.open(opt); err != nil {
		errs := []error{fmt.Errorf("exec: open: %w", err), opt.CPU.Close()}
		if opt.Device != nil {
			errs = append(errs, opt.Device.Close())
		}
		return nil, errors.Join(errs...)
	}
	return e, nil
}

// CPU returns the provider that runs what the device declines.
func (e *Engine) CPU() provider.Provider { return e.cpu }

// Device returns the device's provider, or nil.
func (e *Engine) Device() provider.Provider { return e.dev.provider() }

// Stats are an engine's counters.
type Stats struct {
	Pool    PoolStats
	Handles int64 // tensor handles in use
	// Fallbacks counts operations that a device's plan took and that the CPU ran
	// after all, because memory ran out, a transfer could not be had or the device
	// was lost; LastFallback says why the last one did.
	Fallbacks    int64
	LastFallback string
}

// Stats returns the counters.
func (e *Engine) Stats() Stats {
	s := Stats{Pool: e.pool.Stats(), Handles: e.handles.live()}
	s.Fallbacks, s.LastFallback = e.dev.fallbacks()
	return s
}

// Empty returns a contiguous tensor of undefined contents over a buffer of its own,
// outside the pool, for values that live long, such as a KV cache. It has no memory
// until it is first written, on the side that writes it.
func (e *Engine) Empty(d dtype.DType, s shape.Shape) (tensor.Tensor, error) {
	n, err := s.Bytes(d)
	if err != nil {
		return tensor.Tensor{}, err
	}
	buf := storage.NewLazy(n)
	t, err := tensor.FromBuffer(buf, d, s)
	if err != nil {
		buf.Release()
	}
	return t, err
}

// Close waits for the device, closes the contexts that are still open, and gives
// everything back. It reports buffers and device memory that tensors still hold.
func (e *Engine) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	contexts := e.contexts
	e.contexts = nil
	e.mu.Unlock()
	var errs []error
	for c := range contexts {
		errs = append(errs, c.close())
	}
	errs = append(errs, e.pool.Close(), e.dev.close(context.Background()), e.cpu.Close())
	return errors.Join(errs...)
}
