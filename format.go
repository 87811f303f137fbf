package fucina

import (
	"fmt"
	"io"
	"math"
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
	defer o.t.Release()
	return o.t.DType().String() + " " + o.describe()
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
	v, err := t.values()
	if err != nil {
		fmt.Fprintf(s, "\n%v", err)
		return
	}
	axes := t.Axes()
	if len(axes) == 0 {
		fmt.Fprintf(s, "\n%s", number(v[0]))
		return
	}
	_, _ = io.WriteString(s, "\n")
	p := printer{w: s, axes: axes, brief: len(v) > briefFrom}
	p.axis(0, v, "")
}

// values returns the elements as f64.
func (t Tensor) values() ([]float64, error) {
	if t.c == nil {
		c, err := t.h.e.NewContext()
		if err != nil {
			return nil, err
		}
		v, err := t.On(c).values()
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
	return Data[float64](y.To(F64))
}

const (
	briefFrom = 1000 // the largest number of elements that is printed in full
	edge      = 3    // the entries that are printed at each end of a shortened axis
)

// printer prints the elements of a tensor. Each entry of an outer axis begins with the name
// of the axis and the index. The entries of the last axis follow its name, in brackets.
type printer struct {
	w     io.Writer
	axes  []tagged.Axis
	brief bool
}

func (p *printer) axis(i int, v []float64, indent string) {
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
			_, _ = io.WriteString(p.w, number(v[j]))
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

// number formats an element with up to six digits.
func number(v float64) string {
	if v == math.Trunc(v) && math.Abs(v) < 1e6 {
		return fmt.Sprintf("%g", v)
	}
	return fmt.Sprintf("%.6g", v)
}
