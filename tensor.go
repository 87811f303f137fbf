package fucina

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/core/storage"
	"github.com/fucina-go/fucina/core/tensor"
	"github.com/fucina-go/fucina/exec"
	"github.com/fucina-go/fucina/tags"
)

// MaxRank is the largest number of axes of a tensor.
const MaxRank = shape.MaxRank

// Axis is a named axis and its size.
type Axis struct {
	Name string
	Size int
}

// Ax returns the axis called name of the given size.
func Ax(name string, size int) Axis { return Axis{name, size} }

// String formats the axis as "name:size".
func (a Axis) String() string { return fmt.Sprintf("%s:%d", a.Name, a.Size) }

// Tensor names a tensor. It is a small comparable value; copies name the same
// tensor. Once that is released, every one of them is stale, and using it is
// ErrReleased. The zero Tensor is stale.
type Tensor struct{ h exec.Handle }

// layout returns names and shape of axes; no axes is a scalar, of shape {1}.
func layout(what string, axes []Axis) (tags.List, shape.Shape, error) {
	var names tags.List
	var dims [shape.MaxRank]int
	for i, a := range axes {
		var err error
		if names, err = names.Append(a.Name); err != nil {
			return tags.List{}, shape.Shape{}, fmt.Errorf("%s %s: %w", what, describeAxes(axes), err)
		}
		dims[i] = a.Size
	}
	s, err := shapeOf(dims[:len(axes)])
	if err != nil {
		return tags.List{}, shape.Shape{}, fmt.Errorf("%s %s: %w", what, describeAxes(axes), err)
	}
	if _, err := s.Elements(); err != nil {
		return tags.List{}, shape.Shape{}, fmt.Errorf("%s %s: %w", what, describeAxes(axes), err)
	}
	return names, s, nil
}

// shapeOf is shape.Of, but that no dims are a scalar's.
func shapeOf(dims []int) (shape.Shape, error) {
	if len(dims) == 0 {
		return shape.Must(1), nil
	}
	return shape.Of(dims...)
}

func describeAxes(axes []Axis) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, a := range axes {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(a.String())
	}
	b.WriteByte('}')
	return b.String()
}

// FromSlice returns a tensor of T's dtype with a copy of values, in row-major order
// of axes; no axes make a scalar. For a block format, values are blocks along the
// last axis.
func FromSlice[T dtype.Element](c *Context, values []T, axes ...Axis) (Tensor, error) {
	if err := c.enter("from slice"); err != nil {
		return Tensor{}, err
	}
	defer c.exit()
	names, s, err := layout("from slice", axes)
	if err != nil {
		return Tensor{}, err
	}
	t, err := exec.FromSlice(c.x, s, values)
	if err != nil {
		return Tensor{}, fmt.Errorf("from slice %s: %w", names.Describe(s), err)
	}
	return c.wrap(t, names), nil
}

// Data returns the elements of a contiguous tensor for reading, in storage elements
// (blocks, for a block format). It waits for them, and brings them to the host if a
// device has them. The slice is the tensor's own memory: it ends with the last
// tensor that shares the storage, and using it afterwards is an error that nothing
// catches.
func Data[T dtype.Element](t Tensor) ([]T, error) { return access[T](t, "data", storage.Read) }

// Update is Data for reading and writing.
func Update[T dtype.Element](t Tensor) ([]T, error) { return access[T](t, "update", storage.Update) }

func access[T dtype.Element](t Tensor, what string, a storage.Access) ([]T, error) {
	o, err := t.use(what)
	if err != nil {
		return nil, err
	}
	defer o.t.Release()
	p, err := tensor.Data[T](context.Background(), &o.t, a)
	if err != nil {
		return nil, failed(what, &o, err, "%v", err)
	}
	return p, nil
}

// ReadInto copies the elements of a contiguous tensor into dst, which has exactly
// as many. From a device it transfers these bytes only, and leaves the tensor where
// it is. It ends with ctx's error if ctx is done first.
func ReadInto[T dtype.Element](ctx context.Context, t Tensor, dst []T) error {
	o, err := t.use("read")
	if err != nil {
		return err
	}
	defer o.t.Release()
	d := dtype.Of[T]()
	switch n := o.t.StorageLen(); {
	case d != o.t.DType():
		return failed("read", &o, ErrDType, "%s read as %s", o.t.DType(), d)
	case !o.t.IsContiguous():
		return failed("read", &o, ErrUnsupportedView, "strides %s, want a contiguous tensor", o.t.Strides())
	case len(dst) != n:
		return failed("read", &o, ErrInvalidDataLength, "%d elements into %d", n, len(dst))
	}
	size := d.Size()
	p := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(dst))), len(dst)*size)
	if err := o.t.Buffer().ReadAt(ctx, p, o.t.Offset()*size); err != nil {
		return failed("read", &o, err, "%v", err)
	}
	return nil
}

