package fucina

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"unsafe"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/core/storage"
	"github.com/fucina-go/fucina/core/tensor"
	"github.com/fucina-go/fucina/exec"
	"github.com/fucina-go/fucina/internal/invariants"
	"github.com/fucina-go/fucina/internal/offheap"
	"github.com/fucina-go/fucina/tagged"
)

// FromSlice returns a tensor of T's dtype that holds a copy of values, in the row-major
// order of axes. Without axes the tensor is a scalar. For a block format, the values are the
// blocks along the last axis.
func FromSlice[T Element](c *Context, values []T, axes ...Axis) Tensor {
	y, err := c.made("from slice", axes, func(s shape.Shape) (tensor.Tensor, error) {
		return exec.FromSlice(c.x, s, values)
	})
	if err != nil {
		return c.fail(err)
	}
	return y
}

// made calls f with the shape of axes, inside the context, and returns f's tensor with
// these axes. The innermost frame owns it.
func (c *Context) made(what string, axes []Axis, f func(s shape.Shape) (tensor.Tensor, error)) (Tensor, error) {
	if err := c.enter(); err != nil {
		return Tensor{}, fmt.Errorf("%s: %w", what, err)
	}
	defer c.exit()
	if err := c.context().Err(); err != nil {
		return Tensor{}, fmt.Errorf("%s: %w", what, err)
	}
	names, s, err := layout(what, axes)
	if err != nil {
		return Tensor{}, err
	}
	t, err := f(s)
	if err != nil {
		return Tensor{}, fmt.Errorf("%s %s: %w", what, names.Describe(s), err)
	}
	return c.wrapIn(c.innermost(), &tagged.Tensor{Raw: t, Names: names}), nil
}

// filled returns a tensor whose element i, in the order of the axes, is next(i). next is
// called inside the context, so that nothing ends the memory before it is filled.
func filled[T Element](c *Context, what string, axes []Axis, next func(i int) T) Tensor {
	y, err := c.made(what, axes, func(s shape.Shape) (tensor.Tensor, error) {
		t, v, err := exec.Fresh[T](c.x, s)
		if err != nil {
			return tensor.Tensor{}, err
		}
		full := false
		defer func() {
			if !full { // next has panicked
				t.Release()
			}
		}()
		for i := range v {
			v[i] = next(i)
		}
		full = true
		return t, nil
	})
	if err != nil {
		return c.fail(err)
	}
	return y
}

// Zeros returns a tensor of zeros of dtype d.
func (c *Context) Zeros(d DType, axes ...Axis) Tensor { return c.full("zeros", d, 0, axes) }

// Ones returns a tensor of ones of dtype d.
func (c *Context) Ones(d DType, axes ...Axis) Tensor { return c.full("ones", d, 1, axes) }

// Full returns a tensor of dtype d whose elements are v, converted as To converts.
func (c *Context) Full(d DType, v float64, axes ...Axis) Tensor { return c.full("full", d, v, axes) }

func (c *Context) full(what string, d DType, v float64, axes []Axis) Tensor {
	if _, _, err := layout(what, axes); err != nil {
		return c.fail(err)
	}
	f := c.Frame()
	return f.Return(FromSlice(c, []float64{v}).To(d).BroadcastTo(axes...).Copy())
}

// Range returns the i32 tensor {axis:n} of the integers 0 to n-1.
func (c *Context) Range(axis string, n int) Tensor {
	if n > math.MaxInt32 {
		return c.fail(&opError{fmt.Sprintf("range {%s:%d}: more entries than an i32 can count", axis, n), ErrOverflow})
	}
	return filled(c, "range", []Axis{{Name: axis, Size: n}}, func(i int) int32 { return int32(i) })
}

// Normal returns an f32 tensor of normally distributed elements with mean 0 and standard
// deviation std. The elements are drawn from r in the order of the axes. r's source must not
// use c.
func (c *Context) Normal(r *rand.Rand, std float64, axes ...Axis) Tensor {
	if r == nil {
		return c.fail(fmt.Errorf("normal: %w", errNoRand))
	}
	return filled(c, "normal", axes, func(int) float32 { return float32(std * r.NormFloat64()) })
}

// Uniform returns an f32 tensor of elements that are uniformly distributed between lo and
// hi. The elements are drawn from r in the order of the axes, and r's source must not use c.
// An element equals hi only if it was rounded to f32.
func (c *Context) Uniform(r *rand.Rand, lo, hi float64, axes ...Axis) Tensor {
	if r == nil {
		return c.fail(fmt.Errorf("uniform: %w", errNoRand))
	}
	return filled(c, "uniform", axes, func(int) float32 { return float32(lo + (hi-lo)*r.Float64()) })
}

var errNoRand = errors.New("no source of random numbers")

