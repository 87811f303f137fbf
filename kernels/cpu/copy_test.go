package cpu

import (
	"bytes"
	"context"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/internal/invariants"
	"github.com/fucina-go/fucina/internal/offheap"
	"github.com/fucina-go/fucina/quant"
)

// A view of few elements may span more than 2^31 elements and more than 2^32 bytes. The
// memory is reserved, and only the pages of the elements are touched.
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

	// The rows of q8_0 are a little more than 2^31 bytes apart.
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

// A copy of an operand onto itself changes nothing.
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
