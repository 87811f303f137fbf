package fucina_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/storage"
)

// Guards this fault: an operation read or wrote the memory of another engine at the address
// of its operand. Every operation refuses an operand of another engine, and names both
// engines.
func TestTensorOfAnotherEngine(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		for _, name := range providerNames {
			far, end := open(t, fucina.WithProvider(name), fucina.WithThreads(1))
			x, y := numbered(far, "d:3"), numbered(c, "d:3")
			x, y = x.Add(x), y.Add(y) // the results are on the devices
			here, there := c.Engine().String(), far.Engine().String()
			if here == there || !strings.HasSuffix(there, "("+name+")") {
				t.Errorf("engines called %s and %s", here, there)
			}
			f := c.Frame()
			kept := f.Return(x)
			results := inContext(c, x, y)
			results["keep"] = kept
			for op, z := range results {
				op, _, _ = strings.Cut(op, ",")
				refused(t, z.Err(), fucina.ErrEngine, ": "+op+": ", "f32 {d:3} belongs to "+there, "the context to "+here)
			}
			want(t, y, "{d:3}", []float32{2, 4, 6})
			want(t, x, "{d:3}", []float32{2, 4, 6})
			end()
		}
	})
}

// A buffer belongs to one engine for life. A device of another engine would have a second
// copy, and the first engine would not invalidate it.
func TestWeightOfAnotherEngine(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		k := check{t}
		far, end := open(t)
		released := 0
		buf := storage.Borrow(make([]byte, 8), storage.BorrowOptions{OnRelease: func() { released++ }})
		buf.Retain()
		buf.Retain()
		one := k.of(c.Engine().Weight(buf, fucina.F32, ax("d:2")...))
		two := k.of(c.Engine().Weight(buf, fucina.F16, ax("e:4")...))
		_, err := far.Engine().Weight(buf, fucina.F32, ax("d:2")...)
		here, _, _ := strings.Cut(c.Engine().String(), " (")
		refused(t, err, fucina.ErrEngine, "weight {d:2}: the buffer belongs to "+here, "not to "+far.Engine().String())
		drop(one, two)
		_, err = far.Engine().Weight(buf, fucina.F32, ax("d:2")...)
		refused(t, err, fucina.ErrEngine)
		if released != 0 {
			t.Error("a refused Weight took the buffer")
		}
		buf.Release()
		if released != 1 {
			t.Errorf("the loan ended %d times", released)
		}
		end()
	})
}

// Weight fails if the size of the buffer is not the size that the axes give. A buffer that is
// too large would hide an axis with a wrong size.
func TestWeightSize(t *testing.T) {
	c, end := open(t)
	buf, err := storage.New(64 * 64 * 4)
	if err != nil {
		t.Fatal(err)
	}
	for axes, bytes := range map[string]int{"out:5 in:64": 1280, "out:65 in:64": 16640} {
		_, err := c.Engine().Weight(buf, fucina.F32, ax(axes)...)
		refused(t, err, fucina.ErrInvalidDataLength, "weight {"+axes+"}", "16384 bytes", fmt.Sprintf("want %d bytes of f32", bytes))
	}
	_, err = c.Engine().Weight(nil, fucina.F32, ax("d:2")...)
	refused(t, err, fucina.ErrInvalidDataLength, "weight {d:2}", "no buffer", "8 bytes of f32")
	drop(check{t}.of(c.Engine().Weight(buf, fucina.F32, ax("out:64 in:64")...)))
	end()
}

// A buffer becomes a second weight while another goroutine computes with the first, as with
// tied weights. The race detector finds unsynchronized access.
func TestTiedWeights(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		k, e := check{t}, c.Engine()
		buf, err := storage.New(64)
		if err != nil {
			t.Fatal(err)
		}
		buf.Retain()
		first := k.of(e.Weight(buf, fucina.F32, ax("n:4 k:4")...))
		x := numbered(c, "k:4")
		if err := first.On(c).CopyFrom(first).Err(); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() { want(t, x.Dot(first, "k"), "{n:4}", make([]float32, 4)) })
		second := k.of(e.Weight(buf, fucina.F32, ax("m:4 k:4")...))
		wg.Wait()
		drop(first, second)
	})
}

