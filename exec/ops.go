package exec

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/core/storage"
	"github.com/fucina-go/fucina/core/tensor"
	"github.com/fucina-go/fucina/internal/offheap"
)

// FromSlice returns a pooled host tensor of dtype Of[T] with a copy of values, in
// storage elements.
func FromSlice[T dtype.Element](c *Queue, s shape.Shape, values []T) (tensor.Tensor, error) {
	d := dtype.Of[T]()
	n, err := s.StorageElements(d)
	if err != nil {
		return tensor.Tensor{}, err
	}
	if n != len(values) {
		return tensor.Tensor{}, fmt.Errorf("%w: %s %s has %d storage elements, got %d", tensor.ErrInvalidDataLength, d, s, n, len(values))
	}
	buf, err := c.e.pool.Acquire(n * d.Size())
	if err != nil {
		return tensor.Tensor{}, err
	}
	p, err := buf.Host(c.std, storage.Overwrite)
	if err != nil {
		buf.Release()
		return tensor.Tensor{}, err
	}
	dst, err := storage.Elements[T](p[:n*d.Size()])
	if err != nil {
		buf.Release()
		return tensor.Tensor{}, err
	}
	// values may lie in a mapped file.
	if err := offheap.Guard(func() error { copy(dst, values); return nil }); err != nil {
		buf.Release()
		return tensor.Tensor{}, err
	}
	return tensor.FromBuffer(buf, d, s)
}

func requireDType(id op.ID, t *tensor.Tensor, want dtype.DType) error {
	if t.DType() != want {
		return fmt.Errorf("%s: %w: %s, want %s", id, tensor.ErrDType, t.String(), want)
	}
	return nil
}

// contiguous returns t with contiguous layout: t itself with another reference, or
// a copy. The caller releases it.
func (c *Queue) contiguous(t *tensor.Tensor) (tensor.Tensor, error) {
	if t.IsContiguous() {
		return t.Retained(), nil
	}
	return c.copyAs(t, t.DType())
}

// rows returns t with stride 1 along its last axis, as contiguous does.
func (c *Queue) rows(t *tensor.Tensor) (tensor.Tensor, error) {
	if t.Dim(-1) == 1 || t.DType().IsBlockQuantized() {
		return c.contiguous(t)
	}
	if st := t.Strides(); st.Dim(-1) == 1 {
		return t.Retained(), nil
	}
	return c.copyAs(t, t.DType())
}

func (c *Queue) copyAs(t *tensor.Tensor, d dtype.DType) (tensor.Tensor, error) {
	if t.DType().IsBlockQuantized() && !t.IsContiguous() {
		return tensor.Tensor{}, fmt.Errorf("copy: %w: %s with strides %s: blocks are only copied whole", tensor.ErrUnsupportedView, t.String(), t.Strides())
	}
	c.begin(t)
	return c.run(op.Copy, d, t.Shape())
}

// Cast returns a contiguous copy of t converted to d. Scalar dtypes convert to one
// another; block formats and FP8 decode to f32.
func (c *Queue) Cast(t *tensor.Tensor, d dtype.DType) (tensor.Tensor, error) {
	from := t.DType()
	if !d.Valid() || from != d && (d.IsBlockQuantized() || from.IsBlockQuantized() && d != dtype.F32) {
		return tensor.Tensor{}, fmt.Errorf("cast: %w: %s to %s", tensor.ErrDType, t.String(), d)
	}
	return c.copyAs(t, d)
}

// Materialize returns a contiguous copy of t.
func (c *Queue) Materialize(t *tensor.Tensor) (tensor.Tensor, error) {
	return c.Cast(t, t.DType())
}