// Data returns a new slice with the elements of t, in the order of the axes. For a block
// format, the elements are blocks. Data waits for the elements, unless the context.Context
// of SetCancel ends first. If the newest copy is on a device, Data transfers only the bytes
// of t, and the tensor remains on the device.
func Data[T Element](t Tensor) ([]T, error) {
	o, f, err := elements[T](t, "data")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	defer o.Raw.Release()
	v := make([]T, o.Raw.StorageLen())
	if err := copyOut(t, "data", &o, v); err != nil {
		return nil, err
	}
	return v, nil
}

// CopyOut copies the elements of t into dst, which must have exactly as many elements. It
// waits like Data. It allocates nothing if t is contiguous.
func CopyOut[T Element](t Tensor, dst []T) error { return copyTo(t, "copy out", dst) }

func copyTo[T Element](t Tensor, what string, dst []T) error {
	o, f, err := elements[T](t, what)
	if err != nil {
		return err
	}
	defer f.Close()
	defer o.Raw.Release()
	if n := o.Raw.StorageLen(); len(dst) != n {
		return wrong(what, &opError{fmt.Sprintf("%s %s into %d elements, want %d", o.Raw.DType(), o.Describe(), len(dst), n), ErrInvalidDataLength})
	}
	return copyOut(t, what, &o, dst)
}

// Item returns the only element of t. It fails with ErrShapeMismatch if t does not have
// exactly one element.
func Item[T Scalar](t Tensor) (T, error) { return item[T](t, "item") }

// Float returns the only element of t, converted to f64 as To converts. It fails like Item.
func (t Tensor) Float() (float64, error) { return converted[float64](t, "float", F64) }

// Int returns the only element of t, converted to i64 as To converts. It fails like Item.
func (t Tensor) Int() (int, error) {
	v, err := converted[int64](t, "int", I64)
	return int(v), err
}

// item implements Item. what is the name of the call in errors.
func item[T Scalar](t Tensor, what string) (T, error) {
	var v [1]T
	if n := t.Len(); t.live() && n != 1 {
		return v[0], wrong(what, &opError{fmt.Sprintf("%s has %d elements, want one", t, n), ErrShapeMismatch})
	}
	err := copyTo(t, what, v[:])
	return v[0], err
}

// converted implements Float and Int. d is the dtype of T.
func converted[T Scalar](t Tensor, what string, d DType) (T, error) {
	if t.failure() != nil || t.DType() == d || t.Len() != 1 {
		return item[T](t, what)
	}
	if t.c == nil {
		var zero T
		return zero, wrong(what, errNoContext)
	}
	f := t.c.Frame()
	defer f.Close()
	return item[T](t.To(d), what)
}

// All yields the indices and the value of each element, in the order of the axes. The slice
// of indices is reused. If t has failed, All yields nothing. If the elements are not of type
// T or cannot be read, All yields nothing and records a failure on the context.
func All[T Scalar](t Tensor) iter.Seq2[[]int, T] {
	return func(yield func([]int, T) bool) {
		if t.failure() != nil {
			return
		}
		v, err := Data[T](t)
		if err != nil {
			t.c.fail(errors.Unwrap(err)) // a new failure, which has the place of the loop and has not been looked at
			return
		}
		axes := t.Axes()
		at := make([]int, len(axes))
		for _, x := range v {
			if !yield(at, x) {
				return
			}
			for i := len(at) - 1; i >= 0; i-- {
				if at[i]++; at[i] < axes[i].Size {
					break
				}
				at[i] = 0
			}
		}
	}
}

// Read calls read with the elements of t, which must be contiguous, and returns read's error
// unchanged. For a block format, the elements are blocks. Read waits for the elements and
// brings them to the host, where they remain.
//
// v is the tensor's own memory. It is valid until read returns, even if the tensor ends
// before that. read must not write to v, and must not use v after it returns: only a build
// with the tag invariants detects such a use, because v is then a copy that becomes
// inaccessible. If v lies in a mapped file that has been truncated, and read accesses a
// missing page, Read fails with ErrFileChanged. If another goroutine writes to the tensor
// while read runs, the contents of v change.
func Read[T Element](t Tensor, read func(v []T) error) error {
	return lend(t, "read", storage.Read, read)
}

// Update is like Read, but write may also write to v. The elements keep what write wrote,
// even if write returns an error. If the storage is read-only, Update fails with ErrReadOnly
// and does not call write.
//
// After Update has returned, every operation sees the new elements, on every provider. An
// operation on the tensor or on a view of it that runs during the call may see old and new
// elements. If it writes to the tensor, either its value or that of write remains in each
// element.
func Update[T Element](t Tensor, write func(v []T) error) error {
	return lend(t, "update", storage.Update, write)
}

