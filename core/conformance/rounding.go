package conformance

import (
	"fmt"
	"math"

	"github.com/fucina-go/fucina/core/conformance/reference"
	"github.com/fucina-go/fucina/core/op"
)

// A product by weights in a block format may round activations to integers of 8 bits, unless it
// is exact. A stretch of activations has one scale, and is at most maxStretch long.
const maxStretch = 256

// slack covers arithmetic in f32, relative to the numbers that are added.
const slack = 1e-6

// least is the smallest normal f32. Smaller numbers may become 0.
const least = 0x1p-126

// stretched is the factor by which the errors of rounding may be larger, because the scales and
// the sums are rounded to f32.
const stretched = 1.01

// rounding has what rounding activations to 8 bits does to the elements of a result.
type rounding struct {
	most   []float64 // the largest error
	square []float64 // the expected square of the error; 0 where nothing is rounded, nil if unknown
}

// matrices returns the places of the matrices of a product, which are none for other operations.
func matrices(id op.ID) (first, last op.Place) {
	switch id {
	case op.MatMul:
		return 1, 1
	case op.Project:
		return 1, 3
	case op.GatedProject:
		return 1, 2
	}
	return 1, 0
}

// rounds reports whether the operation may round activations to 8 bits.
func rounds(id op.ID, a *op.Args) bool {
	if a.Exact {
		return false
	}
	first, last := matrices(id)
	for p := first; p <= last; p++ {
		if a.Has(p) && a.At(p).DType.IsBlockQuantized() {
			return true
		}
	}
	return false
}

// rounded returns an error if a product that may round activations differs from want by more than
// rounding explains. Each element is within its largest error. The mean of the squared errors of a
// column, relative to what is expected of each, is below a bound that errors which are independent
// exceed in one of 10^8 columns.
func rounded(id op.ID, a *op.Args, got, want []float64, strict bool) error {
	r := roundingOf(id, a, strict)
	for i, w := range want {
		switch d := math.Abs(got[i] - w); {
		case got[i] == w || got[i] != got[i] && w != w:
		case !(d <= r.most[i]):
			return fmt.Errorf("element %d is %.6g, want %.6g, and rounding to 8 bits explains a difference of %.3g", i, got[i], w, r.most[i])
		}
	}
	if r.square == nil {
		return nil
	}
	columns := a.Out[0].Shape.Dim(-1)
	n := independent(&a.In[0])
	limit := chiSquare(n)
	for c := range columns {
		sum, count := 0.0, 0
		for i := c; i < len(want); i += columns {
			if r.square[i] > 0 {
				d := got[i] - want[i]
				sum += d * d / r.square[i]
				count++
			}
		}
		if mean := sum / float64(count); mean > limit {
			return fmt.Errorf("the squared error of column %d is %.3g times that of rounding to 8 bits, want at most %.3g for %d rows", c, mean, limit, n)
		}
	}
	return nil
}

// independent returns the number of rows of x that are not the same memory.
func independent(x *op.Operand) int {
	n := 1
	for i := range x.Shape.Rank() - 1 {
		if x.Strides.Dim(i) != 0 {
			n *= x.Shape.Dim(i)
		}
	}
	return n
}

// chiSquare returns a number that the mean of the squares of n independent errors of variance 1
// exceeds with a probability below 1e-8. The bound is that of Laurent and Massart for normal
// errors. Those of rounding have smaller tails.
func chiSquare(n int) float64 {
	t := math.Log(1e8) / float64(n)
	return 1 + 2*math.Sqrt(t) + 2*t
}

// roundingOf returns what rounding does to the elements of a product.
func roundingOf(id op.ID, a *op.Args, strict bool) rounding {
	switch id {
	case op.Project:
		return roundingOfProject(a, strict)
	case op.GatedProject:
		return roundingOfGate(a, strict)
	}
	return roundingOfProduct(&a.In[0], &a.In[1], strict)
}

