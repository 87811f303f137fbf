package main

import (
	. "github.com/fucina-go/fucina/kernels/cpu/_asm/gen"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// lockstep is the number of rows that are multiplied by one row of x at the same time. The sums of
// one row are a single chain, whose latency is longer than the time for its loads. But memory is
// fastest if few rows are read at the same time.
const lockstep = 2

// rowLoop has the registers of the loop over the elements of lockstep rows of weights, which begin at w
// and are stride bytes apart, and of a row x. p and x move.
type rowLoop struct {
	f                       format
	w, stride, p, x         reg.GPVirtual
	x0, steps0              reg.Register
	steps, behind, prefetch reg.GPVirtual
}

// run multiplies 16 elements by each call of step. They are 0 or more.
//
// It prefetches elements that are some KB ahead in the same rows. At the end of the rows, which are
// the elements behind the last ones that are prefetched in this way, it prefetches the beginning of
// the rows that follow. Into the first cache, this does not slow down rows that the second cache
// holds. Into the second one, rows of 16-bit weights come from memory up to a tenth faster.
func (l *rowLoop) run(name string, step func()) {
	distance, fetch := 8192, PREFETCHT1
	if l.f.size == 4 {
		distance, fetch = 4096, PREFETCHT0
	}
	bytes := 16 * l.f.size
	MOVQ(l.w, l.p)
	MOVQ(l.x0, l.x)
	LEAQ(At(l.w, distance), l.prefetch)
	MOVQ(I32(int32(distance/bytes)), l.behind)
	MOVQ(l.steps0, l.steps)
	SUBQ(l.behind, l.steps)
	JG(LabelRef(name + "Step"))
	MOVQ(l.steps0, l.behind)
	Label(name + "Behind")
	MOVQ(l.behind, l.steps)
	XORQ(l.behind, l.behind)
	LEAQ(Mem{Base: l.w, Index: l.stride, Scale: lockstep}, l.prefetch)
	TESTQ(l.steps, l.steps)
	JZ(LabelRef(name + "Tail"))
	Label(name + "Step")
	step()
	fetch(Mem{Base: l.prefetch})
	fetch(Mem{Base: l.prefetch, Index: l.stride, Scale: 1})
	ADDQ(I32(int32(bytes)), l.prefetch)
	ADDQ(I32(int32(bytes)), l.p)
	ADDQ(I32(64), l.x)
	DECQ(l.steps)
	JNZ(LabelRef(name + "Step"))
	TESTQ(l.behind, l.behind)
	JNZ(LabelRef(name + "Behind"))
	Label(name + "Tail")
}
