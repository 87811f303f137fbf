package exec

import (
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/core/storage"
	"github.com/fucina-go/fucina/core/tensor"
)

// A device may decline an operation that is a sequence of others. The functions of this file
// run such an operation as that sequence, with the same result on one provider. Each part is
// placed by itself.

// parts are the operands of an operation that runs as its parts. The queue is no field of it,
// because the queue is on the heap, and a pointer to a struct with both would move the operands
// there.
type parts struct {
	as     op.ID // the operation, which the errors of its parts name
	params op.Params
	in     []*tensor.Tensor
}

// doParts runs the call k, whose operands begin has set, as its parts. It returns false, and has
// done nothing, if the operation has no parts or does not run as them; see splits.
func (c *Queue) doParts(k *call, in []*tensor.Tensor, r *Results) (split bool, err error) {
	s := &parts{as: k.as, in: in}
	var y tensor.Tensor
	switch k.id {
	case op.AddRMSNorm:
		if split, err = c.splits(k, s); split && err == nil {
			err = c.addRMSNorm(s, r)
		}
		return split, err
	case op.RotateStore:
		if split, err = c.splits(k, s); split && err == nil {
			y, err = c.rotateStore(s, k.into, c.args.PageRows())
		}
	case op.Project:
		if split, err = c.splits(k, s); split && err == nil {
			y, err = c.project(s, c.args.Out[0].Shape)
		}
	case op.GatedProject:
		if split, err = c.splits(k, s); split && err == nil {
			y, err = c.gatedProject(s)
		}
	}
	switch {
	case !split || err != nil:
		return split, err
	case r[0] != nil:
		*r[0] = y
		return true, nil
	}
	defer y.Release()
	return true, c.partInto(s, op.Copy, k.into, &y)
}

// splits reports whether the operation of k, which has parts, runs as them: a device that can be
// used declines the operation as a whole. If so, splits checks the operands, and keeps the
// parameters in s, because the parts replace c.args.
func (c *Queue) splits(k *call, s *parts) (bool, error) {
	if !c.declines(k.id) || c.shares() {
		return false, nil
	}
	if refused := c.checkBlocks(k.id); !refused.OK() {
		return true, refusal(&refused, s.in)
	}
	if err := c.checkIndices(k.id); err != nil {
		return true, &OpError{k.as, err}
	}
	s.params = c.args.Params
	return true, nil
}

// part runs a part and returns its output.
func (c *Queue) part(s *parts, id op.ID, p *op.Params, in ...*tensor.Tensor) (tensor.Tensor, error) {
	var y tensor.Tensor
	err := c.doPart(s, &call{id: id, as: s.as, params: p, outputs: 1}, in, &Results{&y})
	return y, err
}

// partInto runs a part without parameters, into the existing tensor out.
func (c *Queue) partInto(s *parts, id op.ID, out *tensor.Tensor, in ...*tensor.Tensor) error {
	return c.doPart(s, &call{id: id, as: s.as, outputs: 1, into: out}, in, &Results{})
}

// doPart runs the part k.
func (c *Queue) doPart(s *parts, k *call, in []*tensor.Tensor, r *Results) error {
	refused := c.begin(k, in)
	return c.doWhole(k, in, r, &refused)
}

// replace replaces *y by the output of a part. With an error it leaves *y.
func (c *Queue) replace(s *parts, y *tensor.Tensor, id op.ID, p *op.Params, in ...*tensor.Tensor) error {
	next, err := c.part(s, id, p, in...)
	if err != nil {
		return err
	}
	y.Release()
	*y = next
	return nil
}

// at returns input i, or nil if it is absent.
func (s *parts) at(i int) *tensor.Tensor {
	if i >= len(s.in) {
		return nil
	}
	return s.in[i]
}

func (c *Queue) addRMSNorm(s *parts, r *Results) (err error) {
	if *r[0], err = c.part(s, op.Add, nil, s.in[0], s.in[1]); err != nil {
		return err
	}
	if *r[1], err = c.part(s, op.RMSNorm, &op.Params{Eps: s.params.Eps}, r[0], s.in[2]); err != nil {
		r.release()
	}
	return err
}

