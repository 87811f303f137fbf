package tagged

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/core/tensor"
	"github.com/fucina-go/fucina/exec"
	"github.com/fucina-go/fucina/tags"
)

// Axis is a named axis and its size.
type Axis struct {
	Name string
	Size int
}

// String formats the axis as "name:size".
func (a Axis) String() string { return fmt.Sprintf("%s:%d", a.Name, a.Size) }

// check returns an error if the axis is empty.
func (a Axis) check() error {
	if a.Size < 1 {
		return because(shape.ErrInvalidShape, "axis %q has size %d, want at least 1", a.Name, a.Size)
	}
	return nil
}

// Describe formats axes as "{batch:2 d:3}".
func Describe(axes []Axis) string {
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

// Layout returns the names and the shape of axes. Without axes they are those of a scalar,
// whose shape is {1}. Layout fails with tags.ErrTag for a name that is empty or appears
// twice, and with shape.ErrInvalidShape or shape.ErrOverflow for sizes that no tensor has.
func Layout(axes []Axis) (tags.List, shape.Shape, error) {
	var names tags.List
	var dims [shape.MaxRank]int
	for i, a := range axes {
		var err error
		if names, err = names.Append(a.Name); err == nil {
			err = a.check()
		}
		if err != nil {
			return tags.List{}, shape.Shape{}, fmt.Errorf("%s: %w", Describe(axes), err)
		}
		dims[i] = a.Size
	}
	s, err := shapeOf(dims[:len(axes)])
	if err != nil {
		return tags.List{}, shape.Shape{}, fmt.Errorf("%s: %w", Describe(axes), err)
	}
	return names, s, nil
}

// shapeOf returns the shape of a tensor with axes of the given sizes. Without axes it is the
// shape of a scalar. It fails with shape.ErrInvalidShape or shape.ErrOverflow for sizes that
// no tensor has.
func shapeOf(dims []int) (shape.Shape, error) {
	if len(dims) == 0 {
		return shape.Must(1), nil
	}
	s, err := shape.Of(dims...)
	if err == nil {
		_, err = s.Elements()
	}
	return s, err
}

// Tensor is a tensor whose axes have names. A scalar has the shape {1} and no names. A Tensor
// holds one reference to its memory.
type Tensor struct {
	Raw   tensor.Tensor
	Names tags.List
}

// Release gives the reference back.
func (t *Tensor) Release() { t.Raw.Release() }

// Axis returns axis i.
func (t *Tensor) Axis(i int) Axis { return Axis{t.Names.At(i), t.Raw.Dim(i)} }

// Describe formats the axes as "{batch:2 d:3}".
func (t *Tensor) Describe() string { return t.Names.Describe(t.Raw.Shape()) }

// ref returns t with a reference of its own.
func (t *Tensor) ref() Tensor { return Tensor{t.Raw.Retained(), t.Names} }

// working is an operand during a call. It begins as the call's operand, which it does not change,
// or as nil if that is absent. A view or a copy that replaces the operand is stored at view, and
// has a reference of its own.
type working struct {
	*Tensor
	view *Tensor
}

// own reports whether t has a reference of its own.
func (t *working) own() bool { return t.Tensor != nil && t.Tensor == t.view }

// done releases t if it has a reference of its own.
func (t *working) done() {
	if t.own() {
		t.Release()
	}
}

// result sets y to t with a reference that the caller owns. Call it instead of done.
func (t *working) result(y *Tensor) {
	if *y = *t.Tensor; t.own() {
		t.view.Raw = tensor.Tensor{}
	} else {
		y.Raw.Buffer().Retain()
	}
}

// set replaces t, which may be absent, by v, and takes v's reference. The names stay.
func (t *working) set(v tensor.Tensor) {
	switch {
	case t.own():
		t.Release()
	case t.Tensor == nil:
		t.view.Names = tags.List{}
	default:
		t.view.Names = t.Names
	}
	t.Tensor = t.view
	t.Raw = v
}

// permute replaces t by its view whose axis i is axis order[i] of t.
func (t *working) permute(order []int) error {
	same := true
	for i, a := range order {
		same = same && i == a
	}
	if same {
		return nil
	}
	v, err := t.Raw.Permute(order...)
	if err != nil {
		return err
	}
	var names tags.List
	for _, a := range order {
		names, _ = names.Append(t.Names.At(a)) // a permutation of a list
	}
	t.set(v)
	t.Names = names
	return nil
}

// follow replaces t, which has the given role, by its view with the axes names in this order.
// It fails unless they are the axes of t.
func (t *working) follow(role string, names *tags.List) error {
	var order [shape.MaxRank]int
	ok := t.Names.Len() == names.Len()
	for i, name := range names.Slice() {
		order[i] = t.Names.Index(name)
		ok = ok && order[i] >= 0
	}
	if !ok {
		return because(tags.ErrTag, "the %s: want axes %s, got %s", role, names.String(), t.Describe())
	}
	return t.permute(order[:names.Len()])
}

// order is follow for the names of a list.
func (t *working) order(role string, names ...string) error {
	if slices.Equal(t.Names.Slice(), names) {
		return nil
	}
	want, err := tags.Of(names...)
	if err != nil {
		return err
	}
	return t.follow(role, &want)
}

// vector returns an error unless t, which has the given role, has only the axis name.
func (t *working) vector(role, name string) error {
	switch {
	case t.Names.Index(name) < 0:
		return because(tags.ErrTag, "the %s has no axis %q", role, name)
	case t.Names.Len() != 1:
		return because(tags.ErrTag, "the %s has axes other than %q", role, name)
	}
	return nil
}

// moveLast replaces t by its view with axis i last.
func (t *working) moveLast(i int) error {
	if i == t.Names.Len()-1 {
		return nil
	}
	var order [shape.MaxRank]int
	n := 0
	for j := range t.Names.Len() {
		if j != i {
			order[n] = j
			n++
		}
	}
	order[n] = i
	return t.permute(order[:n+1])
}

// align replaces t by its view with the axes names and the shape s. An axis that t lacks, or
// has with size 1, repeats. The caller has checked that names has all axes of t, and their
// sizes.
func (t *working) align(names *tags.List, s *shape.Shape) error {
	if t.Names.Equal(names) && t.Raw.Shape() == *s {
		return nil
	}
	var strides [shape.MaxRank]int
	have := t.Raw.Strides()
	for i, name := range names.Slice() {
		if j := t.Names.Index(name); j >= 0 && t.Raw.Dim(j) == s.Dim(i) {
			strides[i] = have.Dim(j)
		}
	}
	v, err := viewOf(&t.Raw, *s, strides[:s.Rank()])
	if err != nil {
		return err
	}
	t.set(v)
	t.Names = *names
	return nil
}

// group replaces t by its view with runs of axes merged; see grouped. If the strides allow no
// such view, group copies t first. Afterwards t has no names.
func (t *working) group(q *exec.Queue, ends ...int) error {
	v, ok, err := grouped(&t.Raw, ends)
	if err != nil {
		return err
	}
	if !ok {
		flat, err := q.Do(op.Copy, &op.Params{To: t.Raw.DType()}, &t.Raw)
		if err != nil {
			return err
		}
		t.set(flat)
		if v, _, err = grouped(&t.Raw, ends); err != nil {
			return err
		}
	}
	t.set(v)
	t.Names = tags.List{}
	return nil
}

// grouped returns a view of t in which one axis replaces each run of axes. Run i ends before
// axis ends[i] and begins where the run before it ends. An empty run becomes an axis of size
// 1. ok is false if the strides allow no such view.
func grouped(t *tensor.Tensor, ends []int) (v tensor.Tensor, ok bool, err error) {
	var dims, strides [shape.MaxRank]int
	if n := len(ends); t.DType().IsBlockQuantized() && n > 1 && ends[n-2] == t.Rank() {
		return tensor.Tensor{}, false, fmt.Errorf("%w: an axis of size 1 splits the blocks of %s", tensor.ErrUnsupportedView, t.String())
	}
	s, st := t.Shape(), t.Strides()
	s, _ = s.Storage(t.DType()) // checked when the tensor was made
	ok = true
	lo := 0
	for g, hi := range ends {
		dims[g] = 1
		for i := hi - 1; i >= lo; i-- {
			switch {
			case s.Dim(i) == 1:
			case dims[g] == 1:
				dims[g], strides[g] = s.Dim(i), st.Dim(i)
			default:
				ok = ok && st.Dim(i) == dims[g]*strides[g]
				dims[g] *= s.Dim(i) // no overflow: t has all these elements
			}
		}
		lo = hi
	}
	dims[len(ends)-1] *= t.DType().BlockSize() // no overflow: t has all these elements
	out, err := shapeOf(dims[:len(ends)])
	if err != nil {
		return tensor.Tensor{}, false, err
	}
	switch {
	case out == t.Shape():
		return t.Retained(), true, nil
	case t.IsContiguous():
		v, err = t.Reshape(out)
		return v, true, err
	case !ok:
		return tensor.Tensor{}, false, nil
	}
	v, err = viewOf(t, out, strides[:out.Rank()])
	return v, true, err
}

// viewOf is t.View with settled strides; see settle.
func viewOf(t *tensor.Tensor, s shape.Shape, strides []int) (tensor.Tensor, error) {
	st, err := shape.OfStrides(strides...)
	if err != nil {
		return tensor.Tensor{}, err
	}
	if stored, err := s.Storage(t.DType()); err == nil { // otherwise View fails
		settle(&stored, &st)
	}
	return t.View(s, st, 0)
}

// settle sets the strides of axes of size 1 so that the layout is contiguous if the other
// axes are. No element's position depends on these strides. s is a shape in storage elements.
func settle(s, strides *shape.Shape) {
	next := 1
	for i := s.Rank() - 1; i >= 0; i-- {
		if s.Dim(i) == 1 {
			strides.Set(i, next)
		}
		next = s.Dim(i) * strides.Dim(i)
	}
}

// settled returns v with settled strides, and takes v's reference.
func settled(v tensor.Tensor) (tensor.Tensor, error) {
	s, have := v.Shape(), v.Strides()
	st := have
	stored, _ := s.Storage(v.DType()) // checked when the tensor was made
	if settle(&stored, &st); st == have {
		return v, nil
	}
	w, err := v.View(s, st, 0)
	v.Release()
	return w, err
}

// reshape replaces t by its view of shape s. If it fails, it releases t.
func (t *Tensor) reshape(s shape.Shape) error {
	v, err := t.Raw.Reshape(s)
	t.Raw.Release()
	t.Raw = v
	return err
}

// inOrder replaces the contiguous tensor t, whose axes have the names have, by its view with the
// axes in the order of want, and sets t's names. If it fails, it releases t.
func (t *Tensor) inOrder(have, want *tags.List) error {
	if t.Names = *want; have.Equal(want) {
		return nil
	}
	var order [shape.MaxRank]int
	for i, name := range want.Slice() {
		order[i] = have.Index(name)
	}
	v, err := t.Raw.Permute(order[:want.Len()]...)
	t.Raw.Release()
	if err == nil {
		v, err = settled(v)
	}
	t.Raw = v
	return err
}
