package fucina_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fucina-go/fucina"
)

// decoder is a layer of a language model with a KV cache.
type decoder struct {
	tokens, q, kv, o fucina.Tensor // {vocab model}, {model o}, {model o}, {o model}
	k, v             fucina.Tensor // {key kv_head d}
}

func (m *decoder) forward(ids fucina.Tensor, past int) fucina.Tensor {
	f := ids.Frame()
	c, n := ids.Context(), ids.Dim("seq")
	heads := func(t fucina.Tensor, name string) fucina.Tensor {
		return t.Split("o", fucina.Ax(name, 2), fucina.Ax("d", -1))
	}
	x := m.tokens.Gather(ids, "vocab")
	kv := heads(x.Dot(m.kv, "model"), "kv_head").Rename("seq", "key")
	m.k.On(c).Narrow("key", past, n).CopyFrom(kv)
	m.v.On(c).Narrow("key", past, n).CopyFrom(kv)
	k, v := m.k.On(c).Narrow("key", 0, past+n), m.v.On(c).Narrow("key", 0, past+n)
	a := fucina.Attention(heads(x.Dot(m.q, "model"), "head"), k, v, fucina.AttentionOptions{Scale: 0.5, Past: past})
	x = x.Move().Add(a.Merge("o", "head", "d").Dot(m.o, "o"))
	return f.Return(x.Narrow("seq", n-1, 1).Dot(m.tokens, "model"))
}

func (m *decoder) generate(ctx context.Context, c *fucina.Context, prompt []int32, n int) (out []int, err error) {
	c.SetCancel(ctx)
	defer c.SetCancel(context.Background())
	past, next := 0, prompt
	for range c.Frames(n) {
		id, err := m.forward(fucina.FromSlice(c, next, fucina.Ax("seq", len(next))), past).Argmax("vocab").Int()
		if err != nil {
			return out, err
		}
		out = append(out, id)
		past, next = past+len(next), []int32{int32(id)}
	}
	return out, nil
}

// A loop of decoding holds the tensors of one step. If a write to the cache fails, the step
// fails, although nothing reads the result of the write.
func TestDecoderProgram(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		k, e, r := check{t}, c.Engine(), rand.New(rand.NewPCG(1, 2))
		w := func(axes string) fucina.Tensor { return c.Normal(r, 1, ax(axes)...) }
		cache := func(axes string) fucina.Tensor { return k.of(e.Empty(fucina.F16, ax(axes)...)) }
		m := &decoder{w("vocab:13 model:8"), w("model:8 o:8"), w("model:8 o:8"), w("o:8 model:8"),
			cache("key:12 kv_head:2 d:4"), cache("key:12 kv_head:2 d:4")}
		defer drop(m.k, m.v)
		before := e.Stats()
		all, err := m.generate(t.Context(), c, []int32{1, 2, 3}, 10)
		if err != nil || len(all) != 10 {
			t.Fatal(all, err)
		}
		// The same tokens in one step, and one token with the contents of the cache.
		prompt := []int32{1, 2, 3}
		for _, id := range all[:5] {
			prompt = append(prompt, int32(id))
		}
		if again, err := m.generate(t.Context(), c, prompt, 1); err != nil || again[0] != all[5] {
			t.Errorf("token 5 is %v, want %d; %v", again, all[5], err)
		}
		_, err = m.generate(t.Context(), c, prompt, 9)
		refused(t, err, fucina.ErrIndexOutOfBounds, `program_test.go:`, `narrow over "key" of f16 {key:12 kv_head:2 d:4}: 1 entries from 12 on, of 12`)
		good := m.v
		m.v = cache("key:12 kv_head:2 dd:4")
		_, err = m.generate(t.Context(), c, prompt, 1)
		refused(t, err, fucina.ErrTag, "copy from: destination {key:8 kv_head:2 dd:4}, source {key:8 kv_head:2 d:4}")
		m.v.Release()
		m.v = good
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = m.generate(gone, c, prompt, 1)
		refused(t, err, context.Canceled)
		if s := e.Stats(); s.Handles != before.Handles {
			t.Errorf("%d tensors, %d before", s.Handles, before.Handles)
		}
	})
}

// last returns the final state of a gated recurrence over time. It holds the tensors of one
// step.
func last(x, w, h0 fucina.Tensor) fucina.Tensor {
	f := x.Frame()
	h := h0.Ref() // Replace ends h, so h must not be the argument
	for i := range x.Context().Frames(x.Dim("time")) {
		in := x.Narrow("time", i, 1).Merge("in", "time", "in")
		next := h.Scale(0.5).Add(in.Dot(w, "in").SwiGLU(h))
		if err := fucina.Replace(&h, next); err != nil {
			return f.Return(h.FailIf(err))
		}
	}
	return f.Return(h)
}

