package fucina_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/dtype"
)

// The constructors of a context return tensors with the given dtype and axes.
func TestConstructors(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		want(t, c.Zeros(fucina.F32, ax("a:2 b:2")...), "f32 {a:2 b:2}", make([]float32, 4))
		want(t, c.Zeros(fucina.Bool, ax("a:2")...), "bool {a:2}", []bool{false, false})
		want(t, c.Ones(fucina.I32, ax("a:3")...), "i32 {a:3}", []int32{1, 1, 1})
		want(t, c.Ones(fucina.I64), "i64 {}", []int64{1})
		want(t, c.Full(fucina.F64, -2.5, ax("a:2")...), "f64 {a:2}", []float64{-2.5, -2.5})
		want(t, c.Full(fucina.U8, 7, ax("a:2")...), "u8 {a:2}", []uint8{7, 7})
		want(t, c.Full(fucina.F16, 0.5, ax("a:2")...).To(fucina.F32), "f32 {a:2}", []float32{0.5, 0.5})
		want(t, c.Range("i", 4), "i32 {i:4}", []int32{0, 1, 2, 3})
		want(t, c.Full(fucina.F32, 3, ax("a:2")...).CopyFrom(c.Ones(fucina.F32, ax("a:2")...)), "f32 {a:2}", []float32{1, 1})

		draw := func() *rand.Rand { return rand.New(rand.NewPCG(3, 4)) }
		const n = 20000
		d := fucina.Ax("d", n)
		sum := func(x fucina.Tensor) float64 { return floatOf(t, x.Dot(c.Ones(fucina.F32, d), "d")) / n }
		normal, uniform := c.Normal(draw(), 2, d), c.Uniform(draw(), -1, 3, d)
		if m, v := sum(normal), sum(normal.Mul(normal)); math.Abs(m) > 0.06 || math.Abs(v-4) > 0.16 {
			t.Errorf("normal: mean %v, mean of the squares %v, want 0 and 4", m, v)
		}
		if m, v := sum(uniform), sum(uniform.Mul(uniform)); math.Abs(m-1) > 0.04 || math.Abs(v-7.0/3) > 0.08 {
			t.Errorf("uniform: mean %v, mean of the squares %v, want 1 and 7/3", m, v)
		}
		for i, v := range values[float32](t, uniform) {
			if v < -1 || v > 3 {
				t.Fatalf("uniform: element %d is %v", i, v)
			}
		}
		r := draw()
		want(t, c.Normal(draw(), 1, ax("a:2 b:2")...), "{a:2 b:2}", []float32{
			float32(r.NormFloat64()), float32(r.NormFloat64()), float32(r.NormFloat64()), float32(r.NormFloat64()),
		})
		huge := math.MaxInt
		for _, tt := range []struct {
			y    fucina.Tensor
			kind error
			part string
		}{
			{c.Zeros(fucina.F32, ax("a:0")...), fucina.ErrInvalidShape, `: zeros {a:0}: axis "a" has size 0, want at least 1`},
			{c.Ones(fucina.F32, ax("a:1 a:1")...), fucina.ErrTag, `: ones {a:1 a:1}: axis "a" appears twice`},
			{c.Full(fucina.F32, 2, ax(":1")...), fucina.ErrTag, ": full {:1}: empty name"},
			{c.Zeros(dtype.Q4_0, ax("a:32")...), fucina.ErrDType, "q4_0"},
			{c.Zeros(dtype.Invalid), fucina.ErrDType, "to of f64 {}"},
			{c.Range("i", 0), fucina.ErrInvalidShape, "range {i:0}"},
			{c.Range("i", -1), fucina.ErrInvalidShape, "range {i:-1}"},
			{c.Range("", 1), fucina.ErrTag, "empty name"},
			{c.Range("i", huge), fucina.ErrOverflow, fmt.Sprintf("range {i:%d}", huge)},
			{c.Normal(draw(), 1, fucina.Ax("a", huge), fucina.Ax("b", huge)), fucina.ErrOverflow, "normal"},
			{c.Normal(draw(), 1, fucina.Ax("a", huge)), fucina.ErrOverflow, "normal"}, // an int counts the elements, and not their bytes
			{c.Uniform(draw(), 0, 1, ax("a:0")...), fucina.ErrInvalidShape, "uniform {a:0}"},
			{c.Uniform(nil, 0, 1), nil, "uniform: no source of random numbers"},
		} {
			err := tt.y.Err()
			if tt.kind == nil {
				tt.kind = err
			}
			refused(t, err, tt.kind, "value_test.go:", tt.part)
		}
	})
}

