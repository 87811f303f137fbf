package fucina

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"

	"github.com/fucina-go/fucina/tagged"
)

// errNaN is the failure of DebugOptions.CheckNaN.
var errNaN = errors.New("the result has a NaN or an infinity")

// traceLine returns the line of DebugOptions.Trace for a call that has run.
func traceLine(k *tagged.Call, y *tagged.Tensor) string {
	var pcs [maxCallers]uintptr
	at := places(pcs[:runtime.Callers(2, pcs[:])], 1)
	var b strings.Builder
	if len(at) > 0 {
		b.WriteString(at[0] + " ")
	}
	b.WriteString(k.Op.String())
	if k.NIn == 2 && apart(k.In(0), k.In(1)) && y.Names.Len() == k.In(0).Names.Len()+k.In(1).Names.Len() {
		b.WriteString(" outer")
	}
	for i := range k.NIn {
		if k.Has(i) {
			b.WriteString(" " + k.In(i).Describe())
		}
	}
	fmt.Fprintf(&b, " -> %s %s", y.Raw.DType(), y.Describe())
	if z := k.Second(); !z.Raw.IsZero() {
		fmt.Fprintf(&b, ", %s %s", z.Raw.DType(), z.Describe())
	}
	return b.String()
}

// apart reports whether t has axes and u has none of them.
func apart(t, u *tagged.Tensor) bool {
	for _, name := range t.Names.Slice() {
		if u.Names.Index(name) >= 0 {
			return false
		}
	}
	return t.Names.Len() > 0 && u.Names.Len() > 0
}

// observation is what DebugOptions need to know about a call. It is taken while the call has
// its operands, and used when the context is idle again, so that Trace may use the context.
type observation struct {
	line string // for Trace
	nan  error  // for CheckNaN
}

// observe returns what d needs of the call k, which has the result y.
func (d *DebugOptions) observe(k *tagged.Call, y *tagged.Tensor) (o observation) {
	if d.Trace != nil {
		o.line = traceLine(k, y)
	}
	if d.CheckNaN {
		o.nan = k.Explain(errNaN)
	}
	return o
}

// quietly calls f while the options d of c do not apply, and applies them again unless f has
// called Debug.
func (c *Context) quietly(d *DebugOptions, f func()) {
	c.debug.Store(nil)
	defer c.debug.CompareAndSwap(nil, d)
	f()
}

// report does what d says about a call that has run, with the results y, of which some may be
// zero. It returns the failure of the call, if d finds one.
func (c *Context) report(d *DebugOptions, y [2]Tensor, seen *observation) error {
	if d.Trace != nil {
		c.quietly(d, func() { d.Trace(seen.line) })
	}
	for _, t := range y {
		if d.CheckNaN && t.h != nil && t.DType() == F32 {
			if err := c.checked(d, t, seen.nan); err != nil {
				return err
			}
		}
	}
	return nil
}

// checked returns nan if y has a NaN or an infinity.
func (c *Context) checked(d *DebugOptions, y Tensor, nan error) error {
	var v []float32
	var err error
	c.quietly(d, func() { v, err = Data[float32](y.On(c)) })
	if err != nil {
		return err
	}
	for _, x := range v {
		if f := float64(x); math.IsNaN(f) || math.IsInf(f, 0) {
			return nan
		}
	}
	return nil
}