// A recurrence uses the same amount of memory for any number of steps. With an input that has
// failed, the loop runs zero times, and the result is that failure and not the first state.
func TestRecurrenceProgram(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		e, r := c.Engine(), rand.New(rand.NewPCG(5, 6))
		w, h := c.Normal(r, 1, ax("in:3 hidden:4")...), c.Normal(r, 1, ax("hidden:4")...)
		x := c.Normal(r, 1, ax("time:200 in:3")...)
		before := e.Stats().Handles
		most := int64(0)
		c.Debug(fucina.DebugOptions{Trace: func(string) { most = max(most, e.Stats().Handles-before) }})
		y := last(x, w, h)
		c.Debug(fucina.DebugOptions{})
		if n := e.Stats().Handles - before; y.Err() != nil || n != 1 || most > 8 || !h.Valid() || y.Dim("hidden") != 4 {
			t.Errorf("%v, %d tensors more, %d at most", y, n, most)
		}
		for name, x := range map[string]fucina.Tensor{
			"failed": x.Rename("tim", "t"), "without the axis": x.Rename("time", "t"), "with another size": x.Narrow("in", 0, 2),
		} {
			if y := last(x, w, h); y.Err() == nil {
				t.Errorf("an input that is %s gives %v", name, y)
			}
		}
	})
}

// evaluate classifies rows with the weight w, in a context of its own.
func evaluate(ctx context.Context, e *fucina.Engine, w fucina.Tensor, rows []float32) (y []float32, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	c, err := e.NewContext()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }() // ends every tensor of the worker
	c.SetCancel(ctx)
	x := fucina.FromSlice(c, rows, fucina.Ax("batch", len(rows)/3), fucina.Ax("in", 3))
	return fucina.Data[float32](x.Dot(w, "in").Softmax("class"))
}

// Four workers share a weight, and each has a context and a deadline. When one worker fails,
// the others stop, and every tensor that they made ends with its context.
func TestWorkersProgram(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		e := c.Engine()
		w := c.Ones(fucina.F32, ax("in:3 class:2")...).Shared()
		defer w.Release()
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				rows := make([]float32, 6)
				if i == 2 {
					rows = rows[:5]
				}
				y, err := evaluate(ctx, e, w, rows)
				if err != nil {
					cancel(err) // the others end with context.Canceled; the cause is this error
				} else if len(y) != 4 || y[0] != 0.5 {
					t.Errorf("a worker has %v", y)
				}
			})
		}
		wg.Wait()
		refused(t, context.Cause(ctx), fucina.ErrInvalidDataLength, "program_test.go:", "from slice {batch:1 in:3}")
		if n := e.Stats().Handles; n != 1 {
			t.Errorf("%d tensors left, want the weight", n)
		}
	})
}

// server answers requests with a pool of contexts.
type server struct {
	pool chan *fucina.Context
	w    fucina.Tensor
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var c *fucina.Context
	select {
	case c = <-s.pool:
	case <-r.Context().Done():
		return
	}
	defer func() { s.pool <- c }()
	f := c.Frame()
	defer f.Close() // ends every tensor of the request on return, panic and disconnect
	c.SetCancel(r.Context())
	defer c.SetCancel(context.Background())

	var in []float32
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil || len(in) == 0 {
		http.Error(w, "want numbers", http.StatusBadRequest)
		return
	}
	p, err := fucina.Data[float32](model(fucina.FromSlice(c, in, fucina.Ax("batch", 1), fucina.Ax("in", len(in))), s.w))
	switch {
	case errors.Is(err, context.Canceled):
		return
	case errors.Is(err, fucina.ErrTag), errors.Is(err, fucina.ErrShapeMismatch):
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
	case err != nil:
		http.Error(w, "internal", http.StatusInternalServerError)
	default:
		_ = json.NewEncoder(w).Encode(p)
	}
}

func model(x, w fucina.Tensor) fucina.Tensor {
	f := x.Frame() // the request's frame closes it after the panic below
	y := x.Dot(w, "in")
	if x.Dim("in") == 3 && y.Dim("class") == 0 {
		panic("a bug of the model")
	}
	return f.Return(y.Softmax("class"))
}

