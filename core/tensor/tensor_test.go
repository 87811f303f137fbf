package tensor

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/core/storage"
	"github.com/fucina-go/fucina/tests/leak"
)

var background = context.Background()

// half squared overflows an int by one bit, and so does a quarter of that in elements of 4
// bytes.
const half = 1 << (bits.UintSize / 2)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// iota32 returns a tensor of the given dims with the values 0, 1, 2 and so on.
func iota32(t testing.TB, dims ...int) Tensor {
	t.Helper()
	s := shape.Must(dims...)
	values := make([]float32, must(s.Elements()))
	for i := range values {
		values[i] = float32(i)
	}
	x, err := FromSlice(s, values)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func q8(t testing.TB, dims ...int) Tensor {
	t.Helper()
	s := shape.Must(dims...)
	x, err := FromSlice(s, make([]dtype.BlockQ8_0, must(s.StorageElements(dtype.Q8_0))))
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// strides is like shape.OfStrides, but accepts invalid values.
func strides(v ...int) shape.Shape {
	s := shape.Must(slices.Repeat([]int{1}, len(v))...)
	for i, x := range v {
		s.Set(i, x)
	}
	return s
}

// walk returns the f32 values of a view in logical order: the element at an index lies
// at the offset plus the sum of index times stride over the axes.
func walk(t testing.TB, x *Tensor) []float32 {
	t.Helper()
	p, err := x.Buffer().Host(background, storage.Read)
	if err != nil {
		t.Fatal(err)
	}
	all, err := storage.Elements[float32](p)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]float32, 0, x.Len())
	index := make([]int, x.Rank())
	for range x.Len() {
		at := x.Offset()
		for i, v := range index {
			s := x.Strides()
			at += v * s.Dim(i)
		}
		out = append(out, all[at])
		for i := len(index) - 1; i >= 0; i-- {
			if index[i]++; index[i] < x.Dim(i) {
				break
			}
			index[i] = 0
		}
	}
	return out
}

func TestFromBuffer(t *testing.T) {
	leak.Check(t)
	tests := []struct {
		name string
		size int
		d    dtype.DType
		s    shape.Shape
		err  error
	}{
		{"exact", 24, dtype.F32, shape.Must(2, 3), nil},
		{"oversized, as from a pool", 4096, dtype.F32, shape.Must(2, 3), nil},
		{"blocks", 8 * 34, dtype.Q8_0, shape.Must(4, 64), nil},
		{"one byte short", 23, dtype.F32, shape.Must(2, 3), ErrInvalidDataLength},
		{"one block short", 7 * 34, dtype.Q8_0, shape.Must(4, 64), ErrInvalidDataLength},
		{"part of a block", 4096, dtype.Q8_0, shape.Must(4, 63), ErrInvalidShape},
		{"no dtype", 24, dtype.Invalid, shape.Must(2, 3), ErrInvalidShape},
		{"no shape", 24, dtype.F32, shape.Shape{}, ErrInvalidShape},
		{"zero dim", 24, dtype.F32, strides(0, 3), ErrInvalidShape},
		{"count wraps", 24, dtype.F32, shape.Must(half, half), ErrOverflow},
		{"bytes wrap", 24, dtype.F32, shape.Must(half/2, half/2), ErrOverflow},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			buf := must(storage.New(tt.size))
			x, err := FromBuffer(buf, tt.d, tt.s)
			if !errors.Is(err, tt.err) {
				t.Fatalf("error %v, want %v", err, tt.err)
			}
			if err != nil {
				if !x.IsZero() || !buf.Unique() {
					t.Error("a failed FromBuffer took the reference")
				}
				buf.Release()
				return
			}
			if x.Buffer() != buf || !buf.Unique() || x.Offset() != 0 || !x.IsContiguous() || x.DType() != tt.d || x.Shape() != tt.s {
				t.Errorf("tensor %+v", x)
			}
			x.Release()
			if !x.IsZero() || x.String() != "released tensor" {
				t.Errorf("released tensor %+v", x)
			}
		})
	}
}

