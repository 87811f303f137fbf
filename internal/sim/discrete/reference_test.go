//go:build accel

package discrete

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/core/shape"
)

func matrix(m op.Mem, d dtype.DType, rows, cols int) op.Operand {
	s := shape.Must(rows, cols)
	storage, err := s.Storage(d)
	if err != nil {
		panic(err)
	}
	return op.Operand{DType: d, Shape: s, Strides: storage.Contiguous(), Mem: m}
}

// TestReferenceKernels runs CPU kernels on device memory: a matrix product with a block
// format, which needs a workspace, and a gather whose ids are checked on the device.
func TestReferenceKernels(t *testing.T) {
	d, err := New(Options{Chaos: Yields})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t, d}
	q := b.queue(provider.Compute)

	x, w, y := b.alloc(32), b.alloc(17), b.alloc(2) // two rows of one q8_0 block each
	blocks := make([]byte, w.Len)
	for row, scale := range []byte{0x3C, 0x40} { // f16 1 and 2
		block := blocks[row*34:][:34]
		block[1] = scale
		for i := range block[2:] {
			block[2+i] = byte(row + 1)
		}
	}
	a := &op.Args{NIn: 2, Out: [op.MaxOut]op.Operand{matrix(y, dtype.F32, 1, 2)}}
	a.In[0], a.In[1] = matrix(x, dtype.F32, 1, 32), matrix(w, dtype.Q8_0, 2, 32)
	plan := b.Plan(op.MatMul, a)
	if !plan.Supported {
		t.Fatal(plan.Reason)
	}
	var work op.Mem
	if plan.Workspace > 0 {
		if _, err := b.Submit(bg, q, op.MatMul, a); err == nil || !strings.Contains(err.Error(), "workspace") {
			t.Errorf("without workspace: %v", err)
		}
		if work, err = b.Alloc(plan.Workspace); err != nil {
			t.Fatal(err)
		}
		a.Workspace = work
	}
	b.must(b.Upload(bg, q, x, fill(32, 0.5)))
	b.must(b.Upload(bg, q, w, blocks))
	b.must(b.Submit(bg, q, op.MatMul, a))
	if got := b.read(q, y, accel.Work{}); got[0] != 16 || got[1] != 64 {
		t.Errorf("product %v, want [16 64]", got)
	}
	step := func() {
		fence, err := b.Submit(bg, q, op.MatMul, a)
		if err = errors.Join(err, fence.Wait(context.Background())); err != nil {
			t.Error(err)
		}
	}
	if n := testing.AllocsPerRun(50, step); n != 0 && !raceEnabled {
		t.Errorf("%v allocations per product", n)
	}

	ids := b.alloc(1)
	b.must(b.Upload(bg, q, ids, []byte{5, 0, 0, 0}))
	g := &op.Args{NIn: 2, Out: [op.MaxOut]op.Operand{matrix(x, dtype.F32, 1, 32)}}
	g.In[0] = matrix(w, dtype.Q8_0, 2, 32)
	g.In[1] = op.Operand{DType: dtype.I32, Shape: shape.Must(1), Strides: shape.Must(1), Mem: ids}
	fence := b.must(b.Submit(bg, q, op.GetRows, g))
	err = fence.Wait(context.Background())
	var window *accel.WindowError
	if !errors.As(err, &window) || !errors.Is(err, accel.ErrDeviceFailed) || !strings.Contains(err.Error(), "get_rows") {
		t.Errorf("an id outside the table: %v", err)
	}
	if q.Timeline().Dead() == nil {
		t.Error("the queue lives on")
	}

	b.close(q)
	b.free(x, w, y, ids, work)
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
