package provider

import (
	"context"
	"errors"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/op"
)

var (
	// ErrUnavailable reports a provider that this machine or this build does not have.
	// The error that wraps it gives the reason.
	ErrUnavailable = errors.New("provider unavailable")
	// ErrClosed reports use of a provider or queue after it was closed.
	ErrClosed = errors.New("closed")
	// ErrUnsupported reports an operation that Plan would have declined.
	ErrUnsupported = errors.New("operation not supported by the provider")
)

// Provider has queues and kernels. All methods are safe for concurrent use, except that
// only one goroutine at a time may submit to a queue.
type Provider interface {
	// Info describes the processor or device as it is now.
	Info() Info

	// Plan says whether Submit would accept the operation id with the arguments a, which
	// passed op.Infer or op.Check. The operands have no memory (op.Mem is not set).
	Plan(id op.ID, a *op.Args) Plan

	// NewQueue returns an in-order queue. The caller closes it with CloseQueue.
	NewQueue(kind QueueKind) (Queue, error)
	// CloseQueue waits for the queue's work and ends the queue and its timeline.
	CloseQueue(q Queue) error

	// Submit enqueues the operation id with the arguments a, which passed op.Infer or
	// op.Check, and returns its fence. It refuses operands that do not fit their memory
	// (op.Operand.Fits) and operations that Plan declines. A provider that computes in
	// host memory may complete the operation before Submit returns, and then returns the
	// zero Work. The text of an error does not name the operation, because the caller adds
	// the name that its user knows.
	//
	// Neither Plan nor Submit changes *a, which is the caller's again when they return.
	//
	// If ctx ends while Submit waits or computes, Submit returns ctx's error. Nothing is
	// enqueued then, and the outputs of an interrupted computation are undefined. Enqueued
	// work continues after the end of ctx. The same holds for WaitFor, and for Upload and
	// Download of a Device.
	Submit(ctx context.Context, q Queue, id op.ID, a *op.Args) (accel.Work, error)
	// WaitFor makes everything submitted to q afterwards run after w has ended, well or
	// not. The call itself need not wait. WaitFor only orders: a failure of w fails neither
	// q nor its work. A reader of a result checks the works that the result comes from.
	WaitFor(ctx context.Context, q Queue, w accel.Work) error

	// Stats returns the counters.
	Stats() Stats
	// Sync waits until everything submitted so far has ended, and returns the
	// failure of a dead queue.
	Sync(ctx context.Context) error
	// Close waits for the queues and frees all resources.
	Close() error
}

// Device is a provider with memory and transfers of its own: kernels read and write
// the memory that Alloc returns, and Info.HostMemory is false. Close also frees the
// memory that is still allocated, and then returns an error.
type Device interface {
	Provider

	// Alloc returns n bytes of device memory, aligned for every kernel. The contents are
	// undefined. It fails with accel.ErrOutOfMemory.
	Alloc(n int) (op.Mem, error)
	// Free frees memory that Alloc returned. The caller makes sure that no work uses it.
	Free(m op.Mem)

	// Upload enqueues a copy of src to dst, which has the same length. src must stay
	// unchanged until the Work has ended.
	Upload(ctx context.Context, q Queue, dst op.Mem, src []byte) (accel.Work, error)
	// Download enqueues a copy of src to dst, which has the same length. dst must stay
	// allocated until the Work has ended.
	Download(ctx context.Context, q Queue, dst []byte, src op.Mem) (accel.Work, error)
}

// PinnedAllocator is an optional capability of a Device: page-locked host memory, which
// transfers use without an intermediate copy.
type PinnedAllocator interface {
	// AllocPinned returns n bytes of pinned memory.
	AllocPinned(n int) ([]byte, error)
	// FreePinned frees memory that AllocPinned returned.
	FreePinned(p []byte)
}

// Queue is an in-order stream of work.
type Queue interface {
	// Timeline returns the queue's completion record, which outlives the queue.
	Timeline() *accel.Timeline
}

// QueueKind is the kind of work that a queue carries.
type QueueKind uint8

const (
	Compute QueueKind = iota
	UploadQueue
	DownloadQueue
)

// String returns the kind's name as used in queue names and errors.
func (k QueueKind) String() string {
	switch k {
	case Compute:
		return "compute"
	case UploadQueue:
		return "upload"
	case DownloadQueue:
		return "download"
	}
	return "invalid"
}

// Info describes the processor or device of a provider.
type Info struct {
	Name   string // the provider: "cpu", "cuda", ...
	Device string // the product name of the processor or device
	Index  int    // index among the provider's devices
	UUID   string // empty if the device has none

	// HostMemory says that kernels read and write host bytes: operands have
	// op.Mem.Host. It is false for a Device.
	HostMemory bool
	// Unified says that host and device bytes are the same bytes.
	Unified bool

	TotalBytes int64 // memory of the device, or of the machine if HostMemory is set; 0 if unknown
	FreeBytes  int64 // free device memory at the time of the call; 0 if HostMemory is set
	MaxAlloc   int64 // largest single allocation; 0 is no limit

	// MinCost is the least cost, by op.ID and in the units of op.Cost, for which moving
	// operands to the device pays off. Nil means no minimum.
	MinCost *[op.Count]int64
}

// Plan says whether a provider supports an operation, and what Submit needs for it.
type Plan struct {
	Supported bool
	Reason    string // why the operation is declined, if not Supported
	Workspace int    // bytes of scratch memory that Submit needs in Args
}

// Decline returns a Plan that declines the operation for reason.
func Decline(reason string) Plan { return Plan{Reason: reason} }

// Stats are a provider's counters since it was opened. The counters of transfers and
// memory are zero unless the provider is a Device.
type Stats struct {
	Submits       [op.Count]uint64
	LiveQueues    int64
	Uploads       uint64
	UploadBytes   uint64
	Downloads     uint64
	DownloadBytes uint64
	Allocs        uint64
	Frees         uint64
	LiveBytes     int64 // allocated and not freed
	LiveBlocks    int64
	PinnedBytes   int64
}

// Ops returns the number of operations submitted.
func (s *Stats) Ops() uint64 {
	var n uint64
	for _, c := range s.Submits {
		n += c
	}
	return n
}
