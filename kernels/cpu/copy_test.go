package cpu

import (
	"bytes"
	"context"
	"math"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/internal/invariants"
	"github.com/fucina-go/fucina/internal/offheap"
	"github.com/fucina-go/fucina/quant"
)

// Every pair of scalar formats, on every layout, gives the bits of the element
// conversion of package dtype.
func TestCopyScalars(t *testing.T) {
	es, rng := executors(t), newRand()
	var scalars []dtype.DType
	for _, d := range dtype.All() {
		if d.IsScalar() {
			scalars = append(scalars, d)
		}
	}
	for _, from := range scalars {
		for _, to := range scalars {
			for _, lx := range []layout{plain, reversed, broadcast} {
				for _, lo := range []layout{plain, spread} {
					dims := []int{2, 3, 91}
					a := op.Args{Out: [op.MaxOut]op.Operand{operand(to, lo, dims...)}}
					a.In[0] = random(operand(from, lx, dims...), rng)
					want := make([]float64, 0, 6*91)
					for row := range 6 {
						for i := range 91 {
							src := a.In[0].Mem.Host[(place(&a.In[0], row)+i*a.In[0].Strides.Dim(2))*from.Size():][:from.Size()]
							elem := operand(to, plain, 1)
							if err := dtype.Convert(elem.Mem.Host, to, src, from); err != nil {
								t.Fatal(err)
							}
							want = append(want, read(elem)...)
						}
					}
					t.Run(name(from, " ", to, lx, lo), func(t *testing.T) {
						equal(t, execute(t, es, op.Copy, a), want)
					})
				}
			}
		}
	}
}

func TestCopyShapes(t *testing.T) {
	es, rng := executors(t), newRand()
	for _, dims := range [][]int{{1}, {1, 1}, {5}, {9001}, {2, 1, 5000}, {7, 1, 3}, {2, 2, 2, 2, 2, 2, 2, 3}} {
		for _, to := range []dtype.DType{dtype.F32, dtype.F16} {
			a := op.Args{Out: [op.MaxOut]op.Operand{operand(to, padded, dims...)}}
			a.In[0] = random(operand(dtype.F16, reversed, dims...), rng)
			equal(t, execute(t, es, op.Copy, a), read(a.In[0]))
		}
	}
}

func TestCopyBlocks(t *testing.T) {
	es, rng := executors(t), newRand()
	for _, d := range dtype.All() {
		if !d.IsBlockQuantized() {
			continue
		}
		n := 3 * d.BlockSize()
		for _, lx := range []layout{plain, padded, broadcast, reversed, spread} {
			for _, lo := range []layout{plain, padded, reversed} {
				a := op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.F32, lo, 4, n)}}
				a.In[0] = random(operand(d, lx, 4, n), rng)
				equal(t, execute(t, es, op.Copy, a), read(a.In[0]))
			}
		}
		a := op.Args{Out: [op.MaxOut]op.Operand{operand(d, plain, 4, n)}}
		a.In[0] = random(operand(d, plain, 4, n), rng)
		equal(t, execute(t, es, op.Copy, a), read(a.In[0]))

	}
}

// What has no integer value gets the one the format documents.
func TestCopySpecialToIntegers(t *testing.T) {
	es := executors(t)
	inf := float32(math.Inf(1))
	x := []float32{float32(math.NaN()), inf, -inf, -1, 1.9, -1.9}
	tests := []struct {
		d    dtype.DType
		want []float64
	}{
		{dtype.Bool, []float64{1, 1, 1, 1, 1, 1}},
		{dtype.U8, []float64{0, 255, 0, 0, 1, 0}},
		{dtype.U16, []float64{0, 65535, 0, 0, 1, 0}},
		{dtype.I8, []float64{0, 127, -128, -1, 1, -1}},
		{dtype.I16, []float64{0, 32767, -32768, -1, 1, -1}},
		{dtype.I32, []float64{0, math.MaxInt32, math.MinInt32, -1, 1, -1}},
		{dtype.I64, []float64{0, math.MaxInt64, math.MinInt64, -1, 1, -1}},
	}
	for _, test := range tests {
		for _, l := range []layout{plain, spread} {
			a := op.Args{Out: [op.MaxOut]op.Operand{operand(test.d, l, len(x))}}
			a.In[0] = of(x, len(x))
			equal(t, execute(t, es, op.Copy, a), test.want)
		}
	}
}

// Faults of conversions as a copy meets them: NaNs that would become Inf, f16
// subnormals, values that f16 cannot hold.
func TestCopyNarrow(t *testing.T) {
	es := executors(t)
	x := []float32{math.Float32frombits(0x7f800001), 0x1p-24, 0x1.000002p-25, 0x1p-25, 65504, 65519, 65520, -1e6, 1e-9}
	f16 := []float64{math.NaN(), 0x1p-24, 0x1p-24, 0, 65504, 65504, math.Inf(1), math.Inf(-1), 0}
	for _, l := range []layout{plain, spread} {
		a := op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.F16, l, len(x))}}
		a.In[0] = of(x, len(x))
		equal(t, execute(t, es, op.Copy, a), f16)
		a.Out[0] = operand(dtype.BF16, l, len(x))
		if got := execute(t, es, op.Copy, a)[0]; !math.IsNaN(got) {
			t.Errorf("a NaN became %v as bf16", got)
		}
	}
}

