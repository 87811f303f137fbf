package cpu

import (
	"encoding/binary"
	"math"

	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/kernels/cpu/vector"
)

// term is a matrix of op.Project or op.GatedProject with the steps that follow its product.
type term struct {
	matrix
	column    int // of the output, where the columns of the matrix begin
	scale     float32
	bias      []byte // from the first element on, or nil
	stride    int    // of the bias
	biasFirst bool
}

// init sets the term to matrix i, which is In[1+i], and its bias, which is input bias+i if it
// is present.
func (t *term) init(a *op.Args, i int, bias op.Place) error {
	t.scale, t.biasFirst = a.Scales[i], a.BiasFirst
	if p := bias + op.Place(i); a.Has(p) {
		b := a.At(p)
		t.bias, t.stride = bytesOf(b), b.Strides.Dim(0)
	}
	return t.matrix.init(&a.In[1+i], a.Chunks)
}

func (t *term) release() {
	t.bias = nil
	t.matrix.release()
}

// termTile is a tile of a term.
type termTile struct {
	tileRows
	term *term
	bias [tile]float32 // meaningful if the term has a bias
}

// load sets t to the tile of k from row n on; see matrix.load.
func (t *termTile) load(k *term, n int, buf []byte, s *scratch) {
	k.matrix.load(&t.tileRows, 0, n, buf, s)
	if t.term = k; k.bias != nil {
		for i := range t.n {
			t.bias[i] = math.Float32frombits(binary.LittleEndian.Uint32(k.bias[4*(n+i)*k.stride:]))
		}
	}
}

// stepsCost is the cost of a row of a tile in the steps after the dot products.
const stepsCost = 4 * tile

// columns returns the columns of the tile for a row of x. Each step is rounded as the operation
// that it stands for. The conversion to float32 keeps the compiler from fusing the scale with
// the sum that follows.
func (t *termTile) columns(x []float32, s *scratch) [tile]float32 {
	y := t.dot(x, s)
	scale, biased, first := t.term.scale, t.term.bias != nil, t.term.biasFirst
	for i, b := range t.bias {
		if biased && first {
			y[i] += b
		}
		if scale != 1 {
			y[i] = float32(y[i] * scale)
		}
		if biased && !first {
			y[i] += b
		}
	}
	return y
}

// project is the kernel of op.Project. Its tiles are those of the first matrix, then those of
// the second, then those of the third.
type project struct {
	product
	terms    [3]term
	n        int  // number of terms
	rr       rows // of the residual
	residual []float32
}

// projectLane returns the workspace of a lane in bytes: a tile of any of the matrices.
func projectLane(a *op.Args) (bytes float64) {
	for p := op.Place(1); p <= 3; p++ {
		if a.Has(p) {
			bytes = max(bytes, tileBytes(a.At(p)))
		}
	}
	return bytes
}

func (k *project) prepare(a *op.Args, s *scratch) error {
	tiles, column := 0, 0
	k.n = 0
	for i := range k.terms {
		if !a.Has(op.Place(1 + i)) {
			continue
		}
		t := &k.terms[k.n]
		if err := t.init(a, i, 4); err != nil {
			return err
		}
		t.column = column
		column += t.matrix.n
		tiles += t.tiles()
		k.n++
	}
	if a.Has(7) {
		r := &a.In[7]
		k.rr.init(r, r.Shape.Rank()-1)
		k.residual = floatsOf(r)
	}
	k.init(a, 1, tiles, s)
	return nil
}

func (k *project) release() {
	k.product.release()
	for i := range k.terms {
		k.terms[i].release()
	}
	k.residual = nil
}

func (k *project) cost() (units, cost int) {
	for i := range k.terms[:k.n] {
		cost = max(cost, k.terms[i].cost(k.stretch))
	}
	return k.units(), cost + stepsCost*k.stretch
}

func (k *project) run(lo, hi int, s *scratch) {
	for u := lo; u < hi && s.err == nil; u++ {
		_, t, first, end := k.unit(u)
		f := 0
		for ; t >= k.terms[f].tiles(); f++ {
			t -= k.terms[f].tiles()
		}
		var w termTile
		w.load(&k.terms[f], t*tile, s.workspace, s)
		column := k.terms[f].column + t*tile
		for i := first; i < end && s.err == nil && s.spend(stepsCost); i++ {
			y := w.columns(k.row(i), s)
			if k.residual != nil {
				for j, r := range k.residual[k.rr.at(i)+column:][:w.n] {
					y[j] += r
				}
			}
			copy(k.out[k.or.at(i)+column:], y[:w.n])
		}
	}
}

// gatedProject is the kernel of op.GatedProject. A unit has a tile of each of the matrices.
type gatedProject struct {
	product
	gate, up   term
	activation op.ID // the operation that has the activation
	loops      *vector.Loops
	upAt       int // where the tile of up begins in a lane's workspace
}

// gatedProjectLane returns the workspace of a lane in bytes: a tile of each matrix.
func gatedProjectLane(a *op.Args) float64 { return tileBytes(&a.In[1]) + tileBytes(&a.In[2]) }

func (k *gatedProject) prepare(a *op.Args, s *scratch) error {
	k.loops = loopsOf(a, s)
	if k.activation = op.SwiGLU; a.Act == op.GELU {
		k.activation = op.GeGLU
	}
	if err := k.gate.init(a, 0, 3); err != nil {
		return err
	}
	if err := k.up.init(a, 1, 3); err != nil {
		return err
	}
	k.upAt = int(tileBytes(&a.In[1]))
	k.init(a, 1, k.gate.tiles(), s)
	return nil
}

func (k *gatedProject) release() {
	k.product.release()
	k.gate.release()
	k.up.release()
	k.loops = nil
}

// activationCost is the cost of a row of a tile in the steps after the dot products.
const activationCost = 2*stepsCost + tile*expCost

func (k *gatedProject) cost() (units, cost int) {
	return k.units(), k.gate.cost(k.stretch) + k.up.cost(k.stretch) + activationCost*k.stretch
}

func (k *gatedProject) run(lo, hi int, s *scratch) {
	activate := pointwise[k.activation].loop
	for u := lo; u < hi && s.err == nil; u++ {
		_, t, first, end := k.unit(u)
		n := t * tile
		var gate, up termTile
		gate.load(&k.gate, n, s.workspace, s)
		up.load(&k.up, n, s.workspace[k.upAt:], s)
		// The operands of the activation are in the lane's buffers, because arguments of a
		// function value escape to the heap.
		g, y := s.second[:gate.n], s.floats[:gate.n]
		for i := first; i < end && s.err == nil && s.spend(activationCost); i++ {
			x := k.row(i)
			columns := gate.columns(x, s)
			copy(g, columns[:])
			columns = up.columns(x, s)
			copy(y, columns[:])
			if out := k.out[k.or.at(i)+n:][:gate.n]; k.loops != nil {
				pointwise[k.activation].fast(k.loops, out, y, g, nil)
			} else {
				activate(out, y, g, nil)
			}
		}
	}
}
