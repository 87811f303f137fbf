package op

import (
	"fmt"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/core/tensor"
)

// Why is the rule that the operands of a [Refusal] break.
type Why uint8

const (
	// NoRefusal is the zero Why: the operands break no rule.
	NoRefusal Why = iota
	// UnknownOp: the operation does not exist.
	UnknownOp
	// WrongCount: the operation has Got operands instead of Want.
	WrongCount
	// WrongFormat: the operand's dtype is Got, which its role does not accept.
	WrongFormat
	// NoConversion: the operand of dtype Got cannot become dtype Want.
	NoConversion
	// WrongRank: the operand has Got axes instead of Want.
	WrongRank
	// WrongSize: the axis has size Got instead of Want. Want is the size of the axis
	// OtherAxis of the operand Other, or a rule of the operation if Other is NoPlace.
	WrongSize
	// NotMultiple: the size Got of the axis is not a multiple of Want. Want is the size of
	// Other's axis, or if Other is NoPlace the block size of a dtype or a rule of the
	// operation.
	NotMultiple
	// TooSmall: the size Got of the axis is below Want.
	TooSmall
	// TooLarge: the size Got of the axis is above Want. Want is the size of Other's axis,
	// unless Other is NoPlace.
	TooLarge
	// Overflow: the operand's size in bytes overflows an int.
	Overflow
	// NoView: the number of strides is not that of the axes, a stride is negative, or the
	// largest offset overflows an int.
	NoView
	// WrongLayout: the operand's role does not accept its strides.
	WrongLayout
	// Overlapping: elements of the operand share memory although it is written.
	Overlapping
	// WrongParam: the parameter Param has the value Value.
	WrongParam
	// Missing: the operand is absent, and Other is present, which needs it.
	Missing
)

// Place is the position of an operand of an operation. Inputs are numbered from 0, outputs
// from FirstOut.
type Place int8

const (
	// FirstOut is the place of the first output.
	FirstOut Place = MaxIn
	// NoPlace means no operand.
	NoPlace Place = -1
)

// Refusal is the reason why an operation does not accept its operands, as a value without
// text. A caller that knows the axes' names makes the text with [Refusal.Text]. The zero
// Refusal means that the operands are accepted.
type Refusal struct {
	Op        ID
	Why       Why
	Place     Place // the refused operand
	Axis      int8  // the axis of the operand, if the rule is about an axis
	Other     Place // the operand that it conflicts with, or NoPlace
	OtherAxis int8
	Param     Param
	Got, Want int
	Value     float64
}

// OK reports whether the operands are accepted.
func (r *Refusal) OK() bool { return r.Why == NoRefusal }

// Sentinel returns the sentinel error for r.Why. Errors made from r wrap it.
func (r *Refusal) Sentinel() error {
	switch r.Why {
	case WrongFormat, NoConversion:
		return tensor.ErrDType
	case NoView, WrongLayout, Overlapping:
		return tensor.ErrUnsupportedView
	case Overflow:
		return shape.ErrOverflow
	case WrongParam:
		return ErrParam
	}
	return shape.ErrShapeMismatch
}

// Axis names an axis by its number. Together with Role it makes an ID a Namer for callers
// that know no names of axes.
func (ID) Axis(_ Place, i int) string { return fmt.Sprintf("axis %d", i) }

// Role returns the name of an operand's role in the operation, such as "weight".
func (id ID) Role(p Place) string {
	c := contractOf(id)
	switch {
	case p >= FirstOut && int(p-FirstOut) < len(c.out):
		return c.out[p-FirstOut].Name
	case p >= 0 && int(p) < len(c.in):
		return c.in[p].Name
	}
	return "operand"
}

// Namer names operands and their axes in the text of a refusal.
type Namer interface {
	// Role returns the name of an operand's role, such as "weight".
	Role(p Place) string
	// Axis names an axis of an operand, as `axis "k"` or "axis 1".
	Axis(p Place, i int) string
}

// Text returns the text of r. It does not name the operation; the caller does.
func (r *Refusal) Text(names Namer) string {
	role := names.Role(r.Place)
	at := func() string { return names.Axis(r.Place, int(r.Axis)) }
	other := func() string {
		if r.Other == NoPlace {
			return ""
		}
		return fmt.Sprintf(", as %s of the %s", names.Axis(r.Other, int(r.OtherAxis)), names.Role(r.Other))
	}
	switch r.Why {
	case NoRefusal:
		return "the operands fit"
	case UnknownOp:
		return fmt.Sprintf("operation %d is unknown", r.Op)
	case WrongCount:
		return fmt.Sprintf("%d operands, want %d", r.Got, r.Want)
	case WrongFormat:
		if dtype.DType(r.Got) == dtype.Invalid {
			return fmt.Sprintf("the %s is absent, want %s", role, contractOf(r.Op).formats(r.Place))
		}
		return fmt.Sprintf("the %s is %s, want %s", role, dtype.DType(r.Got), contractOf(r.Op).formats(r.Place))
	case NoConversion:
		return fmt.Sprintf("%s does not convert to %s", dtype.DType(r.Got), dtype.DType(r.Want))
	case WrongRank:
		return fmt.Sprintf("the %s has rank %d, want %d", role, r.Got, r.Want)
	case WrongSize:
		return fmt.Sprintf("%s of the %s is %d, want %d%s", at(), role, r.Got, r.Want, other())
	case NotMultiple:
		return fmt.Sprintf("%s of the %s is %d, want a multiple of %d%s", at(), role, r.Got, r.Want, other())
	case TooLarge:
		return fmt.Sprintf("%s of the %s is %d, want at most %d%s", at(), role, r.Got, r.Want, other())
	case TooSmall:
		return fmt.Sprintf("%s of the %s is %d, want at least %d", at(), role, r.Got, r.Want)
	case Overflow:
		return fmt.Sprintf("the %s is too large to be addressed", role)
	case NoView:
		return fmt.Sprintf("the strides of the %s are not valid for its shape", role)
	case WrongLayout:
		return fmt.Sprintf("the %s is %s", role, layoutTexts[r.Want])
	case Overlapping:
		return fmt.Sprintf("elements of the %s share memory", role)
	case WrongParam:
		p := &params[r.Param]
		return fmt.Sprintf("the %s is %v, want %s", p.name, r.Value, p.want)
	case Missing:
		return fmt.Sprintf("got the %s without the %s", names.Role(r.Other), role)
	}
	return "the operands do not fit"
}