// A view of few elements may reach beyond 2^31 of them, and beyond 2^32
// bytes. The memory is reserved and hardly touched.
func TestFarReach(t *testing.T) {
	if invariants.RaceEnabled || invariants.Enabled {
		t.Skip("the memory would be touched")
	}
	reach := int64(1<<32 + 5) // a variable, so that the test compiles for 32 bits too
	stride := int(reach)
	if int64(stride) != reach {
		t.Skip("no int reaches that far")
	}
	block, err := offheap.Alloc(2*stride + 8)
	if err != nil {
		t.Skip(err)
	}
	defer offheap.Free(&block)
	mem := block.Bytes()
	es := executors(t)
	var a op.Args
	a.In[0] = op.Operand{DType: dtype.U8, Shape: shape.Must(3, 2), Mem: op.Mem{Host: mem, Len: len(mem)}}
	a.In[0].Strides = shape.Must(stride, 1)
	for i, v := range []byte{1, 2, 3} {
		mem[i*stride], mem[i*stride+1] = v, 10*v
	}
	a.Out[0] = operand(dtype.U8, plain, 3, 2)
	equal(t, execute(t, es, op.Copy, a), []float64{1, 10, 2, 20, 3, 30})
	a.Out[0] = operand(dtype.F32, plain, 3, 2)
	equal(t, execute(t, es, op.Copy, a), []float64{1, 10, 2, 20, 3, 30})

	// Rows of q8_0, a little more than 2^31 bytes apart.
	row := operand(dtype.Q8_0, plain, 32)
	values := make([]float32, 32)
	for i := range values {
		values[i] = float32(i) - 127
	}
	if err := quant.EncodeRow(row.Mem.Host, dtype.Q8_0, values); err != nil {
		t.Fatal(err)
	}
	blocks := 1<<31/34 + 100
	a = op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.F32, plain, 1, 32)}}
	a.In[0] = op.Operand{DType: dtype.Q8_0, Shape: shape.Must(3, 32), Strides: shape.Must(blocks, 1), Mem: op.Mem{Host: mem, Len: len(mem)}}
	copy(mem[2*blocks*34:], row.Mem.Host)
	a.In[1] = ofInts(dtype.I32, 2)
	equal(t, execute(t, es, op.GetRows, a), read(row))
}

// A copy between the same bytes changes nothing.
func TestCopyToItself(t *testing.T) {
	es, rng := executors(t), newRand()
	a := op.Args{}
	a.In[0] = random(operand(dtype.F32, spread, 3, 5), rng)
	a.Out[0] = a.In[0]
	before := bytes.Clone(a.Out[0].Mem.Host)
	w := withWorkspace(t, es[2], op.Copy, a)
	if err := es[2].Execute(context.Background(), op.Copy, &w); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, a.Out[0].Mem.Host) {
		t.Error("the copy changed its operand")
	}
}

// Rows of f32 become q8_0 blocks as package quant encodes them, in an output whose
// rows lie apart, as those of a cache do; what q8_0 cannot hold becomes NaN, block by
// block.
func TestCopyToQ8(t *testing.T) {
	es, rng := executors(t), newRand()
	for _, lx := range []layout{plain, padded} {
		for _, dims := range [][]int{{32}, {3, 64}, {5, 2, 96}} {
			t.Run(name(dims, lx), func(t *testing.T) {
				a := op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.Q8_0, plain, dims...)}}
				a.In[0] = random(operand(dtype.F32, lx, dims...), rng)
				x := read(a.In[0])
				src := make([]float32, len(x))
				for i, v := range x {
					src[i] = float32(v)
				}
				packed := make([]byte, len(x)/32*34)
				if err := quant.EncodeRow(packed, dtype.Q8_0, src); err != nil {
					t.Fatal(err)
				}
				want := make([]float32, len(x))
				if err := quant.DecodeRow(want, dtype.Q8_0, packed); err != nil {
					t.Fatal(err)
				}
				for i, got := range execute(t, es, op.Copy, a) {
					if float32(got) != want[i] {
						t.Fatalf("element %d is %v, want %v", i, got, want[i])
					}
				}
			})
		}
	}
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), 65536 * 127} {
		values := make([]float32, 64)
		values[3], values[40] = bad, 127
		a := op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.Q8_0, plain, 64)}}
		a.In[0] = of(values, 64)
		got := execute(t, es, op.Copy, a)
		if !math.IsNaN(got[0]) || !math.IsNaN(got[3]) || got[32] != 0 || got[40] != 127 {
			t.Errorf("%v: blocks begin with %v and %v", bad, got[:4], got[32:41])
		}
	}
}
