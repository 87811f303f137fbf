package conformance

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/conformance/reference"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/providers/cpu"
)

// recorder is a T that keeps the reported failures.
type recorder struct{ errors, logs []string }

func (r *recorder) Helper() {}
func (r *recorder) Logf(format string, args ...any) {
	r.logs = append(r.logs, fmt.Sprintf(format, args...))
}
func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

// broken is the CPU provider with a fault.
type broken struct {
	provider.Provider
	plan   func(id op.ID, a *op.Args) provider.Plan
	submit func(p provider.Provider, ctx context.Context, q provider.Queue, id op.ID, a *op.Args) (accel.Work, error)
	wait   func(p provider.Provider, ctx context.Context, q provider.Queue, w accel.Work) error
	close  func(p provider.Provider, q provider.Queue) error
	// runsDeclined says that Submit does not refuse what plan declines.
	runsDeclined bool
}

func (b *broken) Plan(id op.ID, a *op.Args) provider.Plan {
	if b.plan != nil {
		if plan := b.plan(id, a); !plan.Supported || plan.Workspace != 0 {
			return plan
		}
	}
	return b.Provider.Plan(id, a)
}

func (b *broken) Submit(ctx context.Context, q provider.Queue, id op.ID, a *op.Args) (accel.Work, error) {
	if b.plan != nil && !b.runsDeclined {
		if plan := b.plan(id, a); !plan.Supported {
			return accel.Work{}, fmt.Errorf("%w: %s", provider.ErrUnsupported, plan.Reason)
		}
	}
	if b.submit != nil {
		return b.submit(b.Provider, ctx, q, id, a)
	}
	return b.Provider.Submit(ctx, q, id, a)
}

func (b *broken) WaitFor(ctx context.Context, q provider.Queue, w accel.Work) error {
	if b.wait != nil {
		return b.wait(b.Provider, ctx, q, w)
	}
	return b.Provider.WaitFor(ctx, q, w)
}

func (b *broken) CloseQueue(q provider.Queue) error {
	if b.close != nil {
		return b.close(b.Provider, q)
	}
	return b.Provider.CloseQueue(q)
}

// opener returns an Open of providers with the fault.
func opener(fault broken) Open {
	return func() (provider.Provider, error) {
		p, err := cpu.New(cpu.Options{Threads: 1})
		if err != nil {
			return nil, err
		}
		b := fault
		b.Provider = p
		return &b, nil
	}
}

// changed returns a submit that changes the arguments first.
func changed(change func(id op.ID, a *op.Args)) func(provider.Provider, context.Context, provider.Queue, op.ID, *op.Args) (accel.Work, error) {
	return func(p provider.Provider, ctx context.Context, q provider.Queue, id op.ID, a *op.Args) (accel.Work, error) {
		b := *a
		change(id, &b)
		return p.Submit(ctx, q, id, &b)
	}
}

// after returns a submit that calls do after the operation.
func after(do func(id op.ID, a *op.Args)) func(provider.Provider, context.Context, provider.Queue, op.ID, *op.Args) (accel.Work, error) {
	return func(p provider.Provider, ctx context.Context, q provider.Queue, id op.ID, a *op.Args) (accel.Work, error) {
		w, err := p.Submit(ctx, q, id, a)
		if err == nil {
			do(id, a)
		}
		return w, err
	}
}

// outside returns the byte that lies n bytes after the start of m's memory.
func outside(m op.Mem, n int) *byte {
	return (*byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(m.Host)), n))
}

// flip inverts a bit of the first element of an f32 operand.
func flip(o *op.Operand, bit int) { o.Mem.Host[4*o.Offset+bit/8] ^= 1 << (bit % 8) }

// entries returns the number of elements of the input at p, and 0 if it is absent.
func entries(a *op.Args, p op.Place) int {
	if !a.Has(p) {
		return 0
	}
	n, err := a.At(p).Shape.Elements()
	if err != nil {
		panic(err)
	}
	return n
}

// integer returns element i of a contiguous i32 operand.
func integer(o *op.Operand, i int) int32 {
	return int32(binary.LittleEndian.Uint32(o.Mem.Host[4*(o.Offset+i):]))
}

// renumber replaces the input at p by a copy with other indices.
func renumber(a *op.Args, p op.Place, f func(i int, v int32) int32) {
	o := a.At(p)
	mem := make([]byte, len(o.Mem.Host))
	for i := range entries(a, p) {
		binary.LittleEndian.PutUint32(mem[4*(o.Offset+i):], uint32(f(i, integer(o, i))))
	}
	o.Mem = op.Mem{Host: mem, Len: len(mem)}
}

