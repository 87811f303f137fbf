//go:build accel

package discrete

import (
	"context"
	"fmt"
	"time"

	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/provider"
)

// Chaos is the kind of delay between submission and completion.
type Chaos uint8

const (
	// Prompt executes work as soon as the worker receives it, and reports it at once.
	Prompt Chaos = iota
	// Yields yields the processor a random number of times before the execution and
	// before the report, and reports several works at a time.
	Yields
	// Sleeps also sleeps now and then, up to Options.MaxDelay.
	Sleeps
)

// Executor computes operations in host memory. One goroutine at a time uses it, except that
// Plan may be called concurrently.
type Executor interface {
	Plan(id op.ID, a *op.Args) provider.Plan
	// Execute computes the operation. Every operand, and the workspace if there is one,
	// has Mem.Host set. ctx is never done, because enqueued work continues after the
	// submitter's context has ended.
	Execute(ctx context.Context, id op.ID, a *op.Args) error
}

// Defaults of Options.
const (
	DefaultMemory   = 1 << 30
	DefaultRing     = 64
	DefaultMaxDelay = 100 * time.Microsecond
)

// Options configure a device. The zero value is a prompt device without faults.
type Options struct {
	// MemoryBytes is the size of the device's memory; 0 is DefaultMemory.
	MemoryBytes int64
	// Ring is the number of entries that a queue holds before a submitter blocks; 0 is
	// DefaultRing.
	Ring int

	// Seed is the seed of the random delays.
	Seed uint64
	// Chaos is the kind of delay.
	Chaos Chaos
	// MaxDelay is the longest sleep; 0 is DefaultMaxDelay.
	MaxDelay time.Duration

	// Sync makes every submission and transfer wait for its work, so that a failure
	// covers one operation.
	Sync bool

	// Decline, if set, makes Plan decline the operations for which it returns a reason.
	// It must depend only on its arguments.
	Decline func(id op.ID, a *op.Args) string
	// MinCost is returned in Info.MinCost.
	MinCost *[op.Count]int64
	// Faults are injected from the start; see Inject.
	Faults []Fault
	// NewExecutor returns the kernels for one queue; nil means the CPU reference kernels.
	NewExecutor func() Executor
}

// FaultKind is the kind of an injected failure.
type FaultKind uint8

const (
	// SubmitError makes Submit return an error that matches
	// accel.ErrDeviceFailed; nothing is enqueued.
	SubmitError FaultKind = iota + 1
	// SubmitAsync makes a submitted operation fail when it executes.
	SubmitAsync
	// AllocError makes Alloc return an error that matches accel.ErrOutOfMemory.
	AllocError
	// UploadError and DownloadError are SubmitError for transfers.
	UploadError
	// UploadAsync and DownloadAsync are SubmitAsync for transfers.
	UploadAsync
	DownloadError
	DownloadAsync
	// Loss makes the device disappear at a submission or a transfer. That call, all
	// pending work on every queue, and every later call that needs the device fail with
	// accel.ErrDeviceLost.
	Loss

	faultKinds
)

var faultNames = [faultKinds]string{
	SubmitError: "submit error", SubmitAsync: "asynchronous submit error", AllocError: "allocation error",
	UploadError: "upload error", UploadAsync: "asynchronous upload error",
	DownloadError: "download error", DownloadAsync: "asynchronous download error", Loss: "loss",
}

// String returns the kind's name.
func (k FaultKind) String() string {
	if k == 0 || k >= faultKinds {
		return "invalid fault"
	}
	return faultNames[k]
}

// Fault is one injected failure.
type Fault struct {
	Kind FaultKind
	// Nth is the number of the event that fails. The next event after the injection is 1.
	// The events of a kind are the calls of Submit, Alloc, Upload or Download. For Loss
	// they are the calls of all of these except Alloc.
	Nth int
	// On, if set, makes the fault count only the events of that queue. The fault ends
	// with the queue. AllocError cannot have it, because allocations have no queue.
	On provider.Queue
	// Err, if set, is wrapped by the failure, together with the sentinel of the kind.
	Err error
}

func (f *Fault) check() error {
	if f.Kind == 0 || f.Kind >= faultKinds || f.Nth < 1 {
		return fmt.Errorf("discrete: fault %s at event %d: want a known kind and an event from 1 on", f.Kind, f.Nth)
	}
	if f.On != nil && f.Kind == AllocError {
		return fmt.Errorf("discrete: fault %s on queue %v: allocations have no queue", f.Kind, f.On)
	}
	return nil
}

// Events counts the calls at which a fault can be injected, including calls that failed.
type Events struct {
	Submits   int
	Allocs    int
	Uploads   int
	Downloads int
}

// Transfers returns the number of uploads and downloads.
func (e Events) Transfers() int { return e.Uploads + e.Downloads }
