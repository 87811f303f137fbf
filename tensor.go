package fucina

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/tagged"
	"github.com/fucina-go/fucina/tags"
)

// MaxRank is the largest number of axes that a tensor can have.
const MaxRank = shape.MaxRank

// Axis is a named axis and its size.
type Axis = tagged.Axis

// Ax returns an axis with the given name and size.
func Ax(name string, size int) Axis { return Axis{Name: name, Size: size} }

// layout returns the names and the shape of axes. Its errors begin with what.
func layout(what string, axes []Axis) (tags.List, shape.Shape, error) {
	names, s, err := tagged.Layout(axes)
	if err != nil {
		return names, s, fmt.Errorf("%s %w", what, err)
	}
	return names, s, nil
}

// Err returns why t failed, or nil. It looks at the failure.
func (t Tensor) Err() error { return t.failure().look() }

// IsZero reports whether t is the zero Tensor.
func (t Tensor) IsZero() bool { return t == Tensor{} }

// Same reports whether t and u denote the same tensor. It ignores their contexts.
func (t Tensor) Same(u Tensor) bool { return t.h == u.h && t.mark() == u.mark() }

// Context returns the context that drives t, or nil.
func (t Tensor) Context() *Context { return t.c }

// Valid reports whether t has neither ended nor failed.
func (t Tensor) Valid() bool { return t.live() }

// complain returns a failed tensor of t's context. Its error is err with the name of the
// call, what, in front.
func (t Tensor) complain(what string, err error) Tensor {
	return t.c.fail(fmt.Errorf("%s: %w", what, err))
}

// wrong returns the failure of a call that returns an error. The failure counts as looked at.
func wrong(what string, err error) error {
	f := newFailure(nil, fmt.Errorf("%s: %w", what, err))
	f.seen.Store(true)
	return f
}

// FailIf returns t if err is nil, and otherwise a failed tensor that carries err.
func (t Tensor) FailIf(err error) Tensor {
	if err == nil || t.failure() != nil {
		return t
	}
	return t.c.Fail(err)
}

// Expect returns t if t has exactly these axes, in any order, and otherwise a failed tensor.
func (t Tensor) Expect(axes ...string) Tensor {
	if t.failure() != nil {
		return t
	}
	o, err := t.use()
	if err != nil {
		return t.complain("expect", err)
	}
	defer o.Raw.Release()
	ok := len(axes) == o.Names.Len()
	for _, name := range o.Names.Slice() {
		ok = ok && slices.Contains(axes, name) // names differ, so axes has each of them once
	}
	if ok {
		return t
	}
	want := append([]string(nil), axes...) // a copy, because a slice that reaches fmt escapes
	return t.c.fail(&opError{fmt.Sprintf("expect: have %s, want {%s}", o.Describe(), strings.Join(want, " ")), ErrTag})
}

// DType returns the element format, or dtype.Invalid for a tensor that has ended or failed.
func (t Tensor) DType() DType {
	if t.failure() != nil {
		return dtype.Invalid
	}
	o, err := t.use()
	if err != nil {
		return dtype.Invalid
	}
	defer o.Raw.Release()
	return o.Raw.DType()
}

// Dim returns the size of the axis. If t has no such axis, Dim returns 0 and records a
// failure on the context.
func (t Tensor) Dim(axis string) int {
	if t.failure() != nil {
		return 0
	}
	o, err := t.use()
	if err != nil {
		t.complain("dim", err)
		return 0
	}
	defer o.Raw.Release()
	i := o.Names.Index(axis)
	if i < 0 {
		t.c.fail(&opError{fmt.Sprintf("dim of %s %s: no axis %q", o.Raw.DType(), o.Describe(), axis), ErrTag})
		return 0
	}
	return o.Raw.Dim(i)
}

// Axes returns the axes, outermost first. A scalar, and a tensor that has ended or failed,
// has none.
func (t Tensor) Axes() []Axis {
	if t.failure() != nil {
		return nil
	}
	o, err := t.use()
	if err != nil {
		return nil
	}
	defer o.Raw.Release()
	axes := make([]Axis, o.Names.Len())
	for i, name := range o.Names.Slice() {
		axes[i] = Axis{Name: name, Size: o.Raw.Dim(i)}
	}
	return axes
}

// Len returns the number of elements, or 0 for a tensor that has ended or failed.
func (t Tensor) Len() int {
	if t.failure() != nil {
		return 0
	}
	o, err := t.use()
	if err != nil {
		return 0
	}
	defer o.Raw.Release()
	return o.Raw.Len()
}

// Raw is the memory layout of a tensor.
type Raw struct {
	DType DType
	Shape []int // logical sizes; {1} for a scalar
	// Strides and Offset count storage elements, which are blocks for a block format.
	Strides    []int
	Offset     int
	Contiguous bool
}

// AsRaw returns the memory layout of t, for inspection.
func (t Tensor) AsRaw() (Raw, error) {
	if t.failure() != nil {
		return Raw{}, t.Err()
	}
	o, err := t.use()
	if err != nil {
		return Raw{}, wrong("raw", err)
	}
	defer o.Raw.Release()
	s, st := o.Raw.Shape(), o.Raw.Strides()
	return Raw{
		DType: o.Raw.DType(), Shape: append([]int(nil), s.Slice()...), Strides: append([]int(nil), st.Slice()...),
		Offset: o.Raw.Offset(), Contiguous: o.Raw.IsContiguous(),
	}, nil
}
