package conformance

import (
	"math"
	"math/rand/v2"

	"github.com/fucina-go/fucina/core/conformance/reference"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
)

// groups has the function that runs the cases of each group of operations.
var groups = []func(s *suite){
	pointwise, pointwiseSpecial, rmsNorm, addRMSNorm, softmax, softmaxSpecial, argmax, rope, getRows, setRows, indices,
	copyScalars, copyBlocks, copySpecial, matMul, matMulRanks, matMulRange, matMulRounded, matMulChunks, project, gatedProject,
	attention, attentionQuantized, attentionSpecial, attentionPaged, rotateStore, rowsAlone, tokensAlone,
}

// The layouts that roles accept.
var (
	freeLayouts = []reference.Layout{reference.Plain, reference.Padded, reference.Reversed, reference.Broadcast, reference.Spread}
	rowLayouts  = []reference.Layout{reference.Plain, reference.Padded, reference.Broadcast}
	outLayouts  = []reference.Layout{reference.Plain, reference.Padded, reference.Spread}
	rowOut      = []reference.Layout{reference.Plain, reference.Padded}
)

var (
	inf = float32(math.Inf(1))
	nan = float32(math.NaN())
)

// f32 returns a random operand.
func f32(rng *rand.Rand, l reference.Layout, dims ...int) op.Operand {
	return reference.Random(reference.New(dtype.F32, l, dims...), rng)
}

// empty returns an operand to be written.
func empty(l reference.Layout, dims ...int) op.Operand { return reference.New(dtype.F32, l, dims...) }

// noRow reports whether all elements of a vector are the same memory in the layout. A role
// that needs rows refuses it.
func noRow(l reference.Layout, dims []int) bool {
	return l == reference.Broadcast && len(dims) == 1 && dims[0] > 1
}
