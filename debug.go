package fucina

import (
	"fmt"
	"math"
	"runtime"
	"strings"

	"github.com/fucina-go/fucina/tagged"
)

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
		b.WriteString(" " + k.In(i).Describe())
	}
	fmt.Fprintf(&b, " -> %s %s", y.Raw.DType(), y.Describe())
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

// checked returns y, or a failed tensor if CheckNaN is set and y has a NaN or an infinity.
func (c *Context) checked(y Tensor) Tensor {
	d := c.debug.Load()
	if d == nil || !d.CheckNaN || y.DType() != F32 {
		return y
	}
	c.debug.Store(nil) // Data may run operations, which are not to be checked
	v, err := Data[float32](y)
	c.debug.Store(d)
	if err != nil {
		return c.fail(err)
	}
	for _, x := range v {
		if f := float64(x); math.IsNaN(f) || math.IsInf(f, 0) {
			return c.fail(fmt.Errorf("%s: %w", y, errNaN))
		}
	}
	return y
}