// clamped returns a submit of an operation that reports the places at p that are out of range,
// and writes to the nearest places.
func clamped(id op.ID, p op.Place) func(provider.Provider, context.Context, provider.Queue, op.ID, *op.Args) (accel.Work, error) {
	return changed(func(got op.ID, a *op.Args) {
		if got != id || a.Status == nil {
			return
		}
		renumber(a, p, func(i int, v int32) int32 {
			near := min(max(v, 0), int32(id.Limit(a, p)-1))
			if near != v {
				op.Report(a.Status, p, i, int64(v))
			}
			return near
		})
	})
}

// corrupted returns a submit of products that are not exact and whose weights have the given size
// of a block. It changes each block of the weights first.
func corrupted(size int, change func(block []byte)) func(provider.Provider, context.Context, provider.Queue, op.ID, *op.Args) (accel.Work, error) {
	return changed(func(_ op.ID, a *op.Args) {
		w := &a.In[1]
		if a.Exact || w.DType.Size() != size {
			return
		}
		mem := bytes.Clone(w.Mem.Host)
		for b := mem; len(b) > 0; b = b[size:] {
			change(b[:size])
		}
		w.Mem = op.Mem{Host: mem, Len: len(mem)}
	})
}

// sevenBits rounds the activations of a product that is not exact to 7 bits.
func sevenBits(_ op.ID, a *op.Args) {
	if a.Exact {
		return
	}
	x := a.In[0]
	values := reference.Read(&x)
	n := x.Shape.Dim(-1)
	rounded := make([]float32, len(values))
	for at := range values {
		if at%n%256 == 0 {
			part := values[at:min(at+256, at/n*n+n)]
			top := max(slices.Max(part), -slices.Min(part))
			for i, v := range part {
				rounded[at+i] = float32(math.RoundToEven(v/top*63) / 63 * top)
			}
		}
	}
	a.In[0] = reference.Of(rounded, x.Shape.Slice()...)
}