// roundingOfProduct is that of x by w. If w is in a scalar dtype, the largest errors are those that
// the tolerance of such a product allows of each element.
func roundingOfProduct(x, w *op.Operand, strict bool) (r rounding) {
	xs, ws := reference.Read(x), reference.Read(w)
	n, k := w.Shape.Dim(-2), w.Shape.Dim(-1)
	rows, batches := len(xs)/k, len(ws)/(n*k)
	tops := make([]float64, k)
	l := products(w)
	scalar := math.Sqrt(l.loose)
	if strict {
		scalar = math.Sqrt(l.fast)
	}
	for i := range rows {
		x := xs[i*k:][:k]
		for at := 0; at < k; at += maxStretch {
			end, top := min(at+maxStretch, k), 0.0
			for _, v := range x[at:end] {
				top = max(top, math.Abs(v))
			}
			for j := at; j < end; j++ {
				tops[j] = top
			}
		}
		for c := range n {
			w, sum, squares, products := ws[(i*batches/rows*n+c)*k:][:k], 0.0, 0.0, 0.0
			for j, v := range w {
				e := v * tops[j]
				sum += math.Abs(e)
				squares += e * e
				products += math.Abs(v * x[j])
			}
			most, square := products*scalar, 0.0
			if l.blocks {
				most, square = sum/254*stretched, squares/(127*127*12)*stretched+least*least
			}
			r.most = append(r.most, most+least)
			r.square = append(r.square, square)
		}
	}
	return r
}

// roundingOfProject is that of Project. Rounding passes through the scale of each matrix.
func roundingOfProject(a *op.Args, strict bool) (r rounding) {
	var parts [3]rounding
	columns := a.Out[0].Shape.Dim(-1)
	var n [3]int
	for i := range parts {
		if a.Has(op.Place(1 + i)) {
			parts[i] = roundingOfProduct(&a.In[0], &a.In[1+i], strict)
			n[i] = a.In[1+i].Shape.Dim(0)
		}
	}
	var residual []float64
	if a.Has(7) {
		residual = reference.Read(&a.In[7])
	}
	var biases [3][]float64
	for i := range biases {
		if p := op.Place(4 + i); a.Has(p) {
			biases[i] = reference.Read(a.At(p))
		}
	}
	elements := 0
	for i := range parts {
		elements += len(parts[i].most)
	}
	for row := range elements / columns {
		for i := range parts {
			scale := math.Abs(float64(a.Scales[i]))
			for c := range n[i] {
				at, more := row*n[i]+c, 0.0
				if biases[i] != nil {
					more += math.Abs(biases[i][c]) * (1 + scale)
				}
				if residual != nil {
					more += math.Abs(residual[len(r.most)])
				}
				r.most = append(r.most, parts[i].most[at]*scale+slack*more)
				square := parts[i].square[at]
				if square > 0 {
					square = square*scale*scale + slack*slack*more*more
				}
				r.square = append(r.square, square)
			}
		}
	}
	return r
}

// The largest derivatives of the activations.
const (
	steepestSiLU = 1.1
	steepestGELU = 1.13
)

// roundingOfGate is that of GatedProject. The errors of its two products come from the same rounding
// and are multiplied, so that the squares are unknown.
func roundingOfGate(a *op.Args, strict bool) (r rounding) {
	id, steepest := op.SwiGLU, steepestSiLU
	if a.Act == op.GELU {
		id, steepest = op.GeGLU, steepestGELU
	}
	part := func(i int) (values, most []float64) {
		p := reference.Args(op.Params{Scales: [3]float32{a.Scales[i], 1, 1}, BiasFirst: a.BiasFirst}, a.Out[0], a.In[0], a.In[1+i])
		if bias := op.Place(3 + i); a.Has(bias) {
			p.In[4], p.NIn = a.In[bias], 5
		}
		return reference.Result(op.Project, &p), roundingOfProject(&p, strict).most
	}
	gate, gateMost := part(0)
	up, upMost := part(1)
	for i, g := range gate {
		act := math.Abs(reference.Pointwise[id].F(1, g, &a.Params))
		u := math.Abs(up[i])
		r.most = append(r.most, act*upMost[i]+(u+upMost[i])*steepest*gateMost[i]+slack*u*act+least)
	}
	return r
}