// CopyTo writes src, converted if the dtypes differ, into the existing tensor dst
// of the same shape, which every view of the buffer then sees. Beside the
// conversions of Cast, f32 becomes q8_0, the format of quantized KV caches.
func (c *Queue) CopyTo(dst, src *tensor.Tensor) error {
	ds, ss := dst.Shape(), src.Shape()
	if err := shape.RequireSame(&ds, &ss); err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	encodes := src.DType() == dtype.F32 && dst.DType() == dtype.Q8_0
	if dst.DType().IsBlockQuantized() && !encodes && (dst.DType() != src.DType() || !dst.IsContiguous() || !src.IsContiguous()) {
		return fmt.Errorf("copy: %w: %s into %s", tensor.ErrDType, src.String(), dst.String())
	}
	if dst.Overlaps() {
		return fmt.Errorf("copy: %w: write through a broadcast view: %s with strides %s", tensor.ErrUnsupportedView, dst.String(), dst.Strides())
	}
	if dst.Buffer().ReadOnly() {
		return fmt.Errorf("copy: %w: %s", tensor.ErrReadOnly, dst.String())
	}
	if dst.Buffer() == src.Buffer() {
		own, err := c.copyAs(src, src.DType()) // the ranges may overlap
		if err != nil {
			return err
		}
		defer own.Release()
		src = &own
	}
	if encodes {
		rows, err := c.rows(src)
		if err != nil {
			return err
		}
		defer rows.Release()
		src = &rows
	}
	c.begin(src)
	return c.runInto(op.Copy, dst)
}

// GetRows gathers rows of table [R, D], of any dtype that decodes to float, by ids
// of shape [T] (i32, i64 or u16), into [T, D] f32.
func (c *Queue) GetRows(table, ids *tensor.Tensor) (tensor.Tensor, error) {
	const id = op.GetRows
	if table.Rank() != 2 || ids.Rank() != 1 {
		return tensor.Tensor{}, fmt.Errorf("%s: %w: table %s and ids %s, want [R D] and [T]", id, tensor.ErrShapeMismatch, table.Shape(), ids.Shape())
	}
	if !table.DType().SupportsToFloat() {
		return tensor.Tensor{}, fmt.Errorf("%s: %w: table %s does not decode to float", id, tensor.ErrDType, table.String())
	}
	ids0, err := c.contiguous(ids)
	if err != nil {
		return tensor.Tensor{}, err
	}
	defer ids0.Release()
	table0, err := c.rows(table)
	if err != nil {
		return tensor.Tensor{}, err
	}
	defer table0.Release()
	switch ids.DType() {
	case dtype.I32, dtype.I64, dtype.U16:
	default:
		return tensor.Tensor{}, fmt.Errorf("%s: %w: ids %s, want i32, i64 or u16", id, tensor.ErrDType, ids.String())
	}
	c.begin(&table0, &ids0)
	defer c.forget()
	if c.unchecked = ids0.Buffer().NewestOnDevice(); !c.unchecked {
		p, err := ids0.Buffer().Host(c.std, storage.Read)
		if err == nil {
			err = checkRows(&c.args.In[1], p, c.tableRows())
		}
		if err != nil {
			return tensor.Tensor{}, fmt.Errorf("%s: %w", id, err)
		}
	}
	s, err := shape.Of(ids.Dim(0), table.Dim(1))
	if err != nil {
		return tensor.Tensor{}, err
	}
	return c.run(id, dtype.F32, s)
}

// tableRows returns the number of rows of the table of the call in progress.
func (c *Queue) tableRows() int { return c.args.In[0].Shape.Dim(0) }

// checkRows refuses an id outside [0, rows). p is the memory of ids, which are
// contiguous.
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

// Add returns a + b, both f32, broadcast together.
func (c *Queue) Add(a, b *tensor.Tensor) (tensor.Tensor, error) {
	return c.pointwise(op.Add, a, b)
}

// Mul returns a * b elementwise, both f32, broadcast together.
func (c *Queue) Mul(a, b *tensor.Tensor) (tensor.Tensor, error) {
	return c.pointwise(op.Mul, a, b)
}