// The suite finds every fault, in the cases of the operation that has it.
func TestBrokenProvidersFail(t *testing.T) {
	runs := 0
	var atOnce atomic.Uint32
	for _, tt := range []struct {
		name  string
		only  string
		fault broken
		says  string
	}{
		{"flips a sign", "scale", broken{submit: after(func(_ op.ID, a *op.Args) {
			m := a.Out[0].Mem.Host
			m[4*a.Out[0].Offset+3] ^= 0x80
		})}, "scale f32"},
		{"swaps operands", "swiglu", broken{submit: changed(func(_ op.ID, a *op.Args) { a.In[0], a.In[1] = a.In[1], a.In[0] })}, "swiglu f32"},
		{"drops NaN", "add f32 special", broken{submit: after(func(_ op.ID, a *op.Args) {
			for m := a.Out[0].Mem.Host; len(m) >= 4; m = m[4:] {
				if m[3]&0x7f == 0x7f && m[2]&0xc0 == 0xc0 {
					clear(m[:4])
				}
			}
		})}, "is 0, want NaN"},
		{"ignores strides", "mul f32", broken{submit: changed(func(_ op.ID, a *op.Args) { a.In[0].Strides = a.In[0].Shape.Contiguous() })}, "; the values begin with"},
		{"ignores the stride of weight rows", "matmul q8_0", broken{submit: changed(func(id op.ID, a *op.Args) {
			st, err := a.In[1].Shape.Storage(a.In[1].DType)
			if err == nil {
				a.In[1].Strides = st.Contiguous()
			}
		})}, "matmul q8_0"},
		{"ignores offsets", "rms_norm", broken{submit: changed(func(_ op.ID, a *op.Args) { a.In[0].Offset = 0 })}, "padded"},
		{"writes past the output", "softmax", broken{submit: after(func(_ op.ID, a *op.Args) { *outside(a.Out[0].Mem, a.Out[0].Mem.Len) ^= 1 })}, "memory outside the output"},
		{"writes before the output", "argmax", broken{submit: after(func(_ op.ID, a *op.Args) { *outside(a.Out[0].Mem, -1) ^= 1 })}, "memory outside the output"},
		{"writes between rows", "rope", broken{submit: after(func(_ op.ID, a *op.Args) { a.Out[0].Mem.Host[0] ^= 1 })}, "memory between the elements"},
		{"writes an input", "add", broken{submit: after(func(_ op.ID, a *op.Args) { a.In[1].Mem.Host[0] ^= 1 })}, "the right has changed"},
		{"rounds to f16", "copy f32 to f32", broken{submit: after(func(_ op.ID, a *op.Args) {
			for i := a.Out[0].Offset * 4; i+1 < a.Out[0].Mem.Len; i += 4 {
				a.Out[0].Mem.Host[i] &= 0xf0
			}
		})}, "copy f32 to f32"},
		{"ignores the window", "attention f32 and f32 {", broken{submit: changed(func(_ op.ID, a *op.Args) { a.Window = 0 })}, "attention"},
		{"sees one key too few", "attention f32 and f32 {", broken{submit: changed(func(_ op.ID, a *op.Args) {
			renumber(a, 3, func(_ int, v int32) int32 { return max(v-1, min(v, 0)) })
		})}, "attention"},
		{"takes positions to follow each other", "attention f32 and f32 tokens alone, window 10 in", broken{submit: changed(func(_ op.ID, a *op.Args) {
			first := integer(&a.In[3], 0)
			renumber(a, 3, func(i int, _ int32) int32 { return min(first+int32(i), 99) })
		})}, "in any order"},
		{"takes all rows to be of one sequence", "attention f32 and f32 paged", broken{submit: changed(func(_ op.ID, a *op.Args) {
			if a.Has(4) {
				first := integer(&a.In[4], 0)
				renumber(a, 4, func(int, int32) int32 { return first })
			}
		})}, "paged {9 3 32"},
		{"ignores how far pages are apart", "attention f16 and f16 paged", broken{submit: changed(func(_ op.ID, a *op.Args) {
			if a.Has(5) {
				a.In[2].Strides.Set(0, a.In[2].Shape.Dim(1)*a.In[2].Strides.Dim(1))
			}
		})}, "attention f16 and f16 paged"},
		{"other bits for contiguous keys", "attention f32 and f32 paged", broken{submit: after(func(_ op.ID, a *op.Args) {
			if !a.Has(5) {
				flip(&a.Out[0], 0)
			}
		})}, "with contiguous keys: element"},
		{"refuses garbage that is not read", "attention f32 and f32 indices", broken{submit: func(p provider.Provider, ctx context.Context, q provider.Queue, id op.ID, a *op.Args) (accel.Work, error) {
			for i := range entries(a, 5) {
				if v := integer(&a.In[5], i); a.Status == nil && (v < 0 || int(v) >= id.Limit(a, 5)) {
					return accel.Work{}, fmt.Errorf("entry %d is %d", i, v)
				}
			}
			return p.Submit(ctx, q, id, a)
		}}, "garbage before the window: entry 0 is -1"},
		{"reports garbage that is not read", "attention f32 and f32 indices", broken{submit: after(func(_ op.ID, a *op.Args) {
			for i := range entries(a, 5) {
				if v := integer(&a.In[5], i); a.Status != nil && v < 0 {
					op.Report(a.Status, 5, i, int64(v))
				}
			}
		})}, "garbage before the window: -1 at element 0 of the table is reported, but all indices are valid"},
		{"reports the place of another operand", "attention f32 and f32 indices", broken{submit: after(func(_ op.ID, a *op.Args) {
			if a.Status != nil && a.Status.Load() != 0 {
				p, i, v := op.Reported(a.Status.Load())
				a.Status.Store(0)
				op.Report(a.Status, p-1, i, v)
			}
		})}, "12 at element 1 of the value is reported, want 12 at element 1 of the positions"},
		{"reports a later element", "set_rows f16 indices several", broken{submit: after(func(_ op.ID, a *op.Args) {
			if a.Status != nil && a.Status.Load() != 0 {
				a.Status.Store(0)
				op.Report(a.Status, 1, 3, 99)
			}
		})}, "99 at element 3 of the places is reported, want -7 at element 2"},
		{"writes to the nearest place", "set_rows f16 indices", broken{submit: clamped(op.SetRows, 1)}, "memory of the destination is written that the operation keeps"},
		{"stores at the nearest place", "rotate_store f16 indices", broken{submit: clamped(op.RotateStore, 4)}, "memory of the cache is written that the operation keeps"},
		{"skips without a status word", "set_rows f32", broken{submit: changed(func(_ op.ID, a *op.Args) {
			if a.Status == nil {
				a.Status = new(atomic.Uint64)
			}
		})}, "not refused"},
		{"writes rows before it refuses one", "set_rows f32 indices", broken{submit: func(p provider.Provider, ctx context.Context, q provider.Queue, id op.ID, a *op.Args) (accel.Work, error) {
			w, err := p.Submit(ctx, q, id, a)
			if err != nil && a.Out[0].Has(op.Rows) {
				flip(&a.Out[0], 0)
			}
			return w, err
		}}, "the destination is written"},
		{"writes between the rows of what exists", "set_rows f32", broken{submit: after(func(_ op.ID, a *op.Args) { a.Out[0].Mem.Host[0] ^= 1 })}, "memory of the destination is written that the operation keeps"},
		{"writes a row that is not named", "rotate_store f32", broken{submit: after(func(_ op.ID, a *op.Args) {
			o, used := a.Out[1], make(map[int32]bool)
			for i := range entries(a, 4) {
				used[integer(&a.In[4], i)] = true
			}
			for p := range int32(a.PageRows()) {
				if !used[p] {
					o.Offset += int(p) * a.In[1].Shape.Dim(1) * a.In[1].Shape.Dim(2)
					flip(&o, 0)
					return
				}
			}
		})}, "memory of the cache is written that the operation keeps"},
		{"swaps keys and values", "rotate_store f32", broken{submit: changed(func(_ op.ID, a *op.Args) {
			if a.In[1].Shape == a.In[2].Shape {
				a.In[1], a.In[2] = a.In[2], a.In[1]
			}
		})}, "the cache: error"},
		{"does not round the norm of the queries", "rotate_store f32", broken{submit: after(func(id op.ID, a *op.Args) {
			if id == op.RotateStore && a.Has(5) {
				flip(&a.Out[0], 0)
			}
		})}, "the output has other bits than that of the operation's parts"},
		{"ignores the norm of the keys", "rotate_store q8_0", broken{submit: changed(func(_ op.ID, a *op.Args) { a.NIn = min(a.NIn, 6) })}, "the cache: error"},
		{"truncates what it stores", "rotate_store f16", broken{submit: after(func(id op.ID, a *op.Args) {
			if id == op.RotateStore {
				o := a.Out[1]
				p := int(integer(&a.In[4], 0))
				o.Offset += p/a.PageRows()*o.Strides.Dim(0) + p%a.PageRows()*a.In[1].Shape.Dim(1)*a.In[1].Shape.Dim(2)
				o.Mem.Host[o.Offset*2] ^= 1
			}
		})}, "the cache has other bits than that of the operation's parts"},
		{"writes past the second output", "add_rms_norm", broken{submit: after(func(_ op.ID, a *op.Args) {
			if a.NOut > 1 {
				*outside(a.Out[1].Mem, a.Out[1].Mem.Len) ^= 1
			}
		})}, "memory outside the output"},
		{"is wrong in the second output", "add_rms_norm", broken{submit: after(func(id op.ID, a *op.Args) {
			if id == op.AddRMSNorm {
				flip(&a.Out[1], 31)
			}
		})}, "the output: error"},
		{"normalises the sum before it is rounded", "add_rms_norm", broken{submit: after(func(id op.ID, a *op.Args) {
			if id == op.AddRMSNorm {
				flip(&a.Out[1], 0)
			}
		})}, "the output has other bits than that of the operation's parts"},
		{"sums in one chunk", "matmul f32 in chunks", broken{submit: changed(func(_ op.ID, a *op.Args) { a.Chunks = 1 })}, "other bits than that of the operation's parts"},
		{"sums the parts of a composite in one chunk", "project f32 parameters 7", broken{submit: changed(func(id op.ID, a *op.Args) {
			if id == op.Project {
				a.Chunks = 1
			}
		})}, "other bits than that of the operation's parts"},
		{"rounds to 7 bits", "matmul q8_0 of unit", broken{submit: changed(sevenBits)}, "times that of rounding to 8 bits"},
		{"rounds to 7 bits for super-blocks", "matmul q6_k of unit", broken{submit: changed(sevenBits)}, "times that of rounding to 8 bits"},
		{"rounds the activations of a composite to 7 bits", "project q4_0 {[70]", broken{submit: changed(sevenBits)}, "times that of rounding to 8 bits"},
		{"is wrong in the lowest bit of a code", "matmul q4_0 of unit", broken{submit: corrupted(18, func(b []byte) { b[9] ^= 1 })}, "rounding to 8 bits"},
		{"is wrong in the lowest bit of a code of a super-block", "matmul q4_k of unit", broken{submit: corrupted(144, func(b []byte) { b[100] ^= 0x10 })}, "rounding to 8 bits"},
		{"drops the minimum of a sub-block", "matmul q4_k", broken{submit: corrupted(144, func(b []byte) { b[8] = 0 })}, "rounding to 8 bits explains a difference of"},
		{"is wrong in the scale of a sub-block", "matmul q4_k of unit", broken{submit: corrupted(144, func(b []byte) { b[5] ^= 1 })}, "times that of rounding to 8 bits"},
		{"drops a minimum of a composite", "gated_project q4_k", broken{submit: corrupted(144, func(b []byte) { b[8] = 0 })}, "rounding to 8 bits explains a difference of"},
		{"rounds activations in exact mode", "matmul q8_0", broken{submit: changed(func(_ op.ID, a *op.Args) { a.Exact = false })}, "exact: error"},
		{"ignores the residual", "project f32", broken{submit: changed(func(_ op.ID, a *op.Args) { a.NIn = min(a.NIn, 7) })}, "project f32"},
		{"ignores the third bias", "project q8_0", broken{submit: changed(func(_ op.ID, a *op.Args) { a.In[6] = op.Operand{} })}, "project q8_0"},
		{"scales before the bias", "project f32 parameters", broken{submit: changed(func(_ op.ID, a *op.Args) { a.BiasFirst = false })}, "parameters 3 true"},
		{"scales all products alike", "project f32 parameters", broken{submit: changed(func(_ op.ID, a *op.Args) { a.Scales[2] = a.Scales[0] })}, "parameters 2 false"},
		{"rounds once less", "project q8_0", broken{submit: after(func(id op.ID, a *op.Args) {
			if id == op.Project && a.Has(7) {
				flip(&a.Out[0], 0)
			}
		})}, "the output has other bits than that of the operation's parts"},
		{"has a row that depends on the next", "project q4_k rows alone", broken{submit: after(func(_ op.ID, a *op.Args) {
			if a.Out[0].Shape.Dim(0) > 1 {
				flip(&a.Out[0], 0)
			}
		})}, "element 0 of row 0 is"},
		{"has a second output that depends on the row", "add_rms_norm f32 rows alone", broken{submit: after(func(_ op.ID, a *op.Args) {
			if a.Out[1].Shape.Dim(0) > 1 {
				flip(&a.Out[1], 0)
			}
		})}, "element 0 of row 0 is"},
		{"has a cache that depends on the rows", "rotate_store f32 rows alone", broken{submit: changed(func(_ op.ID, a *op.Args) {
			if a.In[0].Shape.Dim(0) > 1 {
				a.Eps *= 2
				a.In[5] = op.Operand{}
			}
		})}, "element 0 of row 0 is"},
		{"stores other bits for one row", "rotate_store q8_0 rows alone", broken{submit: after(func(_ op.ID, a *op.Args) {
			if a.In[0].Shape.Dim(0) == 1 {
				p := int(integer(&a.In[4], 0))
				o := a.Out[1]
				row := a.In[1].Shape.Dim(1) * a.In[1].Shape.Dim(2) / 32
				o.Mem.Host[34*(o.Offset+p/a.PageRows()*o.Strides.Dim(0)+p%a.PageRows()*row)+5] ^= 1
			}
		})}, "the cache differs between rows alone and among 5 rows"},
		{"takes one activation for the other", "gated_project f32", broken{submit: changed(func(_ op.ID, a *op.Args) { a.Act = op.SiLU })}, "gated_project f32"},
		{"swaps gate and product", "gated_project q8_0", broken{submit: changed(func(_ op.ID, a *op.Args) {
			if a.NIn == 3 {
				a.In[1], a.In[2] = a.In[2], a.In[1]
			}
		})}, "gated_project q8_0"},
		{"does not round the gate", "gated_project f16", broken{submit: after(func(id op.ID, a *op.Args) {
			if id == op.GatedProject {
				flip(&a.Out[0], 0)
			}
		})}, "the output has other bits than that of the operation's parts"},
		{"does not look at the memory of the cache", "lifetime: outputs", broken{submit: func(p provider.Provider, ctx context.Context, q provider.Queue, id op.ID, a *op.Args) (accel.Work, error) {
			if !a.Out[1].Fits() {
				return accel.Work{}, nil
			}
			return p.Submit(ctx, q, id, a)
		}}, "the cache reaches outside its memory and is accepted"},
		{"stores what was cancelled", "lifetime: outputs", broken{submit: func(p provider.Provider, ctx context.Context, q provider.Queue, id op.ID, a *op.Args) (accel.Work, error) {
			if ctx.Err() != nil {
				a.Out[1].Mem.Host[0]++
			}
			return p.Submit(ctx, q, id, a)
		}}, "the cache is written"},
		{"forgets what was stored before", "lifetime: store", broken{submit: func(p provider.Provider, ctx context.Context, q provider.Queue, id op.ID, a *op.Args) (accel.Work, error) {
			if id == op.RotateStore {
				clear(a.Out[1].Mem.Host)
			}
			return p.Submit(ctx, q, id, a)
		}}, "memory of the cache is written that the operation keeps"},
		{"ignores the soft cap", "attention f32 and f32 {", broken{submit: changed(func(_ op.ID, a *op.Args) { a.SoftCap = 0 })}, "attention"},
		{"ignores the mode", "rope", broken{submit: changed(func(_ op.ID, a *op.Args) { a.Mode = op.RoPENeoX })}, "rope"},
		{"reports no row", "get_rows f32", broken{submit: after(func(_ op.ID, a *op.Args) {
			if a.Status != nil {
				a.Status.Store(0)
			}
		})}, "nothing is reported"},
		{"clamps without a status word", "get_rows f32", broken{submit: changed(func(_ op.ID, a *op.Args) {
			if a.Status == nil {
				a.Status = new(atomic.Uint64)
			}
		})}, "not refused"},
		{"other bits each time", "matmul f32", broken{submit: after(func(_ op.ID, a *op.Args) {
			runs++
			a.Out[0].Mem.Host[4*a.Out[0].Offset] ^= byte(runs & 1)
		})}, "other bits"},
		{"ignores WaitFor", "lifetime", broken{wait: func(provider.Provider, context.Context, provider.Queue, accel.Work) error { return nil }}, "wait for a work: the operation ended before"},
		{"carries the failure of a wait", "lifetime", broken{wait: func(p provider.Provider, ctx context.Context, q provider.Queue, w accel.Work) error {
			return w.Wait(ctx)
		}}, "failure of the other work"},
		{"never closes a queue", "lifetime", broken{close: func(provider.Provider, provider.Queue) error { return nil }}, "has not ended"},
		{"does not look at memory", "lifetime: short", broken{submit: func(p provider.Provider, ctx context.Context, q provider.Queue, id op.ID, a *op.Args) (accel.Work, error) {
			if !a.In[0].Fits() || !a.In[1].Fits() || !a.Out[0].Fits() {
				return accel.Work{}, nil
			}
			return p.Submit(ctx, q, id, a)
		}}, "reaches outside its memory and is accepted"},
		{"takes any operation", "lifetime", broken{submit: func(p provider.Provider, ctx context.Context, q provider.Queue, id op.ID, a *op.Args) (accel.Work, error) {
			if !id.Valid() {
				return accel.Work{}, nil
			}
			return p.Submit(ctx, q, id, a)
		}}, "unknown operation: operation 0"},
		{"submits twice", "lifetime", broken{submit: func(p provider.Provider, ctx context.Context, q provider.Queue, id op.ID, a *op.Args) (accel.Work, error) {
			if w, err := p.Submit(ctx, q, id, a); err != nil {
				return w, err
			}
			return p.Submit(ctx, q, id, a)
		}}, "submit and count: after 3 sums"},
		{"other bits on other queues", "lifetime: queues", broken{submit: after(func(_ op.ID, a *op.Args) {
			a.Out[0].Mem.Host[0] ^= byte(atOnce.Add(1))
		})}, "queues at once: the bits"},
		{"writes what was cancelled", "lifetime", broken{submit: func(p provider.Provider, ctx context.Context, q provider.Queue, id op.ID, a *op.Args) (accel.Work, error) {
			if ctx.Err() != nil {
				a.Out[0].Mem.Host[0]++
			}
			return p.Submit(ctx, q, id, a)
		}}, "cancelled before it begins: the output is written"},
		{"hides why it was cancelled", "lifetime", broken{submit: func(p provider.Provider, ctx context.Context, q provider.Queue, id op.ID, a *op.Args) (accel.Work, error) {
			if ctx.Err() != nil {
				return accel.Work{}, errors.New("no")
			}
			return p.Submit(ctx, q, id, a)
		}}, "cancelled before it begins: error no"},
		{"takes any queue", "lifetime: queue of", broken{submit: func(p provider.Provider, ctx context.Context, q provider.Queue, id op.ID, a *op.Args) (accel.Work, error) {
			_, _ = p.Submit(ctx, q, id, a)
			return accel.Work{}, nil
		}}, "is accepted"},
		{"negates one element of many", "attention q8_0", broken{submit: after(func(_ op.ID, a *op.Args) {
			if n, err := a.Out[0].Shape.Elements(); err == nil && n > 2000 {
				a.Out[0].Mem.Host[4*a.Out[0].Offset+3] ^= 0x80
			}
		})}, "too far even where the mean error is small"},
		{"is wrong for four axes", "softmax", broken{submit: after(func(_ op.ID, a *op.Args) {
			if a.In[0].Shape.Rank() == 4 {
				a.Out[0].Mem.Host[4*a.Out[0].Offset+3] ^= 0x80
			}
		})}, "softmax f32 [2 2 3 17]"},
		{"is wrong for a vector", "matmul f32", broken{submit: after(func(_ op.ID, a *op.Args) {
			if a.In[0].Shape.Rank() == 1 {
				a.Out[0].Mem.Host[4*a.Out[0].Offset+3] ^= 0x80
			}
		})}, "matmul f32 [] x 4"},
		{"runs what it declines", "softmax", broken{runsDeclined: true, plan: func(op.ID, *op.Args) provider.Plan { return provider.Decline("not today") }},
			`Plan declines the operation: "not today"; Submit returns error none`},
		{"declines everything", "", broken{plan: func(op.ID, *op.Args) provider.Plan { return provider.Decline("not today") }}, "nothing was tested"},
		{"negative workspace", "scale", broken{plan: func(op.ID, *op.Args) provider.Plan { return provider.Plan{Supported: true, Workspace: -1} }}, "Plan asks for a workspace of -1 bytes"},
		{"endless workspace", "scale", broken{plan: func(op.ID, *op.Args) provider.Plan { return provider.Plan{Supported: true, Workspace: math.MaxInt} }}, "Plan asks for a workspace of"},
		{"Plan changes the arguments", "scale", broken{plan: func(_ op.ID, a *op.Args) provider.Plan {
			a.In[0].Offset = 1
			return provider.Plan{Supported: true}
		}}, "Plan changes its arguments"},
		{"Submit changes the arguments", "scale", broken{submit: after(func(_ op.ID, a *op.Args) { a.Out[0] = op.Operand{} })}, "Submit changes its arguments"},
		{"Plan panics", "scale", broken{plan: func(op.ID, *op.Args) provider.Plan { panic("surprise") }}, ": panic: surprise"},
		{"Submit panics", "scale", broken{submit: changed(func(op.ID, *op.Args) { panic("surprise") })}, "the suite ends with the panic, after 1 cases"},
		{"WaitFor panics", "lifetime: wait", broken{wait: func(provider.Provider, context.Context, provider.Queue, accel.Work) error {
			panic("surprise")
		}}, "lifetime: wait for a work: panic: surprise"},
		{"CloseQueue panics", "scale", broken{close: func(provider.Provider, provider.Queue) error { panic("surprise") }}, "close: panic: surprise"},
		{"no fault", "lifetime", broken{}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var r recorder
			report := Run(&r, opener(tt.fault), Options{Only: tt.only, Seed: 7, Reference: tt.name == "rounds activations in exact mode"})
			all := strings.Join(r.errors, "\n")
			switch {
			case tt.says == "" && len(r.errors) > 0:
				t.Errorf("a provider without a fault fails:\n%s", all)
			case tt.says != "" && (report.Failed == 0 || !strings.Contains(all, tt.says) || !strings.Contains(all, "seed 7") && !strings.Contains(all, "nothing was tested")):
				t.Errorf("%d of %d cases fail, with\n%s\nwant some with %q and the seed", report.Failed, report.Cases, all, tt.says)
			case len(r.errors) > maxPrinted+2:
				t.Errorf("%d failures are printed", len(r.errors))
			}
		})
	}
}

