package tags

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fucina-go/fucina/core/shape"
)

// ErrTag reports an axis name that an operation cannot use, because it is unknown, repeated,
// empty, one too many, or in the wrong position.
var ErrTag = errors.New("invalid axis")

// tagError is an ErrTag that says what is wrong in words of its own.
type tagError string

func (e tagError) Error() string { return string(e) }
func (e tagError) Unwrap() error { return ErrTag }

func invalid(format string, args ...any) error { return tagError(fmt.Sprintf(format, args...)) }

// List has the names of a tensor's axes, outermost first, without a pointer to them. The
// empty List is that of a scalar. Lists are compared with ==.
type List struct {
	names [shape.MaxRank]string
	n     uint8
}

// Of returns the list of names. It fails with ErrTag if a name is empty or repeated, or if
// there are more than shape.MaxRank names.
func Of(names ...string) (List, error) {
	if len(names) > shape.MaxRank {
		return List{}, invalid("%d axes, want at most %d", len(names), shape.MaxRank)
	}
	var l List
	for _, name := range names {
		if err := l.Add(name); err != nil {
			return List{}, err
		}
	}
	return l, nil
}

// accepts returns an error if name is empty or is the name of an axis other than i.
func (l *List) accepts(name string, i int) error {
	if name == "" {
		return invalid("empty name")
	}
	if j := l.Index(name); j >= 0 && j != i {
		return invalid("axis %q appears twice", strings.Clone(name))
	}
	return nil
}

// Append returns l with name appended. It fails as Of does.
func (l List) Append(name string) (List, error) {
	if err := l.Add(name); err != nil {
		return List{}, err
	}
	return l, nil
}

// Add appends name to l. It fails as Of does, and leaves l then.
func (l *List) Add(name string) error {
	if err := l.accepts(name, -1); err != nil {
		return err
	}
	if l.n == shape.MaxRank {
		return invalid("more than %d axes", shape.MaxRank)
	}
	l.names[l.n] = name
	l.n++
	return nil
}

// Equal reports whether l and o have the same names in the same order.
func (l *List) Equal(o *List) bool {
	if l.n != o.n {
		return false
	}
	for i, name := range l.names[:l.n] {
		if name != o.names[i] {
			return false
		}
	}
	return true
}

// Len returns the number of axes.
func (l *List) Len() int { return int(l.n) }

// At returns the name of axis i.
func (l *List) At(i int) string { return l.names[:l.n][i] }

// Slice returns the names. The slice aliases l.
func (l *List) Slice() []string { return l.names[:l.n] }

// Index returns the index of name, or -1.
func (l *List) Index(name string) int {
	for i, s := range l.names[:l.n] {
		if s == name {
			return i
		}
	}
	return -1
}

// Without returns l without axis i.
func (l List) Without(i int) List {
	copy(l.names[i:l.n], l.names[i+1:l.n])
	l.n--
	l.names[l.n] = ""
	return l
}

// Renamed returns l with the name of axis i changed to name. It fails as Of does.
func (l List) Renamed(i int, name string) (List, error) {
	if err := l.accepts(name, i); err != nil {
		return List{}, err
	}
	l.names[i] = name
	return l, nil
}

// Union returns the names of l, followed by the names that only other has. These are the axes
// of an elementwise result.
func (l List) Union(other *List) (List, error) {
	for _, name := range other.names[:other.n] {
		if l.Index(name) >= 0 {
			continue
		}
		if l.n == shape.MaxRank {
			return List{}, invalid("%s and %s have more than %d axes together", l.String(), other.String(), shape.MaxRank)
		}
		l.names[l.n] = name
		l.n++
	}
	return l, nil
}

// String formats the names as "{batch d}".
func (l List) String() string {
	return "{" + strings.Join(l.names[:l.n], " ") + "}"
}

// Describe formats names and sizes as "{batch:2 d:3}".
func (l List) Describe(s shape.Shape) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, name := range l.names[:l.n] {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%s:%d", name, s.Dim(i))
	}
	b.WriteByte('}')
	return b.String()
}
