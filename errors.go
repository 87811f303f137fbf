package fucina

import (
	"errors"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/core/tensor"
	"github.com/fucina-go/fucina/internal/offheap"
	"github.com/fucina-go/fucina/tags"
)

// Errors about axes, shapes and layouts. Errors of this package wrap the sentinel of their
// cause.
var (
	// ErrTag reports an axis name that an operation cannot use, because it is unknown,
	// repeated, empty, one too many, or in the wrong position.
	ErrTag = tags.ErrTag
	// ErrShapeMismatch reports operands whose sizes along an axis do not fit.
	ErrShapeMismatch = tensor.ErrShapeMismatch
	// ErrInvalidShape reports sizes that a tensor, or a view of this tensor, cannot have.
	ErrInvalidShape = tensor.ErrInvalidShape
	// ErrOverflow reports a size that does not fit an int.
	ErrOverflow = tensor.ErrOverflow
	// ErrIndexOutOfBounds reports an index or a range outside of an axis.
	ErrIndexOutOfBounds = tensor.ErrIndexOutOfBounds
	// ErrInvalidDataLength reports a slice or a buffer whose length does not match a shape.
	ErrInvalidDataLength = tensor.ErrInvalidDataLength
	// ErrUnsupportedView reports a view that strides cannot express, or access that needs a
	// contiguous tensor; see Tensor.Contiguous.
	ErrUnsupportedView = tensor.ErrUnsupportedView
	// ErrDType reports a dtype that an operation does not accept, or a Go type that is not
	// the element type of a tensor's dtype.
	ErrDType = tensor.ErrDType
)

// Errors about lifetimes.
var (
	// ErrReleased reports use of a tensor after its release or the end of its frame.
	ErrReleased = errors.New("tensor was released, or its frame has ended")
	// ErrReadOnly reports a write to read-only storage, such as that of a mapped model file.
	ErrReadOnly = tensor.ErrReadOnly
	// ErrFileChanged reports a tensor whose bytes lie in a mapped file that was truncated or
	// overwritten after it was mapped.
	ErrFileChanged = offheap.ErrFileChanged
	// ErrBusy reports a context, or a session of package llm, used by two goroutines at once.
	ErrBusy = errors.New("context in use by another goroutine")
	// ErrClosed reports use of an engine or a context that is closed or closing.
	ErrClosed = provider.ErrClosed
	// ErrEngine reports a tensor that does not belong to the engine of the context, or a
	// buffer that holds weights of another engine.
	ErrEngine = errors.New("of another engine")
	// ErrContext reports operands that are driven by different contexts.
	ErrContext = errors.New("operands of two contexts")
	// ErrNotOwned reports a moved tensor that the innermost frame does not own.
	ErrNotOwned = errors.New("move of a tensor that the innermost frame does not own")
	// ErrLeak reports Shared tensors that had not been released when their engine closed.
	ErrLeak = errors.New("tensors were never released")
)

// Errors about devices and memory.
var (
	// ErrUnavailable reports a provider that this machine or this build does not have.
	ErrUnavailable = provider.ErrUnavailable
	// ErrUnsupported reports an operation that no provider of the engine runs.
	ErrUnsupported = provider.ErrUnsupported
	// ErrDeviceFailed reports work that failed on a device. Its results are lost.
	ErrDeviceFailed = accel.ErrDeviceFailed
	// ErrDeviceLost reports a device that stopped working. Contents that only it held are lost.
	ErrDeviceLost = accel.ErrDeviceLost
	// ErrOutOfMemory reports a device allocation that failed.
	ErrOutOfMemory = accel.ErrOutOfMemory
	// ErrNoMemory reports a host allocation that failed.
	ErrNoMemory = offheap.ErrNoMemory
)

// opError is an error with a complete message of its own. Its kind is the sentinel for
// errors.Is, and does not appear in the message.
type opError struct {
	msg  string
	kind error
}

func (e *opError) Error() string { return e.msg }
func (e *opError) Unwrap() error { return e.kind }
