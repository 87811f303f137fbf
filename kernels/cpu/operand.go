package cpu

import (
	"fmt"
	"unsafe"

	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/shape"
)

// checkMem checks that the operand's elements lie inside its host memory.
func checkMem(id op.ID, a *op.Args, p op.Place) error {
	o := a.At(p)
	switch {
	case o.Mem.Host == nil:
		return fmt.Errorf("the %s has no host memory", id.Role(p))
	case len(o.Mem.Host) < o.Mem.Len || !o.Fits():
		return fmt.Errorf("the %s, %v %v with strides %v and offset %d, reaches outside its memory of %d bytes",
			id.Role(p), o.DType, o.Shape, o.Strides, o.Offset, min(o.Mem.Len, len(o.Mem.Host)))
	}
	return nil
}

// checkAligned checks that an f32 operand, which fits its memory, can be viewed as
// []float32.
func checkAligned(id op.ID, a *op.Args, p op.Place) error {
	if !aligned(bytesOf(a.At(p)), 4) {
		return fmt.Errorf("the %s does not start on a multiple of 4 bytes", id.Role(p))
	}
	return nil
}

// bytesOf returns the memory from the operand's first element on.
func bytesOf(o *op.Operand) []byte {
	return o.Mem.Host[o.Offset*o.DType.Size() : o.Mem.Len : o.Mem.Len]
}

// floatsOf is bytesOf for an operand that checkAligned accepts.
func floatsOf(o *op.Operand) []float32 { return floats(bytesOf(o)) }

// aligned reports whether b starts on a multiple of n bytes.
func aligned(b []byte, n uintptr) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))%n == 0
}

// floats views b, which must be aligned, as f32.
func floats(b []byte) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

// doubles views b, which must be aligned, as f64.
func doubles(b []byte) []float64 {
	return unsafe.Slice((*float64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/8)
}

// rows computes the offsets of an operand's rows. A row is a position along the outer axes;
// the kernels handle the inner axes themselves.
type rows struct {
	n       int // number of rows
	rank    int
	dims    [shape.MaxRank]int
	strides [shape.MaxRank]int
}

// init sets the rows to the axes of o before axis end.
func (r *rows) init(o *op.Operand, end int) {
	r.n, r.rank = 1, 0
	for i := range end {
		d, s := o.Shape.Dim(i), o.Strides.Dim(i)
		r.n *= d
		switch {
		case d == 1:
		case r.rank > 0 && r.strides[r.rank-1] == d*s:
			r.dims[r.rank-1] *= d
			r.strides[r.rank-1] = s
		default:
			r.dims[r.rank], r.strides[r.rank] = d, s
			r.rank++
		}
	}
}

// at returns the offset of row i in storage elements.
func (r *rows) at(i int) int {
	if r.rank == 1 {
		return i * r.strides[0]
	}
	off := 0
	for d := r.rank - 1; d >= 0; d-- {
		q := i / r.dims[d]
		off += (i - q*r.dims[d]) * r.strides[d]
		i = q
	}
	return off
}

// run returns the number of rows from row i on that lie the same stride apart, and the stride.
func (r *rows) run(i int) (n, stride int) {
	if r.rank == 0 {
		return 1, 0
	}
	last := r.rank - 1
	return r.dims[last] - i%r.dims[last], r.strides[last]
}

// segment is the number of innermost elements in a unit of an elementwise kernel.
const segment = 4096

// grid is the iteration space of an elementwise operation: the operands' common axes. Axes
// are merged if the strides of all operands allow it, and the innermost axis is divided
// into segments.
type grid struct {
	rank    int // at least 1
	dims    [shape.MaxRank]int
	strides [3][shape.MaxRank]int
	segs    int // segments in a run of the innermost axis
	units   int // segments in all
}

// init sets the grid to the strides of up to three operands of shape dims.
func (g *grid) init(dims *shape.Shape, strides ...*shape.Shape) {
	g.rank, g.units = 0, 1
	for i, d := range dims.Slice() {
		if d == 1 {
			continue
		}
		merge := g.rank > 0
		for k, s := range strides {
			merge = merge && g.strides[k][g.rank-1] == d*s.Dim(i)
		}
		if merge {
			g.dims[g.rank-1] *= d
		} else {
			g.dims[g.rank] = d
			g.rank++
		}
		for k, s := range strides {
			g.strides[k][g.rank-1] = s.Dim(i)
		}
	}
	if g.rank == 0 {
		g.rank, g.dims[0] = 1, 1
		for k := range strides {
			g.strides[k][0] = 1
		}
	}
	for _, d := range g.dims[:g.rank-1] {
		g.units *= d
	}
	g.segs = (g.dims[g.rank-1] + segment - 1) / segment
	g.units *= g.segs
}

// inner returns operand k's stride along the innermost axis.
func (g *grid) inner(k int) int { return g.strides[k][g.rank-1] }

// at returns the first element of each operand in unit u, and the unit's length.
func (g *grid) at(u int) (off [3]int, n int) {
	row, seg := u/g.segs, u%g.segs
	last := g.rank - 1
	n = min(segment, g.dims[last]-seg*segment)
	for k := range off {
		off[k] = seg * segment * g.strides[k][last]
	}
	for d := last - 1; d >= 0; d-- {
		q := row / g.dims[d]
		i := row - q*g.dims[d]
		for k := range off {
			off[k] += i * g.strides[k][d]
		}
		row = q
	}
	return off, n
}