// product returns product i of Project or GatedProject, with the weight w and the bias, which
// may be nil.
func (c *Queue) product(s *parts, i int, w, bias *tensor.Tensor) (tensor.Tensor, error) {
	y, err := c.part(s, op.MatMul, &op.Params{Chunks: s.params.Chunks}, s.in[0], w)
	if err != nil {
		return tensor.Tensor{}, err
	}
	if s.params.BiasFirst {
		err = c.addBias(s, &y, bias)
	}
	if scale := s.params.Scales[i]; err == nil && scale != 1 {
		err = c.replace(s, &y, op.Scale, &op.Params{Scale: scale}, &y)
	}
	if err == nil && !s.params.BiasFirst {
		err = c.addBias(s, &y, bias)
	}
	if err != nil {
		y.Release()
	}
	return y, err
}

// addBias adds the bias to each row of *y. The bias may be nil.
func (c *Queue) addBias(s *parts, y, bias *tensor.Tensor) error {
	if bias == nil {
		return nil
	}
	rows, err := bias.BroadcastTo(y.Shape())
	if err != nil {
		return err
	}
	defer rows.Release()
	return c.replace(s, y, op.Add, nil, y, &rows)
}

// project returns the output of Project, whose shape is out.
func (c *Queue) project(s *parts, out shape.Shape) (y tensor.Tensor, err error) {
	if s.at(2) == nil && s.at(3) == nil {
		y, err = c.product(s, 0, s.in[1], s.at(4))
	} else {
		y, err = c.sideBySide(s, out)
	}
	if err != nil {
		return tensor.Tensor{}, err
	}
	if residual := s.at(7); residual != nil {
		if err = c.replace(s, &y, op.Add, nil, &y, residual); err != nil {
			y.Release()
		}
	}
	return y, err
}

// sideBySide returns the products of Project as the columns of a tensor of shape out.
func (c *Queue) sideBySide(s *parts, out shape.Shape) (all tensor.Tensor, err error) {
	start := 0
	for i := range 3 {
		w := s.at(1 + i)
		if w == nil {
			continue
		}
		if err = c.column(s, &all, out, start, i, w); err != nil {
			break
		}
		start += w.Dim(0)
	}
	if err != nil && !all.IsZero() {
		all.Release()
	}
	return all, err
}

// column writes product i to the columns of *all from start on. The first call makes *all, of
// shape out, where the product is.
func (c *Queue) column(s *parts, all *tensor.Tensor, out shape.Shape, start, i int, w *tensor.Tensor) error {
	y, err := c.product(s, i, w, s.at(4+i))
	if err != nil {
		return err
	}
	defer y.Release()
	if all.IsZero() {
		if *all, err = c.like(&y, out); err != nil {
			return &OpError{s.as, err}
		}
	}
	view, err := all.Narrow(all.Rank()-1, start, w.Dim(0))
	if err != nil {
		return &OpError{s.as, err}
	}
	defer view.Release()
	return c.partInto(s, op.Copy, &view, &y)
}

// like returns a tensor of the shape s with undefined contents, where t is: on the device or
// on the host.
func (c *Queue) like(t *tensor.Tensor, s shape.Shape) (tensor.Tensor, error) {
	n, err := s.Bytes(t.DType())
	if err != nil {
		return tensor.Tensor{}, err
	}
	var buf *storage.Buffer
	if t.Buffer().NewestOnDevice() {
		buf = c.e.pool.AcquireLazy(n)
	} else if buf, err = c.e.pool.Acquire(n); err != nil {
		return tensor.Tensor{}, err
	}
	y, err := tensor.FromBuffer(buf, t.DType(), s)
	if err != nil {
		buf.Release()
	}
	return y, err
}

func (c *Queue) gatedProject(s *parts) (tensor.Tensor, error) {
	gate, err := c.product(s, 0, s.in[1], s.at(3))
	if err != nil {
		return tensor.Tensor{}, err
	}
	defer gate.Release()
	up, err := c.product(s, 1, s.in[2], s.at(4))
	if err != nil {
		return tensor.Tensor{}, err
	}
	defer up.Release()
	id := op.SwiGLU
	if s.params.Act == op.GELU {
		id = op.GeGLU
	}
	return c.part(s, id, nil, &up, &gate)
}

