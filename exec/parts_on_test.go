//go:build accel

package exec

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/internal/invariants"
	"github.com/fucina-go/fucina/internal/sim/discrete"
	"github.com/fucina-go/fucina/tests/harness"
	"github.com/fucina-go/fucina/tests/leak"
)

// declineComposites declines the operations that have parts.
func declineComposites(id op.ID, _ *op.Args) string {
	if isComposite(id) {
		return "the test wants its parts"
	}
	return ""
}

// isComposite reports whether composites has samples of the operation.
func isComposite(id op.ID) bool {
	return slices.ContainsFunc(composites, func(s sample) bool { return s.id == id })
}

// littleStaging makes an engine that costs little to open.
var littleStaging = Options{StagingSlots: 1, StagingBytes: 4096}

// isPart has the operations that are parts of others.
var isPart = [op.Count]bool{
	op.Copy: true, op.Add: true, op.RMSNorm: true, op.RoPE: true, op.MatMul: true, op.SwiGLU: true, op.GeGLU: true,
	op.Scale: true, op.SetRows: true,
}

// onTheHost returns the sample's result from an engine without a device.
func onTheHost(t *testing.T, s *sample) [][]byte {
	t.Helper()
	e, c := openCPU(t)
	harness.CloseLater(t, e)
	harness.CloseLater(t, c)
	want, err := s.result(t, c)
	if err != nil {
		t.Fatal(err)
	}
	return want
}

// An operation that a device declines runs there as its parts, with the same bits as in one
// piece on the device and on the CPU.
func TestPartsOfDeclinedOperations(t *testing.T) {
	for _, s := range composites {
		t.Run(s.name, func(t *testing.T) {
			leak.Check(t)
			want := onTheHost(t, &s)
			for _, decline := range []func(op.ID, *op.Args) string{nil, declineComposites} {
				e, dev := newEngine(t, discrete.Options{Decline: decline})
				c := newQueue(t, e)
				got, err := s.result(t, c)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.EqualFunc(got, want, slices.Equal) {
					t.Errorf("declined %v: other bits than on the CPU", decline != nil)
				}
				stats := dev.Stats()
				if whole := stats.Submits[s.id] == 1; whole != (decline == nil) || decline != nil && stats.Ops() < 1 {
					t.Errorf("declined %v: %d operations on the device, in one piece %v", decline != nil, stats.Ops(), whole)
				}
				if cpu := e.CPU().Stats(); cpu.Ops() != 0 || e.Stats().Fallbacks != 0 {
					t.Errorf("declined %v: %d operations on the CPU", decline != nil, cpu.Ops())
				}
			}
		})
	}
}

// Parts write a result with one output to an existing tensor too.
func TestPartsIntoExistingTensor(t *testing.T) {
	leak.Check(t)
	s := project("into", op.Params{Scales: ones}, false, [3]int{7, 9}, [3]bool{})
	want := onTheHost(t, &s)
	s.into = f32s(2, tokens, 16)
	e, dev := newEngine(t, discrete.Options{Decline: declineComposites})
	got, err := s.result(t, newQueue(t, e))
	if err != nil || len(got) != 1 || !slices.Equal(got[0], want[0]) {
		t.Errorf("other bits than on the CPU, %v", err)
	}
	if n := dev.Stats().Submits[op.MatMul]; n != 2 {
		t.Errorf("%d products on the device, want 2", n)
	}
}

// A device that declines a part gets the other parts. The CPU runs the declined one.
func TestDeclinedPart(t *testing.T) {
	for _, s := range composites {
		want := onTheHost(t, &s)
		for declined := op.ID(1); declined < op.Count; declined++ {
			if !isPart[declined] {
				continue
			}
			e, dev := openDiscrete(t, discrete.Options{Decline: func(id op.ID, a *op.Args) string {
				if id == declined {
					return "the test wants it on the CPU"
				}
				return declineComposites(id, a)
			}}, littleStaging)
			harness.CloseLater(t, e)
			got, err := s.result(t, newQueue(t, e))
			if err != nil || !slices.EqualFunc(got, want, slices.Equal) {
				t.Errorf("%s without %s: other bits than on the CPU, %v", s.name, declined, err)
			}
			if n := dev.Stats().Submits[declined]; n != 0 {
				t.Errorf("%s: %d submits of %s, which the device declines", s.name, n, declined)
			}
		}
	}
}

