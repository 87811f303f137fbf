package reference

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"unsafe"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/quant"
)

// Layout is the arrangement of an operand's elements in memory.
type Layout uint8

const (
	// Plain is row-major without gaps.
	Plain Layout = iota
	// Padded is row-major, with a gap after each row and an offset.
	Padded
	// Reversed is column-major, with a gap after each column and an offset.
	Reversed
	// Broadcast is row-major, with every row of the first axis the same memory.
	Broadcast
	// Spread is row-major with an offset, and no axis has stride 1.
	Spread
)

var layoutNames = [...]string{"plain", "padded", "reversed", "broadcast", "spread"}

// String returns the layout's name.
func (l Layout) String() string { return layoutNames[l] }

// Fill is the value of every byte of new memory.
const Fill = 0xa5

// alignment of an operand's memory, in bytes.
const alignment = 64

// Aligned returns n bytes of the value Fill that start on a multiple of 64.
func Aligned(n int) []byte {
	p := bytes.Repeat([]byte{Fill}, n+alignment-1)
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(p))) & (alignment - 1))
	return p[skip:][:n:n]
}

// New returns an operand of the given shape over new memory. The bytes are Fill, and the
// memory ends with the last element. New panics if the shape is not valid for the dtype.
func New(d dtype.DType, l Layout, dims ...int) op.Operand {
	o := op.Operand{DType: d, Shape: shape.Must(dims...)}
	st, err := o.Shape.Storage(d)
	if err != nil {
		panic("reference: " + err.Error())
	}
	axes := make([]int, len(dims)) // in the order of memory, innermost first
	for i := range axes {
		axes[i] = len(dims) - 1 - i
		if l == Reversed {
			axes[i] = i
		}
	}
	next := 1
	switch l {
	case Reversed:
		o.Offset = 3
	case Padded:
		o.Offset = 5
	case Spread:
		next, o.Offset = 2, 1
	}
	o.Strides = st
	for i, axis := range axes {
		o.Strides.Set(axis, next)
		next *= st.Dim(axis)
		if i == 0 && o.Offset > 0 {
			next += 3
		}
	}
	if l == Broadcast {
		o.Strides.Set(0, 0)
	}
	reach, err := st.Reach(&o.Strides)
	if err != nil {
		panic("reference: " + err.Error())
	}
	p := Aligned((o.Offset + reach + 1) * d.Size())
	o.Mem = op.Mem{Host: p, Len: len(p)}
	return o
}

// Of returns a contiguous f32 operand with the given values.
func Of(values []float32, dims ...int) op.Operand {
	o := New(dtype.F32, Plain, dims...)
	if 4*len(values) != o.Mem.Len {
		panic(fmt.Sprintf("reference: %d values of shape %s", len(values), o.Shape))
	}
	for i, v := range values {
		binary.LittleEndian.PutUint32(o.Mem.Host[4*i:], math.Float32bits(v))
	}
	return o
}

// View returns a view of o's memory. The offset, which is added to o's, and the strides count
// storage elements.
func View(o op.Operand, offset int, dims, strides []int) op.Operand {
	o.Offset += offset
	o.Shape = shape.Must(dims...)
	var err error
	o.Strides, err = shape.OfStrides(strides...)
	must(err)
	return o
}

// Ints returns a contiguous vector of an integer dtype.
func Ints(d dtype.DType, values ...int64) op.Operand {
	o := New(d, Plain, len(values))
	b := make([]byte, 0, 8*len(values))
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	must(dtype.Convert(o.Mem.Host, d, b, dtype.I64))
	return o
}

func must(err error) {
	if err != nil {
		panic("reference: " + err.Error())
	}
}

// Random fills the whole memory of o, including gaps, with finite numbers of about unit
// scale, with integers up to 100, or with blocks of random bytes that decode to numbers
// below 100. It returns o.
func Random(o op.Operand, rng *rand.Rand) op.Operand {
	size := o.DType.Size()
	if o.DType.IsBlockQuantized() {
		values := make([]float32, o.DType.BlockSize())
		for b := o.Mem.Host; len(b) > 0; b = b[size:] {
			for again := true; again; {
				for i := range size {
					b[i] = byte(rng.Uint32())
				}
				must(quant.DecodeRow(values, o.DType, b[:size]))
				again = false
				for _, v := range values {
					again = again || !(math.Abs(float64(v)) < 100)
				}
			}
		}
		return o
	}
	scale := float32(1)
	if !o.DType.SupportsToFloat() {
		scale = 100
	}
	values := make([]byte, 0, o.Mem.Len/size*4)
	for range o.Mem.Len / size {
		v := (rng.Float32()*2 - 1) * scale
		values = binary.LittleEndian.AppendUint32(values, math.Float32bits(v))
	}
	must(dtype.Convert(o.Mem.Host, o.DType, values, dtype.F32))
	return o
}

