package exec

import (
	"fmt"
	"math"
	"strings"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/core/storage"
	"github.com/fucina-go/fucina/core/tensor"
	"github.com/fucina-go/fucina/internal/offheap"
)

// FromSlice returns a pooled host tensor of dtype Of[T] and shape s with a copy of values,
// one per storage element. The caller releases it.
func FromSlice[T dtype.Element](c *Queue, s shape.Shape, values []T) (tensor.Tensor, error) {
	d := dtype.Of[T]()
	n, err := s.StorageElements(d)
	if err != nil {
		return tensor.Tensor{}, err
	}
	if n != len(values) {
		return tensor.Tensor{}, fmt.Errorf("%w: %s %s has %d storage elements, got %d", tensor.ErrInvalidDataLength, d, s, n, len(values))
	}
	t, dst, err := Fresh[T](c, s)
	if err != nil {
		return tensor.Tensor{}, err
	}
	// values may lie in a mapped file.
	if err := offheap.Guard(func() error { copy(dst, values); return nil }); err != nil {
		t.Release()
		return tensor.Tensor{}, err
	}
	return t, nil
}

// Fresh returns a pooled host tensor of dtype Of[T] and shape s, and its storage elements.
// Their values are undefined until the caller sets them. The caller releases the tensor.
func Fresh[T dtype.Element](c *Queue, s shape.Shape) (tensor.Tensor, []T, error) {
	d := dtype.Of[T]()
	n, err := s.Bytes(d)
	if err != nil {
		return tensor.Tensor{}, nil, err
	}
	buf, err := c.e.pool.Acquire(n)
	if err != nil {
		return tensor.Tensor{}, nil, err
	}
	p, err := buf.Host(c.ctx, storage.Overwrite)
	if err != nil {
		buf.Release()
		return tensor.Tensor{}, nil, err
	}
	v, err := storage.Elements[T](p[:n])
	if err != nil {
		buf.Release()
		return tensor.Tensor{}, nil, err
	}
	t, err := tensor.FromBuffer(buf, d, s)
	return t, v, err
}

// call is an operation to run.
type call struct {
	id op.ID
	// as is the operation that errors name. It differs from id in a part of another operation.
	as      op.ID
	params  *op.Params     // nil means zeros
	outputs int            // the number of outputs that the caller takes
	into    *tensor.Tensor // the last output, if it is an existing tensor
}

// Results lists where an operation stores its new outputs, first output first. The entry of an
// output that the operation writes into an existing tensor is nil.
type Results [op.MaxOut]*tensor.Tensor

// release releases the results that exist.
func (r *Results) release() {
	for _, t := range r {
		if t != nil && !t.IsZero() {
			t.Release()
		}
	}
}

// Do runs the operation id on the inputs and returns its output, a contiguous tensor that
// the caller releases. p are the parameters; nil means zeros. A nil input is an optional
// operand that is absent. An input whose strides the operation does not take is copied
// first. The dtype of the output of [op.Copy] is p.To.
//
// Inputs that the operation's contract refuses fail with a [RefusalError]. An index that is
// out of range fails with tensor.ErrIndexOutOfBounds.
func (c *Queue) Do(id op.ID, p *op.Params, in ...*tensor.Tensor) (tensor.Tensor, error) {
	var y tensor.Tensor
	err := c.DoTo(id, p, Results{&y}, nil, in...)
	return y, err
}

// DoInto is Do with the output written to the existing tensor out, and so to every other
// view of its buffer. It fails with tensor.ErrReadOnly if that buffer is read-only.
func (c *Queue) DoInto(id op.ID, p *op.Params, out *tensor.Tensor, in ...*tensor.Tensor) error {
	return c.DoTo(id, p, Results{}, out, in...)
}

// DoTo is Do for any number of outputs. The tensors of r must be zero. DoTo sets them to the
// outputs, which the caller releases. If it fails, they stay zero. If the operation writes the
// last output into a tensor that exists, as op.RotateStore does, that tensor is into. Otherwise
// into is nil. DoTo fails with tensor.ErrReadOnly if the buffer of into is read-only.
func (c *Queue) DoTo(id op.ID, p *op.Params, r Results, into *tensor.Tensor, in ...*tensor.Tensor) error {
	k := call{id: id, as: id, params: p, into: into}
	for k.outputs < len(r) && r[k.outputs] != nil {
		k.outputs++
	}
	if into != nil {
		k.outputs++
	}
	return c.do(&k, in, &r)
}

