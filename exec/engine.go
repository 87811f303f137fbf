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

// Options configure an Engine.
type Options struct {
	// CPU computes in host memory and runs the operations that the device declines. It
	// is required. The engine owns it.
	CPU provider.Provider
	// Device is the device, or nil. The engine owns it.
	Device provider.Device
	// Eager sets the device up in Open, so that Open fails if the device cannot be used.
	// Otherwise the first op that runs on the device sets it up.
	Eager bool
	// DeviceBudget is the most device memory to hold, in bytes; 0 is the default
	// share of the free memory.
	DeviceBudget int64
	// StagingSlots and StagingBytes size the staging memory between host and
	// device: the number of slots in each direction and the bytes of a slot. 0 is the
	// default.
	StagingSlots int
	StagingBytes int
	// Exact says that no operation rounds activations below f32.
	Exact bool
}

// Engine holds the providers, the device residency and the buffer pool that its queues
// share. It is safe for concurrent use.
type Engine struct {
	cpu   provider.Provider
	dev   device
	pool  *pool
	exact bool
}

// Open returns an engine over the providers of opt. If there is no CPU provider or the device
// cannot be opened, Open closes the providers and returns an error.
func Open(opt Options) (*Engine, error) {
	e := &Engine{cpu: opt.CPU, pool: newPool(poolCap), exact: opt.Exact}
	var err error
	if opt.CPU == nil {
		err = errors.New("Options.CPU is nil, want a provider that computes in host memory")
	} else {
		err = e.dev.open(opt)
	}
	if err == nil {
		return e, nil
	}
	errs := []error{fmt.Errorf("exec: open: %w", err)}
	if opt.Device != nil {
		errs = append(errs, opt.Device.Close())
	}
	if opt.CPU != nil {
		errs = append(errs, opt.CPU.Close())
	}
	return nil, errors.Join(errs...)
}

// CPU returns the CPU provider.
func (e *Engine) CPU() provider.Provider { return e.cpu }

// Device returns the device, or nil.
func (e *Engine) Device() provider.Device { return e.dev.provider() }

// Stats are an engine's counters.
type Stats struct {
	Pool PoolStats
	// Fallbacks counts operations that the CPU ran although the device's plan supported
	// them, because memory ran out, a transfer failed, the host was writing to an operand
	// or the device was lost. LastFallback is the op and the reason of the last one.
	Fallbacks    int64
	LastFallback string
}

// Stats returns the counters.
func (e *Engine) Stats() Stats {
	s := Stats{Pool: e.pool.Stats()}
	s.Fallbacks, s.LastFallback = e.dev.fallbacks()
	return s
}

// Empty returns a contiguous tensor of undefined contents over a buffer outside the pool,
// for long-lived values such as a KV cache. The first write allocates its memory, on the
// host or on the device, whichever writes. The caller releases the tensor.
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

// Close waits for the device and frees everything. It returns an error if tensors still
// hold buffers or device memory. The owner calls it once, after every queue is closed.
func (e *Engine) Close() error {
	return errors.Join(e.pool.Close(), e.dev.close(context.Background()), e.cpu.Close())
}
