package fucina_test

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/fucina-go/fucina"
)

// here returns the place of its caller in the form that failures print.
func here() string {
	_, file, line, _ := runtime.Caller(1)
	return fmt.Sprintf("%s:%d", filepath.Base(file), line)
}

// helper returns its own place and a tensor that failed there. Failures name that place, and
// with %+v the place of its caller.
func helper(x fucina.Tensor) (string, fucina.Tensor) {
	f := x.Frame()
	return here(), f.Return(x.Rename("no", "n").Scale(2))
}

// deep returns a tensor that failed under n further callers.
func deep(x fucina.Tensor, n int) fucina.Tensor {
	if n == 0 {
		return x.Rename("no", "n")
	}
	return deep(x, n-1)
}

// The text of a failure begins with the line outside of the package that made the call, and
// %+v adds the callers of that line.
func TestFailurePlace(t *testing.T) {
	c, end := open(t)
	x := numbered(c, "d:2")
	mine := errors.New("mine")
	stale := x.Ref()
	stale.Release()
	closed := c.Frame()
	closed.Close()
	look := func(_ any, err error) error { return err }
	of := func(at string, y fucina.Tensor) (string, error) { return at, y.Err() }
	for name, f := range map[string]func() (string, error){
		"operation":  func() (string, error) { return here(), x.Rename("no", "n").Err() },
		"chain":      func() (string, error) { return here(), x.Scale(2).Rename("no", "n").Scale(2).Softmax("d").Err() },
		"helper":     func() (string, error) { return of(helper(x)) },
		"from slice": func() (string, error) { return here(), fucina.FromSlice(c, []int8{1}, ax("d:2")...).Err() },
		"full":       func() (string, error) { return here(), c.Zeros(fucina.F32, ax("d:0")...).Err() },
		"range":      func() (string, error) { return here(), c.Range("d", 0).Err() },
		"random":     func() (string, error) { return here(), c.Normal(nil, 1).Err() },
		"attention": func() (string, error) {
			return here(), fucina.Attention(x, x, x, fucina.AttentionOptions{}).Err()
		},
		"contiguous": func() (string, error) { return here(), stale.Contiguous().Err() },
		"fail":       func() (string, error) { return here(), c.Fail(mine).Err() },
		"fail if":    func() (string, error) { return here(), x.FailIf(mine).Err() },
		"expect":     func() (string, error) { return here(), x.Expect("e").Err() },
		"shared":     func() (string, error) { return here(), stale.Shared().Err() },
		"keep":       func() (string, error) { return here(), closed.Keep(x).Err() },
		"replace":    func() (string, error) { return here(), fucina.Replace(&x, stale) },
		"data":       func() (string, error) { return here(), look(fucina.Data[int8](x)) },
		"copy out":   func() (string, error) { return here(), fucina.CopyOut(x, make([]float32, 1)) },
		"read":       func() (string, error) { return here(), fucina.Read[float32](x, nil) },
		"item":       func() (string, error) { return here(), look(fucina.Item[float32](x)) },
		"float":      func() (string, error) { return here(), look(x.Float()) },
		"raw":        func() (string, error) { return here(), look(stale.AsRaw()) },
		"dim": func() (string, error) {
			at, _ := here(), x.Dim("e")
			return at, c.Err()
		},
		"all": func() (string, error) {
			at := lines(here(), 1)
			for range fucina.All[int8](x) {
				t.Error("a value of another type")
			}
			return at, c.Err()
		},
		"loop of frames": func() (at string, err error) {
			for range c.Frames(2) {
				at, err = here(), x.Rename("no", "n").Err()
			}
			return at, err
		},
		"goroutine": func() (at string, err error) {
			done := make(chan struct{})
			go func() {
				at, err = here(), x.Rename("no", "n").Err()
				close(done)
			}()
			<-done
			return at, err
		},
	} {
		at, err := f()
		var failure *fucina.Failure
		if err == nil || !errors.As(err, &failure) || !strings.HasPrefix(err.Error(), at+": ") || strings.Count(err.Error(), ".go:") != 1 {
			t.Errorf("%s: %v, want a failure at %s", name, err, at)
			continue
		}
		if errors.Unwrap(err).Error() != strings.TrimPrefix(err.Error(), at+": ") {
			t.Errorf("%s: without the place it is %q", name, errors.Unwrap(err))
		}
	}

	at, y := helper(x)
	caller := lines(here(), -1)
	long := fmt.Sprintf("%+v", y.Err())
	if first := at + `: rename "no" to "n" of f32 {d:2}: no axis "no"` + "\n\tcalled from " + caller; !strings.HasPrefix(long, first) {
		t.Errorf("%%+v is %q, want %q", long, first)
	}
	if s := fmt.Sprintf("%+v", y); s != "failed: "+long {
		t.Errorf("the failed tensor is %q, want failed: %q", s, long)
	}
	if s := fmt.Sprintf("%v %s", y, y); s != fmt.Sprintf("failed: %v failed: %[1]v", y.Err()) {
		t.Errorf("the failed tensor is %q", s)
	}
	if s := fmt.Sprintf("%+v", deep(x, 10).Err()); strings.Count(s, "called from") != 5 {
		t.Errorf("want five callers, got %s", s)
	}
	end()
}

