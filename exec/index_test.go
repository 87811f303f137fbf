package exec

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/tensor"
	"github.com/fucina-go/fucina/tests/harness"
	"github.com/fucina-go/fucina/tests/leak"
)

// wrongIndex is a sample with an index that is out of range.
type wrongIndex struct {
	sample
	place op.Place // of the indices
	text  string   // of the error, after the name of the operation
}

// attention returns a sample of Attention over the pages of two sequences, with the given
// positions, sequences and pages.
func attention(positions, sequences, table operandOf) sample {
	return sample{id: op.Attention, p: op.Params{Scale: 1}, in: []operandOf{
		f32s(3, heads, headDim), f32s(pages, pageRows, kvHeads, headDim), of(dtype.F16, pages, pageRows, kvHeads, valueDim),
		positions, sequences, table,
	}}
}

// tableOf returns a table of two sequences.
func tableOf(entries ...int32) operandOf {
	return operandOf{d: dtype.I32, dims: []int{2, len(entries) / 2}, ints: entries}
}

// wrongIndices has samples for each operand of indices.
func wrongIndices() []wrongIndex {
	list := []wrongIndex{
		{sample{id: op.GetRows, in: []operandOf{f32s(4, 2), ints(1, 7, -3)}}, 1, "id 7 at position 1, the table has 4 rows"},
		{sample{id: op.Attention, in: []operandOf{f32s(2, 1, 4), f32s(5, 1, 4), f32s(5, 1, 4), ints(4, 5)}}, 3, "5 at position 1 of the positions, want 0 to 4"},
		{attention(ints(0, 8, 1), ints(0, 1, 1), tableOf(0, 1, 2, 0)), 3, "8 at position 1 of the positions, want 0 to 7"},
		{attention(ints(0, 7, 1), ints(0, 1, 2), tableOf(0, 1, 2, 0)), 4, "2 at position 2 of the sequences, want 0 to 1"},
		{attention(ints(0, 7, 1), ints(0, 1, 1), tableOf(0, 1, 2, 3)), 5, "3 at position 3 of the table, want 0 to 2"},
		{attention(ints(0, 7, 1), ints(0, 1, 1), tableOf(0, -9, -1, 1)), 5, "-1 at position 2 of the table, want 0 to 2"},
		{sample{id: op.SetRows, in: []operandOf{f32s(3, 32), ints(1, 12, -1)}, into: of(dtype.Q8_0, 3, 4, 32)}, 1, "12 at position 1 of the places, want 0 to 11"},
	}
	s := rotateStore("", dtype.F16, true, true)
	s.in[4] = ints(7, 0, 11, -1, 12)
	return append(list, wrongIndex{s, 4, "-1 at position 3 of the places, want 0 to 11"})
}

// check reports an error of t unless err is that of the wrong index. name is the name of the
// operation in the error.
func (w *wrongIndex) check(t *testing.T, what, name string, err error) {
	t.Helper()
	if want := name + ": " + tensor.ErrIndexOutOfBounds.Error() + ": " + w.text; !errors.Is(err, tensor.ErrIndexOutOfBounds) || err.Error() != want {
		t.Errorf("%s: error %v, want %s", what, err, want)
	}
}

// A wrong index is an error that names the operand, the value, its position and the limit.
func TestWrongIndices(t *testing.T) {
	leak.Check(t)
	e, c := openCPU(t)
	harness.CloseLater(t, e)
	harness.CloseLater(t, c)
	var found [op.Count][op.MaxIn]bool
	for _, w := range wrongIndices() {
		_, err := w.result(t, c)
		w.check(t, w.id.String(), w.id.String(), err)
		found[w.id][w.place] = true
	}
	if n := e.Stats().Pool.Outstanding; n != 0 {
		t.Errorf("%d buffers are not released", n)
	}
	for id := op.ID(1); id < op.Count; id++ {
		for p, r := range id.Inputs() {
			if r.Index && !found[id][p] {
				t.Errorf("no sample of wrong %s of %s", r.Name, id)
			}
		}
	}
}

// The entries of a table that no row needs may have any value.
func TestIndicesThatAreNotNeeded(t *testing.T) {
	e, c := openCPU(t)
	harness.CloseLater(t, e)
	harness.CloseLater(t, c)
	s := attention(ints(0, 7, 1), ints(0, 1, 1), tableOf(0, -1, 2, 0))
	if _, err := s.result(t, c); err != nil {
		t.Error(err)
	}
}

// The limits of the indices of every operation fit the numbers that Watch takes.
func TestWatchedHasRoom(t *testing.T) {
	for id, places := range indexPlaces {
		if n := len(accel.Watched{}) - 1; len(places) > n {
			t.Errorf("%s has %d operands of indices, room for %d", op.ID(id), len(places), n)
		}
	}
}

// A report that fits no operand of indices is an error too, not a panic.
func TestReportOfUnknownPlace(t *testing.T) {
	var status atomic.Uint64
	op.Report(&status, 0, 3, 9)
	err := explain(status.Load(), watched(&call{id: op.SetRows, as: op.RotateStore}, &op.Args{}))
	if want := "rotate_store: index out of bounds: 9 at position 3 of input 0"; !errors.Is(err, tensor.ErrIndexOutOfBounds) || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