// A decline is reported and is not a failure, unless Options.Reference is set.
func TestDeclines(t *testing.T) {
	open := opener(broken{plan: func(id op.ID, a *op.Args) provider.Plan {
		if id == op.MatMul && a.In[1].DType == dtype.Q4_K || id == op.Add {
			return provider.Decline("not today")
		}
		return provider.Plan{Supported: true}
	}})
	all := Run(&recorder{}, opener(broken{}), Options{Short: true}).Cases
	for _, reference := range []bool{false, true} {
		var r recorder
		report := Run(&r, open, Options{Short: true, Reference: reference})
		var got []string
		parts := make(map[op.ID]bool) // composites whose part Add is declined
		for _, d := range report.Declined {
			if d.Reason == "the comparison needs add, which is declined: not today" {
				parts[d.Op] = true
			}
			if strings.HasPrefix(d.Reason, "the comparison needs") {
				continue
			}
			got = append(got, fmt.Sprint(d.Op, " ", d.Formats, " ", d.Cases > 0, " ", d.Reason))
		}
		if want := "[add f32 true not today matmul q4_k true not today]"; fmt.Sprint(got) != want {
			t.Errorf("declined: %s, want %s", got, want)
		}
		if !parts[op.AddRMSNorm] || !parts[op.Project] {
			t.Errorf("without a sum, the parts of %v are declined", parts)
		}
		cases := report.Cases
		for _, d := range report.Declined {
			if !reference { // otherwise a declined case counts as run
				cases += d.Cases
			}
		}
		if cases != all {
			t.Errorf("where declines are failures %t: %d cases with the declined ones, want %d", reference, cases, all)
		}
		if logs := strings.Join(r.logs, "\n"); !strings.Contains(logs, "matmul q4_k: ") || !strings.Contains(logs, "not today") {
			t.Errorf("the log is\n%s", logs)
		}
		if failed := len(r.errors) > 0; failed != reference {
			t.Errorf("where declines are failures %t:\n%s", reference, strings.Join(r.errors, "\n"))
		}
	}
}