func TestFromSlice(t *testing.T) {
	leak.Check(t)
	if _, err := FromSlice(shape.Must(2, 3), make([]float32, 5)); !errors.Is(err, ErrInvalidDataLength) {
		t.Errorf("5 values for [2 3]: %v", err)
	}
	if _, err := FromSlice(shape.Must(1, 32), make([]dtype.BlockQ8_0, 32)); !errors.Is(err, ErrInvalidDataLength) {
		t.Errorf("32 blocks for 32 elements: %v", err)
	}
	values := []uint16{1, 2, 3, 4, 5, 6}
	x := must(FromSlice(shape.Must(2, 3), values))
	defer x.Release()
	values[0] = 9
	if got := must(Data[uint16](background, &x, storage.Read)); !slices.Equal(got, []uint16{1, 2, 3, 4, 5, 6}) {
		t.Errorf("values %v, want a copy of those given", got)
	}
	if x.Len() != 6 || x.StorageLen() != 6 || x.Dim(-1) != 3 || x.Rank() != 2 || x.String() != "u16 [2 3]" {
		t.Errorf("%s: len %d, storage %d", x.String(), x.Len(), x.StorageLen())
	}
	w := q8(t, 4, 64)
	defer w.Release()
	if s := w.Strides(); w.Len() != 256 || w.StorageLen() != 8 || s != shape.Must(2, 1) {
		t.Errorf("%s: len %d, storage %d, strides %s", w.String(), w.Len(), w.StorageLen(), s)
	}
}

// A view is refused by its largest reachable index, even if the index overflows an int.
func TestViewIsChecked(t *testing.T) {
	leak.Check(t)
	x := iota32(t, 2, 3) // 6 elements
	defer x.Release()
	tests := []struct {
		name    string
		shape   shape.Shape
		strides shape.Shape
		delta   int
		err     error
	}{
		{"identity", shape.Must(2, 3), strides(3, 1), 0, nil},
		{"transposed", shape.Must(3, 2), strides(1, 3), 0, nil},
		{"last element", shape.Must(1), strides(1), 5, nil},
		{"past the end", shape.Must(1), strides(1), 6, ErrInvalidDataLength},
		{"row too far", shape.Must(2, 3), strides(3, 1), 1, ErrInvalidDataLength},
		{"stride too far", shape.Must(2, 3), strides(4, 1), 0, ErrInvalidDataLength},
		{"broadcast", shape.Must(math.MaxInt/4, 3), strides(0, 1), 0, nil},
		{"overlapping windows", shape.Must(4, 3), strides(1, 1), 0, nil},
		{"windows too far", shape.Must(5, 3), strides(1, 1), 0, ErrInvalidDataLength},
		{"stride of a size-1 axis", shape.Must(1, 3), strides(math.MaxInt, 1), 0, nil},
		{"span wraps", shape.Must(3), strides(math.MaxInt), 0, ErrOverflow},
		{"span wraps to zero", shape.Must(half + 1), strides(half), 0, ErrOverflow},
		{"sum wraps", shape.Must(2, 2), strides(math.MaxInt, 2), 0, ErrOverflow},
		{"offset wraps", shape.Must(2), strides(1), math.MaxInt, ErrOverflow},
		{"count wraps", shape.Must(half, half), strides(0, 0), 0, ErrOverflow},
		{"negative stride", shape.Must(2), strides(-1), 3, ErrOverflow},
		{"negative offset", shape.Must(1), strides(1), -1, ErrIndexOutOfBounds},
		{"rank", shape.Must(2, 3), strides(1), 0, ErrInvalidShape},
		{"zero dim", strides(0), strides(1), 0, ErrInvalidShape},
		{"no shape", shape.Shape{}, shape.Shape{}, 0, ErrInvalidShape},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v, err := x.View(tt.shape, tt.strides, tt.delta)
			if !errors.Is(err, tt.err) {
				t.Fatalf("error %v, want %v", err, tt.err)
			}
			if err == nil {
				if v.Buffer() != x.Buffer() || x.Buffer().Unique() {
					t.Error("the view has no reference of its own")
				}
				v.Release()
			}
			if !x.Buffer().Unique() {
				t.Error("a reference is left over")
			}
		})
	}
}

// A view of a view is checked against the buffer. Its offset is relative to the first view.
func TestViewOfView(t *testing.T) {
	x := iota32(t, 4, 3)
	defer x.Release()
	row := must(x.Narrow(0, 2, 1))
	defer row.Release()
	v := must(row.View(shape.Must(2, 2), strides(3, 1), 1))
	defer v.Release()
	if got := walk(t, &v); !slices.Equal(got, []float32{7, 8, 10, 11}) {
		t.Errorf("view %v", got)
	}
	if _, err := row.View(shape.Must(2, 3), strides(3, 1), 1); !errors.Is(err, ErrInvalidDataLength) {
		t.Errorf("view past the end of the buffer: %v", err)
	}
}

