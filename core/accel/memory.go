package accel

import "context"

// Memory is the device half of a buffer: bytes that only a device can address,
// and the way to move them. Implementations are safe for use by several
// goroutines.
type Memory interface {
	// Upload enqueues a copy of src to the device bytes from off on, made once the
	// given works have ended, well or not. src may be changed or freed as soon as
	// Upload returns. Upload may wait for these works and for room to copy src to,
	// until ctx is done. The result is the fence after which the bytes are there;
	// with an error, it is the fence of what was enqueued before the error.
	Upload(ctx context.Context, off int, src []byte, after Fences) (Work, error)
	// Download enqueues a copy of the device bytes from off on into dst, made once
	// the given work has ended, well or not. It may wait for that work until ctx is
	// done. dst must stay allocated, off the Go heap or pinned, until the result has
	// ended.
	Download(ctx context.Context, dst []byte, off int, after Work) (Work, error)
	// Read copies the device bytes from off on into dst, which may be any memory,
	// once the given work has ended, well or not, and waits for the copy. With an
	// error, the result is the fence of the copy that was not waited for: it still
	// reads the device bytes, but no longer touches dst.
	Read(ctx context.Context, dst []byte, off int, after Work) (Work, error)
	// Free gives the bytes back once the given works have ended. It never waits.
	// The set is only read during the call.
	Free(uses Fences)
}

// Resource is provider state tied to an allocation, such as a page wrapper or a
// registration of host memory with a driver. It survives pool reuse of the
// allocation and is destroyed before the bytes are freed.
type Resource interface {
	Destroy()
}

// HostShadow is a host-side derived copy of a buffer, such as weights widened to
// f32. It is droppable at any time and never the only copy of anything.
type HostShadow struct {
	// Generation of the buffer that the copy was derived from; the shadow is
	// stale once the buffer's generation differs.
	Generation uint64
	// Data is the derived copy, of a type that its maker knows.
	Data any
	// Destroy frees Data; called once, when the shadow is dropped. May be nil.
	Destroy func(data any)
}
