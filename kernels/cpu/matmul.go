package cpu

import "github.com/fucina-go/fucina/core/op"

// matMul is the kernel of op.MatMul.
type matMul struct {
	product
	w matrix
}

// matMulLane returns the workspace of a lane in bytes: a tile.
func matMulLane(a *op.Args) float64 { return tileBytes(&a.In[1]) }

func (k *matMul) prepare(a *op.Args, s *scratch) error {
	if err := k.w.init(&a.In[1], a.Chunks); err != nil {
		return err
	}
	k.init(a, k.w.batches, k.w.tiles(), s)
	return nil
}

func (k *matMul) release() {
	k.product.release()
	k.w.release()
}

func (k *matMul) cost() (units, cost int) { return k.units(), k.w.cost(k.stretch) }

func (k *matMul) run(lo, hi int, s *scratch) {
	for u := lo; u < hi && s.err == nil; u++ {
		b, t, first, end := k.unit(u)
		var w tileRows
		k.w.load(&w, b, t*tile, s.workspace, s)
		for i := first; i < end && s.err == nil; i++ {
			sums := w.dot(k.row(i), s)
			copy(k.out[k.or.at(i)+t*tile:], sums[:w.n])
		}
	}
}
