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
)

// FromSlice returns a tensor of T's dtype with a copy of values, in row-major order of
// axes; no axes make a scalar. For a block format, values are blocks along the last axis.
func FromSlice[T Element](c *Context, values []T, axes ...Axis) Tensor {
	y, err := c.made("from slice", axes, func(s shape.Shape) (tensor.Tensor, error) {
		return exec.FromSlice(c.x, s, values)
	})
	if err != nil {
		return c.fail(err)
	}
	return y
}

// made returns what f makes of the shape of axes, inside the context.
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
	return c.wrapIn(c.innermost(), t, names), nil
}

// filled returns a tensor whose elements, in the order of the axes, are those of next.
func filled[T Element](c *Context, what string, axes []Axis, next func(i int) T) Tensor {
	var v []T
	y, err := c.made(what, axes, func(s shape.Shape) (t tensor.Tensor, err error) {
		t, v, err = exec.Fresh[T](c.x, s)
		return t, err
	})
	if err != nil {
		return c.fail(err)
	}
	for i := range v {
		v[i] = next(i)
	}
	return y
}

// Zeros returns a tensor of zeros of dtype d.
func (c *Context) Zeros(d DType, axes ...Axis) Tensor { return c.Full(d, 0, axes...) }

// Ones returns a tensor of ones of dtype d.
func (c *Context) Ones(d DType, axes ...Axis) Tensor { return c.Full(d, 1, axes...) }

// Full returns a tensor of dtype d whose elements are v, converted as To converts.
func (c *Context) Full(d DType, v float64, axes ...Axis) Tensor {
	f := c.Frame()
	return f.Return(FromSlice(c, []float64{v}).To(d).BroadcastTo(axes...).Copy())
}

// Range returns the i32 tensor {axis:n} of 0 to n-1.
func (c *Context) Range(axis string, n int) Tensor {
	if n > math.MaxInt32 {
		return c.fail(&opError{fmt.Sprintf("range {%s:%d}: more entries than an i32 counts", axis, n), ErrOverflow})
	}
	return filled(c, "range", []Axis{{Name: axis, Size: n}}, func(i int) int32 { return int32(i) })
}

// Normal returns an f32 tensor of normally distributed elements with mean 0 and the
// standard deviation std, drawn from r in the order of the axes.
func (c *Context) Normal(r *rand.Rand, std float64, axes ...Axis) Tensor {
	if r == nil {
		return c.fail(fmt.Errorf("normal: %w", errNoRand))
	}
	return filled(c, "normal", axes, func(int) float32 { return float32(std * r.NormFloat64()) })
}

// Uniform returns an f32 tensor of elements drawn from r between lo and hi, in the order
// of the axes. hi itself comes up only by rounding to f32.
func (c *Context) Uniform(r *rand.Rand, lo, hi float64, axes ...Axis) Tensor {
	if r == nil {
		return c.fail(fmt.Errorf("uniform: %w", errNoRand))
	}
	return filled(c, "uniform", axes, func(int) float32 { return float32(lo + (hi-lo)*r.Float64()) })
}

var errNoRand = errors.New("no source of random numbers")

// Data returns a new slice with the elements, in storage elements (blocks, for a block
// format), in the order of the axes. It waits for them, until the end of the context that
// SetCancel was given. From a device it transfers these bytes only, and leaves the tensor
// where it is.
func Data[T Element](t Tensor) ([]T, error) {
	o, f, err := elements[T](t, "data")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	defer o.t.Release()
	v := make([]T, o.t.StorageLen())
	if err := copyOut(t, "data", &o, v); err != nil {
		return nil, err
	}
	return v, nil
}

// CopyOut is Data into dst, which has exactly as many elements. It allocates nothing for
// a contiguous tensor.
func CopyOut[T Element](t Tensor, dst []T) error { return copyTo(t, "copy out", dst) }

func copyTo[T Element](t Tensor, what string, dst []T) error {
	o, f, err := elements[T](t, what)
	if err != nil {
		return err
	}
	defer f.Close()
	defer o.t.Release()
	if n := o.t.StorageLen(); len(dst) != n {
		return wrong(what, &opError{fmt.Sprintf("%s %s into %d elements, want %d", o.t.DType(), o.describe(), len(dst), n), ErrInvalidDataLength})
	}
	return copyOut(t, what, &o, dst)
}

// Item returns the one element of a scalar, or of a tensor of one element.
func Item[T Scalar](t Tensor) (T, error) {
	var v [1]T
	if n := t.Len(); t.live() && n != 1 {
		return v[0], wrong("item", &opError{fmt.Sprintf("%s has %d elements, want one", t, n), ErrShapeMismatch})
	}
	err := copyTo(t, "item", v[:])
	return v[0], err
}

// Float returns the one element of a tensor of any format that converts to f64.
func (t Tensor) Float() (float64, error) { return converted[float64](t, F64) }

// Int returns the one element of a tensor of any format that converts to i64.
func (t Tensor) Int() (int, error) {
	v, err := converted[int64](t, I64)
	return int(v), err
}

func converted[T Scalar](t Tensor, d DType) (T, error) {
	if t.failure() != nil || t.DType() == d {
		return Item[T](t)
	}
	var zero T
	switch {
	case !t.live():
		return zero, wrong("item", errEnded(t))
	case t.c == nil:
		return zero, wrong("item", errNoContext)
	}
	f := t.c.Frame()
	defer f.Close()
	return Item[T](t.To(d))
}

