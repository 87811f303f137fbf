package accel

import "context"

// Memory is the device half of a buffer: bytes that only a device can address,
// and the transfers to and from them. Implementations are safe for use by several
// goroutines.
type Memory interface {
	// Upload enqueues a copy of src to the device bytes from offset off on. The copy
	// runs once the works of after have ended, well or not. src may be changed or freed
	// as soon as Upload returns. Upload may wait, until ctx is done, for these works and
	// for room to copy src to. The result is the fence of the copy. With an error, it is
	// the fence of the part that was enqueued before the error.
	Upload(ctx context.Context, off int, src []byte, after Fences) (Work, error)
	// Download enqueues a copy of the device bytes from offset off on into dst. The copy
	// runs once after has ended, well or not. Download may wait for after until ctx is
	// done. dst must stay allocated, off the Go heap or pinned, until the result has
	// ended. With an error, the result is the fence of the part that was enqueued.
	Download(ctx context.Context, dst []byte, off int, after Work) (Work, error)
	// Read copies the device bytes from offset off on into dst, which may be any memory,
	// once after has ended, well or not, and waits for the copy. With an error, the
	// result is the fence of a copy that Read did not wait for. That copy still reads
	// the device bytes, but does not write to dst.
	Read(ctx context.Context, dst []byte, off int, after Work) (Work, error)
	// Free gives the bytes back once the works of uses have ended. It never waits and
	// does not keep uses.
	Free(uses Fences)
}

// Resource is provider state tied to an allocation, such as a page wrapper or a
// registration of host memory with a driver. It survives pool reuse of the
// allocation.
type Resource interface {
	// Destroy frees the state. It is called once, before the allocation is freed.
	Destroy()
}

// HostShadow is a host-side derived copy of a buffer, such as weights widened to
// f32. It may be dropped at any time and is never the only copy.
type HostShadow struct {
	// Generation is the generation of the buffer that the copy was derived from. The
	// shadow is stale once the buffer's generation differs.
	Generation uint64
	// Data is the derived copy. Its type depends on the code that made it.
	Data any
	// Destroy frees Data. It is called once, when the shadow is dropped, and may be nil.
	Destroy func(data any)
}