// If the submission of a part fails, the CPU runs that part. If a part fails on the device
// later, the failure is that of the results. Either way nothing stays allocated.
func TestPartsThatFailOnTheDevice(t *testing.T) {
	cause := errors.New("the test's cause")
	for _, s := range composites {
		t.Run(s.name, func(t *testing.T) {
			leak.Check(t)
			want := onTheHost(t, &s)
			run := func(f discrete.Fault) (got [][]byte, events discrete.Events, err error) {
				e, dev := openDiscrete(t, discrete.Options{Decline: declineComposites, Faults: []discrete.Fault{f}}, littleStaging)
				c, err := e.NewQueue()
				if err != nil {
					t.Fatal(err)
				}
				got, err = s.result(t, c)
				if n := e.pool.Stats().Outstanding; n != 0 {
					t.Errorf("%s at %d: %d buffers are not released", f.Kind, f.Nth, n)
				}
				if err := errors.Join(c.Close(), e.Close()); err != nil {
					t.Errorf("%s at %d: close: %v", f.Kind, f.Nth, err)
				}
				return got, dev.Events(), err
			}
			_, all, err := run(discrete.Fault{Kind: discrete.SubmitError, Nth: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			for nth := 1; nth <= all.Submits; nth++ {
				got, _, err := run(discrete.Fault{Kind: discrete.SubmitError, Nth: nth, Err: cause})
				if err != nil || !slices.EqualFunc(got, want, slices.Equal) {
					t.Errorf("submit error at %d: other bits than on the CPU, %v", nth, err)
				}
				_, _, err = run(discrete.Fault{Kind: discrete.SubmitAsync, Nth: nth, Err: cause})
				if !errors.Is(err, accel.ErrDeviceFailed) || !errors.Is(err, cause) {
					t.Errorf("failure at %d: %v", nth, err)
				}
			}
			for nth := 1; nth <= all.Submits+all.Uploads; nth++ {
				got, _, err := run(discrete.Fault{Kind: discrete.Loss, Nth: nth, Err: cause})
				if err == nil && !slices.EqualFunc(got, want, slices.Equal) || err != nil && !errors.Is(err, accel.ErrDeviceLost) {
					t.Errorf("loss at %d: other bits than on the CPU, or %v", nth, err)
				}
			}
			for nth := 1; nth <= all.Allocs; nth++ {
				got, _, err := run(discrete.Fault{Kind: discrete.AllocError, Nth: nth, Err: cause})
				if err != nil || !slices.EqualFunc(got, want, slices.Equal) {
					t.Errorf("allocation error at %d: other bits than on the CPU, %v", nth, err)
				}
			}
		})
	}
}

// If a part fails, the operation fails with an error that names the operation and not the
// part, and nothing stays allocated.
func TestPartsThatFailOnTheCPU(t *testing.T) {
	cause := errors.New("the test's cause")
	all := func(op.ID, *op.Args) string { return "the CPU runs everything" }
	for _, s := range composites {
		t.Run(s.name, func(t *testing.T) {
			leak.Check(t)
			for nth := 1; ; nth++ {
				host := newFaultyCPU(t, nth, cause)
				e, _ := openDiscrete(t, discrete.Options{Decline: all}, Options{CPU: host})
				c, err := e.NewQueue()
				if err != nil {
					t.Fatal(err)
				}
				_, err = s.result(t, c)
				if n := e.pool.Stats().Outstanding; n != 0 {
					t.Errorf("%d buffers are not released after a failure of part %d", n, nth)
				}
				if err := errors.Join(c.Close(), e.Close()); err != nil {
					t.Error(err)
				}
				if host.left > 0 {
					if err != nil {
						t.Error(err)
					}
					if nth == 1 {
						t.Error("no parts")
					}
					break
				}
				if want := s.id.String() + ": " + cause.Error(); !errors.Is(err, cause) || err.Error() != want {
					t.Errorf("part %d: error %v, want %s", nth, err, want)
				}
			}
		})
	}
}

// A weight whose blocks have gaps is refused with the names of the operation and of its operand,
// although a part would refuse it.
func TestPartsRefuseGapsBetweenBlocks(t *testing.T) {
	leak.Check(t)
	s := sample{
		id: op.Project, p: op.Params{Scales: ones},
		in: []operandOf{f32s(2, 64), f32s(3, 64), of(dtype.Q8_0, 4, 128)},
	}
	run := func(c *Queue) error {
		o := s.make(t)
		defer o.release()
		v, err := o.in[2].View(shape.Must(4, 64), shape.Must(4, 2), 0)
		if err != nil {
			t.Fatal(err)
		}
		o.in[2].Release()
		*o.in[2] = v
		out, err := s.run(c, o)
		releaseAll(out[:])
		return err
	}
	_, host := newCPU(t)
	want := run(host)
	e, _ := openDiscrete(t, discrete.Options{Decline: declineComposites}, littleStaging)
	harness.CloseLater(t, e)
	got := run(newQueue(t, e))
	const text = "project: the second weight is not contiguous along its last axis"
	if want == nil || got == nil || got.Error() != want.Error() || !strings.HasPrefix(got.Error(), text) {
		t.Errorf("in parts: %v; in one piece: %v", got, want)
	}
}

// In steady state the parts of an operation allocate nothing on the Go heap.
func TestPartsAllocateNothing(t *testing.T) {
	if invariants.Enabled || invariants.RaceEnabled {
		t.Skip("checks allocate")
	}
	e, _ := newEngine(t, discrete.Options{Decline: func(op.ID, *op.Args) string { return "the CPU runs everything" }})
	c := newQueue(t, e)
	for _, s := range composites {
		s.allocatesNothing(t, c)
	}
}

// The parts have the rows of the whole operation, with the number of generated ones.
func TestPartsKnowGeneratedRows(t *testing.T) {
	host := newFaultyCPU(t, 0, nil)
	e, _ := openDiscrete(t, discrete.Options{Decline: func(op.ID, *op.Args) string { return "the CPU runs everything" }}, Options{CPU: host})
	harness.CloseLater(t, e)
	c := newQueue(t, e)
	c.SetGenerated(2)
	s := rotateStore("", dtype.F32, true, true)
	if _, err := s.result(t, c); err != nil {
		t.Fatal(err)
	}
	if len(host.seen) != 6 {
		t.Errorf("%d parts, want 6", len(host.seen))
	}
	for i, a := range host.seen {
		if a.Generated != 2 {
			t.Errorf("part %d: %d generated rows, want 2", i, a.Generated)
		}
	}
}

// The values may lie in the pages that they are written to. The parts would write the keys
// over them first, so that the CPU runs the operation in one piece, on copies.
func TestPartsOfOverlappingOperands(t *testing.T) {
	leak.Check(t)
	s := rotateStore("", dtype.F32, false, false)
	run := func(c *Queue) []float32 {
		o := s.make(t)
		defer o.release()
		v, err := o.into.View(o.in[2].Shape(), o.in[2].Strides(), 0)
		if err != nil {
			t.Fatal(err)
		}
		o.in[2].Release()
		*o.in[2] = v
		out, err := s.run(c, o)
		if err != nil {
			t.Fatal(err)
		}
		defer releaseAll(out[:])
		return floats(t, o.into)
	}
	_, host := newCPU(t)
	e, _ := openDiscrete(t, discrete.Options{Decline: declineComposites}, littleStaging)
	harness.CloseLater(t, e)
	if !slices.Equal(run(newQueue(t, e)), run(host)) {
		t.Error("other bits than on the CPU")
	}
}