func (c *Queue) pointwise(id op.ID, a, b *tensor.Tensor) (tensor.Tensor, error) {
	if a.DType() != b.DType() {
		return tensor.Tensor{}, fmt.Errorf("%s: %w: %s and %s; cast explicitly", id, tensor.ErrDType, a.String(), b.String())
	}
	if err := requireDType(id, a, dtype.F32); err != nil {
		return tensor.Tensor{}, err
	}
	as, bs := a.Shape(), b.Shape()
	s, err := shape.Broadcast(&as, &bs)
	if err != nil {
		return tensor.Tensor{}, fmt.Errorf("%s: %w", id, err)
	}
	c.begin(a, b)
	for i, t := range [2]*tensor.Tensor{a, b} {
		ts, st := t.Shape(), t.Strides()
		if st, err = shape.BroadcastStrides(&ts, &st, &s); err != nil {
			return tensor.Tensor{}, fmt.Errorf("%s: %w", id, err)
		}
		c.args.In[i].Shape, c.args.In[i].Strides = s, st
	}
	return c.run(id, dtype.F32, s)
}

// RMSNorm normalises the rows of x [..., D] by their root mean square, plus eps
// under the root, and scales them by weight [D]. Both are f32.
func (c *Queue) RMSNorm(x, weight *tensor.Tensor, eps float32) (tensor.Tensor, error) {
	const id = op.RMSNorm
	if err := requireDType(id, x, dtype.F32); err != nil {
		return tensor.Tensor{}, err
	}
	if err := requireDType(id, weight, dtype.F32); err != nil {
		return tensor.Tensor{}, err
	}
	if weight.Rank() != 1 || weight.Dim(0) != x.Dim(-1) {
		return tensor.Tensor{}, fmt.Errorf("%s: %w: x %s and weight %s, want [%d]", id, tensor.ErrShapeMismatch, x.Shape(), weight.Shape(), x.Dim(-1))
	}
	if !(eps >= 0) || math.IsInf(float64(eps), 1) {
		return tensor.Tensor{}, fmt.Errorf("%s: eps is %v, want a finite number of at least 0", id, eps)
	}
	x0, err := c.contiguous(x)
	if err != nil {
		return tensor.Tensor{}, err
	}
	defer x0.Release()
	w0, err := c.contiguous(weight)
	if err != nil {
		return tensor.Tensor{}, err
	}
	defer w0.Release()
	c.begin(&x0, &w0)
	c.args.Eps = eps
	return c.run(id, dtype.F32, x.Shape())
}

// RoPE rotates the first dims elements of each head of x [T, H, D], f32, by the
// angles of table [T, dims/2, 2]; see RoPEScaling.Table.
func (c *Queue) RoPE(x, table *tensor.Tensor, mode op.RoPEMode) (tensor.Tensor, error) {
	const id = op.RoPE
	if err := requireDType(id, x, dtype.F32); err != nil {
		return tensor.Tensor{}, err
	}
	if err := requireDType(id, table, dtype.F32); err != nil {
		return tensor.Tensor{}, err
	}
	if x.Rank() != 3 || table.Rank() != 3 || table.Dim(0) != x.Dim(0) || table.Dim(2) != 2 || 2*table.Dim(1) > x.Dim(2) {
		return tensor.Tensor{}, fmt.Errorf("%s: %w: x %s and table %s, want [T H D] and [T n 2] with 2n <= D", id, tensor.ErrShapeMismatch, x.Shape(), table.Shape())
	}
	x0, err := c.contiguous(x)
	if err != nil {
		return tensor.Tensor{}, err
	}
	defer x0.Release()
	t0, err := c.contiguous(table)
	if err != nil {
		return tensor.Tensor{}, err
	}
	defer t0.Release()
	c.begin(&x0, &t0)
	c.args.Mode, c.args.Dims = mode, 2*table.Dim(1)
	return c.run(id, dtype.F32, x.Shape())
}