// A lifetime case that is declined is reported with the operation that was declined.
func TestDeclinedLifetime(t *testing.T) {
	open := opener(broken{plan: func(id op.ID, _ *op.Args) provider.Plan {
		return provider.Plan{Supported: id != op.Softmax, Reason: "not today"}
	}})
	report := Run(&recorder{}, open, Options{Only: "lifetime: queues at once"})
	if want := (Decline{op.Softmax, "f32", "not today", 1}); len(report.Declined) != 1 || report.Declined[0] != want {
		t.Errorf("declined: %v, want %v", report.Declined, want)
	}
}

// One bit is within the tolerance of a device, and not within that of the reference where
// f32 arithmetic rounds once.
func TestExact(t *testing.T) {
	open := opener(broken{submit: after(func(_ op.ID, a *op.Args) { a.Out[0].Mem.Host[4*a.Out[0].Offset] ^= 1 })})
	for _, tt := range []struct {
		id    op.ID
		exact bool
	}{{op.Add, true}, {op.Mul, true}, {op.Scale, true}, {op.GeGLU, false}} {
		for _, reference := range []bool{false, true} {
			var r recorder
			report := Run(&r, open, Options{Only: tt.id.String() + " f32 [9000]", Reference: reference})
			if fails := report.Failed > 0; report.Cases == 0 || fails != (reference && tt.exact) {
				t.Errorf("%s as the reference %t: %d of %d cases fail, with %q", tt.id, reference, report.Failed, report.Cases, r.errors)
			}
		}
	}
}

