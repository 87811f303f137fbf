package fucina

import (
	"errors"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
)

// While a call is inside a context, every other one on it is refused, and the
// engine does not close.
func TestBusy(t *testing.T) {
	e, err := Open(WithProvider("cpu"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := e.NewContext()
	if err != nil {
		t.Fatal(err)
	}
	x, err := FromSlice(c, []float32{1, 2}, Ax("d", 2))
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.OpenScope()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.enter("call"); err != nil {
		t.Fatal(err)
	}
	one := func(_ Tensor, err error) error { return err }
	for name, err := range map[string]error{
		"from slice":  one(FromSlice(c, []float32{1})),
		"add":         one(x.Add(c, x)),
		"dot":         one(x.Dot(c, x, "d")),
		"rms_norm":    one(x.RMSNorm(c, x, "d", 1)),
		"softmax":     one(x.Softmax(c, "d", 1)),
		"argmax":      one(x.Argmax(c, "d")),
		"get_rows":    one(x.GetRows(c, x, "d")),
		"rope":        one(x.RoPE(c, x, RoPENeoX, "d", "d")),
		"attention":   one(Attention(c, x, x, x, AttentionOptions{})),
		"to":          one(x.To(c, dtype.F16)),
		"materialize": one(x.Materialize(c)),
		"copy":        x.CopyFrom(c, x),
		"narrow":      one(x.Narrow(c, "d", 0, 1)),
		"rename":      one(x.Rename(c, "d", "e")),
		"permute":     one(x.Permute(c, "d")),
		"split":       one(x.Split(c, "d", Ax("d", 2))),
		"merge":       one(x.Merge(c, "d", "d")),
		"broadcast":   one(x.BroadcastTo(c, Ax("d", 2))),
		"close scope": s.Close(),
		"context":     c.Close(),
		"engine":      e.Close(),
	} {
		if !errors.Is(err, ErrBusy) {
			t.Errorf("%s in a busy context: %v", name, err)
		}
	}
	if _, err := c.OpenScope(); !errors.Is(err, ErrBusy) {
		t.Errorf("scope in a busy context: %v", err)
	}
	if _, err := Data[float32](x); err != nil {
		t.Errorf("data needs no context: %v", err)
	}
	c.exit()
	if err := errors.Join(s.Close(), x.Release(), e.Close()); err != nil {
		t.Error(err)
	}
	if _, err := c.OpenScope(); !errors.Is(err, ErrClosed) {
		t.Errorf("scope of a closed engine: %v", err)
	}
}