// do runs the call k and stores the new outputs in r. With an error it stores none.
func (c *Queue) do(k *call, in []*tensor.Tensor, r *Results) error {
	defer c.forget()
	if k.into != nil && k.into.Buffer().ReadOnly() {
		return &OpError{k.as, fmt.Errorf("%w: %s", tensor.ErrReadOnly, k.into.String())}
	}
	refused := c.begin(k, in)
	if refused.OK() {
		if split, err := c.doParts(k, in, r); split {
			return err
		}
	}
	return c.doWhole(k, in, r, &refused)
}

// doWhole is the part of do after begin, which returned refused, for an operation that does
// not run as its parts. do and doWhole do not call themselves, because the operands of a
// recursive function escape to the heap.
func (c *Queue) doWhole(k *call, in []*tensor.Tensor, r *Results, refused *op.Refusal) error {
	switch {
	case refused.OK() && (c.recalled || c.laidOut(k.id)) && !c.shares():
		if !c.recalled {
			c.remember(k.id, k.into != nil)
		}
	case refused.OK(), refused.Why == op.WrongLayout && refused.Place < op.FirstOut:
		return c.doCopies(k, in, r)
	default:
		return refusal(refused, in)
	}
	return c.checkAndRun(k, r)
}

// doCopies is doWhole with copies of the inputs whose strides the operation does not take and
// of the inputs that overlap an output.
func (c *Queue) doCopies(k *call, in []*tensor.Tensor, r *Results) error {
	var own [op.MaxIn]tensor.Tensor
	defer releaseAll(own[:])
	if err := c.layOut(k, in, &own); err != nil {
		return err
	}
	var list [op.MaxIn]*tensor.Tensor
	for i := range in {
		if list[i] = in[i]; !own[i].IsZero() {
			list[i] = &own[i]
		}
	}
	if refused := c.begin(k, list[:len(in)]); !refused.OK() {
		return refusal(&refused, in)
	}
	return c.checkAndRun(k, r)
}

// checkAndRun is run after the check of the indices.
func (c *Queue) checkAndRun(k *call, r *Results) error {
	if err := c.checkIndices(k.id); err != nil {
		return &OpError{k.as, err}
	}
	return c.run(k, r)
}

// begin sets c.args to the operands and parameters of k, and checks them. It does not check
// the strides of the inputs, unless every output is an existing tensor.
func (c *Queue) begin(k *call, in []*tensor.Tensor) op.Refusal {
	roles := k.id.Outputs()
	switch {
	case !k.id.Valid():
		return op.Refusal{Op: k.id, Why: op.UnknownOp, Place: op.NoPlace}
	case len(in) > op.MaxIn:
		return op.Refusal{Op: k.id, Why: op.WrongCount, Place: op.NoPlace, Got: len(in), Want: len(k.id.Inputs())}
	case k.outputs != len(roles), k.into != nil && k.outputs > 1 && !roles[k.outputs-1].Into:
		got := k.outputs
		if k.into != nil {
			got--
		}
		return op.Refusal{Op: k.id, Why: op.WrongCount, Place: op.NoPlace, Got: len(in) + got, Want: len(k.id.Inputs()) + len(roles)}
	}
	a := &c.args
	a.NIn, a.NOut, a.Workspace, a.Status, a.Exact = len(in), k.outputs, op.Mem{}, nil, c.e.exact
	a.Params = op.Params{}
	if k.params != nil {
		a.Params = *k.params
	}
	for i, t := range in {
		if t == nil {
			a.In[i], c.bufs[i] = op.Operand{}, nil
			continue
		}
		operand(&a.In[i], t)
		c.bufs[i] = t.Buffer()
	}
	for i := range a.NOut {
		a.Out[i], c.outs[i] = op.Operand{DType: a.To}, output{}
	}
	c.unchecked, a.Generated = 0, 0
	c.dev.reset()
	if a.Has(0) {
		a.Generated = min(c.generated, a.In[0].Shape.Dim(0))
	}
	last := a.NOut - 1
	if k.into != nil {
		operand(&a.Out[last], k.into)
		c.outs[last] = output{k.into.Buffer(), storage.Update}
	}
	if c.recalled = c.recall(k.id, k.into != nil); c.recalled {
		return op.Refusal{}
	}
	if k.into == nil || last > 0 {
		return op.Infer(k.id, a)
	}
	return op.Check(k.id, a)
}

// laidOut reports whether the operation takes the strides of its inputs.
func (c *Queue) laidOut(id op.ID) bool {
	for i := range c.args.NIn {
		if !c.fits(id, op.Place(i)) {
			return false
		}
	}
	return true
}

// fits reports whether the operation takes the strides of the input at p, if it is present.
func (c *Queue) fits(id op.ID, p op.Place) bool {
	o := &c.args.In[p]
	return o.IsZero() || o.Has(id.Layout(&c.args, p))
}