// A run depends only on its seed. The cases that Only and Short choose are the same as in
// the whole suite.
func TestOptions(t *testing.T) {
	run := func(opt Options) Report {
		var r recorder
		report := Run(&r, opener(broken{}), opt)
		if len(r.errors) > 0 {
			t.Errorf("%+v:\n%s", opt, strings.Join(r.errors, "\n"))
		}
		return report
	}
	a, b, c := run(Options{Only: "softmax"}), run(Options{Only: "softmax"}), run(Options{Only: "softmax", Seed: 1})
	if a.Cases != b.Cases || a.Digest != b.Digest {
		t.Errorf("two runs of one seed: %+v and %+v", a, b)
	}
	if a.Cases != c.Cases || a.Digest == c.Digest {
		t.Errorf("two seeds: %+v and %+v", a, c)
	}
	short := run(Options{Only: "softmax", Short: true})
	if short.Cases == 0 || short.Cases >= a.Cases {
		t.Errorf("%d cases in short, %d in all", short.Cases, a.Cases)
	}
	var r recorder
	none := Run(&r, opener(broken{}), Options{Only: "no such case"})
	if all := strings.Join(r.errors, "\n"); none.Cases != 0 || none.Failed != 1 || !strings.Contains(all, `no case has a name that begins with "no such case"`) {
		t.Errorf("%+v: %s", none, all)
	}
	// Every operation has cases.
	for id := op.ID(1); id < op.Count; id++ {
		if r := run(Options{Only: id.String() + " ", Short: true}); r.Cases == 0 {
			t.Errorf("no case of %s", id)
		}
	}
}

// noQueue is a provider whose NewQueue returns q.
type noQueue struct {
	provider.Provider
	q provider.Queue
}

func (n noQueue) NewQueue(provider.QueueKind) (provider.Queue, error) { return n.q, nil }

// It is a failure if the provider cannot be opened, or has no queue.
func TestOpenFails(t *testing.T) {
	with := func(q provider.Queue) Open {
		return func() (provider.Provider, error) {
			p, err := cpu.New(cpu.Options{Threads: 1})
			return noQueue{p, q}, err
		}
	}
	for says, open := range map[string]Open{
		provider.ErrUnavailable.Error():                func() (provider.Provider, error) { return nil, provider.ErrUnavailable },
		"neither a provider nor an error":              func() (provider.Provider, error) { return nil, nil },
		"open: panic: surprise":                        func() (provider.Provider, error) { panic("surprise") },
		"open: NewQueue returns neither an error nor":  with(nil),
		"lifetime: closed queue: NewQueue returns nei": with(strange{}),
	} {
		var r recorder
		report := Run(&r, open, Options{})
		if report.Failed == 0 || !strings.Contains(strings.Join(r.errors, "\n"), says) {
			t.Errorf("want %q, got %+v: %q", says, report, r.errors)
		}
	}
}