// lines returns the place n lines after at.
func lines(at string, n int) string {
	file, line, _ := strings.Cut(at, ":")
	var i int
	fmt.Sscan(line, &i)
	return fmt.Sprintf("%s:%d", file, i+n)
}

// If an operation in a chain fails, the result of the chain carries that failure, with the
// place, the operation and the axes of both operands. No tensor and no memory leaks.
func TestFailureInAChain(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		e := c.Engine()
		x, w := numbered(c, "batch:2 wrong:3"), numbered(c, "in:3 hidden:4")
		before := e.Stats()
		at := ""
		forward := func() fucina.Tensor {
			f := x.Frame()
			h := x.Scale(2).Add(x).Scale(3)
			at = here()
			h = h.Move().Dot(w, "in")
			return f.Return(h.SwiGLU(h).Softmax("hidden").To(fucina.F16).Narrow("batch", 0, 1))
		}
		for range 3 {
			y := forward()
			text := lines(at, 1) + `: dot over "in": left {batch:2 wrong:3}, right {in:3 hidden:4}: no axis "in"`
			if err := y.Err(); err == nil || err.Error() != text || !errors.Is(err, fucina.ErrTag) {
				t.Errorf("got %v, want %s", err, text)
			}
			if again := y.Scale(1).Add(x).Dot(y, "a"); again.Err() != y.Err() || x.CopyFrom(y).Err() != y.Err() {
				t.Errorf("the failure became %v", again.Err())
			}
			if _, err := fucina.Data[float32](y); err != y.Err() {
				t.Errorf("data gives %v", err)
			}
			if y.Valid() || y.Len() != 0 || y.Axes() != nil || y.DType() != 0 || y.Dim("a") != 0 || y.Expect("a").Err() != y.Err() || y.Shared().Err() != y.Err() {
				t.Errorf("a failed tensor has %d elements, axes %v", y.Len(), y.Axes())
			}
			y.Release()
		}
		if s := e.Stats(); s.Handles != before.Handles || s.Pool.Outstanding != before.Pool.Outstanding {
			t.Errorf("%d tensors and %d buffers, %d and %d before", s.Handles, s.Pool.Outstanding, before.Handles, before.Pool.Outstanding)
		}
		want(t, x, "{batch:2 wrong:3}", []float32{1, 2, 3, 4, 5, 6})
	})
}

// Every operation on a failed tensor gives its failure, whatever operand it is, and computes
// nothing.
func TestFailedOperands(t *testing.T) {
	c, end := open(t)
	x, mine := numbered(c, "d:3"), errors.New("mine")
	for name, bad := range map[string]fucina.Tensor{
		"of the context": c.Fail(mine), "moved": c.Fail(mine).Move(), "of no context": (*fucina.Context)(nil).Fail(mine),
	} {
		before := c.Engine().Stats()
		for op, y := range inContext(c, bad, x) {
			if y.Valid() || y.Err() != bad.Err() {
				t.Errorf("%s of a failed tensor %s: %v, want %v", op, name, y, bad)
			}
		}
		if s := c.Engine().Stats(); s.Handles != before.Handles || s.CPU != before.CPU {
			t.Errorf("%s: %d tensors, %d before, and %+v", name, s.Handles, before.Handles, s.CPU)
		}
	}
	end()
}

