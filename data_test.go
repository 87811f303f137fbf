package fucina_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/fucina-go/fucina"
)

// Data returns a copy: a change of the tensor does not change the slice, and a change of the
// slice does not change the tensor.
func TestDataIsACopy(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		x, src := numbered(c, "k:2"), fucina.FromSlice(c, []float32{7, 8}, ax("k:2")...)
		y := x.Add(x)
		for _, z := range []fucina.Tensor{x, y} {
			before := values[float32](t, z)
			kept := slices.Clone(before)
			if err := z.CopyFrom(src).Err(); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(before, kept) {
				t.Errorf("the copy of %v became %v", kept, before)
			}
			before[0] = -1
			want(t, z, "{k:2}", []float32{7, 8})
		}
	})
}

// After an Update every operation sees the new elements, even if a device had a copy of the
// tensor and computed with it during the call.
func TestUpdate(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		x := fucina.FromSlice(c, []float32{0, 0}, ax("k:2")...)
		y := x.Add(x) // brings x to the device
		err := fucina.Update(x, func(v []float32) error {
			v[0] = 1
			x.Add(x) // may read the old or the new element
			v[0] = 2
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		z := x.Add(x)
		want(t, y, "{k:2}", []float32{0, 0})
		want(t, z, "{k:2}", []float32{4, 0})

		// A view of a result that only the device holds.
		row := z.Narrow("k", 1, 1)
		if err := fucina.Update(row, func(v []float32) error { v[0]--; return nil }); err != nil {
			t.Error(err)
		}
		sum := z.Add(x)
		want(t, sum, "{k:2}", []float32{6, -1})
	})
}

// Read and Update return the error of their function, and its writes remain.
func TestLentErrors(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		x := numbered(c, "k:2")
		mine := errors.New("mine")
		if err := fucina.Update(x, func(v []float32) error { v[1] = 9; return mine }); err != mine {
			t.Errorf("update: %v", err)
		}
		if err := fucina.Read(x, func(v []float32) error {
			if !slices.Equal(v, []float32{1, 9}) {
				t.Errorf("got %v", v)
			}
			return mine
		}); err != mine {
			t.Errorf("read: %v", err)
		}
		refused(t, fucina.Read(x, notCalled[int32](t)), fucina.ErrDType, "read: f32 {k:2} read as i32")
		refused(t, fucina.Update(x, notCalled[int32](t)), fucina.ErrDType, "update: f32 {k:2} read as i32")
		for _, err := range []error{fucina.Read[float32](x, nil), fucina.Update[float32](x, nil)} {
			if err == nil {
				t.Error("lent to no function")
			}
		}
	})
}

// The memory that Read and Update lend is valid until the function returns or panics, even
// if the tensor ends during the call.
func TestLentMemoryStays(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		e := c.Engine()
		lend := map[string]func(fucina.Tensor, func([]float32) error) error{
			"read": fucina.Read[float32], "update": fucina.Update[float32],
		}
		for name, call := range lend {
			x := numbered(c, "k:3")
			err := call(x, func(v []float32) error {
				x.Release()
				defer fucina.FromSlice(c, []float32{7, 8, 9}, ax("k:3")...).Release()
				if !slices.Equal(v, []float32{1, 2, 3}) {
					t.Errorf("%s: the elements became %v", name, v)
				}
				return nil
			})
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}

			x = numbered(c, "k:3")
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s swallowed a panic", name)
					}
				}()
				_ = call(x, func([]float32) error { panic("mine") })
			}()
			x.Release()
			if s := e.Stats(); s.Handles != 0 || s.Pool.Outstanding != 0 {
				t.Errorf("%s: after a panic of the function: %+v", name, s)
			}
		}
	})
}

// If the function of an Update writes to one part of a tensor, and an operation writes to
// another part during the call, both writes remain.
func TestUpdateOfAPart(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		x, src := numbered(c, "k:2"), fucina.FromSlice(c, []float32{7}, ax("k:1")...)
		y := x.Add(x)
		mine, other := y.Narrow("k", 0, 1), y.Narrow("k", 1, 1)
		err := fucina.Update(mine, func(v []float32) error {
			err := other.CopyFrom(src).Err()
			v[0] = 5
			return err
		})
		if err != nil {
			t.Error(err)
		}
		want(t, y, "{k:2}", []float32{5, 7})
		sum := y.Add(y)
		want(t, sum, "{k:2}", []float32{10, 14})
	})
}

// An engine that closes during Read reports the buffer that Read uses, which stays valid until
// Read returns and is freed then.
func TestCloseDuringRead(t *testing.T) {
	c, _ := open(t)
	e := c.Engine()
	x := numbered(c, "d:3")
	err := fucina.Read(x, func(v []float32) error {
		if err := e.Close(); err == nil || !strings.Contains(err.Error(), "1 buffers of the pool were not released") {
			t.Errorf("close: %v", err)
		}
		if v[2] != 3 {
			t.Errorf("the elements are %v", v)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if s := e.Stats(); s.Pool.Outstanding != 0 || s.Handles != 0 {
		t.Errorf("after Read: %+v", s)
	}
}
