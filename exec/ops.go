package exec

import (
	"encoding/binary"
	"fmt"
	"slices"
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

// Do runs the operation id on the inputs and returns its output, a contiguous tensor that
// the caller releases. p are the parameters; nil means zeros. An input whose strides the
// operation does not take is copied first. The dtype of the output of [op.Copy] is p.To.
//
// Inputs that the operation's contract refuses fail with a [RefusalError]. A row number
// outside the table fails with tensor.ErrIndexOutOfBounds.
func (c *Queue) Do(id op.ID, p *op.Params, in ...*tensor.Tensor) (tensor.Tensor, error) {
	defer c.forget()
	c.begin(p, in)
	if r := op.Infer(id, &c.args); !r.OK() {
		return tensor.Tensor{}, c.refusal(&r, in)
	}
	if !c.laidOut(id) {
		return c.doCopies(id, p, in)
	}
	if err := c.checkInputs(id); err != nil {
		return tensor.Tensor{}, err
	}
	return c.run(id)
}

// doCopies is the part of Do after the check, with copies of the inputs whose strides the
// operation does not take.
func (c *Queue) doCopies(id op.ID, p *op.Params, in []*tensor.Tensor) (tensor.Tensor, error) {
	var own [op.MaxIn]tensor.Tensor
	defer releaseAll(&own)
	if err := c.layOut(id, p, in, &own, nil); err != nil {
		return tensor.Tensor{}, err
	}
	if r := op.Infer(id, &c.args); !r.OK() {
		return tensor.Tensor{}, c.refusal(&r, in)
	}
	if err := c.checkInputs(id); err != nil {
		return tensor.Tensor{}, err
	}
	return c.run(id)
}

// DoInto is Do with the output written to the existing tensor out, and so to every other
// view of its buffer. It fails with tensor.ErrReadOnly if that buffer is read-only.
func (c *Queue) DoInto(id op.ID, p *op.Params, out *tensor.Tensor, in ...*tensor.Tensor) error {
	defer c.forget()
	if out.Buffer().ReadOnly() {
		return &OpError{id, fmt.Errorf("%w: %s", tensor.ErrReadOnly, out.String())}
	}
	c.begin(p, in)
	c.output(out)
	r := op.Check(id, &c.args)
	switch {
	case r.OK() && !c.shares(out.Buffer()):
	case r.OK(), r.Why == op.WrongLayout && r.Place < op.FirstOut:
		return c.doIntoCopies(id, p, out, in)
	default:
		return c.refusal(&r, in)
	}
	if err := c.checkInputs(id); err != nil {
		return err
	}
	return c.runInto(id, out)
}

// doIntoCopies is the part of DoInto after the check, with copies of the inputs whose
// strides the operation does not take and of the inputs that share the buffer of out.
func (c *Queue) doIntoCopies(id op.ID, p *op.Params, out *tensor.Tensor, in []*tensor.Tensor) error {
	var own [op.MaxIn]tensor.Tensor
	defer releaseAll(&own)
	if err := c.layOut(id, p, in, &own, out); err != nil {
		return err
	}
	c.output(out)
	if r := op.Check(id, &c.args); !r.OK() {
		return c.refusal(&r, in)
	}
	if err := c.checkInputs(id); err != nil {
		return err
	}
	return c.runInto(id, out)
}

// begin sets c.args to the parameters and inputs of an operation.
func (c *Queue) begin(p *op.Params, in []*tensor.Tensor) {
	a := &c.args
	a.NIn, a.NOut, a.Workspace, a.Status, a.Exact = min(len(in), op.MaxIn), 0, op.Mem{}, nil, c.e.exact
	a.Params = op.Params{}
	if p != nil {
		a.Params = *p
	}
	a.Out[0].DType = a.To
	for i, t := range in[:a.NIn] {
		operand(&a.In[i], t)
		c.bufs[i] = t.Buffer()
	}
	c.unchecked = false
}

// output sets the output to an existing tensor.
func (c *Queue) output(out *tensor.Tensor) {
	operand(&c.args.Out[0], out)
	c.args.NOut = 1
}

// laidOut reports whether the operation takes the strides of its inputs.
func (c *Queue) laidOut(id op.ID) bool {
	for i := range c.args.NIn {
		if !c.args.In[i].Has(id.Layout(&c.args, op.Place(i))) {
			return false
		}
	}
	return true
}

// shares reports whether an input is a view of the buffer b.
func (c *Queue) shares(b *storage.Buffer) bool { return slices.Contains(c.bufs[:c.args.NIn], b) }

// layOut copies the inputs whose strides the operation does not take and, if out is not
// nil, the inputs that share its buffer and may overlap it. It stores the copies in own
// and sets c.args to the inputs with the copies in place. The caller releases own.
func (c *Queue) layOut(id op.ID, p *op.Params, in []*tensor.Tensor, own *[op.MaxIn]tensor.Tensor, out *tensor.Tensor) error {
	var list [op.MaxIn]*tensor.Tensor
	var needed [op.MaxIn]bool
	n := len(in)
	for i := range n {
		list[i] = in[i] // the builtin copy would make the tensors escape
		l := id.Layout(&c.args, op.Place(i))
		fits := c.args.In[i].Has(l)
		if !fits && in[i].DType().IsBlockQuantized() {
			return c.refusal(&op.Refusal{Op: id, Why: op.WrongLayout, Place: op.Place(i), Want: int(l)}, in)
		}
		needed[i] = !fits || out != nil && in[i].Buffer() == out.Buffer()
	}
	for i := range n {
		if !needed[i] {
			continue
		}
		var err error
		if own[i], err = c.copyOf(in[i]); err != nil {
			return err
		}
		list[i] = &own[i]
	}
	c.begin(p, list[:n])
	return nil
}

// copyOf returns a contiguous copy of t.
func (c *Queue) copyOf(t *tensor.Tensor) (tensor.Tensor, error) {
	return c.Do(op.Copy, &op.Params{To: t.DType()}, t)
}

func releaseAll(own *[op.MaxIn]tensor.Tensor) {
	for i := range own {
		if !own[i].IsZero() {
			own[i].Release()
		}
	}
}

// checkInputs checks the row numbers of a gather, which the contract cannot check. If only
// the device has the row numbers, the device checks them.
func (c *Queue) checkInputs(id op.ID) error {
	if id != op.GetRows {
		return nil
	}
	ids := c.bufs[1]
	if c.unchecked = ids.NewestOnDevice(); c.unchecked {
		return nil
	}
	p, err := ids.Host(c.ctx, storage.Read)
	if err == nil {
		err = checkRows(&c.args.In[1], p, c.tableRows())
	}
	if err != nil {
		return &OpError{id, err}
	}
	return nil
}

// tableRows returns the number of rows of the table of the call in progress.
func (c *Queue) tableRows() int { return c.args.In[0].Shape.Dim(0) }

// checkRows returns an error for a row number outside [0, rows). p is the memory of ids,
// which is contiguous.
func checkRows(ids *op.Operand, p []byte, rows int) error {
	size := ids.DType.Size()
	p = p[ids.Offset*size:][:ids.Shape.Dim(0)*size]
	for i := 0; i < len(p); i += size {
		var id int64
		switch ids.DType {
		case dtype.I32:
			id = int64(int32(binary.NativeEndian.Uint32(p[i:])))
		case dtype.I64:
			id = int64(binary.NativeEndian.Uint64(p[i:]))
		case dtype.U16:
			id = int64(binary.NativeEndian.Uint16(p[i:]))
		}
		if id < 0 || id >= int64(rows) {
			return rowError(i/size, id, rows)
		}
	}
	return nil
}

func rowError(at int, id int64, rows int) error {
	return fmt.Errorf("%w: id %d at position %d, the table has %d rows", tensor.ErrIndexOutOfBounds, id, at, rows)
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
func (c *Queue) refusal(r *op.Refusal, in []*tensor.Tensor) error {
	e := &RefusalError{Refusal: *r, n: min(len(in), op.MaxIn)}
	for i, t := range in[:e.n] {
		operand(&e.operands[i], t)
	}
	return e
}

// Error names the operation, the refusal and the operands.
func (e *RefusalError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", e.Op, e.Text(e.Op))
	for i := range e.n {
		sep := ","
		if i == 0 {
			sep = ":"
		}
		o := &e.operands[i]
		fmt.Fprintf(&b, "%s %s %s %s", sep, e.Op.Role(op.Place(i)), o.DType, o.Shape)
	}
	return b.String()
}

// Unwrap returns the sentinel for the reason of the refusal.
func (e *RefusalError) Unwrap() error { return e.Sentinel() }
