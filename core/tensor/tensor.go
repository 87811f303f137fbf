package tensor

import (
	"context"
	"errors"
	"fmt"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/core/storage"
)

var (
	// ErrShapeMismatch, ErrInvalidShape and ErrOverflow are the errors of package
	// shape, and ErrReadOnly is that of package storage.
	ErrShapeMismatch = shape.ErrShapeMismatch
	ErrInvalidShape  = shape.ErrInvalidShape
	ErrOverflow      = shape.ErrOverflow
	ErrReadOnly      = storage.ErrReadOnly

	// ErrInvalidDataLength reports data or a buffer that a shape does not fit.
	ErrInvalidDataLength = errors.New("invalid data length")
	// ErrIndexOutOfBounds reports an axis or index that a tensor does not have.
	ErrIndexOutOfBounds = errors.New("index out of bounds")
	// ErrUnsupportedView reports a view that the layout cannot express.
	ErrUnsupportedView = errors.New("unsupported view")
	// ErrDType reports a dtype that an operation does not support.
	ErrDType = errors.New("unsupported dtype")
)

// Tensor is a reference to a buffer and an interpretation of its bytes. The zero Tensor has
// no buffer.
type Tensor struct {
	buf     *storage.Buffer
	dt      dtype.DType
	shape   shape.Shape
	strides shape.Shape
	offset  int
}

// FromBuffer returns a contiguous tensor over buf. On success it owns the caller's
// reference to buf; on an error the reference stays with the caller. buf may be
// larger than the tensor.
func FromBuffer(buf *storage.Buffer, d dtype.DType, s shape.Shape) (Tensor, error) {
	var t Tensor
	err := t.Open(buf, d, &s)
	return t, err
}

// Open makes t, which is the zero Tensor, the tensor that FromBuffer returns.
func (t *Tensor) Open(buf *storage.Buffer, d dtype.DType, s *shape.Shape) error {
	n, err := s.Bytes(d)
	if err != nil {
		return err
	}
	if n > buf.Size() {
		return fmt.Errorf("%w: %s %s needs %d bytes, the buffer has %d", ErrInvalidDataLength, d, *s, n, buf.Size())
	}
	t.buf, t.dt, t.shape, t.offset = buf, d, *s, 0
	if d.IsScalar() {
		t.strides = s.Contiguous()
	} else {
		st, _ := s.Storage(d)
		t.strides = st.Contiguous()
	}
	return nil
}

// FromSlice returns a new host tensor of dtype Of[T] with a copy of values, one per storage
// element. The caller releases it.
func FromSlice[T dtype.Element](s shape.Shape, values []T) (Tensor, error) {
	d := dtype.Of[T]()
	n, err := s.StorageElements(d)
	if err != nil {
		return Tensor{}, err
	}
	if n != len(values) {
		return Tensor{}, fmt.Errorf("%w: %s %s has %d storage elements, got %d", ErrInvalidDataLength, d, s, n, len(values))
	}
	buf, err := storage.New(n * d.Size())
	if err != nil {
		return Tensor{}, err
	}
	t, err := FromBuffer(buf, d, s)
	if err != nil {
		buf.Release()
		return Tensor{}, err
	}
	dst, err := Data[T](context.Background(), &t, storage.Overwrite)
	if err != nil {
		buf.Release()
		return Tensor{}, err
	}
	copy(dst, values)
	return t, nil
}

// Release drops the tensor's reference and makes t the zero Tensor.
func (t *Tensor) Release() {
	b := t.buf
	if b == nil {
		panic("tensor: release of a released tensor")
	}
	*t = Tensor{}
	b.Release()
}

// IsZero reports whether t has no buffer.
func (t *Tensor) IsZero() bool { return t.buf == nil }

// Buffer returns the buffer, without a reference for the caller.
func (t *Tensor) Buffer() *storage.Buffer { return t.buf }

// DType returns the element format.
func (t *Tensor) DType() dtype.DType { return t.dt }

// Shape returns the logical shape.
func (t *Tensor) Shape() shape.Shape { return t.shape }

// Strides returns the strides in storage elements.
func (t *Tensor) Strides() shape.Shape { return t.strides }

// Offset returns the index of the first element in the buffer, in storage elements.
func (t *Tensor) Offset() int { return t.offset }

// Rank returns the number of axes.
func (t *Tensor) Rank() int { return t.shape.Rank() }

// Dim returns the size of axis i, counting from the end when i is negative.
func (t *Tensor) Dim(i int) int { return t.shape.Dim(i) }

// Len returns the logical element count.
func (t *Tensor) Len() int {
	n, _ := t.shape.Elements() // checked when the tensor was made
	return n
}

// storageShape returns the shape in storage elements.
func (t *Tensor) storageShape() shape.Shape {
	s, _ := t.shape.Storage(t.dt) // checked when the tensor was made
	return s
}