// Discard gives memory of t back to the system. Its elements are undefined until they are
// written again. t is contiguous, and usually a part of a tensor of Engine.Empty, whose memory
// is resident from the first write on: a cache can be as large as its longest use, and hold
// only the memory of its present one. Discard frees the pages of the system that lie wholly
// in t; it frees none of memory that a device has, or that the program lent.
//
// Discard does not wait, and no operation on the elements may run meanwhile. It fails with
// ErrUnsupportedView if t is not contiguous, and with ErrReadOnly if the storage is read-only.
func (t Tensor) Discard() error {
	o, err := t.opened("discard")
	if err != nil {
		return err
	}
	defer o.Raw.Release()
	if err := o.Raw.Discard(); err != nil {
		return wrong("discard", fmt.Errorf("%s %s: %w", o.Raw.DType(), o.Describe(), err))
	}
	return nil
}

// opened returns t as the operand of a call that accesses its elements. The caller releases
// the operand.
func (t Tensor) opened(what string) (tagged.Tensor, error) {
	if t.failure() != nil {
		return tagged.Tensor{}, t.Err()
	}
	o, err := t.use()
	if err == nil && t.h.e.closed.Load() {
		o.Raw.Release()
		err = t.h.e.isClosed()
	}
	if err != nil {
		return tagged.Tensor{}, wrong(what, err)
	}
	return o, nil
}

// elements returns t as a contiguous operand with elements of type T: t itself, or a copy
// that the returned frame owns. The caller releases the operand and closes the frame, which
// may be the zero Frame.
func elements[T Element](t Tensor, what string) (tagged.Tensor, Frame, error) {
	o, err := t.opened(what)
	if err != nil {
		return tagged.Tensor{}, Frame{}, err
	}
	if err := typed[T](what, &o); err != nil {
		o.Raw.Release()
		return tagged.Tensor{}, Frame{}, err
	}
	if o.Raw.IsContiguous() {
		return o, Frame{}, nil
	}
	o.Raw.Release()
	if t.c == nil {
		return tagged.Tensor{}, Frame{}, wrong(what, fmt.Errorf("a tensor that is not contiguous: %w", errNoContext))
	}
	f := t.c.Frame()
	if o, err = t.Copy().opened(what); err != nil {
		f.Close()
		return tagged.Tensor{}, Frame{}, err
	}
	return o, f, nil
}

// typed returns an error if the elements of o are not of type T.
func typed[T Element](what string, o *tagged.Tensor) error {
	if d := dtype.Of[T](); d != o.Raw.DType() {
		return wrong(what, &opError{fmt.Sprintf("%s %s read as %s", o.Raw.DType(), o.Describe(), d), ErrDType})
	}
	return nil
}

// copyOut copies the elements of a contiguous operand into dst, which has the same length.
func copyOut[T Element](t Tensor, what string, o *tagged.Tensor, dst []T) error {
	size := o.Raw.DType().Size()
	p := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(dst))), len(dst)*size)
	if err := o.Raw.Buffer().ReadAt(t.c.context(), p, o.Raw.Offset()*size); err != nil {
		return wrong(what, fmt.Errorf("%s %s: %w", o.Raw.DType(), o.Describe(), err))
	}
	return nil
}

// lend implements Read and Update; a says which.
func lend[T Element](t Tensor, what string, a storage.Access, f func(v []T) error) error {
	o, err := t.opened(what)
	if err != nil {
		return err
	}
	defer o.Raw.Release()
	fail := func(err error) error {
		return wrong(what, fmt.Errorf("%s %s: %w", o.Raw.DType(), o.Describe(), err))
	}
	if f == nil {
		return fail(errNoFunction)
	}
	if err := typed[T](what, &o); err != nil {
		return err
	}
	if !o.Raw.IsContiguous() {
		return fail(fmt.Errorf("strides %s, want a contiguous tensor: %w", o.Raw.Strides(), ErrUnsupportedView))
	}
	ctx := t.c.context()
	if a == storage.Update {
		if _, err := o.Raw.Buffer().BeginHostWrite(ctx); err != nil {
			return fail(err)
		}
		defer o.Raw.Buffer().EndHostWrite()
	}
	own, err := tensor.Data[T](ctx, &o.Raw, storage.Read)
	if err != nil {
		return fail(err)
	}
	lent := own
	if invariants.Enabled {
		block, err := offheap.Alloc(len(own) * o.Raw.DType().Size())
		if err != nil {
			return fail(err)
		}
		defer offheap.Free(&block) // a later use of the lent elements faults
		if lent, err = storage.Elements[T](block.Bytes()); err != nil {
			return fail(err)
		}
		if err := offheap.Guard(func() error { copy(lent, own); return nil }); err != nil {
			return fail(err)
		}
		if a == storage.Update {
			defer func() { copy(own, lent) }()
		}
	}
	// The elements may lie in a mapped file.
	var result error // f's own error, returned unchanged
	if err := offheap.Guard(func() error { result = f(lent); return nil }); err != nil {
		return fail(err)
	}
	return result
}

var errNoFunction = errors.New("no function")