func floatOf(t *testing.T, x fucina.Tensor) float64 {
	t.Helper()
	v, err := x.Float()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Item returns the element unchanged, Float and Int convert it, and none of them leaks a
// tensor.
func TestItem(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		e := c.Engine()
		x := numbered(c, "a:1 b:3")
		best, mid := x.Argmax("b"), x.Narrow("b", 1, 1)
		h, b, shared := mid.To(fucina.F16), c.Ones(fucina.Bool), mid.Ref().Shared()
		defer shared.Release()
		before := e.Stats()
		for name, got := range map[string]func() (any, error){
			"i32 2":             func() (any, error) { return fucina.Item[int32](best) },
			"int 2":             func() (any, error) { return best.Int() },
			"float of an i32 2": func() (any, error) { return best.Float() },
			"f32 2":             func() (any, error) { return fucina.Item[float32](mid) },
			"float 2":           func() (any, error) { return mid.Float() },
			"int of an f32 2":   func() (any, error) { return mid.Int() },
			"float of an f16 2": func() (any, error) { return h.Float() },
			"shared f32 2":      func() (any, error) { return fucina.Item[float32](shared) },
			"driven f32 2":      func() (any, error) { return shared.On(c).Float() },
			"bool true":         func() (any, error) { return fucina.Item[bool](b) },
			"int of a bool 1":   func() (any, error) { return b.Int() },
		} {
			v, err := got()
			if err != nil || !strings.HasSuffix(name, fmt.Sprintf(" %v", v)) {
				t.Errorf("%s: %v, %v", name, v, err)
			}
		}
		look := func(_ any, err error) error { return err }
		bad := c.Fail(errors.New("mine"))
		refused(t, look(fucina.Item[float32](x)), fucina.ErrShapeMismatch, "item: f32 {a:1 b:3} has 3 elements, want one")
		refused(t, look(x.Float()), fucina.ErrShapeMismatch, ": float: f32 {a:1 b:3} has 3 elements, want one")
		refused(t, look(x.Int()), fucina.ErrShapeMismatch, ": int: f32 {a:1 b:3} has 3 elements, want one")
		refused(t, look(fucina.Item[float64](mid)), fucina.ErrDType, "f32 {a:1 b:1} read as f64")
		refused(t, look(bad.Float()), bad.Err(), "mine")
		refused(t, look(fucina.Item[bool](bad)), bad.Err())
		refused(t, look(fucina.Tensor{}.Int()), fucina.ErrReleased)
		if err := look(shared.Float()); err == nil || !strings.Contains(err.Error(), "choose one with On") {
			t.Errorf("float of a tensor without a context: %v", err)
		}
		if s := e.Stats(); s.Handles != before.Handles || s.Pool.Outstanding != before.Pool.Outstanding {
			t.Errorf("%d tensors, %d before; pool %+v, %+v before", s.Handles, before.Handles, s.Pool, before.Pool)
		}
	})
}

// All yields each element with its indices, in the order of the axes, for any layout.
func TestAll(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		x := numbered(c, "a:2 b:3")
		var got []string
		for at, v := range fucina.All[float32](x.Permute("b", "a")) {
			got = append(got, fmt.Sprint(at, v))
		}
		if s := strings.Join(got, " "); s != "[0 0] 1 [0 1] 4 [1 0] 2 [1 1] 5 [2 0] 3 [2 1] 6" {
			t.Errorf("got %s", s)
		}
		for at, v := range fucina.All[int32](c.Full(fucina.I32, 7)) {
			if len(at) != 0 || v != 7 {
				t.Errorf("a scalar has %v at %v", v, at)
			}
			got = nil
		}
		if got != nil {
			t.Error("a scalar has no element")
		}
		n := 0
		for range fucina.All[float32](x) {
			if n++; n == 2 {
				break
			}
		}
		if n != 2 {
			t.Errorf("%d turns after a break in the second", n)
		}
	})
}