func TestTransposedView(t *testing.T) {
	x := iota32(t, 2, 3)
	defer x.Release()
	v := must(x.Permute(1, 0))
	defer v.Release()
	if v.IsContiguous() || v.Shape() != shape.Must(3, 2) || v.Strides() != shape.Must(1, 3) {
		t.Errorf("transposed: %s, strides %s", v.String(), v.Strides())
	}
	if got := walk(t, &v); !slices.Equal(got, []float32{0, 3, 1, 4, 2, 5}) {
		t.Errorf("transposed %v", got)
	}
	if _, err := v.Reshape(shape.Must(6)); !errors.Is(err, ErrUnsupportedView) {
		t.Errorf("reshape of a transposed view: %v", err)
	}
	if _, err := v.Bytes(background, storage.Read); !errors.Is(err, ErrUnsupportedView) {
		t.Errorf("bytes of a transposed view: %v", err)
	}
	back := must(v.Permute(1, 0))
	defer back.Release()
	if !back.IsContiguous() || back.Overlaps() || v.Overlaps() {
		t.Error("transposing twice is not the identity")
	}
	// Writes are visible through every alias.
	must(Data[float32](background, &x, storage.Update))[3] = 42
	if got := walk(t, &v); got[1] != 42 {
		t.Errorf("the view does not see the write: %v", got)
	}
}

func TestPermuteRefuses(t *testing.T) {
	x := iota32(t, 2, 3, 4)
	defer x.Release()
	for _, order := range [][]int{{0, 1}, {0, 1, 2, 3}, {0, 1, 1}, {0, 1, 3}, {-1, 0, 1}, nil} {
		if _, err := x.Permute(order...); !errors.Is(err, ErrIndexOutOfBounds) && !errors.Is(err, ErrInvalidShape) {
			t.Errorf("permutation %v: %v", order, err)
		}
	}
	if !x.Buffer().Unique() {
		t.Error("a refused permutation took a reference")
	}
}

func TestBroadcastView(t *testing.T) {
	leak.Check(t)
	row := must(FromSlice(shape.Must(3), []float32{1, 2, 3}))
	grid := must(row.BroadcastTo(shape.Must(4, 3)))
	defer grid.Release()
	if grid.Strides() != strides(0, 1) || grid.IsContiguous() || !grid.Overlaps() {
		t.Errorf("broadcast: strides %s, contiguous %v, overlaps %v", grid.Strides(), grid.IsContiguous(), grid.Overlaps())
	}
	row.Release() // the view outlives its base
	if got := walk(t, &grid); !slices.Equal(got, []float32{1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3}) {
		t.Errorf("broadcast %v", got)
	}
	// A write through stride 0 would change several elements of the view.
	if _, err := grid.Bytes(background, storage.Update); !errors.Is(err, ErrUnsupportedView) {
		t.Errorf("write through a broadcast view: %v", err)
	}
	if grid.CanTakeInPlace() {
		t.Error("a broadcast view is taken in place")
	}
	for _, tt := range []struct {
		s   shape.Shape
		err error
	}{
		{shape.Must(3), ErrShapeMismatch},
		{shape.Must(4, 4), ErrShapeMismatch},
		{shape.Must(2, 1, 3), ErrShapeMismatch},
		{shape.Shape{}, ErrInvalidShape},
		{strides(0, 4, 3), ErrInvalidShape},
		{shape.Must(math.MaxInt/2+1, 4, 3), ErrOverflow},
	} {
		if v, err := grid.BroadcastTo(tt.s); !errors.Is(err, tt.err) {
			t.Errorf("broadcast to %s: %s, %v; want %v", tt.s, v.String(), err, tt.err)
		}
	}
	// A {1} view of stride 0 is not contiguous.
	one := must(FromSlice(shape.Must(1), []float32{7}))
	defer one.Release()
	v := must(one.View(shape.Must(1), strides(0), 0))
	defer v.Release()
	if v.IsContiguous() {
		t.Error("a scalar view of stride 0 is contiguous")
	}
}

