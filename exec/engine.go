package exec

import (
	"context"
	"errors"
	"fmt"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/core/storage"
	"github.com/fucina-go/fucina/core/tensor"
)

// ErrUnsupported reports an operation that no provider of the engine takes.
var ErrUnsupported = provider.ErrUnsupported

// Options configure an Engine.
type Options struct {
	// CPU computes in host memory and runs what the device declines; required. The
	// engine owns it.
	CPU provider.Provider
	// Device is the device, or nil. The engine owns it.
	Device provider.Device
	// Eager sets the device up when the engine opens, so that Open fails where the
	// device cannot be used. Without it the first op that a device is worth does.
	Eager bool
	// DeviceBudget is the most device memory to hold, in bytes; 0 is the default
	// share of the free memory.
	DeviceBudget int64
	// StagingSlots and StagingBytes size the staging memory between host and
	// device: how many pieces each way, and the bytes of a piece; 0 is the default.
	StagingSlots int
	StagingBytes int
	// Exact says that no operation rounds activations below f32.
	Exact bool
	// PoolCap is the most idle host memory to hold, in bytes; 0 is PoolCap.
	PoolCap int64
}

// Engine is what goroutines share: providers, device residency and buffer pool.
type Engine struct {
	cpu   provider.Provider
	dev   device
	pool  *Pool
	exact bool
}

// Open returns an engine over the providers of opt. On an error the providers are
// closed.
func Open(opt Options) (*Engine, error) {
	if opt.CPU == nil {
		return nil, errors.New("exec: an engine needs a CPU provider")
	}
	e := &Engine{cpu: opt.CPU, pool: NewPool(opt.PoolCap), exact: opt.Exact}
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

// Device returns the device, or nil.
func (e *Engine) Device() provider.Device { return e.dev.provider() }

// Stats are an engine's counters.
type Stats struct {
	Pool PoolStats
	// Fallbacks counts operations that a device's plan took and that the CPU ran
	// after all, because memory ran out, a transfer failed, the host was writing to an
	// operand or the device was lost; LastFallback says why the last one did.
	Fallbacks    int64
	LastFallback string
}

// Stats returns the counters.
func (e *Engine) Stats() Stats {
	s := Stats{Pool: e.pool.Stats()}
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

// Close waits for the device and gives everything back. It reports buffers and device
// memory that tensors still hold. The owner calls it once, after the queues' Close.
func (e *Engine) Close() error {
	return errors.Join(e.pool.Close(), e.dev.close(context.Background()), e.cpu.Close())
}