// %v prints the dtype and the axes. %+v also prints the elements, shortened as NumPy does.
func TestPrinting(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		ended := c.Ones(fucina.F32)
		ended.Release()
		shared := c.Range("d", 2).Shared()
		defer shared.Release()
		inf := float32(math.Inf(1))
		long := c.Range("i", 1001)
		rows := c.Range("i", 2000).Split("i", ax("a:10 b:2 c:100")...)
		for _, tt := range []struct {
			x     fucina.Tensor
			brief string
			long  string // %+v prints it after brief
		}{
			{fucina.Tensor{}, "no tensor", ""},
			{ended, "ended tensor", ""},
			{c.Full(fucina.F32, 0.1), "f32 {}", "\n0.1"},
			{c.Full(fucina.F64, 1e7), "f64 {}", "\n1e+07"},
			{c.Ones(fucina.Bool, ax("d:2")...), "bool {d:2}", "\nd [1 1]"},
			{fucina.FromSlice(c, []int64{math.MaxInt64, -1234567}, ax("d:2")...), "i64 {d:2}", "\nd [9223372036854775807 -1234567]"},
			{fucina.FromSlice(c, []int32{1234567}), "i32 {}", "\n1234567"},
			{shared, "i32 {d:2}", "\nd [0 1]"},
			{fucina.FromSlice(c, []float32{1, -2.5, 1.0 / 3, inf, -inf, float32(math.NaN()), 123456789}, ax("d:7")...), "f32 {d:7}",
				"\nd [1 -2.5 0.333333 +Inf -Inf NaN 1.23457e+08]"},
			{c.Full(fucina.F16, 0.5, ax("d:2")...), "f16 {d:2}", "\nd [0.5 0.5]"},
			{numbered(c, "a:2 b:2").Permute("b", "a"), "f32 {b:2 a:2}", "\nb=0 a [1 3]\nb=1 a [2 4]"},
			{numbered(c, "a:2 b:2 c:1"), "f32 {a:2 b:2 c:1}", "\na=0 b=0 c [1]\n    b=1 c [2]\na=1 b=0 c [3]\n    b=1 c [4]"},
			{long.Narrow("i", 0, 8), "i32 {i:8}", "\ni [0 1 2 3 4 5 6 7]"},
			{long, "i32 {i:1001}", "\ni [0 1 2 ... 998 999 1000]"},
			{rows, "i32 {a:10 b:2 c:100}", strings.Join([]string{"",
				"a=0 b=0 c [0 1 2 ... 97 98 99]", "    b=1 c [100 101 102 ... 197 198 199]",
				"a=1 b=0 c [200 201 202 ... 297 298 299]", "    b=1 c [300 301 302 ... 397 398 399]",
				"a=2 b=0 c [400 401 402 ... 497 498 499]", "    b=1 c [500 501 502 ... 597 598 599]", "...",
				"a=7 b=0 c [1400 1401 1402 ... 1497 1498 1499]", "    b=1 c [1500 1501 1502 ... 1597 1598 1599]",
				"a=8 b=0 c [1600 1601 1602 ... 1697 1698 1699]", "    b=1 c [1700 1701 1702 ... 1797 1798 1799]",
				"a=9 b=0 c [1800 1801 1802 ... 1897 1898 1899]", "    b=1 c [1900 1901 1902 ... 1997 1998 1999]",
			}, "\n")},
			{c.Full(fucina.F32, 127, ax("d:32")...).To(fucina.Q8_0), "q8_0 {d:32}", "\nd [127" + strings.Repeat(" 127", 31) + "]"},
		} {
			if got := fmt.Sprintf("%v", tt.x); got != tt.brief {
				t.Errorf("%%v is %q, want %q", got, tt.brief)
			}
			if got := fmt.Sprintf("%+v", tt.x); got != tt.brief+tt.long {
				t.Errorf("%%+v is\n%s\nwant\n%s", got, tt.brief+tt.long)
			}
		}
		// Printing shows the error of a context that cannot run, and records no failure on it.
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		c.SetCancel(ctx)
		if got := fmt.Sprintf("%+v", long); !strings.HasPrefix(got, "i32 {i:1001}\n") || !strings.Contains(got, "context canceled") {
			t.Errorf("after a cancel: %s", got)
		}
		c.SetCancel(context.Background())
		if err := c.Err(); err != nil {
			t.Errorf("printing left %v", err)
		}
	})
}