func TestReshape(t *testing.T) {
	x := iota32(t, 4, 6)
	defer x.Release()
	rows := must(x.Narrow(0, 1, 2)) // contiguous, at an offset
	defer rows.Release()
	v := must(rows.Reshape(shape.Must(3, 4)))
	defer v.Release()
	if v.Offset() != 6 || !v.IsContiguous() || walk(t, &v)[0] != 6 || walk(t, &v)[11] != 17 {
		t.Errorf("reshaped rows at %d: %v", v.Offset(), walk(t, &v))
	}
	columns := must(x.Narrow(1, 1, 2))
	defer columns.Release()
	for _, tt := range []struct {
		of  *Tensor
		s   shape.Shape
		err error
	}{
		{&x, shape.Must(5, 5), ErrInvalidShape},
		{&x, shape.Shape{}, ErrInvalidShape},
		{&x, strides(0, 24), ErrInvalidShape},
		{&x, shape.Must(half, half), ErrOverflow},
		{&columns, shape.Must(8), ErrUnsupportedView},
	} {
		if _, err := tt.of.Reshape(tt.s); !errors.Is(err, tt.err) {
			t.Errorf("reshape of %s to %s: %v, want %v", tt.of.String(), tt.s, err, tt.err)
		}
	}
}

func TestNarrow(t *testing.T) {
	x := iota32(t, 3, 4)
	defer x.Release()
	v := must(x.Narrow(1, 1, 2))
	defer v.Release()
	if got := walk(t, &v); !slices.Equal(got, []float32{1, 2, 5, 6, 9, 10}) {
		t.Errorf("columns 1 and 2: %v", got)
	}
	w := must(v.Narrow(0, 2, 1))
	defer w.Release()
	if got := walk(t, &w); !slices.Equal(got, []float32{9, 10}) {
		t.Errorf("row 2 of them: %v", got)
	}
	for _, r := range [][3]int{{-1, 0, 1}, {2, 0, 1}, {0, -1, 1}, {0, 0, 0}, {0, 0, -1}, {0, 0, 4}, {0, 3, 1}, {0, 2, 2}, {0, 1, math.MaxInt}, {0, math.MaxInt, 1}, {1, math.MinInt, 1}} {
		if _, err := x.Narrow(r[0], r[1], r[2]); !errors.Is(err, ErrIndexOutOfBounds) {
			t.Errorf("Narrow%v of %s: %v", r, x.String(), err)
		}
	}
}

