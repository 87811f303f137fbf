package exec

import (
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/shape"
)

// accepted is a call that the contract of its operation has accepted, with inputs whose strides the
// operation takes. A model makes the same calls again and again. What the contract says of a call
// depends only on what is here, so a call that matches need not be checked again.
type accepted struct {
	nIn    int // 0 means that there is none
	in     [op.MaxIn]form
	into   form // of the last output, if it existed
	params op.Params
	nOut   int
	out    [op.MaxOut]op.Operand // the new outputs
}

// form is what contracts look at in an operand.
type form struct {
	dtype          dtype.DType
	shape, strides shape.Shape
}

// is reports whether f is the form of o.
func (f *form) is(o *op.Operand) bool {
	return f.dtype == o.DType && f.shape == o.Shape && f.strides == o.Strides
}

func formOf(o *op.Operand) form { return form{o.DType, o.Shape, o.Strides} }

// acceptedCalls are the last calls of one operation that differ.
type acceptedCalls struct {
	calls [4]accepted
	next  int // the one to replace
}

// recall sets the new outputs of the call in progress, and returns true, if a call like it has been
// accepted. into says that the last output exists.
func (c *Queue) recall(id op.ID, into bool) bool {
	list, a := c.accepted[id], &c.args
	if list == nil {
		return false
	}
	for i := range list.calls {
		if e := &list.calls[i]; e.matches(a, into) {
			n := a.NOut
			if into {
				n--
			}
			for j := range n {
				a.Out[j] = e.out[j]
			}
			return true
		}
	}
	return false
}

// matches reports whether the call a is like e.
func (e *accepted) matches(a *op.Args, into bool) bool {
	if e.nIn != a.NIn || e.nOut != a.NOut || into != (e.into.dtype != dtype.Invalid) {
		return false
	}
	for i := range a.NIn {
		if !e.in[i].is(&a.In[i]) {
			return false
		}
	}
	return (!into || e.into.is(&a.Out[a.NOut-1])) && e.params == a.Params
}

// remember keeps the call in progress, which has been accepted and has no memory yet.
func (c *Queue) remember(id op.ID, into bool) {
	list, a := c.accepted[id], &c.args
	if list == nil {
		list = new(acceptedCalls)
		c.accepted[id] = list
	}
	e := &list.calls[list.next]
	list.next = (list.next + 1) % len(list.calls)
	*e = accepted{nIn: a.NIn, params: a.Params, nOut: a.NOut, out: a.Out}
	for i := range a.NIn {
		e.in[i] = formOf(&a.In[i])
	}
	if into {
		e.into = formOf(&a.Out[a.NOut-1])
	}
}