// All yields the places and the values of the elements, in the order of the axes. The
// slice of places is reused. It yields nothing for a tensor that has failed, and for one
// whose elements are no T or cannot be read; that leaves a failure on the context.
func All[T Scalar](t Tensor) iter.Seq2[[]int, T] {
	return func(yield func([]int, T) bool) {
		if t.failure() != nil {
			return
		}
		v, err := Data[T](t)
		if err != nil {
			t.c.fail(errors.Unwrap(err)) // with the place of the loop, and not looked at
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

// Read lends the elements of a contiguous tensor to read, in storage elements (blocks, for
// a block format), and returns read's error as it is. It waits for the elements, and
// brings them to the host, where they stay.
//
// v is the tensor's own memory. It stays valid until read returns, even if the tensor
// ends meanwhile, and read only reads it. If v lies in a mapped file that was cut, and
// read reads what is gone, Read fails with ErrFileChanged. A use of v after read returned
// is an error that only a build with the tag invariants catches: there v is a copy, which
// is made inaccessible. If another goroutine writes to the tensor while read runs, v
// changes under it.
func Read[T Element](t Tensor, read func(v []T) error) error {
	return lend(t, "read", storage.Read, read)
}

// Update is Read for a function that also writes. What it wrote stays, whatever it
// returns. It fails with ErrReadOnly, before it calls write, for storage that was lent for
// reading.
//
// Once Update has returned, every operation sees what was written, on every provider. An
// operation on the tensor, or on a view of it, that another goroutine or write itself
// calls meanwhile sees some elements as they were and some as write left them; one that
// writes to the tensor then competes with write for every element.
func Update[T Element](t Tensor, write func(v []T) error) error {
	return lend(t, "update", storage.Update, write)
}

// opened returns t as the operand of a call that reaches its elements.
func (t Tensor) opened(what string) (operand, error) {
	if t.failure() != nil {
		return operand{}, t.Err()
	}
	o, err := t.use()
	if err == nil && t.h.e.closed.Load() {
		o.t.Release()
		err = t.h.e.isClosed()
	}
	if err != nil {
		return operand{}, wrong(what, err)
	}
	return o, nil
}

// elements returns t as an operand whose elements of type T lie in a row: t itself, or a
// copy in a frame. The caller releases the operand and closes the frame, which may be the
// zero Frame.
func elements[T Element](t Tensor, what string) (operand, Frame, error) {
	o, err := t.opened(what)
	if err != nil {
		return operand{}, Frame{}, err
	}
	if err := typed[T](what, &o); err != nil {
		o.t.Release()
		return operand{}, Frame{}, err
	}
	if o.t.IsContiguous() {
		return o, Frame{}, nil
	}
	o.t.Release()
	if t.c == nil {
		return operand{}, Frame{}, wrong(what, fmt.Errorf("the elements do not lie in a row: %w", errNoContext))
	}
	f := t.c.Frame()
	if o, err = t.Copy().opened(what); err != nil {
		f.Close()
		return operand{}, Frame{}, err
	}
	return o, f, nil
}

// typed reports an operand whose elements are not of type T.
func typed[T Element](what string, o *operand) error {
	if d := dtype.Of[T](); d != o.t.DType() {
		return wrong(what, &opError{fmt.Sprintf("%s %s read as %s", o.t.DType(), o.describe(), d), ErrDType})
	}
	return nil
}

// copyOut copies the elements of a contiguous operand into dst, which has as many.
func copyOut[T Element](t Tensor, what string, o *operand, dst []T) error {
	size := o.t.DType().Size()
	p := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(dst))), len(dst)*size)
	if err := o.t.Buffer().ReadAt(t.c.context(), p, o.t.Offset()*size); err != nil {
		return wrong(what, fmt.Errorf("%s %s: %w", o.t.DType(), o.describe(), err))
	}
	return nil
}

// lend is Read or Update, as a says.
func lend[T Element](t Tensor, what string, a storage.Access, f func(v []T) error) error {
	o, err := t.opened(what)
	if err != nil {
		return err
	}
	defer o.t.Release()
	fail := func(err error) error {
		return wrong(what, fmt.Errorf("%s %s: %w", o.t.DType(), o.describe(), err))
	}
	if f == nil {
		return fail(errNoFunction)
	}
	if err := typed[T](what, &o); err != nil {
		return err
	}
	if !o.t.IsContiguous() {
		return fail(fmt.Errorf("strides %s, want a contiguous tensor: %w", o.t.Strides(), ErrUnsupportedView))
	}
	ctx := t.c.context()
	if a == storage.Update {
		if _, err := o.t.Buffer().BeginHostWrite(ctx); err != nil {
			return fail(err)
		}
		defer o.t.Buffer().EndHostWrite()
	}
	own, err := tensor.Data[T](ctx, &o.t, storage.Read)
	if err != nil {
		return fail(err)
	}
	lent := own
	if invariants.Enabled {
		block, err := offheap.Alloc(len(own) * o.t.DType().Size())
		if err != nil {
			return fail(err)
		}
		defer offheap.Free(&block) // from here on a use of the elements faults
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
	var result error // f's own error, to which lend adds nothing
	if err := offheap.Guard(func() error { result = f(lent); return nil }); err != nil {
		return fail(err)
	}
	return result
}

var errNoFunction = errors.New("no function")