// An operation runs on one context. Operands with different contexts are an error that names
// both contexts; On resolves it. A tensor without a context runs on that of the other operand.
func TestContexts(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		e := c.Engine()
		c2, err := e.NewContext()
		if err != nil {
			t.Fatal(err)
		}
		x, y, w := numbered(c, "d:2"), numbered(c2, "d:2"), numbered(c, "d:2").Shared()
		defer w.Release()
		both := "driven by " + c2.String() + ", the operation by " + c.String() + "; choose one with On"
		for name, z := range map[string]fucina.Tensor{
			"add: the right": x.Add(y), "copy from: the source": x.CopyFrom(y), "dot: the right": x.Dot(y, "d"),
			"attention: the value": fucina.Attention(x, w, y, fucina.AttentionOptions{}),
		} {
			refused(t, z.Err(), fucina.ErrContext, name+": f32 {d:2} is "+both)
		}
		for _, tt := range []struct {
			name string
			z    fucina.Tensor
			c    *fucina.Context
		}{
			{"chosen", x.Add(y.On(c)), c},
			{"the other one chosen", x.On(c2).Add(y), c2},
			{"shared on the left", w.Add(x), c},
			{"shared on the right", y.Add(w), c2},
			{"shared by both", w.On(c2).Add(w), c2},
		} {
			want(t, tt.z, "f32 {d:2}", []float32{2, 4})
			if tt.z.Context() != tt.c {
				t.Errorf("%s: driven by %v", tt.name, tt.z.Context())
			}
		}
		if a := w.Add(w).Err(); a == nil || !strings.Contains(a.Error(), "add: no context; choose one with On") {
			t.Errorf("no context: %v", a)
		}
		if w.Context() != nil || w.On(c).Shared().Context() != nil || !w.On(c).Same(w) || x.On(c2).Context() != c2 {
			t.Error("contexts of Shared and On")
		}
		// On changes the context that drives a tensor, not its owner.
		z := x.On(c2)
		if err := errors.Join(c2.Close(), z.On(c).Scale(2).Err()); err != nil || !x.Valid() || y.Valid() {
			t.Errorf("after the second context: %v, %v, %v", err, x, y)
		}
	})
}

// Goroutines exchange Shared tensors, and each goroutine uses its own context.
func TestSharedAcrossGoroutines(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		const n = 50
		results := make(chan fucina.Tensor, 2*n) // nobody may receive after a failure
		var workers sync.WaitGroup
		defer workers.Wait()
		for worker := range 2 {
			workers.Go(func() {
				own, err := c.Engine().NewContext()
				if err != nil {
					results <- own.Fail(err)
					return
				}
				for i, f := range own.Frames(n) {
					y := f.Keep(own.Full(fucina.F32, float64(worker*n+i), ax("d:3")...).Scale(2))
					if i == 7 {
						y = y.Rename("no", "n") // sends a failed tensor too
					}
					results <- y.Shared()
				}
				// Close returns the failure unless the receiver has looked at it.
				if err := own.Close(); err != nil && !errors.Is(err, fucina.ErrTag) {
					t.Error(err)
				}
			})
		}
		sum, failed := 0.0, 0
		for range 2 * n {
			y := <-results
			if y.Err() != nil {
				failed++
				continue
			}
			sum += floatOf(t, y.On(c).Narrow("d", 1, 1))
			y.Release()
		}
		if want := float64(2*n*(2*n-1) - 2*(7+n+7)); sum != want || failed != 2 {
			t.Errorf("the sum is %v and %d failed, want %v and 2", sum, failed, want)
		}
	})
}

