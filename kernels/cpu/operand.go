package cpu

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/core/shape"
)

// mismatch returns an error that wraps shape.ErrShapeMismatch.
func mismatch(format string, args ...any) error {
	return fmt.Errorf("%w: %s", shape.ErrShapeMismatch, fmt.Sprintf(format, args...))
}

// unsupported returns an error that wraps provider.ErrUnsupported.
func unsupported(format string, args ...any) error {
	return fmt.Errorf("%w: %s", provider.ErrUnsupported, fmt.Sprintf(format, args...))
}

// wantInputs checks the number of inputs.
func wantInputs(a *op.Args, n int) error {
	if a.NIn != n {
		return mismatch("%d inputs, want %d", a.NIn, n)
	}
	return nil
}

// check verifies what is said of an operand without its memory: format, shape,
// strides and offset.
func check(name string, o *op.Operand) error {
	_, err := span(name, o)
	return err
}

// span is check, and returns the number of storage elements from the operand's
// first to the last that its strides reach.
func span(name string, o *op.Operand) (int, error) {
	st, err := o.Shape.Storage(o.DType)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	for i, s := range o.Strides.Slice() {
		if s < 0 {
			return 0, fmt.Errorf("%s: %w: stride %d of axis %d", name, shape.ErrInvalidShape, s, i)
		}
	}
	reach, err := st.Reach(&o.Strides)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	if o.Offset < 0 {
		return 0, fmt.Errorf("%s: %w: offset %d", name, shape.ErrInvalidShape, o.Offset)
	}
	return shape.Add(reach, 1)
}

// checkFloat is check for an f32 operand.
func checkFloat(name string, o *op.Operand) error {
	if o.DType != dtype.F32 {
		return unsupported("%s is %v, want f32", name, o.DType)
	}
	return check(name, o)
}

// checkRows is checkFloat for an operand whose last axis is taken as a slice.
func checkRows(name string, o *op.Operand) error {
	if err := checkFloat(name, o); err != nil {
		return err
	}
	return checkInner(name, o)
}

// checkInner checks that the last axis is contiguous.
func checkInner(name string, o *op.Operand) error {
	if !innerContiguous(o) {
		return unsupported("%s has stride %d on its last axis, want 1", name, o.Strides.Dim(-1))
	}
	return nil
}

func innerContiguous(o *op.Operand) bool {
	return o.Strides.Dim(-1) == 1 || o.Shape.Dim(-1) == o.DType.BlockSize()
}

// checkOut checks that no two elements of the output share memory.
func checkOut(o *op.Operand) error {
	st, err := o.Shape.Storage(o.DType)
	if err != nil {
		return fmt.Errorf("out: %w", err)
	}
	if st.Overlaps(&o.Strides) {
		return unsupported("out %v with strides %v has elements that share memory", o.Shape, o.Strides)
	}
	return nil
}

// bind returns the memory of a checked operand, from its first to its last
// reachable element.
func bind(name string, o *op.Operand) ([]byte, error) {
	n, err := span(name, o)
	if err != nil {
		return nil, err
	}
	if o.Mem.Host == nil {
		return nil, fmt.Errorf("%s has no host memory", name)
	}
	size := o.DType.Size()
	if have := len(o.Mem.Host) / size; o.Offset > have || n > have-o.Offset {
		return nil, fmt.Errorf("%s: %v %v with strides %v and offset %d reaches outside its memory of %d bytes",
			name, o.DType, o.Shape, o.Strides, o.Offset, len(o.Mem.Host))
	}
	return o.Mem.Host[o.Offset*size:][: n*size : n*size], nil
}

// bindFloats is bind for an f32 operand that must be aligned.
func bindFloats(name string, o *op.Operand) ([]float32, error) {
	b, err := bind(name, o)
	if err != nil {
		return nil, err
	}
	if !aligned(b, 4) {
		return nil, fmt.Errorf("%s does not start on a multiple of 4 bytes", name)
	}
	return floats(b), nil
}

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

// maxWorkspace is far more than any machine has, and far from overflow.
const maxWorkspace = min(1<<50, math.MaxInt/2)

// workspace returns the first n bytes of the workspace.
func workspace(a *op.Args, n int) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	if len(a.Workspace.Host) < n {
		return nil, fmt.Errorf("workspace of %d bytes, want the %d that Plan asks for", len(a.Workspace.Host), n)
	}
	if !aligned(a.Workspace.Host, 8) {
		return nil, fmt.Errorf("workspace does not start on a multiple of 8 bytes")
	}
	return a.Workspace.Host[:n:n], nil
}

// rows finds the rows of an operand: the positions of all its axes but some
// innermost ones, which keep their own strides.
type rows struct {
	n       int // number of rows
	rank    int
	dims    [shape.MaxRank]int
	strides [shape.MaxRank]int
}

// init takes the axes of o before axis end.
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

// segment is the number of innermost elements that elementwise kernels take at
// a time.
const segment = 4096

// grid is the iteration space of an elementwise operation: the operands' common
// axes, merged where all of them allow, the innermost cut into segments.
type grid struct {
	rank    int // at least 1
	dims    [shape.MaxRank]int
	strides [3][shape.MaxRank]int
	segs    int // segments in a run of the innermost axis
	units   int // segments in all
}

// init takes the strides of up to three operands of shape dims.
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