// A failure that has not been looked at is reported once: by the innermost frame that returns
// a tensor, by the context, or by the engine. Printing does not look at a failure. A look
// covers the later failures too.
func TestUnseenFailures(t *testing.T) {
	mine := func(i int) error { return fmt.Errorf("failure %d", i) }
	for _, tt := range []struct {
		name string
		do   func(e *fucina.Engine, c *fucina.Context) error
		want string // "" if no failure is reported
	}{
		{"nothing failed", func(e *fucina.Engine, c *fucina.Context) error { return errors.Join(c.Err(), c.Sync()) }, ""},
		{"context", func(_ *fucina.Engine, c *fucina.Context) error { return c.Err() }, "failure 0"},
		{"sync", func(_ *fucina.Engine, c *fucina.Context) error { return c.Sync() }, "failure 0"},
		{"close", func(_ *fucina.Engine, c *fucina.Context) error { return c.Close() }, "failure 0"},
		{"engine, with frames open", func(e *fucina.Engine, c *fucina.Context) error {
			c.Ones(fucina.F32)
			c.Scope()
			c.Ones(fucina.F32)
			return e.Close()
		}, "failure 0"},
		{"frame around", func(_ *fucina.Engine, c *fucina.Context) error { return c.Frame().Return(c.Ones(fucina.F32)).Err() }, ""},
		{"in a frame", func(_ *fucina.Engine, c *fucina.Context) error {
			f := c.Frame()
			c.Fail(mine(1))
			c.Fail(mine(2))
			return f.Return(c.Ones(fucina.F32)).Err()
		}, "failure 1"},
		{"in a frame inside", func(_ *fucina.Engine, c *fucina.Context) error {
			f := c.Frame()
			for range c.Frames(3) {
				c.Fail(mine(1))
			}
			return f.Keep(c.Ones(fucina.F32)).Err()
		}, "failure 1"},
		{"in a scope", func(_ *fucina.Engine, c *fucina.Context) error {
			s := c.Scope()
			c.Fail(mine(1))
			return s.Keep(c.Ones(fucina.F32)).Err()
		}, "failure 1"},
		{"before its argument's own", func(_ *fucina.Engine, c *fucina.Context) error {
			f := c.Frame()
			c.Fail(mine(1))
			return f.Return(c.Fail(mine(2))).Err()
		}, "failure 1"},
		{"looked at", func(_ *fucina.Engine, c *fucina.Context) error {
			f := c.Frame()
			first := c.Fail(mine(1))
			c.Fail(mine(2)) // in most programs a consequence of the first failure
			if first.Err() == nil {
				return errors.New("no failure")
			}
			return f.Return(c.Ones(fucina.F32)).Err()
		}, ""},
		{"only the second looked at", func(_ *fucina.Engine, c *fucina.Context) error {
			f := c.Frame()
			c.Fail(mine(1))
			if c.Fail(mine(2)).Err() == nil {
				return errors.New("no failure")
			}
			return f.Return(c.Ones(fucina.F32)).Err()
		}, "failure 1"},
		{"printed", func(_ *fucina.Engine, c *fucina.Context) error {
			f := c.Frame()
			_ = fmt.Sprintf("%v %+v", c.Fail(mine(1)), c.Fail(mine(2)))
			return f.Return(c.Ones(fucina.F32)).Err()
		}, "failure 1"},
		{"after a look", func(_ *fucina.Engine, c *fucina.Context) error {
			f := c.Frame()
			if c.Fail(mine(1)).Err() == nil {
				return errors.New("no failure")
			}
			c.Fail(mine(2))
			return f.Return(c.Ones(fucina.F32)).Err()
		}, "failure 2"},
		{"elements of another type", func(_ *fucina.Engine, c *fucina.Context) error {
			f := c.Frame()
			for range fucina.All[int8](c.Ones(fucina.F32)) {
				return errors.New("a value")
			}
			return f.Return(c.Ones(fucina.F32)).Err()
		}, "data: f32 {} read as i8"},
		{"a loop over the elements of what failed", func(_ *fucina.Engine, c *fucina.Context) error {
			f := c.Frame()
			bad := c.Fail(mine(1))
			for range fucina.All[float32](bad) {
				return errors.New("a value")
			}
			err := f.Return(c.Ones(fucina.F32)).Err()
			if err != bad.Err() {
				return fmt.Errorf("another failure: %w", err)
			}
			return err
		}, "failure 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, end := open(t)
			if tt.name != "nothing failed" {
				c.Fail(mine(0))
			}
			err := tt.do(c.Engine(), c)
			if (err == nil) != (tt.want == "") || err != nil && (!strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "another")) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			_ = c.Err()
			if err := c.Err(); err != nil {
				t.Errorf("reported again: %v", err)
			}
			end()
		})
	}
}

