package coherence

import (
	"context"
	"fmt"
	"math"
	"unsafe"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/kernels/cpu"
)

// memory is a buffer of the model: its bytes in program order.
type memory struct {
	id       int
	bytes    []byte
	readOnly bool
	lent     bool
	readers  []int // background reads that have not been joined
}

// view is a tensor of the model.
type view struct {
	id      int
	mem     *memory
	dt      dtype.DType
	shape   shape.Shape
	strides shape.Shape
	off     int // in elements
	// shared says that two indices may have the same element, so that the view must not be
	// written.
	shared bool
}

func (v *view) String() string {
	return fmt.Sprintf("t%d(b%d %s %s)", v.id, v.mem.id, v.dt, v.shape)
}

func (v *view) len() int {
	n, err := v.shape.Elements()
	if err != nil {
		panic(err)
	}
	return n
}

func (v *view) contiguous() bool { return v.shape.IsContiguous(&v.strides) }

// each calls f with each element's index in row-major order and in memory.
func (v *view) each(f func(i, at int)) {
	var index [shape.MaxRank]int
	dims, strides := v.shape.Slice(), v.strides.Slice()
	for i, n := 0, v.len(); i < n; i++ {
		at := v.off
		for a, x := range index[:len(dims)] {
			at += x * strides[a]
		}
		f(i, at)
		for a := len(dims) - 1; a >= 0; a-- {
			if index[a]++; index[a] < dims[a] {
				break
			}
			index[a] = 0
		}
	}
}

// gather returns a copy of the view's elements in row-major order.
func (v *view) gather() []byte {
	size := v.dt.Size()
	out := alignedBytes(v.len() * size)
	if v.contiguous() {
		copy(out, v.mem.bytes[v.off*size:])
		return out
	}
	v.each(func(i, at int) { copy(out[i*size:][:size], v.mem.bytes[at*size:]) })
	return out
}

// scatter writes the view's elements from their copies in row-major order.
func (v *view) scatter(p []byte) {
	size := v.dt.Size()
	v.each(func(i, at int) { copy(v.mem.bytes[at*size:][:size], p[i*size:]) })
}

// broadcast returns a view of v with the shape s.
func (v *view) broadcast(s shape.Shape) *view {
	st, err := shape.BroadcastStrides(&v.shape, &v.strides, &s)
	if err != nil {
		panic(err)
	}
	w := *v
	w.shape, w.strides = s, st
	return &w
}

// alignedBytes returns n zero bytes that start on a multiple of 8.
func alignedBytes(n int) []byte {
	words := make([]uint64, max(1, (n+7)/8))
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), n)
}

// kernels computes operations on copies.
type kernels struct{ exec *cpu.Executor }

func newKernels() kernels { return kernels{cpu.NewExecutor(nil)} }

// compute returns the result of op on copies of in, with dtype d and shape s.
func (k kernels) compute(id op.ID, d dtype.DType, s shape.Shape, scale float32, in ...*view) ([]byte, error) {
	a := op.Args{NIn: len(in), Params: op.Params{Scale: scale}}
	for i, v := range in {
		a.In[i] = operand(v.dt, v.shape, v.gather())
	}
	n, err := s.Bytes(d)
	if err != nil {
		return nil, err
	}
	out := alignedBytes(n)
	a.Out[0] = operand(d, s, out)
	plan := k.exec.Plan(id, &a)
	if !plan.Supported {
		return nil, fmt.Errorf("%s: %s", id, plan.Reason)
	}
	if plan.Workspace > 0 {
		a.Workspace = op.Mem{Host: alignedBytes(plan.Workspace), Len: plan.Workspace}
	}
	return out, k.exec.Execute(context.Background(), id, &a)
}

func operand(d dtype.DType, s shape.Shape, p []byte) op.Operand {
	return op.Operand{DType: d, Shape: s, Strides: s.Contiguous(), Mem: op.Mem{Host: p, Len: len(p)}}
}

// elements views aligned bytes as elements of type T.
func elements[T any](p []byte) []T {
	var zero T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(p))), len(p)/int(unsafe.Sizeof(zero)))
}

// moderate reports whether all floats are finite and so small that the results of later
// steps are finite too. Kernels do not define the bits of NaNs.
func moderate(d dtype.DType, p []byte) bool {
	const limit = 1 << 14
	switch d {
	case dtype.F32:
		for _, x := range elements[float32](p) {
			if !(math.Abs(float64(x)) <= limit) {
				return false
			}
		}
	case dtype.F16:
		for _, x := range elements[uint16](p) {
			if x>>10&31 >= 29 { // 2^14 and more
				return false
			}
		}
	}
	return true
}
