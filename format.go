package fucina

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/fucina-go/fucina/tagged"
)

// String describes the tensor without its values, as "f32 {batch:2 d:3}", "failed: ...",
// "ended tensor" or "no tensor". Printing a failed tensor does not look at its failure.
func (t Tensor) String() string {
	switch {
	case t.IsZero():
		return "no tensor"
	case t.failure() != nil:
		return "failed: " + t.failure().Error()
	}
	o, err := t.use()
	if err != nil {
		return "ended tensor"
	}
	defer o.Raw.Release()
	return o.Raw.DType().String() + " " + o.Describe()
}

// Format prints String. With %+v it also waits for the values and prints them, with the
// names of the axes. If there are more than 1000 elements, it leaves out the middle of the
// axes, as NumPy does.
func (t Tensor) Format(s fmt.State, verb rune) {
	_, _ = io.WriteString(s, t.String())
	if verb != 'v' || !s.Flag('+') {
		return
	}
	if f := t.failure(); f != nil {
		f.writeCallers(s)
		return
	}
	if !t.live() {
		return
	}
	if t.DType().SupportsIntMath() {
		printElements(s, t, I64, func(v int64) string { return strconv.FormatInt(v, 10) })
	} else {
		printElements(s, t, F64, number)
	}
}

// printElements writes the elements of t, converted to d, which is the dtype of T, on lines of
// their own.
func printElements[T Scalar](w io.Writer, t Tensor, d DType, text func(T) string) {
	v, err := elementsAs[T](t, d)
	if err != nil {
		fmt.Fprintf(w, "\n%v", err)
		return
	}
	axes := t.Axes()
	if len(axes) == 0 {
		fmt.Fprintf(w, "\n%s", text(v[0]))
		return
	}
	_, _ = io.WriteString(w, "\n")
	p := printer[T]{w: w, axes: axes, brief: len(v) > briefFrom, text: text}
	p.axis(0, v, "")
}

// elementsAs returns the elements of t, converted to d, which is the dtype of T.
func elementsAs[T Scalar](t Tensor, d DType) ([]T, error) {
	if t.c == nil {
		c, err := t.h.e.NewContext()
		if err != nil {
			return nil, err
		}
		v, err := elementsAs[T](t.On(c), d)
		if closeErr := c.Close(); err == nil {
			err = closeErr
		}
		return v, err
	}
	f := t.c.Frame()
	defer f.Close()
	y := t
	if t.DType().IsBlockQuantized() {
		y = y.To(F32)
	}
	return Data[T](y.To(d))
}

const (
	briefFrom = 1000 // the largest number of elements that is printed in full
	edge      = 3    // the entries that are printed at each end of a shortened axis
)

// printer prints the elements of a tensor. Each entry of an outer axis begins with the name
// of the axis and the index. The entries of the last axis follow its name, in brackets.
type printer[T Scalar] struct {
	w     io.Writer
	axes  []tagged.Axis
	brief bool
	text  func(T) string // formats an element
}

func (p *printer[T]) axis(i int, v []T, indent string) {
	n := p.axes[i].Size
	step := len(v) / n
	last := i == len(p.axes)-1
	if last {
		fmt.Fprintf(p.w, "%s [", p.axes[i].Name)
	}
	for j := range n {
		if p.brief && n > 2*edge && j >= edge && j < n-edge {
			if j == edge {
				if last {
					_, _ = io.WriteString(p.w, " ...")
				} else {
					fmt.Fprintf(p.w, "\n%s...", indent)
				}
			}
			continue
		}
		if last {
			if j > 0 {
				_, _ = io.WriteString(p.w, " ")
			}
			_, _ = io.WriteString(p.w, p.text(v[j]))
			continue
		}
		if j > 0 {
			fmt.Fprintf(p.w, "\n%s", indent)
		}
		label := fmt.Sprintf("%s=%d ", p.axes[i].Name, j)
		_, _ = io.WriteString(p.w, label)
		p.axis(i+1, v[j*step:(j+1)*step], indent+strings.Repeat(" ", len(label)))
	}
	if last {
		_, _ = io.WriteString(p.w, "]")
	}
}

// number formats a float with up to six digits.
func number(v float64) string {
	if v == math.Trunc(v) && math.Abs(v) < 1e6 {
		return fmt.Sprintf("%g", v)
	}
	return fmt.Sprintf("%.6g", v)
}