// Encoded fills the whole memory of o with encoded numbers of [-1, 1). The format of o is a
// block format that needs no importance vector. Encoded returns o.
func Encoded(o op.Operand, rng *rand.Rand) op.Operand {
	values := make([]float32, o.Mem.Len/o.DType.Size()*o.DType.BlockSize())
	for i := range values {
		values[i] = rng.Float32()*2 - 1
	}
	must(quant.EncodeRow(o.Mem.Host, o.DType, values))
	return o
}

// Args returns the arguments of an operation with one output.
func Args(p op.Params, out op.Operand, in ...op.Operand) op.Args {
	a := op.Args{Params: p, NIn: len(in), NOut: 1}
	copy(a.In[:], in)
	a.Out[0] = out
	return a
}

// Args2 is Args for an operation with two outputs.
func Args2(p op.Params, first, second op.Operand, in ...op.Operand) op.Args {
	a := Args(p, first, in...)
	a.Out[1], a.NOut = second, 2
	return a
}

// elements calls f with the byte offset of each storage element of o, in logical order.
func elements(o *op.Operand, f func(at int)) {
	st, err := o.Shape.Storage(o.DType)
	must(err)
	n, err := st.Elements()
	must(err)
	for i := range n {
		at := o.Offset
		for axis := st.Rank() - 1; axis >= 0; axis-- {
			at += i % st.Dim(axis) * o.Strides.Dim(axis)
			i /= st.Dim(axis)
		}
		f(at * o.DType.Size())
	}
}

// Read returns the values of o in logical order.
func Read(o *op.Operand) []float64 {
	n, err := o.Shape.Elements()
	must(err)
	out := make([]float64, 0, n)
	size := o.DType.Size()
	block := make([]float32, o.DType.BlockSize())
	var word [8]byte
	elements(o, func(at int) {
		src := o.Mem.Host[at:][:size]
		if o.DType == dtype.F32 { // the usual case, faster than decode
			out = append(out, float64(math.Float32frombits(binary.LittleEndian.Uint32(src))))
			return
		}
		if !o.DType.IsBlockQuantized() {
			must(dtype.Convert(word[:], dtype.F64, src, o.DType))
			out = append(out, math.Float64frombits(binary.LittleEndian.Uint64(word[:])))
			return
		}
		must(quant.DecodeRow(block, o.DType, src))
		for _, v := range block {
			out = append(out, float64(v))
		}
	})
	return out
}

// Erase sets the elements of o to their bytes in before, which is as long as o's memory.
// Then any difference from before lies between the elements.
func Erase(o *op.Operand, before []byte) {
	size := o.DType.Size()
	elements(o, func(at int) { copy(o.Mem.Host[at:][:size], before[at:]) })
}

// Compare returns an error if got differs from want. If the tolerance is 0, all elements must
// be equal, zeros with their signs. Otherwise the elements that are not finite must be equal,
// the squared error must be at most tolerance times the sum of squares, and no element may
// have a much larger share of it than others. All NaNs are equal.
func Compare(got, want []float64, tolerance float64) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d values, want %d", len(got), len(want))
	}
	var e, s float64
	for i, w := range want {
		g := got[i]
		if g == w && (tolerance != 0 || math.Signbit(g) == math.Signbit(w)) || g != g && w != w {
			s += finite(w) * finite(w)
			continue
		}
		if tolerance == 0 || math.IsNaN(w-w) || math.IsNaN(g-g) {
			return fmt.Errorf("element %d is %v, want %v", i, g, w)
		}
		e += (g - w) * (g - w)
		s += w * w
	}
	if e > tolerance*s {
		n := min(6, len(want))
		return fmt.Errorf("error %.3g, want at most %.3g; the values begin with %.6g, want %.6g", e/s, tolerance, got[:n], want[:n])
	}
	return compareEach(got, want, tolerance*spread, s/float64(len(want)))
}

// spread is the largest factor by which the squared error of one element may exceed the mean
// of all. If errors are random, none of a million elements exceeds it; an element that is
// wrong does, and changes the mean of many only a little.
const spread = 64

// compareEach returns an error if the squared error of an element is larger than tolerance
// times mean, the mean square of want, and than tolerance times its own square.
func compareEach(got, want []float64, tolerance, mean float64) error {
	for i, w := range want {
		if d := got[i] - w; d*d > tolerance*max(mean, w*w) { // false for elements that are not finite
			return fmt.Errorf("element %d is %.6g, want %.6g: too far even where the mean error is small", i, got[i], w)
		}
	}
	return nil
}

// finite returns x, or 0 if it is not finite.
func finite(x float64) float64 {
	if math.IsNaN(x - x) {
		return 0
	}
	return x
}