// Blocks are indivisible, so the last axis of a block format stays last, and its views are
// whole numbers of blocks.
func TestBlockViews(t *testing.T) {
	leak.Check(t)
	w := q8(t, 3, 4, 64)
	defer w.Release()
	accepted := map[string]func() (Tensor, error){
		"identity view":           func() (Tensor, error) { return w.View(w.Shape(), w.Strides(), 0) },
		"reshape of lead axes":    func() (Tensor, error) { return w.Reshape(shape.Must(12, 64)) },
		"narrow of a lead axis":   func() (Tensor, error) { return w.Narrow(1, 1, 2) },
		"narrow to the whole":     func() (Tensor, error) { return w.Narrow(2, 0, 64) },
		"permuted lead axes":      func() (Tensor, error) { return w.Permute(1, 0, 2) },
		"broadcast of new axes":   func() (Tensor, error) { return w.BroadcastTo(shape.Must(5, 3, 4, 64)) },
		"second owner's identity": func() (Tensor, error) { return w.Retained(), nil },
		"other shape":             func() (Tensor, error) { return w.View(shape.Must(12, 64), strides(2, 1), 0) },
		"other strides":           func() (Tensor, error) { return w.View(shape.Must(4, 3, 32), strides(2, 8, 1), 1) },
		"split last axis":         func() (Tensor, error) { return w.Reshape(shape.Must(3, 8, 32)) },
		"merged last axis":        func() (Tensor, error) { return w.Reshape(shape.Must(3, 256)) },
		"narrow of a block":       func() (Tensor, error) { return w.Narrow(2, 32, 32) },
	}
	want := map[string]struct {
		strides shape.Shape
		offset  int
	}{
		"identity view":           {strides(8, 2, 1), 0},
		"reshape of lead axes":    {strides(2, 1), 0},
		"narrow of a lead axis":   {strides(8, 2, 1), 2},
		"narrow to the whole":     {strides(8, 2, 1), 0},
		"permuted lead axes":      {strides(2, 8, 1), 0},
		"broadcast of new axes":   {strides(0, 8, 2, 1), 0},
		"second owner's identity": {strides(8, 2, 1), 0},
		"other shape":             {strides(2, 1), 0},
		"other strides":           {strides(2, 8, 1), 1},
		"split last axis":         {strides(8, 1, 1), 0},
		"merged last axis":        {strides(8, 1), 0},
		"narrow of a block":       {strides(8, 2, 1), 1},
	}
	for name, view := range accepted {
		v, err := view()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if v.Strides() != want[name].strides || v.Offset() != want[name].offset {
			t.Errorf("%s: strides %s at %d blocks, want %s at %d", name, v.Strides(), v.Offset(), want[name].strides, want[name].offset)
		}
		v.Release()
	}
	refused := map[string]func() (Tensor, error){
		"view inside a block":   func() (Tensor, error) { return w.View(shape.Must(3, 16), strides(8, 1), 0) },
		"reshape of last axis":  func() (Tensor, error) { return w.Reshape(shape.Must(3, 16, 16)) },
		"narrow inside a block": func() (Tensor, error) { return w.Narrow(2, 0, 16) },
		"narrow from inside":    func() (Tensor, error) { return w.Narrow(2, 16, 32) },
		"permuted block axis":   func() (Tensor, error) { return w.Permute(0, 2, 1) },
		"reshape to one column": func() (Tensor, error) { return w.Reshape(shape.Must(3*4*64, 1)) },
	}
	for name, view := range refused {
		if v, err := view(); !errors.Is(err, ErrUnsupportedView) {
			t.Errorf("%s: %s, %v; want ErrUnsupportedView", name, v.String(), err)
		}
	}
	if v, err := w.View(shape.Must(3, 4, 64), strides(8, 2, 1), 1); !errors.Is(err, ErrInvalidDataLength) {
		t.Errorf("view past the end: %s, %v; want ErrInvalidDataLength", v.String(), err)
	}
	if !w.Buffer().Unique() {
		t.Error("a reference is left over")
	}
}

// Bitcast keeps the layout and the memory, and refuses dtypes of another size and blocks.
func TestBitcast(t *testing.T) {
	leak.Check(t)
	x := iota32(t, 4, 3)
	defer x.Release()
	w := q8(t, 2, 32)
	defer w.Release()
	bytes := must(FromSlice(shape.Must(2), []uint8{0, 2}))
	defer bytes.Release()
	part := must(x.Narrow(1, 1, 2))
	v := must(part.Bitcast(dtype.I32))
	part.Release()
	if v.DType() != dtype.I32 || v.Shape() != shape.Must(4, 2) || v.Strides() != strides(3, 1) || v.Offset() != 1 || v.Buffer() != x.Buffer() {
		t.Errorf("got %s with strides %s at %d", v.String(), v.Strides(), v.Offset())
	}
	v.Release()
	for _, tt := range []struct {
		x *Tensor
		d dtype.DType
	}{{&x, dtype.F16}, {&x, dtype.I64}, {&x, dtype.Q8_0}, {&x, dtype.Invalid}, {&w, dtype.Q8_0}, {&w, dtype.F32}, {&bytes, dtype.Bool}} {
		if v, err := tt.x.Bitcast(tt.d); !errors.Is(err, ErrDType) {
			t.Errorf("%s as %s: %s, %v; want ErrDType", tt.x.String(), tt.d, v.String(), err)
		}
	}
	if !x.Buffer().Unique() || !w.Buffer().Unique() {
		t.Error("a reference is left over")
	}
}

func TestOverlaps(t *testing.T) {
	x := iota32(t, 4, 3)
	defer x.Release()
	for _, tt := range []struct {
		shape, strides shape.Shape
		want           bool
	}{
		{shape.Must(3, 4), strides(1, 3), false},
		{shape.Must(4, 3), strides(0, 1), true},
	} {
		v := must(x.View(tt.shape, tt.strides, 0))
		if got := v.Overlaps(); got != tt.want {
			t.Errorf("%s with strides %s overlaps: %v, want %v", tt.shape, tt.strides, got, tt.want)
		}
		v.Release()
	}
	w := q8(t, 3, 4, 64)
	defer w.Release()
	if w.Overlaps() {
		t.Error("contiguous blocks overlap")
	}
}

