package tagged

import (
	"github.com/fucina-go/fucina/core/tensor"
	"github.com/fucina-go/fucina/exec"
	"github.com/fucina-go/fucina/tags"
)

// project multiplies by up to three matrices, whose columns lie side by side in the result.
func project(c *Call, q *exec.Queue) error { return c.projected(q, 3) }

// gatedProject multiplies by a gate and by another matrix.
func gatedProject(c *Call, q *exec.Queue) error { return c.projected(q, 2) }

// projected runs an operation on the input, then n matrices, n biases and, with one operand
// more, a tensor with the axes of the result.
func (c *Call) projected(q *exec.Queue, n int) error {
	var w works
	c.works(&w)
	defer w.done()
	at, err := c.index(c.Axis)
	if err != nil {
		return err
	}
	if err := w[0].moveLast(at); err != nil {
		return err
	}
	for i := 1; i <= n; i++ {
		if c.Has(i) {
			if err := c.matrix(&w[i], i, &w[n+i], n+i); err != nil {
				return err
			}
		}
	}
	names := w[0].Names.Without(w[0].Names.Len() - 1)
	if err := names.Add(c.Axis2); err != nil {
		return err
	}
	if last := 2*n + 1; c.Has(last) {
		if err := w[last].follow(c.role(last), &names); err != nil {
			return err
		}
	}
	list := w.list()
	return c.do(q, &names, list[:c.NIn]...)
}

// matrix moves the axis of the matrix m, operand i, last, and checks that the bias b, operand
// j, is a vector along the other axis, if it is present.
func (c *Call) matrix(m *working, i int, b *working, j int) error {
	at := m.Names.Index(c.Axis)
	switch d := m.Raw.DType(); {
	case at < 0:
		return because(tags.ErrTag, "the %s has no axis %q", c.role(i), c.Axis)
	case m.Names.Len() != 2:
		return because(tags.ErrTag, "the %s: want axis %q and one other, got %s", c.role(i), c.Axis, m.Describe())
	case at == 0 && d.IsBlockQuantized():
		return because(tensor.ErrUnsupportedView, "the %s of %s needs axis %q last", c.role(i), d, c.Axis)
	}
	if c.Has(j) {
		if err := b.vector(c.role(j), m.Names.At(1-at)); err != nil {
			return err
		}
	}
	return m.moveLast(at)
}