// StorageLen returns the number of storage elements of the view.
func (t *Tensor) StorageLen() int {
	s := t.storageShape()
	n, _ := s.Elements()
	return n
}

// IsContiguous reports whether the strides are the row-major ones.
func (t *Tensor) IsContiguous() bool {
	s := t.storageShape()
	return s.IsContiguous(&t.strides)
}

// String describes the tensor without its values.
func (t *Tensor) String() string {
	if t.buf == nil {
		return "released tensor"
	}
	return fmt.Sprintf("%s %s", t.dt, t.shape)
}

// Retained returns the same view with its own reference. The caller releases it.
func (t *Tensor) Retained() Tensor {
	t.buf.Retain()
	return *t
}

// Reshape returns a view of a contiguous tensor with the shape s, which has the same number
// of elements. For a block format the last axis of s must be a whole number of blocks.
func (t *Tensor) Reshape(s shape.Shape) (Tensor, error) {
	if !t.IsContiguous() {
		return Tensor{}, fmt.Errorf("%w: reshape of %s with strides %s to %s needs a contiguous tensor", ErrUnsupportedView, t.String(), t.strides, s)
	}
	n, err := s.Elements()
	if err != nil {
		return Tensor{}, err
	}
	if n != t.Len() {
		return Tensor{}, fmt.Errorf("%w: reshape of %s (%d elements) to %s (%d)", ErrInvalidShape, t.String(), t.Len(), s, n)
	}
	if t.splitsBlocks(s.Dim(-1)) {
		return Tensor{}, fmt.Errorf("%w: reshape of %s to %s splits blocks", ErrUnsupportedView, t.String(), s)
	}
	st, err := s.Storage(t.dt)
	if err != nil {
		return Tensor{}, err
	}
	v := t.Retained()
	v.shape, v.strides = s, st.Contiguous()
	return v, nil
}

// splitsBlocks reports whether n entries of a last axis end inside a block.
func (t *Tensor) splitsBlocks(n int) bool { return n%t.dt.BlockSize() != 0 }

// View returns an arbitrary strided view that starts delta storage elements after t's first
// element. It checks that the largest reachable offset lies inside the buffer. For a block
// format the last axis of s must be a whole number of blocks, which lie along that axis.
func (t *Tensor) View(s, strides shape.Shape, delta int) (Tensor, error) {
	if _, err := s.Elements(); err != nil {
		return Tensor{}, err
	}
	if t.splitsBlocks(s.Dim(-1)) {
		return Tensor{}, fmt.Errorf("%w: view %s of %s splits blocks", ErrUnsupportedView, s, t.String())
	}
	st, err := s.Storage(t.dt)
	if err != nil {
		return Tensor{}, err
	}
	if delta < 0 {
		return Tensor{}, fmt.Errorf("%w: view at offset %d, want at least 0", ErrIndexOutOfBounds, delta)
	}
	offset, err := shape.Add(t.offset, delta)
	if err != nil {
		return Tensor{}, err
	}
	reach, err := st.Reach(&strides)
	if err != nil {
		return Tensor{}, err
	}
	last, err := shape.Add(offset, reach)
	if err != nil {
		return Tensor{}, err
	}
	if have := t.buf.Size() / t.dt.Size(); last >= have {
		return Tensor{}, fmt.Errorf("%w: view %s with strides %s at %d reaches element %d of %d", ErrInvalidDataLength, s, strides, offset, last, have)
	}
	v := t.Retained()
	v.shape, v.strides, v.offset = s, strides, offset
	return v, nil
}

// Bitcast returns the view of the same elements with the dtype d, whose size is that of t's
// dtype. Both are scalar dtypes. d is bool only if t's dtype is, because a Go bool has two
// values.
func (t *Tensor) Bitcast(d dtype.DType) (Tensor, error) {
	if !t.dt.IsScalar() || !d.IsScalar() || d.Size() != t.dt.Size() || d == dtype.Bool && t.dt != d {
		return Tensor{}, fmt.Errorf("%w: %s as %s, want numbers of one size", ErrDType, t.String(), d)
	}
	v := t.Retained()
	v.dt = d
	return v, nil
}

// Narrow returns the view of count entries from start on along axis. For a block format,
// start and count must be whole numbers of blocks along the last axis.
func (t *Tensor) Narrow(axis, start, count int) (Tensor, error) {
	if axis < 0 || axis >= t.Rank() {
		return Tensor{}, fmt.Errorf("%w: axis %d of %s", ErrIndexOutOfBounds, axis, t.String())
	}
	if d := t.Dim(axis); start < 0 || count < 1 || start > d || count > d-start {
		return Tensor{}, fmt.Errorf("%w: %d entries from %d on of axis %d of %s", ErrIndexOutOfBounds, count, start, axis, t.String())
	}
	v := *t
	v.shape.Set(axis, count)
	if axis == t.Rank()-1 {
		if t.splitsBlocks(start) || t.splitsBlocks(count) {
			return Tensor{}, fmt.Errorf("%w: %d entries from %d on of axis %d of %s split blocks", ErrUnsupportedView, count, start, axis, t.String())
		}
		start /= t.dt.BlockSize()
	}
	t.buf.Retain()
	v.offset += start * t.strides.Dim(axis)
	return v, nil
}

