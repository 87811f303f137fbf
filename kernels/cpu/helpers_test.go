package cpu

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/internal/team"
	"github.com/fucina-go/fucina/quant"
)

// layout says how the elements of a test operand lie in memory.
type layout int

const (
	plain     layout = iota // row-major
	padded                  // row-major, with a gap after each row and an offset
	reversed                // column-major, with a gap and an offset
	broadcast               // row-major, every row of the first axis the same memory
	spread                  // no axis with stride 1
)

var layoutNames = [...]string{"plain", "padded", "reversed", "broadcast", "spread"}

func (l layout) String() string { return layoutNames[l] }

// fill is a byte that no test writes on purpose.
const fill = 0xa5

// operand returns an operand of the given shape over memory of its own, every
// byte of which is fill. The memory ends with the last element.
func operand(d dtype.DType, l layout, dims ...int) op.Operand {
	o := op.Operand{DType: d, Shape: shape.Must(dims...)}
	st, err := o.Shape.Storage(d)
	if err != nil {
		panic(err)
	}
	strides := make([]int, len(dims))
	next := 1
	axes := make([]int, 0, len(dims))
	for i := len(dims) - 1; i >= 0; i-- {
		axes = append(axes, i)
	}
	switch l {
	case reversed:
		for i := range axes {
			axes[i] = i
		}
		o.Offset = 3
	case padded:
		o.Offset = 5
	case spread:
		next, o.Offset = 2, 1
	}
	for i, axis := range axes {
		strides[axis] = next
		next *= st.Dim(axis)
		if i == 0 && (l == padded || l == reversed || l == spread) {
			next += 3
		}
	}
	if l == broadcast {
		strides[0] = 0
	}
	if o.Strides, err = shape.OfStrides(strides...); err != nil {
		panic(err)
	}
	reach, err := st.Reach(&o.Strides)
	if err != nil {
		panic(err)
	}
	setMem(&o, 0, bytes.Repeat([]byte{fill}, (o.Offset+reach+1)*d.Size()))
	return o
}

// setMem gives o a copy of mem that starts misalign bytes after a multiple of 8.
func setMem(o *op.Operand, misalign int, mem []byte) {
	b := make([]byte, len(mem)+16)
	for !aligned(b, 8) {
		b = b[1:]
	}
	b = b[misalign:][:len(mem):len(mem)]
	copy(b, mem)
	o.Mem = op.Mem{Host: b, Len: len(b)}
}

// random fills the whole memory of o with finite values of about unit scale, or
// block data that decodes to such.
func random(o op.Operand, rng *rand.Rand) op.Operand {
	size := o.DType.Size()
	if o.DType.IsBlockQuantized() {
		values := make([]float32, o.DType.BlockSize())
		for b := o.Mem.Host; len(b) > 0; b = b[size:] {
			for again := true; again; {
				for i := range size {
					b[i] = byte(rng.Uint32())
				}
				if err := quant.DecodeRow(values, o.DType, b[:size]); err != nil {
					panic(err)
				}
				again = false
				for _, v := range values {
					again = again || !(math.Abs(float64(v)) < 100)
				}
			}
		}
		return o
	}
	values := make([]byte, len(o.Mem.Host)/size*4)
	f := floats(values)
	for i := range f {
		f[i] = rng.Float32()*2 - 1
		if !o.DType.SupportsToFloat() {
			f[i] *= 100
		}
	}
	if err := dtype.Convert(o.Mem.Host[:len(f)*size], o.DType, values, dtype.F32); err != nil {
		panic(err)
	}
	return o
}

// of returns a contiguous operand with the given values.
func of(values []float32, dims ...int) op.Operand {
	o := operand(dtype.F32, plain, dims...)
	if copy(floats(o.Mem.Host), values) != len(floats(o.Mem.Host)) {
		panic("values for another shape")
	}
	return o
}

// ofInts returns a contiguous operand of an integer format.
func ofInts(d dtype.DType, values ...int64) op.Operand {
	o := operand(d, plain, len(values))
	b := make([]byte, 8*len(values))
	for i, v := range values {
		for k := range 8 {
			b[8*i+k] = byte(v >> (8 * k))
		}
	}
	if err := dtype.Convert(o.Mem.Host, d, b, dtype.I64); err != nil {
		panic(err)
	}
	return o
}

// place returns the position in storage elements of a logical row, the axes
// before the last, by plain arithmetic on its index.
func place(o *op.Operand, row int) int {
	at := o.Offset
	for i := o.Shape.Rank() - 2; i >= 0; i-- {
		at += row % o.Shape.Dim(i) * o.Strides.Dim(i)
		row /= o.Shape.Dim(i)
	}
	return at
}