// Fail returns a failure unchanged, so that its place remains the place where it happened.
func TestFail(t *testing.T) {
	c, end := open(t)
	x := numbered(c, "d:2")
	err := x.Rename("no", "n").Err()
	if y := c.Fail(err); y.Err() != err {
		t.Errorf("fail of a failure: %v, want %v", y, err)
	}
	if y := x.FailIf(err); y.Err() != err {
		t.Errorf("fail if a failure: %v, want %v", y, err)
	}
	if y := x.FailIf(nil); y != x {
		t.Errorf("fail if nothing failed: %v", y)
	}
	if y := c.Fail(err).FailIf(errors.New("later")); y.Err() != err {
		t.Errorf("the first failure became %v", y)
	}
	end()
}

// Debug traces each operation, calls OnFailure once for each failure, and makes an operation
// fail if its result has a NaN.
func TestDebug(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		x, w := numbered(c, "batch:2 d:3"), numbered(c, "hiden:3")
		var trace []string
		var failed []error
		c.Debug(fucina.DebugOptions{
			Trace:     func(line string) { trace = append(trace, line) },
			OnFailure: func(err error) { failed = append(failed, err) },
		})
		at := here()
		y := x.Scale(2).
			Add(w)
		x.Dot(w, "d").Softmax("d") // the second operation adds no failure of its own
		z := x.Narrow("batch", 0, 1)
		fucina.Attention(x, x, x, fucina.AttentionOptions{})
		w.Mul(numbered(c, "hiden:3"))
		c.Ones(fucina.F32).Mul(w)
		want := []string{
			lines(at, 1) + " scale {batch:2 d:3} -> f32 {batch:2 d:3}",
			lines(at, 2) + " add outer {batch:2 d:3} {hiden:3} -> f32 {batch:2 d:3 hiden:3}",
			lines(at, 4) + " narrow {batch:2 d:3} -> f32 {batch:1 d:3}",
			lines(at, 6) + " mul {hiden:3} {hiden:3} -> f32 {hiden:3}",
			lines(at, 7) + " to {} -> f32 {}",
			lines(at, 7) + " broadcast {} -> f32 {}",
			lines(at, 7) + " copy {} -> f32 {}",
			lines(at, 7) + " mul {} {hiden:3} -> f32 {hiden:3}",
		}
		if !slices.Equal(trace, want) {
			t.Errorf("trace\n%s\nwant\n%s", strings.Join(trace, "\n"), strings.Join(want, "\n"))
		}
		if len(failed) != 2 || !strings.HasPrefix(failed[0].Error(), lines(at, 3)+": dot") || !strings.HasPrefix(failed[1].Error(), lines(at, 5)+": attention") {
			t.Errorf("OnFailure was called with %q", failed)
		}
		if err := c.Err(); err != failed[0] {
			t.Errorf("OnFailure is a look: %v", err)
		}
		c.Debug(fucina.DebugOptions{})
		x.Scale(2)
		if y.Err() != nil || z.Err() != nil || len(trace) != len(want) {
			t.Errorf("debugging goes on: %d lines", len(trace))
		}
	})
}