// No method panics if its arguments are zero: not on nil, on the zero value or on a live
// receiver, and neither with nor without a live context.
func TestZeroArguments(t *testing.T) {
	c, end := open(t)
	x := numbered(c, "d:2")
	for _, tt := range []struct {
		name     string
		receiver any
		dead     bool // the receiver was never opened, so every method that can fail does
	}{
		{"nil context", (*fucina.Context)(nil), true},
		{"zero context", new(fucina.Context), true},
		{"zero frame", fucina.Frame{}, true},
		{"zero scope", fucina.Scope{}, true},
		{"nil engine", (*fucina.Engine)(nil), true},
		{"zero engine", new(fucina.Engine), true},
		{"zero tensor", fucina.Tensor{}, true},
		{"shared tensor", x.Ref().Shared(), false},
		{"tensor", x, false},
		{"context", c, false},
		{"frame", c.Frame(), false},
		{"scope", c.Scope(), false},
		{"engine", c.Engine(), false},
	} {
		v := reflect.ValueOf(tt.receiver)
		for i := range v.NumMethod() {
			m, method := v.Method(i), v.Type().Method(i).Name
			if !tt.dead && (method == "Close" || method == "Release") {
				continue
			}
			for _, with := range []*fucina.Context{nil, {}, c} {
				err, fails := callWithZeros(t, tt.name+": "+method, m, with)
				// Err of a receiver that has not failed, the second Close, and methods that
				// return their receiver give no error.
				fine := method == "Err" || method == "Close" || method == "On" || method == "Move" || method == "FailIf"
				if err == nil && tt.dead && fails && !fine {
					t.Errorf("%s: %s gives no error", tt.name, method)
				}
			}
		}
		if y, ok := tt.receiver.(fucina.Tensor); ok && y.Context() == nil {
			y.Release()
		}
	}
	for _, with := range []*fucina.Context{nil, {}} {
		for name, y := range inContext(with, x, x) {
			if y.Err() == nil {
				t.Errorf("%s without a context", name)
			}
		}
		for name, y := range map[string]fucina.Tensor{
			"from slice": fucina.FromSlice(with, []float32{1}), "range": with.Range("d", 2), "zeros": with.Zeros(fucina.F32),
			"fail": with.Fail(fucina.ErrClosed), "frame": with.Frame().Return(x), "scope": with.Scope().Keep(x),
		} {
			if !errors.Is(y.Err(), fucina.ErrClosed) {
				t.Errorf("%s without a context: %v", name, y)
			}
		}
		for range with.Frames(1) {
			with.SetCancel(t.Context())
			with.Debug(fucina.DebugOptions{CheckNaN: true})
		}
	}
	e, err := fucina.Open(nil, fucina.WithProvider("cpu"), fucina.WithDevice(nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	end()
}

// callWithZeros calls the method with the context for its parameters of type *Context, and
// with zeros for the others. It returns the error of the call, and whether the method can
// fail. It releases results that have no owner.
func callWithZeros(t *testing.T, name string, m reflect.Value, c *fucina.Context) (err error, fails bool) {
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("%s panics: %v", name, p)
		}
	}()
	args := make([]reflect.Value, m.Type().NumIn())
	for i := range args {
		args[i] = reflect.Zero(m.Type().In(i))
		switch args[i].Type() {
		case reflect.TypeFor[*fucina.Context]():
			args[i] = reflect.ValueOf(c)
		case reflect.TypeFor[fmt.State](): // fmt never passes nil
			return nil, false
		}
	}
	call := m.Call
	if m.Type().IsVariadic() {
		call = m.CallSlice
	}
	for _, out := range call(args) {
		if text := fmt.Sprintf("%+v", out.Interface()); strings.Contains(text, "PANIC=") {
			t.Errorf("%s: printing the result panics: %s", name, text)
		}
		switch v := out.Interface().(type) {
		case fucina.Tensor:
			err, fails = v.Err(), true
		case *fucina.Context:
			if err := v.Close(); err != nil {
				t.Error(err)
			}
		case error:
			err = v
		}
		fails = fails || out.Type() == reflect.TypeFor[error]()
	}
	return err, fails
}
