package fucina_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/storage"
	"github.com/fucina-go/fucina/tests/leak"
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

// A tensor of Empty has memory where it was written, until that is discarded. All of it goes
// back to the system at its release, and nothing goes into the pool.
func TestMemoryOfEmpty(t *testing.T) {
	if !sparseMemory {
		t.Skip("needs gigabytes of address space that cost nothing untouched")
	}
	c, end := open(t)
	defer end()
	const mib = 1 << 20
	rows, width := int64(4<<10), mib // of bytes; variables, so that the test also compiles for 32 bits
	source := c.Full(fucina.U8, 7, fucina.Ax("row", 32), fucina.Ax("d", width))
	before := leak.Now()
	resident, ok := leak.Resident()
	ok = ok && !testing.Short() // a short run may be that of an emulator, which has memory of its own
	x := check{t}.of(c.Engine().Empty(fucina.U8, fucina.Ax("row", int(rows)), fucina.Ax("d", width))).On(c)
	more := func() int64 {
		now, _ := leak.Resident()
		return (now - resident) / mib
	}
	f := c.Frame()
	for _, first := range []int{5, 3000} {
		if err := x.Narrow("row", first, 32).CopyFrom(source).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if n := more(); ok && (n < 48 || n > 96) {
		t.Errorf("%d MiB are resident after a write of 64 MiB of %d", n, rows)
	}
	if err := x.Narrow("row", 5, 32).Discard(); err != nil {
		t.Error(err)
	}
	if n := more(); ok && n > 48 {
		t.Errorf("%d MiB are resident after 32 of 64 MiB were discarded", n)
	}
	want(t, x.Narrow("row", 3031, 1).Narrow("d", width-2, 2), "u8 {row:1 d:2}", []uint8{7, 7})
	f.Close()
	x.Release()
	if err := before.Left(); err != nil {
		t.Error("after the release:", err)
	}
	if n := more(); ok && n > 16 {
		t.Errorf("%d MiB are resident after the release", n)
	}
}

// Discard takes contiguous tensors of writable memory. Only the elements of the tensor are
// lost, on the host and on a device.
func TestDiscard(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		x := check{t}.of(c.Engine().Empty(fucina.F32, ax("row:3 d:5000")...)).On(c)
		ones := c.Ones(fucina.F32, ax("row:3 d:5000")...)
		if err := x.CopyFrom(ones).Err(); err != nil {
			t.Fatal(err)
		}
		middle := x.Narrow("row", 1, 1)
		if err := middle.Discard(); err != nil {
			t.Error(err)
		}
		want(t, x.Narrow("row", 0, 1), "{row:1 d:5000}", values[float32](t, ones)[:5000])
		want(t, x.Narrow("row", 2, 1), "{row:1 d:5000}", values[float32](t, ones)[:5000])
		if err := middle.CopyFrom(ones.Narrow("row", 0, 1)).Err(); err != nil {
			t.Error(err)
		}
		want(t, x, "{row:3 d:5000}", values[float32](t, ones))
		refused(t, x.Narrow("d", 0, 1).Discard(), fucina.ErrUnsupportedView, "data_test.go:", "discard: f32 {row:3 d:1}", "strides [5000 1]")
		bad := x.Rename("no", "n")
		if err := bad.Discard(); err != bad.Err() {
			t.Errorf("of a failed tensor: %v", err)
		}
		x.Release()
		refused(t, x.Discard(), fucina.ErrReleased, "discard: ")
		refused(t, fucina.Tensor{}.Discard(), fucina.ErrReleased, "discard: ")
		buf := storage.Borrow(make([]byte, 8), storage.BorrowOptions{ReadOnly: true})
		w := check{t}.of(c.Engine().Weight(buf, fucina.F32, ax("d:2")...))
		refused(t, w.Discard(), fucina.ErrReadOnly, "discard: f32 {d:2}: ")
		w.Release()
	})
}