// shares reports whether an input overlaps an output.
func (c *Queue) shares() bool {
	for i := range c.args.NIn {
		if c.overlaps(i) {
			return true
		}
	}
	return false
}

// overlaps reports whether the bytes from the first to the last of input i overlap those of
// an output. A new output overlaps nothing.
func (c *Queue) overlaps(i int) bool {
	for j := range c.args.NOut {
		if b := c.outs[j].buf; b == nil || b != c.bufs[i] {
			continue
		}
		lo, hi := extent(&c.args.In[i])
		start, end := extent(&c.args.Out[j])
		if lo < end && start < hi {
			return true
		}
	}
	return false
}

// extent returns the first byte of a tensor's operand in its buffer, and one past the last.
func extent(o *op.Operand) (lo, hi int) {
	st, err := o.Shape.Storage(o.DType)
	if err != nil {
		return 0, math.MaxInt
	}
	reach, err := st.Reach(&o.Strides)
	if err != nil {
		return 0, math.MaxInt
	}
	size := o.DType.Size()
	return o.Offset * size, (o.Offset + reach + 1) * size
}

// checkBlocks refuses an input of a block format whose strides the operation does not take. A
// copy cannot replace the input, because op.Copy takes only contiguous blocks.
func (c *Queue) checkBlocks(id op.ID) op.Refusal {
	for i := range c.args.NIn {
		p := op.Place(i)
		if c.args.In[i].DType.IsBlockQuantized() && !c.fits(id, p) {
			return op.Refusal{Op: id, Why: op.WrongLayout, Place: p, Want: int(id.Layout(&c.args, p))}
		}
	}
	return op.Refusal{}
}

// layOut copies the inputs whose strides the operation does not take and those that overlap
// an output. It stores the copies in own, at the places of the inputs. The caller releases
// own.
func (c *Queue) layOut(k *call, in []*tensor.Tensor, own *[op.MaxIn]tensor.Tensor) error {
	if refused := c.checkBlocks(k.id); !refused.OK() {
		return refusal(&refused, in)
	}
	var needed [op.MaxIn]bool
	for i := range in {
		needed[i] = !c.fits(k.id, op.Place(i)) || c.overlaps(i)
	}
	for i := range in {
		if !needed[i] {
			continue
		}
		var err error
		if own[i], err = c.copyOf(k.as, in[i]); err != nil {
			return err
		}
	}
	return nil
}

// copyOf returns a contiguous copy of t, which the operation as needs. t has a scalar dtype,
// of which op.Copy takes any strides.
func (c *Queue) copyOf(as op.ID, t *tensor.Tensor) (tensor.Tensor, error) {
	k := call{id: op.Copy, as: as, params: &op.Params{To: t.DType()}, outputs: 1}
	in := [...]*tensor.Tensor{t}
	if refused := c.begin(&k, in[:]); !refused.OK() {
		return tensor.Tensor{}, refusal(&refused, in[:])
	}
	var y tensor.Tensor
	err := c.run(&k, &Results{&y})
	return y, err
}

// releaseAll releases the tensors of list that are not zero.
func releaseAll(list []tensor.Tensor) {
	for i := range list {
		if !list[i].IsZero() {
			list[i].Release()
		}
	}
}

// OpError is the failure of an operation whose operands its contract accepts. Its text has the
// name of the operation. A caller that knows another name makes a text from Err instead.
type OpError struct {
	Op  op.ID
	Err error
}

func (e *OpError) Error() string { return e.Op.String() + ": " + e.Err.Error() }
func (e *OpError) Unwrap() error { return e.Err }

// RefusalError is the refusal of an operation's operands. Its text names roles and numbers
// axes. A caller that knows the axes' names makes a text from the Refusal instead.
type RefusalError struct {
	op.Refusal
	n        int
	operands [op.MaxIn]op.Operand // without memory
}

// refusal returns the refusal r of the inputs in as an error.
func refusal(r *op.Refusal, in []*tensor.Tensor) error {
	e := &RefusalError{Refusal: *r, n: min(len(in), op.MaxIn)}
	for i, t := range in[:e.n] {
		if t != nil {
			operand(&e.operands[i], t)
		}
	}
	return e
}

// Error names the operation, the refusal and the operands.
func (e *RefusalError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", e.Op, e.Text(e.Op))
	sep := ":"
	for i := range e.n {
		if o := &e.operands[i]; !o.IsZero() {
			fmt.Fprintf(&b, "%s %s %s %s", sep, e.Op.Role(op.Place(i)), o.DType, o.Shape)
			sep = ","
		}
	}
	return b.String()
}

// Unwrap returns the sentinel for the reason of the refusal.
func (e *RefusalError) Unwrap() error { return e.Sentinel() }