// A handler leaks nothing on any path. The failure or the panic of one request does not affect
// the next request.
func TestHandlerProgram(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		e := c.Engine()
		good, bug := c.Zeros(fucina.F32, ax("in:3 class:2")...), c.Zeros(fucina.F32, ax("in:3 klass:2")...)
		s := &server{make(chan *fucina.Context, 1), good}
		s.pool <- c
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		before := e.Stats().Handles
		for i, tt := range []struct {
			ctx  context.Context
			w    fucina.Tensor
			body string
			code int
			text string
		}{
			{t.Context(), good, "[1,2,3]", 200, "[0.5,0.5]"},
			{t.Context(), good, "x", 400, "want numbers"},
			{t.Context(), good, "[1,2]", 422, `dot over "in": left {batch:1 in:2}, right {in:3 class:2}: axis "in" is 2 and 3`},
			{t.Context(), bug, "[1,2,3]", -1, ""},
			{gone, good, "[1,2,3]", 200, ""},
			{t.Context(), good, "[1,2,3]", 200, "[0.5,0.5]"},
		} {
			s.w = tt.w
			w := httptest.NewRecorder()
			func() {
				defer func() {
					if recover() != nil {
						w.Code = -1
					}
				}()
				s.ServeHTTP(w, httptest.NewRequestWithContext(tt.ctx, "POST", "/", strings.NewReader(tt.body)))
			}()
			if w.Code != tt.code || !strings.Contains(w.Body.String(), tt.text) {
				t.Errorf("request %d: %d %s, want %d %s", i, w.Code, w.Body, tt.code, tt.text)
			}
			if n := e.Stats().Handles; n != before {
				t.Errorf("request %d left %d tensors", i, n-before)
			}
		}
		// The panic came before the model looked at the failure of Dim.
		refused(t, c.Err(), fucina.ErrTag, "program_test.go:", `dim of f32 {batch:1 klass:2}: no axis "class"`)
	})
}

// power returns the first principal axis {d} of x {row d} and the number of rounds.
func power(x fucina.Tensor, limit int) (v fucina.Tensor, rounds int, err error) {
	f := x.Frame()
	defer f.Close()
	c := x.Context()
	v = c.Ones(fucina.F32, fucina.Ax("d", x.Dim("d")))
	for range c.Frames(limit) {
		rounds++
		y := x.Dot(v, "d").Dot(x, "row")
		norm, err := y.Dot(y, "d").Float()
		if err != nil {
			return fucina.Tensor{}, rounds, err
		}
		y = y.Scale(1 / math.Sqrt(norm))
		step := y.Add(v.Scale(-1))
		moved, err := step.Dot(step, "d").Float()
		if err != nil {
			return fucina.Tensor{}, rounds, err
		}
		if err := v.CopyFrom(y).Err(); err != nil {
			return fucina.Tensor{}, rounds, err
		}
		if moved < 1e-12 {
			break
		}
	}
	v = f.Keep(v)
	return v, rounds, v.Err()
}

// A loop can branch on values on the host, write in place and exit early.
func TestPowerProgram(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		x := fucina.FromSlice(c, []float32{3, 4, 6, 8, -4, 3}, ax("row:3 d:2")...) // 125 along 3:4, 25 across
		before := c.Engine().Stats().Handles
		v, rounds, err := power(x, 100)
		if err != nil || rounds > 20 {
			t.Fatalf("%v after %d rounds", err, rounds)
		}
		if p := values[float32](t, v); math.Abs(float64(p[0])-0.6) > 1e-5 || math.Abs(float64(p[1])-0.8) > 1e-5 {
			t.Errorf("the axis is %v, want 0.6, 0.8", p)
		}
		_, _, err = power(x.Rename("row", "rows"), 100)
		refused(t, err, fucina.ErrTag, `dot over "row": left {rows:3}, right {rows:3 d:2}: no axis "row"`)
		_, _, err = power(x.Rename("d", "e"), 100)
		refused(t, err, fucina.ErrInvalidShape, "ones {d:0}")
		refused(t, c.Err(), fucina.ErrTag, `program_test.go:`, `dim of f32 {row:3 e:2}: no axis "d"`) // the first failure
		v.Release()
		if n := c.Engine().Stats().Handles - before; n != 2 { // the two renamed arguments
			t.Errorf("%d tensors left", n)
		}
	})
}

// groupNorm divides each group of channels of x by the root mean square of the group.
func groupNorm(x fucina.Tensor, channel string, groups int, weight fucina.Tensor) fucina.Tensor {
	f := x.Frame()
	if groups < 1 {
		return f.Return(x.FailIf(fmt.Errorf("group norm: %d groups", groups)))
	}
	g := x.Split(channel, fucina.Ax("group", groups), fucina.Ax("in group", -1))
	one := x.Context().Ones(fucina.F32, fucina.Ax("in group", g.Dim("in group")))
	return f.Return(g.RMSNorm(one, "in group", 1e-6).Merge(channel, "group", "in group").Mul(weight))
}

