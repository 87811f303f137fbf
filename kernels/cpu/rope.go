package cpu

import "github.com/fucina-go/fucina/core/op"

// rope is the kernel of op.RoPE.
type rope struct {
	heads, d, dims int
	neox           bool
	xr, or         rows // a row is a head of a token
	x, out, table  []float32
}

func (k *rope) prepare(a *op.Args, _ *scratch) error {
	x, table, out := &a.In[0], &a.In[1], &a.Out[0]
	k.heads, k.d, k.dims = x.Shape.Dim(1), x.Shape.Dim(2), 2*table.Shape.Dim(1)
	k.neox = a.Mode == op.RoPENeoX
	k.xr.init(x, 2)
	k.or.init(out, 2)
	k.x, k.table, k.out = floatsOf(x), floatsOf(table), floatsOf(out)
	return nil
}

func (k *rope) release() { k.x, k.table, k.out = nil, nil, nil }

func (k *rope) cost() (units, cost int) { return k.xr.n, unitCost + 2*k.d }

func (k *rope) run(lo, hi int, s *scratch) {
	half := k.dims / 2
	for r := lo; r < hi && s.err == nil; r++ {
		x := k.x[k.xr.at(r):][:k.d]
		out := k.out[k.or.at(r):][:k.d]
		table := k.table[r/k.heads*k.dims:][:k.dims]
		p := s.pieces(half, 4)
		for p.next() {
			n := p.hi - p.lo
			table := table[2*p.lo:][:2*n]
			if k.neox {
				turnNeoX(out[p.lo:][:n], out[half+p.lo:][:n], x[p.lo:][:n], x[half+p.lo:][:n], table)
			} else {
				turn(out[2*p.lo:][:2*n], x[2*p.lo:][:2*n], table)
			}
		}
		if k.dims == k.d {
			continue
		}
		p = s.pieces(k.d-k.dims, 1)
		for p.next() {
			copy(out[k.dims+p.lo:k.dims+p.hi], x[k.dims+p.lo:])
		}
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