func TestCanTakeInPlace(t *testing.T) {
	leak.Check(t)
	x := iota32(t, 4, 3)
	if !x.CanTakeInPlace() {
		t.Error("a fresh tensor cannot be taken")
	}
	v := x.Retained()
	if x.CanTakeInPlace() || v.CanTakeInPlace() {
		t.Error("a shared buffer is taken")
	}
	v.Release()
	if !x.CanTakeInPlace() {
		t.Error("a buffer is not taken after its other owner has gone")
	}
	tail := must(x.Narrow(0, 1, 3))
	turned := must(x.Permute(1, 0))
	x.Release()
	turned.Release()
	if tail.CanTakeInPlace() {
		t.Error("a view at an offset is taken")
	}
	tail.Release()

	y := iota32(t, 4, 3)
	turned = must(y.Permute(1, 0))
	y.Release()
	if turned.CanTakeInPlace() {
		t.Error("a view that is not contiguous is taken")
	}
	turned.Release()

	ro := must(FromBuffer(storage.Borrow(make([]byte, 16), storage.BorrowOptions{ReadOnly: true}), dtype.F32, shape.Must(4)))
	defer ro.Release()
	if ro.CanTakeInPlace() {
		t.Error("read-only storage is taken")
	}
	if _, err := Data[float32](background, &ro, storage.Update); !errors.Is(err, ErrReadOnly) {
		t.Errorf("write to read-only storage: %v", err)
	}
	if _, err := Data[float32](background, &ro, storage.Read); err != nil {
		t.Errorf("read of read-only storage: %v", err)
	}
}

func TestDataWantsItsDType(t *testing.T) {
	x := iota32(t, 2, 2)
	defer x.Release()
	if _, err := Data[int32](background, &x, storage.Read); !errors.Is(err, ErrDType) {
		t.Errorf("f32 as i32: %v", err)
	}
	if _, err := Data[dtype.BlockQ8_0](background, &x, storage.Read); !errors.Is(err, ErrDType) {
		t.Errorf("f32 as q8_0: %v", err)
	}
	w := q8(t, 2, 64)
	defer w.Release()
	if blocks, err := Data[dtype.BlockQ8_0](background, &w, storage.Update); err != nil || len(blocks) != 4 {
		t.Errorf("%d blocks, %v; want 4", len(blocks), err)
	}
}

// Bytes returns only the bytes of the view, and the slice cannot be extended to others.
func TestBytesOfView(t *testing.T) {
	x := iota32(t, 4, 3)
	defer x.Release()
	v := must(x.Narrow(0, 1, 2))
	defer v.Release()
	got := must(Data[float32](background, &v, storage.Overwrite))
	if !slices.Equal(got, []float32{3, 4, 5, 6, 7, 8}) || cap(got) != 6 {
		t.Errorf("data %v, capacity %d", got, cap(got))
	}
	gen := x.Buffer().Generation()
	if p := must(v.Bytes(background, storage.Read)); len(p) != 24 || cap(p) != 24 {
		t.Errorf("%d bytes, capacity %d; want 24", len(p), cap(p))
	}
	if x.Buffer().Generation() != gen {
		t.Error("a read moved the generation")
	}
	must(v.Bytes(background, storage.Update))
	if x.Buffer().Generation() != gen+1 {
		t.Error("a partial write does not count as a mutation")
	}
}

