package fucina

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/storage"
	"github.com/fucina-go/fucina/core/tensor"
	"github.com/fucina-go/fucina/internal/invariants"
	"github.com/fucina-go/fucina/internal/offheap"
)

// Data returns a copy of the elements of a contiguous tensor, in storage elements
// (blocks, for a block format). It waits for them, however long that takes; see
// ReadInto for a read that can be cancelled, and that allocates nothing. From a device
// it transfers these bytes only, and leaves the tensor where it is.
func Data[T dtype.Element](t Tensor) ([]T, error) {
	const what = "data"
	o, err := t.open(what)
	if err != nil {
		return nil, err
	}
	defer o.t.Release()
	if err := readable[T](what, &o); err != nil {
		return nil, err
	}
	v := make([]T, o.t.StorageLen())
	if err := copyOut(context.Background(), what, &o, v); err != nil {
		return nil, err
	}
	return v, nil
}

// ReadInto copies the elements of a contiguous tensor into dst, which has exactly
// as many. From a device it transfers these bytes only, and leaves the tensor where
// it is. It ends with ctx's error if ctx is done first.
func ReadInto[T dtype.Element](ctx context.Context, t Tensor, dst []T) error {
	const what = "read"
	o, err := t.open(what)
	if err != nil {
		return err
	}
	defer o.t.Release()
	if err := readable[T](what, &o); err != nil {
		return err
	}
	if n := o.t.StorageLen(); len(dst) != n {
		return failed(what, &o, ErrInvalidDataLength, "a slice of %d elements, want %d", len(dst), n)
	}
	return copyOut(ctx, what, &o, dst)
}

// Read lends the elements of a contiguous tensor to f, in storage elements (blocks, for
// a block format), and returns f's error as it is. It waits for the elements, however
// long that takes, and brings them to the host, where they stay.
//
// v is the tensor's own memory. It stays valid until f returns, even if the tensor is
// released meanwhile, and f only reads it. If v lies in a mapped file that was cut, and f
// reads what is gone, Read fails with ErrFileChanged. A use of v after f returned is an
// error that only a build with the tag invariants catches: there v is a copy, which is
// made inaccessible. If another goroutine writes to the tensor while f runs, v changes
// under f.
func Read[T dtype.Element](t Tensor, f func(v []T) error) error {
	return lend(t, "read", storage.Read, f)
}

// Update is Read for an f that also writes. What f wrote stays, whatever f returns. It
// fails with ErrReadOnly, before it calls f, for storage that was lent for reading.
//
// Once Update has returned, every operation sees what f wrote, on every provider. An
// operation on the tensor, or on a view of it, that another goroutine or f itself calls
// while f runs sees some elements as they were and some as f left them; one that writes
// to the tensor then competes with f for every element.
func Update[T dtype.Element](t Tensor, f func(v []T) error) error {
	return lend(t, "update", storage.Update, f)
}

// open returns the tensor as the operand of a call that reaches its elements without a
// context.
func (t Tensor) open(what string) (operand, error) {
	o, err := t.use(what)
	if err == nil && t.h.e.closed.Load() {
		o.t.Release()
		return operand{}, fmt.Errorf("%s: %w", what, t.h.e.isClosed())
	}
	return o, err
}

// readable reports an operand that has no elements of type T in a row.
func readable[T dtype.Element](what string, o *operand) error {
	if d := dtype.Of[T](); d != o.t.DType() {
		return failed(what, o, ErrDType, "%s read as %s", o.t.DType(), d)
	}
	if !o.t.IsContiguous() {
		return failed(what, o, ErrUnsupportedView, "strides %s, want a contiguous tensor", o.t.Strides())
	}
	return nil
}

// copyOut copies the elements of a readable operand into dst, which has as many.
func copyOut[T dtype.Element](ctx context.Context, what string, o *operand, dst []T) error {
	size := o.t.DType().Size()
	p := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(dst))), len(dst)*size)
	if err := o.t.Buffer().ReadAt(ctx, p, o.t.Offset()*size); err != nil {
		return failed(what, o, err, "%v", err)
	}
	return nil
}

// lend is Read or Update, as a says.
func lend[T dtype.Element](t Tensor, what string, a storage.Access, f func(v []T) error) error {
	o, err := t.open(what)
	if err != nil {
		return err
	}
	defer o.t.Release()
	if f == nil {
		return failed(what, &o, errNoFunction, "no function")
	}
	if err := readable[T](what, &o); err != nil {
		return err
	}
	if a == storage.Update {
		if _, err := o.t.Buffer().BeginHostWrite(context.Background()); err != nil {
			return failed(what, &o, err, "%v", err)
		}
		defer o.t.Buffer().EndHostWrite()
	}
	own, err := tensor.Data[T](context.Background(), &o.t, storage.Read)
	if err != nil {
		return failed(what, &o, err, "%v", err)
	}
	lent := own
	if invariants.Enabled {
		block, err := offheap.Alloc(len(own) * o.t.DType().Size())
		if err != nil {
			return failed(what, &o, err, "%v", err)
		}
		defer offheap.Free(&block) // from here on a use of the elements faults
		if lent, err = storage.Elements[T](block.Bytes()); err != nil {
			return failed(what, &o, err, "%v", err)
		}
		if err := offheap.Guard(func() error { copy(lent, own); return nil }); err != nil {
			return failed(what, &o, err, "%v", err)
		}
		if a == storage.Update {
			defer func() { copy(own, lent) }()
		}
	}
	// The elements may lie in a mapped file.
	var result error // f's own error, to which lend adds nothing
	if err := offheap.Guard(func() error { result = f(lent); return nil }); err != nil {
		return failed(what, &o, err, "%v", err)
	}
	return result
}

var errNoFunction = errors.New("no function")
