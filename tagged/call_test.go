package tagged

import (
	"testing"

	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/exec"
	"github.com/fucina-go/fucina/providers/cpu"
	"github.com/fucina-go/fucina/tags"
	"github.com/fucina-go/fucina/tests/harness"
)

// Every operation has a row of the table, with a name that no other has.
func TestEveryOperationHasARow(t *testing.T) {
	names := make(map[string]Op)
	for o := Op(1); o < OpCount; o++ {
		e := &table[o]
		if e.run == nil {
			t.Errorf("operation %d has no row", o)
			continue
		}
		if o.View() == e.id.Valid() {
			t.Errorf("%s: runs an operation of package op is %t, and view is %t", o, e.id.Valid(), o.View())
		}
		if other, ok := names[o.String()]; ok {
			t.Errorf("operations %d and %d are both called %s", other, o, o)
		}
		names[o.String()] = o
	}
}

// A call can run one operation after another. It keeps nothing of an earlier one: no second
// result, no memory of a view, and no names of an operand that was made.
func TestCallKeepsNothing(t *testing.T) {
	p, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	e, err := exec.Open(exec.Options{CPU: p})
	if err != nil {
		t.Fatal(err)
	}
	harness.CloseLater(t, e)
	q, err := e.NewQueue()
	if err != nil {
		t.Fatal(err)
	}
	harness.CloseLater(t, q)
	made := func(s shape.Shape, values []float32, names ...string) (x Tensor) {
		if x.Raw, err = exec.FromSlice(q, s, values); err != nil {
			t.Fatal(err)
		}
		if x.Names, err = tags.Of(names...); err != nil {
			t.Fatal(err)
		}
		return x
	}
	x, w := made(shape.Must(2, 2), []float32{1, 2, 3, 4}, "a", "b"), made(shape.Must(2), []float32{1, 1}, "b")
	var c Call
	run := func(o Op, axis string, operands ...*Tensor) (first, second Tensor) {
		t.Helper()
		c.Reset(o)
		c.Axis, c.Params.Eps = axis, 1
		for _, x := range operands {
			c.Lend(x)
		}
		if o == Permute {
			c.SetNames([]string{"b", "a"})
		}
		if err := c.Run(q); err != nil {
			t.Fatal(err)
		}
		first, second = *c.Out(), *c.Second()
		for i := range c.views {
			if !c.views[i].Raw.IsZero() {
				t.Errorf("%s keeps the view that replaced operand %d", o, i)
			}
		}
		c.Drop()
		return first, second
	}
	sum, norm := run(AddRMSNorm, "b", &x, &x, &w)
	y, none := run(Permute, "", &x)
	if norm.Raw.IsZero() || !none.Raw.IsZero() {
		t.Error("want a second result of add_rms_norm alone")
	}
	view := x
	operand := working{view: &view}
	operand.set(w.Raw.Retained())
	if operand.Names.Len() != 0 || !operand.own() {
		t.Errorf("an operand that was made has the names %s", operand.Names.String())
	}
	operand.done()
	for _, x := range []*Tensor{&x, &w, &sum, &norm, &y} {
		x.Release()
	}
	if n := e.Stats().Pool.Outstanding; n != 0 {
		t.Errorf("%d buffers are not released", n)
	}
}