// A function that is composed of operations returns their errors, and checks its own arguments
// with FailIf.
func TestComposedProgram(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		e := c.Engine()
		for _, tt := range []struct {
			name   string
			x, w   string
			groups int
			kind   error
			text   string
		}{
			{"plain", "batch:2 channel:6", "channel:6", 3, nil, ""},
			{"one channel a group", "channel:6 batch:2", "channel:6", 6, nil, ""},
			{"does not divide", "batch:2 channel:5", "channel:5", 3, fucina.ErrInvalidShape, `split over "channel" of f32 {batch:2 channel:5}`},
			{"no channel", "batch:2 chan:6", "channel:6", 3, fucina.ErrTag, `split over "channel" of f32 {batch:2 chan:6}: no axis "channel"`},
			{"weight of another size", "batch:2 channel:6", "channel:4", 3, fucina.ErrShapeMismatch, `axis "channel" is 6 and 4`},
			{"no groups", "batch:2 channel:6", "channel:6", 0, nil, "group norm: 0 groups"},
		} {
			f := c.Frame()
			x, w := numbered(c, tt.x), c.Ones(fucina.F32, ax(tt.w)...)
			before := e.Stats().Handles
			y := groupNorm(x, "channel", tt.groups, w).Expect("batch", "channel")
			v, err := fucina.Data[float32](y)
			switch {
			case tt.text == "":
				squares := 0.0
				for _, x := range v {
					squares += float64(x) * float64(x)
				}
				if err != nil || math.Abs(squares-12) > 1e-4 {
					t.Errorf("%s: %v, the squares add up to %v, want 12", tt.name, err, squares)
				}
			case tt.kind == nil:
				refused(t, err, err, "program_test.go:", tt.text)
			default:
				refused(t, err, tt.kind, "program_test.go:", tt.text)
			}
			y.Release()
			if n := e.Stats().Handles - before; n != 0 {
				t.Errorf("%s: %d tensors left", tt.name, n)
			}
			f.Close()
		}
	})
}

// layer is a helper of network. Its line alone does not show which call of it failed.
func layer(x, w, b fucina.Tensor) fucina.Tensor {
	f := x.Frame()
	return f.Return(x.Dot(w, "in").Add(b).Rename("hidden", "in"))
}

func network(x fucina.Tensor, ws, bs []fucina.Tensor) fucina.Tensor {
	f := x.Frame()
	for i := range ws {
		x = layer(x, ws[i], bs[i])
	}
	return f.Return(x.Softmax("in"))
}

// A misspelled axis of a bias gives an outer product. Expect reports it at the end, and the
// trace shows where it happened. The callers of a failure show which call of a shared helper
// failed.
func TestDebuggingProgram(t *testing.T) {
	c, end := open(t)
	x := c.Ones(fucina.F32, ax("batch:2 in:3")...)
	var ws, bs []fucina.Tensor
	for i := range 4 {
		name := map[bool]string{false: "hidden:3", true: "hiden:3"}[i == 2]
		ws, bs = append(ws, c.Ones(fucina.F32, ax("in:3 hidden:3")...)), append(bs, c.Ones(fucina.F32, ax(name)...))
	}
	if y := network(x, ws, bs); y.Err() != nil || y.Expect("batch", "in").Err() == nil {
		t.Errorf("a misspelled bias gives %v", y)
	}
	var outer []string
	c.Debug(fucina.DebugOptions{Trace: func(line string) {
		if strings.Contains(line, " outer ") {
			outer = append(outer, line)
		}
	}})
	network(x, ws, bs)
	c.Debug(fucina.DebugOptions{})
	if len(outer) != 1 || !strings.Contains(outer[0], "add outer {batch:2 hidden:3} {hiden:3} -> f32 {batch:2 hidden:3 hiden:3}") {
		t.Errorf("the trace has %q", outer)
	}
	ws[2] = c.Ones(fucina.F32, ax("inn:3 hidden:3")...)
	err := network(x, ws, bs).Err()
	refused(t, err, fucina.ErrTag, `dot over "in": left {batch:2 in:3}, right {inn:3 hidden:3}: no axis "in"`)
	if s := fmt.Sprintf("%+v", err); strings.Count(s, "called from program_test.go:") != 2 {
		t.Errorf("want the callers network and the test, got %s", s)
	}
	end()
}
