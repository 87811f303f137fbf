package fucina_test

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/storage"
)

// An operand of another engine once gave that engine's memory at the same address, or
// was written over it: every operation refuses it, and says which engines it is about.
func TestTensorOfAnotherEngine(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		for _, name := range providerNames {
			k := check{t}
			far, end := open(t, fucina.WithProvider(name), fucina.WithThreads(1))
			x, y := numbered(t, far, "d:3"), numbered(t, c, "d:3")
			x2, y2 := k.of(x.Add(far, x)), k.of(y.Add(c, y)) // on the devices
			here, there := c.Engine().String(), far.Engine().String()
			if here == there || !strings.HasSuffix(there, "("+name+")") {
				t.Errorf("engines called %s and %s", here, there)
			}
			for op, f := range inContext(c, x2, y2) {
				op, _, _ = strings.Cut(op, ",")
				refused(t, f(), fucina.ErrEngine, op+": f32 {d:3} belongs to "+there, "the context to "+here)
			}
			want(t, c, y2, "{d:3}", []float32{2, 4, 6})
			want(t, far, x2, "{d:3}", []float32{2, 4, 6})
			drop(t, x, x2, y, y2)
			end()
		}
	})
}

// A buffer is one engine's for life: a device of another one would have a second copy
// that the first knows nothing of.
func TestWeightOfAnotherEngine(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		k := check{t}
		far, end := open(t)
		released := 0
		buf := storage.Borrow(make([]byte, 8), storage.BorrowOptions{OnRelease: func() { released++ }})
		buf.Retain()
		buf.Retain()
		one := k.of(c.Engine().Weight(buf, dtype.F32, ax("d:2")...))
		two := k.of(c.Engine().Weight(buf, dtype.F16, ax("e:4")...))
		_, err := far.Engine().Weight(buf, dtype.F32, ax("d:2")...)
		here, _, _ := strings.Cut(c.Engine().String(), " (")
		refused(t, err, fucina.ErrEngine, "weight {d:2}: the buffer belongs to "+here, "not to "+far.Engine().String())
		drop(t, one, two)
		_, err = far.Engine().Weight(buf, dtype.F32, ax("d:2")...)
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

// A weight has the bytes that its axes say: with more, a wrong size went unnoticed.
func TestWeightSize(t *testing.T) {
	c, end := open(t)
	buf, err := storage.New(64 * 64 * 4)
	if err != nil {
		t.Fatal(err)
	}
	for axes, bytes := range map[string]int{"out:5 in:64": 1280, "out:65 in:64": 16640} {
		_, err := c.Engine().Weight(buf, dtype.F32, ax(axes)...)
		refused(t, err, fucina.ErrInvalidDataLength, "weight {"+axes+"}", "16384 bytes", fmt.Sprintf("want %d bytes of f32", bytes))
	}
	_, err = c.Engine().Weight(nil, dtype.F32, ax("d:2")...)
	refused(t, err, fucina.ErrInvalidDataLength, "weight {d:2}", "no buffer", "8 bytes of f32")
	drop(t, check{t}.of(c.Engine().Weight(buf, dtype.F32, ax("out:64 in:64")...)))
	end()
}

// Tied weights: a buffer becomes a second weight while another goroutine computes with
// the first, which the race detector watches.
func TestTiedWeights(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		k, e := check{t}, c.Engine()
		buf, err := storage.New(64)
		if err != nil {
			t.Fatal(err)
		}
		buf.Retain()
		first := k.of(e.Weight(buf, dtype.F32, ax("n:4 k:4")...))
		x := numbered(t, c, "k:4")
		if err := first.CopyFrom(c, first); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() { drop(t, k.of(x.Dot(c, first, "k"))) })
		second := k.of(e.Weight(buf, dtype.F32, ax("m:4 k:4")...))
		wg.Wait()
		drop(t, first, second, x)
	})
}

// Every method, called with arguments that are zero, ends in an error at worst: on nil,
// on the zero value and on a live receiver, with and without a live context.
func TestZeroArguments(t *testing.T) {
	c, end := open(t)
	x := numbered(t, c, "d:2")
	for _, tt := range []struct {
		name     string
		receiver any
		dead     bool // was never opened: every method that may fail does
	}{
		{"nil context", (*fucina.Context)(nil), true},
		{"zero context", new(fucina.Context), true},
		{"nil scope", (*fucina.Scope)(nil), true},
		{"zero scope", new(fucina.Scope), true},
		{"nil engine", (*fucina.Engine)(nil), true},
		{"zero engine", new(fucina.Engine), true},
		{"zero tensor", fucina.Tensor{}, true},
		{"tensor", x, false},
		{"engine", c.Engine(), false},
	} {
		v := reflect.ValueOf(tt.receiver)
		for i := range v.NumMethod() {
			m, name := v.Method(i), tt.name+": "+v.Type().Method(i).Name
			closes := strings.HasSuffix(name, ": Close")
			if !tt.dead && (closes || strings.HasSuffix(name, ": Release")) {
				continue
			}
			for _, with := range []*fucina.Context{nil, {}, c} {
				err := callWithZeros(t, name, m, with)
				switch {
				case err == nil && tt.dead && !closes && canFail(m.Type()):
					t.Errorf("%s gives no error", name)
				case err != nil && with != c && takesContext(m.Type()):
					refused(t, err, fucina.ErrClosed)
				}
			}
		}
	}
	for _, with := range []*fucina.Context{nil, {}} {
		_, err := fucina.FromSlice(with, []float32{1})
		refused(t, err, fucina.ErrClosed, "from slice: no context")
		_, err = fucina.Attention(with, x, x, x, fucina.AttentionOptions{})
		refused(t, err, fucina.ErrClosed, "attention: no context")
	}
	e, err := fucina.Open(nil, fucina.WithProvider("cpu"), fucina.WithDevice(nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	drop(t, x)
	end()
}

// callWithZeros calls the method with the context where it takes one and zeros
// elsewhere. It gives back what the call returned, and returns its error.
func callWithZeros(t *testing.T, name string, m reflect.Value, c *fucina.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("%s panics: %v", name, p)
		}
	}()
	args := make([]reflect.Value, m.Type().NumIn())
	for i := range args {
		args[i] = reflect.Zero(m.Type().In(i))
		if args[i].Type() == reflect.TypeOf(c) {
			args[i] = reflect.ValueOf(c)
		}
	}
	call := m.Call
	if m.Type().IsVariadic() {
		call = m.CallSlice
	}
	for _, out := range call(args) {
		switch out := out.Interface().(type) {
		case fucina.Tensor:
			if out != (fucina.Tensor{}) {
				drop(t, out)
			}
		case *fucina.Context:
			if err := out.Close(); err != nil {
				t.Error(err)
			}
		case error:
			err = out
		}
	}
	return err
}

func canFail(m reflect.Type) bool {
	return m.NumOut() > 0 && m.Out(m.NumOut()-1) == reflect.TypeFor[error]()
}

func takesContext(m reflect.Type) bool {
	for i := range m.NumIn() {
		if m.In(i) == reflect.TypeFor[*fucina.Context]() {
			return true
		}
	}
	return false
}