// Release gives the tensor back. While a scope owns it, that does nothing. A second
// release is ErrReleased.
func (t Tensor) Release() error {
	if err := t.h.Release(); err != nil {
		return fmt.Errorf("release: %w", ErrReleased)
	}
	return nil
}

// Replace moves a variable on to its next value, the result of an operation:
//
//	y, err := x.Add(c, d)
//	err = fucina.Replace(&x, y, err)
//
// If err is not nil it returns err and leaves *old as it is. Otherwise it releases
// *old, unless that is the zero Tensor or fresh itself, and sets it to fresh.
func Replace(old *Tensor, fresh Tensor, err error) error {
	if err != nil {
		return err
	}
	before := *old
	*old = fresh
	if before == (Tensor{}) || before == fresh {
		return nil
	}
	return before.Release()
}

// Valid reports whether the tensor has not been released.
func (t Tensor) Valid() bool {
	o, err := t.use("")
	if err != nil {
		return false
	}
	o.t.Release()
	return true
}

// DType returns the element format; dtype.Invalid for a stale tensor.
func (t Tensor) DType() dtype.DType {
	o, err := t.use("")
	if err != nil {
		return dtype.Invalid
	}
	defer o.t.Release()
	return o.t.DType()
}

// Dim returns the size of the axis.
func (t Tensor) Dim(axis string) (int, error) {
	o, err := t.use("dim")
	if err != nil {
		return 0, err
	}
	defer o.t.Release()
	i, err := o.axis("dim", axis)
	if err != nil {
		return 0, err
	}
	return o.t.Dim(i), nil
}

// Axes returns the axes, outermost first; none for a scalar or a stale tensor.
func (t Tensor) Axes() []Axis {
	o, err := t.use("")
	if err != nil {
		return nil
	}
	defer o.t.Release()
	axes := make([]Axis, o.names.Len())
	for i, name := range o.names.Slice() {
		axes[i] = Axis{name, o.t.Dim(i)}
	}
	return axes
}

// Len returns the number of logical elements; 0 for a stale tensor.
func (t Tensor) Len() int {
	o, err := t.use("")
	if err != nil {
		return 0
	}
	defer o.t.Release()
	return o.t.Len()
}

// String describes the tensor without its values, as "f32 {batch:2 d:3}".
func (t Tensor) String() string {
	o, err := t.use("")
	if err != nil {
		return "released tensor"
	}
	defer o.t.Release()
	return o.t.DType().String() + " " + o.describe()
}

// Raw is the layout of a tensor at the moment it was asked for.
type Raw struct {
	DType dtype.DType
	Shape []int // logical sizes; {1} for a scalar
	// Strides and Offset count storage elements: blocks, for a block format.
	Strides    []int
	Offset     int
	Contiguous bool
}

// AsRaw returns the layout, for inspection.
func (t Tensor) AsRaw() (Raw, error) {
	o, err := t.use("raw")
	if err != nil {
		return Raw{}, err
	}
	defer o.t.Release()
	s, st := o.t.Shape(), o.t.Strides()
	return Raw{
		DType: o.t.DType(), Shape: append([]int(nil), s.Slice()...), Strides: append([]int(nil), st.Slice()...),
		Offset: o.t.Offset(), Contiguous: o.t.IsContiguous(),
	}, nil
}

// operand is a tensor during a call: a reference, to be released, with the names of
// its axes. Ops put views of it in its place; shape is as it came, for messages.
type operand struct {
	t     tensor.Tensor
	names tags.List
	shape shape.Shape
}

func (t Tensor) use(what string) (operand, error) {
	raw, names, err := t.h.Use()
	if err != nil {
		if !errors.Is(err, ErrReleased) {
			return operand{}, fmt.Errorf("%s: %w", what, err)
		}
		return operand{}, fmt.Errorf("%s: %w", what, ErrReleased)
	}
	return operand{raw, names, raw.Shape()}, nil
}

// use2 returns both operands, or none.
func use2(what string, t, u Tensor) (a, b operand, err error) {
	if a, err = t.use(what); err != nil {
		return operand{}, operand{}, fmt.Errorf("%w (left)", err)
	}
	if b, err = u.use(what); err != nil {
		a.t.Release()
		return operand{}, operand{}, fmt.Errorf("%w (right)", err)
	}
	return a, b, nil
}

func (o *operand) describe() string { return o.names.Describe(o.shape) }

// axis returns the place of the axis.
func (o *operand) axis(what, name string) (int, error) {
	i := o.names.Index(name)
	if i < 0 {
		return 0, failed(what, o, ErrTag, "no axis %q", name)
	}
	return i, nil
}

// set puts v, whose reference it takes, in the operand's place.
func (o *operand) set(v tensor.Tensor) {
	o.t.Release()
	o.t = v
}