// Trace and OnFailure may use the context, and may panic: they are not called for what they
// do, nothing leaks, and the context works on.
func TestDebugUsesItsContext(t *testing.T) {
	c, end := open(t)
	x := numbered(c, "d:2")
	before := c.Engine().Stats()
	f := c.Frame()
	lines, failed := 0, 0
	c.Debug(fucina.DebugOptions{
		Trace: func(string) {
			lines++
			if err := x.Scale(2).Err(); err != nil {
				t.Error(err)
			}
		},
		OnFailure: func(error) {
			failed++
			if x.Rename("no", "n").Err() == nil || x.Scale(2).Err() != nil {
				t.Error("operations of OnFailure")
			}
		},
	})
	for range 2 {
		if x.Scale(2).Err() != nil || x.Rename("no", "n").Err() == nil {
			t.Error("operations of the program")
		}
	}
	if lines != 2 || failed != 2 {
		t.Errorf("%d lines and %d failures, want two of each: none of what the functions do", lines, failed)
	}
	traced := 0
	c.Debug(fucina.DebugOptions{Trace: func(string) {
		traced++
		c.Debug(fucina.DebugOptions{})
	}})
	for range 2 {
		x.Scale(2)
	}
	if traced != 1 {
		t.Errorf("%d lines after Trace has turned itself off", traced)
	}
	c.Debug(fucina.DebugOptions{Trace: func(string) { panic("trace") }})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is lost")
			}
		}()
		x.Scale(2)
	}()
	c.Debug(fucina.DebugOptions{})
	f.Close()
	if s := c.Engine().Stats(); s.Handles != before.Handles || s.Pool.Outstanding != before.Pool.Outstanding {
		t.Errorf("%d tensors and %d buffers, %d and %d before", s.Handles, s.Pool.Outstanding, before.Handles, before.Pool.Outstanding)
	}
	end()
}

// CheckNaN reports the first result that has a NaN or an infinity, with the operation and the
// axes of its operands.
func TestCheckNaN(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		c.Debug(fucina.DebugOptions{CheckNaN: true})
		f := c.Frame()
		x := fucina.FromSlice(c, []float32{1, 1e30, -1e30, 0}, ax("a:2 b:2")...)
		inf := fucina.FromSlice(c, []float32{float32(math.Inf(1))})
		for text, y := range map[string]fucina.Tensor{
			"mul: left {a:2 b:2}, right {a:2 b:2}": x.Mul(x).Permute("b", "a"),
			"copy of f32 {}":                       inf.Copy(),
			"scale of f32 {}":                      inf.Scale(0),
			"copy from: destination {}, source {}": fucina.FromSlice(c, []float32{1}).CopyFrom(inf),
		} {
			if err := y.Err(); err == nil || !strings.HasSuffix(err.Error(), ": "+text+": the result has a NaN or an infinity") {
				t.Errorf("%s: %v", text, err)
			}
		}
		for name, y := range map[string]fucina.Tensor{"finite": x.Scale(2), "view": x.Permute("b", "a").Narrow("a", 1, 1), "ints": x.Argmax("a")} {
			if err := y.Err(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		f.Close()
		c.Debug(fucina.DebugOptions{})
		if err := inf.Copy().Err(); !errors.Is(err, fucina.ErrReleased) {
			t.Errorf("after the frame: %v", err)
		}
	})
}

// nil and the zero Failure are no failure, and printing them does not panic.
func TestNoFailure(t *testing.T) {
	c, end := open(t)
	for _, f := range []*fucina.Failure{nil, {}} {
		if f.Error() != "no failure" || f.Unwrap() != nil || fmt.Sprintf("%+v", f) != "no failure" {
			t.Errorf("%+v", f)
		}
		if err := c.Fail(f).Err(); err == nil || !strings.HasSuffix(err.Error(), ": fail: no error") {
			t.Errorf("failed with no failure: %v", err)
		}
	}
	end()
}
