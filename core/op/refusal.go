package op

import (
	"fmt"
	"strings"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/core/tensor"
)

// Why is the rule that a [Refusal] says was broken.
type Why uint8

const (
	// NoRefusal is the zero Why: the operands fit.
	NoRefusal Why = iota
	// UnknownOp: there is no such operation.
	UnknownOp
	// WrongCount: Got operands, Want of them.
	WrongCount
	// WrongFormat: the operand's dtype is Got, which is not one that its role takes.
	WrongFormat
	// NoConversion: the operand of dtype Got cannot become dtype Want.
	NoConversion
	// WrongRank: the operand has Got axes, Want of them.
	WrongRank
	// WrongSize: the axis has size Got, Want as the axis OtherAxis of the operand Other,
	// or by a rule of the operation if Other is NoPlace.
	WrongSize
	// NotMultiple: the size Got of the axis is no multiple of Want, that of Other's axis,
	// or the block size of the operand's dtype if Other is NoPlace.
	NotMultiple
	// TooSmall: the size Got of the axis is below Want.
	TooSmall
	// TooLarge: the size Got of the axis is above Want, that of Other's axis if there is
	// an Other.
	TooLarge
	// Overflow: the operand has more bytes than an int counts.
	Overflow
	// NoView: the operand's strides are not one for each axis, or negative, or lead
	// further than an int counts.
	NoView
	// WrongLayout: the operand's strides are not those that its role takes.
	WrongLayout
	// Overlapping: elements of the operand, which is written, share memory.
	Overlapping
	// WrongParam: the parameter Param has the value Value.
	WrongParam
	// TooFewKeys: Got keys follow the past ones, which are fewer than the Want queries.
	TooFewKeys
)

// Place is the place of an operand among an operation's: inputs from 0, outputs from
// FirstOut.
type Place int8

const (
	// FirstOut is the place of the first output.
	FirstOut Place = MaxIn
	// NoPlace is no operand.
	NoPlace Place = -1
)

// Refusal says why operands do not fit an operation, as a value without text: who knows
// the axes' names prints them with [Refusal.Text]. The zero Refusal says that they fit.
type Refusal struct {
	Op        ID
	Why       Why
	Place     Place // the operand that does not fit
	Axis      int8  // its axis, if one is concerned
	Other     Place // the operand that it does not agree with
	OtherAxis int8
	Param     Param
	Got, Want int
	Value     float64
}

// OK reports whether r is none.
func (r *Refusal) OK() bool { return r.Why == NoRefusal }

// Sentinel returns the error of r's kind, which errors made of r wrap.
func (r *Refusal) Sentinel() error {
	switch r.Why {
	case WrongFormat, NoConversion:
		return tensor.ErrDType
	case NoView, WrongLayout, Overlapping:
		return tensor.ErrUnsupportedView
	case Overflow:
		return shape.ErrOverflow
	case TooFewKeys:
		return tensor.ErrIndexOutOfBounds
	case WrongParam:
		return ErrParam
	}
	return shape.ErrShapeMismatch
}

// Axis names an axis by its position, as ID does its operand's role: an ID is the Namer of
// who knows no other names.
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

// Text returns r as the end of a sentence that has named the operation.
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
		return fmt.Sprintf("the %s is %s, want %s", role, dtype.DType(r.Got), contractOf(r.Op).formats(r.Place))
	case NoConversion:
		return fmt.Sprintf("%s does not convert to %s", dtype.DType(r.Got), dtype.DType(r.Want))
	case WrongRank:
		return fmt.Sprintf("the %s has %d axes, want %d", role, r.Got, r.Want)
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
		return fmt.Sprintf("the strides of the %s are not those of a view", role)
	case WrongLayout:
		return fmt.Sprintf("the %s is %s", role, layoutTexts[r.Want])
	case Overlapping:
		return fmt.Sprintf("elements of the %s share memory", role)
	case WrongParam:
		p := &params[r.Param]
		return fmt.Sprintf("the %s is %v, want %s", p.name, r.Value, p.want)
	case TooFewKeys:
		return fmt.Sprintf("%d keys after the past ones, want at least the %d queries", r.Got, r.Want)
	}
	return "the operands do not fit"
}

// Formats is a set of dtypes.
type Formats uint64

var _ [64 - dtype.Count]struct{} // a dtype is a bit of a Formats

// FormatsOf returns the set of the given dtypes.
func FormatsOf(list ...dtype.DType) Formats {
	var f Formats
	for _, d := range list {
		f |= 1 << d
	}
	return f
}

// FormatsThat returns the set of the dtypes that have the property.
func FormatsThat(has func(dtype.DType) bool) Formats {
	var f Formats
	for _, d := range dtype.All() {
		if has(d) {
			f |= 1 << d
		}
	}
	return f
}

// Has reports whether d is in the set.
func (f Formats) Has(d dtype.DType) bool { return d.Valid() && f>>d&1 != 0 }

// String lists the set, as "f32, f16 or q8_0".
func (f Formats) String() string {
	var names []string
	for _, d := range dtype.All() {
		if f.Has(d) {
			names = append(names, d.String())
		}
	}
	switch n := len(names); n {
	case 0:
		return "none"
	case 1:
		return names[0]
	default:
		return strings.Join(names[:n-1], ", ") + " or " + names[n-1]
	}
}
