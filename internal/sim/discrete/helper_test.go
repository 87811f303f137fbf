//go:build accel

package discrete

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/tests/harness"
	"github.com/fucina-go/fucina/tests/leak"
)

var bg = context.Background()

// kernels computes copies, sums and sums with a second copy of f32 vectors, and declines other
// operations. Tests of the device itself need no others.
type kernels struct{}

func newKernels() Executor { return kernels{} }

func (kernels) Plan(id op.ID, _ *op.Args) provider.Plan {
	switch id {
	case op.Copy, op.Add, op.Argmax, op.AddRMSNorm, op.Project:
		return provider.Plan{Supported: true}
	}
	return provider.Decline("a kernel that no test needs")
}

var errKernel = fmt.Errorf("index out of range")

func (kernels) Execute(_ context.Context, id op.ID, a *op.Args) error {
	if id == op.Argmax {
		return errKernel
	}
	n := a.Out[0].Shape.Dim(-1)
	at := func(o *op.Operand, i int) []byte {
		return o.Mem.Host[(o.Offset+i*o.Strides.Dim(-1))*4:]
	}
	get := func(o *op.Operand, i int) float32 {
		return math.Float32frombits(binary.LittleEndian.Uint32(at(o, i)))
	}
	for i := range n {
		v := get(&a.In[0], i)
		if id == op.Add || id == op.AddRMSNorm {
			v += get(&a.In[1], i)
		}
		binary.LittleEndian.PutUint32(at(&a.Out[0], i), math.Float32bits(v))
		if id == op.AddRMSNorm {
			binary.LittleEndian.PutUint32(at(&a.Out[1], i), math.Float32bits(get(&a.In[2], i)))
		}
	}
	return nil
}

// bench is a device under test with helpers for the tests.
type bench struct {
	testing.TB
	*Device
}

// open returns a device. At the end of the test, Close must succeed and the device's
// goroutines must end.
func open(tb testing.TB, opt Options) *bench {
	tb.Helper()
	leak.Check(tb)
	b := dirty(tb, opt)
	tb.Cleanup(func() {
		if err := b.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
		if err := harness.LeftOn(b.Stats()); err != nil {
			tb.Error("after close:", err)
		}
	})
	return b
}

// dirty returns a device that the test closes itself.
func dirty(tb testing.TB, opt Options) *bench {
	tb.Helper()
	opt.NewExecutor = newKernels
	d, err := New(opt)
	if err != nil {
		tb.Fatal(err)
	}
	return &bench{tb, d}
}

func (b *bench) queue(kind provider.QueueKind) provider.Queue {
	b.Helper()
	q, err := b.NewQueue(kind)
	if err != nil {
		b.Fatal(err)
	}
	return q
}

func (b *bench) close(qs ...provider.Queue) {
	b.Helper()
	for _, q := range qs {
		if q.Timeline().Ended() {
			b.Errorf("%s has ended before it was closed", q.Timeline().Name())
		}
		if err := b.CloseQueue(q); err != nil {
			b.Fatal(err)
		}
		if !q.Timeline().Ended() {
			b.Errorf("%s has not ended after it was closed", q.Timeline().Name())
		}
	}
}

func (b *bench) alloc(floats int) op.Mem {
	b.Helper()
	m, err := b.Alloc(floats * 4)
	if err != nil {
		b.Fatal(err)
	}
	return m
}

func (b *bench) free(ms ...op.Mem) {
	for _, m := range ms {
		b.Free(m)
	}
}

// must returns w. It fails the test if err is not nil.
func (b *bench) must(w accel.Work, err error) accel.Work {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
	return w
}

func (b *bench) wait(ws ...accel.Work) {
	b.Helper()
	for _, w := range ws {
		if err := w.Wait(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}

func (b *bench) after(q provider.Queue, w accel.Work) {
	b.Helper()
	if err := b.WaitFor(bg, q, w); err != nil {
		b.Fatal(err)
	}
}

// read downloads m, ordered after w.
func (b *bench) read(q provider.Queue, m op.Mem, w accel.Work) []float32 {
	b.Helper()
	b.after(q, w)
	p := make([]byte, m.Len)
	b.wait(b.must(b.Download(bg, q, p, m)))
	return floats(p)
}

func floats(p []byte) []float32 {
	out := make([]float32, len(p)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(p[i*4:]))
	}
	return out
}

func fill(n int, v float32) []byte {
	p := make([]byte, 0, n*4)
	for range n {
		p = binary.LittleEndian.AppendUint32(p, math.Float32bits(v))
	}
	return p
}

func vector(m op.Mem) op.Operand {
	return op.Operand{DType: dtype.F32, Shape: shape.Must(m.Len / 4), Strides: shape.Must(1), Mem: m}
}

func args(out op.Mem, in ...op.Mem) *op.Args {
	a := &op.Args{NIn: len(in), Out: [op.MaxOut]op.Operand{vector(out)}}
	for i, m := range in {
		a.In[i] = vector(m)
	}
	return a
}

func same(got []float32, want float32) bool {
	return !slices.ContainsFunc(got, func(v float32) bool { return v != want })
}

func allNaN(got []float32) bool {
	return !slices.ContainsFunc(got, func(v float32) bool { return v == v })
}

// hazardous checks that each hazard contains one of the texts, and that Close reports them.
func (b *bench) hazardous(want []string) {
	b.Helper()
	h, err := b.Hazards(), b.Close()
	if len(h) != len(want) || err == nil {
		b.Fatalf("hazards %q, close: %v, want %q", h, err, want)
	}
	for i, text := range want {
		if !strings.Contains(h[i], text) || !strings.Contains(err.Error(), h[i]) {
			b.Errorf("hazard %q, close: %v, want %q", h[i], err, text)
		}
	}
}