// read returns the logical values of o in row-major order.
func read(o op.Operand) []float64 {
	last := o.Shape.Dim(-1)
	n, _ := o.Shape.Elements()
	size, bs := o.DType.Size(), o.DType.BlockSize()
	out := make([]float64, 0, n)
	block := make([]float32, bs)
	var word [8]byte
	for row := range n / last {
		for i := 0; i < last; i += bs {
			src := o.Mem.Host[(place(&o, row)+i/bs*o.Strides.Dim(-1))*size:][:size]
			if o.DType.IsBlockQuantized() {
				if err := quant.DecodeRow(block, o.DType, src); err != nil {
					panic(err)
				}
				for _, v := range block {
					out = append(out, float64(v))
				}
				continue
			}
			if err := dtype.Convert(word[:], dtype.F64, src, o.DType); err != nil {
				panic(err)
			}
			out = append(out, doubles(bytes.Clone(word[:]))[0])
		}
	}
	return out
}

// nmse returns the squared error relative to the squares of what is wanted.
func nmse(got, want []float64) float64 {
	var e, s float64
	for i, w := range want {
		e += (got[i] - w) * (got[i] - w)
		s += w * w
	}
	if e == 0 {
		return 0
	}
	return e / s
}

// executors returns one for each number of threads that tests run on. The first is as
// it comes, the second has tasks as small as can be, and the others cut what they do
// into tasks and pieces as small as can be.
func executors(t testing.TB) []*Executor {
	out := make([]*Executor, 4)
	for i := range out {
		tm := team.New([...]int{1, 2, 3, 1}[i])
		t.Cleanup(tm.Close)
		out[i] = NewExecutor(tm)
		if i > 0 {
			out[i].grain = 1
		}
		if i > 1 {
			out[i].every = 1
		}
	}
	return out
}

// withWorkspace returns a with the workspace that e asks for, full of NaNs.
func withWorkspace(t testing.TB, e *Executor, id op.ID, a op.Args) op.Args {
	t.Helper()
	for i, o := range a.In {
		if !o.Mem.IsZero() {
			a.NIn = i + 1
		}
	}
	a.NOut = 1
	if r := op.Check(id, &a); !r.OK() {
		t.Fatalf("%v: %s", id, r.Text(id))
	}
	p := e.Plan(id, &a)
	if !p.Supported {
		t.Fatalf("%v: declined: %s", id, p.Reason)
	}
	var o op.Operand
	setMem(&o, 0, bytes.Repeat([]byte{0xff}, p.Workspace))
	a.Workspace = o.Mem
	return a
}

// execute runs the operation on every number of threads, checks that the outputs
// are the same bits and that nothing outside the output's elements is written, and
// returns the output.
func execute(t testing.TB, es []*Executor, id op.ID, a op.Args) []float64 {
	t.Helper()
	out := a.Out[0]
	before := bytes.Clone(out.Mem.Host)
	var first []byte
	for _, e := range es {
		setMem(&a.Out[0], 0, before)
		w := withWorkspace(t, e, id, a)
		if err := e.Execute(context.Background(), id, &w); err != nil {
			t.Fatalf("%v: %v", id, err)
		}
		if first == nil {
			first = a.Out[0].Mem.Host
		} else if !bytes.Equal(first, a.Out[0].Mem.Host) {
			t.Errorf("%v on %d lanes, with a look every %d, differs from one lane", id, e.Lanes(), e.every)
		}
	}
	rest := op.Operand{DType: out.DType, Shape: out.Shape, Strides: out.Strides, Offset: out.Offset}
	setMem(&rest, 0, first)
	eraseElements(&rest, before)
	if !bytes.Equal(rest.Mem.Host, before) {
		t.Errorf("%v wrote between the elements of its output", id)
	}
	a.Out[0].Mem.Host = first
	return read(a.Out[0])
}

// eraseElements gives the elements of o the bytes they had before, so that what differs
// from before lies between them.
func eraseElements(o *op.Operand, before []byte) {
	size, bs := o.DType.Size(), o.DType.BlockSize()
	n, _ := o.Shape.Elements()
	last := o.Shape.Dim(-1)
	for row := range n / last {
		for i := range last / bs {
			at := (place(o, row) + i*o.Strides.Dim(-1)) * size
			copy(o.Mem.Host[at:][:size], before[at:][:size])
		}
	}
}

// closeTo fails unless the normalised error is within the tolerance.
func closeTo(t testing.TB, got, want []float64, tolerance float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d values, want %d", len(got), len(want))
	}
	if e := nmse(got, want); !(e <= tolerance) {
		n := min(8, len(got))
		t.Errorf("error %.3g, want at most %.3g; got %.6g, want %.6g", e, tolerance, got[:n], want[:n])
	}
}

// equal fails unless the values are the same, NaNs included.
func equal(t testing.TB, got, want []float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d values, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] && !(math.IsNaN(got[i]) && math.IsNaN(want[i])) {
			t.Fatalf("element %d is %v, want %v", i, got[i], want[i])
		}
	}
}

func newRand() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

func name(parts ...any) string { return fmt.Sprint(parts...) }
