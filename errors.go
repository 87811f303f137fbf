package fucina

import (
	"errors"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/core/tensor"
	"github.com/fucina-go/fucina/exec"
	"github.com/fucina-go/fucina/internal/offheap"
	"github.com/fucina-go/fucina/tags"
)

// Errors about axes, shapes and layouts. Every error of this package that has one
// of these causes wraps it.
var (
	// ErrTag reports an axis name that an operation cannot use: unknown, repeated,
	// empty, one too many, or in the wrong place.
	ErrTag = tags.ErrTag
	// ErrShapeMismatch reports operands whose sizes along an axis do not fit.
	ErrShapeMismatch = tensor.ErrShapeMismatch
	// ErrInvalidShape reports sizes that no tensor, or no view of this one, can have.
	ErrInvalidShape = tensor.ErrInvalidShape
	// ErrOverflow reports a size that does not fit an int.
	ErrOverflow = tensor.ErrOverflow
	// ErrIndexOutOfBounds reports an index or range that an axis does not have.
	ErrIndexOutOfBounds = tensor.ErrIndexOutOfBounds
	// ErrInvalidDataLength reports a slice or buffer that a shape does not fit.
	ErrInvalidDataLength = tensor.ErrInvalidDataLength
	// ErrUnsupportedView reports a view that the layout cannot express, or access
	// to a layout that needs a contiguous one; see Tensor.Contiguous.
	ErrUnsupportedView = tensor.ErrUnsupportedView
	// ErrDType reports a dtype that an operation does not take, or a Go type that
	// is not the element type of a tensor's dtype.
	ErrDType = tensor.ErrDType
)

// Errors about lifetimes.
var (
	// ErrReleased reports use of a tensor after its release or the end of its frame.
	ErrReleased = errors.New("tensor was released, or its frame has ended")
	// ErrReadOnly reports a write to storage that was lent for reading, as that of
	// a mapped model file.
	ErrReadOnly = tensor.ErrReadOnly
	// ErrFileChanged reports a tensor whose bytes lie in a mapped file that was cut or
	// overwritten after it was mapped.
	ErrFileChanged = offheap.ErrFileChanged
	// ErrBusy reports a context used by two goroutines at once.
	ErrBusy = errors.New("context in use by another goroutine")
	// ErrClosed reports use of an engine or context after it was closed, or while it
	// closes.
	ErrClosed = provider.ErrClosed
	// ErrEngine reports a tensor that belongs to another engine than the context, or a
	// buffer that holds another engine's weights.
	ErrEngine = errors.New("of another engine")
	// ErrContext reports operands that two contexts drive.
	ErrContext = errors.New("operands of two contexts")
	// ErrNotOwned reports the Move of a tensor that the innermost frame does not own.
	ErrNotOwned = errors.New("move of a tensor that the innermost frame does not own")
	// ErrLeak reports tensors that were never released when their engine closed.
	ErrLeak = errors.New("tensors were never released")
)

// Errors about devices and memory.
var (
	// ErrUnavailable reports a provider that this machine or this build does not have.
	ErrUnavailable = provider.ErrUnavailable
	// ErrUnsupported reports an operation that no provider of the engine takes.
	ErrUnsupported = exec.ErrUnsupported
	// ErrDeviceFailed reports device work that failed; its results are lost.
	ErrDeviceFailed = accel.ErrDeviceFailed
	// ErrDeviceLost reports a device that is gone, with what only it held.
	ErrDeviceLost = accel.ErrDeviceLost
	// ErrOutOfMemory reports a device allocation that failed.
	ErrOutOfMemory = accel.ErrOutOfMemory
	// ErrNoMemory reports a host allocation that failed.
	ErrNoMemory = offheap.ErrNoMemory
)

// opError is an error whose message tells the whole story and whose kind is only
// for errors.Is.
type opError struct {
	msg  string
	kind error
}

func (e *opError) Error() string { return e.msg }
func (e *opError) Unwrap() error { return e.kind }
