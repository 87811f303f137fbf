package cpu

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/fucina-go/fucina/core/conformance/reference"
	"github.com/fucina-go/fucina/core/op"
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
// settings, the second has the smallest tasks, and the others have the smallest tasks and
// pieces.
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

// withWorkspace returns a with the workspace that e needs, filled with NaN.
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

// execute runs the operation on every executor and returns the output. It checks that the
// outputs have the same bits and that nothing outside the output's elements is written.
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
			t.Errorf("%v on %d lanes, polling every %d multiply-adds, has other bits than on one lane", id, e.lanes, e.every)
		}
	}
	rest := op.Operand{DType: out.DType, Shape: out.Shape, Strides: out.Strides, Offset: out.Offset}
	setMem(&rest, 0, first)
	reference.Erase(&rest, before)
	if !bytes.Equal(rest.Mem.Host, before) {
		t.Errorf("%v wrote between the elements of its output", id)
	}
	a.Out[0].Mem.Host = first
	return read(a.Out[0])
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