// MatMul multiplies x [..., M, K] or [K], f32, by the rows of w [N, K], or of
// w [B, N, K] for x [B, M, K], and gives [..., M, N] or [N], f32. w may be f32, f16,
// bf16 or a block format: the one mix of dtypes that needs no cast.
func (c *Queue) MatMul(x, w *tensor.Tensor) (tensor.Tensor, error) {
	const id = op.MatMul
	if err := requireDType(id, x, dtype.F32); err != nil {
		return tensor.Tensor{}, err
	}
	switch d := w.DType(); {
	case d == dtype.F32 || d == dtype.F16 || d == dtype.BF16 || d.SupportsQuantizedMatMulRHS():
	default:
		return tensor.Tensor{}, fmt.Errorf("%s: %w: right-hand side %s, want f32, f16, bf16 or a weight block format", id, tensor.ErrDType, w.String())
	}
	xs, ws := x.Shape(), w.Shape()
	batched := w.Rank() == 3
	if xs.Dim(-1) != ws.Dim(-1) || w.Rank() != 2 && !(batched && x.Rank() == 3 && xs.Dim(0) == ws.Dim(0)) {
		return tensor.Tensor{}, fmt.Errorf("%s: %w: %s by the rows of %s, want [... K] by [N K] or [B M K] by [B N K]", id, tensor.ErrShapeMismatch, xs, ws)
	}
	x0, err := c.contiguous(x)
	if err != nil {
		return tensor.Tensor{}, err
	}
	defer x0.Release()
	w0 := w.Retained()
	if w.DType().IsBlockQuantized() && !w.IsContiguous() {
		w0.Release()
		return tensor.Tensor{}, fmt.Errorf("%s: %w: right-hand side %s with strides %s", id, tensor.ErrUnsupportedView, w.String(), w.Strides())
	}
	defer w0.Release()
	vector := x.Rank() == 1
	if vector {
		row, err := x0.Reshape(shape.Must(1, xs.Dim(0)))
		if err != nil {
			return tensor.Tensor{}, err
		}
		x0.Release()
		x0 = row
		xs = row.Shape()
	}
	out := xs
	out.Set(out.Rank()-1, ws.Dim(-2))
	c.begin(&x0, &w0)
	y, err := c.run(id, dtype.F32, out)
	if err != nil || !vector {
		return y, err
	}
	defer y.Release()
	return y.Reshape(shape.Must(ws.Dim(-2)))
}

// AttentionOptions are the parameters of Attention beside its operands.
type AttentionOptions struct {
	Scale   float32 // of q.k; 1/sqrt(D) as a rule
	SoftCap float32 // scores become SoftCap*tanh(score/SoftCap); 0 is none
	Past    int     // keys before the first query's own
	Window  int     // keys that a query sees, its own included; 0 is all
}

// Attention is causal scaled dot-product attention of q [T, H, D] over k [S, HK, D]
// and v [S, HK, DV], with H a multiple of HK, into [T, H, DV]. q is f32; k and v are
// f32, f16 or q8_0. Query t sees the keys 0 to Past+t, which must exist.
func (c *Queue) Attention(q, k, v *tensor.Tensor, opt AttentionOptions) (tensor.Tensor, error) {
	const id = op.Attention
	if err := requireDType(id, q, dtype.F32); err != nil {
		return tensor.Tensor{}, err
	}
	for _, t := range [2]*tensor.Tensor{k, v} {
		switch t.DType() {
		case dtype.F32, dtype.F16, dtype.Q8_0:
		default:
			return tensor.Tensor{}, fmt.Errorf("%s: %w: cache %s, want f32, f16 or q8_0", id, tensor.ErrDType, t.String())
		}
	}
	if q.Rank() != 3 || k.Rank() != 3 || v.Rank() != 3 || k.Dim(0) != v.Dim(0) || k.Dim(1) != v.Dim(1) ||
		q.Dim(2) != k.Dim(2) || q.Dim(1)%k.Dim(1) != 0 {
		return tensor.Tensor{}, fmt.Errorf("%s: %w: q %s, k %s, v %s, want [T H D], [S HK D], [S HK DV] with H a multiple of HK",
			id, tensor.ErrShapeMismatch, q.Shape(), k.Shape(), v.Shape())
	}
	if opt.Past < 0 || opt.Window < 0 || opt.Past > k.Dim(0)-q.Dim(0) {
		return tensor.Tensor{}, fmt.Errorf("%s: %w: %d queries after %d past keys, window %d, over %d keys", id, tensor.ErrIndexOutOfBounds, q.Dim(0), opt.Past, opt.Window, k.Dim(0))
	}
	q0, err := c.contiguous(q)
	if err != nil {
		return tensor.Tensor{}, err
	}
	defer q0.Release()
	k0, err := c.rows(k)
	if err != nil {
		return tensor.Tensor{}, err
	}
	defer k0.Release()
	v0, err := c.rows(v)
	if err != nil {
		return tensor.Tensor{}, err
	}
	defer v0.Release()
	c.begin(&q0, &k0, &v0)
	c.args.Scale, c.args.SoftCap, c.args.Past, c.args.Window = opt.Scale, opt.SoftCap, opt.Past, opt.Window
	s := q.Shape()
	s.Set(2, v.Dim(2))
	return c.run(id, dtype.F32, s)
}