// An operation ends the moved operands and no others, whether it succeeds or fails.
func TestMove(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		w := numbered(c, "d:2").Shared()
		defer w.Release()
		stale := numbered(c, "d:2")
		stale.Release()
		around := numbered(c, "d:2")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, tt := range []struct {
			name string
			do   func(x, y fucina.Tensor) fucina.Tensor
			err  error
			x, y bool // whether x and y are still valid
		}{
			{"one", func(x, y fucina.Tensor) fucina.Tensor { return x.Move().Scale(2) }, nil, false, true},
			{"left", func(x, y fucina.Tensor) fucina.Tensor { return x.Move().Add(y) }, nil, false, true},
			{"both", func(x, y fucina.Tensor) fucina.Tensor { return x.Move().Add(y.Move()) }, nil, false, false},
			{"the same", func(x, y fucina.Tensor) fucina.Tensor { return x.Move().Add(x.Move()) }, nil, false, true},
			{"into a view", func(x, y fucina.Tensor) fucina.Tensor { return x.Move().Rename("d", "e") }, nil, false, true},
			{"the source of a copy", func(x, y fucina.Tensor) fucina.Tensor { return x.CopyFrom(y.Move()) }, nil, true, false},
			{"wrong axis", func(x, y fucina.Tensor) fucina.Tensor { return x.Move().Dot(y, "no") }, fucina.ErrTag, false, true},
			{"with a failed one", func(x, y fucina.Tensor) fucina.Tensor {
				return x.Move().Add(y.Rename("no", "n"))
			}, fucina.ErrTag, false, true},
			{"with a stale one", func(x, y fucina.Tensor) fucina.Tensor { return x.Move().Add(stale) }, fucina.ErrReleased, false, true},
			{"with what a frame around owns", func(x, y fucina.Tensor) fucina.Tensor { return x.Move().Add(around.Move()) }, fucina.ErrNotOwned, false, true},
			{"with a shared one that is moved", func(x, y fucina.Tensor) fucina.Tensor { return x.Add(w.Move()) }, fucina.ErrNotOwned, true, true},
			{"cancelled", func(x, y fucina.Tensor) fucina.Tensor {
				c.SetCancel(ctx)
				defer c.SetCancel(context.Background())
				return x.Move().Add(y)
			}, context.Canceled, false, true},
			{"two steps", func(x, y fucina.Tensor) fucina.Tensor {
				y = y.Move()
				_ = y.Scale(2)
				return x.Add(y)
			}, fucina.ErrReleased, true, false},
		} {
			f := c.Frame()
			before := c.Engine().Stats().Handles
			x, y := numbered(c, "d:2"), numbered(c, "d:2")
			z := tt.do(x, y)
			if err := z.Err(); !errors.Is(err, tt.err) || x.Valid() != tt.x || y.Valid() != tt.y || !around.Valid() || !w.Valid() {
				t.Errorf("%s: %v, %v, %v", tt.name, z, x, y)
			}
			f.Close()
			if n := c.Engine().Stats().Handles; n != before {
				t.Errorf("%s: %d tensors, %d before", tt.name, n, before)
			}
		}
	})
}

// Expect takes the axes of a tensor in any order, and no others.
func TestExpect(t *testing.T) {
	c, end := open(t)
	x := numbered(c, "d:2 e:2")
	for _, tt := range []struct {
		axes string
		ok   bool
	}{{"d e", true}, {"e d", true}, {"d", false}, {"", false}, {"d d", false}, {"d e e", false}, {"d f", false}} {
		y := x.Expect(strings.Fields(tt.axes)...)
		if tt.ok {
			if y != x {
				t.Errorf("{%s}: %v", tt.axes, y.Err())
			}
			continue
		}
		refused(t, y.Err(), fucina.ErrTag, "expect: have {d:2 e:2}, want {"+tt.axes+"}")
	}
	end()
}

// caller is a source of random numbers that calls a function.
type caller func()

func (f caller) Uint64() uint64 { f(); return 1 }

// While the elements are drawn, the context is in use, so that nobody ends the memory. If the
// source panics, the memory goes back.
func TestDrawing(t *testing.T) {
	c, end := open(t)
	e := c.Engine()
	x := c.Uniform(rand.New(caller(func() {
		refused(t, e.Close(), fucina.ErrBusy)
		refused(t, c.Close(), fucina.ErrBusy)
		refused(t, c.Ones(fucina.F32).Err(), fucina.ErrBusy)
	})), 0, 1, ax("d:2")...)
	if err := x.Err(); err != nil {
		t.Error(err)
	}
	before := e.Stats().Pool.Outstanding
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic of the source is lost")
			}
		}()
		c.Normal(rand.New(caller(func() { panic("dry") })), 1, ax("d:2")...)
	}()
	if n := e.Stats().Pool.Outstanding; n != before {
		t.Errorf("%d buffers after a panic, %d before", n, before)
	}
	end()
}
