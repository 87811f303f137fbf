package fucina

import (
	"fmt"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/core/tensor"
	"github.com/fucina-go/fucina/exec"
	"github.com/fucina-go/fucina/tagged"
	"github.com/fucina-go/fucina/tags"
)

// MaxRank is the largest number of axes of a tensor.
const MaxRank = shape.MaxRank

// Axis is a named axis and its size.
type Axis = tagged.Axis

// Ax returns the axis called name of the given size.
func Ax(name string, size int) Axis { return Axis{Name: name, Size: size} }

// layout returns names and shape of axes.
func layout(what string, axes []Axis) (tags.List, shape.Shape, error) {
	names, s, err := tagged.Layout(axes)
	if err != nil {
		return names, s, fmt.Errorf("%s %w", what, err)
	}
	return names, s, nil
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
		axes[i] = Axis{Name: name, Size: o.t.Dim(i)}
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
// its axes. Ops replace t by views of it; shape stays the original one, for messages.
type operand struct {
	t     tensor.Tensor
	names tags.List
	shape shape.Shape
}

// use returns the tensor as an operand of a call that needs no context.
func (t Tensor) use(what string) (operand, error) {
	if t.h == nil {
		return operand{}, fmt.Errorf("%s: %w", what, ErrReleased)
	}
	t.h.mu.Lock()
	defer t.h.mu.Unlock()
	if t.h.epoch != t.epoch {
		return operand{}, fmt.Errorf("%s: %w", what, ErrReleased)
	}
	return operand{t.h.t.Retained(), t.h.names, t.h.t.Shape()}, nil
}

// operand returns t as an operand of a call inside c, whose engine must be t's.
func (c *Context) operand(what string, t Tensor) (operand, error) {
	o, err := t.use(what)
	if err != nil {
		return operand{}, err
	}
	if t.h.e != c.e {
		defer o.t.Release()
		return operand{}, &opError{fmt.Sprintf("%s: %s %s belongs to %s, the context to %s", what, o.t.DType(), o.describe(), t.h.e, c.e), ErrEngine}
	}
	return o, nil
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
