package reference

import (
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/shape"
)

// round rounds values to f32, as every step of a composite operation does.
func round(x []float64) []float64 {
	for i, v := range x {
		x[i] = float64(float32(v))
	}
	return x
}

// of returns rounded values as an operand.
func of(x []float64, s *shape.Shape) op.Operand {
	values := make([]float32, len(x))
	for i, v := range x {
		values[i] = float32(v)
	}
	return Of(values, s.Slice()...)
}

// added returns x plus y, repeated until it is as long as x.
func added(x, y []float64) []float64 {
	for i := range x {
		x[i] += y[i%len(y)]
	}
	return round(x)
}

func addRMSNorm(a *op.Args) outputs {
	sum := added(Read(&a.In[0]), Read(&a.In[1]))
	return outputs{sum, normed(sum, Read(&a.In[2]), a.Eps)}
}

// projected returns the product with the matrix i, scaled and with the bias at the place bias.
func projected(a *op.Args, i int, bias op.Place) []float64 {
	y := round(product(&a.In[0], &a.In[1+i], 0))
	scale := func() {
		if s := float64(a.Scales[i]); s != 1 {
			for j := range y {
				y[j] *= s
			}
			round(y)
		}
	}
	if !a.BiasFirst {
		scale()
	}
	if a.Has(bias) {
		added(y, Read(a.At(bias)))
	}
	if a.BiasFirst {
		scale()
	}
	return y
}

func project(a *op.Args) []float64 {
	var products [][]float64
	rows := 1
	for i := range 3 {
		if a.Has(op.Place(1 + i)) {
			y := projected(a, i, op.Place(4+i))
			rows = len(y) / a.In[1+i].Shape.Dim(0)
			products = append(products, y)
		}
	}
	var out []float64
	for r := range rows {
		for _, y := range products {
			n := len(y) / rows
			out = append(out, y[r*n:][:n]...)
		}
	}
	if a.Has(7) {
		added(out, Read(&a.In[7]))
	}
	return out
}

func gatedProject(a *op.Args) []float64 {
	id := op.SwiGLU
	if a.Act == op.GELU {
		id = op.GeGLU
	}
	gate, up := projected(a, 0, 3), projected(a, 1, 4)
	for i := range up {
		up[i] = Pointwise[id].F(up[i], gate[i], &a.Params)
	}
	return up
}

func setRows(a *op.Args) []float64 {
	out := Read(&a.Out[0])
	d := a.In[0].Shape.Dim(1)
	store(out, converted(&a.In[0], a.Out[0].DType), d, valid(op.SetRows, a, 1), func(p int) int { return p * d })
	return out
}

// valid returns the indices at p, with -1 for those out of range.
func valid(id op.ID, a *op.Args, p op.Place) []int {
	list := integers(a.At(p))
	out := make([]int, len(list))
	for i, v := range list {
		if out[i] = int(v); v < 0 || v >= int64(id.Limit(a, p)) {
			out[i] = -1
		}
	}
	return out
}

// store copies the rows of d elements of x to out, from at of the place on. It skips a place of
// -1.
func store(out, x []float64, d int, places []int, at func(place int) int) {
	for t, p := range places {
		if p >= 0 {
			copy(out[at(p):][:d], x[t*d:])
		}
	}
}

func rotateStore(a *op.Args) outputs {
	k, v, cache := &a.In[1], &a.In[2], &a.Out[1]
	turned := func(p, weight op.Place) []float64 {
		x, s := Read(a.At(p)), &a.At(p).Shape
		if a.Has(weight) {
			x = round(normed(x, Read(a.At(weight)), a.Eps))
		}
		return rotated(x, s, &a.In[3], a.Mode)
	}
	out := outputs{turned(0, 5), Read(cache)}
	keys := of(turned(1, 6), &k.Shape)
	places := valid(op.RotateStore, a, 4)
	g := pagesOf(a)
	store(out[1], converted(&keys, cache.DType), g.key, places, g.keyAt)
	store(out[1], converted(v, cache.DType), g.value, places, g.valueAt)
	return out
}

// pages is the geometry of the cache of RotateStore, in elements.
type pages struct{ size, rows, key, value int }

func pagesOf(a *op.Args) pages {
	k, v := &a.In[1].Shape, &a.In[2].Shape
	return pages{a.Out[1].Shape.Dim(1), a.PageRows(), k.Dim(1) * k.Dim(2), v.Dim(1) * v.Dim(2)}
}

// keyAt returns the first element of the keys at a place.
func (g pages) keyAt(p int) int { return p/g.rows*g.size + p%g.rows*g.key }

// valueAt returns the first element of the values at a place.
func (g pages) valueAt(p int) int { return p/g.rows*g.size + g.rows*g.key + p%g.rows*g.value }

// EraseWritten sets the elements of output i that the operation writes to their bytes in before,
// which is as long as mem, the output's memory. Then any difference from before is at elements
// that the operation keeps, or between the elements.
func EraseWritten(id op.ID, a *op.Args, i int, mem, before []byte) {
	out := a.Out[i]
	out.Mem = op.Mem{Host: mem, Len: len(mem)}
	switch {
	case id == op.SetRows:
		d := out.Shape.Dim(-1)
		for _, p := range valid(id, a, 1) {
			eraseRun(&out, p, p*d, d, before)
		}
	case id == op.RotateStore && i == 1:
		g := pagesOf(a)
		for _, p := range valid(id, a, 4) {
			eraseRun(&out, p, g.keyAt(p), g.key, before)
			eraseRun(&out, p, g.valueAt(p), g.value, before)
		}
	default:
		Erase(&out, before)
	}
}

// eraseRun erases the n elements of o from the element first of its logical order on, which lie
// in one row of its last axis. It does nothing if the place is -1.
func eraseRun(o *op.Operand, place, first, n int, before []byte) {
	if place < 0 {
		return
	}
	run := *o
	last, block := o.Shape.Rank()-1, o.DType.BlockSize()
	run.Offset += first % o.Shape.Dim(last) / block * o.Strides.Dim(last)
	first /= o.Shape.Dim(last)
	for axis := last - 1; axis >= 0; axis-- {
		run.Offset += first % o.Shape.Dim(axis) * o.Strides.Dim(axis)
		first /= o.Shape.Dim(axis)
		run.Shape.Set(axis, 1)
	}
	run.Shape.Set(last, n)
	Erase(&run, before)
}
