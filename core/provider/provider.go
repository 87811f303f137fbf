package provider

import (
	"context"
	"errors"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/op"
)

var (
	// ErrUnavailable reports a provider that this machine or this build does not have;
	// the error says why.
	ErrUnavailable = errors.New("provider unavailable")
	// ErrClosed reports use of a provider or queue after it was closed.
	ErrClosed = errors.New("closed")
	// ErrUnsupported reports an operation that Plan would have declined.
	ErrUnsupported = errors.New("operation not supported by the provider")
)

// Provider is queues and kernels. All methods are safe for concurrent use, except that
// one goroutine at a time submits to a queue.
type Provider interface {
	// Info describes the processor or device as it is now.
	Info() Info

	// Plan says whether Submit would accept the operation, whose arguments passed
	// op.Infer or op.Check, from the operands' metadata alone (op.Mem is not set).
	Plan(id op.ID, a *op.Args) Plan

	// NewQueue returns an in-order queue; CloseQueue waits for its work and ends it
	// and its timeline.
	NewQueue(kind QueueKind) (Queue, error)
	CloseQueue(q Queue) error

	// Submit enqueues the operation, whose arguments passed op.Infer or op.Check. It
	// refuses operands that do not fit their memory (op.Operand.Fits), and operations that
	// Plan would decline. A provider that computes in host memory may have completed it when Submit returns, and then returns the zero Work. The end
	// of ctx ends a Submit that waits or computes, with ctx's error: then nothing was
	// enqueued, and the output of a computation that was cut short is undefined. Work
	// that was enqueued goes on after the end of ctx. The same holds for WaitFor, and for
	// Upload and Download of a Device.
	Submit(ctx context.Context, q Queue, id op.ID, a *op.Args) (accel.Work, error)
	// WaitFor makes what is submitted to q later run after w has ended, well or not,
	// without waiting here. It only orders: w's failure fails neither q nor its work.
	// Whoever reads a result asks the work that the result comes from.
	WaitFor(ctx context.Context, q Queue, w accel.Work) error

	// Stats returns the counters.
	Stats() Stats
	// Sync waits until everything submitted so far has ended, and returns the
	// failure of a dead queue.
	Sync(ctx context.Context) error
	// Close waits for the queues and gives everything back.
	Close() error
}

// Device is a provider with memory and transfers of its own: kernels read and write
// the memory that Alloc returns, and Info.HostMemory is false. Close also frees the
// memory that is still allocated and reports it as an error.
type Device interface {
	Provider

	// Alloc returns n bytes of device memory, aligned for every kernel, contents
	// undefined. It fails with accel.ErrOutOfMemory. Free takes back what Alloc
	// returned; the caller has made sure that no work uses it.
	Alloc(n int) (op.Mem, error)
	Free(m op.Mem)

	// Upload enqueues a copy of src to dst, of the same length. src must stay
	// unchanged until the Work has ended. Download is the reverse.
	Upload(ctx context.Context, q Queue, dst op.Mem, src []byte) (accel.Work, error)
	Download(ctx context.Context, q Queue, dst []byte, src op.Mem) (accel.Work, error)
}

// PinnedAllocator is an optional capability of a Device: host memory that transfers
// take without a detour.
type PinnedAllocator interface {
	AllocPinned(n int) ([]byte, error)
	FreePinned(p []byte)
}

// Queue is an in-order stream of work.
type Queue interface {
	// Timeline is the queue's completion record; it outlives the queue.
	Timeline() *accel.Timeline
}

// QueueKind says what a queue will carry.
type QueueKind uint8

const (
	Compute QueueKind = iota
	UploadQueue
	DownloadQueue
)

// String returns the kind's name as it stands in queue names and errors.
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

// Info describes what a provider computes on.
type Info struct {
	Name   string // the provider: "cpu", "cuda", ...
	Device string // the device's name for people
	Index  int    // among the provider's devices
	UUID   string // empty where the device has none

	// HostMemory says that kernels read and write host bytes: operands have
	// op.Mem.Host. It is false for a Device.
	HostMemory bool
	// Unified says that host and device bytes are the same bytes.
	Unified bool

	TotalBytes int64 // of device memory
	FreeBytes  int64 // at the time of the call
	MaxAlloc   int64 // largest single allocation; 0 is no limit

	// MinWork is the least work, by op.ID, for which moving operands to the device
	// pays off: multiply-adds of op.MatMul and op.Attention, output elements of the
	// others. Nil gates nothing.
	MinWork *[op.Count]int64
}

// Plan is a provider's answer to what it would do with an operation.
type Plan struct {
	Supported bool
	Reason    string // why not, if not Supported
	Workspace int    // bytes of scratch memory that Submit needs in Args
}

// Decline returns a Plan that says no.
func Decline(reason string) Plan { return Plan{Reason: reason} }

// Stats are a provider's counters since it was opened. Those of transfers and memory
// are zero unless the provider is a Device.
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