// Permute returns the view whose axis i is t's axis order[i]. order must name each
// axis once. The last axis of a block format stays last.
func (t *Tensor) Permute(order ...int) (Tensor, error) {
	rank := t.Rank()
	var seen [shape.MaxRank]bool
	if len(order) != rank {
		return Tensor{}, fmt.Errorf("%w: %d axes to permute %s", ErrInvalidShape, len(order), t.String())
	}
	v := *t
	for i, a := range order {
		if a < 0 || a >= rank || seen[a] {
			return Tensor{}, fmt.Errorf("%w: axis %d in a permutation of %s", ErrIndexOutOfBounds, a, t.String())
		}
		seen[a] = true
		v.shape.Set(i, t.shape.Dim(a))
		v.strides.Set(i, t.strides.Dim(a))
	}
	if t.dt.IsBlockQuantized() && order[rank-1] != rank-1 {
		return Tensor{}, fmt.Errorf("%w: permutation moves the block axis of %s", ErrUnsupportedView, t.String())
	}
	t.buf.Retain()
	return v, nil
}

// BroadcastTo returns a zero-stride view of shape s, right-aligned as in NumPy.
func (t *Tensor) BroadcastTo(s shape.Shape) (Tensor, error) {
	if _, err := s.Elements(); err != nil {
		return Tensor{}, err
	}
	st, err := shape.BroadcastStrides(&t.shape, &t.strides, &s)
	if err != nil {
		return Tensor{}, err
	}
	if t.dt.IsBlockQuantized() && s.Dim(-1) != t.Dim(-1) {
		return Tensor{}, fmt.Errorf("%w: broadcast of the block axis of %s", ErrUnsupportedView, t.String())
	}
	v := t.Retained()
	v.shape, v.strides = s, st
	return v, nil
}

// Overlaps reports whether two indices of the view may have the same element, so that a
// write is ambiguous; see [shape.Shape.Overlaps].
func (t *Tensor) Overlaps() bool {
	s := t.storageShape()
	return s.Overlaps(&t.strides)
}

// CanTakeInPlace reports whether a consuming operation may write its result over t: t must
// be a whole, contiguous, writable buffer with no other reference. The answer is reliable
// only if no other goroutine can use t.
func (t *Tensor) CanTakeInPlace() bool {
	return t.offset == 0 && t.IsContiguous() && t.buf.Unique() && !t.buf.ReadOnly()
}

// Bytes returns the contiguous view's host bytes for the access a. With Overwrite the
// caller must write every byte of the view. If the buffer has bytes outside the view that
// another owner could read, Bytes treats Overwrite as Update. It fails with
// ErrUnsupportedView if t is not contiguous.
func (t *Tensor) Bytes(ctx context.Context, a storage.Access) ([]byte, error) {
	if !t.IsContiguous() {
		return nil, fmt.Errorf("%w: data of %s with strides %s needs a contiguous tensor", ErrUnsupportedView, t.String(), t.strides)
	}
	size := t.dt.Size()
	n := t.StorageLen() * size
	if a == storage.Overwrite && n != t.buf.Size() && (t.offset != 0 || !t.buf.Unique()) {
		a = storage.Update
	}
	p, err := t.buf.Host(ctx, a)
	if err != nil {
		return nil, err
	}
	return p[t.offset*size:][:n:n], nil
}

// Discard makes the elements of the contiguous view undefined, until they are written again,
// and gives memory of theirs back to the system; see [storage.Buffer.Discard]. It fails with
// ErrUnsupportedView if t is not contiguous, and with ErrReadOnly if its buffer is read-only.
func (t *Tensor) Discard() error {
	if !t.IsContiguous() {
		return fmt.Errorf("%w: strides %s, want a contiguous tensor", ErrUnsupportedView, t.strides)
	}
	size := t.dt.Size()
	return t.buf.Discard(t.offset*size, t.StorageLen()*size)
}

// Data returns Bytes as elements of type T, which must be the Go type of t's dtype.
func Data[T dtype.Element](ctx context.Context, t *Tensor, a storage.Access) ([]T, error) {
	if d := dtype.Of[T](); d != t.dt {
		return nil, fmt.Errorf("%w: %s read as %s", ErrDType, t.String(), d)
	}
	p, err := t.Bytes(ctx, a)
	if err != nil {
		return nil, err
	}
	return storage.Elements[T](p)
}