func TestViewsDoNotAllocate(t *testing.T) {
	x := iota32(t, 4, 6)
	defer x.Release()
	flat, cube := shape.Must(24), shape.Must(2, 4, 6)
	st := strides(1, 4)
	turnedShape := shape.Must(4, 6)
	if n := testing.AllocsPerRun(100, func() {
		a, err1 := x.Narrow(0, 1, 2)
		b, err2 := x.Reshape(flat)
		c, err3 := x.Permute(1, 0)
		d, err4 := x.BroadcastTo(cube)
		e, err5 := x.View(turnedShape, st, 0)
		if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
			t.Error(err)
		}
		_, err := Data[float32](background, &a, storage.Update)
		if err != nil || a.Overlaps() || b.CanTakeInPlace() {
			t.Error("unexpected view")
		}
		a.Release()
		b.Release()
		c.Release()
		d.Release()
		e.Release()
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// Views of one buffer share its bytes. The example shows which are contiguous and which are
// refused.
func Example_rawViewTour() {
	ctx := context.Background()
	x, _ := FromSlice(shape.Must(2, 3), []float32{1, 2, 3, 4, 5, 6})
	defer x.Release()

	// Transposed view: same buffer, swapped strides, not contiguous.
	three2, swapped := shape.Must(3, 2), shape.Must(1, 3)
	t, _ := x.View(three2, swapped, 0)
	defer t.Release()
	fmt.Println(t.Buffer() == x.Buffer(), t.IsContiguous())

	_, err := Data[float32](ctx, &t, storage.Read)
	fmt.Println(errors.Is(err, ErrUnsupportedView))

	// Zero-stride broadcast view; reshape of a contiguous tensor is a view.
	b, _ := x.BroadcastTo(shape.Must(4, 2, 3))
	defer b.Release()
	fmt.Println(b.Shape(), b.Strides())
	flat, _ := x.Reshape(shape.Must(6))
	defer flat.Release()
	values, _ := Data[float32](ctx, &flat, storage.Read)
	fmt.Println(values)

	// Other dtypes.
	ids, _ := FromSlice(shape.Must(2, 3), []uint16{1, 2, 3, 4, 5, 6})
	defer ids.Release()
	fmt.Println(ids.String())

	// Block-quantized tensor: last axis in logical elements, storage in blocks
	// (here 4*64/32 == 8).
	w, _ := FromSlice(shape.Must(4, 64), make([]dtype.BlockQ8_0, 8))
	defer w.Release()
	fmt.Println(w.String(), w.Len(), w.StorageLen(), w.Strides())
	// Output:
	// true false
	// true
	// [4 2 3] [0 3 1]
	// [1 2 3 4 5 6]
	// u16 [2 3]
	// q8_0 [4 64] 256 8 [2 1]
}

func BenchmarkNarrow(b *testing.B) {
	x := iota32(b, 4, 6)
	defer x.Release()
	for b.Loop() {
		v, err := x.Narrow(0, 1, 2)
		if err != nil {
			b.Fatal(err)
		}
		v.Release()
	}
}

func BenchmarkPermute(b *testing.B) {
	x := iota32(b, 4, 6)
	defer x.Release()
	for b.Loop() {
		v, err := x.Permute(1, 0)
		if err != nil {
			b.Fatal(err)
		}
		v.Release()
	}
}

func BenchmarkView(b *testing.B) {
	x := iota32(b, 4, 6)
	defer x.Release()
	s, st := shape.Must(6, 4), shape.Must(1, 6)
	for b.Loop() {
		v, err := x.View(s, st, 0)
		if err != nil {
			b.Fatal(err)
		}
		v.Release()
	}
}

func BenchmarkBroadcastTo(b *testing.B) {
	x := iota32(b, 4, 6)
	defer x.Release()
	s := shape.Must(2, 4, 6)
	for b.Loop() {
		v, err := x.BroadcastTo(s)
		if err != nil {
			b.Fatal(err)
		}
		v.Release()
	}
}

// Discard takes contiguous views of writable memory, and leaves the elements around the view.
func TestDiscard(t *testing.T) {
	leak.Check(t)
	x := iota32(t, 4, 3)
	defer x.Release()
	rows, columns := must(x.Narrow(0, 1, 2)), must(x.Narrow(1, 0, 1))
	defer rows.Release()
	defer columns.Release()
	if err := rows.Discard(); err != nil {
		t.Error(err)
	}
	got := must(Data[float32](t.Context(), &x, storage.Read))
	if !slices.Equal(got[:3], []float32{0, 1, 2}) || !slices.Equal(got[9:], []float32{9, 10, 11}) {
		t.Errorf("rows 1 and 2 were discarded: %v", got)
	}
	if err := columns.Discard(); !errors.Is(err, ErrUnsupportedView) {
		t.Errorf("a column: %v", err)
	}
	lent := must(FromBuffer(storage.Borrow(make([]byte, 4), storage.BorrowOptions{ReadOnly: true}), dtype.F32, shape.Must(1)))
	if err := lent.Discard(); !errors.Is(err, ErrReadOnly) {
		t.Errorf("read-only: %v", err)
	}
	lent.Release()
}
