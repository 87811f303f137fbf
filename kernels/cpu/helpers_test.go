package cpu

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/fucina-go/fucina/core/conformance/reference"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/internal/invariants"
	"github.com/fucina-go/fucina/internal/isa"
	"github.com/fucina-go/fucina/internal/team"
)

// Shorthands for the functions that make operands.
var (
	operand = reference.New
	random  = reference.Random
	of      = reference.Of
	ofInts  = reference.Ints
)

const (
	plain     = reference.Plain
	padded    = reference.Padded
	reversed  = reference.Reversed
	broadcast = reference.Broadcast
	spread    = reference.Spread
)

// positions returns a vector of n consecutive positions, the first of which is from.
func positions(from, n int) op.Operand {
	list := make([]int64, n)
	for i := range list {
		list[i] = int64(from + i)
	}
	return ofInts(dtype.I32, list...)
}

func read(o op.Operand) []float64 { return reference.Read(&o) }

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

// executors returns executors with different numbers of threads. The first has the default
// settings, the second has the smallest chunks, and the next two have the smallest chunks and
// pieces. The others have the other levels of this processor, but for the race detector, which does
// not see assembly and makes Go code slow.
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
	for _, level := range isa.Supported() {
		if level != out[0].level && !invariants.RaceEnabled {
			out = append(out, newExecutor(nil, level))
		}
	}
	return out
}

// withWorkspace returns a with the workspace that e needs, filled with NaN.
func withWorkspace(t testing.TB, e *Executor, id op.ID, a op.Args) op.Args {
	t.Helper()
	for i, o := range a.In {
		if !o.Mem.IsZero() {
			a.NIn = i + 1
		}
	}
	a.NOut = len(id.Outputs())
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

// exact returns a for an exact operation.
func exact(a op.Args) op.Args {
	a.Exact = true
	return a
}

// outputs returns copies of the memory of the outputs.
func outputs(a *op.Args) (list [][]byte) {
	for i := range a.NOut {
		list = append(list, bytes.Clone(a.Out[i].Mem.Host))
	}
	return list
}

// withOutputs returns a with new memory for the outputs, which has the contents.
func withOutputs(a op.Args, contents [][]byte) op.Args {
	for i, mem := range contents {
		setMem(&a.Out[i], 0, mem)
	}
	return a
}

// execute runs the operation on every executor and returns the elements of the outputs, of
// one output after the other. It checks that the outputs have the same bits and that nothing
// outside their elements is written.
func execute(t testing.TB, es []*Executor, id op.ID, a op.Args) []float64 {
	t.Helper()
	a.NOut = len(id.Outputs())
	before := outputs(&a)
	var first [][]byte
	for _, e := range es {
		w := withWorkspace(t, e, id, withOutputs(a, before))
		if err := e.Execute(context.Background(), id, &w); err != nil {
			t.Fatalf("%v: %v", id, err)
		}
		if got := outputs(&w); first == nil {
			first = got
		} else if !reflect.DeepEqual(first, got) {
			t.Errorf("%v on %d lanes, polling every %d multiply-adds, with %v, has other bits than on one lane with %v", id, e.lanes, e.every, e.level, es[0].level)
		}
	}
	var values []float64
	for i := range first {
		out := a.Out[i]
		setMem(&out, 0, first[i])
		values = append(values, read(out)...)
		reference.Erase(&out, before[i])
		if !bytes.Equal(out.Mem.Host, before[i]) {
			t.Errorf("%v wrote between the elements of output %d", id, i)
		}
	}
	return values
}

// closeTo fails unless the normalised error is within the tolerance.
func closeTo(t testing.TB, got, want []float64, tolerance float64) {
	t.Helper()
	if err := reference.Compare(got, want, tolerance); err != nil {
		t.Error(err)
	}
}

// equal fails unless the values are the same. NaN equals NaN.
func equal(t testing.TB, got, want []float64) {
	t.Helper()
	closeTo(t, got, want, 0)
}

func newRand() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

func name(parts ...any) string { return fmt.Sprint(parts...) }