// rotateStore returns the rotated queries, and writes the keys and the values to the cache,
// whose pages have the given number of rows.
func (c *Queue) rotateStore(s *parts, cache *tensor.Tensor, rows int) (tensor.Tensor, error) {
	q, err := c.rotate(s, s.in[0], s.at(5))
	if err != nil {
		return tensor.Tensor{}, err
	}
	k, err := c.rotate(s, s.in[1], s.at(6))
	if err == nil {
		width := k.Dim(1) * k.Dim(2)
		err = c.store(s, cache, 0, rows, &k)
		if err == nil {
			err = c.store(s, cache, rows*width, rows, s.in[2])
		}
		k.Release()
	}
	if err != nil {
		q.Release()
	}
	return q, err
}

// rotate returns the heads x after a norm with the given weight, which may be nil, and the
// rotation.
func (c *Queue) rotate(s *parts, x, weight *tensor.Tensor) (tensor.Tensor, error) {
	if weight == nil {
		return c.part(s, op.RoPE, &op.Params{Mode: s.params.Mode}, x, s.in[3])
	}
	y, err := c.part(s, op.RMSNorm, &op.Params{Eps: s.params.Eps}, x, weight)
	if err != nil {
		return tensor.Tensor{}, err
	}
	defer y.Release()
	return c.part(s, op.RoPE, &op.Params{Mode: s.params.Mode}, &y, s.in[3])
}

// store writes the heads x [T, H, D] to the places of the rows [H*D] that begin at element
// start of each page of the cache.
func (c *Queue) store(s *parts, cache *tensor.Tensor, start, rows int, x *tensor.Tensor) error {
	part, err := s.named(rowsOf(cache, start, rows, x.Dim(1)*x.Dim(2)))
	if err != nil {
		return err
	}
	defer part.Release()
	flat, err := c.flat(s, x)
	if err != nil {
		return err
	}
	defer flat.Release()
	return c.partInto(s, op.SetRows, &part, &flat, s.in[4])
}

// rowsOf returns the view [pages, rows, width] of the rows that begin at element start of each
// page of the cache [pages, C].
func rowsOf(cache *tensor.Tensor, start, rows, width int) (tensor.Tensor, error) {
	st, block := cache.Strides(), cache.DType().BlockSize()
	view, err := shape.Of(cache.Dim(0), rows, width)
	if err != nil {
		return tensor.Tensor{}, err
	}
	strides, err := shape.OfStrides(st.Dim(0), width/block*st.Dim(1), st.Dim(1))
	if err != nil {
		return tensor.Tensor{}, err
	}
	return cache.View(view, strides, start/block*st.Dim(1))
}

// flat returns x [T, H, D] as [T, H*D]: a view if its strides allow that, otherwise a copy.
// The caller releases it.
func (c *Queue) flat(s *parts, x *tensor.Tensor) (tensor.Tensor, error) {
	st, heads, d := x.Strides(), x.Dim(1), x.Dim(2)
	stride := st.Dim(2)
	if d == 1 {
		stride = st.Dim(1)
	} else if heads > 1 && st.Dim(1) != d*stride {
		y, err := c.copyOf(s.as, x)
		if err != nil {
			return tensor.Tensor{}, err
		}
		defer y.Release()
		return s.named(y.Reshape(flatShape(x)))
	}
	st = st.Without(2)
	st.Set(1, stride)
	return s.named(x.View(flatShape(x), st, 0))
}

// named returns t, or err with the name of the operation.
func (s *parts) named(t tensor.Tensor, err error) (tensor.Tensor, error) {
	if err != nil {
		return tensor.Tensor{}, &OpError{s.as, err}
	}
	return t, nil
}

// flatShape returns [T, H*D] for x [T, H, D].
func flatShape(x *tensor.Tensor) shape.Shape {
	s := x.Shape().Without(2)
	s.Set(1, x.Dim(1)*x.Dim(2))
	return s
}
