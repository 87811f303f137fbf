package op

import (
	"strings"

	"github.com/fucina-go/fucina/core/dtype"
)

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

// List returns the dtypes of the set, in the order of dtype.All.
func (f Formats) List() []dtype.DType {
	var list []dtype.DType
	for _, d := range dtype.All() {
		if f.Has(d) {
			list = append(list, d)
		}
	}
	return list
}

// single returns the one dtype of the set, or Invalid if it does not have exactly one.
func (f Formats) single() dtype.DType {
	if list := f.List(); len(list) == 1 {
		return list[0]
	}
	return dtype.Invalid
}

// String lists the set, as "f32, f16 or q8_0".
func (f Formats) String() string {
	var names []string
	for _, d := range f.List() {
		names = append(names, d.String())
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
