package cpu

import (
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/kernels/cpu/vector"
)

// rope is the kernel of op.RoPE.
type rope struct {
	rotation rotation
	heads    int
	xr, or   rows // a row is a head of a token
	x, out   []float32
}

func (k *rope) prepare(a *op.Args, s *scratch) error {
	x, out := &a.In[0], &a.Out[0]
	k.rotation.init(&a.In[1], x.Shape.Dim(2), a.Mode, loopsOf(a, s))
	k.heads = x.Shape.Dim(1)
	k.xr.init(x, 2)
	k.or.init(out, 2)
	k.x, k.out = floatsOf(x), floatsOf(out)
	return nil
}

func (k *rope) release() { *k = rope{} }

func (k *rope) cost() (units, cost int) { return k.xr.n, unitCost + turnCost*k.rotation.d }

func (k *rope) run(lo, hi int, s *scratch) {
	d := k.rotation.d
	for r := lo; r < hi && s.err == nil; r++ {
		k.rotation.row(k.out[k.or.at(r):][:d], k.x[k.xr.at(r):][:d], r/k.heads, s)
	}
}

// rotation is the RoPE of heads of d elements.
type rotation struct {
	d, dims int // dims is the number of elements that are rotated
	neox    bool
	table   []float32
	loops   *vector.Loops // nil if the operation is exact
}

// turnCost is the cost of an element of a rotated head.
const turnCost = 2

// init sets the rotation to the angles of a table. The loops are nil if the operation is exact.
func (k *rotation) init(table *op.Operand, d int, mode op.RoPEMode, loops *vector.Loops) {
	*k = rotation{d: d, dims: 2 * table.Shape.Dim(1), neox: mode == op.RoPENeoX, table: floatsOf(table), loops: loops}
}

// row sets out to the rotated head x of token t. They may be the same memory. The result is
// valid if s.err is nil.
func (k *rotation) row(out, x []float32, t int, s *scratch) {
	half := k.dims / 2
	table := k.table[t*k.dims:][:k.dims]
	p := s.pieces(half, 2*turnCost)
	for p.next() {
		n := p.hi - p.lo
		table := table[2*p.lo:][:2*n]
		switch {
		case k.neox && k.loops != nil:
			k.loops.TurnNeoX(out[p.lo:][:n], out[half+p.lo:][:n], x[p.lo:][:n], x[half+p.lo:][:n], table)
		case k.neox:
			turnNeoX(out[p.lo:][:n], out[half+p.lo:][:n], x[p.lo:][:n], x[half+p.lo:][:n], table)
		case k.loops != nil:
			k.loops.Turn(out[2*p.lo:][:2*n], x[2*p.lo:][:2*n], table)
		default:
			turn(out[2*p.lo:][:2*n], x[2*p.lo:][:2*n], table)
		}
	}
	if k.dims == k.d || s.err != nil {
		return
	}
	p = s.pieces(k.d-k.dims, 1)
	for p.next() {
		copy(out[k.dims+p.lo:k.dims+p.hi], x[k.dims+p.lo:])
	}
}

// turn rotates pairs of neighbours. table has the cosine and the sine of each angle.
func turn(out, x, table []float32) {
	out, table = out[:len(x)], table[:len(x)]
	for i := 0; i+1 < len(x); i += 2 {
		cos, sin := table[i], table[i+1]
		a, b := x[i], x[i+1]
		out[i] = a*cos - b*sin
		out[i+1] = a*sin + b*cos
	}
}

// turnNeoX is turn for pairs of an element of x0 and one of x1.
func turnNeoX(o0, o1, x0, x1, table []float32) {
	for i := range x0 {
		cos, sin := table[2*i], table[2*i+1]
		a, b := x0[i], x1[i]
		o0[i] = a*cos - b*sin
		o1[i] = a*sin + b*cos
	}
}