// SwiGLU returns silu(gate) * up, both f32 of one shape.
func (c *Queue) SwiGLU(gate, up *tensor.Tensor) (tensor.Tensor, error) {
	return c.gated(op.SwiGLU, gate, up)
}

// GeGLU returns gelu(gate) * up, with the tanh approximation of gelu, both f32 of
// one shape.
func (c *Queue) GeGLU(gate, up *tensor.Tensor) (tensor.Tensor, error) {
	return c.gated(op.GeGLU, gate, up)
}

func (c *Queue) gated(id op.ID, gate, up *tensor.Tensor) (tensor.Tensor, error) {
	for _, t := range [2]*tensor.Tensor{gate, up} {
		if err := requireDType(id, t, dtype.F32); err != nil {
			return tensor.Tensor{}, err
		}
	}
	gs, us := gate.Shape(), up.Shape()
	if err := shape.RequireSame(&gs, &us); err != nil {
		return tensor.Tensor{}, fmt.Errorf("%s: %w", id, err)
	}
	c.begin(gate, up)
	return c.run(id, dtype.F32, gs)
}

// Scale returns factor * x, f32.
func (c *Queue) Scale(x *tensor.Tensor, factor float32) (tensor.Tensor, error) {
	if err := requireDType(op.Scale, x, dtype.F32); err != nil {
		return tensor.Tensor{}, err
	}
	c.begin(x)
	c.args.Scale = factor
	return c.run(op.Scale, dtype.F32, x.Shape())
}

// SoftCap returns limit * tanh(x/limit), f32, which keeps x between -limit and limit.
func (c *Queue) SoftCap(x *tensor.Tensor, limit float32) (tensor.Tensor, error) {
	const id = op.SoftCap
	if err := requireDType(id, x, dtype.F32); err != nil {
		return tensor.Tensor{}, err
	}
	if !(limit > 0) || math.IsInf(float64(limit), 1) {
		return tensor.Tensor{}, fmt.Errorf("%s: limit %v, want a positive number", id, limit)
	}
	c.begin(x)
	c.args.SoftCap = limit
	return c.run(id, dtype.F32, x.Shape())
}

// Softmax returns the softmax of scale * x, f32, along the last axis. A row with a
// NaN, or of -Inf only, becomes NaN.
func (c *Queue) Softmax(x *tensor.Tensor, scale float32) (tensor.Tensor, error) {
	if err := requireDType(op.Softmax, x, dtype.F32); err != nil {
		return tensor.Tensor{}, err
	}
	x0, err := c.contiguous(x)
	if err != nil {
		return tensor.Tensor{}, err
	}
	defer x0.Release()
	c.begin(&x0)
	c.args.Scale = scale
	return c.run(op.Softmax, dtype.F32, x.Shape())
}

// Argmax returns the place of the first maximum along the last axis of x, f32, as
// i32. A NaN counts as the maximum.
func (c *Queue) Argmax(x *tensor.Tensor) (tensor.Tensor, error) {
	if err := requireDType(op.Argmax, x, dtype.F32); err != nil {
		return tensor.Tensor{}, err
	}
	if x.Dim(-1) > math.MaxInt32 {
		return tensor.Tensor{}, fmt.Errorf("%s: %w: %s has more than %d entries along the last axis", op.Argmax, tensor.ErrInvalidShape, x.Shape(), math.MaxInt32)
	}
	x0, err := c.contiguous(x)
	if err != nil {
		return tensor.Tensor{}, err
	}
	defer x0.Release()
	c.begin(&x0)
	s := x.Shape()
	return c.run(op.Argmax, dtype.I32, s.Without(s.Rank()-1))
}
